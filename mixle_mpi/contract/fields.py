"""Declared fields: the parameters of a node with their constraint, and its sufficient statistics.

A field is a value object. Its shape may name sizes (`"dim"`, `"levels"`) that are known only after
the node has been bound to data; `shape_of` resolves them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

Shape = tuple[int | str, ...]


class Combine(Enum):
    """How the values of several shards combine, on the data axis."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True)
class Constraint:
    """The set in which one parameter value lies, with a map to and from free coordinates.

    The free coordinates of a value are an unconstrained vector of `num_free(shape)` reals. They serve
    acceleration, numeric M-steps and perturbation tests; they are not what is stored.
    """

    name: str

    def num_free(self, shape: tuple[int, ...]) -> int:
        size = math.prod(shape)
        if self.name == "simplex":
            return size - 1
        if self.name == "psd":
            return shape[-1] * (shape[-1] + 1) // 2
        return size

    def to_free(self, value: np.ndarray) -> np.ndarray:
        """Free coordinates of one value, a flat float64 vector."""
        value = np.asarray(value, dtype=float)
        if self.name == "positive":
            return np.log(value).ravel()
        if self.name == "interval":
            return np.log(value / (1.0 - value)).ravel()
        if self.name == "simplex":
            return np.log(value[:-1] / value[-1])
        if self.name == "psd":
            factor = np.linalg.cholesky(value)
            d = factor.shape[0]
            factor[np.diag_indices(d)] = np.log(np.diag(factor))
            return factor[np.tril_indices(d)]
        return value.ravel()

    def from_free(self, free: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The value of the given shape whose free coordinates are `free`."""
        free = np.asarray(free, dtype=float)
        if self.name == "positive":
            return np.exp(free).reshape(shape)
        if self.name == "interval":
            return (1.0 / (1.0 + np.exp(-free))).reshape(shape)
        if self.name == "simplex":
            odds = np.exp(np.append(free, 0.0) - max(0.0, free.max(initial=0.0)))
            return odds / odds.sum()
        if self.name == "psd":
            d = shape[-1]
            factor = np.zeros((d, d))
            factor[np.tril_indices(d)] = free
            factor[np.diag_indices(d)] = np.exp(np.diag(factor))
            return factor @ factor.T
        return free.reshape(shape)


@dataclass(frozen=True)
class Param:
    """A parameter field: `shape` of one member's value; `shared` by all members of the bank's group."""

    constraint: Constraint
    shape: Shape = ()
    shared: bool = False


@dataclass(frozen=True)
class Stat:
    """A sufficient statistic: `shape` of one member's value and how shards combine."""

    combine: Combine = Combine.SUM
    shape: Shape = ()
    shared: bool = False


def real(*shape: int | str, shared: bool = False) -> Param:
    return Param(Constraint("real"), shape, shared)


def positive(*shape: int | str, shared: bool = False) -> Param:
    return Param(Constraint("positive"), shape, shared)


def interval(*shape: int | str, shared: bool = False) -> Param:
    """Values in [0, 1]."""
    return Param(Constraint("interval"), shape, shared)


def simplex(*shape: int | str, shared: bool = False) -> Param:
    """Non-negative values that sum to one over the last axis."""
    return Param(Constraint("simplex"), shape, shared)


def psd(*shape: int | str, shared: bool = False) -> Param:
    """A symmetric positive definite matrix."""
    return Param(Constraint("psd"), shape, shared)


def total(*shape: int | str, shared: bool = False) -> Stat:
    return Stat(Combine.SUM, shape, shared)


def minimum(*shape: int | str, shared: bool = False) -> Stat:
    return Stat(Combine.MIN, shape, shared)


def maximum(*shape: int | str, shared: bool = False) -> Stat:
    return Stat(Combine.MAX, shape, shared)


def shape_of(shape: Shape, sizes: dict[str, int]) -> tuple[int, ...]:
    """The shape with every named size replaced by its number."""
    return tuple(sizes[s] if isinstance(s, str) else s for s in shape)
