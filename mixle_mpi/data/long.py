"""Tables with one row a step, and a column that says which sequence a row belongs to.

Consecutive rows with one value there are the steps of a sequence. Every rank reads a share of the rows and cuts it into
runs of one value; what a rank reads of a sequence that began on another one goes there. What comes out is a table with
one row a sequence, as any other.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from mixle_mpi.contract.columns import label_key
from mixle_mpi.contract.errors import DataError, ModelError
from mixle_mpi.data.held import HeldTable
from mixle_mpi.data.memory import MemoryTable
from mixle_mpi.data.ragged import Ragged, joined
from mixle_mpi.data.table import SEQUENCE, Labels, Table, together


class Runs(NamedTuple):
    """Consecutive rows of one value among the rows of a rank: the first row of each (runs,) int64, counted from 0 on
    the rank, their values, and a digest of each, (runs, 2) int64."""

    starts: np.ndarray
    values: list
    digests: np.ndarray


class Share(NamedTuple):
    """What all ranks know of the rows of one of them: how many, its runs, and the digests of the first and the last."""

    rows: int
    runs: int
    first: tuple
    last: tuple


class LongTable(MemoryTable):
    """The sequences of one rank in memory. Messages name the rows of the table that they were read from.

    `starts` (n + 1,) int64 are the rows there at which the sequences begin, `values` (n) what they are called.
    """

    def __init__(self, columns: dict, wants: dict[str, str], first: int, total: int, source: Table, starts: np.ndarray,
                 values: list, world):  # fmt: skip
        super().__init__(columns, first, total)
        self._converted = {(name, want): columns[name] for name, want in wants.items()}
        self.source, self.starts, self.values, self.world = source, starts, values, world

    def where(self, row, note=""):
        """See `Table.where`; of a row that this rank has."""
        return self.source.where(int(self.starts[row - self.first]), note)

    def place(self, row, step, note=""):
        """See `Table.place`."""
        text = None
        if self.first <= row < self.first + self.rows:
            own = row - self.first
            notes = [note] * bool(note) + [f"step {max(step, 0)} of {self.values[own]!r}"]
            text = self.source.where(int(self.starts[own]) + max(step, 0), "; ".join(notes))
        return next(found for found in self.world.allgather(text) if found is not None)

    def close(self):
        """See `Table.close`."""
        super().close()
        self.columns, self.rows = {}, 0


def read_long(read, column: str, wants: dict[str, str], world) -> LongTable:
    """The wanted columns of sequences of steps, those that are no "sequence of" anything once for each sequence.

    Collective.

    Parameters
    ----------
    read : takes column -> kind and returns the table of the steps, see `Opened`
    column : of the sequence that a row belongs to

    Raises
    ------
    ModelError
        When the model wants no sequences.
    DataError
        On all ranks: a row without a value in the column; a value that comes back after others; a column that is to be
        one value a sequence and is not.
    """
    if not any(want.startswith(SEQUENCE) for want in wants.values()):
        raise ModelError(f"sequence = {column!r}: the model has no sequence or hidden_markov that would read it")
    flat = {name: want.removeprefix(SEQUENCE) for name, want in wants.items()}
    table = read(flat | {column: "text"})
    start, stop = table.first, table.first + table.rows
    if table.everywhere:
        start, stop = (table.total * rank // world.size for rank in (world.rank, world.rank + 1))
    held = HeldTable(flat)
    runs = together(world, lambda: _own_runs(table, held, column, start, stop))
    shares = world.allgather(_share(held.rows, runs))
    goes_to = owners(shares)
    continued = goes_to[world.rank] != world.rank
    check_once(runs, int(continued), start, table, column, world)
    moved = (int(runs.starts[1]) if len(runs.starts) > 1 else held.rows) if continued else 0
    arrays = _moved(held, moved, goes_to, world)
    n = len(next(iter(arrays.values())))
    offsets = np.append(runs.starts[int(continued) :] - moved, n)
    starts, values = start + moved + offsets, runs.values[int(continued) :]
    columns: dict = {name: held.labelled(name, arrays[name]) for name in wants}
    scalars = [name for name, want in wants.items() if not want.startswith(SEQUENCE)]
    together(world, lambda: _check_constant(columns, scalars, offsets, start + moved, table, column, values))
    for name in columns:
        columns[name] = _firsts(columns[name], offsets[:-1]) if name in scalars else Ragged(columns[name], offsets)
    counts = world.allgather((len(values), n))
    first, total = sum(own for own, _ in counts[: world.rank]), sum(own for own, _ in counts)
    found = LongTable(columns, wants, first, total, table, starts, values, world)
    found.step_counts = {name: sum(steps for _, steps in counts) for name in columns if name not in scalars}
    table.close()
    return found


def _own_runs(table: Table, held: HeldTable, column: str, start: int, stop: int) -> Runs:
    """The runs of the rows `start` to `stop`, whose other columns go to `held`."""
    starts, values = [], []
    last: tuple = ()
    for first, part in table.chunks(start, stop, held.wants | {column: "text"}):
        labels = part.pop(column)
        if (labels.codes < 0).any():
            where = table.where(first + int(np.argmax(labels.codes < 0)), "the first is 0")
            raise DataError(f"{where}, column {column!r}: the value is missing, which says of what sequence the row is")
        for at in np.flatnonzero(np.diff(labels.codes, prepend=-1)).tolist():
            value = labels.levels[labels.codes[at]]
            if label_key(value) != last:  # two codes of one chunk, and of two, may be one label
                last = label_key(value)
                starts.append(first - start + at)
                values.append(value)
        held.append(part)
        table.release(first)
    return Runs(np.array(starts, np.int64), values, digests_of(values))


def digests_of(values: list) -> np.ndarray:
    """128 bits (n, 2) int64 of each label, the same on every rank: two labels with one digest will not be met."""
    texts = (repr(label_key(value)).encode(errors="surrogatepass") for value in values)
    joint = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
    return np.frombuffer(joint, "<i8").astype(np.int64).reshape(-1, 2)


def _share(rows: int, runs: Runs) -> Share:
    ends = [tuple(digest) for digest in runs.digests[[0, -1]].tolist()] if rows else [(), ()]
    return Share(rows, len(runs.values), *ends)


def owners(shares: list[Share]) -> list[int]:
    """For each rank the rank at which its first run began: its own, or one before."""
    found, began, last = [], 0, None
    for rank, share in enumerate(shares):
        continues = share.rows > 0 and share.first == last
        found.append(began if continues else rank)
        if share.runs > int(continues):  # its last run began here
            began = rank
        last = share.last if share.rows else last
    return found


def check_once(runs: Runs, skipped: int, start: int, table: Table, column: str, world) -> None:
    """Refuse a value that comes back after other values. Collective.

    Parameters
    ----------
    skipped : runs of this rank, 1 or 0, that began on another one
    start : row of the table at which the runs are counted from

    Each value is looked at by one rank, which its digest says.
    """
    rows, digests = runs.starts[skipped:] + start, runs.digests[skipped:]
    to = (digests[:, 0] & 0x7FFFFFFF) % world.size
    order = np.argsort(to, kind="stable")
    borders = np.searchsorted(to[order], np.arange(1, world.size))
    sent = [np.split(np.ascontiguousarray(part[order]), borders) for part in (digests[:, 0], digests[:, 1], rows)]
    one, other, at = (np.concatenate(world.alltoall(parts)) for parts in sent)
    order = np.lexsort((at, other, one))
    one, other, at = one[order], other[order], at[order]
    again = at[1:][(one[1:] == one[:-1]) & (other[1:] == other[:-1])]
    none = np.iinfo(np.int64).max
    least = np.array([again.min() if len(again) else none])
    world.allreduce(least, "min")

    def refuse():
        own = np.flatnonzero(rows == least[0])
        if len(own):
            where, value = table.where(int(least[0]), "the first is 0"), runs.values[skipped + int(own[0])]
            raise DataError(f"{where}, column {column!r}: {value!r} comes back after other values; the rows of a "
                            "sequence follow each other: sort the data by that column")  # fmt: skip

    if least[0] != none:
        together(world, refuse)


def _moved(held: HeldTable, moved: int, goes_to: list[int], world) -> dict[str, np.ndarray]:
    """Numbers or codes of each column of the sequences that begin on this rank; the first `moved` rows that it read go
    to the rank where their sequence began. Collective. Empties `held`, whose levels are those of the codes then.

    Column by column, so that at most one is held twice.
    """
    arrays: dict[str, np.ndarray] = {}
    single = _single(held, world)
    moves = any(to != rank for rank, to in enumerate(goes_to))
    for name, want in held.wants.items():
        kind = np.int32 if want != "number" else np.float32 if name in single else np.float64
        own = joined([np.empty(0, kind), *(part.astype(kind, copy=False) for part in held.pieces.pop(name))])
        if moves:
            sent = own[:moved].view(np.int32) if own.dtype == np.float32 else own[:moved]
            used = np.unique(sent[sent >= 0]) if want != "number" else np.empty(0, np.int32)
            if want != "number":
                sent = np.where(sent < 0, -1, np.searchsorted(used, sent)).astype(np.int32)
            got = world.alltoall([sent if rank == goes_to[world.rank] else sent[:0] for rank in range(world.size)])
            if want != "number":
                levels = world.allgather([held.levels[name][code] for code in used])
                got = [held.recoded(name, Labels(codes, theirs)) for codes, theirs in zip(got, levels) if len(codes)]
            own = np.concatenate([own[moved:], *(part.view(own.dtype) for part in got)])
        arrays[name] = own
    return arrays


def _single(held: HeldTable, world) -> set[str]:
    """The columns of numbers that are float32 wherever there are rows. Collective."""
    numbers = [name for name, want in held.wants.items() if want == "number"]
    kinds = {name: {part.dtype.char for part in held.pieces[name]} for name in numbers}
    everyone = world.allgather(kinds)
    return {name for name in numbers if set().union(*(own[name] for own in everyone)) == {"f"}}


def _check_constant(columns: dict, names: list[str], offsets: np.ndarray, first: int, table: Table, column: str,
                    values: list) -> None:  # fmt: skip
    """Refuse columns that are not one value in each sequence, whose rows are at `offsets` (n + 1,) from `first` on."""
    found: list[tuple[int, str]] = []
    of = np.repeat(np.arange(len(values)), np.diff(offsets))
    for name in names:
        own = columns[name]
        flat = own.codes if isinstance(own, Labels) else own
        start = flat[offsets[:-1]][of]
        other = flat != start
        if flat.dtype.kind == "f":
            other &= ~(np.isnan(flat) & np.isnan(start))
        if other.any():
            found.append((int(np.argmax(other)), name))
    if found:
        at, name = min(found)
        begin = int(offsets[of[at]])
        here, there = (_shown(columns[name], place) for place in (at, begin))
        raise DataError(f"{table.where(first + at, 'the first is 0')}, column {name!r}: {here}, but {there} where the "
                        f"sequence {values[of[at]]!r} begins, {table.where(first + begin)}; what is read beside "
                        f"sequences is one value for each {column!r}")  # fmt: skip


def _shown(column, at: int) -> str:
    if isinstance(column, Labels):
        return "nothing" if column.codes[at] < 0 else repr(column.levels[column.codes[at]])
    return "nothing" if np.isnan(column[at]) else f"{column[at]:g}"


def _firsts(column, rows: np.ndarray):
    """Some rows (k,) of a flat column."""
    return Labels(column.codes[rows], column.levels) if isinstance(column, Labels) else column[rows]
