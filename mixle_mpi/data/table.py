"""Tables: named columns of rows, which a rank reads in chunks."""

import bisect
import difflib
import os
import socket
import traceback
from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.errors import DataError

KINDS = ("number", "text", "integer")


class Fault(Exception):
    """What is wrong with a row: `row`, from 0 on this rank, and `text`, which follows "row 7"."""

    def __init__(self, row, text):
        super().__init__(row, text)
        self.row = row
        self.text = text


@dataclass(frozen=True)
class Origin:
    """Where an error was raised that other ranks raise as well."""

    rank: int
    host: str
    traceback: str


@dataclass
class Labels:
    """A column of category labels.

    Attributes
    ----------
    codes : (n,) int32, index into `levels`; -1 where the label is missing
    levels : list of str, int, bool or float, distinct, in any order
    """

    codes: np.ndarray
    levels: list


def places(path, names, wants):
    """The positions among `names` of the wanted columns, a list in the order of `wants`."""
    found = []
    for name in wants:
        count = names.count(name)
        if count > 1:
            raise DataError(f"{path}: {count} columns are called {name!r}")
        if not count:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            there = ", ".join(map(repr, names[:50]))
            more = f" and {len(names) - 50} more" if len(names) > 50 else ""
            raise DataError(f"{path}: no column {name!r}{hint} The columns are {there}{more}")
        found.append(names.index(name))
    return found


class Table:
    """Rows of named columns, read in chunks.

    Attributes
    ----------
    names : tuple of str, the columns in file order
    first : global number, from 0, of the first row that this rank can read
    rows : number of rows that this rank can read
    total : number of rows over all ranks
    everywhere : True if every rank can read every row (then first is 0 and rows is total)
    """

    def __init__(self, names, first, rows, total, everywhere):
        self.names = tuple(names)
        self.first = first
        self.rows = rows
        self.total = total
        self.everywhere = everywhere

    def chunks(self, start, stop, wants, size=65536):
        """Yield (row, columns) for the rows start to stop, at most `size` rows at a time.

        Not collective. A refusal of a value is raised on the rank that meets it; the caller
        tells the other ranks (see `agree`).

        Parameters
        ----------
        start, stop : global row numbers, first <= start <= stop <= first + rows
        wants : dict of column name -> "number", "text" or "integer"
        size : int, rows

        Yields
        ------
        row : global number of the first row of the chunk
        columns : dict of column name -> (n,) float64 or float32 with NaN where missing, for
            "number"; `Labels` with str levels for "text" and int levels for "integer". The
            arrays may be views of the table: do not write into them.

        Raises
        ------
        ValueError
            When rows are asked for that this rank cannot read, or a column as a kind that the
            table does not offer.
        """
        if not self.first <= start <= stop <= self.first + self.rows:
            raise ValueError(
                f"rows {start} to {stop} were asked for; this rank can read "
                f"{self.first} to {self.first + self.rows}"
            )
        self.check(wants)
        for row in range(start, stop, size):
            yield row, self.read(row, min(row + size, stop), wants)

    def check(self, wants):
        """Raise ValueError unless `wants` can be read from this table."""
        raise NotImplementedError

    def read(self, start, stop, wants):
        """The columns of the global rows start to stop, as `chunks` yields them."""
        raise NotImplementedError

    def close(self):
        """Free the memory and the file."""
        raise NotImplementedError


class HeldTable(Table):
    """Rows of one rank in memory, in the pieces that were appended. Not everywhere.

    Attributes
    ----------
    wants : dict of column name -> kind, the columns that it holds
    levels : dict of column name -> list, the levels of all rows of a column of labels
    """

    def __init__(self, wants):
        if not wants or not set(wants.values()) <= set(KINDS):
            raise ValueError(f"wants is {wants}; one column or more is needed, each of {KINDS}")
        super().__init__((), 0, 0, 0, everywhere=False)
        self.wants = dict(wants)
        self.starts = []  # row, from 0 on this rank, at which each piece starts
        self.pieces = {name: [] for name in wants}  # arrays of numbers, or of codes
        self.codes = {name: {} for name, kind in wants.items() if kind != "number"}
        self.levels = {name: [] for name in self.codes}

    def append(self, columns):
        """Add the rows of one piece, a dict of column name -> (n,) float64 or `Labels`."""
        self.starts.append(self.rows)
        for name, column in columns.items():
            if isinstance(column, Labels):
                column = self.recoded(name, column)
            self.pieces[name].append(column)
        self.rows += len(column)

    def recoded(self, name, labels):
        """The codes of `labels`, (n,) int32, as indices into the levels of the table."""
        codes, levels = self.codes[name], self.levels[name]
        # One more place at the end, for the index -1 of what is missing.
        code = np.full(len(labels.levels) + 1, -1, np.int32)
        for i, level in enumerate(labels.levels):
            code[i] = codes.setdefault(level, len(levels))
            if code[i] == len(levels):
                levels.append(level)
        return code[labels.codes]

    def check(self, wants):
        """See `Table.check`."""
        for name, kind in wants.items():
            if self.wants.get(name) != kind:
                raise ValueError(f"column {name!r} is asked for as {kind}; read were {self.wants}")

    def read(self, start, stop, wants):
        """See `Table.read`."""
        start, stop = start - self.first, stop - self.first
        low = bisect.bisect_right(self.starts, start) - 1
        high = bisect.bisect_left(self.starts, stop)
        columns = {}
        for name in wants:
            parts = [
                self.pieces[name][i][max(start - self.starts[i], 0) : stop - self.starts[i]]
                for i in range(low, high)
            ]
            values = parts[0] if len(parts) == 1 else np.concatenate(parts)
            columns[name] = Labels(values, self.levels[name]) if name in self.levels else values
        return columns

    def close(self):
        """See `Table.close`."""
        self.rows, self.starts, self.pieces, self.codes, self.levels = 0, [], {}, {}, {}


class Source:
    """A file of bytes, read by position, unbuffered: only the bytes asked for are read."""

    def __init__(self, path):
        self.path = os.fspath(path)
        self.size = 0
        self.file = None

    def open(self):
        """Open the file and return its size in bytes."""
        self.file = open(self.path, "rb", buffering=0)
        self.size = self.file.seek(0, os.SEEK_END)
        return self.size

    def read(self, position, buffer):
        """Fill `buffer`, a contiguous (k,) uint8 array, with the k bytes from `position` on."""
        view = memoryview(buffer)
        done = 0
        try:
            self.file.seek(position)
            while done < len(view):
                # One read of Linux gives at most 2 GiB - 4 KiB, and a network file may give less.
                count = self.file.readinto(view[done:])
                if not count:
                    raise DataError(
                        f"{self.path}: byte {position + done} is missing; the file had "
                        f"{self.size} bytes when it was opened"
                    )
                done += count
        except OSError as error:
            error.filename = self.path
            raise

    def blocks(self, start, stop, size):
        """Yield (position, (k,) uint8) for the bytes start to stop, `size` bytes at a time."""
        for position in range(start, stop, size):
            block = np.empty(min(size, stop - position), np.uint8)
            self.read(position, block)
            yield position, block

    def close(self):
        """Close the file."""
        if self.file is not None:
            self.file.close()
            self.file = None


def attempt(world, work):
    """The result of work(), or the exception that it raised, of every rank. Collective."""
    try:
        outcome = work()
    except Exception as error:  # only to carry it to the other ranks; `settle` raises it
        outcome = with_origin(error, world)
    return world.allgather(outcome)


def with_origin(error, world):
    """The error with the attribute `origin`, an `Origin`: a traceback does not travel by itself."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    error.origin = Origin(world.rank, socket.gethostname(), text)
    return error


def settle(outcomes):
    """The outcomes of all ranks if none failed; else raise the error of the lowest rank that did.

    All ranks hold the same outcomes and so raise the same error.
    """
    failed = [rank for rank, outcome in enumerate(outcomes) if isinstance(outcome, Exception)]
    if not failed:
        return outcomes
    error = outcomes[failed[0]]
    if not isinstance(error, OSError):
        raise error
    text = error.strerror
    failed = [rank for rank in failed if isinstance(outcomes[rank], OSError)]
    if len(failed) < len(outcomes):
        ranks = ", ".join(map(str, failed[:8])) + (", ..." if len(failed) > 8 else "")
        text = f"{text} (on {len(failed)} of {len(outcomes)} ranks: {ranks})"
    # OSError picks the subclass by the error number.
    raise OSError(error.errno, text, error.filename)


def agree(world, work):
    """The results of work() of every rank, or on every rank the error of the lowest that failed.

    Collective.
    """
    return settle(attempt(world, work))


def on_first(world, work):
    """The result of work() on rank 0, or the error that it raised, on every rank. Collective."""
    outcome = attempt(world, work if world.rank == 0 else lambda: None)[0]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def together(world, work):
    """The result of work() of this rank, or on every rank the error of the lowest that failed.

    Collective. Unlike `agree` it sends no results.
    """
    try:
        result, error = work(), None
    except Exception as problem:  # only to carry it to the other ranks; `settle` raises it
        result, error = None, with_origin(problem, world)
    settle(world.allgather(error))
    return result


def agree_rows(world, work, path):
    """`agree` on work() that returns a number of rows: a `Fault` becomes a `DataError`.

    The global row is known because all ranks below the lowest that failed have counted theirs.
    """
    outcomes = attempt(world, work)
    before = 0
    for rank, outcome in enumerate(outcomes):
        if isinstance(outcome, Fault):
            outcomes[rank] = DataError(f"{path}: row {before + outcome.row}{outcome.text}")
        if isinstance(outcome, Exception):
            break
        before += outcome
    return settle(outcomes)
