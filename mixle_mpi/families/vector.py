"""What Gaussian vectors have in common: the kernel forms of a mean and a covariance."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.family import Forms, ResidualFamily, Theta
from mixle_mpi.families.covariance import Full, Structure
from mixle_mpi.families.gaussian import LOG_2PI


class GaussianVector(ResidualFamily):
    """Vectors with the log density -(x - mean)' covariance^-1 (x - mean) / 2 - log det(2 pi covariance) / 2.

    Attributes
    ----------
    dim : number of columns, None where only the data can tell
    """

    dim: int | None = None

    @property
    def form(self) -> Structure:
        """The functions of the covariance's structure."""
        raise TypeError(f"{type(self).__name__} does not define form")

    def moments(self, theta: Theta) -> tuple[np.ndarray, np.ndarray]:
        """Encoded means (members, dim), and covariances in the shape of the structure."""
        raise TypeError(f"{type(self).__name__} does not define moments")

    @property
    def width(self):
        return self.dim

    @property
    def sizes(self):
        d = self.dim or 0
        return {"dim": d, "pairs": d * (d + 1) // 2}

    def features(self, x, present, out):
        out[: self.dim] = x
        self.form.features(out[: self.dim], out[self.dim :])

    def packed_values(self, sizes):
        return 1 + sizes["dim"] + sizes["pairs"] if isinstance(self.form, Full) else 0

    def forms(self, theta: Theta):
        mean, covariance = self.moments(theta)
        quadratic, precision, shape, log_det = self.form.precision(covariance, self.dim or 0)
        linear = mean * precision if precision.ndim == 2 else np.einsum("mij,mj->mi", precision, mean)
        peak = self._log_peak(log_det)
        constant = peak - 0.5 * np.einsum("mi,mi->m", mean, linear)
        return Forms(np.concatenate([linear, quadratic], axis=1), constant, mean, shape, peak)

    def _log_peak(self, log_det):
        return -0.5 * (self.dim * LOG_2PI + log_det) - np.log(self.encoding.scale).sum()

    def feature_extent(self):
        x = np.maximum(np.abs(self.encoding.low), np.abs(self.encoding.high))
        return np.concatenate([x, self.form.extent(x)])

    def second_moments(self, moments):
        return self.form.second_moments(moments)
