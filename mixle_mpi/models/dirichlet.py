"""Dirichlet distributions whose rows are known by expected logarithms alone: the likeliest concentrations."""

from __future__ import annotations

import numpy as np

LEAST, MOST = 1e-8, 1e5  # concentrations outside of which the likelihood says next to nothing more
STEPS = 200
PRECISE = 1e-14  # relative change that ends the search
SURE = 1e-5  # relative step that is taken whatever rounding says of its gain: Newton's method has converged


def objective(alpha: np.ndarray, weight: float, logs: np.ndarray) -> float:
    """Expected log density of rows of weight `weight` whose expected logarithms add up to `logs` (k,)."""
    from scipy.special import gammaln

    return float(weight * (gammaln(alpha.sum()) - gammaln(alpha).sum()) + alpha @ logs)


def asymmetric(alpha: np.ndarray, weight: float, logs: np.ndarray) -> np.ndarray:
    """The concentrations (k,) that maximise `objective`, from `alpha`: Newton steps, halved where they do not gain.

    The Hessian is a diagonal and a constant, which is inverted in k operations.

    Source
    ------
    Minka (2000), Estimating a Dirichlet distribution.
    """
    from scipy.special import digamma, polygamma

    best = objective(alpha, weight, logs)
    for _ in range(STEPS):
        total = alpha.sum()
        gradient = weight * (digamma(total) - digamma(alpha)) + logs
        diagonal, constant = -weight * polygamma(1, alpha), weight * polygamma(1, total)
        common = (gradient / diagonal).sum() / (1.0 / constant + (1.0 / diagonal).sum())
        step = (gradient - common) / diagonal
        size, found = 1.0, None
        sure = bool((np.abs(step) < SURE * alpha).all())
        while size > PRECISE:
            new = alpha - size * step
            if (new > 0).all():
                new = np.clip(new, LEAST, MOST)
                value = objective(new, weight, logs)
                if sure or value >= best:
                    found = new, value
                    break
            size *= 0.5
        if found is None:
            break
        moved = (np.abs(found[0] - alpha) > PRECISE * alpha).any()
        alpha, best = found
        if not moved:
            break
    return alpha


def symmetric(alpha: np.ndarray, weight: float, logs: np.ndarray) -> np.ndarray:
    """As `asymmetric`, of concentrations (k,) that are all equal: Newton steps of their logarithm."""
    from scipy.special import digamma, polygamma

    k, a = len(alpha), float(alpha.mean())
    best = objective(np.full(k, a), weight, logs)
    for _ in range(STEPS):
        slope = a * (weight * k * (digamma(k * a) - digamma(a)) + logs.sum())
        curve = a * a * weight * k * (k * polygamma(1, k * a) - polygamma(1, a)) + slope
        step = slope / curve if curve < 0 else -np.sign(slope)
        size, found = 1.0, None
        while size > PRECISE:
            new = float(np.clip(a * np.exp(-size * np.clip(step, -5.0, 5.0)), LEAST, MOST))
            value = objective(np.full(k, new), weight, logs)
            if abs(step) < SURE or value >= best:
                found = new, value
                break
            size *= 0.5
        if found is None:
            break
        moved = abs(found[0] - a) > PRECISE * a
        a, best = found
        if not moved:
            break
    return np.full(k, a)
