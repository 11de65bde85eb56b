"""The bytes of CSV files: where rows end, where quoting breaks down, and the header."""

import csv
import io
from typing import NamedTuple

import numpy as np

from mixle_mpi.data.table import DataError, Fault

QUOTE, LF, CR = b'"\n\r'
MARK = b"\xef\xbb\xbf"

# The longest header and row that are believed. A row of more than 1 GiB is a quote that was not closed, and
# Arrow counts a block in 32 bits.
HEADER_LIMIT = 2**24
ROW_LIMIT = 2**30

STRAY = (
    " has a quote inside a cell that is not quoted, or a quoted cell that is not closed; a cell"
    " with quotes is written in quotes, each of its own doubled"
)
UNCLOSED = " has a quote that is never closed"


class Scan(NamedTuple):
    """What one rank sees in its range; pairs are (starts outside quotes, starts inside quotes)."""

    quotes: int  # number of quote characters
    border: tuple  # position of the first row that starts in the range, or None
    stray: tuple  # position of the first quote that opens inside an unquoted cell, or None
    last: int | None  # position of the last quote


def row_ends(block, inside):
    """Where rows end in a block of bytes.

    CRLF counts as two ends; the row between them is a blank line.

    Parameters
    ----------
    block : (k,) uint8
    inside : whether the block starts inside quotes

    Returns
    -------
    ends : (e,) int64, offsets just after each newline outside quotes, increasing
    inside : bool, whether the block ends inside quotes
    """
    quotes = np.flatnonzero(block == QUOTE)
    newlines = np.flatnonzero((block == LF) | (block == CR))
    before = np.searchsorted(quotes, newlines)
    return newlines[(before + inside) % 2 == 0] + 1, bool((quotes.size + inside) % 2)


def scan(blocks, start, before, delimiter):
    """The `Scan` of consecutive blocks of bytes.

    Parameters
    ----------
    blocks : iterable of (position, (k,) uint8)
    start : int, position of the first block
    before : int, the byte before the first block
    delimiter : int, the byte between cells
    """
    # A doubled quote closes and opens again, so a quote may open after a quote.
    opens = np.zeros(256, bool)
    opens[[delimiter, LF, CR, QUOTE]] = True
    count, last = 0, None
    border = [start if before in (LF, CR) else None, None]
    stray = [None, None]
    for position, block in blocks:
        quotes = np.flatnonzero(block == QUOTE)
        previous = block[quotes - 1]
        if quotes.size and quotes[0] == 0:
            previous[0] = before
        suspect = np.flatnonzero(~opens[previous])
        for inside in (0, 1):
            wrong = suspect[(count + suspect + inside) % 2 == 0]
            if stray[inside] is None and wrong.size:
                stray[inside] = position + int(quotes[wrong[0]])
            starts_inside = (count + inside) % 2
            if border[inside] is None and (quotes.size or not starts_inside):
                ends, _ = row_ends(block, starts_inside)
                if ends.size:
                    border[inside] = position + int(ends[0])
        if quotes.size:
            last = position + int(quotes[-1])
        count += quotes.size
        before = block[-1]
    return Scan(count, tuple(border), tuple(stray), last)


def cut(scans, body, size):
    """Which bytes every rank owns, and where quoting breaks down.

    Parameters
    ----------
    scans : list of `Scan`, one per rank
    body, size : positions of the first byte after the header and of the end of the file

    Returns
    -------
    borders : list of int; rank r owns the bytes borders[r] to borders[r + 1], whole rows
    torn : position of the first quote that breaks the rules, or None; borders above it are void
    text : what is wrong with it
    """
    borders, stray, last, inside = [], None, None, 0
    for each in scans:
        borders.append(each.border[inside])
        if stray is None:
            stray = each.stray[inside]
        if each.quotes:
            last = each.last
        inside = (inside + each.quotes) % 2
    borders[0] = body
    borders.append(size)
    for rank in reversed(range(len(scans))):
        if borders[rank] is None:
            borders[rank] = borders[rank + 1]
    if stray is not None:
        return borders, stray, STRAY
    return borders, last if inside else None, UNCLOSED


def read_header(path, beginning, delimiter):
    """The column names, and the position of the first byte after the header.

    Parameters
    ----------
    beginning : (k) -> (j,) uint8, the first k bytes of the file, or all j < k that it has
    """
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise ValueError(f"the delimiter {delimiter!r} is not one ASCII character")
    size = 4096
    while True:
        text = beginning(size)
        whole = text.size < size
        mark = len(MARK) * (text[: len(MARK)].tobytes() == MARK)
        ends = row_ends(text[mark:], False)[0] + mark
        if whole:
            ends = np.append(ends, text.size)
        for end in ends:
            line = text[mark:end].tobytes().strip(b"\r\n")
            if line:
                return header_names(path, line, delimiter), int(end)
        if whole:
            raise DataError(f"{path}: the file is empty; a header is needed")
        if size >= HEADER_LIMIT:
            raise DataError(f"{path}: the header is longer than {HEADER_LIMIT} bytes")
        size *= 4


def header_names(path, line, delimiter):
    """The cells of the header, a row as bytes without its newline."""
    seen = scan([(0, np.frombuffer(line, np.uint8))], 0, LF, ord(delimiter))
    if seen.stray[0] is not None or seen.quotes % 2:
        raise DataError(f"{path}: the header{UNCLOSED if seen.quotes % 2 else STRAY}")
    try:
        return next(csv.reader(io.StringIO(line.decode(), newline=""), delimiter=delimiter))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: the header cannot be read: {error}") from error


def whole_rows(blocks, finished):
    """Yield the bytes of consecutive blocks in pieces of whole rows, each a bytes object.

    The blocks begin with a row. `finished()`, asked at the end, says that they end with one, which may lack
    its newline; else what follows the last newline outside quotes is left out.
    """
    held, length, inside = [], 0, False
    for _, block in blocks:
        ends, inside = row_ends(block, inside)
        end = int(ends[-1]) if ends.size else 0
        if end:
            # Arrow would drop a byte order mark that starts the first cell; a blank line put
            # before it is ignored.
            yield b"".join([b"\n", *held, memoryview(block[:end])])
            held, length = [], 0
        held.append(memoryview(block[end:]))
        length += block.size - end
        if length > ROW_LIMIT:
            raise Fault(0, f" is longer than {ROW_LIMIT} bytes; is a quote not closed?")
    if length and finished():
        yield b"".join([b"\n", *held])
