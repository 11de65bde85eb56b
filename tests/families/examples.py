"""One row for each example of a family: parameters, data, scipy's density, and where its mass lies.

A new family adds its examples here; `test_family_contract.py` runs all of its tests on each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from scipy import special, stats

from mixle_mpi import (
    Bernoulli,
    Binomial,
    Categorical,
    Exponential,
    Gamma,
    Gaussian,
    GaussianProcess,
    Geometric,
    Laplace,
    LogNormal,
    MultivariateGaussian,
    Poisson,
    StudentT,
    Uniform,
)  # fmt: skip
from mixle_mpi.contract.family import Family
from mixle_mpi.families.gp_text import kernel_of


@dataclass(frozen=True)
class Example:
    """`kind(**options, **parameters)`; `draw(rng, n)` rows near the parameters; `log_density(x)` by scipy.

    `mass` are (points, weights) of a quadrature or of a sum over the support; `moments` are functions of
    rows with their exact mean and variance under the parameters. `expected(old, new, x)` is the expected log
    density (n,) of rows and latent variables, for a family whose M-step maximises that; `limits` are where a
    parameter is capped; `structure` what an estimator is given in place of the parameters; `slow` where EM needs more
    than 100 iterations from the default start.
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
    expected: Callable[[dict, dict, Any], np.ndarray] | None = None
    slow: bool = False
    limits: dict[str, tuple[float, float]] = field(default_factory=dict)
    structure: dict[str, Any] = field(default_factory=dict)

    def model(self, **more) -> Family:
        return self.kind(**self.parameters, **self.options, **more)

    def estimator(self) -> Family:
        return self.kind(**self.options, **self.structure)


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
    square = covariance if covariance.ndim == 2 else np.diag(covariance * np.ones(2))
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


def process(name, inputs, kernel, of_distance, mean, tolerance=(0.0, 1e-11)):
    """`of_distance` is the kernel at the distances of one-dimensional inputs, written from the formula."""
    n, kernel = len(inputs), kernel_of(kernel)
    covariance = of_distance(np.abs(np.subtract.outer(inputs, inputs)))
    factor = np.linalg.cholesky(covariance)

    def mass():  # along the axes of the covariance, where everything is smooth on the scale of half a deviation
        axis = np.arange(-8.0, 8.25, 0.5)
        z = np.stack([g.ravel() for g in np.meshgrid(*[axis] * n, indexing="ij")], axis=1)
        return mean + z @ factor.T, np.full(len(z), 0.5**n * np.linalg.det(factor))

    return Example(
        name,
        GaussianProcess,
        {"kernel": kernel.with_values(iter([f.value or 1.0 for f in kernel.fields()])), "mean": mean},
        lambda rng, rows: mean + rng.standard_normal((rows, n)) @ factor.T,
        lambda x: stats.multivariate_normal.logpdf(np.asarray(x) - mean, np.zeros(n), covariance),
        mass,
        [
            (lambda x: x[:, 0] - mean, 0.0, covariance[0, 0]),
            (lambda x: (x[:, 0] - mean) * (x[:, 1] - mean), covariance[0, 1],
             covariance[0, 0] * covariance[1, 1] + covariance[0, 1] ** 2),
        ],
        {"inputs": inputs},
        tolerance,
        structure={"kernel": kernel.with_values(iter([None] * len(kernel.fields())))},
    )  # fmt: skip


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


def geometric(p):
    high = int(40 / p) + 60
    return Example(
        f"geometric-{p}", Geometric, {"p": p}, lambda rng, n: rng.geometric(p, n).astype(float),
        lambda x: stats.geom.logpmf(x, p), lambda: (np.arange(1.0, high), np.ones(high - 1)),
        [(lambda x: x, 1 / p, (1 - p) / p**2), (lambda x: x == 1, p, p * (1 - p))],
    )  # fmt: skip


def binomial(name, trials, p, given=True):
    """The trials are an option, or absent and then the largest value in the data."""
    return Example(
        name, Binomial, {"p": p} if given else {"trials": trials, "p": p},
        lambda rng, n: rng.binomial(trials, p, n).astype(float),
        lambda x: stats.binom.logpmf(x, trials, p), lambda: (np.arange(trials + 1.0), np.ones(trials + 1)),
        [(lambda x: x, trials * p, trials * p * (1 - p)), (lambda x: x == trials, *share(p**trials))],
        {"trials": trials} if given else {},
    )  # fmt: skip


def log_gamma(a: Decimal) -> Decimal:
    """By Stirling's series; 1e-25 for a >= 1e4."""
    series = 1 / (12 * a) - 1 / (360 * a**3) + 1 / (1260 * a**5)
    return (a - Decimal("0.5")) * a.ln() - a + (2 * PI).ln() / 2 + series


PI = Decimal("3.14159265358979323846264338327950288419716939937510")


def exact_gamma(x, shape, rate):
    """With 40 digits: scipy's density is a difference of numbers near shape * log(shape)."""
    with localcontext() as context:
        context.prec = 40
        k, r = Decimal(shape), Decimal(rate)
        constant = k * r.ln() - log_gamma(k)
        return np.array([float(constant + (k - 1) * (v := Decimal(float(u))).ln() - r * v) for u in x])


def exact_student(x, df, loc, scale):
    """With 40 digits, as for `exact_gamma`."""
    with localcontext() as context:
        context.prec = 40
        df, loc, scale = Decimal(df), Decimal(loc), Decimal(scale)
        constant = log_gamma((df + 1) / 2) - log_gamma(df / 2) - (PI * df).ln() / 2 - scale.ln()
        z = [(Decimal(float(u)) - loc) / scale for u in x]
        return np.array([float(constant - (df + 1) / 2 * (1 + v * v / df).ln()) for v in z])


def gamma(shape, mean=1.0, exact=False):
    rate = shape / mean
    scaled = {"a": shape, "scale": 1 / rate}
    sd = mean / np.sqrt(shape)

    def mass():
        if shape > 1e3:
            return line_rule(mean, sd)
        # in log x, where it is smooth; what lies below the range is one point of the right weight
        low = max(-640.0, -40.0 / shape)
        t, weights = interval_rule(low, np.log((shape + 60) / rate), 400)
        least = np.exp(low)
        below = stats.gamma.cdf(least, **scaled) / stats.gamma.pdf(least, **scaled)
        return np.r_[least, np.exp(t)], np.r_[below, weights * np.exp(t)]

    return Example(
        f"gamma-{shape}", Gamma, {"shape": shape, "rate": rate},
        lambda rng, n: np.maximum(rng.gamma(shape, 1 / rate, n), 1e-300),
        lambda x: exact_gamma(x, shape, rate) if exact else stats.gamma.logpdf(x, **scaled), mass,
        [(lambda x: x, mean, sd**2), (lambda x: x < mean, *share(stats.gamma.cdf(mean, **scaled)))],
    )  # fmt: skip


def log_normal(name, mean, variance):
    sd = np.sqrt(variance)

    def mass():
        t, weights = line_rule(mean, sd)
        return np.exp(t), weights * np.exp(t)

    return Example(
        name, LogNormal, {"mean": mean, "variance": variance},
        lambda rng, n: np.exp(mean + sd * rng.standard_normal(n)),
        lambda x: stats.norm.logpdf(np.log(x) - mean, scale=sd) - np.log(x), mass,
        [(lambda x: np.log(x) - mean, 0.0, variance), (lambda x: (np.log(x) - mean) ** 2, variance, 2 * variance**2)],
    )  # fmt: skip


def share(p):
    """Mean and variance of an event of probability p."""
    return p, p * (1 - p)


def laplace(name, loc, scale):
    return Example(
        name, Laplace, {"loc": loc, "scale": scale}, lambda rng, n: rng.laplace(loc, scale, n),
        lambda x: stats.laplace.logpdf(np.asarray(x) - loc, scale=scale),
        lambda: tuple(np.concatenate(parts) for parts in zip(interval_rule(loc - 40 * scale, loc),
                                                             interval_rule(loc, loc + 40 * scale))),
        [(lambda x: x - loc, 0.0, 2 * scale**2), (lambda x: np.abs(x - loc), scale, scale**2)],
        tolerance=RESIDUAL,
    )  # fmt: skip


def student(name, df, loc, scale, exact=False):
    def mass():
        t = np.arange(-64.0, 64.0, 2.0**-6)
        return loc + scale * np.sinh(t), scale * np.cosh(t) * 2.0**-6

    def expected(old, new, x):
        z2 = ((x - old["loc"]) / old["scale"]) ** 2
        u = (old["df"] + 1) / (old["df"] + z2)
        log_u = special.digamma((old["df"] + 1) / 2) - np.log((old["df"] + z2) / 2)
        half, z2 = new["df"] / 2, ((x - new["loc"]) / new["scale"]) ** 2
        return (0.5 * (log_u - u * z2) - np.log(new["scale"])
                + half * np.log(half) - special.gammaln(half) + (half - 1) * log_u - half * u)  # fmt: skip

    return Example(
        name, StudentT, {"df": df, "loc": loc, "scale": scale}, lambda rng, n: loc + scale * rng.standard_t(df, n),
        lambda x: exact_student(x, df, loc, scale) if exact else stats.t.logpdf(np.asarray(x) - loc, df, scale=scale),
        mass,
        [(lambda x: x < loc, 0.5, 0.25), (lambda x: np.abs(x - loc) < scale, *share(2 * stats.t.cdf(1, df) - 1)),
         (lambda x: x - loc < 3 * scale, *share(stats.t.cdf(3, df)))],
        expected=expected, slow=df > 100, limits={"df": (0.1, 1e6)},
    )  # fmt: skip


def uniform(name, low, high):
    middle, width = (low + high) / 2, high - low
    return Example(
        name, Uniform, {"low": low, "high": high}, lambda rng, n: rng.uniform(low, high, n),
        lambda x: stats.uniform.logpdf(x, low, width), lambda: interval_rule(low, high),
        [(lambda x: x - middle, 0.0, width**2 / 12), (lambda x: x < low + width / 4, *share(0.25))],
        tolerance=RESIDUAL,
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
    vector("vector-spherical", [1.0, -2.0], 1.5, "spherical"),
    vector("vector-spherical-1e6", [1e6, -3.0], 1.5, "spherical"),
    vector("vector-tied", [1.0, -2.0], [[2.0, 0.9], [0.9, 1.0]], "tied"),
    vector("vector-tied-1e6", [1e6, -1e6], [[2.0, 0.9], [0.9, 1.0]], "tied"),
    process("process-rbf", [0.0, 0.7], "rbf(variance=2, length_scale=0.5)", lambda r: 2 * np.exp(-2 * r**2), 1.5),
    process("process-noise", [0.0, 0.5, 1.5], "rbf(variance=2) + white(variance=0.3)",
            lambda r: 2 * np.exp(-(r**2) / 2) + 0.3 * (r == 0), -1.0),
    process("process-noise-1e6", [0.0, 0.5, 1.5], "rbf(variance=2) + white(variance=0.3)",
            lambda r: 2 * np.exp(-(r**2) / 2) + 0.3 * (r == 0), 1e6),
    process("process-matern-product", [0.0, 0.4, 1.0], "matern32(variance=0.5, length_scale=2) * matern12(variance=3)",
            lambda r: 1.5 * (1 + 3**0.5 * r / 2) * np.exp(-(3**0.5) * r / 2 - r), 0.5),
    process("process-small", [1e3, 1.4e3, 2e3], "matern52(variance=1e-12, length_scale=500) + white(variance=1e-13)",
            lambda r: 1e-12 * (1 + 5**0.5 * r / 500 + 5 * r**2 / 75e4) * np.exp(-(5**0.5) * r / 500) + 1e-13 * (r == 0),
            -1e-6),
    geometric(0.3),
    geometric(0.999),
    geometric(1e-4),
    binomial("binomial-10", 10, 0.3),
    binomial("binomial-1000", 1000, 0.999),
    binomial("binomial-trials-absent", 12, 0.8, given=False),
    gamma(2.5, 3.0),
    gamma(1.0),
    gamma(1e-2),
    gamma(1e5, 7.0, exact=True),
    log_normal("log-normal", 1.5, 0.5),
    log_normal("log-normal-wide", -3.0, 400.0),
    log_normal("log-normal-tight", 20.0, 1e-6),
    laplace("laplace-near", 0.5, 2.0),
    laplace("laplace-1e6", 1e6, 1.0),
    laplace("laplace-small", 1e-7, 1e-10),
    student("student-half", 0.5, 1.0, 2.0),
    student("student-3", 3.0, -1.0, 0.5),
    student("student-3-1e6", 3.0, 1e6, 0.5),
    student("student-1e5", 1e5, 2.0, 3.0, exact=True),
    uniform("uniform", -2.0, 5.0),
    uniform("uniform-far", 1e8, 1e8 + 1),
]
