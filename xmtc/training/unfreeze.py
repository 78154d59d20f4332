"""Gradual unfreezing: which parameters train in each phase, and at what learning rate."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn

from xmtc.distributed.rowwise_config import RowwiseOptimizerConfig
from xmtc.distributed.strategy import ParameterGroup
from xmtc.training.config import PhaseConfig


def trained_groups(names: Sequence[str], phase: PhaseConfig) -> list[str]:
    """Select from `names` (head.… and encoder.<i>, i counted from the bottom) the groups that `phase` trains."""
    layers = sorted((n for n in names if n.startswith("encoder.")), key=_layer_index, reverse=True)
    kept = layers if phase.encoder_layers < 0 else layers[: phase.encoder_layers]
    return [n for n in names if not n.startswith("encoder.")] + kept


def parameter_groups(
    named: Mapping[str, Sequence[nn.Parameter]],
    phase: PhaseConfig,
    learning_rate: float,
    weight_decay: float,
) -> list[ParameterGroup]:
    """Make a phase's optimizer groups: one with and one without weight decay for each trained group of parameters.

    Args:
        named: parameters by group, from `Classifier.parameter_groups`.
        phase: see `PhaseConfig`.
        learning_rate: peak learning rate of the head if the phase has none.
        weight_decay: weight decay of matrices; vectors (biases, norms, gains) get none.
    """
    head_rate = phase.learning_rate or learning_rate
    depth = max((_layer_index(n) for n in named if n.startswith("encoder.")), default=0)
    groups = []
    for name in trained_groups(list(named), phase):
        is_layer = name.startswith("encoder.")
        distance = depth - _layer_index(name) if is_layer else 0
        rate = phase.encoder_learning_rate * phase.layer_decay**distance if is_layer else head_rate
        for suffix, decay, wanted in (("", weight_decay, True), (".vectors", 0.0, False)):
            parameters = [p for p in named[name] if (p.ndim >= 2) is wanted]
            if parameters:
                groups.append(ParameterGroup(name + suffix, parameters, rate, decay))
    return groups


def with_row_optimizer(
    groups: Sequence[ParameterGroup], tables: Sequence[nn.Parameter], optimizer: RowwiseOptimizerConfig | None
) -> list[ParameterGroup]:
    """Move the label tables into two separate groups (matrices and biases) that `optimizer` updates.

    Args:
        groups: groups of a phase.
        tables: parameters with one row per label.
        optimizer: row-wise optimizer; None returns the groups unchanged.
    """
    if optimizer is None:
        return list(groups)
    taken = {id(table) for table in tables}
    rest = [replace(group, parameters=[p for p in group.parameters if id(p) not in taken]) for group in groups]
    found = [group for group in rest if group.parameters]
    for name, decay, wanted in (("label_tables", optimizer.weight_decay, True), ("label_tables.vectors", 0.0, False)):
        parameters = [table for table in tables if (table.ndim >= 2) is wanted]
        if parameters:
            found.append(ParameterGroup(name, parameters, optimizer.learning_rate, decay, optimizer))
    return found


def _layer_index(name: str) -> int:
    match = re.fullmatch(r"encoder\.(\d+)", name)
    return int(match.group(1)) if match else -1
