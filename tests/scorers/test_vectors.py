"""Indices with inverted lists are checked before FAISS searches them: it trusts what is in a file."""

import struct
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pytest

from xmtc.errors import CheckpointError
from xmtc.scorers.vectors import nearest, read_index, unit_rows, vectors_at

NUMBER, WIDTH = 400, 8
VECTORS = unit_rows(
    np.random.default_rng(0).normal(size=(NUMBER, WIDTH)).astype(np.float32),
    np.zeros(WIDTH, np.float32),
)
KINDS = ("IVF4,Flat", "IVF4,SQfp16")


def index_of_kind(kind: str) -> faiss.IndexIVF:
    index = faiss.index_factory(WIDTH, kind, faiss.METRIC_INNER_PRODUCT)
    index.train(VECTORS)
    index.add(VECTORS)
    return index


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_index_is_read_whatever_map_it_was_saved_with(
    tmp_path: Path, kind: str
) -> None:
    index = index_of_kind(kind)
    index.make_direct_map()
    faiss.write_index(index, str(tmp_path / "x.faiss"))
    read = read_index(tmp_path / "x.faiss")
    assert nearest(read, VECTORS[:9], 1)[0].ravel().tolist() == list(range(9))
    np.testing.assert_allclose(
        vectors_at(read, np.array([7, 399])), VECTORS[[7, 399]], atol=1e-3
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", [4, 26, 47, 80, 83, 120, 400, -8])
def test_an_index_that_is_cut_is_refused(tmp_path: Path, kind: str, at: int) -> None:
    path = tmp_path / "x.faiss"
    faiss.write_index(index_of_kind(kind), str(path))
    path.write_bytes(path.read_bytes()[:at])
    with pytest.raises(CheckpointError, match=r"x\.faiss: not an index") as refusal:
        read_index(path)
    assert "\n" not in str(refusal.value)


def _header(place: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda content: content[:place] + value + content[place + len(value) :]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change",
    [
        _header(4, struct.pack("<i", 2 * WIDTH)),
        _header(8, struct.pack("<q", 2**40)),
        _header(8, struct.pack("<q", -1)),
        _header(8, struct.pack("<q", 3)),
        _header(32, b"\0"),
        _header(33, struct.pack("<i", faiss.METRIC_L2)),
        _header(37, struct.pack("<Q", 2**63)),
        _header(53, b"IxF2"),
        _header(61, struct.pack("<q", 2**40)),
    ],
    ids=[
        "width",
        "more",
        "negative",
        "fewer",
        "untrained",
        "metric",
        "lists",
        "centres",
        "more centres",
    ],
)
def test_sizes_of_inverted_lists_fit_the_file(
    tmp_path: Path, kind: str, change: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "x.faiss"
    faiss.write_index(index_of_kind(kind), str(path))
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"x\.faiss: not an index"):
        read_index(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", [NUMBER, -1, 2**62, 3])
def test_lists_hold_each_row_once(tmp_path: Path, kind: str, row: int) -> None:
    path = tmp_path / "x.faiss"
    index = index_of_kind(kind)
    rows = np.arange(NUMBER)
    rows[17] = row
    index.reset()
    index.add_with_ids(VECTORS, rows)
    faiss.write_index(index, str(path))
    with pytest.raises(CheckpointError, match="lists do not hold every row once"):
        read_index(path)


def test_vectors_of_another_type_are_refused(tmp_path: Path) -> None:
    faiss.write_index(index_of_kind("IVF4,SQ8"), str(tmp_path / "x.faiss"))
    with pytest.raises(CheckpointError, match=r"not an index"):
        read_index(tmp_path / "x.faiss")
