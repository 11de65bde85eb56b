"""CSV files compressed by gzip: a stream of bytes, read from its beginning, that cannot be cut.

Each file is read by one rank, in pieces; the files are given out by their sizes.
"""

import contextlib
import gzip
import zlib
from typing import NamedTuple

import numpy as np

from mixle_mpi.data.csv import BLOCK, Part, held_rows
from mixle_mpi.data.csv_cells import DEFAULT, Parser, append_rows
from mixle_mpi.data.csv_rows import LF, STRAY, UNCLOSED, read_header, scan
from mixle_mpi.data.files import paths_of, same_columns, shared_out
from mixle_mpi.data.held import HeldTable, agree_rows
from mixle_mpi.data.source import Source
from mixle_mpi.data.table import DataError, Fault


class Head(NamedTuple):
    """Column names, position of the first byte after the header when unpacked, and size of the packed file."""

    names: list
    body: int
    size: int


@contextlib.contextmanager
def unpacked(source):
    """The file as a stream of its unpacked bytes. Damage is a DataError."""
    try:
        source.open()
        source.file.seek(0)
        with gzip.GzipFile(fileobj=source.file, mode="rb") as stream:
            yield stream
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{source.path}: not a gzip file, or damaged: {error}") from error
    except OSError as error:
        error.filename = source.path
        raise
    finally:
        source.close()


def filled(stream, size):
    """The next `size` bytes (k,) uint8, fewer where the stream ends."""
    pieces, missing = [], size
    while missing and (piece := stream.read(missing)):
        pieces.append(piece)
        missing -= len(piece)
    return np.frombuffer(b"".join(pieces), np.uint8)


def gzip_head(path, delimiter=","):
    """The `Head` of a file. Not collective."""

    def beginning(size):
        source = Source(path)
        with unpacked(source) as stream:
            return filled(stream, size)

    source = Source(path)
    try:
        size = source.open()
    finally:
        source.close()
    return Head(*read_header(source.path, beginning, delimiter), size)


def gzip_heads(paths, world, delimiter=","):
    """The heads of all files, which have the same columns. Collective."""
    heads = shared_out(paths, world, lambda path: gzip_head(path, delimiter))
    same_columns(paths, [head.names for head in heads])
    return heads


def owner_of(sizes, file, ranks):
    """The rank that reads a file: ranks have consecutive files of nearly equal sizes together."""
    middle = 2 * sum(sizes[:file]) + sizes[file]
    return min(middle * ranks // max(2 * sum(sizes), 1), ranks - 1)


class Checked:
    """The blocks of a stream up to the first quote that breaks the rules; `fault` says then what is wrong."""

    def __init__(self, stream, body, delimiter):
        self.stream, self.body, self.delimiter = stream, body, delimiter
        self.fault = None

    def blocks(self):
        """Yield (position, (k,) uint8)."""
        inside, before, position = 0, LF, self.body
        while (block := filled(self.stream, BLOCK)).size:
            seen = scan([(position, block)], position, before, ord(self.delimiter))
            if seen.stray[inside] is not None:
                self.fault = Fault(0, STRAY)
                block = block[: seen.stray[inside] - position]
                if block.size:
                    yield position, block
                return
            yield position, block
            inside = (inside + seen.quotes) % 2
            before, position = block[-1], position + block.size
        if inside:
            self.fault = Fault(0, UNCLOSED)


def parse(table, path, head, parser, delimiter):
    """Append the rows of a file to a held table, as `csv.parse` does. Not collective."""
    source = Source(path, head.size)
    with unpacked(source) as stream:
        filled(stream, head.body)
        checked = Checked(stream, head.body, delimiter)
        append_rows(table, parser, checked.blocks(), lambda: checked.fault is None)
    if checked.fault is not None:
        raise checked.fault


def read_gzip(paths, wants, world, *, delimiter=",", missing=DEFAULT, heads=None):
    """The wanted columns of gzip CSV files; every rank holds the rows of whole files. Collective.

    See `read_csv`, for parameters, result and errors too. A rank may hold no rows.
    """
    paths, table = paths_of(paths), HeldTable(wants)
    heads = gzip_heads(paths, world, delimiter) if heads is None else heads
    parsers = [Parser(path, head.names, wants, delimiter, missing) for path, head in zip(paths, heads)]
    sizes = [head.size for head in heads]
    files = [file for file in range(len(paths)) if owner_of(sizes, file, world.size) == world.rank]

    def read(part):
        parse(table, paths[part.file], heads[part.file], parsers[part.file], delimiter)

    work = [Part(file, 0, sizes[file]) for file in files]
    rows, starts = agree_rows(world, lambda: held_rows(table, work, read), paths)
    return table.placed(heads[0].names, rows, starts, world)
