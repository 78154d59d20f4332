"""Fitting a calibration on dev, by label frequency.

Rare labels are over- or underconfident in different ways: their rows saw few positives. Each frequency bin gets a
scale and an offset of its logits by logistic regression on the kept predictions (Platt 1999; the scale is one over the
temperature of Guo et al. 2017). Logits are recovered from the scores, which are probabilities.

Shapes: N documents, K kept predictions, L labels, P (document, label) pairs.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from xmtc.data.bins import bin_masks
from xmtc.models.calibration import Calibration
from xmtc.scorers.predictions import Gold, SparsePredictions, logits_of, match

LEAST_OF_EACH = 25
"""A bin with fewer right, or fewer wrong, predictions than this shares the fit over all labels."""
_MAX_PAIRS = 2_000_000
_IDENTITY = (1.0, 0.0)


def fit_calibration(
    predictions: SparsePredictions,
    gold: Gold,
    train_counts_L: NDArray[np.int64],
    bins: Sequence[str],
) -> Calibration:
    """Fit the scale and offset of each label's logit on these documents, which must be dev, never test.

    Labels in no bin, and bins with little to go by, take the fit over all labels; where bins overlap, the later one
    wins. A fit that would turn the order of scores around is not taken.

    Args:
        predictions: (N, K), scores of sigmoids.
        gold: boolean (N, L).
        train_counts_L: training documents of each label.
        bins: names, see `bin_mask`.
    """
    used_NK = predictions.label_ids_NK >= 0
    ids_P = predictions.label_ids_NK[used_NK]
    right_P = match(predictions.label_ids_NK, gold)[used_NK]
    logits_P = logits_of(predictions.scores_NK[used_NK])
    shared = _fit(logits_P, right_P) or _IDENTITY
    scale_L = np.full(len(train_counts_L), shared[0], np.float32)
    offset_L = np.full(len(train_counts_L), shared[1], np.float32)
    for mask_L in bin_masks(bins, train_counts_L):
        inside_P = mask_L[ids_P]
        scale, offset = _fit(logits_P[inside_P], right_P[inside_P]) or shared
        scale_L[mask_L] = scale
        offset_L[mask_L] = offset
    return Calibration(torch.from_numpy(scale_L), torch.from_numpy(offset_L))


def calibrated(
    predictions: SparsePredictions, calibration: Calibration | None
) -> SparsePredictions:
    """Calibrate the scores and sort again, best first; without a calibration, return the predictions unchanged."""
    if calibration is None:
        return predictions
    ids_NK = (
        predictions.label_ids_NK
    )  # padding reads the last label's calibration, and is left out later
    scale_NK = calibration.scale_L.numpy()[ids_NK]
    offset_NK = calibration.offset_L.numpy()[ids_NK]
    logits_NK = logits_of(predictions.scores_NK) * scale_NK + offset_NK
    scores_NK = expit(logits_NK).astype(np.float32)
    padding_last_NK = np.where(ids_NK < 0, -1, scores_NK)
    return SparsePredictions(ids_NK, scores_NK).sorted_by(-padding_last_NK)


def _fit(
    logits_P: NDArray[np.float64], right_P: NDArray[np.bool_]
) -> tuple[float, float] | None:
    """Fit scale and offset of one group of pairs; None if there are too few, or the best scale is not positive."""
    right_count = int(right_P.sum())
    wrong_count = len(right_P) - right_count
    if min(right_count, wrong_count) < LEAST_OF_EACH:
        return None
    if len(logits_P) > _MAX_PAIRS:
        chosen = np.random.default_rng(0).choice(
            len(logits_P), _MAX_PAIRS, replace=False
        )
        logits_P, right_P = logits_P[chosen], right_P[chosen]
    model = LogisticRegression(C=np.inf).fit(logits_P[:, None], right_P)
    scale = float(model.coef_[0, 0])
    offset = float(model.intercept_[0])
    return (scale, offset) if scale > 0 else None
