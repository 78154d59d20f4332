"""The index of labels in an exported model. Export writes it; scoring memory-maps it.

labels.faiss    the index of the head's calibrated label vectors
index.json      how it was built, and the share of the best labels that it finds

If the head is calibrated, so is the index: label l has scale[l] times its row, and its calibrated bias. For a flat
head, the product is then the model's logit.

Suffixes: L labels, d width of the vectors.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from xmtc.artefact.info import ModelInfo
from xmtc.config.base import config
from xmtc.config.plain import to_plain
from xmtc.errors import CheckpointError
from xmtc.files import read_file, reading
from xmtc.mining.config import IndexConfig
from xmtc.mining.index import LabelIndex, LabelVectors
from xmtc.models.calibration import Calibration
from xmtc.models.heads.base import Head

log = logging.getLogger(__name__)

INDEX, NOTES = "labels.faiss", "index.json"
_GOOD_RECALL = 0.9


@config
class IndexRecall:
    """Recall of a shortlist from the index, measured on a sample of documents."""

    share: Annotated[float, Field(ge=0, le=1)]
    """Share of the best labels by exact scoring that are in the shortlist."""
    best: Annotated[int, Field(ge=1)]
    """Number of best labels per document."""
    shortlist: Annotated[int, Field(ge=1)]
    """Size of the shortlist."""
    documents: Annotated[int, Field(ge=1)]
    """Number of documents in the sample."""


@config
class IndexNotes:
    """The content of `index.json`."""

    built: IndexConfig
    """Settings for building and searching the index."""
    recall: IndexRecall | None = None
    """Absent if not measured, for example after a change of labels."""


@dataclass(frozen=True)
class ModelIndex:
    """An index of a model's labels.

    Attributes:
        index: index of the L labels.
        notes: settings and recall.
    """

    index: LabelIndex
    notes: IndexNotes

    @classmethod
    def build(cls, head: Head, calibration: Calibration | None, settings: IndexConfig) -> "ModelIndex":
        """Index the labels of a head.

        Raises:
            XmtcError: the label vectors are not finite.
        """
        return cls(LabelIndex(calibrated_vectors(head, calibration), settings), IndexNotes(built=settings))

    def measured(self, recall: IndexRecall) -> "ModelIndex":
        """Return the index with its recall."""
        return replace(self, notes=replace(self.notes, recall=recall))

    def warn_of_misses(self) -> None:
        """Log a warning if shortlists from this index miss many of the best labels."""
        recall = self.notes.recall
        if recall is not None and recall.share < _GOOD_RECALL:
            log.warning(
                "a shortlist of %d labels holds %.0f%% of the best %d (%d documents of dev): score without one, or "
                "train again with more evaluate.index.probes",
                recall.shortlist,
                100 * recall.share,
                recall.best,
                recall.documents,
            )

    def save(self, folder: Path) -> None:
        """Write the two files.

        Raises:
            StorageError: the index cannot be written.
        """
        self.index.save(folder / INDEX)
        (folder / NOTES).write_text(json.dumps(to_plain(self.notes), indent=2) + "\n")

    @classmethod
    def open(cls, folder: Path, labels: int) -> "ModelIndex | None":
        """Memory-map a saved index; None if the model has none.

        Raises:
            CheckpointError: a file is damaged, or belongs to a model with another number of labels.
        """
        if not (folder / INDEX).is_file():
            return None
        found = cls(LabelIndex.open(folder / INDEX), read_notes(folder))
        if found.index.labels != labels:
            raise CheckpointError(
                f"{folder / INDEX}: holds {found.index.labels} labels, the model has {labels}; copy the whole model "
                "folder, or export it again"
            )
        return found


def read_notes(folder: Path) -> IndexNotes:
    """Read `index.json`.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    path = folder / NOTES
    with reading(path, CheckpointError, "copy the whole model folder, or export it again", "missing or damaged"):
        return TypeAdapter(IndexNotes).validate_json(read_file(path))


def has_index(info: ModelInfo) -> bool:
    """Whether a model gets an index: its head scores, and its labels have independent probabilities."""
    return info.model.head.scores and info.task == "multi_label"


def head_of(info: ModelInfo, width: int, tensors: Mapping[str, Tensor]) -> Head:
    """Build a head with these tensors, which are not copied.

    Args:
        info: description of the model.
        width: width of the encoder.
        tensors: whole tensors by the head's names.
    """
    with torch.device("meta"):
        head = info.model.head.build(width, len(tensors["bias"]))
    head.load_state_dict(dict(tensors), assign=True)
    return head


def calibrated_vectors(head: Head, calibration: Calibration | None) -> LabelVectors:
    """Compute vectors (L, d) whose product with a document's is the calibrated logit, for `ScoresByProduct`."""
    if calibration is None:
        return LabelVectors.of(head)
    return LabelVectors.of(head, calibration.scale_L, calibration.offset_L)
