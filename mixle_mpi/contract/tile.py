"""The rows that are evaluated at once, and the scratch memory that goes with them."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Protocol

import numpy as np


class Source(Protocol):
    """Where tiles come from: the encoded rows of one data shard.

    `first` is the global number of the shard's first row, `n` how many it has. `column` returns rows
    `start` to `stop` (counted in the shard) of one encoded array, rows on the last axis, or None where
    that array does not exist because it would say nothing (no missing rows, no base measure). `take`
    returns a copy of the rows (k,) of an array that exists.
    """

    first: int
    n: int

    def column(self, key: Hashable, start: int, stop: int) -> np.ndarray | None: ...

    def take(self, key: Hashable, rows: np.ndarray) -> np.ndarray: ...


class Tile:
    """A range of a source's rows, or the subset of them that a row set picks.

    Scratch arrays are kept between tiles, so the memory of a tile is allocated once.

    Attributes
    ----------
    index : rows of the range that the row set picks, None for all
    labels : owner's id -> (n,) int32 starting unit of each row, instead of posterior weights
    saved : owner's id -> what `score` leaves for `accumulate`
    captured : owner's id -> rows (k,) and responsibilities of each group, for those owners whose id was put there
    """

    def __init__(self, source: Source):
        self.source = source
        self.start = self.stop = 0
        self.stale = False
        self.index: np.ndarray | None = None
        self.labels: dict[int, np.ndarray] = {}
        self._scratch: dict[tuple, np.ndarray] = {}
        self._subsets: dict[int, Tile] = {}
        self._filled: set[int] = set()
        self.saved: dict[int, list[np.ndarray]] = {}
        self.captured: dict[int, tuple[np.ndarray, list[np.ndarray]] | None] = {}

    def move(self, start: int, stop: int) -> None:
        """Turn to rows `start` to `stop` of the source; what was scored is forgotten."""
        self.start, self.stop = start, stop
        self._filled.clear()
        self.stale = False
        for subset in self._subsets.values():
            subset.stale = True

    @property
    def n(self) -> int:
        return self.stop - self.start if self.index is None else len(self.index)

    @property
    def global_rows(self) -> np.ndarray:
        """Global row numbers of the tile's rows, (n,) int64."""
        rows = np.arange(self.source.first + self.start, self.source.first + self.stop, dtype=np.int64)
        return rows if self.index is None else rows[self.index]

    def known(self, key: Hashable) -> np.ndarray:
        """The rows of one encoded array that the source has, (..., n)."""
        values = self.column(key)
        if values is None:
            raise KeyError(f"the source has no column {key}")
        return values

    def column(self, key: Hashable) -> np.ndarray | None:
        """The rows of one encoded array, (..., n), or None where the source has none."""
        values = self.source.column(key, self.start, self.stop)
        return values if values is None or self.index is None else values[..., self.index]

    def array(self, owner: object, name: str, *shape: int, dtype=np.float64) -> np.ndarray:
        """A C-contiguous scratch array, not cleared, the same memory for the same owner and name."""
        size = math.prod(shape)
        flat = self._scratch.get((id(owner), name))
        if flat is None or flat.size < size:
            flat = self._scratch[id(owner), name] = np.empty(size, dtype)
        return flat[:size].reshape(shape)

    def subset(self, owner: object, index: np.ndarray) -> Tile:
        """The row set of `owner`: the tile's rows at `index` (k,), ascending. One for each owner."""
        if id(owner) not in self._subsets:
            self._subsets[id(owner)] = Tile(self.source)
        tile = self._subsets[id(owner)]
        tile.move(self.start, self.stop)
        tile.index = index if self.index is None else self.index[index]
        tile.labels = {k: v[index] for k, v in self.labels.items()}
        tile.captured = self.captured
        return tile

    def row_set(self, owner: object, index: np.ndarray) -> Tile:
        """The row set that `owner` scored in this tile, made now when nothing was scored."""
        made = self._subsets.get(id(owner))
        if made is not None and (made.start, made.stop) == (self.start, self.stop) and not made.stale:
            return made
        return self.subset(owner, index)

    def first_time(self, owner: object) -> bool:
        """True once for each owner after each move: what is derived from the rows alone is derived once."""
        if id(owner) in self._filled:
            return False
        self._filled.add(id(owner))
        return True
