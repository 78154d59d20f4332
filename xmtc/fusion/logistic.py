"""Fusion by logistic regression with a ridge penalty, fitted by a trust-region Newton method.

Suffixes: N documents, K candidates, L labels, M labels after regrouping, P pairs, G bins, X inputs; the last input is 1
and carries the intercept.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import optimize
from scipy.special import expit
from typing_extensions import override

from xmtc.data.array_contract import Array, Arrays
from xmtc.data.bins import nonempty_bins
from xmtc.fusion.combination import Combination, Floats
from xmtc.fusion.config import CombinationKind
from xmtc.scorers.regrouping import Regrouping

_BINS = ("0-5", "6-10", "11-50", ">50")
"""Frequency bins of labels with separate coefficients."""
_MIN_RIGHT = 50
"""A bin with fewer right or fewer wrong pairs uses the common coefficients."""
_PENALTY = 20.0
"""Penalty of the common coefficients; the pairs of a document tell less than independent ones."""
_BIN_PENALTY = 30.0
"""Penalty of a bin's distance from the common coefficients, in pseudo-observations."""
_STEPS = 50
_TOLERANCE = 1e-9
"""Largest gradient at which the fit ends, for each pair."""


@dataclass(frozen=True)
class Logistic(Combination):
    """Logistic regression, with coefficients per frequency bin of the label.

    Attributes:
        coefficients_GX: float64.
        bin_L: int64, bin of each label.
    """

    coefficients_GX: Floats
    bin_L: NDArray[np.int64]

    kind: ClassVar[CombinationKind] = "linear"
    ARRAYS: ClassVar[Arrays] = {
        "coefficients_GX": Array("F64", "GX"),
        "bin_L": Array("I64", "L", least=0, below="G"),
    }

    @classmethod
    def fit(
        cls,
        inputs_PX: Floats,
        right_P: NDArray[np.bool_],
        label_P: NDArray[np.int32],
        counts_L: NDArray[np.int64],
    ) -> Self:
        """Fit coefficients for all labels, then for each bin with shrinkage towards them.

        Args:
            inputs_PX: inputs of pairs.
            right_P: whether the label is the document's.
            label_P: label of each pair.
            counts_L: number of training documents of each label.
        """
        common_X = fit_logistic(inputs_PX, right_P, _PENALTY)
        coefficients = [common_X]
        bin_L = np.zeros(len(counts_L), np.int64)
        for mask_L in nonempty_bins(_BINS, counts_L):
            inside_P = mask_L[label_P]
            right_inside_P = right_P[inside_P]
            right_count = right_inside_P.sum()
            wrong_count = len(right_inside_P) - right_count
            if min(right_count, wrong_count) >= _MIN_RIGHT:
                bin_L[mask_L] = len(coefficients)
                coefficients.append(
                    fit_logistic(
                        inputs_PX[inside_P], right_inside_P, _BIN_PENALTY, common_X
                    )
                )
        return cls(np.stack(coefficients), bin_L)

    @override
    def logits(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        return self.terms(inputs_XNK, label_ids_NK).sum(axis=0)

    @override
    def terms(self, inputs_XNK: Floats, label_ids_NK: NDArray[np.int32]) -> Floats:
        bin_NK = self.bin_L[label_ids_NK]
        terms = []
        for coefficients_G, input_NK in zip(
            self.coefficients_GX.T, inputs_XNK, strict=True
        ):
            terms.append(coefficients_G[bin_NK] * input_NK)
        return np.stack(terms)

    @override
    def extended(self, labels: int, like: int) -> Self:
        new_bins = np.full(labels, self.bin_L[like])
        return replace(self, bin_L=np.concatenate([self.bin_L, new_bins]))

    @override
    def regrouped(self, regrouping: Regrouping, counts_L: NDArray[np.int64]) -> Self:
        bin_M = self.bin_L[regrouping.kept_M]
        for label, members_K in regrouping.merged.items():
            most_frequent = members_K[np.argmax(counts_L[members_K])]
            bin_M[label] = self.bin_L[most_frequent]
        return replace(self, bin_L=bin_M)


def fit_logistic(
    inputs_PX: Floats,
    right_P: NDArray[np.bool_],
    penalty: float,
    towards_X: Floats | None = None,
) -> Floats:
    """Find coefficients (X,) that minimise −log-likelihood + penalty/2 · Σ (σ_x · (β_x − t_x))².

    Args:
        inputs_PX: inputs; the last column is 1.
        right_P: outcomes. If they are equal, the result is `towards_X`, or an intercept
            from half a pseudo-observation of each outcome.
        penalty: penalty in pseudo-observations of inputs of unit variance.
        towards_X: t; zeros by default, and then the intercept has no penalty.
    """
    input_count = inputs_PX.shape[1]
    right = right_P.sum()
    wrong = len(right_P) - right
    if right == 0 or wrong == 0:
        if towards_X is not None:
            return towards_X
        intercept = np.log((right + 0.5) / (wrong + 0.5))
        return np.append(np.zeros(input_count - 1), intercept)
    spread_X = inputs_PX.std(axis=0)
    spread_X = np.where(spread_X > 1e-9, spread_X, 1.0)
    shrink_X = penalty * spread_X**2
    if towards_X is None:
        shrink_X[-1] = 1e-9
    centre_X = np.zeros(input_count) if towards_X is None else towards_X

    def loss(beta_X: Floats) -> tuple[float, Floats]:
        logits_P = inputs_PX @ beta_X
        apart_X = beta_X - centre_X
        log_loss = np.logaddexp(0, logits_P).sum() - logits_P[right_P].sum()
        penalty_value = (shrink_X * apart_X**2).sum() / 2
        gradient_X = inputs_PX.T @ (expit(logits_P) - right_P) + shrink_X * apart_X
        return float(log_loss + penalty_value), gradient_X

    def hessian(beta_X: Floats) -> Floats:
        chance_P = expit(inputs_PX @ beta_X)
        variance_P1 = (chance_P * (1 - chance_P))[:, None]
        return inputs_PX.T @ (inputs_PX * variance_P1) + np.diag(shrink_X + 1e-9)

    options = {"gtol": _TOLERANCE * len(right_P), "maxiter": _STEPS}
    return optimize.minimize(
        loss, centre_X, jac=True, hess=hessian, method="trust-exact", options=options
    ).x
