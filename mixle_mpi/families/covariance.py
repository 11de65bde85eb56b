"""The four shapes that the covariance of a Gaussian vector can have.

A structure is a set of functions of arrays: `covariance` has a leading members axis, (members, d, d) for
the full and tied structures, (members, d) for the diagonal and (members,) for the spherical one.
"""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import NumericalError
from mixle_mpi.contract.fields import Param, Stat, positive, psd, total
from mixle_mpi.contract.work import Work
from mixle_mpi.families.gaussian import floored
from mixle_mpi.kernels.gaussian import products


class Structure:
    """Base: what the four structures differ in.

    Attributes
    ----------
    param, square : the fields of the covariance and of the second moments of one member
    pooled : shared fields, from which members estimate together
    """

    param: Param
    square: Stat
    pooled: dict[str, Stat] = {}

    def features(self, x: np.ndarray, out: np.ndarray) -> None:
        """Second-order features of x (d, n) into out (s, n)."""
        raise TypeError(f"{type(self).__name__} does not define it")

    def extent(self, x: np.ndarray) -> np.ndarray:
        """Largest features, for the largest |x| (d,)."""
        raise TypeError(f"{type(self).__name__} does not define it")

    def precision(self, covariance: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Natural parameters of the features (members, s); precisions; what residual kernels need; log determinants.

        Precisions and what residual kernels need are (members, d, d), or (members, d) where they are diagonal:
        whitening matrices, or the precisions themselves.
        """
        raise TypeError(f"{type(self).__name__} does not define it")

    def second_moments(self, moments: np.ndarray) -> np.ndarray:
        """`square` (members, s), from what the residual kernels add up."""
        return moments

    def estimate(self, square: np.ndarray, step: np.ndarray, floor: np.ndarray) -> np.ndarray:
        """The covariance, from second moments per weight (members, s) about a point `step` from the mean."""
        raise TypeError(f"{type(self).__name__} does not define it")

    def work(self, d: int) -> Work:
        """M-step work of one member: the estimate, and what `precision` derives from it."""
        return Work(flop=100.0 * d)

    def units(self, scale: np.ndarray) -> np.ndarray:
        """What turns an encoded covariance into the user's units, by multiplication."""
        raise TypeError(f"{type(self).__name__} does not define it")

    def from_variances(self, variance: np.ndarray) -> np.ndarray:
        """The covariance of independent columns with the given variances (d,)."""
        raise TypeError(f"{type(self).__name__} does not define it")


class Full(Structure):
    param = psd("dim", "dim")
    square = total("pairs")

    def features(self, x, out):
        products(np.ascontiguousarray(x), out)

    def extent(self, x):
        rows, columns = np.tril_indices(len(x))
        return x[rows] * x[columns]

    def precision(self, covariance, d):
        whiten, log_det = _whiten(covariance)
        precision = np.swapaxes(whiten, 1, 2) @ whiten
        rows, columns = np.tril_indices(d)
        quadratic = -precision[:, rows, columns]
        quadratic[:, rows == columns] *= 0.5
        return quadratic, precision, whiten, log_det

    def estimate(self, square, step, floor):
        rows, columns = np.tril_indices(len(floor))
        return clip(unpack(square - step[:, rows] * step[:, columns], len(floor)), floor)

    def work(self, d):
        # `clip` and `_whiten` factorise (d^3 / 3 each), the latter inverts (2 d^3), and `precision` multiplies (2 d^3)
        return Work(lapack=(2.0 / 3.0 + 2.0 + 2.0) * d**3, matrix=4.0)

    def units(self, scale):
        return np.outer(scale, scale)

    def from_variances(self, variance):
        return np.diag(variance)


class Tied(Full):
    """One full covariance for all components of a mixture."""

    param = psd("dim", "dim", shared=True)
    pooled = {"pooled_weight": total(shared=True), "scatter": total("pairs", shared=True)}


class Diagonal(Structure):
    param = positive("dim")
    square = total("dim")

    def features(self, x, out):
        np.multiply(x, x, out=out)

    def extent(self, x):
        return x * x

    def precision(self, covariance, d):
        precision = 1.0 / covariance
        return -0.5 * precision, precision, precision, np.log(covariance).sum(axis=1)

    def estimate(self, square, step, floor):
        return floored(square - step * step, floor)

    def units(self, scale):
        return scale**2

    def from_variances(self, variance):
        return variance


class Spherical(Structure):
    """One variance for all columns. Columns are scaled by one power of two, so that it stays one."""

    param = positive()
    square = total(1)

    def features(self, x, out):
        np.einsum("dn,dn->n", x, x, out=out[0])

    def extent(self, x):
        return np.array([x @ x])

    def precision(self, covariance, d):
        precision = np.repeat(1.0 / covariance[:, None], d, axis=1)
        return -0.5 / covariance[:, None], precision, precision, d * np.log(covariance)

    def second_moments(self, moments):
        return moments.sum(axis=1, keepdims=True)

    def estimate(self, square, step, floor):
        variance = (square[:, 0] - (step * step).sum(axis=1)) / len(floor)
        return floored(variance, floor.max())

    def units(self, scale):
        return scale[0] ** 2

    def from_variances(self, variance):
        return variance.mean()


STRUCTURES: dict[str, Structure] = {
    "full": Full(), "diagonal": Diagonal(), "spherical": Spherical(), "tied": Tied(),
}  # fmt: skip


def unpack(lower: np.ndarray, d: int) -> np.ndarray:
    """Symmetric matrices (members, d, d) from their lower triangles (members, d (d + 1) / 2), row by row."""
    rows, columns = np.tril_indices(d)
    full = np.empty((len(lower), d, d))
    full[:, rows, columns] = lower
    full[:, columns, rows] = lower
    return full


def _whiten(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverses of the Cholesky factors (members, d, d), and log determinants (members,). Raises NumericalError."""
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise NumericalError("a covariance is not positive definite") from None
    return np.linalg.inv(factor), 2.0 * np.log(np.einsum("mii->mi", factor)).sum(axis=1)


def clip(covariance: np.ndarray, floor: np.ndarray) -> np.ndarray:
    """Eigenvalues, in units in which the floor (d,) is the same in all directions, clipped at the floor.

    Of the covariances above the floor this one maximises the likelihood. Raises NumericalError for a
    singular one when the floor is 0; its second argument is the member.
    """
    d = len(floor)
    least = 1.0 if floor.all() else 0.0
    unit = np.sqrt(floor) if least else np.ones(d)
    scaled = covariance / (unit[:, None] * unit)
    if least and _all_positive(scaled - np.eye(d)):
        return covariance
    values, vectors = np.linalg.eigh(scaled)
    if not least:
        rank = (values > values[:, -1:] * d * 1e-14).sum(axis=1)
        short = np.atleast_1d(rank < d)
        if short.any():
            m = int(np.argmax(short))
            raise NumericalError(f"the covariance is singular, of rank {rank[m]} of {d}, and min_variance is 0", m)
        return covariance
    low = np.atleast_1d((values < least).any(axis=1))
    clipped = (vectors * np.maximum(values, least)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    clipped = 0.5 * (clipped + np.swapaxes(clipped, 1, 2)) * (unit[:, None] * unit)
    return np.where(low[:, None, None], clipped, covariance)


def _all_positive(matrices: np.ndarray) -> bool:
    """Whether all symmetric matrices are positive definite; cheaper than their eigenvalues."""
    try:
        np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        return False
    return True
