"""The moving average of the weights with every strategy that keeps parameters whole."""

from pathlib import Path

import torch
from strategy_contract import STEPS, make_model, train_step

from gloo import run_gloo
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.strategies.config import DDPConfig, DeepSpeedConfig, StrategyConfig
from xmtc.training.callbacks.base import StageContext
from xmtc.training.callbacks.config import EmaConfig
from xmtc.training.callbacks.ema import Ema
from xmtc.training.objective import Position

STRATEGIES: dict[str, StrategyConfig | None] = {"ddp": DDPConfig(), "zero1": DeepSpeedConfig(stage=1)}
STRATEGIES |= {"zero2": DeepSpeedConfig(stage=2)}


def averages(folder: Path, strategy_config: StrategyConfig | None) -> dict[str, torch.Tensor]:
    """The average and the weights after two phases; each step's evaluation must leave the training alone."""
    workers = 0 if strategy_config is None else 2
    strategy = DistributedConfig(workers=workers, strategy=strategy_config).build_strategy(torch.device("cpu"))
    model, ema = make_model(), Ema(EmaConfig(decay=0.7), StageContext("finetune", folder, 0, torch.device("cpu")))
    found: dict[str, torch.Tensor] = {}
    for phase in range(2):
        groups = model.groups(phase)
        wanted = {id(p) for group in groups for p in group.parameters}
        trained = {name: p for name, p in model.named_parameters() if id(p) in wanted}
        module = strategy.prepare(model, groups)
        ema.begin_phase(trained)
        for step in range(STEPS):
            train_step(strategy, module, STEPS * phase + step)
            ema.after_step(Position(step=STEPS * phase + step + 1))
            with ema.evaluating():
                found = {f"average.{name}": tensor for name, tensor in strategy.gather_trainable().items()}
        found |= strategy.gather_trainable()
        strategy.close()
    return found


def on_two_ranks(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    return {name: averages(folder, config) for name, config in STRATEGIES.items()}


def test_every_strategy_has_the_average_of_one_process(tmp_path) -> None:
    expected = averages(tmp_path, None)
    assert not torch.equal(expected["head.weight"], expected["average.head.weight"])
    for observed in run_gloo(on_two_ranks, 2, tmp_path / "two", tmp_path):
        for name, found in observed.items():
            assert found.keys() == expected.keys(), name
            for key, tensor in found.items():
                torch.testing.assert_close(tensor, expected[key], atol=1e-5, rtol=1e-4, msg=f"{name}: {key}")
