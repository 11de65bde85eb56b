"""What the data say about the columns that a model reads: summarise, check, bind.

`summarise` looks at every row once and merges over ranks; `check` refuses what cannot be used, with
the same message on every rank; `bindings` makes the encodings.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace

import numpy as np

from mixle_mpi.contract.blocks import block_of, num_blocks
from mixle_mpi.contract.columns import CHECKED, Encoding, Fault, SlotKey, Summary, bind_encoding, label_key
from mixle_mpi.contract.errors import DataError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Bindings
from mixle_mpi.data.bags import BagTally, shown_number, united
from mixle_mpi.data.ragged import Level, levels_of, row_and_step
from mixle_mpi.data.slots import WEIGHT, Slot, Slots, alike_slots, bag_columns, declared_levels, kept_encoding
from mixle_mpi.data.table import Labels, Table, agree
from mixle_mpi.families.bag import Words
from mixle_mpi.families.categorical import Categorical


def numbers(part: dict, columns: tuple[str, ...]) -> np.ndarray:
    """The columns of a chunk as (d, n) float64, a copy."""
    x = np.empty((len(columns), len(part[columns[0]])))
    for own, column in zip(x, columns):
        own[:] = part[column]
    return x


def missing(part: dict, key: SlotKey) -> np.ndarray:
    """Which rows (n,) of a chunk have nothing in the slot's first column."""
    column = part[key.columns[0]]
    return column.codes < 0 if isinstance(column, Labels) else np.isnan(column)


def transformed(key: SlotKey, x: np.ndarray) -> np.ndarray:
    """Numbers x (d, n) on the scale on which the slot is encoded, overwritten.

    The logarithm of a number that has none is 0: such a row is outside the support, and not scored by it.
    """
    if key.kind == "logarithm":
        none = x <= 0
        np.log(x, out=x, where=x > 0)
        x[none] = 0.0
    return x


class _Tally:
    """Rows by label, added to a summary when the levels change and at the end: levels may be many."""

    def __init__(self, summary: Summary, column: str):
        self.summary, self.column = summary, column
        self.levels: list = []
        self.counts = np.empty(0, np.int64)

    def add(self, labels: Labels, rows: np.ndarray) -> None:
        counts = np.bincount(labels.codes + 1, minlength=len(labels.levels) + 1)  # those missing first
        if counts[0]:
            at = int(rows[np.argmax(labels.codes < 0)])
            self.summary.fault("missing").add(int(counts[0]), at, self.column, "nothing")
        if labels.levels is not self.levels:
            self.finish()
            self.levels, self.counts = labels.levels, np.zeros(len(counts), np.int64)
        self.counts += counts

    def finish(self) -> None:
        missing, observed = int(self.counts[:1].sum()), self.counts[1:]
        self.summary.missing += missing
        self.summary.observed += int(observed.sum())
        counts = self.summary.counts
        for i in np.flatnonzero(observed):
            label = label_key(self.levels[i])
            counts[label] = counts.get(label, 0) + int(observed[i])


def summarise(slots: Slots, table: Table, start: int, stop: int, world) -> dict[SlotKey | str, Summary]:
    """Merged summaries of all rows, of which this rank looks at `start` to `stop`; `WEIGHT` is that of weights.

    Sets `single` of the slots. Collective.

    Source: moments merge as in Chan, Golub, LeVeque (1983).
    """

    steps = np.zeros(num_blocks(table.total) if any(key.sequence for key in slots.slots) else 0, np.int64)
    bags = {name: BagTally(columns) for name, columns in bag_columns(slots, table.matrix).items()}

    def own():
        return _summaries(slots, bags, table, start, stop, steps)

    gathered = agree(world, own)
    merged: dict[SlotKey | str, Summary] = {key: Summary(len(key.columns)) for key in slots.slots}
    merged[WEIGHT] = Summary(1)
    slots.steps = steps if len(steps) else None
    if len(steps):
        world.allreduce(steps)
    for summaries, _ in gathered:
        for key, summary in summaries.items():
            merged[key].merge(summary)
    for bag in bags.values():
        if bag.numbered:
            merged[bag.key].words = united(np.flatnonzero(bag.seen), len(bag.seen), world)
    for key, slot in slots.slots.items():
        slot.single = all(key in single for _, single in gathered)
    return merged


def _summaries(slots: Slots, bags: dict[str, BagTally], table: Table, start: int, stop: int,
               steps: np.ndarray) -> tuple[dict, set]:  # fmt: skip
    """Summaries of this rank's rows, and the slots whose numbers all came as float32; added up are the `steps`
    (blocks,) of each block of rows."""
    local = {key: Summary(len(key.columns)) for key in slots.slots} | {WEIGHT: Summary(1)}
    local |= {key: summary for bag in bags.values() for key, summary in bag.summaries.items()}
    plain = {key: slot for key, slot in slots.slots.items() if key.sequence not in bags}
    tallies = {key: _Tally(local[key], key.columns[0]) for key in plain if key.kind == "label"}
    single = {key for key in plain if key.kind != "label"}
    totals = {k.sequence: table.steps(k.columns[0]) if k.sequence else table.total for k in plain}
    for first, part in table.chunks(start, stop, slots.wants()):
        levels = levels_of(part, first, slots.slots)
        for name, level in levels.items():
            if level.offsets is not None:
                lengths = bags[name].add(level) if name in bags else level.lengths
                np.add.at(steps, block_of(levels[""].numbers, table.total), lengths)
        for key, slot in plain.items():
            level = levels[key.sequence]
            if key in tallies:
                tallies[key].add(level.columns[key.columns[0]], level.numbers)
            else:
                _add_chunk(local[key], slot, level, totals[key.sequence])
        single = {k for k in single if all(levels[k.sequence].columns[c].dtype == np.float32 for c in k.columns)}
        for keys in slots.together:
            _add_together(local[keys[0]], keys, levels[keys[0].sequence])
        if slots.weight is not None:
            _add_weights(local[WEIGHT], part[slots.weight], slots.weight, first)
    for tally in tallies.values():
        tally.finish()
    for bag in bags.values():
        bag.finish()
    return local, single


def _add_chunk(summary: Summary, slot: Slot, level: Level, total: int) -> None:
    columns, rows = slot.key.columns, level.numbers
    x = numbers(level.columns, columns)
    for key, family in slot.families.items():
        outside = _outside(family, x)
        if outside is not None and outside.any():
            at = int(np.argmax(outside))
            summary.fault(repr(key)).add(int(outside.sum()), int(rows[at]), columns[0], shown_number(x[0, at]))
    summary.add_numbers(transformed(slot.key, x), rows, total, columns)


def _add_weights(summary: Summary, weights: np.ndarray, column: str, first: int) -> None:
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        value = "nothing" if np.isnan(weights[at]) else f"{weights[at]:g}"
        summary.fault(WEIGHT).add(int(bad.sum()), first + at, column, value)


def _outside(family: Family, x: np.ndarray) -> np.ndarray | None:
    """Rows (n,) that are finite but outside the family's support, or None when it has all numbers."""
    inside = family.support(x)
    return None if inside is None else ~inside & np.isfinite(x).all(axis=0)


def _add_together(summary: Summary, keys: tuple[SlotKey, ...], level: Level) -> None:
    absent = np.stack([missing(level.columns, key) for key in keys])
    some = absent.any(axis=0) & ~absent.all(axis=0)
    if some.any():
        at = int(np.argmax(some))
        column = keys[int(np.argmax(absent[:, at]))].columns[0]
        summary.fault("partly missing").add(int(some.sum()), int(level.numbers[at]), column, "nothing")


def check(slots: Slots, summaries: dict[SlotKey | str, Summary], strict: bool, table: Table) -> None:
    """Refuse rows that cannot be used. With `strict` (a fit) also those that no leaf can explain. Collective.

    Raises DataError that names the first row, its column and value, and the counts by column.
    """
    problems: list[tuple[Fault, str, str]] = []  # with the sequence whose steps it counts
    for fault in summaries[WEIGHT].faults.values():
        problems.append((fault, "is not a weight: weights are finite numbers >= 0", ""))
    readers: dict[tuple[str, ...], set[tuple]] = {}
    for key, slot in slots.slots.items():
        readers.setdefault(key.columns, set()).update(slot.families)
    for key, slot in slots.slots.items():
        faults = summaries[key].faults
        for reason, text in (
            ("infinite", "is not finite"),
            ("partly missing", "is missing, but not all columns that belong together are"),
        ):
            if reason in faults:
                problems.append((faults[reason], text, key.sequence))
        if slot.required and "missing" in faults:
            text = f"is missing; {slot.required}"
            problems.append((faults["missing"], text, key.sequence))
        # what one leaf excludes another may explain
        if key.kind in CHECKED or (strict and len(readers[key.columns]) == 1):
            for base_key, family in slot.families.items():
                if repr(base_key) in faults:
                    text = f"is not in the support of {family.type_name()} ({family.support_text()})"
                    problems.append((faults[repr(base_key)], text, key.sequence))
    if not problems:
        return
    row, step, fault, text = min(((*place_of(f.row, s), f, text) for f, text, s in problems), key=lambda p: p[:2])
    value = "the value" if fault.value == "nothing" else fault.value
    counts: dict[str, int] = {}
    for other, _, _ in problems:
        counts[other.column] = counts.get(other.column, 0) + other.count
    many = ", ".join(f"{c}: {n}" for c, n in sorted(counts.items()))
    raise DataError(f"{table.place(row, step, 'the first is 0')}, column {fault.column!r}: {value} {text}; "
                    f"rows refused by column: {many}")  # fmt: skip


def place_of(number: int, sequence: str) -> tuple[int, int]:
    """Row and step, -1 without one, of what has this number among rows or the steps of a sequence."""
    return row_and_step(number) if sequence else (number, -1)


def bindings(slots: Slots, summaries: dict[SlotKey | str, Summary], warn: bool = False,
             centre: bool = True) -> Bindings:  # fmt: skip
    """The encoding of each slot. Leaves of a model fitted earlier keep shift, scale and levels.

    Slots of tied leaves get one encoding, from all their columns: only then are their parameters one.
    """
    bound: Bindings = {}
    for key, slot in slots.slots.items():
        alike = alike_slots(slots, slot)
        summary = copy.deepcopy(summaries[alike[0].key])
        for other in alike[1:]:
            summary.merge(summaries[other.key])
        kept = kept_encoding(alike)
        levels = declared_levels(key, alike)
        encoding = bind_encoding(key, summary, kept, levels, centre=centre)
        own = summaries[key]
        if key.sequence in slots.bags:
            words = [f for s in alike for f in s.families.values() if isinstance(f, Words)]
            if kept is None and any(f.whole for f in words):
                encoding = replace(encoding, words=np.arange(max(words[0].num_words, len(encoding.levels))))
            bound[key] = replace(encoding, observed=own.observed)
            continue
        bases = frozenset(k for k, f in slot.families.items() if _needs_base(f, k, own, encoding))
        bound[key] = replace(encoding, missing=own.missing, bases=bases)
        if warn and key.kind == "centred" and own.observed and (own.low == own.high).any():
            column = key.columns[int(np.argmax(own.low == own.high))]
            warnings.warn(f"column {column!r} is constant: its variance is set to the floor", stacklevel=2)
    return bound


def _needs_base(family: Family, key: tuple, summary: Summary, encoding: Encoding) -> bool:
    if isinstance(family, Categorical):
        known = {label_key(v) for v in encoding.levels}
        return any(label not in known for label in summary.counts)
    return repr(key) in summary.faults or family.base(np.ones((len(key[1]), 0))) is not None
