"""Offloading to a disk, with tables large enough that DeepSpeed does swap them."""

from pathlib import Path

import pytest
import strategy_contract
import torch
from strategy_contract import STEPS, Record, train

from gloo import run_gloo
from xmtc.distributed.collectives import barrier
from xmtc.distributed.strategies.config import DeepSpeedConfig, StrategyConfig
from xmtc.distributed.strategies.deepspeed_support import can_swap

# 1.2 MB of the label table and 2 MB of a frozen matrix on each of two ranks: below 1 MB DeepSpeed leaves them in memory
WIDTH, LABELS = 1024, 600
SAVED_AT = STEPS + 1


def undisturbed_and_resumed(folder: Path) -> tuple[Record, Record, Record, int, int]:
    """In memory; on disk; on disk from a checkpoint in the middle; bytes on disk then; files left there at the end."""
    strategy_contract.WIDTH, strategy_contract.LABELS = WIDTH, LABELS
    disk = folder / "disk"
    in_memory: StrategyConfig = DeepSpeedConfig(stage=3)
    on_disk = DeepSpeedConfig(stage=3, offload_optimizer="nvme", offload_parameters="nvme", nvme_path=str(disk))
    strategy, swapped = on_disk.build("fp32", torch.device("cpu")), 0

    def save(step: int) -> None:
        nonlocal swapped
        if step == SAVED_AT:
            if strategy.rank == 0:
                (folder / "checkpoint").mkdir()
            barrier()
            strategy.save(folder / "checkpoint")
            swapped = sum(path.stat().st_size for path in disk.rglob("*.swp"))
            barrier()

    plain = train(in_memory.build("fp32", torch.device("cpu")))
    whole = train(strategy, after_step=save)
    resumed = train(on_disk.build("fp32", torch.device("cpu")), first=SAVED_AT + 1, resume=folder / "checkpoint")
    barrier()
    return plain, whole, resumed, swapped, len(list(disk.iterdir()))


@pytest.mark.faults  # DeepSpeed compiles an extension first, which takes minutes of two cores
@pytest.mark.timeout(1200)
def test_training_from_a_disk_is_the_same_and_leaves_nothing_there(tmp_path):
    if not can_swap():
        pytest.skip("needs libaio and its headers")
    for plain, whole, resumed, swapped, left in run_gloo(undisturbed_and_resumed, 2, tmp_path, tmp_path):
        assert whole.losses == pytest.approx(plain.losses, rel=1e-6)
        assert resumed.losses == pytest.approx(plain.losses[SAVED_AT + 1 :], rel=1e-6)
        for name, value in plain.final.items():
            torch.testing.assert_close(whole.final[name], value)
            torch.testing.assert_close(resumed.final[name], value)
        # What the estimate says: weights, gradients, two moments of the table; every weight as a parameter.
        assert swapped == pytest.approx(16 * LABELS * WIDTH + 4 * (LABELS * WIDTH + 2 * WIDTH**2), rel=0.02)
        assert left == 0
