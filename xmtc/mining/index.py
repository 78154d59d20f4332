"""A FAISS index over label vectors, searched by inner product.

The index holds each label's vector with its bias as an extra element; a document's query is its vector with an extra 1.
Their product is the logit if `Head.index_is_exact`, as for a flat head. Otherwise it is an approximation: for label
attention, the logit of a label that attends to all tokens equally.

Suffixes: L labels, B documents, d width of the vectors, K found labels.
"""

import math
from pathlib import Path
from typing import Any, Protocol, Self

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.errors import CheckpointError, StorageError, XmtcError
from xmtc.mining.config import IndexConfig

_TRAINING_VECTORS = 64  # per cell of an ivf index; FAISS warns below 39
_SEED = 1234


class HasLabelVectors(Protocol):
    """The part of a head that an index uses; see `xmtc.models.heads.base.Head`."""

    @property
    def bias(self) -> Tensor:
        """(L,)."""
        ...

    def label_vectors(self) -> Tensor:
        """(L, P)."""
        ...

    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """(B, P)."""
        ...


@torch.no_grad()
def label_vectors(head: HasLabelVectors) -> NDArray[np.float32]:
    """Copy the vectors to index, (L, d), to the CPU."""
    vectors = head.label_vectors()
    table = torch.empty(len(vectors), vectors.shape[1] + 1)
    table[:, :-1] = vectors
    table[:, -1] = head.bias
    return table.numpy()


@torch.no_grad()
def query_vectors(vectors_BP: Tensor) -> NDArray[np.float32]:
    """Make the queries (B, d) of documents with these `Head.vectors`."""
    vectors_BP = vectors_BP.float().cpu()
    return torch.cat([vectors_BP, torch.ones(len(vectors_BP), 1)], 1).numpy()


class LabelIndex:
    """Finds the labels nearest to documents.

    Args:
        vectors_Ld: float32, finite.
        config: see `IndexConfig`.

    Raises:
        XmtcError: the vectors are not finite, or there are none.
    """

    def __init__(self, vectors_Ld: NDArray[np.float32], config: IndexConfig) -> None:
        self.labels, self.width = vectors_Ld.shape
        if not self.labels or not np.isfinite(vectors_Ld).all():
            raise XmtcError(
                f"cannot index {self.labels} label vectors: there are none, or some are not finite; resume from an "
                "earlier checkpoint, or train with a lower learning rate"
            )
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(config.build_threads)  # affects only this thread
        try:
            self._index = _build(vectors_Ld, config)
        finally:
            faiss.omp_set_num_threads(threads)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Memory-map a saved index: searches read pages from the disk as they need them.

        A memory-mapped index searches on the CPU, even if FAISS was built for GPUs.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        opened = cls.__new__(cls)
        try:
            opened._index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        except RuntimeError as error:
            raise CheckpointError(
                f"{path}: not an index ({str(error).splitlines()[0]}): copy the whole model folder, or export it again"
            ) from error
        opened.labels, opened.width = opened._index.ntotal, opened._index.d
        return opened

    def save(self, path: Path) -> None:
        """Write the index; FAISS for CPUs and for GPUs read the same file.

        Raises:
            StorageError: FAISS cannot write the file.
        """
        on_gpu = hasattr(faiss, "GpuIndex") and isinstance(self._index, faiss.GpuIndex)
        try:
            faiss.write_index(faiss.index_gpu_to_cpu(self._index) if on_gpu else self._index, str(path))
        except RuntimeError as error:
            raise StorageError(
                f"{path}: cannot be written ({error}): free disk space, or correct permissions"
            ) from error

    def search(self, queries_Bd: NDArray[np.float32], count: int, *, fill: bool = False) -> NDArray[np.int64]:
        """Find the nearest labels (B, K) of each document, best first, K = min(count, L); -1 pads shorter results.

        Args:
            queries_Bd: queries of documents, see `query_vectors`.
            count: number of labels to find.
            fill: if an ivf index finds fewer than K labels for a document, search all its cells.

        Raises:
            XmtcError: the width of the queries differs from the index's.
        """
        if queries_Bd.ndim != 2 or queries_Bd.shape[1] != self.width:
            raise XmtcError(
                f"queries of shape {queries_Bd.shape} for an index of width {self.width}: it belongs to another "
                "head; build one for this head"
            )
        queries_Bd, count = np.ascontiguousarray(queries_Bd, np.float32), min(count, self.labels)
        found_BK = self._index.search(queries_Bd, count)[1]
        short_B = (found_BK < 0).any(1)
        if fill and short_B.any() and hasattr(self._index, "nlist"):
            everywhere = faiss.SearchParametersIVF()
            everywhere.nprobe = self._index.nlist
            found_BK[short_B] = self._index.search(queries_Bd[short_B], count, params=everywhere)[1]
        return found_BK


def _build(vectors_Ld: NDArray[np.float32], config: IndexConfig) -> Any:
    labels, width = vectors_Ld.shape
    kind = config.chosen(labels)
    if kind == "hnsw":
        index = faiss.IndexHNSWFlat(width, config.links, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efSearch = config.search_depth
    else:
        index = faiss.IndexFlatIP(width)
    if kind == "ivf":
        index = _cells(index, vectors_Ld, config)
    index = _on_gpu(index) if kind != "hnsw" else index
    index.add(vectors_Ld)
    return index


def _cells(quantizer: Any, vectors_Ld: NDArray[np.float32], config: IndexConfig) -> Any:
    labels, width = vectors_Ld.shape
    cells = max(1, min(round(2 * math.sqrt(labels)), labels // 39))
    index = faiss.IndexIVFFlat(quantizer, width, cells, faiss.METRIC_INNER_PRODUCT)
    index.nprobe = min(config.probes, cells)
    index.cp.max_points_per_centroid = _TRAINING_VECTORS
    index.cp.seed = _SEED
    index.train(vectors_Ld)
    return index


def _on_gpu(index: Any) -> Any:
    """Move the index to the first GPU, if there is one and FAISS was built for it."""
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        return index
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
