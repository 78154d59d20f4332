"""Every label's kept predictions ranked by score, a group of labels at a time.

Shapes: N documents, K kept predictions, L labels, P predictions of a group of labels.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xmtc.scorers.predictions import SparsePredictions

_GROUP = 1 << 24
"""Predictions ranked at once: 128 MiB of sort keys."""


def _ranked(
    predictions: SparsePredictions, hits_NK: NDArray[np.bool_], labels: int
) -> Iterator[NDArray[np.uint64]]:
    """Rank the predictions of every label by falling score, in groups of about 16 million predictions.

    Yields:
        uint64 (P,), ascending: label id (31 bits), inverted score (32 bits), 1 bit that is 0 for a hit.

    One sort of 64-bit keys does it: the bits of a score that is not negative order as the score does.
    """
    used_NK = predictions.label_ids_NK >= 0
    ids_P = predictions.label_ids_NK[used_NK]
    totals = np.zeros(labels + 1, np.int64)
    totals[1:] = np.cumsum(np.bincount(ids_P, minlength=labels))
    scores_P = predictions.scores_NK[used_NK]
    scores_P += np.float32(0)  # turns −0 into 0
    keys_P = (~scores_P.view(np.uint32)).astype(np.uint64)
    keys_P <<= np.uint64(1)
    keys_P |= ~hits_NK[used_NK]
    low = 0
    while low < labels and totals[-1] > totals[low]:
        high = max(
            low + 1, int(np.searchsorted(totals, totals[low] + _GROUP, "right")) - 1
        )
        inside_P = (ids_P >= low) & (ids_P < high)
        label_bits_P = ids_P[inside_P].astype(np.uint64) << np.uint64(33)
        group_P = keys_P[inside_P] | label_bits_P
        group_P.sort()
        if len(group_P):
            yield group_P
        low = high


def average_precision(
    predictions: SparsePredictions,
    hits_NK: NDArray[np.bool_],
    support_L: NDArray[np.integer],
) -> NDArray[np.float64]:
    """Average precision of every label over its kept predictions.

    AP = Σ over score steps of (recall gained) · (precision), as scikit-learn defines it, ties together. Gold documents
    whose prediction of the label was not kept gain no recall, so this is a lower bound that is exact when the label
    was kept for all documents.

    Returns:
        float64 (L,); NaN for a label without gold documents.
    """
    sums_L = np.zeros(len(support_L))
    for keys_P in _ranked(predictions, hits_NK, len(support_L)):
        hits = np.flatnonzero((keys_P & np.uint64(1)) == 0)
        if not len(hits):
            continue
        label_bits = keys_P[hits] >> np.uint64(33)
        # The end of the run of equal scores; other predictions follow hits there, as their lowest bit is set.
        ends = np.searchsorted(keys_P, keys_P[hits] | np.uint64(1), "right")
        starts = np.searchsorted(keys_P, label_bits << np.uint64(33))
        hits_so_far = np.searchsorted(hits, ends) - np.searchsorted(hits, starts)
        precisions = hits_so_far / (ends - starts)
        np.add.at(sums_L, label_bits.astype(np.int64), precisions)
    np.divide(sums_L, support_L, out=sums_L, where=support_L > 0)
    sums_L[support_L == 0] = np.nan
    return sums_L
