"""The numeric M-step of a Gaussian process: the hyperparameters of largest expected log likelihood."""

from __future__ import annotations

import numpy as np

from mixle_mpi.families.gaussian import LOG_2PI
from mixle_mpi.families.gp_kernels import Kernel, Points

# A covariance whose Cholesky pivot is below this share of its largest variance is singular to rounding: outside of
# the search, which has no other way to bound how far its roundings are multiplied.
LEAST_PIVOT = 1e-14
TOLERANCE = 1e-13  # relative change of the objective at which the climb ends, and what rounding may take from it
MOST_CLIMBING = 200  # evaluations of the climb, which ends long before unless the maximum is far away
REFUSED = 10.0  # first steps: a step that is refused is so much worse than the best, and the line search turns back
NEAR = 1e-3  # slope in nats for each input below which the climb is left out
STEP = 1e-4  # of the logarithms in differences of gradients: rounding and third derivatives are then alike
FLAT = 1e-7  # share of the largest curvature below which differences cannot tell a direction from a flat one
ROUNDS, CHORDS = 2, 8  # curvatures that are worked out, and steps that are taken with each
SHARP = 1e-13  # of the logarithms: shorter steps are not taken
TRUSTED = 1.0  # of the logarithms: longer ones leave the place whose curvature is known
SETTLED = 1e-9  # of the logarithms: where the last step was as short, the maximum is found


Value = tuple[float, np.ndarray, float]  # of the objective, its gradient (p,), and the mean
Known = tuple[np.ndarray, Value]  # a place (p,) and the value there


class Expected:
    """Expected log likelihood of one member for a unit of weight, as a function of its log hyperparameters (p,).

    Parameters
    ----------
    shapes : how many values each hyperparameter has
    middle : (n,) weighted mean of the rows
    scatter : (n, n) weighted mean of the products of their deviations from `middle`
    """

    def __init__(self, kernel: Kernel, points: Points, shapes: list[int], middle: np.ndarray, scatter: np.ndarray):
        self.kernel, self.points, self.shapes = kernel, points, shapes
        self.middle, self.scatter = middle, scatter
        self.evaluations = 0

    def at(self, x: np.ndarray, least: float = LEAST_PIVOT) -> Value | None:
        """The value, its gradient, and the mean, which is the best one there; None where the covariance is not positive
        definite.

        The value is -(log det 2 pi K + tr(K^-1 C)) / 2 with C the moment about the mean, and its derivative by a log
        hyperparameter tr((K^-1 C K^-1 - K^-1) dK) / 2; the mean, of generalised least squares, adds nothing to that.

        Source
        ------
        Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, (5.9), and 2.7 for the mean.
        """
        self.evaluations += 1
        k, slopes = self.kernel.covariance(self.points, split(np.exp(x), self.shapes), True)
        factor = cholesky(k, least)
        if factor is None:
            return None
        half = np.linalg.inv(factor)
        precision = half.T @ half
        mean = self._mean(precision)
        away = self.middle - mean
        moment = self.scatter + np.outer(away, away)
        whitened = half @ moment @ half.T
        log_det = 2.0 * np.log(np.diag(factor)).sum()
        value = -0.5 * (len(k) * LOG_2PI + log_det + np.trace(whitened))
        pull = half.T @ whitened @ half - precision
        gradient = np.array([0.5 * np.vdot(pull, slope) for slope in slopes])
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return None
        return float(value), gradient, mean

    def _mean(self, precision: np.ndarray) -> float:
        share = precision.sum(axis=0)
        first = self.middle[0]  # differences keep their digits far from the origin
        return float(first + share @ (self.middle - first) / share.sum())


def split(values: np.ndarray, shapes: list[int]):
    """The values of each hyperparameter, out of all of them in a row."""
    return iter(np.split(values, np.cumsum(shapes)[:-1]))


def cholesky(k: np.ndarray, least: float = LEAST_PIVOT) -> np.ndarray | None:
    """The Cholesky factor; None where a pivot is not above its least share of the largest variance."""
    try:
        factor = np.linalg.cholesky(k)
    except np.linalg.LinAlgError:
        return None
    return factor if np.diag(factor).min() ** 2 > least * np.diag(k).max() else None


def maximum(
    expected: Expected, start: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, float] | None:
    """Log hyperparameters (p,) of largest expected log likelihood that a climb from `start` finds between `low` and
    `high`, and the mean; None where there is no value at `start`.

    The climb is L-BFGS-B. What it finds is right to the square root of rounding, and differs by that between runs
    whose statistics differ in the last bits; Newton's steps, on gradients that are right to rounding, end at one place.
    Directions that are all but flat are left alone. The place of a lower value than at `start` is never taken.
    """
    first = expected.at(start, 0.0)
    if first is None:
        return None
    slack = TOLERANCE * max(abs(first[0]), len(expected.middle))
    known, settled = (start, first), False
    if np.abs(inward(start, first[1], low, high)).max() < NEAR * len(expected.middle):
        known, settled = sharpened(expected, known, low, high, slack)
    if not settled:
        known, _ = sharpened(expected, climbed(expected, *known, low, high), low, high, slack)
    return known[0], known[1][2]


def climbed(expected: Expected, start: np.ndarray, first: Value, low: np.ndarray, high: np.ndarray) -> Known:
    """The best place that L-BFGS-B comes by, which is `start` at worst."""
    from scipy.optimize import minimize

    # the first step is the gradient itself: scaled like this it changes no hyperparameter by more than a factor of e
    unit = max(float(len(expected.middle)), np.abs(first[1]).max())
    best = start, first

    def downhill(x):
        nonlocal best
        found = expected.at(x)
        if found is None:
            return -best[1][0] / unit + REFUSED, np.zeros_like(x)
        if found[0] > best[1][0]:
            best = x.copy(), found
        return -found[0] / unit, -found[1] / unit

    minimize(downhill, start, jac=True, method="L-BFGS-B", bounds=list(zip(low, high)),
             options={"ftol": TOLERANCE, "gtol": TOLERANCE, "maxfun": MOST_CLIMBING})  # fmt: skip
    return best


def inward(x: np.ndarray, gradient: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The gradient, 0 where it points out of the box at its border."""
    out = ((x <= low) & (gradient < 0)) | ((x >= high) & (gradient > 0))
    return np.where(out, 0.0, gradient)


def sharpened(expected: Expected, known: Known, low: np.ndarray, high: np.ndarray, slack: float) -> tuple[Known, bool]:
    """Newton's steps from near a maximum, and whether the last one was as short as rounding makes it.

    The curvature is that of central differences of the gradient. A step must bring the gradient down, and the value
    by no more than `slack`.
    """
    (x, here), least, length = known, known[1][0] - slack, np.inf
    for _ in range(ROUNDS):
        free = np.flatnonzero(inward(x, here[1], low, high))
        newton = inverse_curvature(expected, x, free)
        if newton is None:
            break
        for _ in range(CHORDS):
            step = np.zeros_like(x)
            step[free] = newton @ here[1][free]
            length = np.abs(step).max()
            if not SHARP < length < TRUSTED:
                break
            to = np.clip(x + step, low, high)
            there = expected.at(to)
            if there is None or there[0] < least or not gained(newton, here[1][free], there[1][free]):
                break
            x, here = to, there
        if length <= SETTLED:
            break
    return (x, here), bool(length <= SETTLED)


def gained(newton: np.ndarray, before: np.ndarray, after: np.ndarray) -> bool:
    """Whether the next step is shorter."""
    return bool(np.abs(newton @ after).max() < np.abs(newton @ before).max())


def inverse_curvature(expected: Expected, x: np.ndarray, free: np.ndarray) -> np.ndarray | None:
    """What turns a gradient (f,) of the free coordinates into Newton's step; 0 along directions in which the objective
    is flat or turns up. None where there is no free coordinate or a difference cannot be taken."""
    if not len(free):
        return None
    curvature = np.empty((len(free), len(free)))
    for row, j in enumerate(free):
        move = np.zeros_like(x)
        move[j] = STEP
        ahead, behind = expected.at(x + move), expected.at(x - move)
        if ahead is None or behind is None:
            return None
        curvature[row] = (behind[1] - ahead[1])[free] / (2.0 * STEP)
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    steep = values > FLAT * np.abs(values).max()
    return (vectors[:, steep] / values[steep]) @ vectors[:, steep].T
