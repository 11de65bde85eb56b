"""From columns as read to the arrays that kernels read."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.columns import SHIFTED, Encoding, SlotKey
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Bindings, Node
from mixle_mpi.data.bind import WEIGHT, Slots, missing, numbers, transformed
from mixle_mpi.data.table import Labels, Table
from mixle_mpi.families.categorical import Categorical
from mixle_mpi.kernels.elementary import LOG_ZERO


class EncodedRows:
    """The encoded rows of one data shard, in memory: the source that tiles are asked from.

    Numbers that came as float32 are kept as they came, NaN where missing, in half the memory, and encoded
    whenever a tile asks for them: shifted and scaled in float32 they would lose digits. `single` holds the
    encoding of each of these slots.
    """

    def __init__(self, first: int, n: int, arrays: dict, single: dict[SlotKey, Encoding] | None = None):
        self.first = first
        self.n = n
        self.arrays = arrays
        self.single = single or {}

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
        return sum(a.nbytes for a in self.arrays.values())


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
    single = {key: encoding for key, encoding in bound.items() if slots.slots[key].single}
    codes = {key: _Codes(encoding) for key, encoding in bound.items() if key.kind == "label"}
    arrays: dict = {}
    for key, encoding in bound.items():
        if key in codes:
            arrays[key] = np.empty(n, np.int32)
        else:
            arrays[key] = np.empty((len(key.columns), n), np.float32 if key in single else np.float64)
        if encoding.missing:
            arrays["mask", key.columns] = np.empty(n, bool)
        for base in encoding.bases:
            arrays[base] = np.empty(n)
    if slots.weight is not None:
        arrays[WEIGHT] = np.empty(n)
    for first, part in table.chunks(start, stop, slots.wants()):
        at = first - start
        for key, encoding in bound.items():
            if key in codes:
                raw = codes[key].of(part[key.columns[0]])
                own = slice(at, at + len(raw))
                arrays[key][own] = raw
            else:
                raw = numbers(part, key.columns)
                own = slice(at, at + raw.shape[1])
            if encoding.missing:
                arrays["mask", key.columns][own] = ~missing(part, key)
            for base in encoding.bases:
                arrays[base][own] = _base(leaves[base], raw)
            if key not in codes:
                arrays[key][:, own] = raw if key in single else encoded(encoding, raw)
        if slots.weight is not None:
            arrays[WEIGHT][at : at + len(part[slots.weight])] = part[slots.weight]
        table.release(first)
    return EncodedRows(start, n, arrays, single)


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
    """Which rows (n,) have anything observed; None when all have."""
    masks: list = [rows.arrays.get(("mask", key.columns)) for key in bound]
    if not masks or any(m is None for m in masks):
        return None
    return np.logical_or.reduce(masks)
