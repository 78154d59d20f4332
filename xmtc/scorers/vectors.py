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
_LISTS_HEADER = struct.Struct("<4siqqqBiQQ")
"""Of an index with inverted lists: the same up to the metric, all lists, and lists searched. The exact index of their
centres stands behind it."""
_BYTES_A_NUMBER = {b"IwFl": 4, b"IwSq": 2}
"""By kind of index with inverted lists: its vectors are of float32, or of float16."""
_BYTES_A_ROW = 8
_UNTYPED: Any = faiss  # its stubs do not know the class
_UNTYPED.cvar.distance_compute_blas_threshold = (
    1  # products of matrices also for few queries: a third of the time
)


def centred_index(vectors_ND: NDArray[np.floating]) -> tuple[Any, Floats]:
    """Index vectors without their mean. Return the index and the mean (D,)."""
    mean_D = mean_row(vectors_ND)
    return index_of(unit_rows(vectors_ND, mean_D)), mean_D


def mean_row(vectors_ND: NDArray[np.floating]) -> Floats:
    """Compute the mean of vectors, (D,)."""
    return vectors_ND.mean(axis=0, dtype=np.float64).astype(np.float32)


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
    """Raise ValueError if a file is none of the kinds of index that xmtc writes, or its sizes do not fit each other."""
    size = path.stat().st_size
    with path.open("rb") as file:
        kind = file.read(len(_FLAT))
        file.seek(0)
        if kind in _BYTES_A_NUMBER:
            header = file.read(_LISTS_HEADER.size)
            if len(header) < _LISTS_HEADER.size:
                raise ValueError("cut off in its header")
            _, width, number, _, _, trained, metric, lists, _ = _LISTS_HEADER.unpack(
                header
            )
            centres = _flat_bytes(file.read(_FLAT_HEADER.size), width, lists)
            vectors = number * (width * _BYTES_A_NUMBER[kind] + _BYTES_A_ROW)
            is_whole = size > _LISTS_HEADER.size + centres + vectors
            is_whole = is_whole and (trained, metric) == (1, faiss.METRIC_INNER_PRODUCT)
            is_whole = is_whole and 1 <= lists <= number
        else:
            is_whole = size == _flat_bytes(file.read(_FLAT_HEADER.size))
    if not is_whole:
        raise ValueError("its sizes do not fit each other")


def _flat_bytes(
    header: bytes, width: int | None = None, number: int | None = None
) -> int:
    """Return how many bytes an exact index has by its header.

    Args:
        header: the header.
        width: the width that it must have; None: any.
        number: the number of vectors that it must have; None: any.

    Raises:
        ValueError: it is of another kind, or its sizes do not fit each other.
    """
    if len(header) < _FLAT_HEADER.size or header[:4] != _FLAT:
        raise ValueError("of a kind that xmtc does not write")
    _, own_width, own_number, _, _, trained, metric, values = _FLAT_HEADER.unpack(
        header
    )
    if (trained, metric) != (
        1,
        faiss.METRIC_INNER_PRODUCT,
    ) or values != own_width * own_number:
        raise ValueError("its sizes do not fit each other")
    if (
        own_number < 0
        or width not in (None, own_width)
        or number not in (None, own_number)
    ):
        raise ValueError("its sizes do not fit each other")
    return _FLAT_HEADER.size + 4 * values


def _check_lists(index: Any) -> None:
    """Raise ValueError unless inverted lists hold every row once, in vectors of the size that their kind has."""
    lists = index.invlists
    rows = [
        faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))
        for number in range(index.nlist)
        if lists.list_size(number)
    ]
    rows_N = np.concatenate(rows) if rows else np.empty(0, np.int64)
    in_range = (
        len(rows_N) == index.ntotal
        and rows_N.min() >= 0
        and rows_N.max() < index.ntotal
    )
    if not in_range or np.bincount(rows_N, minlength=index.ntotal).max() > 1:
        raise ValueError("its lists do not hold every row once")
    in_half = isinstance(index, faiss.IndexIVFScalarQuantizer)
    if in_half and index.sq.qtype != faiss.ScalarQuantizer.QT_fp16:
        raise ValueError("its vectors are of another type")
    if not lists.code_size == index.code_size == index.d * (2 if in_half else 4):
        raise ValueError("its vectors are of another size")


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

    FAISS trusts what is in a file, so its sizes are compared with each other and with the file's first, and rows in
    inverted lists with the number of vectors.

    Raises:
        CheckpointError: the file is missing or damaged.
    """
    with reading(path, CheckpointError, COPY, "not an index"):
        _check_header(path)
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        if isinstance(index, faiss.IndexIVF):
            index.set_direct_map_type(
                _UNTYPED.DirectMap.NoMap
            )  # made again from the lists when it is needed
            _check_lists(index)
        return index
