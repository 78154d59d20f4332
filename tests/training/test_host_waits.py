"""How often the host would wait for a GPU in an optimizer step of every objective."""

from collections import Counter

import label_cells
import pytest
import torch
from label_cells import Cell, batch_of, build, objective_of

from host_waits import HostWaits
from xmtc.distributed.config import DistributedConfig
from xmtc.training.config import OptimizerConfig, PhaseConfig, TrainingConfig
from xmtc.training.unfreeze import parameter_groups

SAMPLED = {"sampled_labels": 20}


def waits_of(
    cell: Cell, micro_batches: int, **settings: object
) -> tuple[Counter[str], Counter[str]]:
    """Waits of the micro-batches of a step, and of the update after them."""
    classifier, shard = build(cell)
    objective = objective_of(cell, classifier, shard, **settings)
    strategy = DistributedConfig().build_strategy(torch.device("cpu"))
    named = dict(classifier.parameter_groups())
    if cell.stage == "plant":
        named = {"head.attention": list(classifier.head.attention_parameters())}
    training = TrainingConfig(
        optimizer=OptimizerConfig(),
        label_optimizer=label_cells.OPTIMIZERS[cell.optimizer],
    )
    tables = [
        table
        for table in classifier.head.label_tables().values()
        if table.requires_grad
    ]
    phase = PhaseConfig(epochs=1, encoder_layers=-1)
    module = strategy.prepare(
        objective, parameter_groups(named, phase, training, tables)
    )
    objective.before_step(0)
    with HostWaits() as host:
        host.place_model(objective)
        for number in range(micro_batches):
            batch = host.moved(batch_of(range(4 * number, 4 * number + 4), 0))
            strategy.backward(module(batch, number).sum / 4)
        assert not host.mixed
        forward, host.waits = host.waits, Counter()
        strategy.step(1.0)
    return +forward, +host.waits


@pytest.fixture(autouse=True)
def _as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(
        "xmtc.models.kernels.dispatch.choose_implementation",
        lambda keys, options: "sdpa",
    )


@pytest.mark.parametrize(
    ("cell", "settings"),
    [
        (Cell("flat"), {}),
        (Cell("flat", optimizer="sgd"), {}),
        (Cell("flat", optimizer="lazy_adam"), SAMPLED),
        (Cell("label_attention"), {}),
        (Cell("label_attention", optimizer="lazy_adam"), SAMPLED),
        (Cell("label_attention", stage="plant"), {}),
        (Cell("label_attention", stage="plant", optimizer="lazy_adam"), {}),
    ],
    ids=lambda x: str(x) if isinstance(x, Cell) else "",
)
def test_no_micro_batch_waits(cell, settings):
    forward, update = waits_of(cell, 3, **settings)
    assert not forward
    assert update == waits_of(cell, 1, **settings)[1]


@pytest.mark.parametrize(("head", "waits"), [("flat", 1), ("label_attention", 2)])
def test_mining_waits_for_queries_and_for_scores_of_what_it_found(head, waits):
    forward, _ = waits_of(Cell(head, "mined", "lazy_adam"), 3)
    assert forward.total() == 3 * waits


def test_a_wait_is_noticed():
    with HostWaits() as host:
        x = torch.ones(3)
        host.place(x)
        y = x * 2
        assert float(y.sum()) == 6
        y[y > 1].cpu()
        torch.ones(2).to(torch.device("cpu"))
        _ = y + torch.ones(3)
    assert +host.waits == {"__float__": 1, "__getitem__": 1, "cpu": 1, "to": 1}
    assert host.mixed == {"add"}
