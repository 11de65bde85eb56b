"""Opening what a user calls data: files by name, or something in memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import DataError, nearest
from mixle_mpi.data.files import expanded, paths_of, suffix_of
from mixle_mpi.data.memory import MemoryTable, columns_of
from mixle_mpi.data.ragged import Ragged
from mixle_mpi.data.table import SEQUENCE, Table, on_first, together


@dataclass(frozen=True)
class Opened:
    """Data whose columns are known: `names`, and `read`, which takes column -> kind and returns the table.

    `read` is collective. `matrix` is that of the table.
    """

    names: tuple[str, ...]
    read: Callable[[dict[str, str]], Table]
    matrix: bool = False


def _csv(paths: list[str], world) -> Opened:
    from mixle_mpi.data.csv import csv_heads, read_csv

    heads = csv_heads(paths, world)
    return Opened(tuple(heads[0].names), lambda wants: read_csv(paths, wants, world, heads=heads))


def _gzip(paths: list[str], world) -> Opened:
    from mixle_mpi.data.gzip_csv import gzip_heads, read_gzip

    heads = gzip_heads(paths, world)
    return Opened(tuple(heads[0].names), lambda wants: read_gzip(paths, wants, world, heads=heads))


def _npy(paths: list[str], world) -> Opened:
    from mixle_mpi.data.npy import open_npy

    return _of_table(open_npy(paths, world))


def _npz(paths: list[str], world) -> Opened:
    from mixle_mpi.data.npz import open_npz

    return _of_table(open_npz(paths, world))


def _parquet(paths: list[str], world, sequences: frozenset[str] = frozenset()) -> Opened:
    from mixle_mpi.data.parquet import open_parquet

    return _of_table(open_parquet(paths, world, sequences))


def _json(
    paths: list[str], world, sequences: frozenset[str] = frozenset(), bags: frozenset[str] = frozenset()
) -> Opened:
    from mixle_mpi.data.json_lines import open_json

    lines = open_json(paths, world, sequences, bags)
    return Opened(lines.names, lines.read)


def _json_gzip(paths: list[str], world, sequences: frozenset[str] = frozenset()) -> Opened:
    return _json(paths, world, sequences)  # a kind of its own: files of both are not one table


def _of_table(table: Table) -> Opened:
    """A table that is there before it is known which columns are wanted, the same on all ranks."""

    def read(wants):
        table.check(wants)
        return table

    return Opened(table.names, read, table.matrix)


READERS: dict[str, Callable[[list[str], Any], Opened]] = {
    ".csv": _csv,
    ".csv.gz": _gzip,
    ".npy": _npy,
    ".npz": _npz,
    ".parquet": _parquet,
    ".pq": _parquet,
    ".jsonl": _json,
    ".ndjson": _json,
    ".jsonl.gz": _json_gzip,
    ".ndjson.gz": _json_gzip,
}


JSON = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
WITH_SEQUENCES = (".parquet", ".pq", *JSON)


def is_path(data) -> bool:
    """Whether data are named rather than given.

    A list of texts may be labels as well: it names files when one of them ends as files do that are read.
    """
    if isinstance(data, (list, tuple)) and data and all(isinstance(item, (str, os.PathLike)) for item in data):
        return any(isinstance(item, os.PathLike) or suffix_of(item, READERS) for item in data)
    return isinstance(data, (str, os.PathLike))


def files_of(data) -> list[str]:
    """The files that a path, a pattern, a directory or a list of these means, in order; all of one kind.

    Raises
    ------
    DataError
        For no files, a kind of file that is not read, and several kinds.
    """
    files = [file for path in paths_of(data) for file in expanded(path, READERS)]
    kinds: dict[Any, Any] = {}
    for file in files:
        suffix = suffix_of(file, READERS)
        if suffix is None:
            raise DataError(f"{file}: files of this kind are not read; read are {', '.join(READERS)}")
        kinds.setdefault(READERS[suffix], file)
    if len(kinds) > 1:
        one, other = list(kinds.values())[:2]
        raise DataError(f"files of several kinds are not one table: {one} and {other}")
    return files


def open_data(
    data, world, local: bool = False, sequences: frozenset[str] = frozenset(), sequence: str | None = None,
    bags: frozenset[str] = frozenset(),
) -> Opened:  # fmt: skip
    """The columns of data, a path or something in memory, which may be the rows of this rank. Collective.

    `sequences` names the columns that hold a sequence in each row, see `columns_of`, and `bags` those of them that are
    bags of words. Where data have one row a step, `sequence` names the column that says of which sequence it is.

    Raises
    ------
    DataError, OSError
        On all ranks, when the kind of file or object is not known or it cannot be opened.
    """
    if sequence is not None:
        return _long(open_data(data, world, local), sequence, world)
    if not is_path(data):
        table = table_in_memory(data, world, local, sequences)

        def read(wants):
            together(world, lambda: table.check(wants))
            return table

        return Opened(table.names, read)
    files = on_first(world, lambda: files_of(data))
    suffix = suffix_of(files[0], READERS)
    if suffix in JSON:
        opened = _json(files, world, sequences, bags)
    elif suffix in WITH_SEQUENCES:
        opened = _parquet(files, world, sequences)
    else:
        opened = READERS[suffix](files, world)
    return opened if suffix in WITH_SEQUENCES or opened.matrix else _without_sequences(opened, files[0], suffix)


def _without_sequences(opened: Opened, path: str, suffix: str) -> Opened:
    """Data of a kind of file whose columns hold no sequences."""

    def read(wants):
        for name, want in wants.items():
            if want.startswith(SEQUENCE):
                raise DataError(f"{path}: column {name!r} cannot hold sequences in a {suffix} file; "
                                f"lists are read from {', '.join(WITH_SEQUENCES)} files; where a row is one step, "
                                "`sequence` names the column that says of which sequence")  # fmt: skip
        return opened.read(wants)

    return Opened(opened.names, read)


def _long(opened: Opened, sequence: str, world) -> Opened:
    """Data with one row a step as sequences; the column that tells them apart is none of theirs."""
    if sequence not in opened.names:
        raise DataError(f"sequence: no column {sequence!r}; {nearest(str(sequence), opened.names)}")
    names = tuple(name for name in opened.names if name != sequence)

    def read(wants):
        from mixle_mpi.data.long import read_long

        return read_long(opened.read, sequence, wants, world)

    return Opened(names, read)


def table_in_memory(data, world, local: bool, sequences: frozenset[str] = frozenset()) -> MemoryTable:
    """The table of data in memory: the same on every rank, or with `local` each rank's own rows. Collective."""
    columns = together(world, lambda: columns_of(data, sequences))
    table = MemoryTable(columns)
    if not local:
        return table
    everyone = world.allgather((table.rows, table.names, bool(without_steps(columns))))
    # a rank without rows, or without steps, may not know the names: it takes those of the others
    known = [names for rows, names, empty in everyone if rows and not empty]
    names = next(iter(known or [names for rows, names, _ in everyone if rows]), table.names)
    columns = with_steps(columns, names)
    for rank, other in enumerate(world.allgather(tuple(columns))):
        if everyone[rank][0] and other != names:
            raise DataError(
                f"the ranks bring different columns: {', '.join(names)}, but rank {rank} {', '.join(other)}"
            )
    steps = world.allgather({name: int(c.offsets[-1]) for name, c in columns.items() if isinstance(c, Ragged)})
    if not table.rows:
        ragged = {name for found in steps for name in found}
        columns = {name: np.empty(0, dtype=object) for name in names}
        columns |= {name: Ragged(np.empty(0, dtype=object), np.zeros(1, np.int64)) for name in ragged}
    counts = [rows for rows, _, _ in everyone]
    table = MemoryTable(columns, sum(counts[: world.rank]), sum(counts))
    table.step_counts = {name: sum(found.get(name, 0) for found in steps) for name in columns}
    return table


def without_steps(columns: dict) -> tuple[str, ...]:
    """The columns of sequences of which none has a step: of how many columns steps are is not known there."""
    return tuple(name for name, c in columns.items() if isinstance(c, Ragged) and not c.offsets[-1])


def with_steps(columns: dict, names: tuple[str, ...]) -> dict:
    """Columns under the names that others know, where sequences have no steps that would tell them."""
    empty, new = without_steps(columns), [name for name in names if name not in columns]
    alone = tuple(columns) == ("0",)  # rows are sequences themselves
    of_empty = all(alone or name.startswith(tuple(f"{e}{sign}" for e in empty for sign in ".[")) for name in new)
    if not empty or not of_empty or not all(name in names or name in empty for name in columns):
        return columns
    offsets = columns[empty[0]].offsets
    return {name: columns.get(name, Ragged(np.empty(0, dtype=object), offsets)) for name in names}
