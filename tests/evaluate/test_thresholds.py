"""Tuned thresholds are the best there are."""

import numpy as np
import pytest
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
    found = tune_threshold(whole(scores), gold, per_label=True, min_support=10)
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
