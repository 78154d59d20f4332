"""Add labels to an exported model without training: their rows are predicted from their names.

Suffixes: L labels of the model, N new labels, D encoder width, R elements of a label's row.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor

from xmtc.artefact.export import ModelParts, open_model, write_model
from xmtc.artefact.info import STRICT
from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import quoted_label
from xmtc.data.readers.cells import label_of
from xmtc.errors import ConfigError, DataError
from xmtc.files import parse_json, read_file, reading
from xmtc.models.calibration import Calibration
from xmtc.models.label_rows import embed_texts, rows_of_names
from xmtc.predict.smoke import write_answers

_EXAMPLE = 'write lines such as {"label": "x1", "name": "its name", "description": "may be left out"}'


@dataclass(frozen=True)
class NewLabel:
    """A line of the file of new labels.

    Attributes:
        label: the label, as in predictions.
        name: readable name, which the encoder reads.
        description: description, which the encoder reads after the name.
    """

    __pydantic_config__: ClassVar = STRICT

    label: str
    name: str
    description: str = ""

    @property
    def text(self) -> str:
        """The text that the encoder reads."""
        return f"{self.name}. {self.description}" if self.description else self.name


@dataclass(frozen=True)
class Added:
    """The result of adding labels.

    Attributes:
        labels: N.
        explained: by table, share of the trained rows' variance that names explain for labels left out of the fit.
    """

    labels: int
    explained: Mapping[str, float]


def add_labels(model: Path, file: Path, output: Path) -> Added:
    """Write a model that also knows the labels of `file`.

    The rows of other labels stay the same, bit for bit. Their scores may differ by rounding, because products of
    another size add in another order.

    Args:
        model: exported model, which does not change.
        file: JSON lines with `label`, `name` and optionally `description`.
        output: directory of the new model; see `check_output`.

    Raises:
        DataError: the file cannot be read, or a line is not a new label.
        CheckpointError: the model is missing or damaged, or a file cannot be written.
        ConfigError: the model cannot take new labels, or `output` holds something that is not a model.
    """
    parts = open_model(model, output)
    if parts.info.task == "single_label":
        raise ConfigError(
            f"{model}: a single-label model cannot get labels, because they change all probabilities; train it again"
        )
    new = read_new_labels(file, parts.labels)
    embed = partial(
        embed_texts,
        parts.classifier,
        parts.tokenizer,
        max_length=parts.info.max_length,
        overlap=parts.info.model.overlap,
    )
    predicted = rows_of_names(
        parts.classifier, parts.labels, [label.text for label in new], embed
    )
    extended = _extended(parts, new, predicted.rows, embed)
    write_model(
        model, output, extended, f"labels added: {len(new):,}.", finish=write_answers
    )
    return Added(len(new), predicted.explained)


def read_new_labels(path: Path, known: LabelTable) -> list[NewLabel]:
    """Read the labels of a file. Each must have a name, be new to the model, and occur once.

    Raises:
        DataError: names file, line and fix.
    """
    with reading(path, fix="give JSON lines with labels and names"):
        lines = (
            read_file(path).decode("utf-8-sig").split("\n")
        )  # JSON strings may hold other line separators
    line_of: dict[str, int] = {}
    labels = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        label = _parse(line, where)
        shown = quoted_label(label.label)
        if label.label in known:
            raise DataError(
                f"{where}: label {shown} is already in the model: leave the line out"
            )
        if label.label in line_of:
            raise DataError(
                f"{where}: label {shown} is already in line {line_of[label.label]}: leave one out"
            )
        line_of[label.label] = number
        labels.append(label)
    if not labels:
        raise DataError(f"{path}: no labels; {_EXAMPLE}")
    return labels


def _parse(line: str, where: str) -> NewLabel:
    with reading(where, fix=_EXAMPLE, what="not a label"):
        label = TypeAdapter(NewLabel).validate_python(
            parse_json(line), strict=False
        )  # strict wants a NewLabel
    for key in ("label", "name"):
        if label_of(getattr(label, key)) is None:
            raise DataError(
                f"{where}: {key} is empty; a label without training documents needs it"
            )
    return replace(label, label=label_of(label.label) or "")


def _extended(
    parts: ModelParts,
    new: list[NewLabel],
    rows: Mapping[str, Tensor],
    embed: Callable[[Sequence[str]], Tensor],
) -> ModelParts:
    """Extend everything that has one row per label by rows of the new labels."""
    head = parts.classifier.head.state_dict()
    for name, rows_NR in rows.items():
        trained_rows = head[name]
        new_rows = rows_NR.view(-1, *trained_rows.shape[1:]).to(trained_rows.dtype)
        head[name] = torch.cat([trained_rows, new_rows])
    calibration = parts.classifier.calibration
    ensemble = parts.ensemble
    outcomes = parts.outcomes
    if calibration is not None:
        calibration = _calibrate_new(calibration, parts.labels, len(new))
    if ensemble is not None:
        ensemble = ensemble.extended(
            [label.text for label in new], lambda texts: embed(texts).numpy()
        )
    if outcomes is not None:
        outcomes = outcomes.extended(len(new))
    return replace(
        parts.with_head(head, calibration),
        labels=_longer(parts.labels, new),
        decision=parts.decision.extended(len(new)),
        outcomes=outcomes,
        ensemble=ensemble,
    )


def _calibrate_new(
    calibration: Calibration, labels: LabelTable, new: int
) -> Calibration:
    """Give new labels the calibration of the rarest trained labels, whose rows are most similar."""
    counts_L = np.where(
        labels.train_counts > 0, labels.train_counts, np.iinfo(np.int64).max
    )
    rarest_N = torch.full((new,), int(counts_L.argmin()))
    return calibration.of(torch.cat([torch.arange(len(labels)), rarest_N]))


def _longer(labels: LabelTable, new: list[NewLabel]) -> LabelTable:
    """Append labels, of which only identifier and name are known."""
    nothing: list[tuple[str, ...]] = [()] * len(new)
    no_name = [""] * len(new)
    return LabelTable(
        labels=[*labels.labels, *(label.label for label in new)],
        names=[*labels.names, *(label.name for label in new)],
        train_counts=np.concatenate(
            [labels.train_counts, np.zeros(len(new), np.int64)]
        ),
        parents=None if labels.parents is None else [*labels.parents, *nothing],
        alternatives=None
        if labels.alternatives is None
        else [*labels.alternatives, *nothing],
        translations={
            language: [*names, *no_name]
            for language, names in labels.translations.items()
        },
        notations=None if labels.notations is None else [*labels.notations, *no_name],
    )
