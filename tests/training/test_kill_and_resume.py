"""Workers are killed in the middle of a save; a new set of them continues from the previous checkpoint."""

import os
import signal
from pathlib import Path

import pytest
import torch
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from gloo import run_gloo
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.strategies.config import DDPConfig
from xmtc.distributed.strategy import ParameterGroup
from xmtc.training.checkpoint import CheckpointStore

STEPS, EVERY = 6, 2


def run(folder: Path, kill_at: int | None) -> list[float]:
    """STEPS steps of linear regression from the newest checkpoint on; the local losses."""
    strategy = DistributedConfig(workers=2, strategy=DDPConfig()).build_strategy(
        torch.device("cpu")
    )
    torch.manual_seed(3)
    model = torch.nn.Linear(5, 1)
    module = strategy.prepare(
        model, [ParameterGroup("all", list(model.parameters()), 0.1, 0.01)]
    )
    store = CheckpointStore(folder)
    newest = store.latest()
    first = 0
    if newest is not None:
        first = newest.state["consumed"]
        strategy.load(newest.path)

    def write(path: Path) -> None:
        strategy.save(path)
        if step + 1 == kill_at and strategy.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    losses = []
    for step in range(first, STEPS):
        # Every random number comes from the step: this is what makes a checkpoint without random state exact.
        inputs = torch.randn(
            4, 5, generator=torch.Generator().manual_seed(2 * step + strategy.rank)
        )
        with strategy.micro_batch(last=True):
            loss = (module(inputs) - inputs.sum(dim=1, keepdim=True)).square().sum() / 8
            strategy.backward(loss)
        strategy.step(max_grad_norm=1.0)
        losses.append(loss.item())
        if (step + 1) % EVERY == 0:
            store.save(
                step + 1, {"consumed": step + 1}, write, strategy.checkpoint_bytes()
            )
    strategy.close()
    return losses


def test_killed_in_a_save_resumes_to_the_same_losses(tmp_path):
    uninterrupted = run_gloo(run, 2, tmp_path / "a", tmp_path / "whole", None)
    with pytest.raises((ProcessExitedException, ProcessRaisedException)):
        run_gloo(run, 2, tmp_path / "b", tmp_path / "killed", 4)
    assert sorted(p.name for p in (tmp_path / "killed").iterdir()) == [
        ".writing_00000004",
        "step_00000002",
    ]
    resumed = run_gloo(run, 2, tmp_path / "b", tmp_path / "killed", None)
    assert resumed == [losses[2:] for losses in uninterrupted]
    assert sorted(p.name for p in (tmp_path / "killed").iterdir()) == [
        "step_00000004",
        "step_00000006",
    ]
