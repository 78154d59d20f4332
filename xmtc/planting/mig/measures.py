"""How much a token says about a label: the signals that rank tokens, all computed from the same four counts.

Suffix: P (label, token) pairs. With n11 the documents that hold both, n_t and n_l those that hold token or label, and
N all training documents, the other cells are n10 = n_t − n11, n01 = n_l − n11, n00 = N − n_t − n_l + n11.
"""

from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from typing_extensions import override

from xmtc.planting.mig.counts import PairCounts


class Signal:
    """What a signal says about itself, and the scores that it gives; built by `SignalSettings.build`."""

    scores_absence: ClassVar[bool] = False
    """Whether a pair that never occurs together (n11 = 0) has a score."""
    counts_occurrences: ClassVar[bool] = False
    """Whether the signal needs to know how often a token occurs in a document."""

    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        """Score of every pair, float64 (P,)."""
        raise NotImplementedError

    def permute(self, labels_NL: sparse.csr_array) -> sparse.csr_array:
        """Return the labels to count: unchanged, unless the signal is a control of a study."""
        return labels_NL


class MutualInformation(Signal):
    """Mutual information gain, see `MutualInformationConfig`."""

    scores_absence = True

    @override
    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        return mutual_information(pairs)


class PointwiseInformation(Signal):
    """Pointwise mutual information, see `PointwiseConfig`."""

    @override
    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        expected_P = (
            pairs.token_documents_P.astype(np.float64) * pairs.label_documents_P
        )
        return np.log(pairs.together_P * float(pairs.documents) / expected_P)


class ChiSquared(Signal):
    """Pearson's chi-squared, see `ChiSquaredConfig`."""

    scores_absence = True

    @override
    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        n = float(pairs.documents)
        token_P = pairs.token_documents_P
        label_P = pairs.label_documents_P
        determinant_P = pairs.together_P * n - token_P * label_P.astype(
            np.float64
        )  # = n11·n00 − n10·n01
        margins_P = token_P * (n - token_P) * label_P * (n - label_P)
        squares_P = n * determinant_P**2
        # 0 for a zero denominator, because a token or label that is everywhere or nowhere has no information
        return np.divide(
            squares_P, margins_P, out=np.zeros_like(squares_P), where=margins_P > 0
        )


class TfIdf(Signal):
    """Mean TF-IDF weight of the token in a document of the label, see `TfIdfConfig`."""

    counts_occurrences = True

    @override
    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        if pairs.occurrences_P is None:
            raise ValueError("TF-IDF needs the occurrences")
        mean_frequency_P = pairs.occurrences_P / pairs.label_documents_P
        return mean_frequency_P * np.log(pairs.documents / pairs.token_documents_P)


def mutual_information(pairs: PairCounts) -> NDArray[np.float64]:
    """Compute I(t;l) in nats, float64 (P,), clipped at 0.

    With f(n) = n·ln n, the sum over the cells is (Σ f(n_ab) − Σ f(n_a) − Σ f(n_b) + f(N)) / N: nine look-ups and no
    logarithm. The absolute error is about ln(N)·2⁻⁵², far below any difference that matters.
    """
    f = _n_log_n(pairs.documents)
    n = pairs.documents
    both_P = pairs.together_P
    token_P = pairs.token_documents_P
    label_P = pairs.label_documents_P
    neither_P = n - token_P - label_P + both_P
    cells_P = f[both_P] + f[token_P - both_P] + f[label_P - both_P] + f[neither_P]
    margins_P = f[token_P] + f[n - token_P] + f[label_P] + f[n - label_P]
    return np.maximum((cells_P - margins_P + f[n]) / max(n, 1), 0.0)


@lru_cache(maxsize=1)
def _n_log_n(documents: int) -> NDArray[np.float64]:
    """Compute n·ln n for n = 0 … documents, with 0·ln 0 = 0."""
    n = np.arange(documents + 1, dtype=np.float64)
    table = n * np.log(np.maximum(n, 1.0))
    table.flags.writeable = False  # shared by all callers
    return table
