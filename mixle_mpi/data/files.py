"""Many files as one table: which files, and their rows one after another."""

import glob
import itertools
import os

from mixle_mpi.contract.blocks import unit_range
from mixle_mpi.data.table import DataError, Fault, Table, attempt


def paths_of(paths):
    """A path, or several, as a list of str."""
    return [os.fspath(path) for path in paths] if isinstance(paths, (list, tuple)) else [os.fspath(paths)]


def suffix_of(path, known):
    """The known suffix that the name of a file ends with, in small letters, or None."""
    name = os.path.basename(path).lower()
    return max((suffix for suffix in known if name.endswith(suffix) and name != suffix), key=len, default=None)


def expanded(path, known):
    """The files that a path means: itself, what a pattern matches, or the files of a directory by name.

    Of a directory the files with a known suffix count, but for those whose names begin with "." or "_".

    Raises
    ------
    DataError
        When a pattern or a directory has no files.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file())
        found = [os.path.join(path, name) for name in names if name[0] not in "._" and suffix_of(name, known)]
        if not found:
            raise DataError(f"{path}: the directory has no files of a kind that is read: {', '.join(known)}")
        return found
    if any(sign in path for sign in "*?[") and not os.path.exists(path):
        found = sorted(name for name in glob.glob(path, recursive=True) if not os.path.isdir(name))
        if not found:
            raise DataError(f"{path}: no file matches")
        return found
    return [path]


def shared_out(paths, world, look):
    """look(path) of every file, each by one rank, on all ranks. Collective.

    Ranks look at consecutive files, so that the error that all raise is that of the first bad file.
    """
    lookers = min(world.size, len(paths))
    start, stop = unit_range(world.rank, lookers, len(paths)) if world.rank < lookers else (0, 0)
    outcomes = attempt(world, lambda: [look(path) for path in paths[start:stop]])
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome  # not as `settle` says it: the other ranks have not tried
    return [seen for part in outcomes for seen in part]


def same_columns(paths, names):
    """Raise DataError unless all files have the columns of the first, in any order."""
    for path, own in zip(paths, names):
        lacks = [name for name in names[0] if name not in own]
        extra = [name for name in own if name not in names[0]]
        if lacks or extra or len(own) != len(names[0]):
            texts = [f"it has no {', '.join(map(repr, lacks[:20]))}"] * bool(lacks)
            texts += [f"it has {', '.join(map(repr, extra[:20]))} more"] * bool(extra)
            what = " and ".join(texts) or f"it has {len(own)} columns, not {len(names[0])}"
            raise DataError(f"{path}: its columns are not those of {paths[0]}: {what}")


class JoinedTable(Table):
    """Tables that every rank can read, their rows one after another. Each is open only while it is read."""

    def __init__(self, paths, tables):
        self.tables = tables
        self.matrix = tables[0].matrix
        self.ends = list(itertools.accumulate(table.rows for table in tables))
        super().__init__(tables[0].names, 0, self.ends[-1], self.ends[-1], everywhere=True)
        self.files = [(path, end - table.rows) for path, end, table in zip(paths, self.ends, tables)]

    def check(self, wants):
        """See `Table.check`."""
        for table in self.tables:
            table.check(wants)

    def steps(self, name):
        """See `Table.steps`."""
        return sum(table.steps(name) for table in self.tables)

    def pieces_of(self, start, stop, wants, size):
        """See `Table.pieces_of`. No chunk has rows of two files."""
        for table, end in zip(self.tables, self.ends):
            before = end - table.rows
            first, last = max(start, before), min(stop, end)
            if first >= last:
                continue
            try:
                for row, columns in table.pieces_of(first - before, last - before, wants, size):
                    yield before + row, columns
            except Fault as fault:
                raise Fault(before + fault.row, fault.text) from fault
            finally:
                table.close()

    def close(self):
        """See `Table.close`."""
        for table in self.tables:
            table.close()


def open_files(paths, world, look, table_of):
    """The table of files that every rank can read. Collective.

    Parameters
    ----------
    look : path -> what must be known of a file; called by one rank for each file
    table_of : (path, what is known of it) -> `Table`, which opens the file when it is read
    """
    paths = paths_of(paths)
    tables = [table_of(path, head) for path, head in zip(paths, shared_out(paths, world, look))]
    same_columns(paths, [table.names for table in tables])
    return tables[0] if len(tables) == 1 else JoinedTable(paths, tables)
