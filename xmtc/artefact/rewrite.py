"""Write an exported model with other labels: parts with one row per label change, and everything else is copied."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from xmtc.artefact.export import CALIBRATION, SCORERS, ModelParts, head_of, load_model, write_thresholds
from xmtc.artefact.info import write_info
from xmtc.artefact.output import HEAD, check_output, replacing
from xmtc.data.labels import LabelTable
from xmtc.fusion.ensemble import Ensemble
from xmtc.mining.index import LabelIndex, LabelVectors
from xmtc.models.calibration import Calibration


@dataclass(frozen=True)
class LabelParts:
    """The parts of a model with one row per label. Suffix: L labels after the change.

    Attributes:
        labels: L.
        tables: label tables of the head by name, with L rows; empty if unchanged.
        calibration: calibration of the head's logits, or None.
        thresholds_L: thresholds per label, or None.
        ensemble: the scorers, or None.
    """

    labels: LabelTable
    tables: Mapping[str, Tensor]
    calibration: Calibration | None
    thresholds_L: NDArray[np.float32] | None
    ensemble: Ensemble | None


def open_model(model: Path, output: Path) -> ModelParts:
    """Read a model to change its labels.

    Raises:
        CheckpointError: the model is missing or damaged.
        ConfigError: `output` holds something that is not a model.
    """
    check_output(output, model)
    return load_model(model)


def write_model(model: Path, output: Path, parts: ModelParts, changed: LabelParts, note: str) -> None:
    """Write the model with changed labels.

    Args:
        model: the original model, which does not change.
        output: directory of the new model.
        parts: parts of the original model.
        changed: the changed parts.
        note: sentence for the model card.

    Raises:
        CheckpointError: a file cannot be written.
    """
    with replacing(output) as folder:
        shutil.copytree(model, folder, dirs_exist_ok=True)
        (folder / "config.json").unlink()  # written again, with other checksums
        if changed.tables:
            tensors = {**load_file(folder / HEAD), **changed.tables}
            save_file(tensors, folder / HEAD)
            if parts.index is not None:
                head = head_of(parts.info, parts.classifier.encoder.width, tensors)
                LabelIndex(LabelVectors.of(head, changed.calibration), parts.index.config).save(folder)
        if changed.calibration is not None:
            changed.calibration.save(folder / CALIBRATION)
        if changed.ensemble is not None:
            shutil.rmtree(folder / SCORERS)
            changed.ensemble.save(folder / SCORERS)
        if changed.thresholds_L is not None:
            write_thresholds(folder / "thresholds.json", parts.threshold, changed.thresholds_L)
        changed.labels.save(folder / "labels.arrow")
        _add_note(folder / "README.md", f"{note} The model has {len(changed.labels):,} labels.")
        write_info(folder, parts.info)


def _add_note(card: Path, note: str) -> None:
    """Add a line to the model card, if there is one, because its results are those of the original model."""
    if card.is_file():
        text = card.read_text(encoding="utf-8").rstrip("\n")
        card.write_text(f"{text}\n\nChanged after these results were measured: {note}\n", encoding="utf-8")
