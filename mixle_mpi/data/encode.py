"""From columns as read to the arrays that kernels read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np

from mixle_mpi.contract.columns import SHIFTED, Encoding, SlotKey
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Bindings, Node
from mixle_mpi.contract.tile import Chunk
from mixle_mpi.data.bags import BagEncoder, Documents
from mixle_mpi.data.bind import missing, numbers, transformed
from mixle_mpi.data.ragged import Level, levels_of
from mixle_mpi.data.slots import WEIGHT, Slots
from mixle_mpi.data.table import Labels, Table
from mixle_mpi.families.bag import counts_key
from mixle_mpi.families.categorical import Categorical
from mixle_mpi.kernels.elementary import LOG_ZERO
from mixle_mpi.models.sequence import sums_of_sequences


class EncodedRows:
    """The encoded rows of one data shard, in memory: the source that tiles are asked from.

    Numbers that came as float32 are kept as they came, NaN where missing, in half the memory, and encoded
    whenever a tile asks for them: shifted and scaled in float32 they would lose digits. `single` holds the
    encoding of each of these slots.
    """

    def __init__(self, first: int, n: int, arrays: dict, single: dict[SlotKey, Encoding] | None = None,
                 sequences: dict[str, EncodedSteps] | None = None):  # fmt: skip
        self.first = first
        self.n = n
        self.arrays = arrays
        self.single = single or {}
        self.sequences = sequences or {}

    def column(self, key, start: int, stop: int) -> np.ndarray | None:
        """See `Source.column`."""
        values = self.arrays.get(key)
        if values is None:
            return None
        values = values[..., start:stop]
        return encoded(self.single[key], values.astype(np.float64)) if key in self.single else values

    def take(self, key, rows: np.ndarray) -> np.ndarray:
        """The rows (k,) of one encoded array, (..., k), a copy."""
        values = self.arrays[key][..., rows]
        return encoded(self.single[key], values.astype(np.float64)) if key in self.single else values

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays.values()) + sum(s.nbytes for s in self.sequences.values())


class EncodedSteps(EncodedRows):
    """The encoded steps of the sequences of one data shard, row by row: those of row r (counted in the shard) are
    offsets[r] to offsets[r + 1], (n + 1,) int64 from 0. `chunk` says where sequences are divided in time."""

    def __init__(self, offsets: np.ndarray, arrays: dict, single: dict[SlotKey, Encoding], chunk: Chunk | None = None):
        super().__init__(0, int(offsets[-1]), arrays, single)
        self.offsets, self.chunk = offsets, chunk

    def part(self, start: int, stop: int, shard: int) -> EncodedSteps:
        """The steps `start` to `stop` as the chunk of a shard: of sequences that are divided in time."""
        arrays = {key: np.ascontiguousarray(values[..., start:stop]) for key, values in self.arrays.items()}
        chunk = Chunk(shard, start > 0, stop < self.n, start)
        if start == stop:
            chunk = Chunk(shard, False, False)
        return EncodedSteps(np.clip(self.offsets, start, stop) - start, arrays, self.single, chunk)


def encoded(encoding: Encoding, x: np.ndarray) -> np.ndarray:
    """Numbers x (d, n) as kernels read them, overwritten: shifted, scaled, 0 where missing."""
    transformed(encoding.key, x)
    if encoding.key.kind in SHIFTED:
        x -= encoding.shift[:, None]
        x /= encoding.scale[:, None]
    if encoding.missing:
        x[np.isnan(x)] = 0.0
    return x


def encode(slots: Slots, bound: Bindings, model: Node, table: Table, start: int, stop: int) -> EncodedRows:
    """The encoded rows `start` to `stop` of a table, which is told that it may forget them."""
    n = stop - start
    leaves = {f.base_key: f for f in model.walk() if isinstance(f, Family)}
    plain = {key: encoding for key, encoding in bound.items() if key.sequence not in slots.bags}
    single = {key: encoding for key, encoding in plain.items() if slots.slots[key].single}
    codes = {key: _Codes(encoding) for key, encoding in plain.items() if key.kind == "label"}
    bags = {name: BagEncoder(bag, bound[bag.words.slot_key], table.matrix) for name, bag in slots.bags.items()}
    rows, sequences = _Rows(n), {key.sequence: _Steps() for key in bound if key.sequence}
    kept: dict[str, _Rows | _Steps] = {"": rows, **sequences}
    if slots.weight is not None:
        rows.reserve(WEIGHT, (), np.float64)
    for name, bag in bags.items():
        kept[name].reserve(bag.key, (), np.int32)
        kept[name].reserve(counts_key(name), (), np.float64)
    for key, encoding in plain.items():
        to = kept[key.sequence]
        if key in codes:
            to.reserve(key, (), np.int32)
        else:
            to.reserve(key, (len(key.columns),), np.float32 if key in single else np.float64)
        if encoding.missing:
            to.reserve(("mask", key.columns), (), bool)
        for base in encoding.bases:
            to.reserve(base, (), np.float64)
    for first, part in table.chunks(start, stop, slots.wants()):
        levels = levels_of(part, first, bound)
        for name, to in kept.items():
            if name not in bags:
                to.move(first - start, levels[name])
        for name, bag in bags.items():
            sequences[name].extend(bag.documents(levels[name]), bag.key, counts_key(name))
        for key, encoding in plain.items():
            columns, to = levels[key.sequence].columns, kept[key.sequence]
            raw = codes[key].of(columns[key.columns[0]]) if key in codes else numbers(columns, key.columns)
            if encoding.missing:
                to.put(("mask", key.columns), ~missing(columns, key))
            for base in encoding.bases:
                to.put(base, _base(leaves[base], raw))
            to.put(key, raw if key in single or key in codes else encoded(encoding, raw))
        if slots.weight is not None:
            rows.put(WEIGHT, part[slots.weight])
        table.release(first)
    alone = {name: {k: e for k, e in single.items() if k.sequence == name} for name in kept}
    steps = {name: EncodedSteps(to.offsets(), to.arrays(), alone[name]) for name, to in sequences.items()}
    return EncodedRows(start, n, rows.arrays(), alone[""], steps)


class _Rows:
    """Arrays of so many rows, filled chunk by chunk."""

    def __init__(self, n: int):
        self._n = n
        self._arrays: dict[Hashable, np.ndarray] = {}

    def reserve(self, key, shape: tuple[int, ...], dtype) -> None:
        self._arrays[key] = np.empty((*shape, self._n), dtype)

    def move(self, at: int, level: Level) -> None:
        self._own = slice(at, at + level.n)

    def put(self, key, values: np.ndarray) -> None:
        self._arrays[key][..., self._own] = values

    def arrays(self) -> dict:
        return self._arrays


class _Steps:
    """Arrays of steps, whose number is known at the end: each in parts until then."""

    def __init__(self):
        self._parts: dict[Hashable, list[np.ndarray]] = {}
        self._lengths = [np.zeros(1, np.int64)]

    def reserve(self, key, shape: tuple[int, ...], dtype) -> None:
        self._parts[key] = [np.empty((*shape, 0), dtype)]

    def move(self, at: int, level: Level) -> None:
        if level.offsets is None:
            raise TypeError("steps have offsets")
        self._lengths.append(np.diff(level.offsets))

    def extend(self, documents: Iterable[Documents], words, counts) -> None:
        """Add documents, under the keys of their words and counts."""
        for part in documents:
            self._lengths.append(np.diff(part.offsets))
            self._parts[words].append(part.words)
            self._parts[counts].append(part.counts)

    def put(self, key, values: np.ndarray) -> None:
        self._parts[key].append(np.asarray(values, self._parts[key][0].dtype))

    def offsets(self) -> np.ndarray:
        return np.cumsum(np.concatenate(self._lengths))

    def arrays(self) -> dict:
        return {key: np.concatenate(self._parts.pop(key), axis=-1) for key in list(self._parts)}


class _Codes:
    """Codes of a column of labels in the sorted levels; what they become is worked out when the levels change."""

    def __init__(self, encoding: Encoding):
        self.encoding = encoding
        self.levels: list | None = None

    def of(self, labels: Labels) -> np.ndarray:
        if labels.levels is not self.levels:
            self.levels = labels.levels
            self.to = self.encoding.encode_labels(np.arange(-1, len(self.levels)), self.levels)
        return self.to[labels.codes + 1]


def _base(family: Family, raw: np.ndarray) -> np.ndarray:
    """Log base measure (n,), -1e300 outside the support, 0 where missing."""
    if isinstance(family, Categorical):
        return family.base(raw)
    present = np.isfinite(raw).all(axis=0)
    inside = family.support(raw)
    use = present if inside is None else present & inside
    base = np.where(present, LOG_ZERO, 0.0)
    values = family.base(raw[:, use])
    base[use] = 0.0 if values is None else values
    return base


def observed_rows(bound: Bindings, rows: EncodedRows) -> np.ndarray | None:
    """How much of each row (n,) is observed: whether anything is or, of sequences, in how many steps at most, of bags
    how many words; None when all rows are and hold no sequences."""
    masks: list = [rows.arrays.get(("mask", key.columns)) for key in bound if not key.sequence]
    if rows.sequences:
        counts = [_observed_steps(bound, name, steps) for name, steps in rows.sequences.items()]
        return np.maximum.reduce(counts)
    if not masks or any(m is None for m in masks):
        return None
    return np.logical_or.reduce(masks)


def _observed_steps(bound: Bindings, name: str, steps: EncodedSteps) -> np.ndarray:
    """Steps of each row (n,) with anything observed; of a bag the sum of its counts."""
    counts = steps.arrays.get(counts_key(name))
    if counts is not None:
        return sums_of_sequences(counts[None], steps.offsets)[0]
    masks: list = [steps.arrays.get(("mask", key.columns)) for key in bound if key.sequence == name]
    if any(m is None for m in masks):
        return np.diff(steps.offsets)
    seen = np.concatenate([[0], np.cumsum(np.logical_or.reduce(masks))])
    return np.diff(seen[steps.offsets])
