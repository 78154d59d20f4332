"""The contract: every strategy trains the same model, saves the same state, and refuses the same steps."""

import gc
import math
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from strategy_contract import (
    STEPS,
    Record,
    make_model,
    micro_batches,
    train,
    train_step,
)

from gloo import run_gloo
from xmtc.distributed.collectives import barrier
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.strategies.config import (
    DDPConfig,
    DeepSpeedConfig,
    SingleConfig,
    StrategyConfig,
)
from xmtc.distributed.strategy import ParameterGroup, Strategy
from xmtc.errors import CheckpointError, ConfigError

STRATEGIES: dict[str, StrategyConfig] = {
    "ddp": DDPConfig(),
    "zero0": DeepSpeedConfig(stage=0),
    "zero1": DeepSpeedConfig(stage=1),
    "zero2": DeepSpeedConfig(stage=2),
    # Parameters below the threshold would stay whole on every rank: all of this model's.
    "zero3": DeepSpeedConfig(
        stage=3, zero_optimization={"stage3_param_persistence_threshold": 0}
    ),
    "zero3_offload": DeepSpeedConfig(
        stage=3, offload_optimizer="cpu", offload_parameters="cpu"
    ),
}
SAVED_AT = STEPS + 1  # in the middle of the second phase
TRAINED = {
    "head.weight",
    "head.bias",
    "layers.0.down",
    "layers.0.up",
    "layers.1.down",
    "layers.1.up",
}


@dataclass
class Observed:
    """What one rank saw of one strategy."""

    uninterrupted: Record
    resumed: Record
    from_single: Record
    bf16: Record
    refused: dict[str, Any]
    after_close: dict[str, Any]


def saving(strategy: Strategy, folder: Path):
    def after_step(step: int) -> None:
        if step == SAVED_AT:
            gc.collect()  # the first phase's engine ends whenever Python finds it, and must take nothing along
            if strategy.rank == 0:
                folder.mkdir()
            barrier()
            strategy.save(folder)
            barrier()

    return after_step


def refuse_non_finite(strategy: Strategy) -> dict[str, Any]:
    """One rank's gradient is not a number: nobody steps, and the next step is as if nothing had been."""
    model = make_model()
    module = strategy.prepare(model, model.groups(0))
    train_step(strategy, module, 0)
    before = strategy.gather_trainable()
    _, norm = train_step(
        strategy, module, 1, factor=math.nan if strategy.rank == 0 else 1.0
    )
    after = strategy.gather_trainable()
    _, next_norm = train_step(strategy, module, 1)
    same = all(torch.equal(before[name], after[name]) for name in before)
    return {"norm": norm, "unchanged": same, "next_norm": next_norm}


def closed(strategy: Strategy) -> dict[str, Any]:
    """After training, the model is an ordinary one again, here and with another strategy."""
    model = make_model()
    train_step(strategy, strategy.prepare(model, model.groups(1)), 0)
    trained = strategy.gather_trainable()
    strategy.close()
    same = all(
        torch.equal(trained[name], p)
        for name, p in model.named_parameters()
        if name in trained
    )
    left = [name for p in model.parameters() for name in vars(p)]
    hooks = sum(
        len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()
    )
    single = SingleConfig().build("fp32", torch.device("cpu"))
    loss, _ = train_step(single, single.prepare(model, model.groups(1)), 1)
    return {"same": same, "left": left, "hooks": hooks, "loss": loss}


def observe(folder: Path, single: Path) -> dict[str, Observed]:
    """Every strategy in the same processes, since starting them costs more than training."""
    observed = {}
    for name, strategy_config in STRATEGIES.items():
        config = DistributedConfig(workers=2, strategy=strategy_config)

        def build(config: DistributedConfig = config) -> Strategy:
            return config.chosen_strategy().build(config.precision, torch.device("cpu"))

        strategy = build()
        strategy.part_bytes = 2000  # several files, by both ranks
        observed[name] = Observed(
            uninterrupted=train(strategy, after_step=saving(strategy, folder / name)),
            resumed=train(build(), first=SAVED_AT + 1, resume=folder / name),
            from_single=train(build(), first=SAVED_AT + 1, resume=single),
            bf16=train(build(replace(config, precision="bf16")), dtype=torch.bfloat16),
            refused=refuse_non_finite(build()),
            after_close=closed(build()),
        )
    return observed


@dataclass
class Contract:
    folder: Path
    single: Record
    single_bf16: Record
    ranks: list[dict[str, Observed]]

    def losses(self, name: str, run: str) -> list[float]:
        """Global losses of a run: the shares of all ranks."""
        return [
            sum(shares)
            for shares in zip(
                *(getattr(rank[name], run).losses for rank in self.ranks), strict=True
            )
        ]


@pytest.fixture(scope="module")
def contract(tmp_path_factory) -> Contract:
    folder = tmp_path_factory.mktemp("contract")
    strategy = DistributedConfig().build_strategy(torch.device("cpu"))
    single = train(strategy, after_step=saving(strategy, folder / "single"))
    single_bf16 = train(
        SingleConfig().build("bf16", torch.device("cpu")), dtype=torch.bfloat16
    )
    ranks = run_gloo(
        observe, 2, folder / "gloo", folder, folder / "single", timeout_s=240
    )
    return Contract(folder, single, single_bf16, ranks)


@pytest.mark.parametrize("name", STRATEGIES)
def test_same_losses_norms_and_weights_as_one_process(contract, name):
    assert contract.losses(name, "uninterrupted") == pytest.approx(
        contract.single.losses, rel=1e-6
    )
    for rank in contract.ranks:
        run = rank[name].uninterrupted
        assert run.evaluated == pytest.approx(contract.single.evaluated, rel=1e-5)
        assert run.norms == pytest.approx(contract.single.norms, rel=1e-5)
        assert run.final.keys() == contract.single.final.keys() == TRAINED
        for parameter, value in contract.single.final.items():
            torch.testing.assert_close(
                run.final[parameter], value, rtol=1e-5, atol=1e-6
            )


def test_the_run_depends_on_clipping_and_on_both_phases(contract):
    """Guards the comparison: were the norms below the limit, or the adapters at rest, it would show little."""
    assert min(contract.single.norms) > 1
    start = dict(make_model().named_parameters())
    for name, value in contract.single.final.items():
        assert (value - start[name]).abs().max() > 1e-3


@pytest.mark.parametrize("name", STRATEGIES)
def test_saved_and_resumed_is_uninterrupted(contract, name):
    assert (
        contract.losses(name, "resumed")
        == contract.losses(name, "uninterrupted")[SAVED_AT + 1 :]
    )
    for rank in contract.ranks:
        for parameter, value in rank[name].uninterrupted.final.items():
            assert torch.equal(rank[name].resumed.final[parameter], value)


def resume_ddp(folder: Path) -> tuple[Record, Record]:
    """An undisturbed run with DDP, and one that goes on from its checkpoint."""
    strategy, fresh = (DDPConfig().build("fp32", torch.device("cpu")) for _ in range(2))
    uninterrupted = train(strategy, after_step=saving(strategy, folder))
    return uninterrupted, train(fresh, first=SAVED_AT + 1, resume=folder)


def test_three_ranks_add_gradients_in_the_same_order_after_a_resume(tmp_path):
    """The sum of two gradients has no order; that of three depends on a gradient's place in the buffer."""
    for uninterrupted, resumed in run_gloo(
        resume_ddp, 3, tmp_path / "gloo", tmp_path / "state"
    ):
        assert resumed.losses == uninterrupted.losses[SAVED_AT + 1 :]
        for parameter, value in uninterrupted.final.items():
            assert torch.equal(resumed.final[parameter], value)


@pytest.mark.parametrize("name", STRATEGIES)
def test_resumes_what_one_process_saved(contract, name):
    assert contract.losses(name, "from_single") == pytest.approx(
        contract.single.losses[SAVED_AT + 1 :], rel=1e-6
    )


@pytest.mark.parametrize("name", ["single", *STRATEGIES])
def test_one_process_resumes_what_any_strategy_saved(contract, name):
    strategy = SingleConfig().build("fp32", torch.device("cpu"))
    resumed = train(strategy, first=SAVED_AT + 1, resume=contract.folder / name)
    assert resumed.losses == pytest.approx(
        contract.single.losses[SAVED_AT + 1 :], rel=1e-6
    )


@pytest.mark.parametrize("name", ["single", *STRATEGIES])
def test_only_trained_parameters_are_saved(contract, name):
    paths = sorted((contract.folder / name).glob("*.safetensors"))
    assert len(paths) == (1 if name == "single" else 4)
    shapes = {}
    for path in paths:
        with safe_open(path, framework="pt") as file:
            keys = file.keys()
            shapes |= {key: tuple(file.get_tensor(key).shape) for key in keys}
    expected = {
        name: tuple(p.shape)
        for name, p in make_model().named_parameters()
        if name in TRAINED
    }
    kinds = ("parameter", "exp_avg", "exp_avg_sq")
    assert shapes == {
        f"{kind}/{name}": shape for name, shape in expected.items() for kind in kinds
    }


@pytest.mark.parametrize("name", STRATEGIES)
def test_bf16_with_a_bf16_backbone_stays_close(contract, name):
    assert contract.losses(name, "bf16") == pytest.approx(
        contract.single_bf16.losses, rel=5e-3
    )
    assert contract.losses(name, "bf16") == pytest.approx(
        contract.single.losses, rel=2e-2
    )
    assert contract.losses(name, "bf16") != pytest.approx(
        contract.single.losses, rel=1e-6
    )
    assert {value.dtype for value in contract.ranks[0][name].bf16.final.values()} == {
        torch.float32
    }


@pytest.mark.parametrize("name", STRATEGIES)
def test_step_that_is_not_finite_is_skipped_by_all(contract, name):
    reference = refuse_non_finite(SingleConfig().build("fp32", torch.device("cpu")))
    for rank in contract.ranks:
        refused = rank[name].refused
        assert not math.isfinite(refused["norm"])
        assert refused["unchanged"]
        assert refused["next_norm"] == pytest.approx(reference["next_norm"], rel=1e-5)


@pytest.mark.parametrize("name", STRATEGIES)
def test_closed_model_is_ordinary(contract, name):
    after_close = [rank[name].after_close for rank in contract.ranks]
    assert [(u["same"], u["left"], u["hooks"]) for u in after_close] == [
        (True, [], 0)
    ] * 2
    reference = closed(SingleConfig().build("fp32", torch.device("cpu")))
    assert after_close[0]["loss"] == pytest.approx(reference["loss"], rel=1e-6)


def test_documents_are_the_same_at_any_world_size():
    whole = torch.cat([batch.hidden_BD for batch in micro_batches(0, 0, 1)])
    halves = torch.cat(
        [batch.hidden_BD for rank in range(2) for batch in micro_batches(0, rank, 2)]
    )
    assert sorted(whole.sum(dim=1).tolist()) == sorted(halves.sum(dim=1).tolist())


def single_with(groups: list[ParameterGroup], model: torch.nn.Module) -> Strategy:
    strategy = SingleConfig().build("fp32", torch.device("cpu"))
    strategy.prepare(model, groups)
    return strategy


def test_load_names_what_does_not_fit(tmp_path):
    model = torch.nn.Linear(3, 2)
    single_with(
        [ParameterGroup("all", list(model.parameters()), 0.1, 0.0)], model
    ).save(tmp_path)
    fewer = single_with([ParameterGroup("weight", [model.weight], 0.1, 0.0)], model)
    with pytest.raises(CheckpointError, match="bias"):
        fewer.load(tmp_path)
    wider = torch.nn.Linear(4, 2)
    other = single_with(
        [ParameterGroup("all", list(wider.parameters()), 0.1, 0.0)], wider
    )
    with pytest.raises(CheckpointError, match=r"weight .*\(2, 3\).*\(2, 4\)"):
        other.load(tmp_path)
    with pytest.raises(CheckpointError, match="holds no training state"):
        other.load(tmp_path / "absent")
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CheckpointError, match="trainable-00000-of-00001"):
        other.load(tmp_path)


def test_parameters_that_cannot_be_trained():
    model = torch.nn.Linear(3, 2)
    with pytest.raises(ConfigError, match="exactly one group"):
        single_with(
            [
                ParameterGroup("a", [model.weight], 1, 0),
                ParameterGroup("b", [model.weight], 1, 0),
            ],
            model,
        )
    with pytest.raises(ConfigError, match="'empty'"):
        single_with([ParameterGroup("empty", [], 1, 0)], model)
    with pytest.raises(ConfigError, match=r"weight .*torch\.bfloat16"):
        single_with(
            [ParameterGroup("a", [model.weight], 1, 0)], model.to(torch.bfloat16)
        )


def wait_for_a_rank_that_hangs(config: StrategyConfig, given_up: Path) -> float:
    """Seconds until rank 0 gives up on rank 1, which does not come to the exchange of gradients."""
    strategy = DistributedConfig(workers=2, strategy=config).build_strategy(
        torch.device("cpu")
    )
    model = make_model()
    module = strategy.prepare(model, model.groups(0))
    train_step(strategy, module, 0)
    start = time.monotonic()
    if strategy.rank == 1:
        while not given_up.exists() and time.monotonic() - start < 20:
            time.sleep(0.1)
        os._exit(0)
    with pytest.raises(RuntimeError, match=r"(?i)timed out"):
        train_step(strategy, module, 1)
    seconds = time.monotonic() - start
    given_up.touch()
    return seconds


SLOW = [pytest.param(name, marks=pytest.mark.faults) for name in ("zero0", "zero2")]


@pytest.mark.parametrize("name", ["ddp", "zero3", *SLOW])
def test_no_strategy_waits_longer_than_the_timeout(tmp_path, name):
    with pytest.raises(
        FileNotFoundError, match=r"rank1\.pt"
    ):  # rank 1 leaves no result
        run_gloo(
            wait_for_a_rank_that_hangs,
            2,
            tmp_path,
            STRATEGIES[name],
            tmp_path / "given_up",
            timeout_s=10,
        )
    assert torch.load(tmp_path / "rank0.pt", weights_only=False) < 19
