"""Leaves over labels: which labels are levels."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from mixle_mpi.contract.columns import as_label, label_key
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family


class Labelled(Family):
    """A column of labels, with its levels. By itself it is what a node reads that has the probabilities.

    Parameters
    ----------
    levels : sequence of str, int or bool, optional
        By default the sorted union of the labels of all ranks. `1` and `"1"` differ.
    """

    slot = "label"
    if_missing = "a markov_chain needs all labels; a hidden_markov with optional emissions does not"

    def __init__(self, levels=None, values: dict[str, Any] | None = None, *, key: str | None = None,
                 fixed: bool = False):  # fmt: skip
        self.levels: tuple | None = checked_levels(self.type_name(), levels)
        super().__init__(values or {}, key=key, fixed=fixed)

    @property
    def sizes(self):
        return {"levels": len(self.levels or ())}

    def assumed_sizes(self, assumed):
        return {"levels": int(assumed.value("levels", None if self.levels is None else len(self.levels)))}

    def bind(self, bindings):
        bound = copy.copy(super().bind(bindings))
        bound.levels = bound.encoding.levels
        return bound

    def smooth_shares(self) -> np.ndarray:
        """Shares (levels,) of the labels in the data, all above 0: from which a member without rows starts."""
        n, shares = max(len(self.levels or ()), 1), self.encoding.frequencies
        return 0.99 * shares + 0.01 / n if shares.any() else np.full(n, 1.0 / n)

    def softened(self, p: np.ndarray) -> np.ndarray:
        """Starting probabilities (..., levels), mixed with the shares of the labels in the data."""
        shares = self.encoding.frequencies
        return 0.9 * p + 0.1 * shares if shares.any() else p


def checked_levels(where: str, levels) -> tuple | None:
    """The levels that a user declares, in the user's order; None for those of the data. Raises ModelError."""
    if levels is None:
        return None
    if isinstance(levels, (str, dict)):
        raise ModelError(f"{where}: levels = {levels!r} is not a list of labels")
    found = tuple(as_label(v) for v in levels)
    if len(found) != len({label_key(v) for v in found}) or not found:
        raise ModelError(f"{where}: levels {list(found)!r} are empty or not distinct")
    return found


def sorted_order(levels: Sequence[Any]) -> list[int]:
    """The order in which levels are kept: as bind sorts them."""
    return sorted(range(len(levels)), key=lambda i: label_key(levels[i]))


def at_least_zero(where: str, name: str, value) -> float:
    """A finite number >= 0. Raises ModelError."""
    if not (isinstance(value, (int, float)) and 0 <= value < np.inf):
        raise ModelError(f"{where}: {name} = {value!r} is not a number >= 0")
    return float(value)
