"""Split tables beside any strategy: one norm for both, and a step that is refused is refused by all."""

import math

import pytest
import torch
from torch import nn

from gloo import run_gloo
from xmtc.distributed.collectives import rank_and_world_size
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.row_shards import RowShard, share_of
from xmtc.distributed.strategies.config import (
    DDPConfig,
    DeepSpeedConfig,
    StrategyConfig,
)
from xmtc.distributed.strategy import ParameterGroup, Strategy

ROWS, WIDTH = 5, 3
STRATEGIES: dict[str, StrategyConfig] = {
    "ddp": DDPConfig(),
    "zero0": DeepSpeedConfig(stage=0),
    "zero1": DeepSpeedConfig(stage=1),
    "zero2": DeepSpeedConfig(stage=2),
    "zero3": DeepSpeedConfig(
        stage=3, zero_optimization={"stage3_param_persistence_threshold": 0}
    ),
}


class Both(nn.Module):
    """A whole parameter and a split table; the gradient of each element is the number given."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(WIDTH, 2, bias=False)
        self.rows = RowShard.of(torch.arange(ROWS * WIDTH).view(ROWS, WIDTH).float())

    def forward(self, whole: float, rows: float) -> torch.Tensor:
        x_BD = torch.full((1, WIDTH), whole)
        return self.projection(x_BD).sum() + (self.rows * rows).sum()


def take_step(
    strategy: Strategy, model: nn.Module, whole: float, rows: float, max_norm: float
) -> float:
    with strategy.micro_batch(last=True):
        strategy.backward(model(whole, rows))
    return strategy.step(max_norm)


def whole(strategy: Strategy, model: Both) -> dict[str, torch.Tensor]:
    return strategy.gather_trainable() | {"rows": model.rows.whole(model.rows.detach())}


def observe() -> dict[str, dict]:
    rank, world = rank_and_world_size()
    found = {}
    for name, config in STRATEGIES.items():
        strategy = DistributedConfig(workers=world, strategy=config).build_strategy(
            torch.device("cpu")
        )
        model = Both()
        module = strategy.prepare(
            model,
            [ParameterGroup("all", [model.projection.weight, model.rows], 0.1, 0.0)],
        )
        before = whole(strategy, model)
        refused = take_step(strategy, module, 0.5, math.nan if rank == 1 else 1.0, 1.0)
        after = whole(strategy, model)
        norm = take_step(strategy, module, 0.5, 2.0, 1e9)
        trained = whole(strategy, model)
        strategy.close()
        found[name] = {
            "refused": refused,
            "unchanged": all(torch.equal(before[key], after[key]) for key in before),
            "norm": norm,
            "moved": (
                trained["rows"] - before["rows"],
                trained["projection.weight"] - before["projection.weight"],
            ),
            "names": sorted(name for name, _ in model.named_parameters()),
            "rows": len(model.rows),
        }
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict[str, dict]]:
    return run_gloo(observe, 2, tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize("name", STRATEGIES)
def test_one_norm_for_whole_and_split_parameters(ranks, name):
    # both ranks add 0.5 to each of 6 elements; each of the 15 split elements has the gradient 2 on one rank
    expected = math.sqrt(6 * 1.0**2 + ROWS * WIDTH * 2.0**2)
    for rank in ranks:
        assert rank[name]["norm"] == pytest.approx(expected, rel=1e-5)
        for moved in rank[name]["moved"]:
            torch.testing.assert_close(
                moved, torch.full_like(moved, -0.1), rtol=1e-3, atol=1e-4
            )  # AdamW's first step


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_bad_gradient_of_one_ranks_rows_stops_all(ranks, name):
    for rank in ranks:
        assert not math.isfinite(rank[name]["refused"])
        assert rank[name]["unchanged"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_afterwards_the_rows_are_parameters_of_the_model_again(ranks, name):
    assert [rank[name]["rows"] for rank in ranks] == [2, 3]
    assert ranks[0][name]["names"] == ["projection.weight", "rows"]


def test_shares_cover_all_rows_once():
    for world in (1, 2, 3, 7):
        bounds = [share_of(rank, world, 23) for rank in range(world)]
        assert [first for first, _ in bounds] == [0, *(end for _, end in bounds[:-1])]
        assert bounds[-1][1] == 23
