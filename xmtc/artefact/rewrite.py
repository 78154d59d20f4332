"""Write an exported model with other labels: parts with one row per label change, and everything else is copied."""

import shutil
from pathlib import Path

from xmtc.artefact.export import SCORERS, LabelParts, ModelParts, load_model, write_label_parts
from xmtc.artefact.info import write_info
from xmtc.artefact.output import check_output, replacing
from xmtc.mining.index import LabelIndex


def open_model(model: Path, output: Path) -> ModelParts:
    """Read a model to change its labels.

    Raises:
        CheckpointError: the model is missing or damaged.
        ConfigError: `output` holds something that is not a model.
    """
    check_output(output, model)
    return load_model(model)


def write_model(
    model: Path, output: Path, parts: ModelParts, changed: LabelParts, note: str, index: LabelIndex | None = None
) -> None:
    """Write the model with changed labels.

    Args:
        model: the original model, which does not change.
        output: directory of the new model.
        parts: parts of the original model.
        changed: the changed parts.
        note: sentence for the model card.
        index: index of the changed labels; built here by default.

    Raises:
        CheckpointError: a file cannot be written.
    """
    with replacing(output) as folder:
        shutil.copytree(model, folder, dirs_exist_ok=True)
        (folder / "config.json").unlink()  # written again, with other checksums
        shutil.rmtree(folder / SCORERS, ignore_errors=True)
        write_label_parts(folder, parts, changed, index)
        _add_note(folder / "README.md", f"{note} The model has {len(changed.labels):,} labels.")
        write_info(folder, parts.info)


def _add_note(card: Path, note: str) -> None:
    """Add a line to the model card, if there is one, because its results are those of the original model."""
    if card.is_file():
        text = card.read_text(encoding="utf-8").rstrip("\n")
        card.write_text(f"{text}\n\nChanged after these results were measured: {note}\n", encoding="utf-8")
