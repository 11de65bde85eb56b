"""Nodes that are declared, so that they can be planned, but not evaluated yet."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node


class StructureOnly(Node):
    """Base of nodes with sizes, costs and axes that cannot be fitted yet.

    `child_keys` are the constructor's keywords that take a model, or a list of models.
    """

    child_keys: tuple[str, ...] = ()

    @property
    def width(self) -> int | None:
        return None

    def place(self, scope):
        raise self.refusal()

    def compile(self, nodes, path, members, total, exclusive, cuts):
        raise self.refusal()

    def refusal(self) -> ModelError:
        """What a fit is told."""
        return ModelError(f"{self.type_name()} can be planned but not fitted yet")

    def described(self, describe) -> dict:
        """The constructor's keywords, children by `describe`."""
        raise TypeError(f"{type(self).__name__} does not define described")


def checked_count(where: str, name: str, value) -> int:
    """A whole number >= 1. Raises ModelError."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ModelError(f"{where}: {name} = {value!r} is not a number >= 1")
    return int(value)


def checked_child(where: str, name: str, value) -> Node:
    """A model. Raises ModelError."""
    if not isinstance(value, Node):
        raise ModelError(f"{where}: {name} = {value!r} is not a model")
    return value


def checked_probabilities(where: str, name: str, value, shape: tuple[int, ...]) -> np.ndarray:
    """Probabilities that add up to 1 over the last axis. Raises ModelError."""
    try:
        p = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise ModelError(f"{where}: {name} = {value!r} are not numbers in an array of shape {shape}") from None
    if p.shape != shape:
        raise ModelError(f"{where}: {name} of shape {p.shape}, not {shape}")
    bad = ~((p >= 0).all(axis=-1) & (abs(p.sum(axis=-1) - 1) <= 1e-8))
    if bad.any():
        at = f"[{', '.join(str(i) for i in np.argwhere(bad)[0])}]" if p.ndim > 1 else ""
        raise ModelError(f"{where}: {name}{at} is not a set of probabilities that add up to 1")
    return p
