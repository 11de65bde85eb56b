"""The univariate Gaussian."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError, NumericalError
from mixle_mpi.contract.family import Forms, ResidualFamily, Theta
from mixle_mpi.contract.fields import positive, real, total

LOG_2PI = float(np.log(2.0 * np.pi))
LEAST_VARIANCE = 1e-30  # encoded; the variance of rows that are all equal is rounding below this


class Gaussian(ResidualFamily):
    """Gaussian numbers: log p(x) = -(x - mean)^2 / (2 variance) - log(2 pi variance) / 2.

    Parameters
    ----------
    mean, variance : float, optional
    min_variance : float, optional
        Absolute floor of the variance; by default 1e-9 of the column's variance, and 1e-9 for a
        constant column.
    """

    params = {"mean": real(), "variance": positive()}
    stats = {"weight": total(), "total": total(), "square": total()}

    def __init__(self, mean=None, variance=None, *, min_variance: float | None = None, key: str | None = None,
                 fixed: bool = False):  # fmt: skip
        super().__init__({"mean": mean, "variance": variance}, key=key, fixed=fixed)
        self.min_variance = checked_floor(self.type_name(), min_variance)

    def options(self):
        floor = {} if self.min_variance is None else {"min_variance": self.min_variance}
        return super().options() | floor

    def features(self, x, present, out):
        out[0] = x[0]
        np.multiply(x[0], x[0], out=out[1])

    def forms(self, theta: Theta):
        mean, variance = theta["mean"], theta["variance"]
        eta = np.stack([mean / variance, -0.5 / variance], axis=1)
        peak = self._log_peak(variance)
        return Forms(eta, peak - 0.5 * mean * eta[:, 0], mean[:, None], 1.0 / variance[:, None], peak)

    def _log_peak(self, variance):
        return -0.5 * (LOG_2PI + np.log(variance)) - np.log(self.encoding.scale[0])

    def feature_extent(self):
        x = np.maximum(np.abs(self.encoding.low), np.abs(self.encoding.high))[0]
        return np.array([x, x * x])

    def maximize(self, theta: Theta, stats: Theta, about):
        step = stats["total"] / stats["weight"]
        variance = stats["square"] / stats["weight"] - step * step
        return {"mean": about[:, 0] + step, "variance": floored(variance, self._floor()[0])}

    def _floor(self) -> np.ndarray:
        return encoded_floor(self.min_variance, self.encoding)

    def default(self):
        variance = np.maximum(self.encoding.variance[0], self._floor()[0])
        return {"mean": np.array(self.encoding.mean[0]), "variance": np.array(variance)}

    def soften(self, theta: Theta):
        # a component that starts in one row would keep it to itself
        return {"variance": np.maximum(theta["variance"], 1e-3 * self.default()["variance"])}

    def encode_values(self, values):
        shift, scale = self.encoding.shift[0], self.encoding.scale[0]
        mean, variance = values["mean"], values["variance"]
        return {
            "mean": None if mean is None else (mean - shift) / scale,
            "variance": None if variance is None else variance / scale**2,
        }

    def decode_values(self, values):
        shift, scale = self.encoding.shift[0], self.encoding.scale[0]
        return {"mean": values["mean"] * scale + shift, "variance": values["variance"] * scale**2}

    def sample_rows(self, rng, n):
        return [self.values["mean"] + np.sqrt(self.values["variance"]) * rng.standard_normal(n)]


def checked_floor(where: str, min_variance) -> float | None:
    """The floor that a user gave, a float >= 0, or None. Raises ModelError."""
    if min_variance is None:
        return None
    if not (isinstance(min_variance, (int, float, np.number)) and 0 <= min_variance < np.inf):
        raise ModelError(f"{where}: min_variance = {min_variance!r} is not a number >= 0")
    return float(min_variance)


def encoded_floor(min_variance: float | None, encoding) -> np.ndarray:
    """Floor of each column's variance, (d,), encoded."""
    if min_variance is not None:
        return min_variance / encoding.scale**2
    # one far outlier must not lift the floor above the rest of the data
    variance = np.minimum(encoding.variance, 1e6)
    return np.where(variance > 0, 1e-9 * variance, 1e-9 / encoding.scale / encoding.scale)


def floored(variance: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Encoded variances (members, ...), at least the floor.

    Raises NumericalError for a variance of 0 when the floor is 0; its second argument is the member.
    """
    flat = (variance <= LEAST_VARIANCE) & (np.asarray(floor) == 0)
    if flat.any():
        m = int(np.argmax(flat.reshape(len(flat), -1).any(axis=1)))
        raise NumericalError("the variance is 0, and min_variance is 0", m)
    return np.maximum(variance, floor)
