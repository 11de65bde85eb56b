"""The gamma distribution."""

from __future__ import annotations

import warnings

import numpy as np

from mixle_mpi.contract.family import Family, Theta
from mixle_mpi.contract.fields import positive, total
from mixle_mpi.contract.work import Work

MOST_SHAPE = 1e6  # rows that are all equal would have an infinite shape
NEWTON_STEPS = 20


class Gamma(Family):
    """Gamma numbers: log p(x) = shape log(rate) - log Gamma(shape) + (shape - 1) log(x) - rate x,  x > 0.

    Its features are log(x / x0) and x / x0 - 1 about a reference x0 near the mean: at x0 both are 0,
    so that a concentrated gamma keeps its digits.

    Source
    ------
    Minka (2002), Estimating a Gamma distribution: the Newton step on 1 / shape.
    """

    params = {"shape": positive(), "rate": positive()}
    stats = {"weight": total(), "log_ratio": total(), "ratio": total()}

    def __init__(self, shape=None, rate=None, *, key: str | None = None, fixed: bool = False):
        super().__init__({"shape": shape, "rate": rate}, key=key, fixed=fixed)

    def support(self, x):
        return x[0] > 0

    def support_text(self):
        return "numbers > 0"

    def _reference(self) -> float:
        """The mean, rounded to 20 bits so that it is the same on every grid."""
        mean = self.encoding.mean[0]
        if not (np.isfinite(mean) and mean > 0):
            return 1.0
        mantissa, exponent = np.frexp(mean)
        return float(np.ldexp(np.round(mantissa * 2**20) / 2**20, exponent))

    def features(self, x, present, out):
        inside = x[0] > 0
        ratio = np.where(inside, x[0] / self._reference(), 1.0)
        np.log(ratio, out=out[0])
        np.subtract(ratio, 1.0, out=out[1])

    def natural(self, theta: Theta):
        shape, at = theta["shape"], theta["rate"] * self._reference()
        # shape log(at) - at - log Gamma(shape), without the difference of large numbers
        step = at - shape
        constant = shape * np.log1p(step / shape) - step + log_gamma_remainder(shape)
        return np.stack([shape - 1.0, -at], axis=1), constant - np.log(self._reference())

    def e_step(self, sizes, features):
        member, _ = super().e_step(sizes, features)
        return member, Work(log=1.0, feature=2.0)  # the features are a logarithm and a ratio

    def m_step(self, sizes, assumed):
        # a Newton step takes a digamma and a trigamma; converged after a few, at most NEWTON_STEPS
        return Work(special=2.0 * min(assumed.value("searches", 5.0), NEWTON_STEPS) + 2.0)

    def maximize(self, theta: Theta, stats: Theta, about):
        mean = stats["ratio"] / stats["weight"]
        gap = np.log1p(mean) - stats["log_ratio"] / stats["weight"]  # log of the mean less the mean log
        shape = gamma_shape(gap)
        if (shape >= MOST_SHAPE).any():
            warnings.warn(f"gamma: rows that are all but equal; the shape is capped at {MOST_SHAPE:g}", stacklevel=2)
        return {"shape": shape, "rate": shape / (self._reference() * (1.0 + mean))}

    def default(self):
        mean = self._reference()
        shape = np.clip(mean**2 / max(self.encoding.variance[0], 1e-12 * mean**2), 1e-2, MOST_SHAPE)
        return {"shape": shape, "rate": shape / mean}

    def soften(self, theta: Theta):
        # a component that starts in one row would keep it to itself
        shape = np.minimum(theta["shape"], 1e3 * np.maximum(self.default()["shape"], 1.0))
        return {"shape": shape, "rate": theta["rate"] * shape / theta["shape"]}

    def sample_rows(self, rng, n):
        draws = rng.gamma(self.values["shape"], 1.0 / self.values["rate"], n)
        return [np.maximum(draws, np.finfo(float).tiny)]  # a small shape draws numbers that round to 0


def log_gamma_remainder(shape: np.ndarray) -> np.ndarray:
    """shape log(shape) - shape - log Gamma(shape), by Stirling's series for large shapes.

    Source
    ------
    Abramowitz and Stegun (1964), 6.1.40.
    """
    from scipy.special import gammaln

    k = np.maximum(shape, 16.0)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * k * k)) / (k * k)) / (k * k)) / k
    large = 0.5 * np.log(k / (2.0 * np.pi)) - series
    return np.where(shape >= 16.0, large, shape * np.log(shape) - shape - gammaln(shape))


def gamma_shape(gap: np.ndarray) -> np.ndarray:
    """The shape with log(shape) - digamma(shape) = gap, at most `MOST_SHAPE`, (members,)."""
    from scipy.special import digamma, polygamma

    capped = gap < 0.5 / MOST_SHAPE
    gap = np.where(capped, 0.5 / MOST_SHAPE, gap)
    shape = (3.0 - gap + np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
    for _ in range(NEWTON_STEPS):
        error = np.log(shape) - digamma(shape) - gap
        new = 1.0 / (1.0 / shape + error / (shape**2 * (1.0 / shape - polygamma(1, shape))))
        if np.all(np.abs(new - shape) <= 1e-15 * shape):
            break
        shape = new
    return np.where(capped, MOST_SHAPE, np.clip(shape, 1e-6, MOST_SHAPE))
