"""Calibration: fitted by frequency bin, applied the same on logits and on kept scores, undone exactly."""

import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.special import expit, logit

from evaluation_cases import best
from xmtc.errors import CheckpointError
from xmtc.evaluate.fit_calibration import LEAST_OF_EACH, calibrated, fit_calibration
from xmtc.evaluate.judged import ScoreCounts
from xmtc.models.calibration import Calibration
from xmtc.scorers.predictions import SparsePredictions, match

LABELS, DOCUMENTS = 40, 2000
COUNTS = np.array([3] * 20 + [100] * 20)
BINS = ("1-5", ">50")


@pytest.fixture(scope="module")
def world():
    """True logits, gold labels drawn from them, and a model that is off by another rule in each bin."""
    random = np.random.default_rng(0)
    true_NL = random.normal(-2, 1.5, (DOCUMENTS, LABELS))
    gold = sparse.csr_array(random.random(true_NL.shape) < expit(true_NL))
    wrong_NL = np.where(COUNTS < 50, 0.5 * true_NL - 1.0, 2.0 * true_NL + 0.5)
    return true_NL, gold, best(expit(wrong_NL), LABELS)


def ece(predictions, gold):
    groups = {"rare": COUNTS < 50, "frequent": COUNTS > 50}
    counts = ScoreCounts(predictions, match(predictions.label_ids_NK, gold), groups)
    return [counts.reliability(name)["ece"] for name in ("", *groups)]


def test_each_bins_rule_is_found_and_the_scores_become_probabilities(world):
    true_NL, gold, predictions = world
    found = fit_calibration(predictions, gold, COUNTS, BINS)
    np.testing.assert_allclose(
        found.scale_L, np.where(COUNTS < 50, 2.0, 0.5), rtol=0.05
    )
    np.testing.assert_allclose(
        found.offset_L, np.where(COUNTS < 50, 2.0, -0.25), atol=0.1
    )
    after = calibrated(predictions, found)
    assert max(ece(after, gold)) < 0.01 < 0.05 < min(ece(predictions, gold))
    dense_NL = np.zeros((DOCUMENTS, LABELS))
    np.put_along_axis(dense_NL, after.label_ids_NK, after.scores_NK, axis=1)
    assert np.abs(dense_NL - expit(true_NL)).max() < 0.03
    after.check(LABELS)


def test_kept_scores_and_logits_agree(world):
    _, gold, predictions = world
    found = fit_calibration(predictions, gold, COUNTS, BINS)
    after = calibrated(predictions.top(10), found)
    logits_BL = torch.from_numpy(np.zeros((5, LABELS), np.float32))
    ids_BK = torch.from_numpy(predictions.label_ids_NK[:5]).long()
    logits_BL.scatter_(1, ids_BK, torch.from_numpy(logit(predictions.scores_NK[:5])))
    expected_BK = (
        found(logits_BL)
        .sigmoid()
        .gather(1, torch.from_numpy(after.label_ids_NK[:5]).long())
    )
    np.testing.assert_allclose(after.scores_NK[:5], expected_BK, rtol=1e-4)
    shortlist_BS = torch.tensor([[3, 25, -1]]).expand(5, -1)
    short_BS = found(logits_BL.gather(1, shortlist_BS.clamp(min=0)), shortlist_BS)
    assert torch.equal(short_BS[:, :2], found(logits_BL)[:, [3, 25]])
    assert torch.equal(short_BS[:, 2], logits_BL[:, 0])


def test_padding_stays_behind():
    found = Calibration(torch.full((3,), 2.0), torch.tensor([0.0, 5.0, 0.0]))
    before = SparsePredictions(
        np.array([[0, 1, -1]], np.int32), np.array([[0.6, 0.5, 0.0]], np.float32)
    )
    assert calibrated(before, found).label_ids_NK.tolist() == [[1, 0, -1]]


def test_bins_with_little_share_one_fit_and_a_reversed_one_is_not_taken(world):
    _, gold, predictions = world
    few = LEAST_OF_EACH // 2
    rare = SparsePredictions(
        predictions.label_ids_NK[:few, :1], predictions.scores_NK[:few, :1]
    )
    found = fit_calibration(rare, gold[:few], COUNTS, BINS)
    assert (found.scale_L == 1).all()
    assert (found.offset_L == 0).all()
    turned = best(
        expit(
            -logit(np.clip(gold.toarray(), 0.2, 0.8))
            + np.random.default_rng(1).normal(0, 0.1, gold.shape)
        ),
        LABELS,
    )
    assert (fit_calibration(turned, gold, COUNTS, BINS).scale_L == 1).all()


def test_a_file_that_does_not_fit_is_refused(tmp_path):
    Calibration(torch.ones(3), torch.zeros(3)).save(tmp_path / "c.safetensors")
    assert torch.equal(
        Calibration.load(tmp_path / "c.safetensors", 3).scale_L, torch.ones(3)
    )
    with pytest.raises(CheckpointError, match=r"3 labels, .* 4"):
        Calibration.load(tmp_path / "c.safetensors", 4)
    (tmp_path / "c.safetensors").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match=r"c\.safetensors"):
        Calibration.load(tmp_path / "c.safetensors", 3)
    with pytest.raises(ValueError, match="must be positive"):
        Calibration(torch.zeros(2), torch.zeros(2))
