"""Streamed AUC against scikit-learn."""

import numpy as np
import torch
from evaluation_cases import gold_and_scores
from scipy.special import logit
from sklearn.metrics import roc_auc_score

from xmtc.evaluate.histogram import ScoreHistogram


def test_areas_are_within_their_own_error_of_the_exact_ones():
    gold, scores = gold_and_scores()
    logits = torch.from_numpy(logit(scores))
    histogram = ScoreHistogram(40)
    for start in range(0, 300, 64):
        histogram.update(logits[start : start + 64], gold[start : start + 64])
    auc, truth = histogram.auc(), gold.toarray()
    both = truth.any(axis=0) & ~truth.all(axis=0)
    assert abs(auc.micro - roc_auc_score(truth.ravel(), scores.ravel())) <= auc.micro_error < 0.01
    assert abs(auc.macro - roc_auc_score(truth[:, both], scores[:, both])) <= auc.macro_error < 0.01


def test_scores_in_one_bin_give_a_half_and_say_so():
    gold, _ = gold_and_scores()
    histogram = ScoreHistogram(40)
    histogram.update(torch.zeros(300, 40), gold)
    auc = histogram.auc()
    assert (auc.micro, auc.micro_error) == (0.5, 0.5)


def test_memory_does_not_grow_and_halves_add_up():
    gold, scores = gold_and_scores()
    logits = torch.from_numpy(logit(scores)).bfloat16()
    one, two, both = (ScoreHistogram(40) for _ in range(3))
    one.update(logits[:100], gold[:100])
    two.update(logits[100:], gold[100:])
    both.update(logits, gold)
    for a, b, total in zip(one.tables(), two.tables(), both.tables(), strict=True):
        assert torch.equal(a + b, total)
    assert both.all_LH.sum() == 300 * 40
    assert np.prod(both.all_LH.shape) == 40 * 512
