"""What a document scores does not depend on the documents beside it, also where training has equally near ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scorer_cases import training
from xmtc.scorers.base import Features, Training
from xmtc.scorers.config import StateNeighboursConfig, WordNeighboursConfig
from xmtc.scorers.state_neighbours import StateNeighbours
from xmtc.scorers.ties import EQUAL, first_of_each
from xmtc.scorers.votes import Votes
from xmtc.scorers.word_neighbours import WordNeighbours

COPIES = 4


def with_copies() -> Training:
    """The cases several times, with labels of their own: each document has neighbours that are equally near."""
    cases, _ = training()
    rows = np.tile(np.arange(len(cases)), COPIES)
    features = cases.features.take(rows)
    labels_NL = cases.labels_NL[np.random.default_rng(1).permutation(rows)]
    return Training(features, labels_NL, cases.names)


CASES = with_copies()
QUERIES = CASES.features.take(np.arange(24))
BY_WORDS = WordNeighbours.fit(CASES, WordNeighboursConfig(neighbours=6))
BY_STATES = StateNeighbours.fit(CASES, StateNeighboursConfig(neighbours=6))
batches = st.lists(st.integers(0, len(QUERIES) - 1), min_size=1, max_size=40)


def alone(scorer: Votes) -> tuple[np.ndarray, np.ndarray]:
    parts = [
        scorer.nearest(QUERIES.take(slice(row, row + 1))) for row in range(len(QUERIES))
    ]
    return np.concatenate([rows for rows, _ in parts]), np.concatenate(
        [cosines for _, cosines in parts]
    )


@settings(deadline=None, max_examples=50)
@given(batches)
def test_words_give_the_same_bits_in_any_batch(batch: list[int]) -> None:
    rows_BK, cosines_BK = alone(BY_WORDS)
    found_BK, found_cosines_BK = BY_WORDS.nearest(QUERIES.take(np.array(batch)))
    np.testing.assert_array_equal(found_BK, rows_BK[batch])
    np.testing.assert_array_equal(found_cosines_BK, cosines_BK[batch])
    scores_NL = BY_WORDS.score(QUERIES).scores_NL.toarray()
    np.testing.assert_array_equal(
        BY_WORDS.score(QUERIES.take(np.array(batch))).scores_NL.toarray(),
        scores_NL[batch],
    )


@settings(deadline=None, max_examples=50)
@given(batches, st.integers(0, 1000))
def test_states_find_the_same_neighbours_however_an_encoder_rounds(
    batch: list[int], seed: int
) -> None:
    rows_BK, cosines_BK = alone(BY_STATES)
    states_BD = QUERIES.states_ND[batch]
    rounded_BD = states_BD * (
        1 + 1e-7 * np.random.default_rng(seed).normal(size=states_BD.shape)
    ).astype(np.float32)
    found_BK, found_cosines_BK = BY_STATES.nearest(
        Features(QUERIES.words.take(np.array(batch)), rounded_BD)
    )
    np.testing.assert_array_equal(found_BK, rows_BK[batch])
    np.testing.assert_allclose(found_cosines_BK, cosines_BK[batch], atol=EQUAL)


def test_of_equally_near_documents_the_first_vote() -> None:
    found_BK, cosines_BK = BY_WORDS.nearest(QUERIES)
    size = len(CASES) // COPIES
    for row, (found_K, cosines_K) in enumerate(zip(found_BK, cosines_BK, strict=True)):
        copies = [row + size * number for number in range(COPIES)]
        assert found_K[:COPIES].tolist() == sorted(found_K[:COPIES].tolist())
        assert set(copies) <= {*found_K.tolist()} or cosines_K.min() > 1 - EQUAL


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60, unique=True),
    st.integers(1, 5),
)
def test_choosing_is_sorting_by_level_and_id(
    pairs: list[tuple[int, int]], k: int
) -> None:
    rng = np.random.default_rng(len(pairs))
    query_P = np.array([query for query, _ in pairs], np.int64)
    id_P = np.array([number for _, number in pairs], np.int64)
    level_P = rng.integers(0, 3, len(pairs)) / 4
    noisy_P = level_P + EQUAL / 100 * rng.normal(size=len(pairs))
    ids_BK, similarities_BK = first_of_each(query_P, id_P, noisy_P, 4, k)
    for query in range(4):
        mine = [
            (-level, number)
            for level, number, of in zip(level_P, id_P, query_P, strict=True)
            if of == query
        ]
        expected = [number for _, number in sorted(mine)[:k]]
        assert ids_BK[query].tolist() == expected + [-1] * (k - len(expected))
        assert similarities_BK[query, len(expected) :].tolist() == [0] * (
            k - len(expected)
        )


@pytest.mark.parametrize("scorer", [BY_WORDS, BY_STATES])
def test_votes_of_a_document_are_those_of_its_neighbours(scorer: Votes) -> None:
    found_BK, cosines_BK = scorer.nearest(QUERIES)
    weights_BK = np.where(found_BK >= 0, scorer.weights(cosines_BK), 0)
    shares_BK = weights_BK / weights_BK.sum(axis=1, keepdims=True)
    expected = [
        shares_K @ scorer.labels_NL[found_K].toarray()
        for found_K, shares_K in zip(found_BK, shares_BK, strict=True)
    ]
    np.testing.assert_allclose(
        scorer.score(QUERIES).scores_NL.toarray(), expected, atol=1e-6
    )
