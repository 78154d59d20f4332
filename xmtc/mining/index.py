"""The index of labels: a FAISS index over label vectors, searched by inner product. Mining and shortlists use it.

The index holds each label's vector with its bias as an extra element; a document's query is its vector with an extra 1.
Their product is the logit of a head that is `ScoresByProduct`. Otherwise it is an approximation: for label
attention, the logit of a label that attends to all tokens equally. If the head is calibrated, so are the vectors: label
l has scale[l] times its row, and its calibrated bias.

Suffixes: L labels, B documents, d width of the vectors, K found labels.
"""

import logging
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor

from xmtc.errors import CheckpointError, XmtcError
from xmtc.files import read_file, reading, write_json
from xmtc.mining.config import IndexConfig
from xmtc.models.calibration import Calibration
from xmtc.models.heads.base import Head
from xmtc.scorers.vectors import COPY, read_index, write_index

logger = logging.getLogger(__name__)

_TRAINING_VECTORS = 64
"""Vectors for each cell of an ivf index, by which the cells are found; FAISS warns below 39."""
_FEWEST_VECTORS = 39
_CHUNK = 16_384
"""Labels whose vectors are copied, or multiplied, at a time."""
_LARGEST_HALF = 60_000.0
"""Greater numbers overflow in float16."""
_SEED = 1234
_GOOD_RECALL = 0.9
"""A shortlist that finds fewer of the best labels is warned of."""

INDEX, NOTES = "labels.faiss", "index.json"
"""Files of an exported model: the index, and how it was built and what it finds."""


@dataclass(frozen=True)
class LabelVectors:
    """The vectors to index, (L, d), which are copied some labels at a time: the table in float32 may not fit.

    Attributes:
        rows_LP: rows, of any floating type.
        bias_L: biases.
        calibration: scales each label's row and bias, and adds an offset to the scaled bias; or None.
    """

    rows_LP: Tensor
    bias_L: Tensor
    calibration: Calibration | None = None

    @classmethod
    def of(cls, head: Head, calibration: Calibration | None = None) -> Self:
        """Refer to the current vectors of a head's labels, calibrated if the logits are; later changes change them."""
        return cls(head.weights.detach(), head.bias.detach(), calibration)

    @property
    def shape(self) -> tuple[int, int]:
        """L and d."""
        return len(self.rows_LP), self.rows_LP.shape[1] + 1

    @torch.no_grad()
    def __getitem__(self, labels: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """Copy the vectors of some labels to the CPU."""
        places = (
            labels
            if isinstance(labels, slice)
            else torch.from_numpy(labels).to(self.rows_LP.device)
        )
        rows = self.rows_LP[places]
        _, width = self.shape
        vectors = torch.empty(len(rows), width)
        vectors[:, :-1] = rows
        vectors[:, -1] = self.bias_L[places]
        if self.calibration is not None:
            vectors *= self.calibration.scale_L[places].cpu()[:, None]
            vectors[:, -1] += self.calibration.offset_L[places].cpu()
        return vectors.numpy()

    def chunks(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Yield some labels with their vectors, until all have been."""
        for start in range(0, len(self.rows_LP), _CHUNK):
            part = self[start : start + _CHUNK]
            yield np.arange(start, start + len(part)), part

    def largest(self) -> float:
        """Find the greatest absolute value; not finite if a value is not, or if there are no labels."""
        largest_of_chunks = [np.abs(part).max() for _, part in self.chunks()]
        return float(np.max(largest_of_chunks)) if largest_of_chunks else math.inf


@torch.no_grad()
def query_vectors(vectors_BP: Tensor) -> NDArray[np.float32]:
    """Make the queries (B, d) of documents with these `Head.vectors`."""
    vectors_BP = vectors_BP.float().cpu()
    return torch.cat([vectors_BP, torch.ones(len(vectors_BP), 1)], 1).numpy()


@dataclass(frozen=True)
class IndexRecall:
    """Recall of a shortlist from the index, measured on a sample of documents.

    Attributes:
        share: share of the best labels by exact scoring that are in the shortlist.
        best: number of best labels per document.
        shortlist: size of the shortlist.
        documents: number of documents in the sample.
    """

    share: float
    best: int
    shortlist: int
    documents: int


@dataclass(frozen=True)
class _Notes:
    """The content of `index.json`."""

    built: IndexConfig
    recall: IndexRecall | None


class LabelIndex:
    """Finds the labels nearest to documents.

    Args:
        vectors_Ld: finite vectors.
        config: see `IndexConfig`.

    Attributes:
        config: how the index was built.
        recall: its recall; None if not measured, for example after a change of labels.

    Raises:
        XmtcError: the vectors are not finite, or there are none.
    """

    recall: IndexRecall | None = None

    def __init__(
        self, vectors_Ld: NDArray[np.float32] | LabelVectors, config: IndexConfig
    ) -> None:
        self.config = config
        self.labels, self.width = vectors_Ld.shape
        if isinstance(vectors_Ld, np.ndarray):
            table = torch.from_numpy(vectors_Ld)
            vectors_Ld = LabelVectors(table[:, :-1], table[:, -1])
        largest = _require_finite(vectors_Ld.largest(), self.labels)
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)  # only in this thread: training has the others
        try:
            fits_in_half = (
                vectors_Ld.rows_LP.dtype != torch.float32 and largest < _LARGEST_HALF
            )
            self._index = _build(vectors_Ld, config, half=fits_in_half)
        finally:
            faiss.omp_set_num_threads(threads)

    @classmethod
    def open(cls, folder: Path, labels: int) -> Self | None:
        """Memory-map a saved index: searches read pages from the disk as they need them; None if there is none.

        Raises:
            CheckpointError: a file is missing or damaged, or belongs to another number of labels.
        """
        path = folder / INDEX
        if not path.is_file():
            return None
        opened = cls.__new__(cls)
        opened._index = read_index(path)
        opened.labels = opened._index.ntotal
        opened.width = opened._index.d
        if opened.labels != labels:
            raise CheckpointError(
                f"{path}: holds {opened.labels} labels, the model has {labels}; {COPY}"
            )
        with reading(folder / NOTES, CheckpointError, COPY, "missing or damaged"):
            notes = TypeAdapter(_Notes).validate_json(read_file(folder / NOTES))
        opened.config = notes.built
        opened.recall = notes.recall
        return opened

    def save(self, folder: Path) -> None:
        """Write the index and its notes.

        Raises:
            StorageError: FAISS cannot write the file.
        """
        write_index(folder / INDEX, self._index)
        write_json(folder / NOTES, asdict(_Notes(self.config, self.recall)), indent=2)

    def warn_of_misses(self) -> None:
        """Log a warning if shortlists from this index miss many of the best labels."""
        recall = self.recall
        if recall is not None and recall.share < _GOOD_RECALL:
            logger.warning(
                "a shortlist of %d labels holds %.0f%% of the best %d (%d documents of dev): score without one, or "
                "train again with more evaluate.index.probes",
                recall.shortlist,
                100 * recall.share,
                recall.best,
                recall.documents,
            )

    def search(
        self, queries_Bd: NDArray[np.float32], count: int, *, fill: bool = False
    ) -> NDArray[np.int64]:
        """Find the nearest labels (B, K) of each document, best first, K = min(count, L); -1 pads shorter results.

        Args:
            queries_Bd: queries of documents, see `query_vectors`.
            count: number of labels to find.
            fill: if an ivf index finds fewer than K labels for a document, search more of its cells.

        Raises:
            XmtcError: the width of the queries differs from the index's.
        """
        if queries_Bd.ndim != 2 or queries_Bd.shape[1] != self.width:
            raise XmtcError(
                f"queries of shape {queries_Bd.shape} for an index of width {self.width}: it belongs to another "
                "head; build one for this head"
            )
        queries_Bd = np.ascontiguousarray(queries_Bd, np.float32)
        _, labels_BK = self._index.search(queries_Bd, min(count, self.labels))
        has_cells = hasattr(self._index, "nlist")
        if fill and has_cells:
            self._fill(labels_BK, queries_Bd)
        return labels_BK

    def _fill(
        self, labels_BK: NDArray[np.int64], queries_Bd: NDArray[np.float32]
    ) -> None:
        """Search four times as many cells for documents with too few labels, until they have enough."""
        _, count = labels_BK.shape
        probes = self._index.nprobe
        while probes < self._index.nlist:
            has_too_few_B = (labels_BK < 0).any(1)
            if not has_too_few_B.any():
                return
            probes = min(4 * probes, self._index.nlist)
            parameters = faiss.SearchParametersIVF()
            parameters.nprobe = probes
            _, labels_of_more_cells = self._index.search(
                queries_Bd[has_too_few_B], count, params=parameters
            )
            labels_BK[has_too_few_B] = labels_of_more_cells


class ExactSearch:
    """Finds the labels nearest to documents by all products, which a GPU computes faster than an index is built.

    Args:
        vectors_Ld: finite vectors.
        device: where they are kept, in float32.

    Raises:
        XmtcError: the vectors are not finite, or there are none.
    """

    def __init__(self, vectors_Ld: NDArray[np.float32], device: torch.device) -> None:
        self.labels = len(vectors_Ld)
        _require_finite(
            float(np.abs(vectors_Ld).max(initial=0 if self.labels else np.inf)),
            self.labels,
        )
        self._vectors_Ld = torch.from_numpy(vectors_Ld).to(device)

    def search(self, queries_Bd: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        """See `LabelIndex.search`."""
        queries = torch.from_numpy(queries_Bd).to(self._vectors_Ld.device)
        products: list[Tensor] = []
        labels: list[Tensor] = []
        for start, part in zip(
            range(0, self.labels, _CHUNK), self._vectors_Ld.split(_CHUNK), strict=True
        ):
            products_BK, places_BK = (queries @ part.T).topk(min(count, len(part)))
            products.append(products_BK)
            labels.append(places_BK + start)
        best_BK = torch.cat(products, 1).topk(min(count, self.labels)).indices
        return torch.cat(labels, 1).gather(1, best_BK).cpu().numpy()


def _require_finite(largest: float, labels: int) -> float:
    if not np.isfinite(largest):
        raise XmtcError(
            f"cannot index {labels} label vectors: there are none, or some are not finite; resume from an earlier "
            "checkpoint, or train with a lower learning rate"
        )
    return largest


def _build(vectors_Ld: LabelVectors, config: IndexConfig, *, half: bool) -> Any:
    labels, width = vectors_Ld.shape
    if config.chosen(labels) == "ivf":
        return _cells(vectors_Ld, config, half=half)
    index = faiss.IndexFlatIP(width)
    index.add(vectors_Ld[:])
    return index


def _cells(vectors_Ld: LabelVectors, config: IndexConfig, *, half: bool) -> Any:
    """Divide the labels into cells. With `half`, vectors are stored as float16, which holds bfloat16 rows exactly."""
    labels, width = vectors_Ld.shape
    cells = max(1, min(round(2 * math.sqrt(labels)), labels // _FEWEST_VECTORS))
    quantizer = faiss.IndexFlatIP(width)
    product = faiss.METRIC_INNER_PRODUCT
    if half:
        kind = faiss.ScalarQuantizer.QT_fp16
        index = faiss.IndexIVFScalarQuantizer(
            quantizer, width, cells, kind, product, False
        )
    else:
        index = faiss.IndexIVFFlat(quantizer, width, cells, product)
    index.nprobe = min(config.probes, cells)
    index.cp.seed = _SEED
    sample = np.random.default_rng(_SEED).permutation(labels)[
        : _TRAINING_VECTORS * cells
    ]
    index.train(vectors_Ld[np.sort(sample)])
    _fill(index, vectors_Ld)
    return index


def _fill(index: Any, vectors_Ld: LabelVectors) -> None:
    """Add all labels to a trained ivf index. Every cell gets the memory that it needs at once."""
    cells_of_chunks: list[NDArray[np.int64]] = []
    for _, part in vectors_Ld.chunks():
        _, nearest_cells = index.quantizer.search(part, 1)
        cells_of_chunks.append(nearest_cells[:, 0])
    cells_L = np.concatenate(cells_of_chunks)
    lists: Any = index.invlists
    for cell, size in enumerate(np.bincount(cells_L, minlength=index.nlist).tolist()):
        lists.resize(cell, size)  # growing label by label would take half as much again
        lists.resize(cell, 0)
    for labels, part in vectors_Ld.chunks():
        cells = cells_L[labels]
        index.add_core(
            len(part),
            faiss.swig_ptr(part),
            faiss.swig_ptr(labels),
            faiss.swig_ptr(cells),
        )
