"""The multivariate Gaussian, with a full or a diagonal covariance."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError, NumericalError, nearest
from mixle_mpi.contract.family import ResidualFamily, Theta
from mixle_mpi.contract.fields import positive, psd, real, total
from mixle_mpi.families.gaussian import LOG_2PI, checked_floor, encoded_floor
from mixle_mpi.kernels.gaussian import products


class MultivariateGaussian(ResidualFamily):
    """Gaussian vectors: log p(x) = -(x - mean)' covariance^-1 (x - mean) / 2 - log det(2 pi covariance) / 2.

    Parameters
    ----------
    dim : int, optional
        Number of columns; by default all that are in reach.
    mean : (dim,), optional
    covariance : (dim, dim), or (dim,) variances for the diagonal structure, optional
    structure : "full" or "diagonal"
    min_variance : float, optional
        Absolute floor of the eigenvalues, which are clipped. By default 1e-9 once each column is
        divided by its standard deviation (a constant column by 1).
    """

    def __init__(self, dim: int | None = None, mean=None, covariance=None, *, structure: str = "full",
                 min_variance: float | None = None, fixed: bool = False):  # fmt: skip
        if structure not in ("full", "diagonal"):
            known = nearest(structure, ["full", "diagonal"])
            raise ModelError(f"{self.type_name()}: structure = {structure!r}; {known}")
        self.structure = structure
        full = structure == "full"
        self.params = {"mean": real("dim"), "covariance": psd("dim", "dim") if full else positive("dim")}
        self.stats = {"weight": total(), "total": total("dim"), "square": total("pairs" if full else "dim")}
        if not full and np.ndim(covariance) == 2:
            if np.any(np.asarray(covariance) != np.diag(np.diag(covariance))):
                raise ModelError(f"{self.type_name()}: covariance is not diagonal, but the structure is")
            covariance = np.diag(covariance)
        super().__init__({"mean": mean, "covariance": covariance}, fixed=fixed)
        self.min_variance = checked_floor(self.type_name(), min_variance)
        lengths = {np.shape(v)[0] for v in self.values.values() if v is not None} | ({dim} if dim else set())
        if len(lengths) > 1:
            raise ModelError(f"{self.type_name()}: dim, mean and covariance have different lengths {sorted(lengths)}")
        self.dim = int(lengths.pop()) if lengths else None
        if dim is not None and (not isinstance(dim, (int, np.integer)) or dim < 1):
            raise ModelError(f"{self.type_name()}: dim = {dim!r} is not a number >= 1")

    @property
    def width(self):
        return self.dim

    @property
    def sizes(self):
        d = self.dim or 0
        return {"dim": d, "pairs": d * (d + 1) // 2}

    def place(self, scope):
        placed = super().place(scope)
        placed.dim = len(placed.columns)
        return placed

    def options(self):
        own = {"structure": self.structure} if self.structure != "full" else {}
        if self.min_variance is not None:
            own["min_variance"] = self.min_variance
        return super().options() | own

    def features(self, x, present, out):
        d = self.dim
        out[:d] = x
        if self.structure == "full":
            products(out[:d], out[d:])
        else:
            np.multiply(x, x, out=out[d:])

    def natural(self, theta: Theta):
        mean = theta["mean"]
        if self.structure == "diagonal":
            precision = 1.0 / theta["covariance"]
            linear, quadratic = mean * precision, -0.5 * precision
        else:
            whiten = self._whiten(theta["covariance"])
            precision = np.swapaxes(whiten, 1, 2) @ whiten
            linear = np.einsum("mij,mj->mi", precision, mean)
            rows, columns = np.tril_indices(self.dim)
            quadratic = -precision[:, rows, columns]
            quadratic[:, rows == columns] *= 0.5
        constant = self._log_peak(theta["covariance"]) - 0.5 * np.einsum("mi,mi->m", mean, linear)
        return np.concatenate([linear, quadratic], axis=1), constant

    def residual(self, theta: Theta):
        cov = theta["covariance"]
        shape = 1.0 / cov if self.structure == "diagonal" else self._whiten(cov)
        return theta["mean"], shape, self._log_peak(cov)

    def _whiten(self, covariance):
        return np.linalg.inv(np.linalg.cholesky(covariance)) if len(covariance) else covariance

    def _log_peak(self, covariance):
        if self.structure == "diagonal":
            log_det = np.log(covariance).sum(axis=1)
        else:
            log_det = 2.0 * np.log(np.einsum("mii->mi", np.linalg.cholesky(covariance))).sum(axis=1)
        return -0.5 * (self.dim * LOG_2PI + log_det) - np.log(self.encoding.scale).sum()

    def feature_extent(self):
        x = np.maximum(np.abs(self.encoding.low), np.abs(self.encoding.high))
        rows, columns = np.tril_indices(self.dim)
        return np.concatenate([x, x * x if self.structure == "diagonal" else x[rows] * x[columns]])

    def maximize(self, theta: Theta, stats: Theta, about):
        weight = stats["weight"][:, None]
        step = stats["total"] / weight
        square = stats["square"] / weight
        if self.structure == "diagonal":
            return {"mean": about + step, "covariance": np.maximum(square - step * step, self._floor())}
        rows, columns = np.tril_indices(self.dim)
        lower = square - step[:, rows] * step[:, columns]
        covariance = np.empty((len(step), self.dim, self.dim))
        covariance[:, rows, columns] = lower
        covariance[:, columns, rows] = lower
        return {"mean": about + step, "covariance": self._clip(covariance)}

    def _floor(self) -> np.ndarray:
        return encoded_floor(self.min_variance, self.encoding)

    def _clip(self, covariance: np.ndarray) -> np.ndarray:
        """Eigenvalues, in units in which the floor is the same in all directions, clipped at the floor.

        Of the covariances above the floor this one maximises the likelihood. Raises NumericalError for
        a singular one when the floor is 0.
        """
        floor = self._floor()
        least = 1.0 if floor.all() else 0.0
        unit = np.sqrt(floor) if least else np.ones(self.dim)
        scaled = covariance / (unit[:, None] * unit)
        try:
            np.linalg.cholesky(scaled - least * np.eye(self.dim))
            if least:
                return covariance
        except np.linalg.LinAlgError:
            pass  # some member is at the floor: look at the eigenvalues
        values, vectors = np.linalg.eigh(scaled)
        if not least:
            rank = (values > values[:, -1:] * self.dim * 1e-14).sum(axis=1)
            if (rank < self.dim).any():
                m = int(np.argmax(rank < self.dim))
                raise NumericalError(
                    f"the covariance is singular, of rank {rank[m]} of {self.dim}, and min_variance is 0", m
                )
            return covariance
        low = (values < least).any(axis=1)
        clipped = (vectors * np.maximum(values, least)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        clipped = 0.5 * (clipped + np.swapaxes(clipped, 1, 2)) * (unit[:, None] * unit)
        return np.where(low[:, None, None], clipped, covariance)

    def default(self):
        variance = np.maximum(self.encoding.variance, self._floor())
        return {"mean": self.encoding.mean, "covariance": np.diag(variance) if self.structure == "full" else variance}

    def soften(self, theta: Theta):
        # a component that starts in few rows would be flat
        least = 1e-3 * self.default()["covariance"]
        covariance = theta["covariance"]
        return {"covariance": covariance + least if self.structure == "full" else np.maximum(covariance, least)}

    def _units(self):
        scale = self.encoding.scale
        return scale, scale**2 if self.structure == "diagonal" else np.outer(scale, scale)

    def encode_values(self, values):
        scale, square = self._units()
        mean, covariance = values["mean"], values["covariance"]
        return {
            "mean": None if mean is None else (mean - self.encoding.shift) / scale,
            "covariance": None if covariance is None else covariance / square,
        }

    def decode_values(self, values):
        scale, square = self._units()
        return {"mean": values["mean"] * scale + self.encoding.shift, "covariance": values["covariance"] * square}

    def sample_rows(self, rng, n):
        z = rng.standard_normal((n, self.dim))
        cov = self.values["covariance"]
        z = z * np.sqrt(cov) if self.structure == "diagonal" else z @ np.linalg.cholesky(cov).T
        return list((self.values["mean"] + z).T)

