"""Opening what a user calls data: a path, or something in memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from mixle_mpi.contract.errors import DataError, nearest
from mixle_mpi.data.memory import MemoryTable, columns_of
from mixle_mpi.data.table import Table, agree, together

READERS = {".csv": "csv", ".npy": "npy"}


def is_path(data) -> bool:
    """Whether data are named rather than given."""
    return isinstance(data, (str, os.PathLike))


def describe_data(data) -> str:
    """The data's name in messages, "" for something in memory."""
    return os.fspath(data) if is_path(data) else ""


def open_named(data, world) -> tuple[tuple[str, ...], object]:
    """Column names, and what `read_table` needs. Collective.

    Raises
    ------
    DataError, OSError
        On all ranks, when the kind of file is not known or it cannot be opened.
    """
    kind = READERS.get(Path(data).suffix.lower())
    if kind is None:
        raise DataError(f"{data}: files of this kind are not read; {nearest(Path(data).suffix, READERS)}")
    if kind == "npy":
        from mixle_mpi.data.npy import open_npy

        table = open_npy(data, world)
        return table.names, table
    from mixle_mpi.data.csv import csv_names

    return agree(world, lambda: tuple(csv_names(data)))[0], None


def read_table(data, opened, wants: dict[str, str], world) -> Table:
    """The table of a path that `open_named` has opened. Collective."""
    if opened is not None:
        return opened
    from mixle_mpi.data.csv import read_csv

    return read_csv(data, wants, world)


def table_in_memory(data, world, local: bool) -> MemoryTable:
    """The table of data in memory: the same on every rank, or with `local` each rank's own rows. Collective."""
    columns = together(world, lambda: columns_of(data))
    table = MemoryTable(columns)
    if not local:
        return table
    everyone = world.allgather((table.rows, table.names))
    # a rank without rows may not know the names: it takes those of the others
    names = next((names for rows, names in everyone if rows), table.names)
    for rank, (rows, other) in enumerate(everyone):
        if rows and other != names:
            theirs = ", ".join(other)
            raise DataError(f"the ranks bring different columns: {', '.join(names)}, but rank {rank} {theirs}")
    if not table.rows:
        columns = {name: np.empty(0, dtype=object) for name in names}
    counts = [rows for rows, _ in everyone]
    return MemoryTable(columns, sum(counts[: world.rank]), sum(counts))
