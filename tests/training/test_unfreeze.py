import pytest
import torch
from torch import nn

from xmtc.training.config import OptimizerConfig, PhaseConfig, TrainingConfig
from xmtc.training.unfreeze import parameter_groups, trained_groups

NAMES = [
    "head.attention",
    "head.classifier",
    "encoder.3",
    "encoder.2",
    "encoder.1",
    "encoder.0",
]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (0, []),
        (2, ["encoder.3", "encoder.2"]),
        (-1, ["encoder.3", "encoder.2", "encoder.1", "encoder.0"]),
        (9, NAMES[2:]),
    ],
)
def test_layers_thaw_from_the_top(layers: int, expected: list[str]) -> None:
    assert trained_groups(NAMES, PhaseConfig(epochs=1, encoder_layers=layers)) == [
        *NAMES[:2],
        *expected,
    ]


def test_deeper_layers_learn_more_slowly_and_vectors_do_not_decay() -> None:
    named = {
        name: [nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))]
        for name in NAMES
    }
    phase = PhaseConfig(
        epochs=1, encoder_layers=3, encoder_learning_rate=1e-4, layer_decay=0.5
    )
    settings = TrainingConfig(
        optimizer=OptimizerConfig(learning_rate=1e-2, weight_decay=0.1)
    )
    groups = {g.name: g for g in parameter_groups(named, phase, settings)}
    assert groups["head.attention"].learning_rate == 1e-2
    assert [groups[f"encoder.{i}"].learning_rate for i in (3, 2, 1)] == [
        1e-4,
        5e-5,
        2.5e-5,
    ]
    assert "encoder.0" not in groups
    assert groups["encoder.3"].weight_decay == 0.1
    assert groups["encoder.3.vectors"].weight_decay == 0
    assert len({id(p) for g in groups.values() for p in g.parameters}) == 2 * 5
