"""Bootstrap over documents: every metric recomputed on resamples of the documents.

A resample is a vector of document weights, so that a metric which is a ratio of sums over documents is a matrix product
away, and per-label counts are a sparse product away. The weights are exponential, as in the Bayesian bootstrap (Rubin
1981): documents drawn with replacement would lose a third of the labels that have a single document in every resample,
and macro-F1 over the labels left is not the macro-F1 that is asked about.

No weight changes the F1 of a label with a single document that is right or wrong. Other documents would have brought
other such labels, so a resample weights a label in macro metrics by the mean weight of its documents.
docs/benchmarks/intervals.md compares the intervals with how far the metrics really vary. Centring the replicates on
the estimate takes out the small bias that remains.

Shapes: N documents, L labels, M metrics, R resamples (of one chunk), G groups of labels.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.stats import norm

from xmtc.evaluate.classification import LabelSums, Outcome, label_scores
from xmtc.evaluate.metrics import Ratio
from xmtc.scorers.predictions import shape_of, without

_CHUNK_WEIGHTS = 48 << 20
"""Document weights held at once: 192 MiB of float32."""
_CHUNK_COUNTS = 8 << 20
"""Of each kind of label counts, held at once: 32 MiB of float32."""


@dataclass(frozen=True)
class Replicates:
    """Each metric's value on every resample, centred on its estimate.

    Attributes:
        values: metric name → (resamples,). Runs with equal `identity` used the same resamples.
        identity: of documents (in order), seed and number of resamples.
    """

    values: Mapping[str, NDArray[np.floating]]
    identity: str

    def interval(self, name: str) -> list[float]:
        """Return the 95 % percentile interval [low, high], within 0…1."""
        low, high = np.clip(np.percentile(self.values[name], [2.5, 97.5]), 0, 1)
        return [float(low), float(high)]


@dataclass(frozen=True)
class Difference:
    """A minus B on paired resamples.

    Attributes:
        low: lower end of the 95 % interval of A − B.
        high: upper end.
        p_value: two-sided: twice the share of resamples on the smaller side of 0, no less than 1/resamples.
    """

    low: float
    high: float
    p_value: float


def paired_difference(a: Replicates, b: Replicates, name: str) -> Difference:
    """Compute the interval of metric `name` of A minus that of B, both on the same resamples.

    Raises:
        ValueError: the two were not made from the same documents, in the same order, with the same seed.
    """
    if a.identity != b.identity:
        raise ValueError("replicates of different documents, seeds or numbers of resamples do not pair")
    change = a.values[name] - b.values[name]
    low, high = np.percentile(change, [2.5, 97.5])
    tail = min(np.mean(change <= 0), np.mean(change >= 0))
    return Difference(float(low), float(high), float(np.clip(2 * tail, 1 / len(change), 1)))


def resample_weights(documents: int, resamples: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """Draw an exponential weight for each document in each resample, whose weights have the mean 1.

    Yields:
        float32 (N, R) chunks; their R add up to `resamples`.
    """
    rng = np.random.default_rng(seed)
    chunk = max(1, min(resamples, _CHUNK_WEIGHTS // max(documents, 1)))
    for start in range(0, resamples, chunk):
        weights_NR = rng.standard_exponential((documents, min(chunk, resamples - start)), dtype=np.float32)
        yield weights_NR / weights_NR.mean(axis=0)


def bootstrap(
    ratios: Mapping[str, Ratio], outcome: Outcome, groups_GL: Mapping[str, NDArray[np.bool_]], resamples: int, seed: int
) -> dict[str, NDArray[np.floating]]:
    """Compute the metrics on every resample.

    Args:
        ratios: metrics that are ratios of sums over documents.
        outcome: predicted, right and gold labels.
        groups_GL: prefix → labels (L,) over which the label metrics are taken; names become prefix + metric.
        resamples: number of resamples.
        seed: seed of the draws.

    Returns:
        Metric name → (resamples,).
    """
    parts: dict[str, list[NDArray[np.floating]]] = {}
    ratio_sums, label_sums = _RatioSums(ratios), _ResampledLabels(outcome, groups_GL)
    for weights_NR in resample_weights(shape_of(outcome.gold)[0], resamples, seed):
        for name, values_R in [*ratio_sums.values(weights_NR).items(), *label_sums.values(weights_NR)]:
            parts.setdefault(name, []).append(values_R)
    return {name: np.concatenate(values) for name, values in parts.items()}


def ratio_interval(ratio: Ratio) -> tuple[float, float]:
    """Compute the 95 % interval of a ratio of sums over documents; Wilson's where all documents have the same ratio.

    It is 0 to 1 without any.
    """
    used_N = ratio.denominator_N > 0
    if not used_N.any():
        return 0.0, 1.0
    if np.ptp(ratio.numerator_N[used_N] / ratio.denominator_N[used_N]) == 0:
        share, square = ratio.value, norm.ppf(0.975) ** 2 / np.count_nonzero(used_N)
        middle, reach = share + square / 2, (square * share * (1 - share) + square**2 / 4) ** 0.5
        return max(0.0, float((middle - reach) / (1 + square))), float((middle + reach) / (1 + square))
    values = [
        _RatioSums({"": ratio}).values(weights_NR)[""]
        for weights_NR in resample_weights(len(ratio.numerator_N), 1000, seed=0)
    ]
    low, high = np.percentile(np.concatenate(values), [2.5, 97.5])
    return float(low), float(high)


class _ResampledLabels:
    """The label metrics on resamples: only labels that are gold or predicted anywhere, some resamples at a time."""

    def __init__(self, outcome: Outcome, groups_GL: Mapping[str, NDArray[np.bool_]]):
        masks_GL = np.array(list(groups_GL.values()), np.float32)
        self._prefixes, self._labels_G = tuple(groups_GL), masks_GL.sum(axis=1, dtype=np.float64)
        used = np.union1d(outcome.predicted.indices, outcome.gold.indices)
        self._masks_GL = masks_GL[:, used]
        # false and missed rather than predicted and gold: fewer entries, and the sums follow
        false, missed = (without(matrix, outcome.right) for matrix in (outcome.predicted, outcome.gold))
        self._by_label = [sparse.csr_array(matrix.T)[used] for matrix in (outcome.right, false, missed)]
        self._support_L1 = np.bincount(outcome.gold.indices, minlength=masks_GL.shape[1])[used, None].astype(np.float32)
        self._step = max(1, _CHUNK_COUNTS // max(len(used), 1))

    def values(self, weights_NR: NDArray[np.float32]) -> Iterator[tuple[str, NDArray[np.floating]]]:
        """Name and values of each metric, on some of the resamples after the other."""
        for start in range(0, weights_NR.shape[1], self._step):
            some_NR = np.ascontiguousarray(weights_NR[:, start : start + self._step])
            right_LR, false_LR, missed_LR = (matrix @ some_NR for matrix in self._by_label)
            sums = LabelSums(
                right_LR,
                right_LR + false_LR,
                right_LR + missed_LR,
                self._masks_GL,
                labels_G=self._labels_G,
                support_L1=self._support_L1,
            )
            for name, values_GR in label_scores(sums).items():
                yield from ((prefix + name, values_GR[g]) for g, prefix in enumerate(self._prefixes))


class _RatioSums:
    """The ratios stacked for one product per chunk, equal denominators once."""

    def __init__(self, ratios: Mapping[str, Ratio]):
        arrays: dict[int, NDArray[np.float32]] = {}
        for ratio in ratios.values():
            arrays |= {id(ratio.numerator_N): ratio.numerator_N, id(ratio.denominator_N): ratio.denominator_N}
        place = {key: m for m, key in enumerate(arrays)}
        self._names = {n: (place[id(r.numerator_N)], place[id(r.denominator_N)]) for n, r in ratios.items()}
        self._rows_MN = np.array(list(arrays.values()), np.float32)

    def values(self, weights_NR: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
        """Compute each ratio on each resample; 0 if its denominator is 0."""
        if not self._names:
            return {}
        sums_MR = (self._rows_MN @ weights_NR).astype(np.float64)
        return {
            name: np.divide(sums_MR[top], sums_MR[low], out=np.zeros(sums_MR.shape[1]), where=sums_MR[low] > 0)
            for name, (top, low) in self._names.items()
        }
