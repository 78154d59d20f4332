"""How much a token says about a label: the signals that rank tokens, all computed from the same four counts.

Suffix: P (label, token) pairs. With n11 the documents that hold both, n_t and n_l those that hold token or label, and
N all training documents, the other cells are n10 = n_t − n11, n01 = n_l − n11, n00 = N − n_t − n_l + n11.
"""

from functools import lru_cache
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field
from scipy import sparse

from xmtc.config.base import config
from xmtc.mig.counts import PairCounts, row_count


class Signal:
    """What every signal has besides its settings."""

    scores_absence: ClassVar[bool] = False
    """Whether a pair that never occurs together (n11 = 0) has a score."""
    counts_occurrences: ClassVar[bool] = False
    """Whether the signal needs to know how often a token occurs in a document."""

    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        """Score of every pair, float64 (P,)."""
        raise NotImplementedError

    def permute(self, labels_NL: sparse.csr_array) -> sparse.csr_array:
        """The labels to count: as they are, unless the signal is a control."""
        return labels_NL


@config
class MutualInformationConfig(Signal):
    """Mutual information gain, I(t;l) = Σ (n_ab/N)·ln(n_ab·N / (n_a·n_b)) over the four cells, in nats."""

    kind: Literal["mig"] = "mig"
    """Mutual information gain."""
    normalise: Literal["none", "jaccard", "label_entropy"] = "none"
    """`jaccard`: I/(H_t + H_l − I). `label_entropy`: I/H_l, the share of the label's entropy that the token explains
    (the same order of tokens as `none`, but scores that can be compared between labels)."""
    scores_absence: ClassVar[bool] = True

    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        """Score of every pair, float64 (P,)."""
        information_P = mutual_information(pairs)
        if self.normalise == "none":
            return information_P
        label_entropy_P = entropy(pairs.label_documents_P, pairs.documents)
        if self.normalise == "label_entropy":
            return _ratio(information_P, label_entropy_P)
        joint_P = entropy(pairs.token_documents_P, pairs.documents) + label_entropy_P - information_P
        return _ratio(information_P, joint_P)


@config
class PointwiseConfig(Signal):
    """Pointwise mutual information, ln(n11·N / (n_t·n_l)): favours rare tokens."""

    kind: Literal["pmi"] = "pmi"
    """Pointwise mutual information."""

    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        """Score of every pair, float64 (P,)."""
        expected_P = pairs.token_documents_P.astype(np.float64) * pairs.label_documents_P
        return np.log(pairs.together_P * float(pairs.documents) / expected_P)


@config
class ChiSquaredConfig(Signal):
    """Pearson's chi-squared of the 2×2 table, N·(n11·n00 − n10·n01)² / (n_t·(N−n_t)·n_l·(N−n_l))."""

    kind: Literal["chi2"] = "chi2"
    """Chi-squared, without continuity correction."""
    scores_absence: ClassVar[bool] = True

    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        """Score of every pair, float64 (P,)."""
        n, token_P, label_P = float(pairs.documents), pairs.token_documents_P, pairs.label_documents_P
        determinant_P = pairs.together_P * n - token_P * label_P.astype(np.float64)  # = n11·n00 − n10·n01
        margins_P = token_P * (n - token_P) * label_P * (n - label_P)
        return _ratio(n * determinant_P**2, margins_P)


@config
class TermFrequencyConfig(Signal):
    """Mean number of occurrences of the token in a document of the label."""

    kind: Literal["term_frequency"] = "term_frequency"
    """Term frequency. `mig.signed` applies to it too; without it the most frequent words lead every label."""
    counts_occurrences: ClassVar[bool] = True

    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        """Score of every pair, float64 (P,)."""
        if pairs.occurrences_P is None:
            raise ValueError("term frequency needs the occurrences")
        return pairs.occurrences_P / pairs.label_documents_P


@config
class ShuffledConfig(Signal):
    """The control that must not help: mutual information gain after the documents' label sets were permuted."""

    kind: Literal["shuffled"] = "shuffled"
    """Mutual information gain with shuffled labels."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the permutation. Label frequencies and label co-occurrence stay what they are."""
    scores_absence: ClassVar[bool] = True

    def score(self, pairs: PairCounts) -> NDArray[np.float64]:
        """Score of every pair, float64 (P,)."""
        return mutual_information(pairs)

    def permute(self, labels_NL: sparse.csr_array) -> sparse.csr_array:
        """Hand every document the label set of another one."""
        return labels_NL[np.random.default_rng(self.seed).permutation(row_count(labels_NL))]


SignalConfig = Annotated[
    MutualInformationConfig | PointwiseConfig | ChiSquaredConfig | TermFrequencyConfig | ShuffledConfig,
    Discriminator("kind"),
]


def mutual_information(pairs: PairCounts) -> NDArray[np.float64]:
    """I(t;l) in nats, float64 (P,), clipped at 0.

    With f(n) = n·ln n, the sum over the cells is (Σ f(n_ab) − Σ f(n_a) − Σ f(n_b) + f(N)) / N: nine look-ups and no
    logarithm. The absolute error is about ln(N)·2⁻⁵², far below any difference that matters.
    """
    f = _n_log_n(pairs.documents)
    n, both_P, token_P, label_P = pairs.documents, pairs.together_P, pairs.token_documents_P, pairs.label_documents_P
    cells_P = f[both_P] + f[token_P - both_P] + f[label_P - both_P] + f[n - token_P - label_P + both_P]
    margins_P = f[token_P] + f[n - token_P] + f[label_P] + f[n - label_P]
    return np.maximum((cells_P - margins_P + f[n]) / max(n, 1), 0.0)


def entropy(count_P: NDArray[np.int64], documents: int) -> NDArray[np.float64]:
    """Entropy in nats of an event seen in `count_P` of the documents, float64 (P,)."""
    f = _n_log_n(documents)
    return np.maximum((f[documents] - f[count_P] - f[documents - count_P]) / max(documents, 1), 0.0)


@lru_cache(maxsize=1)
def _n_log_n(documents: int) -> NDArray[np.float64]:
    """n·ln n for n = 0 … documents, with 0·ln 0 = 0."""
    n = np.arange(documents + 1, dtype=np.float64)
    table = n * np.log(np.maximum(n, 1.0))
    table.flags.writeable = False  # shared by all callers
    return table


def _ratio(numerator_P: NDArray[np.float64], denominator_P: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ratio, 0 where the denominator is: a token or label that is everywhere or nowhere says nothing."""
    return np.divide(numerator_P, denominator_P, out=np.zeros_like(numerator_P), where=denominator_P > 0)
