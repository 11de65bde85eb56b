"""Kernels of Gaussian processes, and their sums and products: covariances and their derivatives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from mixle_mpi.contract.errors import ModelError

Slopes = list[np.ndarray]


class Points:
    """Inputs (n, d) and the squared differences of their coordinates, which kernels share.

    Raises ModelError for inputs that are no points.
    """

    def __init__(self, inputs):
        try:
            self.given = np.array(inputs, dtype=float)
        except (TypeError, ValueError):
            raise ModelError(f"inputs = {inputs!r} are not points, (n,) or (n, d) numbers") from None
        if self.given.ndim not in (1, 2) or not self.given.size:
            raise ModelError(f"inputs of shape {self.given.shape} are not points, (n,) or (n, d)")
        if not np.isfinite(self.given).all():
            raise ModelError(f"inputs[{int(np.argwhere(~np.isfinite(self.given))[0][0])}] is not finite")
        self.x = self.given.reshape(len(self.given), -1)

    @cached_property
    def squares(self) -> np.ndarray:
        """Squared differences (d, n, n)."""
        return np.square(self.x.T[:, :, None] - self.x.T[:, None, :])

    @cached_property
    def square(self) -> np.ndarray:
        """Squared distances (n, n)."""
        return self.squares.sum(axis=0)

    def twins(self) -> tuple[int, int] | None:
        """The first two inputs that are equal, where there are any."""
        _, first, place = np.unique(self.x, axis=0, return_index=True, return_inverse=True)
        again = np.flatnonzero(first[place.ravel()] != np.arange(len(self.x)))
        return (int(first[place.ravel()[again[0]]]), int(again[0])) if len(again) else None

    def extent(self, own: bool) -> tuple[np.ndarray, np.ndarray]:
        """Least distance between different inputs, and the largest one: of each coordinate (d,) where `own`, else of
        the points, two numbers. Both are 1 where all inputs are one."""
        squares = self.squares if own else self.square[None]
        least, most = np.ones(len(squares)), np.ones(len(squares))
        for j, square in enumerate(squares):
            if square.any():
                least[j], most[j] = np.sqrt(square[square > 0].min()), np.sqrt(square.max())
        return (least, most) if own else (least[0], most[0])


@dataclass(frozen=True)
class Field:
    """A hyperparameter: its name, its value where one was given, and the shape of the value."""

    name: str
    value: float | tuple[float, ...] | None
    shape: tuple[int, ...]


class Kernel:
    """A covariance of values at two inputs; `+` and `*` make sums and products.

    In a product the first factor carries the variance: of the others it is 1, and a variance that they were given
    goes to the first. In a sum that is such a factor the first term is the one whose variance is 1.
    """

    def __add__(self, other) -> Kernel:
        return Sum(parts(self, Sum) + parts(other, Sum)) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other) -> Kernel:
        return Product(parts(self, Product) + parts(other, Product)) if isinstance(other, Kernel) else NotImplemented

    def leaves(self) -> Iterator[Part]:
        """The kernels of which this one is built, in order."""
        raise TypeError(f"{type(self).__name__} does not define leaves")

    def covariance(self, points: Points, theta: Iterator[np.ndarray], slopes: bool) -> tuple[np.ndarray, Slopes]:
        """K (n, n), and its derivatives by the logarithm of each hyperparameter.

        `theta` gives the values of each hyperparameter, (1,) or (d,), in the order of `fields`. The derivatives are a
        list of (n, n) in the same order, one for each entry of a vector; without `slopes` it is empty.
        """
        raise TypeError(f"{type(self).__name__} does not define covariance")

    def amplitude(self) -> float | None:
        """The variance that a product takes from it; None where none was given."""
        raise TypeError(f"{type(self).__name__} does not define amplitude")

    def scaled(self, factor: float) -> Kernel:
        """The kernel times a number; a variance that was not given counts as 1."""
        raise TypeError(f"{type(self).__name__} does not define scaled")

    def unit(self) -> Kernel:
        """The kernel divided by its amplitude, which is a hyperparameter no more."""
        raise TypeError(f"{type(self).__name__} does not define unit")

    def replaced(self, parts: Iterator[Part]) -> Kernel:
        """The same kernel built of other parts."""
        raise TypeError(f"{type(self).__name__} does not define replaced")

    # -- derived -----------------------------------------------------------------------------------

    def fields(self) -> list[Field]:
        """The hyperparameters in order. Kinds that occur once name theirs, as in `rbf_variance`; others are counted,
        as in `rbf_2_variance`."""
        names = [part.kind for part in self.leaves()]
        found = []
        for at, part in enumerate(self.leaves()):
            number = f"_{names[: at + 1].count(part.kind)}" if names.count(part.kind) > 1 else ""
            found += [Field(f"{part.kind}{number}_{name}", value, shape) for name, value, shape in part.own()]
        return found

    def with_values(self, values: Iterator) -> Kernel:
        """The kernel with a value, or None, for each hyperparameter, in the order of `fields`."""
        return self.replaced(iter([part.given({name: next(values) for name, *_ in part.own()})
                                   for part in self.leaves()]))  # fmt: skip

    @property
    def has_noise(self) -> bool:
        """Whether it has white noise, which keeps the covariance of any inputs positive definite."""
        return any(isinstance(part, White) for part in self.leaves())


@dataclass(frozen=True, repr=False)
class Part(Kernel):
    """A kernel that is neither sum nor product. `is_unit` says that its variance is 1 and no hyperparameter."""

    variance: float | None = None
    is_unit: bool = dataclasses.field(default=False, kw_only=True)

    def __post_init__(self):
        object.__setattr__(self, "variance", checked(f"{self.kind}: variance", self.variance))

    @property
    def kind(self) -> str:
        """The name of the kernel in texts."""
        return type(self).__name__.lower()

    def own(self) -> list[tuple[str, float | tuple[float, ...] | None, tuple[int, ...]]]:
        """Name, value and shape of each hyperparameter."""
        return [] if self.is_unit else [("variance", self.variance, ())]

    def given(self, values: dict) -> Part:
        """A copy with other values of the hyperparameters."""
        return dataclasses.replace(self, **values)

    def leaves(self):
        yield self

    def replaced(self, parts):
        return next(parts)

    def amplitude(self):
        return 1.0 if self.is_unit else self.variance

    def scaled(self, factor):
        if factor == 1.0:
            return self
        return dataclasses.replace(self, variance=factor * (self.amplitude() or 1.0), is_unit=False)

    def unit(self):
        return dataclasses.replace(self, variance=None, is_unit=True)

    def __repr__(self) -> str:
        words = [f"{name}={value_text(value)}" for name, value, shape in self.own() if value is not None]
        # a length scale for each coordinate is structure, whether it has values or not
        words += [f"{name}={value_text((None,) * shape[0])}" for name, value, shape in self.own()
                  if value is None and shape]  # fmt: skip
        return f"{self.kind}({', '.join(words)})" if words else self.kind


@dataclass(frozen=True, repr=False)
class White(Part):
    """White noise: `variance` at each input by itself, also where two inputs are equal."""

    def covariance(self, points, theta, slopes):
        variance = 1.0 if self.is_unit else next(theta)[0]
        k = variance * np.eye(len(points.x))
        return k, [k] if slopes and not self.is_unit else []


@dataclass(frozen=True, repr=False)
class Stationary(Part):
    """A kernel of the distance r of two inputs, in length scales.

    Parameters
    ----------
    variance : float, optional
    length_scale : float, or one for each coordinate of the inputs, in their units; optional. A list of None asks for
        one for each coordinate without giving any.
    """

    length_scale: float | tuple[float, ...] | None = None
    dimensions: int | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self):
        super().__post_init__()
        scale, where = self.length_scale, f"{self.kind}: length_scale"
        if isinstance(scale, (list, tuple, np.ndarray)) and np.ndim(scale) == 1 and len(scale):
            object.__setattr__(self, "dimensions", len(scale))
            absent = [v is None for v in scale]
            if any(absent) and not all(absent):
                raise ModelError(f"{where} = {list(scale)!r}: give all of them or none")
            scale = None if any(absent) else tuple(checked(where, v) for v in scale)
        else:
            scale = checked(where, scale)
        object.__setattr__(self, "length_scale", scale)

    def own(self):
        return [*super().own(), ("length_scale", self.length_scale, () if self.dimensions is None else
                                 (self.dimensions,))]  # fmt: skip

    def of_distance(self, square: np.ndarray, slopes: bool) -> tuple[np.ndarray, np.ndarray]:
        """The correlation at squared distances (n, n), and minus its derivative by half of these, in one pass."""
        raise TypeError(f"{type(self).__name__} does not define of_distance")

    def covariance(self, points, theta, slopes):
        variance = 1.0 if self.is_unit else next(theta)[0]
        length = next(theta)
        squares = points.square[None] if self.dimensions is None else points.squares
        squares = squares / np.square(length)[:, None, None]
        k, slope = self.of_distance(squares.sum(axis=0), slopes)
        k *= variance
        found: Slopes = []
        if slopes:
            found = [] if self.is_unit else [k]
            found += [variance * slope * own for own in squares]
        return k, found


class RBF(Stationary):
    """The squared exponential kernel: variance exp(-r^2 / 2)."""

    def of_distance(self, square, slopes):
        k = np.exp(-0.5 * square)
        return k, k.copy() if slopes else k


@dataclass(frozen=True, repr=False)
class Matern(Stationary):
    """The Matern kernel of smoothness nu = 1/2, 3/2 or 5/2; 1/2 is the exponential, variance exp(-r).

    Source
    ------
    Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, 4.2.1.
    """

    nu: float = dataclasses.field(default=1.5, kw_only=True)
    kinds: ClassVar[dict[float, str]] = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}

    def __post_init__(self):
        if isinstance(self.nu, bool) or self.nu not in self.kinds:
            raise ModelError(f"matern: nu = {self.nu!r} is not 0.5, 1.5 or 2.5")
        super().__post_init__()

    @property
    def kind(self):
        return self.kinds[self.nu]

    def of_distance(self, square, slopes):
        a = np.sqrt(2.0 * self.nu * square)
        fall = np.exp(-a)
        if self.nu == 0.5:
            slope = np.divide(fall, a, out=np.zeros_like(a), where=a > 0) if slopes else fall
            return fall, slope
        if self.nu == 1.5:
            return (1.0 + a) * fall, 3.0 * fall
        return (1.0 + a + a * a / 3.0) * fall, 5.0 / 3.0 * (1.0 + a) * fall


@dataclass(frozen=True, repr=False)
class Compound(Kernel):
    """A sum or product of the kernels `of`."""

    of: tuple[Kernel, ...]

    def leaves(self):
        for kernel in self.of:
            yield from kernel.leaves()

    def replaced(self, parts):
        return type(self)(tuple(kernel.replaced(parts) for kernel in self.of))

    def amplitude(self):
        return self.of[0].amplitude()


@dataclass(frozen=True, repr=False)
class Sum(Compound):
    """A sum of kernels."""

    def covariance(self, points, theta, slopes):
        k, found = self.of[0].covariance(points, theta, slopes)
        for term in self.of[1:]:
            more, more_slopes = term.covariance(points, theta, slopes)
            k, found = k + more, found + more_slopes
        return k, found

    def scaled(self, factor):
        return Sum(tuple(term.scaled(factor) for term in self.of))

    def unit(self):
        factor = self.amplitude()
        rest = self.of[1:] if factor is None else tuple(term.scaled(1.0 / factor) for term in self.of[1:])
        return Sum((self.of[0].unit(), *rest))

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.of))


@dataclass(frozen=True, repr=False)
class Product(Compound):
    """A product of kernels, see `Kernel` for what becomes of their variances."""

    def __post_init__(self):
        first, *rest = self.of
        for factor in rest:
            first = first.scaled(factor.amplitude() or 1.0)
        object.__setattr__(self, "of", (first, *(factor.unit() for factor in rest)))

    def covariance(self, points, theta, slopes):
        k, found = self.of[0].covariance(points, theta, slopes)
        for factor in self.of[1:]:
            more, more_slopes = factor.covariance(points, theta, slopes)
            found = [slope * more for slope in found] + [k * slope for slope in more_slopes]
            k = k * more
        return k, found

    def scaled(self, factor):
        return Product((self.of[0].scaled(factor), *self.of[1:]))

    def unit(self):
        return Product((self.of[0].unit(), *self.of[1:]))

    def __repr__(self) -> str:
        return " * ".join(f"({f!r})" if isinstance(f, Sum) else repr(f) for f in self.of)


def parts(kernel: Kernel, kind: type[Compound]) -> tuple[Kernel, ...]:
    """What a sum or product is made of; any other kernel by itself."""
    return kernel.of if isinstance(kernel, kind) else (kernel,)


def checked(where: str, value) -> float | None:
    """A positive number, as float, or None. Raises ModelError."""
    if value is None:
        return None
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (number and 0 < value < np.inf):
        raise ModelError(f"{where} = {value!r} is not a positive number")
    return float(value)


def value_text(value) -> str:
    """A number, or a list of them, to the last digit."""
    return f"[{', '.join(map(repr, value))}]" if isinstance(value, tuple) else repr(value)
