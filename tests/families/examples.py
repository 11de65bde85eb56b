"""One row for each example of a family: parameters, data, scipy's density, and where its mass lies.

A new family adds its examples here; `test_family_contract.py` runs all of its tests on each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from mixle_mpi import Bernoulli, Categorical, Exponential, Gaussian, MultivariateGaussian, Poisson
from mixle_mpi.contract.family import Family


@dataclass(frozen=True)
class Example:
    """`kind(**options, **parameters)`; `draw(rng, n)` rows near the parameters; `log_density(x)` by scipy.

    `mass` are (points, weights) of a quadrature or of a sum over the support; `moments` are functions of
    rows with their exact mean and variance under the parameters.
    """

    name: str
    kind: type[Family]
    parameters: dict[str, Any]
    draw: Callable[[np.random.Generator, int], Any]
    log_density: Callable[[Any], np.ndarray]
    mass: Callable[[], tuple[Any, np.ndarray]]
    moments: list[tuple[Callable[[Any], np.ndarray], float, float]]
    options: dict[str, Any] = field(default_factory=dict)
    tolerance: tuple[float, float] = (0.0, 1e-11)  # relative, absolute: members in natural form

    def model(self, **more) -> Family:
        return self.kind(**self.parameters, **self.options, **more)

    def estimator(self) -> Family:
        return self.kind(**self.options)


def interval_rule(low: float, high: float, pieces: int = 200):
    """Gauss-Legendre points and weights, 10 in each of `pieces` equal parts."""
    x, w = np.polynomial.legendre.leggauss(10)
    edges = np.linspace(low, high, pieces + 1)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (x + 1)).ravel(), (half * w).ravel()


def line(mean, sd, reach=12.0):
    """Equally spaced points around a mean, exact in float64: the step is a power of two near sd / 16."""
    step = 2.0 ** np.round(np.log2(sd / 16))
    k = int(np.ceil(reach * sd / step))
    return np.round(mean / step) * step + step * np.arange(-k, k + 1), step


def line_rule(mean, sd):
    """Trapezoidal points and weights: exponentially accurate for a smooth density that dies off."""
    points, step = line(mean, sd)
    return points, np.full(len(points), step)


def square_rule(mean, covariance):
    """The same in two dimensions, points (k, 2); along the axes of the covariance where the mean is 0."""
    factor = np.linalg.cholesky(covariance) if not mean.any() else np.eye(2)
    (x, dx), (y, dy) = (line(m, s, 8.0) for m, s in zip(mean, np.sqrt(np.diag(covariance))))
    points = np.stack([g.ravel() for g in np.meshgrid(x, y, indexing="ij")], axis=1)
    return points @ factor.T, np.full(len(points), dx * dy * np.linalg.det(factor))


RESIDUAL = (1e-12, 0.0)  # also for tables: no cancellation, so a relative error


def gaussian(name, mean, variance, tolerance=(0.0, 1e-11)):
    sd = np.sqrt(variance)
    return Example(
        name,
        Gaussian,
        {"mean": mean, "variance": variance},
        lambda rng, n: mean + sd * rng.standard_normal(n),
        lambda x: stats.norm.logpdf(np.asarray(x) - mean, scale=sd),
        lambda: line_rule(mean, sd),
        [(lambda x: x - mean, 0.0, variance), (lambda x: (x - mean) ** 2, variance, 2 * variance**2)],
        tolerance=tolerance,
    )


def vector(name, mean, covariance, structure="full", tolerance=(0.0, 1e-11)):
    mean, covariance = np.array(mean, float), np.array(covariance, float)
    square = covariance if covariance.ndim == 2 else np.diag(covariance)
    factor = np.linalg.cholesky(square)
    options = {} if structure == "full" else {"structure": structure}
    return Example(
        name,
        MultivariateGaussian,
        {"mean": mean, "covariance": covariance},
        lambda rng, n: mean + rng.standard_normal((n, 2)) @ factor.T,
        lambda x: stats.multivariate_normal.logpdf(np.asarray(x) - mean, np.zeros(2), square),
        lambda: square_rule(mean, square),
        [
            (lambda x: x[:, 0] - mean[0], 0.0, square[0, 0]),
            (lambda x: x[:, 1] - mean[1], 0.0, square[1, 1]),
            (lambda x: (x - mean).prod(axis=1), square[0, 1], square[0, 0] * square[1, 1] + square[0, 1] ** 2),
        ],
        options,
        tolerance,
    )


def categorical(name, levels, p, options=None, tolerance=(0.0, 1e-11)):
    p = np.array(p)
    place = {(type(v), v): i for i, v in enumerate(levels)}

    def draw(rng, n):
        drawn = rng.choice(len(levels), size=n, p=p)
        drawn[: len(levels)] = np.arange(len(levels))[:n]  # every level is seen
        return [levels[i] for i in drawn]

    def log_density(x):
        codes = np.array([place[type(v), v] for v in x])
        return stats.multinomial.logpmf(np.eye(len(levels))[codes], 1, p)

    def share(level):
        return lambda x: np.array([type(v) is type(level) and v == level for v in x], float)

    return Example(
        name, Categorical, {"levels": levels, "probabilities": p}, draw, log_density,
        lambda: (list(levels), np.ones(len(levels))),
        [(share(v), q, q * (1 - q)) for v, q in zip(levels, p)], options or {}, tolerance,
    )  # fmt: skip


def bernoulli(p):
    return Example(
        f"bernoulli-{p}", Bernoulli, {"p": p}, lambda rng, n: (rng.random(n) < p).astype(float),
        lambda x: stats.bernoulli.logpmf(x, p), lambda: (np.array([0.0, 1.0]), np.ones(2)),
        [(lambda x: x, p, p * (1 - p))],
    )  # fmt: skip


def poisson(rate):
    high = int(rate + 30 * np.sqrt(rate) + 60)
    return Example(
        f"poisson-{rate}", Poisson, {"rate": rate}, lambda rng, n: rng.poisson(rate, n).astype(float),
        lambda x: stats.poisson.logpmf(x, rate), lambda: (np.arange(high, dtype=float), np.ones(high)),
        [(lambda x: x, rate, rate), (lambda x: (x - rate) ** 2, rate, rate * (1 + 2 * rate))],
    )  # fmt: skip


def exponential(rate):
    return Example(
        f"exponential-{rate}", Exponential, {"rate": rate}, lambda rng, n: rng.exponential(1 / rate, n),
        lambda x: stats.expon.logpdf(x, scale=1 / rate), lambda: interval_rule(0.0, 60 / rate),
        [(lambda x: x, 1 / rate, 1 / rate**2), (lambda x: x**2, 2 / rate**2, 20 / rate**4)],
    )  # fmt: skip


LETTERS = [chr(97 + i) for i in range(20)]
UNEVEN = (np.arange(20) + 1.0) / 210.0

EXAMPLES = [
    bernoulli(0.3),
    bernoulli(0.999),
    poisson(3.5),
    poisson(250.0),
    exponential(2.5),
    exponential(1e-6),
    gaussian("gaussian-near", 1.5, 4.0),
    gaussian("gaussian-1e6", 1e6, 1.0),
    gaussian("gaussian-1e8", -1e8, 1.0),
    gaussian("gaussian-small", 1e-7, 1e-20),
    categorical("categorical-letters", ["a", "b", "c"], [0.5, 0.2, 0.3]),
    categorical("categorical-mixed", [True, 1, "1"], [0.25, 0.5, 0.25]),
    categorical("categorical-table", LETTERS, UNEVEN, tolerance=RESIDUAL),
    categorical("categorical-pseudo", ["a", "b", "c"], [0.5, 0.2, 0.3], {"pseudo_count": 2.0}),
    vector("vector-full", [1.0, -2.0], [[2.0, 0.9], [0.9, 1.0]]),
    vector("vector-full-1e6", [1e6, -1e6], [[2.0, 0.9], [0.9, 1.0]]),
    vector("vector-full-1e8", [1e8, 3.0], [[2.0, 0.9], [0.9, 1.0]]),
    vector("vector-full-tight", [0.0, 0.0], [[1.0, 0.9999], [0.9999, 1.0]]),
    vector("vector-diagonal", [1.0, -2.0], [2.0, 0.5], "diagonal"),
    vector("vector-diagonal-1e6", [1e6, 1e6], [2.0, 0.5], "diagonal"),
    vector("vector-diagonal-1e8", [1e8, -1e8], [2.0, 0.5], "diagonal"),
]
