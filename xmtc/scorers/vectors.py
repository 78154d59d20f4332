"""Search among centred vectors of unit length by inner product, with FAISS.

Suffixes: N vectors, B queries, K found, S searched, P pairs of a query and a vector, D width.
"""

import struct
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from xmtc.data.arrays import Floats
from xmtc.errors import CheckpointError, StorageError
from xmtc.files import reading, replacing_file
from xmtc.scorers.ties import EQUAL, first_of_each

MAX_EXACT = 200_000
"""With more vectors, the search visits only some inverted lists."""
LISTS_SEARCHED = 32
_VECTORS_A_LIST = 64  # that the lists are trained on
_MORE = 16
"""Vectors that are searched beyond those that are wanted."""
COPY = "copy the whole model folder, or export it again"
_FLAT_HEADER = struct.Struct("<4siqqqBiQ")
"""Of an exact index: kind, width, vectors, two unused numbers, whether it is trained, metric, and values in all."""
_FLAT = b"IxFI"
_LISTS = (b"IwFl", b"IwSq")
_UNTYPED: Any = faiss  # its stubs do not know the class
_UNTYPED.cvar.distance_compute_blas_threshold = (
    1  # products of matrices also for few queries: a third of the time
)


def centred_index(vectors_ND: NDArray[np.floating]) -> tuple[Any, Floats]:
    """Index vectors without their mean. Return the index and the mean (D,)."""
    mean_D = vectors_ND.mean(axis=0, dtype=np.float64).astype(np.float32)
    return index_of(unit_rows(vectors_ND, mean_D)), mean_D


def unit_rows(vectors_ND: NDArray[np.floating], mean_D: Floats) -> Floats:
    """Subtract a mean from vectors, and scale them to unit length."""
    centred_ND = vectors_ND.astype(np.float32) - mean_D
    norms_N1 = np.linalg.norm(centred_ND, axis=1, keepdims=True)
    return centred_ND / np.maximum(norms_N1, np.finfo(np.float32).tiny)


def index_of(vectors_ND: Floats) -> Any:
    """Build an index, exact up to `MAX_EXACT` vectors; beyond, with inverted lists."""
    number, width = vectors_ND.shape
    if number <= MAX_EXACT:
        index: Any = faiss.IndexFlatIP(width)
    else:
        lists = max(1, min(round(4 * number**0.5), number // _VECTORS_A_LIST))
        index = faiss.index_factory(
            width, f"IVF{lists},Flat", faiss.METRIC_INNER_PRODUCT
        )
        step = max(1, number // (_VECTORS_A_LIST * index.nlist))
        index.train(np.ascontiguousarray(vectors_ND[::step]))
    index.add(vectors_ND)
    return index


def nearest(index: Any, queries_BD: Floats, k: int) -> tuple[NDArray[np.int64], Floats]:
    """Find rows and inner products (B, K) of the nearest vectors, nearest first, K = min(k, N); -1 pads rows.

    Of equally near ones, those with the lower rows are chosen, see `xmtc.scorers.ties`. So more are searched than are
    wanted, until the last one found is clearly less near than the last one wanted.
    """
    parameters = None
    if isinstance(index, faiss.IndexIVF):
        parameters = _UNTYPED.SearchParametersIVF(
            nprobe=min(LISTS_SEARCHED, index.nlist)
        )
    k = min(k, index.ntotal)
    searched = min(k + _MORE, index.ntotal)
    products_BS, rows_BS = index.search(queries_BD, searched, params=parameters)
    while searched < index.ntotal and _may_go_on(rows_BS, products_BS, k):
        searched = min(4 * searched, index.ntotal)
        products_BS, rows_BS = index.search(queries_BD, searched, params=parameters)
    if rows_BS.max(initial=-1) >= index.ntotal:
        raise CheckpointError(
            f"an index of {index.ntotal} vectors gives row {rows_BS.max()}; {COPY}"
        )
    query_P, place_P = np.nonzero(rows_BS >= 0)
    at = query_P, place_P
    return first_of_each(query_P, rows_BS[at], products_BS[at], len(queries_BD), k)


def _may_go_on(rows_BS: NDArray[np.int64], products_BS: Floats, k: int) -> bool:
    """Whether the last vector found for a query is about as near as the last one wanted, so that others may be, too."""
    full_B = rows_BS[:, -1] >= 0
    return bool(
        (full_B & (products_BS[:, k - 1] - products_BS[:, -1] < 2 * EQUAL)).any()
    )


def vectors_at(index: Any, rows: NDArray[np.int64]) -> Floats:
    """Return some of the vectors (N, D)."""
    if (
        isinstance(index, faiss.IndexIVF)
        and index.direct_map.type == _UNTYPED.DirectMap.NoMap
    ):
        index.make_direct_map()
    return index.reconstruct_batch(rows)


def _check_header(path: Path) -> None:
    """Raise ValueError if a file is none of the kinds of index that xmtc writes, or an exact one of other sizes."""
    with path.open("rb") as file:
        header = file.read(_FLAT_HEADER.size)
    if header[:4] in _LISTS:
        return
    if len(header) < _FLAT_HEADER.size or header[:4] != _FLAT:
        raise ValueError("of a kind that xmtc does not write")
    _, width, number, _, _, trained, metric, values = _FLAT_HEADER.unpack(header)
    whole = path.stat().st_size == _FLAT_HEADER.size + 4 * values
    if not (
        whole
        and trained == 1
        and metric == faiss.METRIC_INNER_PRODUCT
        and number >= 0
        and values == width * number
    ):
        raise ValueError("its sizes do not fit each other")


def write_index(path: Path, index: Any) -> None:
    """Write an index of FAISS.

    Raises:
        StorageError: FAISS cannot write the file.
    """
    try:
        with replacing_file(path) as partial:
            faiss.write_index(index, str(partial))
    except RuntimeError as error:
        raise StorageError(
            f"{path}: cannot be written: {error}; free disk space, or choose another folder"
        ) from error


def check_index(path: Path, index: Any, number: int, width: int) -> None:
    """Refuse an index that holds another number of vectors, or vectors of another width.

    Raises:
        CheckpointError: says which.
    """
    if (index.ntotal, index.d) != (number, width):
        raise CheckpointError(
            f"{path}: holds {index.ntotal} vectors of width {index.d}, where {number} of width {width} belong; {COPY}"
        )


def read_index(path: Path) -> Any:
    """Read an index of FAISS; it is memory-mapped.

    FAISS trusts the sizes in a file, so those of an exact index are compared with the file's own size first. An index
    with inverted lists has too many sizes for that, see `xmtc.artefact.trial`.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    with reading(path, CheckpointError, COPY, "not an index"):
        _check_header(path)
        return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
