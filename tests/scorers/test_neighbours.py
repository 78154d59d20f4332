"""Votes of neighbours against dense brute force."""

from pathlib import Path

import numpy as np
import pytest
from scorer_cases import training, unseen

from xmtc.scorers.base import Features, Training
from xmtc.scorers.config import LabelTextConfig, StateNeighboursConfig, WordNeighboursConfig
from xmtc.scorers.label_text import LabelText, fit_label_text
from xmtc.scorers.neighbours import Neighbours, fit_state_neighbours, fit_word_neighbours, others

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
    scorer = fit_word_neighbours(cases, WordNeighboursConfig(neighbours=(10,), power=(3.0,)))
    cosines = (features.words_NV @ cases.features.words_NV.T).toarray()
    expected = votes(cosines, cases.labels_NL.toarray(), 10, lambda c: c**3)
    found = scorer.score(features).at(np.tile(ALL, (len(features), 1)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("index", ["flat", "ivf", "hnsw"])
def test_states_vote_as_by_brute_force(index: str) -> None:
    cases, vocabulary = training()
    features, _ = unseen(vocabulary)
    assert cases.features.states_ND is not None
    assert features.states_ND is not None
    config = StateNeighboursConfig(neighbours=(10,), sharpness=(5.0,), index=index, probes=64)
    scorer = fit_state_neighbours(cases, config)
    mean = cases.features.states_ND.mean(axis=0)
    cosines = centred(features.states_ND, mean) @ centred(cases.features.states_ND, mean).T
    expected = votes(cosines, cases.labels_NL.toarray(), 10, lambda c: np.exp(5 * (c - 1)))
    found = scorer.score(features).at(np.tile(ALL, (len(features), 1)))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_leave_one_out_excludes_the_document_and_its_copies() -> None:
    cases, _ = training()
    texts = cases.texts_N.copy()
    texts[1] = texts[0]
    cases = Training(cases.features, cases.labels_NL, texts)
    scorer = fit_word_neighbours(cases, WordNeighboursConfig(neighbours=(10,), power=(2.0,)))
    cosines = (cases.features.words_NV @ cases.features.words_NV.T).toarray()[:1]
    cosines[0, :2] = -1
    expected = votes(cosines, cases.labels_NL.toarray(), 10, lambda c: c**2)
    found = scorer.vote(*others(scorer, cases, np.array([0]), 10)).at(ALL[None])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_best_settings_are_chosen_by_leave_one_out() -> None:
    cases, _ = training()
    scorer = fit_word_neighbours(cases, WordNeighboursConfig(neighbours=(1, 20), power=(2.0, 4.0)))
    assert (scorer.k, scorer.weights.p) in {(1, 2.0), (20, 2.0), (20, 4.0), (1, 4.0)}
    assert scorer.k == 20
    copies = Training(cases.features, cases.labels_NL, np.zeros(len(cases), np.uint64))  # nothing to choose by
    assert fit_word_neighbours(copies, WordNeighboursConfig(neighbours=(1, 20))).k == 20


def test_contributions_are_the_neighbours_with_the_label() -> None:
    cases, vocabulary = training()
    features, _ = unseen(vocabulary, documents=1)
    scorer = fit_word_neighbours(cases, WordNeighboursConfig(neighbours=(10,)))
    (reasons,) = scorer.contributions(features, [2])
    score = scorer.score(features).at(np.array([[2]], np.int32))[0, 0]
    assert sum(reason.value for reason in reasons) == pytest.approx(score, abs=1e-6)
    assert all(cases.labels_NL[reason.number, 2] for reason in reasons)


@pytest.mark.parametrize("kind", ["words", "states"])
def test_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    cases, vocabulary = training()
    features, _ = unseen(vocabulary)
    scorer = (
        fit_word_neighbours(cases, WordNeighboursConfig(neighbours=(10,)))
        if kind == "words"
        else fit_state_neighbours(cases, StateNeighboursConfig(neighbours=(10,)))
    )
    scorer.save(tmp_path)
    before, after = scorer.score(features).top(3), Neighbours.load(tmp_path).score(features).top(3)
    np.testing.assert_array_equal(before.label_ids_NK, after.label_ids_NK)
    np.testing.assert_allclose(before.scores_NK, after.scores_NK, atol=1e-6)


def test_label_texts_find_labels_whose_words_the_document_has(tmp_path: Path) -> None:
    cases, vocabulary = training()
    scorer = fit_label_text(cases, LabelTextConfig())
    features = Features(vocabulary.rows(vocabulary.count(["w3 w20 w21"])))
    best = scorer.score(features).top(2)
    assert best.label_ids_NK[0].tolist() == [3, -1]
    (reasons,) = scorer.contributions(features, [3])
    assert [vocabulary.terms[reason.number] for reason in reasons] == ["w3"]
    assert reasons[0].value == pytest.approx(best.scores_NK[0, 0])
    scorer.save(tmp_path)
    assert (LabelText.load(tmp_path).weights_VL != scorer.weights_VL).nnz == 0
