"""Columns of sequences: the values of all steps one after another, and where each row's begin.

A step is numbered by its row and its place in it, so that its number says nothing about who read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from functools import cached_property
from typing import Any

import numpy as np

from mixle_mpi.contract.columns import BAG, LENGTH, SlotKey
from mixle_mpi.contract.errors import DataError
from mixle_mpi.data.table import SEQUENCE, Labels

STEP_BITS = 32  # of a step's number, below those of its row


class Ragged:
    """Rows of sequences: `values` of their steps, (steps,) or `Labels`, and `offsets` (n + 1,) int64 from 0."""

    def __init__(self, values, offsets: np.ndarray):
        self.values, self.offsets = values, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice) -> Ragged:
        """Consecutive rows."""
        start, stop, _ = rows.indices(len(self))
        first, last = self.offsets[start], self.offsets[max(start, stop)]
        own = slice(first, last)
        values = self.values
        values = Labels(values.codes[own], values.levels) if isinstance(values, Labels) else values[own]
        return Ragged(values, self.offsets[start : max(start, stop) + 1] - first)


def joined(parts: list) -> Any:
    """Arrays, or `Ragged` of arrays, of consecutive rows as one."""
    if len(parts) == 1:
        return parts[0]
    if not isinstance(parts[0], Ragged):
        return np.concatenate(parts)
    lengths = [np.diff(part.offsets) for part in parts]
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    return Ragged(np.concatenate([part.values for part in parts]), offsets)


def step_numbers(offsets: np.ndarray, first: int) -> np.ndarray:
    """Global numbers (steps,) int64 of the steps of rows that begin with global row `first`."""
    lengths = np.diff(offsets)
    rows = np.repeat(np.arange(first, first + len(lengths), dtype=np.int64), lengths)
    return (rows << STEP_BITS) + np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)


def row_and_step(number: int) -> tuple[int, int]:
    """Row and place in it of a step's number."""
    return number >> STEP_BITS, number & ((1 << STEP_BITS) - 1)


class Level:
    """A chunk as the leaves of rows, or of the steps of one sequence, see it.

    Attributes
    ----------
    columns : name -> flat column
    first : global row of the chunk
    offsets : (rows + 1,) of the steps of each row; None at the level of rows
    n : rows, or steps
    """

    def __init__(self, first: int, rows: int, offsets: np.ndarray | None = None):
        self.columns: dict[str, Any] = {}
        self.first, self.offsets = first, offsets
        self.n = rows if offsets is None else int(offsets[-1])

    @cached_property
    def numbers(self) -> np.ndarray:
        """Global numbers (n,) int64 of the rows or steps."""
        if self.offsets is None:
            return np.arange(self.first, self.first + self.n, dtype=np.int64)
        return step_numbers(self.offsets, self.first)

    @property
    def lengths(self) -> np.ndarray:
        """Steps (rows,) int64 of each row. Raises TypeError at the level of rows."""
        if self.offsets is None:
            raise TypeError("rows have no steps")
        return np.diff(self.offsets)


def levels_of(part: dict[str, Any], first: int, keys: Iterable[SlotKey]) -> dict[str, Level]:
    """A chunk for each level that slots read: "" for rows, and sequences by name.

    Raises DataError for columns of one sequence that have different lengths.
    """
    n = len(next(iter(part.values()))) if part else 0
    found = {"": Level(first, n)}
    flat = found[""].columns
    flat |= {name: column for name, column in part.items() if not isinstance(column, Ragged)}
    for key in keys:
        for column in key.columns if key.sequence else ():
            own = part[column]
            level = found.setdefault(key.sequence, Level(first, n, own.offsets))
            _check_lengths(level.offsets, own.offsets, first, key, column)
            level.columns[column] = own.values
    for column in (column for key in keys for column in key.columns if column.endswith(LENGTH)):
        flat[column] = found[column.removesuffix(LENGTH)].lengths.astype(np.float64)
    return found


def _check_lengths(expected: np.ndarray | None, offsets: np.ndarray, first: int, key: SlotKey, column: str) -> None:
    if expected is not None and not np.array_equal(expected, offsets):
        at = int(np.argmax(np.diff(expected) != np.diff(offsets)))
        lengths = int(np.diff(offsets)[at]), int(np.diff(expected)[at])
        other = key.sequence.removesuffix(BAG)
        raise DataError(f"row {first + at}: {lengths[0]} steps in column {column!r}, {lengths[1]} in {other!r}")


def flattened(items: list, name: str) -> tuple[Any, np.ndarray]:
    """The steps of all items, one sequence each, as one array or list, and their offsets.

    An item is an array (steps,) or (steps, columns), a text (of letters), or a list of what a row can be.
    """
    lengths = np.zeros(len(items) + 1, np.int64)
    for row, item in enumerate(items):
        if isinstance(item, Mapping) or not isinstance(item, Sized) or (isinstance(item, np.ndarray) and not item.ndim):
            where = f", column {name!r}" if name else ""
            value = item.item() if isinstance(item, np.generic) else item
            hint = "; for one sequence give a list with it" if not row and not name else ""
            raise DataError(f"row {row}{where}: {value!r} is not a sequence{hint}")
        lengths[row + 1] = len(item)
    offsets = np.cumsum(lengths)
    arrays = [item for item in items if len(item)]
    if arrays and all(isinstance(item, np.ndarray) and item.dtype != object for item in arrays):
        if len({item.shape[1:] for item in arrays}) > 1 or arrays[0].ndim > 2:
            shapes = sorted({item.shape[1:] for item in arrays})
            raise DataError(f"steps of different shapes: {', '.join(map(str, shapes))}")
        return np.concatenate(arrays), offsets
    return [step for item in arrays for step in (item.tolist() if isinstance(item, np.ndarray) else item)], offsets


def check_sequences(holds: bool, want: str, where: str) -> str:
    """What a column is wanted as, or the steps in it. Raises DataError where it `holds` sequences that are not wanted,
    and the other way round; `where` names it."""
    wanted = want.startswith(SEQUENCE)
    if holds and not wanted:
        raise DataError(f"{where} holds sequences: its model is a sequence, markov_chain or hidden_markov")
    if wanted and not holds:
        raise DataError(f"{where} holds no sequences, which its model is of; of a text in a file, write an array of "
                        "its letters")  # fmt: skip
    return want.removeprefix(SEQUENCE)
