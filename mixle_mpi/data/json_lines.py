"""JSON lines, one value a line, read in parallel: every rank parses the lines that begin in its range of bytes.

JSON has no newline inside a value, so each rank finds the borders of its range by itself. A file compressed by gzip
cannot be cut and is read by one rank, as `gzip_csv` does it.

A line is an object, a row with named columns, or an array, a row without names; blank lines are ignored. The first
megabyte of each file says which columns there are; a row that lacks one has nothing there.
"""

import itertools
from typing import NamedTuple

import numpy as np

from mixle_mpi.data.csv import BLOCK, Part, held_rows, share_of
from mixle_mpi.data.csv_rows import LF, MARK, ROW_LIMIT
from mixle_mpi.data.files import shared_out, suffix_of
from mixle_mpi.data.gzip_csv import filled, owner_of, unpacked
from mixle_mpi.data.held import HeldTable, agree_rows
from mixle_mpi.data.json_cells import Parser, lines_of, row_of
from mixle_mpi.data.json_names import columns_of_rows, united
from mixle_mpi.data.ragged import check_sequences
from mixle_mpi.data.source import Source
from mixle_mpi.data.table import DataError, Fault, places, row_text

SUFFIXES = (".jsonl", ".ndjson")
BEGINNING = 2**20  # bytes that say which columns there are


class Head(NamedTuple):
    """Columns, the type of rows (dict or list, None without any), position of the first row, and bytes of a file."""

    columns: list
    kind: type | None
    body: int
    size: int


def is_packed(path):
    """Whether a file is compressed."""
    return suffix_of(path, (".gz",)) is not None


def json_head(path, sequences, bags=frozenset()):
    """The `Head` of a file. Not collective. See `columns_of_rows` for `sequences` and `bags`."""
    source, size = Source(path), BEGINNING
    try:
        whole = source.open()
    finally:
        source.close()
    while True:
        text = beginning(path, size)
        ended, body = len(text) < size, len(MARK) * text.startswith(MARK)
        end = len(text) if ended else text.rfind(b"\n") + 1
        lines = lines_of(text[body:end])
        if lines or ended:
            break
        size *= 4
        if size > ROW_LIMIT:
            raise DataError(f"{row_text(path, 0)} is longer than {ROW_LIMIT} bytes")
    rows, kind = [], None
    for number, line in enumerate(lines):
        try:
            rows.append(row_of(line, kind))
        except Fault as fault:
            raise DataError(f"{row_text(path, number)}{fault.text}") from fault
        kind = dict if isinstance(rows[0], dict) else list
    return Head(columns_of_rows(rows, sequences, bags), kind, body, whole)


def beginning(path, size):
    """The first `size` bytes of a file, unpacked, as bytes; fewer where it ends."""
    source = Source(path)
    if is_packed(path):
        with unpacked(source) as stream:
            return filled(stream, size).tobytes()
    try:
        source.open()
        return source.beginning(size).tobytes()
    finally:
        source.close()


class Lines:
    """JSON lines of several files whose columns are known: `names`, and `read`, which is collective."""

    def __init__(self, paths, heads, world):
        self.paths, self.heads, self.world = paths, heads, world
        self.columns = {column.name: column for column in united([head.columns for head in heads])}
        self.names = tuple(self.columns)
        self.kind = next(head.kind for head in heads if head.kind is not None)

    def read(self, wants):
        """The wanted columns; every rank holds the rows of its own range of bytes, or of whole files. Collective."""
        places(self.paths[0], list(self.names), wants)
        for name, want in wants.items():
            check_sequences(self.columns[name].ragged, want, f"{self.paths[0]}: column {name!r}")
        table, world = HeldTable(wants), self.world
        parser = Parser([(self.columns[name], want) for name, want in wants.items()], self.kind)

        def read(part):
            for lines in self.pieces(part):
                table.append(parser.columns(lines))

        rows, files = agree_rows(world, lambda: held_rows(table, self.parts(), read), self.paths)
        return table.placed(self.names, rows, files, world)

    def parts(self):
        """The parts of the files that this rank reads. Not collective."""
        rank, size = self.world.rank, self.world.size
        bytes_of = [head.size for head in self.heads]
        if is_packed(self.paths[0]):
            own = [file for file in range(len(bytes_of)) if owner_of(bytes_of, file, size) == rank]
            return [Part(file, self.heads[file].body, bytes_of[file]) for file in own]
        found = []
        for file, start, stop in share_of([head.size - head.body for head in self.heads], rank, size):
            source, head = Source(self.paths[file], bytes_of[file]), self.heads[file]
            try:
                source.open()
                found.append(Part(file, *(line_start(source, head, head.body + at) for at in (start, stop))))
            finally:
                source.close()
        return found

    def pieces(self, part):
        """Yield the lines of a part, some megabytes at a time."""
        source = Source(self.paths[part.file], self.heads[part.file].size)
        if is_packed(source.path):
            with unpacked(source) as stream:
                filled(stream, part.start)
                yield from whole_lines(iter(lambda: filled(stream, BLOCK).tobytes(), b""))
            return
        try:
            source.open()
            yield from whole_lines(block.tobytes() for _, block in source.blocks(part.start, part.stop, BLOCK))
        finally:
            source.close()


def line_start(source, head, position):
    """Where the first line begins that does not begin before a position."""
    if position == head.body:
        return position
    for at, block in source.blocks(position - 1, head.size, 2**16):
        ends = np.flatnonzero(block == LF)
        if ends.size:
            return at + int(ends[0]) + 1
    return head.size


def whole_lines(blocks):
    """Yield the lines of consecutive blocks of bytes, lists of those that end in one block; blank ones left out."""
    held, length = [], 0
    for block in itertools.chain(blocks, (b"\n",)):
        end = block.rfind(b"\n") + 1
        if end:
            lines = lines_of(b"".join([*held, block[:end]]))
            held, length = [], 0
            if lines:
                yield lines
        held.append(block[end:])
        length += len(block) - end
        if length > ROW_LIMIT:
            raise Fault(0, f" is longer than {ROW_LIMIT} bytes")


def open_json(paths, world, sequences=frozenset(), bags=frozenset()):
    """The rows of JSON lines, whose columns in memory would be sequences where `sequences` says so, and bags of words
    where `bags` does. Collective.

    Raises
    ------
    DataError
        On all ranks, with the same message: a line that is not JSON, or neither object nor array; files without rows,
        or with objects and arrays; when read, the first value that is not of its kind.
    OSError
        On all ranks when the rank that looks at a file cannot read it.
    """
    heads = shared_out(paths, world, lambda path: json_head(path, sequences, bags))
    kinds = {head.kind: path for path, head in zip(paths, heads) if head.kind is not None}
    if not kinds:
        raise DataError(f"{paths[0]}: there are no rows, so that its columns are not known")
    if len(kinds) > 1:
        raise DataError(f"{kinds[list]}: its rows are arrays; those of {kinds[dict]} are objects")
    return Lines(paths, heads, world)
