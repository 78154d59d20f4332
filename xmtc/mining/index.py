"""A FAISS index over label vectors, searched by inner product.

The index holds each label's vector with its bias as one more element; a document asks with its own vector and a one.
Their product is the logit where the head says so (`Head.index_is_exact`), as a flat head does. Else it is a guess: for
label attention, the logit that the label would have if it looked at all tokens alike.

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

_TRAINING_VECTORS = 64  # of each cell of an ivf index; FAISS warns below 39
_SEED = 1234


class HasLabelVectors(Protocol):
    """What an index needs of a head; see `xmtc.models.heads.base.Head`."""

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
    """A copy (L, d) of what is indexed, on the CPU."""
    vectors = head.label_vectors()
    table = torch.empty(len(vectors), vectors.shape[1] + 1)
    table[:, :-1] = vectors
    table[:, -1] = head.bias
    return table.numpy()


@torch.no_grad()
def query_vectors(vectors_BP: Tensor) -> NDArray[np.float32]:
    """Queries (B, d) of documents with these `Head.vectors`."""
    vectors_BP = vectors_BP.float().cpu()
    return torch.cat([vectors_BP, torch.ones(len(vectors_BP), 1)], 1).numpy()


class LabelIndex:
    """Nearest labels of documents.

    Args:
        vectors_Ld: float32, finite.
        config: kind and effort.

    Raises:
        XmtcError: the vectors are not finite, or there are none.
    """

    def __init__(self, vectors_Ld: NDArray[np.float32], config: IndexConfig) -> None:
        self.labels, self.width = vectors_Ld.shape
        if not self.labels or not np.isfinite(vectors_Ld).all():
            raise XmtcError(
                f"no index of {self.labels} label vectors: there are none, or some are not finite; resume from an "
                "earlier checkpoint, or train with a lower learning rate"
            )
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(config.build_threads)  # of this thread alone
        try:
            self._index = _build(vectors_Ld, config)
        finally:
            faiss.omp_set_num_threads(threads)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map what `save` wrote into memory: pages are read from the disk when a search needs them.

        A memory-mapped index searches on the CPU, with a FAISS for GPUs too.

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
            raise StorageError(f"{path}: cannot be written ({error}): free space, or fix rights") from error

    def search(self, queries_Bd: NDArray[np.float32], count: int, *, fill: bool = False) -> NDArray[np.int64]:
        """The nearest labels (B, K) of each document, best first, K = min(count, L); -1 where fewer were found.

        Args:
            queries_Bd: of documents.
            count: wanted.
            fill: look for those of which fewer were found in all cells of an ivf index, whatever its probes.

        Raises:
            XmtcError: the queries have another width than the index.
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
    """The same index on the first GPU, where FAISS was built for one and there is one."""
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        return index
    return faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
