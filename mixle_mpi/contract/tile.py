"""The rows that are evaluated at once, and the scratch memory that goes with them."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Source(Protocol):
    """Where tiles come from: the encoded rows of one data shard.

    `first` is the global number of the shard's first row, `n` how many it has. `column` returns rows
    `start` to `stop` (counted in the shard) of one encoded array, rows on the last axis, or None where
    that array does not exist because it would say nothing (no missing rows, no base measure). `take`
    returns a copy of the rows (k,) of an array that exists. `sequences` are the sources of the steps of those
    sequences that rows hold, by name.
    """

    first: int
    n: int

    @property
    def sequences(self) -> Mapping[str, StepSource]: ...

    def column(self, key: Hashable, start: int, stop: int) -> np.ndarray | None: ...

    def take(self, key: Hashable, rows: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Chunk:
    """What a data shard holds of sequences that are divided in time.

    `shard` of them all; whether its first sequence is `continued` from the shard before, where so many steps
    of it came `earlier`, and whether its last `continues` on the next.
    """

    shard: int
    continued: bool
    continues: bool
    earlier: int = 0


class StepSource(Source, Protocol):
    """A source of steps: those of row r are offsets[r] to offsets[r + 1]; `offsets` (rows + 1,) int64 from 0. `chunk`
    is None where all sequences are whole."""

    offsets: np.ndarray
    chunk: Chunk | None


class Tile:
    """A range of a source's rows, or the subset of them that a row set picks.

    Scratch arrays are kept between tiles, so the memory of a tile is allocated once.

    Attributes
    ----------
    index : rows of the range that the row set picks, None for all
    labels : owner's id -> (n,) int32 starting unit of each row, instead of posterior weights
    step_labels : sequence -> owner's id -> the same for all steps of the source
    offsets : of a tile of steps, where in it those of each row begin, (rows + 1,) int64 from 0
    chunk : of a tile of steps, all of its source's, where sequences are divided in time
    saved : owner's id -> what `score` leaves for `accumulate`
    captured : owner's id -> rows (k,) and responsibilities of each group, for those owners whose id was put there
    """

    def __init__(self, source: Source):
        self.source = source
        self.start = self.stop = 0
        self.stale = False
        self.index: np.ndarray | None = None
        self.labels: dict[int, np.ndarray] = {}
        self.step_labels: dict[str, dict[int, np.ndarray]] = {}
        self.offsets = np.zeros(1, np.int64)
        self.chunk: Chunk | None = None
        self._steps: dict[str, Tile] = {}
        self._scratch: dict[tuple, np.ndarray] = {}
        self._subsets: dict[int, Tile] = {}
        self._filled: set[int] = set()
        self.saved: dict[int, Any] = {}
        self.captured: dict[int, Any] = {}

    def move(self, start: int, stop: int) -> None:
        """Turn to rows `start` to `stop` of the source; what was scored is forgotten."""
        self.start, self.stop = start, stop
        self._filled.clear()
        self.stale = False
        for below in (*self._subsets.values(), *self._steps.values()):
            below.stale = True

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
        tile.step_labels = self.step_labels
        tile.captured = self.captured
        return tile

    def steps(self, name: str) -> Tile:
        """The steps of a sequence of the tile's rows, as a tile of its own: the same for all who ask for it."""
        source = self.source.sequences[name]
        made = self._steps.get(name)
        if made is None:
            made = self._steps[name] = Tile(source)
        elif not made.stale:
            return made
        first, stop = source.offsets[self.start], source.offsets[self.stop]
        made.move(int(first), int(stop))
        borders = source.offsets[self.start : self.stop + 1] - first
        if self.index is not None:
            lengths = np.diff(borders)[self.index]
            made.offsets = np.concatenate([[0], np.cumsum(lengths)])
            made.index = np.repeat(borders[:-1][self.index] - made.offsets[:-1], lengths) + np.arange(lengths.sum())
        else:
            made.offsets = borders
        labels = {k: v[first:stop] for k, v in self.step_labels.get(name, {}).items()}
        made.labels = labels if made.index is None else {k: v[made.index] for k, v in labels.items()}
        made.captured = self.captured
        made.chunk = source.chunk
        return made

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
