"""The cells of CSV files: from the bytes of whole rows to columns, by pyarrow.csv."""

from mixle_mpi.data.arrow import labels_of, numbers_of
from mixle_mpi.data.csv_rows import whole_rows
from mixle_mpi.data.table import Fault, places

# The tokens that pyarrow takes for missing. They mean the same in every column, and quoting never
# changes what a cell means: some programs quote every cell. The empty cell is always missing.
DEFAULT = (
    "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null",
)  # fmt: skip

REFUSED = {"number": "is not a number; a column of labels wants categorical", "integer": "is not an integer of 64 bits"}

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

        def cast(name, cells, target, refusal):
            good = castable(cells, target)
            if good < len(cells):
                value = cells[good].as_py()[:80]
                faults.append((good, f", column {name!r}: {value!r} {refusal}"))
            return cells[:good].cast(target)

        raw = self.convert(piece, [pyarrow.binary()] * len(types), "skip", ragged)
        # First in the list, so that it wins over a cell that moved up into the row it left.
        faults = [(i, f" has {n} cells; the header has {self.width}") for i, n in ragged[:1]]
        for (name, kind), target, cells in zip(self.wants.items(), types, raw):
            cells = cast(name, cells, pyarrow.string(), "is not UTF-8")
            if kind != "text":
                cells = compute.ascii_trim(cells, " \t")
                missing = compute.is_in(cells, pyarrow.array(self.missing))
                cells = compute.if_else(missing, None, cells)
                cells = compute.replace_substring_regex(cells, r"^\+([0-9])", r"\1")
                cells = cast(name, cells, target, REFUSED[kind])
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


def append_rows(table, parser, blocks, finished):
    """Append the rows of consecutive blocks of bytes to a held table. See `whole_rows`.

    Raises `Fault` for the first row that cannot be read, its number counted from the end of the table
    as it is then.
    """
    for piece in whole_rows(blocks, finished):
        columns = zip(parser.wants.items(), parser.columns(piece))
        table.append({
            name: numbers_of(column) if kind == "number" else labels_of(column) for (name, kind), column in columns
        })  # fmt: skip
