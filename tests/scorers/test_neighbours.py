"""Votes of neighbours against dense brute force."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scorer_cases import training, unseen
from xmtc.data.labels import LabelTable
from xmtc.scorers.base import Features
from xmtc.scorers.config import LabelTextConfig, StateNeighboursConfig, WordNeighboursConfig
from xmtc.scorers.label_text import LabelText, all_names, label_words
from xmtc.scorers.regrouping import Regrouping
from xmtc.scorers.state_neighbours import StateNeighbours
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
    monkeypatch.setattr("xmtc.scorers.state_neighbours.MAX_EXACT", 100 if exact else 0)
    cases, vocabulary = training()
    features, _ = unseen(vocabulary)
    assert cases.features.states_ND is not None
    assert features.states_ND is not None
    scorer = StateNeighbours.fit(cases, StateNeighboursConfig(neighbours=10))
    mean = cases.features.states_ND.mean(axis=0)
    cosines = centred(features.states_ND, mean) @ centred(cases.features.states_ND, mean).T
    expected = votes(cosines, cases.labels_NL.toarray(), 10, lambda c: np.exp(20 * (c - 1)))
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
    before, after = scorer.score(features).top(3), type(scorer).load(tmp_path).score(features).top(3)
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
    table = LabelTable(["a", "b", "c"], ["w3", "w20 w21", "c"], np.ones(3, np.int64), None, [("w5 w6", "w6"), (), ()])
    names, owners = all_names(table)
    assert names == ["w3", "w5 w6", "w6", "w20 w21", "c"]
    words = label_words(names, vocabulary)
    scorer = LabelText.fit(replace(cases, label_words_LV=words, owners_L=owners), LabelTextConfig())
    assert scorer.labels == 3
    features = Features(vocabulary.words(["w6", "w5 w6 w20", "w21 w3"]))
    single = LabelText.fit(replace(cases, label_words_LV=words), LabelTextConfig()).products(features).toarray()
    expected = np.stack([single[:, :3].max(1), single[:, 3], single[:, 4]], axis=1)
    np.testing.assert_allclose(scorer.products(features).toarray(), expected)
    reasons, _, none = scorer.contributions(features.take(slice(1, 2)), [0, 1, 2])
    assert [vocabulary.terms[reason.number] for reason in reasons] in (["w5", "w6"], ["w6", "w5"])
    assert sum(reason.value for reason in reasons) == pytest.approx(expected[1, 0])
    assert none == []
    scorer.save(tmp_path)
    np.testing.assert_allclose(LabelText.load(tmp_path).products(features).toarray(), expected)
    fewer = scorer.regrouped(Regrouping.without(3, [1])).extended(label_words(["w21"], vocabulary))
    assert fewer.labels == 3
    np.testing.assert_allclose(fewer.products(features).toarray()[:, :2], expected[:, [0, 2]])
    assert fewer.products(features).toarray()[:, 2].nonzero()[0].tolist() == [2]
