"""Votes of neighbours against dense brute force."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scorer_cases import label_names, states_of, training, unseen
from xmtc.data.labels import LabelTable
from xmtc.errors import DataError
from xmtc.scorers.base import Features, LabelNames
from xmtc.scorers.config import (
    LabelEmbeddingsConfig,
    LabelTextConfig,
    StateNeighboursConfig,
    WordNeighboursConfig,
)
from xmtc.scorers.label_embeddings import NEAREST, LabelEmbeddings
from xmtc.scorers.label_text import LabelText, names_of_labels
from xmtc.scorers.regrouping import Regrouping
from xmtc.scorers.state_neighbours import StateNeighbours
from xmtc.scorers.vectors import vectors_at
from xmtc.scorers.word_neighbours import WordNeighbours

ALL = np.arange(7, dtype=np.int32)


def votes(cosines_BN: np.ndarray, labels_NL: np.ndarray, k: int, weigh) -> np.ndarray:
    found = []
    for cosines_N in cosines_BN:
        nearest = np.argsort(-cosines_N, kind="stable")[:k]
        weights = weigh(cosines_N[nearest])
        found.append(weights @ labels_NL[nearest] / weights.sum())
    return np.array(found)


def centred(states: np.ndarray, mean: np.ndarray) -> np.ndarray:
    rows = states - mean
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_words_vote_as_by_brute_force() -> None:
    cases, vocabulary = training()
    features, _ = unseen(vocabulary)
    scorer = WordNeighbours.fit(cases, WordNeighboursConfig(neighbours=10))
    cosines = (features.words.together() @ cases.features.words.together().T).toarray()
    expected = votes(cosines, cases.labels_NL.toarray(), 10, lambda c: c**4)
    found = scorer.score(features).at(np.tile(ALL, (len(features), 1)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("exact", [True, False])
def test_states_vote_as_by_brute_force(monkeypatch, *, exact: bool) -> None:
    """With few inverted lists, all are searched."""
    monkeypatch.setattr("xmtc.scorers.vectors.MAX_EXACT", 100 if exact else 0)
    cases, vocabulary = training()
    features, _ = unseen(vocabulary)
    assert cases.features.states_ND is not None
    assert features.states_ND is not None
    scorer = StateNeighbours.fit(cases, StateNeighboursConfig(neighbours=10))
    mean = cases.features.states_ND.mean(axis=0)
    cosines = (
        centred(features.states_ND, mean) @ centred(cases.features.states_ND, mean).T
    )
    expected = votes(
        cosines, cases.labels_NL.toarray(), 10, lambda c: np.exp(20 * (c - 1))
    )
    found = scorer.score(features).at(np.tile(ALL, (len(features), 1)))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_contributions_are_the_neighbours_with_the_label() -> None:
    cases, vocabulary = training()
    features, _ = unseen(vocabulary, documents=1)
    scorer = WordNeighbours.fit(cases, WordNeighboursConfig(neighbours=10))
    (reasons,) = scorer.contributions(features, [2])
    score = scorer.score(features).at(np.array([[2]], np.int32))[0, 0]
    assert sum(reason.value for reason in reasons) == pytest.approx(score, abs=1e-6)
    assert all(cases.labels_NL[reason.number, 2] for reason in reasons)


@pytest.mark.parametrize("kind", ["words", "states"])
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    cases, vocabulary = training()
    features, _ = unseen(vocabulary)
    scorer = (
        WordNeighbours.fit(cases, WordNeighboursConfig(neighbours=10))
        if kind == "words"
        else StateNeighbours.fit(cases, StateNeighboursConfig(neighbours=10))
    )
    scorer.save(tmp_path)
    before, after = (
        scorer.score(features).top(3),
        type(scorer).load(tmp_path).score(features).top(3),
    )
    np.testing.assert_array_equal(before.label_ids_NK, after.label_ids_NK)
    np.testing.assert_allclose(before.scores_NK, after.scores_NK, atol=1e-6)


def test_label_texts_find_labels_whose_words_the_document_has(tmp_path: Path) -> None:
    cases, vocabulary = training()
    scorer = LabelText.fit(cases, LabelTextConfig())
    features = Features(vocabulary.words(["w3 w20 w21"]))
    best = scorer.score(features).top(2)
    assert best.label_ids_NK[0].tolist() == [3, -1]
    (reasons,) = scorer.contributions(features, [3])
    assert [vocabulary.terms[reason.number] for reason in reasons] == ["w3"]
    assert reasons[0].value == pytest.approx(best.scores_NK[0, 0])
    scorer.save(tmp_path)
    assert (LabelText.load(tmp_path).weights_WL != scorer.weights_WL).nnz == 0


def test_a_label_is_found_by_any_of_its_names(tmp_path: Path) -> None:
    cases, vocabulary = training()
    table = LabelTable(
        ["a", "b", "c"],
        ["w3", "w20 w21", "c"],
        np.ones(3, np.int64),
        None,
        [("w5 w6", "w6"), (), ()],
    )
    names = names_of_labels(table, vocabulary)
    assert names.texts == ["w3", "w5 w6", "w6", "w20 w21", "c"]
    scorer = LabelText.fit(replace(cases, names=names), LabelTextConfig())
    assert scorer.labels == 3
    features = Features(vocabulary.words(["w6", "w5 w6 w20", "w21 w3"]))
    apart = replace(names, owners_W=np.arange(5))
    single = (
        LabelText.fit(replace(cases, names=apart), LabelTextConfig())
        .products(features)
        .toarray()
    )
    expected = np.stack([single[:, :3].max(1), single[:, 3], single[:, 4]], axis=1)
    np.testing.assert_allclose(scorer.products(features).toarray(), expected)
    reasons, _, none = scorer.contributions(features.take(slice(1, 2)), [0, 1, 2])
    assert [vocabulary.terms[reason.number] for reason in reasons] in (
        ["w5", "w6"],
        ["w6", "w5"],
    )
    assert sum(reason.value for reason in reasons) == pytest.approx(expected[1, 0])
    assert none == []
    scorer.save(tmp_path)
    np.testing.assert_allclose(
        LabelText.load(tmp_path).products(features).toarray(), expected
    )
    fewer = scorer.regrouped(Regrouping.without(3, [1])).extended(
        label_names(["w21"], vocabulary)
    )
    assert fewer.labels == 3
    np.testing.assert_allclose(
        fewer.products(features).toarray()[:, :2], expected[:, [0, 2]]
    )
    assert fewer.products(features).toarray()[:, 2].nonzero()[0].tolist() == [2]


def embedded(table: LabelTable) -> tuple[LabelEmbeddings, Features, np.ndarray]:
    """A scorer of a table, documents, and their similarities to every name, less hubs, by brute force."""
    cases, vocabulary = training()
    names = names_of_labels(table, vocabulary, lambda texts: states_of(len(texts), 3))
    features, _ = unseen(vocabulary)
    assert names.states_WD is not None
    assert cases.features.states_ND is not None
    assert features.states_ND is not None
    mean = cases.features.states_ND.mean(axis=0)
    name_vectors = centred(names.states_WD, names.states_WD.mean(axis=0))
    to_known = name_vectors @ centred(cases.features.states_ND, mean).T
    nearness = np.sort(to_known, axis=1)[:, -NEAREST:].mean(axis=1)
    return (
        LabelEmbeddings.fit(replace(cases, names=names), LabelEmbeddingsConfig()),
        features,
        centred(features.states_ND, mean) @ name_vectors.T - nearness / 2,
    )


@pytest.mark.parametrize("exact", [True, False])
def test_labels_are_as_similar_as_the_best_of_their_names(
    monkeypatch, tmp_path: Path, *, exact: bool
) -> None:
    monkeypatch.setattr("xmtc.scorers.vectors.MAX_EXACT", 100 if exact else 0)
    table = LabelTable(
        ["a", "b", "c"],
        ["a1", "b1", "c1"],
        np.ones(3, np.int64),
        None,
        [("a2", "a3"), (), ("c2",)],
    )
    scorer, features, similar = embedded(table)
    expected = np.stack(
        [similar[:, :3].max(1), similar[:, 3], similar[:, 4:].max(1)], axis=1
    )
    scorer.save(tmp_path)
    for one in (scorer, LabelEmbeddings.load(tmp_path)):
        scored = one.score(features)
        found = scored.at(
            np.tile(np.array([0, 1, 2, -1], np.int32), (len(features), 1))
        )
        np.testing.assert_allclose(found[:, :3], expected, atol=1e-5)
        assert not found[:, 3].any()
        best = scored.top(2)
        np.testing.assert_allclose(
            best.scores_NK, -np.sort(-expected, axis=1)[:, :2], atol=1e-5
        )
        kept = best.label_ids_NK >= 0
        rows = np.nonzero(kept)[0]
        np.testing.assert_allclose(
            expected[rows, best.label_ids_NK[kept]], best.scores_NK[kept], atol=1e-5
        )


def test_the_reason_is_the_name_that_is_most_similar() -> None:
    table = LabelTable(
        ["a", "b"], ["a1", "b1"], np.ones(2, np.int64), None, [("a2", "a3"), ()]
    )
    scorer, features, similar = embedded(table)
    (reason,), (other,) = scorer.contributions(features.take(slice(2, 3)), [0, 1])
    assert (reason.source, reason.name) == (
        "name",
        ["a1", "a2", "a3"][similar[2, :3].argmax()],
    )
    assert reason.value == pytest.approx(similar[2, :3].max(), abs=1e-5)
    assert other.name == "b1"


def test_names_of_merged_and_new_labels_count() -> None:
    table = LabelTable(
        ["a", "b", "c"],
        ["a1", "b1", "c1"],
        np.ones(3, np.int64),
        None,
        [("a2",), (), ()],
    )
    scorer, features, similar = embedded(table)
    _, vocabulary = training()
    ids = np.tile(np.arange(2, dtype=np.int32), (len(features), 1))
    merged = scorer.regrouped(Regrouping.merging(3, [[0, 2]]))
    expected = np.stack([similar[:, [0, 1, 3]].max(1), similar[:, 2]], axis=1)
    np.testing.assert_allclose(merged.score(features).at(ids), expected, atol=1e-5)
    assert merged.texts == ["a1", "a2", "c1", "b1"]
    longer = merged.extended(label_names(["d", "e"], vocabulary))
    assert longer.labels == 4
    np.testing.assert_allclose(longer.score(features).at(ids), expected, atol=1e-5)


def test_a_new_name_is_as_near_to_documents_as_the_names_like_it() -> None:
    """The name of a known label, added once more, has the mean nearness of the ten names that are like it."""
    rng = np.random.default_rng(5)
    cases, vocabulary = training()
    texts = [f"name {number}" for number in range(40)]
    states = rng.normal(size=(40, 6)).astype(np.float32)
    table = LabelTable(
        [f"l{n}" for n in range(40)], texts, np.ones(40, np.int64), None, [()] * 40
    )
    names = names_of_labels(table, vocabulary, lambda _: states)
    scorer = LabelEmbeddings.fit(replace(cases, names=names), LabelEmbeddingsConfig())
    more = LabelNames(
        texts[:1], np.zeros(1, np.int64), names.words_WV[:1], states[:1].copy()
    )
    vectors = vectors_at(scorer.extended(more).index, np.arange(41))
    np.testing.assert_allclose(vectors[40, :-1], vectors[0, :-1], atol=1e-6)
    like = np.argsort(-vectors[:40, :-1] @ vectors[0, :-1])[:NEAREST]
    assert vectors[40, -1] == pytest.approx(vectors[like, -1].mean(), abs=1e-6)


def test_documents_without_states_are_refused() -> None:
    scorer, features, _ = embedded(
        LabelTable(["a"], ["a1"], np.ones(1, np.int64), None, [("a2",)])
    )
    with pytest.raises(
        DataError, match="label_embeddings needs pooled states of width 6"
    ):
        scorer.score(replace(features, states_ND=None))
