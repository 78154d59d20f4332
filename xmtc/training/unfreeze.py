"""Gradual unfreezing: which parameters train in each phase, and at what learning rate."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch import nn

from xmtc.distributed.strategy import ParameterGroup
from xmtc.training.config import PhaseConfig, TrainingConfig


def trained_groups(names: Sequence[str], phase: PhaseConfig) -> list[str]:
    """Select from `names` (head.… and encoder.<i>, i counted from the bottom) the groups that `phase` trains."""
    layers = sorted((n for n in names if n.startswith("encoder.")), key=_layer_index, reverse=True)
    kept = layers if phase.encoder_layers < 0 else layers[: phase.encoder_layers]
    return [n for n in names if not n.startswith("encoder.")] + kept


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
    rows, optimizer = settings.label_optimizer, settings.optimizer
    apart = {id(table) for table in tables} if rows is not None else set()
    depth = max((_layer_index(n) for n in named if n.startswith("encoder.")), default=0)
    groups = []
    for name in trained_groups(list(named), phase):
        rate = phase.learning_rate or optimizer.learning_rate
        if name.startswith("encoder."):
            rate = phase.encoder_learning_rate * phase.layer_decay ** (depth - _layer_index(name))
        shared = [p for p in named[name] if id(p) not in apart]
        groups += _by_decay(ParameterGroup(name, shared, rate, optimizer.weight_decay))
    if rows is not None:
        groups += _by_decay(ParameterGroup("label_tables", list(tables), rows.learning_rate, rows.weight_decay, rows))
    return groups


def _by_decay(group: ParameterGroup) -> Iterator[ParameterGroup]:
    """Split a group into matrices, and vectors without weight decay; leave out what is empty."""
    for suffix, decay, wanted in (("", group.weight_decay, True), (".vectors", 0.0, False)):
        parameters = [p for p in group.parameters if (p.ndim >= 2) is wanted]
        if parameters:
            yield replace(group, name=group.name + suffix, parameters=parameters, weight_decay=decay)


def _layer_index(name: str) -> int:
    match = re.fullmatch(r"encoder\.(\d+)", name)
    return int(match.group(1)) if match else -1
