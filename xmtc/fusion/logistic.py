"""Logistic regression by Newton's method, with a ridge penalty towards given coefficients.

Suffixes: P pairs, X inputs; the last input is 1 and carries the intercept.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import expit

_STEPS = 50
_TOLERANCE = 1e-8


def fit_logistic(
    inputs_PX: NDArray[np.float64],
    right_P: NDArray[np.bool_],
    penalty: float,
    towards_X: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Find coefficients (X,) that minimise −log-likelihood + penalty/2 · Σ (σ_x · (β_x − t_x))².

    Args:
        inputs_PX: inputs; the last column is 1.
        right_P: outcomes.
        penalty: penalty in pseudo-observations of inputs of unit variance.
        towards_X: t; zeros by default, and then the intercept has no penalty.
    """
    spread_X = inputs_PX.std(axis=0)
    spread_X = np.where(spread_X > 1e-9, spread_X, 1.0)
    shrink_X = penalty * spread_X**2
    if towards_X is None:
        shrink_X[-1] = 1e-9
    centre_X = np.zeros(inputs_PX.shape[1]) if towards_X is None else towards_X
    beta_X, loss = centre_X.copy(), np.inf
    for _ in range(_STEPS):
        chance_P = expit(inputs_PX @ beta_X)
        gradient_X = inputs_PX.T @ (chance_P - right_P) + shrink_X * (beta_X - centre_X)
        weighted_PX = inputs_PX * (chance_P * (1 - chance_P))[:, None]
        hessian_XX = inputs_PX.T @ weighted_PX + np.diag(shrink_X + 1e-9)
        step_X = linalg.solve(hessian_XX, gradient_X, assume_a="pos")
        beta_X, loss = _along(inputs_PX, right_P, shrink_X, centre_X, beta_X, step_X, loss)
        if gradient_X @ step_X < _TOLERANCE * len(right_P):
            break
    return beta_X


def _along(
    inputs_PX: NDArray[np.float64],
    right_P: NDArray[np.bool_],
    shrink_X: NDArray[np.float64],
    towards_X: NDArray[np.float64],
    beta_X: NDArray[np.float64],
    step_X: NDArray[np.float64],
    loss: float,
) -> tuple[NDArray[np.float64], float]:
    """Take a Newton step, halved until the loss does not rise. Return the point and its loss."""
    for _ in range(30):
        trial_X = beta_X - step_X
        logits_P = inputs_PX @ trial_X
        found = float(np.logaddexp(0, logits_P).sum() - logits_P[right_P].sum())
        found += float((shrink_X * (trial_X - towards_X) ** 2).sum() / 2)
        if found <= loss:
            return trial_X, found
        step_X = step_X / 2
    return beta_X, loss
