"""The multivariate Gaussian, with a full, tied, diagonal or spherical covariance."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError, nearest
from mixle_mpi.contract.family import Theta
from mixle_mpi.contract.fields import real, total
from mixle_mpi.families.covariance import STRUCTURES, Full
from mixle_mpi.families.gaussian import checked_floor, encoded_floor
from mixle_mpi.families.vector import GaussianVector


class MultivariateGaussian(GaussianVector):
    """Gaussian vectors: log p(x) = -(x - mean)' covariance^-1 (x - mean) / 2 - log det(2 pi covariance) / 2.

    Parameters
    ----------
    dim : int, optional
        Number of columns; by default all that are in reach.
    mean : (dim,), optional
    covariance : (dim, dim) for the full and tied structures, (dim,) variances for the diagonal one, one
        variance for the spherical one; optional
    structure : "full", "diagonal", "spherical", or "tied": one full covariance for all components of the
        innermost mixture
    min_variance : float, optional
        Absolute floor of the eigenvalues, which are clipped. By default 1e-9 once each column is
        divided by its standard deviation (a constant column by 1).
    """

    def __init__(self, dim: int | None = None, mean=None, covariance=None, *, structure: str = "full",
                 min_variance: float | None = None, key: str | None = None, fixed: bool = False):  # fmt: skip
        if structure not in STRUCTURES:
            raise ModelError(f"{self.type_name()}: structure = {structure!r}; {nearest(structure, STRUCTURES)}")
        self.structure = structure
        self.params = {"mean": real("dim"), "covariance": self.form.param}
        self.stats = {"weight": total(), "total": total("dim"), "square": self.form.square} | self.form.pooled
        if structure == "diagonal" and np.ndim(covariance) == 2:
            if np.any(np.asarray(covariance) != np.diag(np.diag(covariance))):
                raise ModelError(f"{self.type_name()}: covariance is not diagonal, but the structure is")
            covariance = np.diag(covariance)
        super().__init__({"mean": mean, "covariance": covariance}, key=key, fixed=fixed)
        self.min_variance = checked_floor(self.type_name(), min_variance)
        if dim is not None and (isinstance(dim, bool) or not isinstance(dim, (int, np.integer)) or dim < 1):
            raise ModelError(f"{self.type_name()}: dim = {dim!r} is not a number >= 1")
        lengths = {np.shape(v)[0] for v in self.values.values() if np.ndim(v)} | ({dim} if dim else set())
        if len(lengths) > 1:
            raise ModelError(f"{self.type_name()}: dim, mean and covariance have different lengths {sorted(lengths)}")
        self.dim = int(lengths.pop()) if lengths else None

    @property
    def form(self):
        """The functions of the covariance's structure."""
        return STRUCTURES[self.structure]

    def assumed_sizes(self, assumed):
        d = int(assumed.value("dim", self.dim if self.dim is not None else assumed.width))
        return {"dim": d, "pairs": d * (d + 1) // 2}

    def m_step(self, sizes, assumed):
        return self.form.work(sizes["dim"])

    def place(self, scope):
        placed = super().place(scope)
        placed.dim = len(placed.columns)
        return placed

    @property
    def slot(self):
        return "even" if self.structure == "spherical" else "centred"

    def options(self):
        own = {"structure": self.structure} if self.structure != "full" else {}
        if self.min_variance is not None:
            own["min_variance"] = self.min_variance
        return super().options() | own

    def moments(self, theta: Theta):
        return theta["mean"], theta["covariance"]

    def pooled(self, stats: Theta) -> Theta:
        if not self.form.pooled:
            return {}
        weight, step = stats["weight"], stats["total"]
        rows, columns = np.tril_indices(self.dim or 0)
        per_weight = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0)[:, None]
        return {"pooled_weight": weight, "scatter": stats["square"] - step[:, rows] * step[:, columns] * per_weight}

    def maximize(self, theta: Theta, stats: Theta, about):
        weight = stats["weight"][:, None]
        step = stats["total"] / weight
        if self.form.pooled:
            return {"mean": about + step}
        return {"mean": about + step, "covariance": self.form.estimate(stats["square"] / weight, step, self._floor())}

    def maximize_shared(self, stats: Theta) -> Theta:
        scatter = stats["scatter"] / stats["pooled_weight"][:, None]
        return {"covariance": self.form.estimate(scatter, np.zeros((len(scatter), self.dim or 0)), self._floor())}

    def _floor(self) -> np.ndarray:
        return encoded_floor(self.min_variance, self.encoding)

    def default(self):
        variance = np.maximum(self.encoding.variance, self._floor())
        return {"mean": self.encoding.mean, "covariance": self.form.from_variances(variance)}

    def soften(self, theta: Theta):
        # a component that starts in few rows would be flat
        least = 1e-3 * np.asarray(self.default()["covariance"])
        covariance = theta["covariance"]
        full = isinstance(self.form, Full)
        return {"covariance": covariance + least if full else np.maximum(covariance, least)}

    def encode_values(self, values):
        mean, covariance = values["mean"], values["covariance"]
        return {
            "mean": None if mean is None else (mean - self.encoding.shift) / self.encoding.scale,
            "covariance": None if covariance is None else covariance / self.form.units(self.encoding.scale),
        }

    def decode_values(self, values):
        scale = self.encoding.scale
        mean = values["mean"] * scale + self.encoding.shift
        return {"mean": mean, "covariance": values["covariance"] * self.form.units(scale)}

    def sample_rows(self, rng, n):
        z = rng.standard_normal((n, self.dim))
        covariance = self.values["covariance"]
        full = isinstance(self.form, Full)
        z = z @ np.linalg.cholesky(covariance).T if full else z * np.sqrt(covariance)
        return list((self.values["mean"] + z).T)
