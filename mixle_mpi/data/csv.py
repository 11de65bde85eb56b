"""CSV files, read in parallel: every rank parses the rows of its own range of bytes.

The bodies of the files, one after another, are cut into one range of bytes per rank, so that ranks
have equal shares whatever the sizes of the files. Whether a newline ends a row depends on the quotes
before it in its file, so each rank scans its range under both hypotheses (it starts outside, or
inside, a quoted cell); the quote counts of the ranks before then say which one holds. A rank owns
the rows from the first row that starts in its range to the first row of the next range that has
one. It reads its range twice, once to scan and once to parse, and never the whole file.

Read is RFC 4180 with LF, CRLF or CR, a UTF-8 byte order mark or none; blank lines are ignored. A
quote inside an unquoted cell is refused: it would make the meaning of later newlines a guess.
"""

import bisect
import itertools
from typing import NamedTuple

import numpy as np

from mixle_mpi.data.csv_cells import DEFAULT, Parser, append_rows
from mixle_mpi.data.csv_rows import LF, cut, read_header, scan
from mixle_mpi.data.files import paths_of, same_columns, shared_out
from mixle_mpi.data.held import HeldTable, agree_rows
from mixle_mpi.data.source import Source
from mixle_mpi.data.table import Fault, agree

# Bytes per read; larger reads are not faster.
BLOCK = 2**21


class Head(NamedTuple):
    """Column names, position of the first byte after the header, and size of a file in bytes."""

    names: list
    body: int
    size: int


class Part(NamedTuple):
    """Bytes `start` to `stop` of a file. Rows of it end before `torn`, where quoting breaks down as `text` says."""

    file: int
    start: int
    stop: int
    torn: int | None = None
    text: str = ""


def csv_head(path, delimiter=","):
    """The `Head` of a CSV file. Not collective (see `agree`).

    Raises
    ------
    DataError
        When the file is empty or the header is not UTF-8 or not well quoted.
    """
    source = Source(path)
    try:
        size = source.open()
        return Head(*read_header(source.path, source.beginning, delimiter), size)
    finally:
        source.close()


def csv_heads(paths, world, delimiter=","):
    """The heads of all files, which have the same columns. Collective."""
    heads = shared_out(paths, world, lambda path: csv_head(path, delimiter))
    same_columns(paths, [head.names for head in heads])
    return heads


def share_of(bodies, rank, size):
    """The parts of the files that one rank scans, a list of (file, start, stop), counted from each body.

    Parameters
    ----------
    bodies : list of int, the bytes of each file without its header
    """
    ends = list(itertools.accumulate(bodies))
    total = ends[-1]
    start, stop = total * rank // size, total * (rank + 1) // size
    parts = []
    for file in range(bisect.bisect_right(ends, start), len(bodies)):
        before = ends[file] - bodies[file]
        if before >= stop:
            break
        if bodies[file]:
            parts.append((file, max(start - before, 0), min(stop, ends[file]) - before))
    return parts


def parts_of(heads, scans, rank):
    """The parts that one rank parses.

    Parameters
    ----------
    heads : list of `Head`
    scans : for each rank, a list of (file, `Scan`) in file order
    """
    by_file = {file: [] for file, _ in scans[rank]}
    for other, theirs in enumerate(scans):
        for file, seen in theirs:
            if file in by_file:
                by_file[file].append((other, seen))
    parts = []
    for file, seen in by_file.items():
        borders, torn, text = cut([each for _, each in seen], heads[file].body, heads[file].size)
        place = [other for other, _ in seen].index(rank)
        parts.append(Part(file, *borders[place : place + 2], torn, text))
    return parts


def scanned(paths, heads, delimiter, rank, size):
    """The list of (file, `Scan`) of one rank's share. Not collective."""
    found = []
    for file, start, stop in share_of([head.size - head.body for head in heads], rank, size):
        source, body = Source(paths[file], heads[file].size), heads[file].body
        try:
            source.open()
            before = np.full(1, LF, np.uint8)
            if start > 0:
                source.read(body + start - 1, before)
            blocks = source.blocks(body + start, body + stop, BLOCK)
            found.append((file, scan(blocks, body + start, before[0], ord(delimiter))))
        finally:
            source.close()
    return found


def parse(table, path, size, parser, part):
    """Append the rows of a part to a held table. Not collective.

    If quoting breaks down, the rows before are read and then it is a `Fault`; ranks above the one that owns
    the place fail as well, and the lowest rank is the one that is heard.
    """
    source = Source(path, size)
    finished = part.torn is None or part.stop <= part.torn
    try:
        source.open()
        blocks = source.blocks(part.start, part.stop if finished else part.torn, BLOCK)
        append_rows(table, parser, blocks, lambda: finished)
    finally:
        source.close()
    if not finished:
        raise Fault(0, part.text)


def held_rows(table, parts, read):
    """What `agree_rows` wants of a rank that reads parts of files, `read(part)` each, into a held table."""
    counts = []
    for part in parts:
        before, fault = table.rows, None
        try:
            read(part)
        except Fault as problem:
            fault = problem
        counts.append((part.file, table.rows - before))
        if fault is not None:
            return counts, fault
    return counts, None


def read_csv(paths, wants, world, *, delimiter=",", missing=DEFAULT, heads=None):
    """The wanted columns of CSV files; every rank holds the rows of its own range of bytes.

    Collective.

    Parameters
    ----------
    paths : str or path, or a list of them, whose rows follow each other
    wants : dict of column name -> "number", "text" or "integer"; the same on all ranks
    world : has `rank`, `size` and `allgather(obj)`
    delimiter : str, one ASCII character
    missing : strings that mean missing besides the empty cell, in every column, quoted or not
    heads : what `csv_heads` returned, if it was called

    Returns
    -------
    Table
        Numbers are float64, "inf" among them. Blanks around numbers do not count, around text do.

    Raises
    ------
    DataError
        On all ranks, with the same message: no header; a wanted column is not in it, or twice; a
        cell that is not of its kind, or not UTF-8; a row with too many or too few cells; quotes
        that do not match; files with other columns. It names the first bad row, whatever the
        number of ranks.
    OSError
        On all ranks when any rank cannot read a file.
    """
    paths, table = paths_of(paths), HeldTable(wants)
    heads = csv_heads(paths, world, delimiter) if heads is None else heads
    # Each file has its own: the order of the columns may differ.
    parsers = [Parser(path, head.names, wants, delimiter, missing) for path, head in zip(paths, heads)]
    scans = agree(world, lambda: scanned(paths, heads, delimiter, world.rank, world.size))
    parts = parts_of(heads, scans, world.rank)

    def read(part):
        parse(table, paths[part.file], heads[part.file].size, parsers[part.file], part)

    rows, files = agree_rows(world, lambda: held_rows(table, parts, read), paths)
    return table.placed(heads[0].names, rows, files, world)
