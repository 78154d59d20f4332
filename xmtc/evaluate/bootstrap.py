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

from collections import defaultdict
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
        raise ValueError(
            "replicates of different documents, seeds or numbers of resamples do not pair"
        )
    change_R = a.values[name] - b.values[name]
    low, high = np.percentile(change_R, [2.5, 97.5])
    smaller_side = min(np.mean(change_R <= 0), np.mean(change_R >= 0))
    p_value = np.clip(2 * smaller_side, 1 / len(change_R), 1)
    return Difference(float(low), float(high), float(p_value))


def resample_weights(
    documents: int, resamples: int, seed: int
) -> Iterator[NDArray[np.float32]]:
    """Draw an exponential weight for each document in each resample, whose weights have the mean 1.

    Yields:
        float32 (N, R) chunks; their R add up to `resamples`.
    """
    rng = np.random.default_rng(seed)
    chunk = max(1, min(resamples, _CHUNK_WEIGHTS // max(documents, 1)))
    for start in range(0, resamples, chunk):
        weights_NR = rng.standard_exponential(
            (documents, min(chunk, resamples - start)), dtype=np.float32
        )
        yield weights_NR / weights_NR.mean(axis=0)


def bootstrap(
    ratios: Mapping[str, Ratio],
    outcome: Outcome,
    groups_GL: Mapping[str, NDArray[np.bool_]],
    resamples: int,
    seed: int,
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
    documents, _ = shape_of(outcome.gold)
    ratio_sums = _RatioSums(ratios)
    resampled_labels = _ResampledLabels(outcome, groups_GL)
    chunks: dict[str, list[NDArray[np.floating]]] = defaultdict(list)
    for weights_NR in resample_weights(documents, resamples, seed):
        for name, values_R in ratio_sums.values(weights_NR).items():
            chunks[name].append(values_R)
        for name, values_R in resampled_labels.values(weights_NR):
            chunks[name].append(values_R)
    return {name: np.concatenate(values) for name, values in chunks.items()}


def ratio_interval(ratio: Ratio) -> tuple[float, float]:
    """Compute the 95 % interval of a ratio of sums over documents.

    Where all documents have the same ratio, every resample has it too, and the interval is Wilson's (1927). Without any
    document it is 0 to 1.
    """
    used_N = ratio.denominator_N > 0
    if not used_N.any():
        return 0.0, 1.0
    ratios_of_documents = ratio.numerator_N[used_N] / ratio.denominator_N[used_N]
    if np.ptp(ratios_of_documents) == 0:
        return _wilson_interval(ratio.value, int(np.count_nonzero(used_N)))
    sums = _RatioSums({"ratio": ratio})
    chunks = []
    for weights_NR in resample_weights(len(ratio.numerator_N), 1000, seed=0):
        chunks.append(sums.values(weights_NR)["ratio"])
    low, high = np.percentile(np.concatenate(chunks), [2.5, 97.5])
    return float(low), float(high)


def _wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Compute the 95 % score interval of a share of `count` trials (Wilson 1927)."""
    square = norm.ppf(0.975) ** 2 / count
    middle = share + square / 2
    reach = (square * share * (1 - share) + square**2 / 4) ** 0.5
    low = (middle - reach) / (1 + square)
    high = (middle + reach) / (1 + square)
    return max(0.0, float(low)), float(high)


class _ResampledLabels:
    """The label metrics on resamples: only labels that are gold or predicted anywhere, some resamples at a time."""

    def __init__(self, outcome: Outcome, groups_GL: Mapping[str, NDArray[np.bool_]]):
        masks_GL = np.array(list(groups_GL.values()), np.float32)
        label_count = masks_GL.shape[1]
        used_labels = np.union1d(outcome.predicted.indices, outcome.gold.indices)
        self._prefixes = tuple(groups_GL)
        self._labels_G = masks_GL.sum(axis=1, dtype=np.float64)
        self._masks_GL = masks_GL[:, used_labels]
        # False and missed rather than predicted and gold: they have fewer entries, and the sums follow from them.
        false = without(outcome.predicted, outcome.right)
        missed = without(outcome.gold, outcome.right)
        self._right_LN = sparse.csr_array(outcome.right.T)[used_labels]
        self._false_LN = sparse.csr_array(false.T)[used_labels]
        self._missed_LN = sparse.csr_array(missed.T)[used_labels]
        gold_L = np.bincount(outcome.gold.indices, minlength=label_count)
        self._support_L1 = gold_L[used_labels, None].astype(np.float32)
        self._step = max(1, _CHUNK_COUNTS // max(len(used_labels), 1))

    def values(
        self, weights_NR: NDArray[np.float32]
    ) -> Iterator[tuple[str, NDArray[np.floating]]]:
        """Yield name and values of each metric, for some of the resamples after the other."""
        for start in range(0, weights_NR.shape[1], self._step):
            chunk_NR = np.ascontiguousarray(weights_NR[:, start : start + self._step])
            right_LR = self._right_LN @ chunk_NR
            predicted_LR = right_LR + self._false_LN @ chunk_NR
            gold_LR = right_LR + self._missed_LN @ chunk_NR
            sums = LabelSums(
                right_LR,
                predicted_LR,
                gold_LR,
                self._masks_GL,
                labels_G=self._labels_G,
                support_L1=self._support_L1,
            )
            for name, values_GR in label_scores(sums).items():
                for group, prefix in enumerate(self._prefixes):
                    yield prefix + name, values_GR[group]


class _RatioSums:
    """The ratios stacked for one product per chunk, equal denominators once."""

    def __init__(self, ratios: Mapping[str, Ratio]):
        rows: list[NDArray[np.float32]] = []
        row_of_array: dict[int, int] = {}
        self._rows_of: dict[str, tuple[int, int]] = {}
        for name, ratio in ratios.items():
            for array_N in (ratio.numerator_N, ratio.denominator_N):
                if id(array_N) not in row_of_array:
                    row_of_array[id(array_N)] = len(rows)
                    rows.append(array_N)
            numerator = row_of_array[id(ratio.numerator_N)]
            denominator = row_of_array[id(ratio.denominator_N)]
            self._rows_of[name] = (numerator, denominator)
        self._rows_MN = np.array(rows, np.float32)

    def values(self, weights_NR: NDArray[np.float32]) -> dict[str, NDArray[np.float64]]:
        """Compute each ratio on each resample; 0 if its denominator is 0."""
        if not self._rows_of:
            return {}
        sums_MR = (self._rows_MN @ weights_NR).astype(np.float64)
        values = {}
        for name, (numerator, denominator) in self._rows_of.items():
            quotients_R = np.zeros(sums_MR.shape[1])
            whole_R = sums_MR[denominator]
            np.divide(sums_MR[numerator], whole_R, out=quotients_R, where=whole_R > 0)
            values[name] = quotients_R
        return values
