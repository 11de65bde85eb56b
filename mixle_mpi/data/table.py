"""Tables: named columns of rows, which a rank reads in chunks."""

import bisect
import difflib
import socket
import traceback
from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.errors import DataError

KINDS = ("number", "text", "integer")
SEQUENCE = "sequence of "  # begins the kind of a column whose rows hold sequences


class Fault(Exception):
    """What is wrong with a row: `row`, counted as the raiser says, and `text`, which follows "row 7"."""

    def __init__(self, row, text):
        super().__init__(row, text)
        self.row = row
        self.text = text


# Rows that are looked at together at most, and numbers: a megabyte of them stays in the cache of a core.
CHUNK_ROWS, CHUNK_VALUES = 65536, 2**17


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
    levels : list of str, int, bool or float, in any order. The same list object in two chunks means
        the same levels.
    """

    codes: np.ndarray
    levels: list

    def __len__(self):
        return len(self.codes)


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


def check_kinds(wants):
    """Raise ValueError unless `wants` has columns and known kinds only."""
    if not wants or not {kind.removeprefix(SEQUENCE) for kind in wants.values()} <= set(KINDS):
        raise ValueError(f"wants is {wants}; one column or more is needed, each of {KINDS}")


class Table:
    """Rows of named columns, read in chunks.

    Attributes
    ----------
    names : tuple of str, the columns in file order
    first : global number, from 0, of the first row that this rank can read
    rows : number of rows that this rank can read
    total : number of rows over all ranks
    everywhere : True if every rank can read every row (then first is 0 and rows is total)
    files : list of (path, global number of its first row), in order; empty for data in memory
    matrix : whether the columns are those of a matrix of counts, whose columns are words
    """

    matrix = False

    def __init__(self, names, first, rows, total, everywhere):
        self.names = tuple(names)
        self.first = first
        self.rows = rows
        self.total = total
        self.everywhere = everywhere
        self.files = []

    def where(self, row, note=""):
        """How messages name a global row: its file, its number there, and among all; `note` follows in brackets."""
        if not self.files:
            return row_text("", row, note=note)
        # Several files may start at one row: the last of them is the one that has it.
        path, first = self.files[bisect.bisect_right(self.files, row, key=lambda file: file[1]) - 1]
        return row_text(path, row - first, row if len(self.files) > 1 else None, note)

    def place(self, row, step, note=""):
        """How messages that all ranks raise name a global row, or a step of it where that is not negative; `note`
        follows in brackets. Collective."""
        return self.where(row, note) + (f", step {step}" if step >= 0 else "")

    def steps(self, name):
        """How many steps the sequences in a column have over all ranks."""
        raise TypeError(f"{type(self).__name__} has no column of sequences")

    def release(self, row):
        """Forget the rows before a global row, which nobody will ask for again."""

    def chunks(self, start, stop, wants, size=None):
        """Yield (row, columns) for the rows start to stop, at most `size` rows at a time.

        Not collective. A refusal of a value is raised on the rank that meets it; the caller
        tells the other ranks (see `agree`).

        Parameters
        ----------
        start, stop : global row numbers, first <= start <= stop <= first + rows
        wants : dict of column name -> "number", "text" or "integer", after "sequence of " where rows hold sequences
        size : int, rows; by default as many as the cache can hold

        Yields
        ------
        row : global number of the first row of the chunk
        columns : dict of column name -> (n,) float64 or float32 with NaN where missing, for
            "number"; `Labels` for "integer", with int levels, and for "text", with str levels, or
            where columns have types levels of that type: 1 and "1" differ; `Ragged` of these for
            sequences. The arrays may be views of the table: do not write into them.

        Raises
        ------
        ValueError
            When rows are asked for that this rank cannot read, or a column as a kind that the
            table does not offer, or a value is not of that kind.
        """
        if not self.first <= start <= stop <= self.first + self.rows:
            raise ValueError(
                f"rows {start} to {stop} were asked for; this rank can read "
                f"{self.first} to {self.first + self.rows}"
            )
        self.check(wants)
        size = size or max(min(CHUNK_ROWS, CHUNK_VALUES // len(wants)), 1)
        try:
            yield from self.pieces_of(start, stop, wants, size)
        except Fault as fault:
            raise DataError(f"{self.where(fault.row)}{fault.text}") from fault

    def pieces_of(self, start, stop, wants, size):
        """`chunks` of rows that are there and columns that can be read; raises `Fault` with the global row."""
        for row in range(start, stop, size):
            yield row, self.read(row, min(row + size, stop), wants)

    def check(self, wants):
        """Raise ValueError unless `wants` can be read from this table."""
        raise TypeError(f"{type(self).__name__} does not define this")

    def read(self, start, stop, wants):
        """The columns of the global rows start to stop, as `chunks` yields them."""
        raise TypeError(f"{type(self).__name__} does not define this")

    def close(self):
        """Free the memory and the file."""
        raise TypeError(f"{type(self).__name__} does not define this")


def row_text(path, row, overall=None, note=""):
    """How messages name a row of a file, and `overall` its number among the rows of several files."""
    notes = [note] if note else []
    if overall is not None:
        notes.append(f"row {overall} of all files")
    return (f"{path}: " if path else "") + f"row {row}" + (f" ({'; '.join(notes)})" if notes else "")


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
    settle(world.troubles(error))
    return result
