"""Functions drawn from a Gaussian process, observed at inputs that all rows share."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError, NumericalError
from mixle_mpi.contract.family import Theta
from mixle_mpi.contract.fields import positive, real, total
from mixle_mpi.contract.numeric import NumericFamily
from mixle_mpi.contract.work import Work
from mixle_mpi.families.covariance import STRUCTURES, unpack
from mixle_mpi.families.gp_kernels import Kernel, Points, White
from mixle_mpi.families.gp_search import Expected, cholesky, maximum, split
from mixle_mpi.families.gp_text import kernel_of
from mixle_mpi.families.vector import GaussianVector

DEFAULT_KERNEL = "rbf + white"
# The box in which hyperparameters are looked for, so that those on which the likelihood does not depend stay finite.
# Variances are in mean squared deviations of the values from their mean; length scales from the least distance of
# two inputs to the largest one.
VARIANCES = 1e-8, 1e6
LENGTH_SCALES = 1e-2, 1e3
NOISE = 0.1  # share of white noise in the variance at the start
APART = 4.0  # the largest distance in length scales at the start; each further kernel has one so much shorter again
LEAST_START = 1e-3  # of the variance: no kernel starts so weak that EM could not bring it back
# An evaluation of the M-step: FLOPs for each n^3 of a Cholesky factor and its inverse, and of five products with it;
# FLOPs for each n^2 of a kernel and its derivatives, which are passes over memory; calls, as so many small matrices.
FACTORISED, MULTIPLIED, PASSES, CALLS = 1.0 / 3.0 + 2.0, 10.0, 110.0, 15.0
SINGULAR = ("the covariance is not positive definite to rounding: shorter length scales, or white noise in the kernel, "
            "would make it so")  # fmt: skip


class GaussianProcess(NumericFamily, GaussianVector):
    """A row is one function at n inputs: a Gaussian vector of equal means, whose covariance is a kernel of the inputs.

    The M-step looks for the hyperparameters numerically, from the current ones, see `gp_search.maximum`; the mean is
    that of generalised least squares. Nothing is added to the diagonal of the covariance: white noise, whose variance
    has a floor, keeps it positive definite. Without any, inputs must differ, and hyperparameters whose covariance is
    singular to rounding are not looked at.

    Parameters
    ----------
    inputs : (n,) or (n, d) where the functions are observed, one for each column; or their number, to plan only
    kernel : Kernel or text, such as `RBF() + White()` or "rbf(length_scale=0.5) * matern32 + white"; values of
        hyperparameters are where EM starts, length scales in units of the inputs; absent ones start at shares of the
        variance of the values and of the largest distance of the inputs. By default rbf + white.
    mean : float, optional
    """

    def __init__(self, inputs, kernel: Kernel | str | None = None, mean=None, *, key: str | None = None,
                 fixed: bool = False):  # fmt: skip
        where = self.type_name()
        self.points, self.dim = None, None
        try:
            if isinstance(inputs, (int, np.integer)) and not isinstance(inputs, bool):
                if inputs < 1:
                    raise ModelError(f"inputs = {inputs!r} is not a number >= 1, or points")
                self.dim = int(inputs)
            else:
                self.points = Points(inputs)
                self.dim = len(self.points.x)
            kernel = DEFAULT_KERNEL if kernel is None else kernel
            kernel = kernel_of(kernel) if isinstance(kernel, str) else kernel
            if not isinstance(kernel, Kernel):
                raise ModelError(f'kernel = {kernel!r} is neither a kernel nor a text such as "{DEFAULT_KERNEL}"')
            fields = kernel.fields()
            self._check_points(kernel, self.points)
        except ModelError as error:
            raise ModelError(f"{where}: {error}") from None
        self.structure = kernel.with_values(iter([None] * len(fields)))
        self.params = {"mean": real()} | {f.name: positive(*f.shape) for f in fields}
        self.stats = {"weight": total(), "total": total("dim"), "square": total("pairs")}
        super().__init__({"mean": mean} | {f.name: f.value for f in fields}, key=key, fixed=fixed)

    @staticmethod
    def _check_points(kernel: Kernel, points: Points | None) -> None:
        if points is None:
            return
        d, twins = points.x.shape[1], points.twins()
        for f in kernel.fields():
            if f.shape not in ((), (d,)):
                raise ModelError(f"kernel: {f.name} has {f.shape[0]} values, but inputs have {d} coordinates")
        if twins is not None and not kernel.has_noise:
            raise ModelError(f"inputs[{twins[0]}] and inputs[{twins[1]}] are equal, and a kernel without white noise "
                             f"is singular there: add white")  # fmt: skip

    # one scale for all columns: the encoded covariance is then the kernel itself with other variances
    slot = "even"

    @property
    def form(self):
        return STRUCTURES["full"]

    @property
    def kernel(self) -> Kernel:
        """The kernel with the values of its hyperparameters, as far as they are known."""
        known = (self.values[name] for name in self._hyperparameters())
        return self.structure.with_values(v if v is None else float(v) if np.ndim(v) == 0 else tuple(v.tolist())
                                          for v in known)  # fmt: skip

    def rounded(self, text) -> Kernel:
        """The kernel with values as short as `text` makes them, to be printed."""
        known = (np.ravel(self.values[name]) for name in self._hyperparameters())
        short = [[float(text(v)) for v in own] for own in known]
        return self.structure.with_values(iter(v if self.params[name].shape else v[0]
                                               for name, v in zip(self._hyperparameters(), short)))  # fmt: skip

    def _hyperparameters(self) -> list[str]:
        return [name for name in self.params if name != "mean"]

    @property
    def inputs(self):
        """The inputs as they were given, an array or a number."""
        return self.dim if self.points is None else self.points.given

    def described(self, parameters: bool) -> dict:
        """The constructor's keywords as plain data."""
        inputs = self.inputs if self.points is None else self.points.given.tolist()
        spec = {"inputs": inputs, "kernel": repr(self.kernel if parameters else self.structure)}
        mean = self.values["mean"]
        return spec | ({"mean": mean} if parameters and mean is not None else {})

    def tied_form(self):
        inputs = self.dim if self.points is None else (self.points.given.shape, self.points.given.tobytes())
        return inputs, repr(self.structure)

    def signature(self):
        return (*super().signature(), *self.tied_form())

    def place(self, scope):
        if self.points is None:
            raise ModelError(f"{self.type_name()}: inputs = {self.dim} can be planned but not fitted: give the points")
        return super().place(scope)

    # -- the covariance ----------------------------------------------------------------------------

    def _known_points(self) -> Points:
        if self.points is None:
            raise TypeError("a Gaussian process that is bound to data has inputs")
        return self.points

    def _covariance(self, values: list[np.ndarray]) -> np.ndarray:
        """K (n, n) of the values of each hyperparameter."""
        return self.structure.covariance(self._known_points(), iter(map(np.atleast_1d, values)), False)[0]

    def _offsets(self) -> np.ndarray:
        """What an encoded mean of all columns is in each, (n,), less: columns have shifts of their own."""
        return (self.encoding.shift - self.encoding.shift[0]) / self.encoding.scale[0]

    def moments(self, theta: Theta):
        names, members = self._hyperparameters(), len(theta["mean"])
        covariance = np.empty((members, self.dim or 0, self.dim or 0))
        for m in range(members):
            covariance[m] = self._covariance([theta[name][m] for name in names])
            if cholesky(covariance[m], 0.0) is None:
                raise NumericalError(SINGULAR, m)
        return theta["mean"][:, None] - self._offsets(), covariance

    # -- estimation --------------------------------------------------------------------------------

    def maximize_counted(self, theta: Theta, stats: Theta, about, count):
        names, n = self._hyperparameters(), self.dim or 0
        found = {name: theta[name].copy() for name in ("mean", *names)}
        shapes = [theta[name][0].size for name in names]
        low, high = (np.concatenate([np.atleast_1d(v) for v in side]) for side in zip(*self._box(names)))
        for m, weight in enumerate(stats["weight"]):
            with np.errstate(over="ignore", invalid="ignore"):
                step = stats["total"][m] / weight
                scatter = unpack(stats["square"][m : m + 1] / weight, n)[0] - np.outer(step, step)
            middle = about[m] + step + self._offsets()
            if not (np.isfinite(middle).all() and np.isfinite(scatter).all()):
                continue  # of a weight so small that its statistics have no digits
            expected = Expected(self.structure, self._known_points(), shapes, middle, scatter)
            start = np.log(np.concatenate([np.ravel(theta[name][m]) for name in names]))
            best = maximum(expected, start, np.minimum(low, start), np.maximum(high, start))
            count(expected.evaluations)
            if best is not None:
                found["mean"][m] = best[1]
                for name, value in zip(names, split(np.exp(best[0]), shapes)):
                    found[name][m] = value.reshape(self.params[name].shape)
        return found

    def _variance(self) -> float:
        """Mean squared deviation of all values from their mean, encoded."""
        e = self.encoding
        mean = e.mean + self._offsets()
        found = float(np.mean(e.variance + np.square(mean - mean.mean())))
        return found if 0 < found < np.inf else float(1e-9 / e.scale[0] / e.scale[0])

    def _box(self, names: list[str]):
        """Least and largest logarithm of each hyperparameter, in its shape."""
        for name in names:
            if name.endswith("variance"):
                yield tuple(np.log(np.array(VARIANCES) * self._variance()))
            else:
                shape = self.params[name].shape
                least, most = self._known_points().extent(bool(shape))
                yield np.log(LENGTH_SCALES[0] * least), np.log(LENGTH_SCALES[1] * most)

    def default(self):
        names, variance = self._hyperparameters(), self._variance()
        noisy = [isinstance(part, White) for part in self.structure.leaves() if not part.is_unit]
        shares = {True: NOISE / max(noisy.count(True), 1), False: (1.0 - NOISE) / max(noisy.count(False), 1)}
        found = {"mean": np.array((self.encoding.mean + self._offsets()).mean())}
        of_variance, divisor = iter(noisy), APART
        for name in names:
            if name.endswith("variance"):
                found[name] = np.array(variance * shares[next(of_variance)])
            else:
                found[name] = np.array(self._known_points().extent(bool(self.params[name].shape))[1] / divisor)
                divisor *= APART
        # without noise the covariance of smooth functions at close inputs is singular to rounding
        while not self.structure.has_noise and cholesky(self._covariance([found[name] for name in names])) is None:
            for name in names:
                found[name] = found[name] if name.endswith("variance") else 0.5 * found[name]
        return found

    def soften(self, theta: Theta):
        least = LEAST_START * self._variance()
        return {n: np.maximum(theta[n], least) for n in self._hyperparameters() if n.endswith("variance")}

    def _units(self, name: str) -> float:
        """What turns an encoded hyperparameter into the user's units, by multiplication."""
        with np.errstate(over="ignore"):
            return np.square(self.encoding.scale[0]) if name.endswith("variance") else 1.0

    def encode_values(self, values):
        shift, scale = self.encoding.shift[0], self.encoding.scale[0]
        found = {name: None if values[name] is None else values[name] / self._units(name)
                 for name in self._hyperparameters()}  # fmt: skip
        return {"mean": None if values["mean"] is None else (values["mean"] - shift) / scale} | found

    def decode_values(self, values):
        shift, scale = self.encoding.shift[0], self.encoding.scale[0]
        found = {name: values[name] * self._units(name) for name in self._hyperparameters()}
        return {"mean": values["mean"] * scale + shift} | found

    def sample_rows(self, rng, n):
        factor = cholesky(self._covariance([self.values[name] for name in self._hyperparameters()]), 0.0)
        if factor is None:
            raise NumericalError(f"{self.type_name()}: {SINGULAR}")
        return list((self.values["mean"] + rng.standard_normal((n, self.dim)) @ factor.T).T)

    # -- what it costs -----------------------------------------------------------------------------

    def m_step(self, sizes, assumed):
        n, steps = sizes["dim"], assumed.value("searches")
        leaves = len(list(self.structure.leaves()))
        evaluation = Work(lapack=FACTORISED * n**3, gemm=MULTIPLIED * n**3, exp=leaves * n * n,
                          flop=PASSES * leaves * n * n, matrix=CALLS)  # fmt: skip
        return evaluation * steps + self.form.work(n)
