"""Tuned thresholds are the best there are."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import f1_score

from evaluation_cases import gold_and_scores, whole
from xmtc.evaluate.predictions import SparsePredictions
from xmtc.evaluate.thresholds import Thresholds, tune_threshold


@pytest.mark.parametrize("digits", [1, 2, 7])
def test_the_global_threshold_has_the_greatest_micro_f1(digits):
    gold, scores = gold_and_scores(documents=80, labels=10)
    scores = np.round(scores, digits)
    found = tune_threshold(whole(scores), gold).global_
    truth = gold.toarray()
    best = max(f1_score(truth, scores >= t, average="micro") for t in np.unique(scores))
    assert f1_score(truth, scores >= np.float32(found), average="micro") == pytest.approx(best)


@pytest.mark.parametrize("digits", [1, 7])
def test_a_frequent_labels_own_threshold_has_its_greatest_f1(digits):
    gold, scores = gold_and_scores(documents=80, labels=10)
    scores = np.round(scores, digits)
    found = tune_threshold(whole(scores), gold, per_label=True)
    truth = gold.toarray()
    support = truth.sum(axis=0)
    assert (support < 10).any()
    assert (support >= 10).any()
    for label in range(10):
        if support[label] < 10:
            assert found.per_label[label] == np.float32(found.global_)
            continue
        best = max(f1_score(truth[:, label], scores[:, label] >= t) for t in np.unique(scores[:, label]))
        own = f1_score(truth[:, label], scores[:, label] >= found.per_label[label])
        assert own == pytest.approx(best)


def test_per_label_thresholds_choose_by_label():
    predictions = SparsePredictions(np.array([[1, 0, -1]], np.int32), np.array([[0.6, 0.5, 0.0]], np.float32))
    chosen = Thresholds(0.5, np.array([0.4, 0.7], np.float32)).chosen(predictions)
    assert chosen.tolist() == [[False, True, False]]


def test_without_any_right_prediction_the_threshold_is_a_half():
    predictions = SparsePredictions(np.array([[1]], np.int32), np.array([[0.6]], np.float32))
    gold = gold_and_scores(documents=1, labels=2)[0] * 0
    assert tune_threshold(predictions, gold.astype(bool), per_label=True).global_ == 0.5


def calibrated_documents(documents: int, seed: int) -> tuple[SparsePredictions, sparse.csr_array]:
    """Ten labels a document whose scores are the probabilities of their being right."""
    generator = np.random.default_rng(seed)
    scores_NK = -np.sort(-generator.beta(0.3, 1.0, (documents, 10)).astype(np.float32))
    gold_NL = sparse.csr_array(generator.random((documents, 10)) < scores_NK)
    return SparsePredictions(np.tile(np.arange(10, dtype=np.int32), (documents, 1)), scores_NK), gold_NL


def test_with_probabilities_a_prediction_counts_by_the_mean_of_label_and_score():
    predictions, gold_NL = calibrated_documents(20, seed=1)
    scores, hits = predictions.scores_NK.ravel(), gold_NL.toarray().ravel()
    right, all_right = (hits + scores) / 2, (hits.sum() + scores.sum()) / 2
    f1 = [2 * right[scores >= t].sum() / ((scores >= t).sum() + all_right) for t in scores]
    assert tune_threshold(predictions, gold_NL, probabilities=True).global_ == pytest.approx(scores[np.argmax(f1)])


def test_with_probabilities_small_samples_agree_better():
    samples = [calibrated_documents(40, seed=seed) for seed in range(60)]
    varying = [np.std([tune_threshold(*one, probabilities=on).global_ for one in samples]) for on in (False, True)]
    assert varying[1] < 0.7 * varying[0]
    large = calibrated_documents(20_000, seed=99)
    both = [tune_threshold(*large, probabilities=on).global_ for on in (False, True)]
    assert both[0] == pytest.approx(both[1], abs=0.03)


def test_with_probabilities_labels_without_a_prediction_count_as_missed():
    predictions, gold_NL = calibrated_documents(20_000, seed=99)
    missed_NL = sparse.csr_array(np.ones((20_000, 5), bool))
    gold_NL = sparse.csr_array(sparse.hstack([gold_NL, missed_NL]))
    both = [tune_threshold(predictions, gold_NL, probabilities=on).global_ for on in (False, True)]
    assert both[0] == pytest.approx(both[1], abs=0.03)


def test_with_probabilities_and_nothing_right_the_threshold_is_a_half():
    predictions, gold_NL = calibrated_documents(3, seed=1)
    assert tune_threshold(predictions, sparse.csr_array(gold_NL.shape, dtype=bool), probabilities=True).global_ == 0.5
