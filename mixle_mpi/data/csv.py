"""CSV files, read in parallel: every rank parses the rows of its own range of bytes.

The body of the file is cut into one range of bytes per rank. Whether a newline ends a row depends
on the quotes before it, so each rank scans its range under both hypotheses (it starts outside, or
inside, a quoted cell); the quote counts of the ranks before then say which one holds. A rank owns
the rows from the first row that starts in its range to the first row of the next range that has
one. It reads its range twice, once to scan and once to parse, and never the whole file.

Read is RFC 4180 with LF, CRLF or CR, a UTF-8 byte order mark or none; blank lines are ignored. A
quote inside an unquoted cell is refused: it would make the meaning of later newlines a guess.
"""

import csv
import io
from typing import NamedTuple

import numpy as np

from mixle_mpi.data.table import DataError, Fault, HeldTable, Labels, Source, agree, agree_rows, places  # fmt: skip

QUOTE, LF, CR = b'"\n\r'
MARK = b"\xef\xbb\xbf"

# Bytes per read, and the longest header and row that are believed. Larger reads are not faster.
# A row of more than 1 GiB is a quote that was not closed, and Arrow counts a block in 32 bits.
BLOCK = 2**21
HEADER_LIMIT = 2**24
ROW_LIMIT = 2**30

# The tokens that pyarrow takes for missing. They mean the same in every column, and quoting never
# changes what a cell means: some programs quote every cell. The empty cell is always missing.
DEFAULT = (
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null",
)  # fmt: skip

REFUSED = {"number": "is not a number", "integer": "is not an integer of 64 bits"}
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


def read_header(source, delimiter):
    """The column names, and the position of the first byte after the header."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        raise ValueError(f"the delimiter {delimiter!r} is not one ASCII character")
    size = 4096
    while True:
        text = np.empty(min(size, source.size), np.uint8)
        source.read(0, text)
        mark = len(MARK) * (text[: len(MARK)].tobytes() == MARK)
        ends = row_ends(text[mark:], False)[0] + mark
        if size >= source.size:
            ends = np.append(ends, text.size)
        for end in ends:
            line = text[mark:end].tobytes().strip(b"\r\n")
            if line:
                return header_names(source.path, line, delimiter), int(end)
        if size >= source.size:
            raise DataError(f"{source.path}: the file is empty; a header is needed")
        if size >= HEADER_LIMIT:
            raise DataError(f"{source.path}: the header is longer than {HEADER_LIMIT} bytes")
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


def csv_names(path, delimiter=","):
    """The column names of a CSV file, from its header alone. Not collective (see `agree`).

    Raises
    ------
    DataError
        When the file is empty or the header is not UTF-8 or not well quoted.
    """
    source = Source(path)
    try:
        source.open()
        return read_header(source, delimiter)[0]
    finally:
        source.close()


def whole_rows(source, start, stop, finished):
    """Yield the bytes start to stop in pieces of whole rows, each a bytes object.

    `start` is the start of a row, and `stop` the end of one if `finished`; else the row that
    `stop` falls into is left out.
    """
    held, length, inside = [], 0, False
    for position, block in source.blocks(start, stop, BLOCK):
        ends, inside = row_ends(block, inside)
        end = int(ends[-1]) if ends.size else 0
        if finished and position + block.size == stop:
            end = block.size
        if end:
            # Arrow would drop a byte order mark that starts the first cell; a blank line put
            # before it is ignored.
            yield b"".join([b"\n", *held, memoryview(block[:end])])
            held, length = [], 0
        held.append(memoryview(block[end:]))
        length += block.size - end
        if length > ROW_LIMIT:
            raise Fault(0, f" is longer than {ROW_LIMIT} bytes; is a quote not closed?")


class Parser:
    """Turns bytes of whole rows into columns; `names` is the header."""

    def __init__(self, path, names, wants, delimiter, missing):
        self.wants = wants
        self.width = len(names)
        self.delimiter = delimiter
        self.missing = ["", *missing]
        # Columns go by number: the header may have empty and repeated names.
        self.places = [str(i) for i in places(path, names, wants)]

    def columns(self, piece):
        """The wanted columns of a piece, a list of arrow arrays; `Fault` for its first bad row."""
        import pyarrow

        arrow = {"number": pyarrow.float64(), "text": pyarrow.string(), "integer": pyarrow.int64()}
        types = [arrow[kind] for kind in self.wants.values()]
        try:
            return self.convert(piece, types, "error", [])
        except pyarrow.ArrowInvalid:
            return self.columns_by_cell(piece, types)

    def convert(self, piece, types, verdict, ragged):
        """One pass of pyarrow.csv; (row, cells) of each row of wrong width go to `ragged`."""
        import pyarrow
        from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

        def meet(row):
            ragged.append((row.number - 1, row.actual_columns))
            return verdict

        read = ReadOptions(use_threads=False, block_size=len(piece) + 1)
        read.column_names = [str(i) for i in range(self.width)]
        parse = ParseOptions(newlines_in_values=True, invalid_row_handler=meet)
        parse.delimiter = self.delimiter
        convert = ConvertOptions(null_values=self.missing, strings_can_be_null=True)
        convert.include_columns = self.places
        convert.column_types = dict(zip(self.places, types))
        table = read_csv(pyarrow.BufferReader(piece), read, parse, convert)
        return [column.combine_chunks() for column in table.columns]

    def columns_by_cell(self, piece, types):
        """`columns` of a piece that pyarrow.csv refuses: find its first bad row, if it has one.

        It has none if cells are merely padded tokens of missing (" NA ") or integers with a plus.
        """
        import pyarrow
        from pyarrow import compute

        ragged, columns = [], []

        def cast(cells, target, refusal):
            good = castable(cells, target)
            if good < len(cells):
                value = cells[good].as_py()[:80]
                faults.append((good, f", column {name!r}: {value!r} {refusal}"))
            return cells[:good].cast(target)

        raw = self.convert(piece, [pyarrow.binary()] * len(types), "skip", ragged)
        # First in the list, so that it wins over a cell that moved up into the row it left.
        faults = [(i, f" has {n} cells; the header has {self.width}") for i, n in ragged[:1]]
        for (name, kind), target, cells in zip(self.wants.items(), types, raw):  # noqa: B007 (cast names it)
            cells = cast(cells, pyarrow.string(), "is not UTF-8")
            if kind != "text":
                cells = compute.ascii_trim(cells, " \t")
                missing = compute.is_in(cells, pyarrow.array(self.missing))
                cells = compute.if_else(missing, None, cells)
                cells = compute.replace_substring_regex(cells, r"^\+([0-9])", r"\1")
                cells = cast(cells, target, REFUSED[kind])
            columns.append(cells)
        if faults:
            raise Fault(*min(faults, key=lambda fault: fault[0]))
        return columns


def castable(array, target):
    """The number of leading values of an arrow array that can be cast to `target`."""
    import pyarrow

    # The first `good` values can be cast; the first `bad` ones cannot.
    good, bad, trial = 0, len(array) + 1, len(array)
    while bad - good > 1:
        try:
            array[good:trial].cast(target)
            good = trial
        except pyarrow.ArrowInvalid:
            bad = trial
        trial = (good + bad) // 2
    return good


def load(table, source, parser, start, stop, torn, text):
    """Append the rows of the bytes start to stop to the table, and return their number.

    If quoting breaks down at `torn`, the rows before that one are read and it is the fault; ranks
    above the one that owns it fail as well, and the lowest rank is the one that is heard.
    """
    finished = torn is None or stop <= torn
    try:
        for piece in whole_rows(source, start, stop if finished else torn, finished):
            columns = zip(parser.wants.items(), parser.columns(piece))
            table.append({name: as_numpy(column, kind) for (name, kind), column in columns})
    except Fault as fault:
        raise Fault(table.rows + fault.row, fault.text) from None
    if not finished:
        raise Fault(table.rows, text)
    return table.rows


def as_numpy(column, kind):
    """An arrow array as (n,) float64 for "number", else as `Labels`."""
    if kind == "number":
        return column.to_numpy(zero_copy_only=False)
    encoded = column.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return Labels(codes, encoded.dictionary.to_pylist())


def read_csv(path, wants, world, *, delimiter=",", missing=DEFAULT):
    """The wanted columns of a CSV file; every rank holds the rows of its own range of bytes.

    Collective.

    Parameters
    ----------
    path : str or path
    wants : dict of column name -> "number", "text" or "integer"; the same on all ranks
    world : has `rank`, `size` and `allgather(obj)`
    delimiter : str, one ASCII character
    missing : strings that mean missing besides the empty cell, in every column, quoted or not

    Returns
    -------
    Table
        Numbers are float64, "inf" among them. Blanks around numbers do not count, around text do.

    Raises
    ------
    DataError
        On all ranks, with the same message: no header; a wanted column is not in it, or twice; a
        cell that is not of its kind, or not UTF-8; a row with too many or too few cells; quotes
        that do not match. It names the first bad row, whatever the number of ranks.
    OSError
        On all ranks when any rank cannot read the file.
    """
    source, table = Source(path), HeldTable(wants)

    def opened():
        size = source.open()
        return size, read_header(source, delimiter) if world.rank == 0 else None

    def scanned():
        share = source.size - body
        start = body + share * world.rank // world.size
        stop = body + share * (world.rank + 1) // world.size
        before = np.full(1, LF, np.uint8)
        if world.rank > 0:
            source.read(start - 1, before)
        return scan(source.blocks(start, stop, BLOCK), start, before[0], ord(delimiter))

    def parsed():
        return load(table, source, parser, *borders[world.rank : world.rank + 2], torn, text)

    try:
        found = agree(world, opened)
        sizes = sorted({size for size, _ in found})
        if len(sizes) > 1:
            raise DataError(f"{source.path}: ranks see different files, of {sizes} bytes")
        names, body = found[0][1]
        parser = Parser(source.path, names, wants, delimiter, missing)
        borders, torn, text = cut(agree(world, scanned), body, source.size)
        rows = agree_rows(world, parsed, source.path)
    finally:
        source.close()
    table.names = tuple(names)
    table.first = sum(rows[: world.rank])
    table.total = sum(rows)
    return table
