"""Checks of what constructors of nodes are given."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node


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


def checked_numbers(where: str, name: str, value, shape: tuple[int, ...]) -> np.ndarray:
    """A float64 array of a shape. Raises ModelError."""
    try:
        found = np.array(value, dtype=float)
    except (TypeError, ValueError):
        raise ModelError(f"{where}: {name} = {value!r} are not numbers in an array of shape {shape}") from None
    if found.shape != shape:
        raise ModelError(f"{where}: {name} of shape {found.shape}, not {shape}")
    return found


def checked_probabilities(where: str, name: str, value, shape: tuple[int, ...]) -> np.ndarray:
    """Probabilities that add up to 1 over the last axis. Raises ModelError."""
    p = checked_numbers(where, name, value, shape)
    bad = ~((p >= 0).all(axis=-1) & (abs(p.sum(axis=-1) - 1) <= 1e-8))
    if bad.any():
        at = f"[{', '.join(str(i) for i in np.argwhere(bad)[0])}]" if p.ndim > 1 else ""
        raise ModelError(f"{where}: {name}{at} is not a set of probabilities that add up to 1")
    return p
