"""Streamed AUC against scikit-learn."""

import numpy as np
import torch
from scipy.special import logit
from sklearn.metrics import roc_auc_score

from evaluation_cases import gold_and_scores
from gloo import run_gloo
from xmtc.data.sampler import MicroBatch
from xmtc.distributed.collectives import rank_and_world_size
from xmtc.evaluate.histogram import ScoreHistogram
from xmtc.models.calibration import Calibration
from xmtc.stages.head_scores import logit_counter


def test_areas_are_within_their_own_error_of_the_exact_ones(monkeypatch):
    monkeypatch.setattr("xmtc.evaluate.histogram._BLOCK", 16)
    gold, scores = gold_and_scores()
    logits = torch.from_numpy(logit(scores))
    histogram = ScoreHistogram(40)
    for start in range(0, 300, 64):
        histogram.update(logits[start : start + 64], gold[start : start + 64])
    auc, truth = histogram.auc(), gold.toarray()
    both = truth.any(axis=0) & ~truth.all(axis=0)
    assert (
        abs(auc.micro - roc_auc_score(truth.ravel(), scores.ravel()))
        <= auc.micro_error
        < 0.01
    )
    assert (
        abs(auc.macro - roc_auc_score(truth[:, both], scores[:, both]))
        <= auc.macro_error
        < 0.01
    )


def test_areas_are_those_of_logits_that_are_calibrated_afterwards(monkeypatch):
    monkeypatch.setattr("xmtc.evaluate.histogram._BLOCK", 16)
    gold, scores = gold_and_scores()
    logits, truth, histogram = (
        torch.from_numpy(logit(scores)),
        gold.toarray(),
        ScoreHistogram(40),
    )
    histogram.update(logits, gold)
    before = histogram.auc()
    kinds = torch.arange(40) % 3
    histogram.calibration = Calibration(
        torch.tensor([1.0, 0.3, 2.0])[kinds], torch.tensor([0.0, -4.0, 1.5])[kinds]
    )
    after, exact = histogram.auc(), histogram.calibration(logits).sigmoid().numpy()
    assert (
        abs(after.micro - roc_auc_score(truth.ravel(), exact.ravel()))
        <= after.micro_error
        < 0.01
    )
    assert abs(after.micro - before.micro) > 0.05
    assert (after.macro, after.macro_error) == (before.macro, before.macro_error)


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
    assert torch.equal(one.all_LH + two.all_LH, both.all_LH)
    assert torch.equal(one.gold_LH + two.gold_LH, both.gold_LH)
    assert both.all_LH.sum() == 300 * 40
    assert np.prod(both.all_LH.shape) == 40 * 512


def _share_of_a_rank(logits, gold):
    """Three batches over two ranks: the second rank gets the first one again, as a filler, for the last turn."""
    rank, _ = rank_and_world_size()
    parts = [np.arange(0, 100), np.arange(100, 220), np.arange(220, 300)]
    batches = [
        MicroBatch(part, np.ones(len(part), np.float32)) for part in parts[rank::2]
    ]
    if rank == 1:
        batches.append(MicroBatch(parts[0], np.zeros(100, np.float32)))
    histogram = ScoreHistogram(40)
    count = logit_counter(histogram, batches, gold)
    for batch in batches:
        count(batch.documents, logits[batch.documents])
    histogram.sum_over_ranks()
    return histogram.all_LH, histogram.gold_LH, histogram.auc().macro


def test_ranks_together_count_every_document_once(tmp_path):
    gold, scores = gold_and_scores()
    logits = torch.from_numpy(logit(scores))
    whole = ScoreHistogram(40)
    whole.update(logits, gold)
    for all_LH, gold_LH, macro in run_gloo(_share_of_a_rank, 2, tmp_path, logits, gold):
        assert torch.equal(all_LH, whole.all_LH)
        assert torch.equal(gold_LH, whole.gold_LH)
        assert macro == whole.auc().macro
