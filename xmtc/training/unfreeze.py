"""Gradual unfreezing: which parameters train in each phase, and at what learning rate."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import nn

from xmtc.distributed.strategy import ParameterGroup
from xmtc.training.config import PhaseConfig, TrainingConfig


def trained_groups(names: Sequence[str], phase: PhaseConfig) -> list[str]:
    """Select from `names` (head.… and encoder.<i>, i counted from the bottom) the groups that `phase` trains."""
    layers = [name for name in names if name.startswith("encoder.")]
    groups = [name for name in names if not name.startswith("encoder.")]
    from_top = sorted(layers, key=_layer_index, reverse=True)
    if phase.encoder_layers < 0:
        return groups + from_top
    return groups + from_top[: phase.encoder_layers]


def parameter_groups(
    named: Mapping[str, Sequence[nn.Parameter]],
    phase: PhaseConfig,
    settings: TrainingConfig,
    tables: Sequence[nn.Parameter] = (),
) -> list[ParameterGroup]:
    """Make a phase's optimizer groups: one with and one without weight decay for each trained group of parameters.

    Args:
        named: parameters by group, from `Classifier.parameter_groups`.
        phase: see `PhaseConfig`.
        settings: rates and weight decay; vectors (biases, norms, gains) do not decay. With a `label_optimizer`, it
            updates the label tables in groups of their own.
        tables: parameters with one row per label.
    """
    row_optimizer = settings.label_optimizer
    optimizer = settings.optimizer
    table_ids = set() if row_optimizer is None else {id(table) for table in tables}
    top_layer = max((_layer_index(name) for name in named), default=0)
    groups: list[ParameterGroup] = []
    for name in trained_groups(list(named), phase):
        rate = phase.learning_rate or optimizer.learning_rate
        if name.startswith("encoder."):
            layers_above = top_layer - _layer_index(name)
            rate = phase.encoder_learning_rate * phase.layer_decay**layers_above
        parameters = [
            parameter for parameter in named[name] if id(parameter) not in table_ids
        ]
        groups += _by_decay(
            ParameterGroup(name, parameters, rate, optimizer.weight_decay)
        )
    if row_optimizer is not None:
        rate = row_optimizer.learning_rate
        decay = row_optimizer.weight_decay
        groups += _by_decay(
            ParameterGroup("label_tables", list(tables), rate, decay, row_optimizer)
        )
    return groups


def _by_decay(group: ParameterGroup) -> Iterator[ParameterGroup]:
    """Split a group into matrices, and vectors without weight decay; leave out what is empty."""
    matrices = [parameter for parameter in group.parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in group.parameters if parameter.ndim < 2]
    if matrices:
        yield replace(group, parameters=matrices)
    if vectors:
        yield replace(
            group, name=f"{group.name}.vectors", parameters=vectors, weight_decay=0.0
        )


def _layer_index(name: str) -> int:
    match = re.fullmatch(r"encoder\.(\d+)", name)
    return int(match.group(1)) if match else -1
