"""From columns as read to the arrays that kernels read: summarise, bind, encode.

`summarise` looks at every row once and merges over ranks; `check` refuses what cannot be used, with
the same message on every rank; `bindings` makes the encodings; `encode` fills the arrays.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from mixle_mpi.contract.columns import Encoding, Fault, SlotKey, Summary, bind_encoding, label_key
from mixle_mpi.contract.errors import DataError, ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Bindings, Node
from mixle_mpi.data.table import Labels, Table
from mixle_mpi.families.categorical import Categorical
from mixle_mpi.kernels.elementary import LOG_ZERO
from mixle_mpi.models.optional import Optional

WEIGHT = "weight"  # key of the column of sample weights


@dataclass
class Slot:
    """Columns that leaves read in one way; `families` by base key; `required` when one must be present."""

    key: SlotKey
    families: dict[tuple, Family] = field(default_factory=dict)
    required: bool = False


@dataclass
class Slots:
    """All slots of a placed model, and the groups of them that an Optional wants missing together."""

    slots: dict[SlotKey, Slot] = field(default_factory=dict)
    together: set[tuple[SlotKey, ...]] = field(default_factory=set)

    def wants(self) -> dict[str, str]:
        """Column -> "number", "text" or "integer"."""
        wants: dict[str, str] = {}
        for slot in self.slots.values():
            want = "number"
            if slot.key.kind == "label":
                declared = [v for f in slot.families.values() for v in (f.levels or ())]
                integer = bool(declared) and all(isinstance(v, int) and not isinstance(v, bool) for v in declared)
                want = "integer" if integer else "text"
            for column in slot.key.columns:
                if wants.setdefault(column, want) != want:
                    raise ModelError(f"column {column!r} is read as {wants[column]} and as {want}")
        return wants


def slots_of(placed: Node) -> Slots:
    """The slots that a placed model reads."""
    found = Slots()

    def visit(node: Node, optional: bool) -> None:
        if isinstance(node, Family):
            slot = found.slots.setdefault(node.slot_key, Slot(node.slot_key))
            slot.families.setdefault(node.base_key, node)
            slot.required |= not optional
        if isinstance(node, Optional):
            keys = {n.slot_key for n in node.of.walk() if isinstance(n, Family)}
            if len({k.columns for k in keys}) > 1:
                found.together.add(tuple(sorted(keys, key=lambda k: (k.columns, k.kind))))
        for _, child in node.roles():
            visit(child, optional or isinstance(node, Optional))

    visit(placed, False)
    return found


def _numbers(part: dict, columns: tuple[str, ...]) -> np.ndarray:
    """The columns of a chunk as (d, n) float64."""
    return np.stack([np.asarray(part[c], dtype=np.float64) for c in columns])


def _missing(part: dict, key: SlotKey) -> np.ndarray:
    """Which rows (n,) of a chunk have nothing in the slot's first column."""
    column = part[key.columns[0]]
    return column.codes < 0 if isinstance(column, Labels) else np.isnan(column)


def summarise(slots: Slots, table: Table, start: int, stop: int, world) -> dict[SlotKey, Summary]:
    """Merged summaries of all rows, of which this rank looks at `start` to `stop`. Collective.

    Source: moments merge as in Chan, Golub, LeVeque (1983).
    """
    local = {key: Summary(len(key.columns)) for key in slots.slots}
    problem = None
    try:
        for first, part in table.chunks(start, stop, slots.wants()):
            for key, slot in slots.slots.items():
                _add_chunk(local[key], slot, part, first, table.total)
            for keys in slots.together:
                _add_together(local[keys[0]], keys, part, first)
    except DataError as error:
        problem = str(error)
    gathered = world.allgather((problem, local))
    for message, _ in gathered:
        if message:
            raise DataError(message)
    merged = {key: Summary(len(key.columns)) for key in slots.slots}
    for _, summaries in gathered:
        for key, summary in summaries.items():
            merged[key].merge(summary)
    return merged


def _add_chunk(summary: Summary, slot: Slot, part: dict, first: int, total: int) -> None:
    columns = slot.key.columns
    if slot.key.kind == "label":
        labels = part[columns[0]]
        summary.add_labels(labels.codes, labels.levels, first, columns)
        return
    x = _numbers(part, columns)
    summary.add_numbers(x, first, total, columns)
    for key, family in slot.families.items():
        outside = _outside(family, x)
        if outside is not None and outside.any():
            at = int(np.argmax(outside))
            summary.fault(repr(key)).add(int(outside.sum()), first + at, columns[0], f"{x[0, at]:g}")


def _outside(family: Family, x: np.ndarray) -> np.ndarray | None:
    """Rows (n,) that are finite but outside the family's support, or None when it has all numbers."""
    inside = family.support(x)
    return None if inside is None else ~inside & np.isfinite(x).all(axis=0)


def _add_together(summary: Summary, keys: tuple[SlotKey, ...], part: dict, first: int) -> None:
    absent = np.stack([_missing(part, key) for key in keys])
    some = absent.any(axis=0) & ~absent.all(axis=0)
    if some.any():
        at = int(np.argmax(some))
        column = keys[int(np.argmax(absent[:, at]))].columns[0]
        summary.fault("partly missing").add(int(some.sum()), first + at, column, "nothing")


def check(slots: Slots, summaries: dict[SlotKey, Summary], strict: bool, name: str = "") -> None:
    """Refuse rows that cannot be used. With `strict` (a fit) also those that no leaf can explain.

    Raises DataError that names the first row, its column and value, and the counts by column.
    """
    problems: list[tuple[Fault, str]] = []
    kinds: dict[tuple[str, ...], set[str]] = {}
    for key, slot in slots.slots.items():
        kinds.setdefault(key.columns, set()).update(f.type_name() for f in slot.families.values())
    for key, slot in slots.slots.items():
        faults = summaries[key].faults
        for reason, text in (
            ("infinite", "is not finite"),
            ("partly missing", "is missing, but not all columns that belong together are"),
        ):
            if reason in faults:
                problems.append((faults[reason], text))
        if slot.required and "missing" in faults:
            problems.append((faults["missing"], "is missing; wrap the model of a column in optional to allow that"))
        if strict and len(kinds[key.columns]) == 1:
            for base_key, family in slot.families.items():
                if repr(base_key) in faults:
                    problems.append((faults[repr(base_key)], f"is not in the support of {family.type_name()} "
                                                             f"({family.support_text()})"))  # fmt: skip
    if not problems:
        return
    fault, text = min(problems, key=lambda p: p[0].row)
    value = "the value" if fault.value == "nothing" else fault.value
    counts: dict[str, int] = {}
    for other, _ in problems:
        counts[other.column] = counts.get(other.column, 0) + other.count
    many = ", ".join(f"{c}: {n}" for c, n in sorted(counts.items()))
    where = f"{name}: " if name else ""
    raise DataError(f"{where}row {fault.row} (the first is 0), column {fault.column!r}: {value} {text}; "
                    f"rows refused by column: {many}")  # fmt: skip


def bindings(slots: Slots, summaries: dict[SlotKey, Summary], warn: bool = False,
             centre: bool = True) -> Bindings:  # fmt: skip
    """The encoding of each slot. Leaves of a model fitted earlier keep shift, scale and levels."""
    bound: Bindings = {}
    for key, slot in slots.slots.items():
        summary = summaries[key]
        kept = next((f.encoding for f in slot.families.values() if f.encoding is not None), None)
        levels = None
        if key.kind == "label":
            levels = _declared_levels(key, slot)
        encoding = bind_encoding(key, summary, kept, levels, centre=centre)
        bases = frozenset(k for k, f in slot.families.items() if _needs_base(f, k, summary, encoding))
        bound[key] = bind_encoding(key, summary, kept, levels, bases, centre)
        if warn and key.kind == "centred" and summary.observed and (summary.low == summary.high).any():
            column = key.columns[int(np.argmax(summary.low == summary.high))]
            warnings.warn(f"column {column!r} is constant: its variance is set to the floor", stacklevel=2)
    return bound


def _declared_levels(key: SlotKey, slot: Slot) -> tuple | None:
    declared = {f.levels for f in slot.families.values() if isinstance(f, Categorical) and f.levels is not None}
    if len(declared) > 1:
        raise ModelError(f"column {key.columns[0]!r}: categorical leaves declare different levels")
    return declared.pop() if declared else None


def _needs_base(family: Family, key: tuple, summary: Summary, encoding: Encoding) -> bool:
    if isinstance(family, Categorical):
        known = {label_key(v) for v in encoding.levels}
        return any(label not in known for label in summary.counts)
    return repr(key) in summary.faults or family.base(np.ones((len(key[1]), 0))) is not None


class EncodedRows:
    """The encoded rows of one data shard, in memory: the source that tiles are asked from."""

    def __init__(self, first: int, n: int, arrays: dict):
        self.first = first
        self.n = n
        self.arrays = arrays

    def column(self, key, start: int, stop: int) -> np.ndarray | None:
        values = self.arrays.get(key)
        return None if values is None else values[..., start:stop]

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays.values())


def encode(slots: Slots, bound: Bindings, model: Node, table: Table, start: int, stop: int) -> EncodedRows:
    """The encoded rows `start` to `stop` of a table."""
    n = stop - start
    leaves = {f.base_key: f for f in model.walk() if isinstance(f, Family)}
    arrays: dict = {}
    for key, encoding in bound.items():
        label = key.kind == "label"
        arrays[key] = np.empty(n, np.int32) if label else np.empty((len(key.columns), n))
        if encoding.missing:
            arrays["mask", key.columns] = np.empty(n, bool)
        for base in encoding.bases:
            arrays[base] = np.empty(n)
    for first, part in table.chunks(start, stop, slots.wants()):
        for key, encoding in bound.items():
            _encode_chunk(key, encoding, part, first - start, arrays, leaves)
    return EncodedRows(start, n, arrays)


def _encode_chunk(key, encoding: Encoding, part: dict, at: int, arrays: dict, leaves: dict) -> None:
    if key.kind == "label":
        labels = part[key.columns[0]]
        raw = encoding.encode_labels(labels.codes, labels.levels)
        own = slice(at, at + len(raw))
        arrays[key][own] = raw
    else:
        raw = _numbers(part, key.columns)
        own = slice(at, at + raw.shape[1])
        arrays[key][:, own] = encoding.encode_numbers(raw)
    if encoding.missing:
        arrays["mask", key.columns][own] = ~_missing(part, key)
    for base in encoding.bases:
        arrays[base][own] = _base(leaves[base], raw)


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


def column_names(keys: Iterable[SlotKey]) -> list[str]:
    """All columns that slots read, once each."""
    return list(dict.fromkeys(c for key in keys for c in key.columns))
