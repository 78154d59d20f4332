"""The label index: what its inner products are, its kinds against exact search, and queries that do not fit."""

import numpy as np
import pytest
import torch

from xmtc.errors import XmtcError
from xmtc.mining.config import IndexConfig
from xmtc.mining.index import (
    INDEX,
    ExactSearch,
    LabelIndex,
    LabelVectors,
    query_vectors,
)
from xmtc.models.heads.config import FlatConfig, LabelAttentionConfig


def clusters(count: int, width: int = 16) -> np.ndarray:
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(30, width))
    return (
        centres[generator.integers(30, size=count)]
        + 0.3 * generator.normal(size=(count, width))
    ).astype("f4")


def exact(vectors: np.ndarray, queries: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-queries @ vectors.T, axis=1, kind="stable")[:, :count]


def overlap(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(
        np.mean(
            [len(set(a) & set(b)) / len(b) for a, b in zip(found, wanted, strict=True)]
        )
    )


@pytest.mark.parametrize(("kind", "least"), [("flat", 1.0), ("ivf", 0.9)])
def test_every_kind_finds_the_nearest_labels(kind, least):
    vectors, queries = clusters(4000), clusters(4020)[4000:]
    index = LabelIndex(vectors, IndexConfig(kind=kind))
    found = index.search(queries, 10)
    assert found.shape == (20, 10)
    assert overlap(found, exact(vectors, queries, 10)) >= least


def test_short_lists_are_filled_from_more_cells(monkeypatch):
    vectors, queries = clusters(2000), clusters(2020)[2000:]
    index = LabelIndex(vectors, IndexConfig(kind="ivf", probes=1))
    assert (index.search(queries, 300) < 0).any(1).all()
    searched, search = [], index._index.search

    def count_cells(queries, count, params=None):
        searched.append((params.nprobe if params else 1) * len(queries))
        return search(queries, count, params=params)

    monkeypatch.setattr(index._index, "search", count_cells)
    filled = index.search(queries, 300, fill=True)
    assert all(len(set(row)) == 300 and min(row) >= 0 for row in filled)
    assert overlap(filled, exact(vectors, queries, 300)) > 0.95
    assert sum(searched) < 0.7 * len(queries) * index._index.nlist, (
        "without a search of all cells"
    )
    everything = index.search(queries, 2000, fill=True)
    assert np.array_equal(
        np.sort(everything, axis=1), np.tile(np.arange(2000), (20, 1))
    )


def test_bfloat16_rows_are_stored_in_half_the_memory_and_lose_nothing(tmp_path):
    rows = torch.from_numpy(clusters(20_000)).bfloat16()  # more than one chunk
    halves = LabelVectors(rows, torch.randn(20_000))
    settings, queries = (
        IndexConfig(kind="ivf", probes=10_000),
        clusters(20_005, 17)[20_000:],
    )
    index, whole = LabelIndex(halves, settings), LabelIndex(halves[:], settings)
    assert (
        overlap(index.search(queries, 10), exact(halves[:], queries, 10)) >= 0.98
    )  # biases are rounded
    for one, name in ((index, "half"), (whole, "whole")):
        (tmp_path / name).mkdir()
        one.save(tmp_path / name)
    half_size, whole_size = (
        (tmp_path / name / INDEX).stat().st_size for name in ("half", "whole")
    )
    assert whole_size - half_size == pytest.approx(20_000 * 17 * 2, rel=0.01)
    opened = LabelIndex.open(tmp_path / "half", 20_000)
    assert opened is not None
    assert np.array_equal(opened.search(queries, 10), index.search(queries, 10))


def test_numbers_that_overflow_in_half_precision_are_stored_whole():
    rows = torch.from_numpy(clusters(2000) * 1e5).bfloat16()
    vectors, settings = (
        LabelVectors(rows, torch.zeros(2000)),
        IndexConfig(kind="ivf", probes=10_000),
    )
    queries = clusters(2005, 17)[2000:]
    assert (
        overlap(
            LabelIndex(vectors, settings).search(queries, 10),
            exact(vectors[:], queries, 10),
        )
        == 1
    )


@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_two_builds_find_the_same(kind):
    vectors, queries = clusters(2000), clusters(2050)[2000:]
    one, other = (
        LabelIndex(vectors, IndexConfig(kind=kind)).search(queries, 10)
        for _ in range(2)
    )
    assert np.array_equal(one, other)


def test_auto_is_exact_up_to_a_hundred_thousand_labels():
    assert IndexConfig().chosen(100_000) == "flat"
    assert IndexConfig().chosen(100_001) == "ivf"
    assert IndexConfig(kind="ivf").chosen(10) == "ivf"


def test_the_flat_heads_index_ranks_as_its_logits_do():
    torch.manual_seed(0)
    head = FlatConfig().build(8, 50).eval()
    head.bias.data.copy_(torch.randn(50))
    hidden, mask = torch.randn(3, 5, 8), torch.ones(3, 5, dtype=torch.bool)
    products = (
        query_vectors(head.document_vectors(hidden, mask)) @ LabelVectors.of(head)[:].T
    )
    np.testing.assert_allclose(
        products, head(hidden, mask).detach().numpy(), rtol=1e-4, atol=1e-5
    )
    found = LabelIndex(LabelVectors.of(head)[:], IndexConfig()).search(
        query_vectors(head.document_vectors(hidden, mask)), 7
    )
    assert torch.equal(torch.from_numpy(found), head(hidden, mask).topk(7).indices)


def test_label_attention_is_indexed_as_if_it_looked_at_all_tokens_alike():
    torch.manual_seed(0)
    head = LabelAttentionConfig(width=8, heads=2, normalize=False).build(6, 20).eval()
    head.bias.data.copy_(torch.randn(20))
    with torch.no_grad():
        head.queries.zero_()
    hidden, mask = torch.randn(3, 5, 6), torch.ones(3, 5, dtype=torch.bool)
    products = (
        query_vectors(head.document_vectors(hidden, mask)) @ LabelVectors.of(head)[:].T
    )
    np.testing.assert_allclose(
        products, head(hidden, mask).detach().numpy(), rtol=1e-4, atol=1e-5
    )


def test_label_vectors_are_a_copy():
    head = FlatConfig().build(4, 3)
    before = LabelVectors.of(head)[:]
    head.bias.data.copy_(torch.ones(3))
    assert (before[:, -1] == 0).all()


def test_queries_of_another_width_are_refused():
    index = LabelIndex(clusters(10), IndexConfig())
    with pytest.raises(XmtcError, match=r"\(2, 5\) for an index of width 16"):
        index.search(np.zeros((2, 5), np.float32), 3)


@pytest.mark.parametrize(
    "vectors", [np.full((2, 3), np.nan, np.float32), np.zeros((0, 3), np.float32)]
)
def test_vectors_that_cannot_be_indexed_are_refused(vectors):
    with pytest.raises(XmtcError, match="cannot index"):
        LabelIndex(vectors, IndexConfig())


def test_fewer_labels_than_candidates():
    assert LabelIndex(clusters(5), IndexConfig()).search(clusters(2), 9).shape == (2, 5)


@pytest.mark.parametrize("labels", [3, 70_000])
def test_all_products_find_what_faiss_finds(labels: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((labels, 9), dtype=np.float32)
    queries = np.random.default_rng(1).standard_normal((4, 9), dtype=np.float32)
    wanted = LabelIndex(vectors, IndexConfig(kind="flat")).search(queries, 10)
    np.testing.assert_array_equal(
        ExactSearch(vectors, torch.device("cpu")).search(queries, 10), wanted
    )


@pytest.mark.parametrize(
    "vectors", [np.full((2, 3), np.nan, np.float32), np.zeros((0, 3), np.float32)]
)
def test_products_of_such_vectors_are_refused(vectors) -> None:
    with pytest.raises(XmtcError, match="cannot index"):
        ExactSearch(vectors, torch.device("cpu"))
