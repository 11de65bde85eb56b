"""Ranks that are threads, and what they read together."""

from __future__ import annotations

import io
import threading

import numpy as np

from mixle_mpi.data.open import open_data
from mixle_mpi.data.table import Labels
from mixle_mpi.execution.threads import run_on_threads

current = threading.local()


def on_ranks(size, work):
    """The results, or exceptions, of work(world) on `size` ranks."""

    def run(grid):
        current.rank = grid.world.rank
        try:
            return work(grid.world)
        except Exception as error:
            return error

    return run_on_threads(size, 1, run)


def values_of(column):
    """A chunk's column as a list of python values, None where missing."""
    if isinstance(column, Labels):
        assert column.codes.dtype == np.int32
        return [None if code < 0 else column.levels[code] for code in column.codes]
    assert column.dtype in (np.float64, np.float32)
    return [None if np.isnan(value) else value for value in column.tolist()]


def share(table, world):
    """The rows that a rank takes of a table."""
    if not table.everywhere:
        return table.first, table.first + table.rows
    return table.total * world.rank // world.size, table.total * (world.rank + 1) // world.size


def read_all(data, wants, size, chunk=None):
    """Every wanted column of the data as a list, each row read by one of `size` ranks."""

    def work(world):
        table = open_data(data, world).read(wants)
        start, stop = share(table, world)
        columns, row = {name: [] for name in wants}, start
        for first, part in table.chunks(start, stop, wants, chunk):
            assert first == row and list(part) == list(wants)
            lengths = {len(c.codes) if isinstance(c, Labels) else len(c) for c in part.values()}
            assert len(lengths) == 1 and 0 not in lengths
            for name, column in part.items():
                columns[name] += values_of(column)
            row += lengths.pop()
        assert row == stop
        total = table.total
        table.close()
        return columns, total

    results = on_ranks(size, work)
    for result in results:
        if isinstance(result, Exception):
            raise result
    columns = {name: [value for part, _ in results for value in part[name]] for name in wants}
    assert {total for _, total in results} == {len(next(iter(columns.values())))}
    return columns


def refusal(data, wants, size):
    """The one error that all ranks raise, when they open and when they read alike."""

    def work(world):
        from mixle_mpi.data.table import together

        table = open_data(data, world).read(wants)
        return together(world, lambda: list(table.chunks(*share(table, world), wants)))

    errors = on_ranks(size, work)
    assert all(isinstance(error, Exception) for error in errors), errors
    assert {(type(error), str(error)) for error in errors} == {(type(errors[0]), str(errors[0]))}
    return errors[0]


class Watched(io.FileIO):
    """A file that notes (rank, path, position, bytes) of every read."""

    reads = []

    def __init__(self, path, *_, **__):
        super().__init__(path)

    def read(self, size=-1):
        data = super().read(size)
        self.reads.append((current.rank, str(self.name), self.tell() - len(data), len(data)))
        return data

    def readinto(self, buffer):
        self.reads.append((current.rank, str(self.name), self.tell(), len(buffer)))
        return super().readinto(buffer)
