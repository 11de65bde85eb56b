"""Rows of one rank in memory, as parsing leaves them, and their numbers among the rows of all ranks."""

import bisect

import numpy as np

from mixle_mpi.contract.columns import label_key
from mixle_mpi.data.ragged import Ragged, joined
from mixle_mpi.data.table import SEQUENCE, DataError, Labels, Table, attempt, check_kinds, row_text, settle


class HeldTable(Table):
    """Rows of one rank in memory, in the pieces that were appended. Not everywhere.

    Attributes
    ----------
    wants : dict of column name -> kind, the columns that it holds
    levels : dict of column name -> list, the levels of all rows of a column of labels
    """

    def __init__(self, wants):
        check_kinds(wants)
        super().__init__((), 0, 0, 0, everywhere=False)
        self.wants = dict(wants)
        self.starts = []  # row, from 0 on this rank, at which each piece starts
        self.released = 0  # number of pieces that are gone
        self.pieces = {name: [] for name in wants}  # arrays of numbers, or of codes
        self.codes = {name: {} for name, kind in wants.items() if kind.removeprefix(SEQUENCE) != "number"}
        self.levels = {name: [] for name in self.codes}
        self.step_counts = {name: 0 for name, kind in wants.items() if kind.startswith(SEQUENCE)}

    def append(self, columns):
        """Add the rows of one piece, a dict of column name -> (n,) float64, `Labels` or `Ragged`."""
        self.starts.append(self.rows)
        for name, column in columns.items():
            if isinstance(column, Labels):
                column = self.recoded(name, column)
            elif isinstance(column, Ragged):
                self.step_counts[name] += int(column.offsets[-1])
                if isinstance(column.values, Labels):
                    column = Ragged(self.recoded(name, column.values), column.offsets)
            self.pieces[name].append(column)
        self.rows += len(column)

    def recoded(self, name, labels):
        """The codes of `labels`, (n,) int32, as indices into the levels of the table."""
        codes, levels = self.codes[name], self.levels[name]
        # One more place at the end, for the index -1 of what is missing.
        code = np.full(len(labels.levels) + 1, -1, np.int32)
        for i, level in enumerate(labels.levels):
            code[i] = codes.setdefault(label_key(level), len(levels))
            if code[i] == len(levels):
                levels.append(level)
        return code[labels.codes]

    def placed(self, names, rows, files, world):
        """This table, now that all ranks have read: `rows` by rank and `files` as `agree_rows` returns them.

        Collective.
        """
        self.names = tuple(names)
        self.first, self.total = sum(rows[: world.rank]), sum(rows)
        self.files = files
        if self.step_counts:
            everyone = world.allgather(self.step_counts)
            self.step_counts = {name: sum(counts[name] for counts in everyone) for name in self.step_counts}
        return self

    def steps(self, name):
        """See `Table.steps`."""
        return self.step_counts[name]

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
            columns[name] = self.labelled(name, joined(parts))
        return columns

    def labelled(self, name, values):
        """The values of a column, codes as `Labels`, in sequences too."""
        if isinstance(values, Ragged):
            return Ragged(self.labelled(name, values.values), values.offsets)
        return Labels(values, self.levels[name]) if name in self.levels else values

    def release(self, row):
        """See `Table.release`."""
        done = bisect.bisect_right(self.starts, row - self.first) - 1
        for i in range(self.released, done):
            for pieces in self.pieces.values():
                pieces[i] = None
        self.released = max(self.released, done)

    def close(self):
        """See `Table.close`."""
        import pyarrow

        self.rows, self.starts, self.pieces, self.codes, self.levels = 0, [], {}, {}, {}
        pyarrow.default_memory_pool().release_unused()  # the numbers were parsed into its memory


def agree_rows(world, work, paths):
    """What work() of every rank adds up to: rows by rank, and by file. Collective.

    Parameters
    ----------
    work : returns a list of (file, rows) in row order, `file` an index into `paths`, and None or the
        `Fault` that ended it, its row counted from the end of these rows, in the file of the last pair
    paths : list of str

    Returns
    -------
    rows : list of int, one for each rank
    files : list of (path, global row at which it starts)

    Raises
    ------
    DataError
        On all ranks, for the first fault: its global row is known because all ranks below have counted theirs.
    """
    outcomes = attempt(world, work)
    rows, by_file = [], [0] * len(paths)
    for rank, outcome in enumerate(outcomes):
        if isinstance(outcome, Exception):
            break
        counts, fault = outcome
        rows.append(sum(count for _, count in counts))
        for file, count in counts:
            by_file[file] += count
        if fault is not None:
            file = counts[-1][0]
            overall = sum(by_file) + fault.row if len(paths) > 1 else None
            where = row_text(paths[file], by_file[file] + fault.row, overall)
            outcomes[rank] = DataError(f"{where}{fault.text}")
            break
    settle(outcomes)
    starts = [sum(by_file[:i]) for i in range(len(paths))]
    return rows, list(zip(paths, starts))
