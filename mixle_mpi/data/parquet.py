"""Parquet files: each rank decodes the row groups that its rows are in, and only the wanted columns.

Row groups are decoded from their beginning, a batch at a time. Where ranks share a row group, each of
them decodes it up to its own last row: the time of one decoding, no message, and never more than a
batch in memory.
"""

import contextlib
import itertools
import re
from functools import partial
from typing import NamedTuple

from mixle_mpi.data.arrow import (
    LabelReader,
    check_type,
    coordinate,
    family_of,
    is_list,
    is_text,
    numbers_of,
    steps_of,
    width_of,
)
from mixle_mpi.data.files import open_files
from mixle_mpi.data.ragged import Ragged, check_sequences
from mixle_mpi.data.source import Source
from mixle_mpi.data.table import SEQUENCE, DataError, Fault, Table, places

BUFFER = 2**17  # bytes; a column of a row group is read in pieces of this size
FIRST = 1024  # rows that say whether lists are vectors
INDEX = re.compile(r"__index_level_\d+__")  # what pandas adds for the index of a DataFrame


class Column(NamedTuple):
    """A column: its name, the field of the file that it is in, its Arrow type, and how many values lists have.

    The fields of steps, in a column of lists of structs, are columns as well: `name.field`. So are the places of lists
    that are vectors, `name[0]`, of so many: `place` is which, and of how many.
    """

    name: str
    field: str
    type: object
    values: int
    place: tuple | None = None


class Head(NamedTuple):
    """Columns, rows of each row group, and the size of a file in bytes."""

    columns: list
    groups: list
    size: int


@contextlib.contextmanager
def opened(source, **options):
    """A pyarrow ParquetFile. What it finds wrong with the file is a DataError."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        source.open()
        yield ParquetFile(source.file, buffer_size=BUFFER, pre_buffer=False, **options)
    except pyarrow.ArrowException as error:
        raise DataError(f"{source.path}: not a Parquet file, or damaged: {error}") from error
    except OSError as error:
        if error.errno is None:  # of Arrow, not of the system
            raise DataError(f"{source.path}: not a Parquet file, or damaged: {error}") from error
        error.filename = source.path
        raise
    finally:
        source.close()
        pyarrow.default_memory_pool().release_unused()


def parquet_head(path, sequences=frozenset()):
    """The `Head` of a Parquet file, where the columns of these names hold sequences, "" for all. Not collective."""
    source = Source(path)
    with opened(source) as file:
        fields = [field for field in file.schema_arrow if not INDEX.fullmatch(field.name)]
        groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        columns = []
        for field in fields:
            vector = is_list(field.type) and not sequences & {"", field.name}
            width = width_in(file, field) if vector else None
            columns += columns_of(field, groups) if width is None else vector_columns(field, width)
        return Head(columns, [group.num_rows for group in groups], source.size)


def columns_of(field, groups):
    """The `Column` of a field of a schema, or those of the steps in it."""
    from pyarrow import list_, types

    values = sum(values_of(field.name, group) for group in groups) if is_list(field.type) else 0
    if is_list(field.type) and types.is_struct(field.type.value_type):
        steps = field.type.value_type
        return [Column(f"{field.name}.{step.name}", field.name, list_(step.type), values) for step in steps]
    return [Column(field.name, field.name, field.type, values)]


def width_in(file, field):
    """How many values each of the first lists of a field has; None where they differ: then they are sequences."""
    if family_of(field.type.value_type) not in ("list", "other"):
        for batch in file.iter_batches(FIRST, columns=[field.name], use_threads=False):
            return width_of(batch.column(0))
    return None


def vector_columns(field, width):
    """The `Column`s of a field whose lists are vectors."""
    return [Column(f"{field.name}[{j}]", field.name, field.type.value_type, 0, (j, width)) for j in range(width)]


def values_of(name, group):
    """How many values the lists of one field have in a row group; a list without any counts as one."""
    leaves = (group.column(j) for j in range(group.num_columns))
    return max(leaf.num_values for leaf in leaves if leaf.path_in_schema.startswith(f"{name}."))


class ParquetTable(Table):
    """A Parquet file, opened whenever rows are asked for."""

    def __init__(self, path, head):
        self.ends = list(itertools.accumulate(head.groups))
        rows = self.ends[-1] if self.ends else 0
        super().__init__([column.name for column in head.columns], 0, rows, rows, everywhere=True)
        self.path, self.head = path, head
        self.columns = {column.name: column for column in head.columns}
        self.files = [(path, 0)]

    def check(self, wants):
        """See `Table.check`; a column whose type cannot be read as its kind is a `DataError`."""
        places(self.path, list(self.names), wants)
        for name, want in wants.items():
            where, kind = f"{self.path}: column {name!r}", self.columns[name].type
            of_rows = check_sequences(is_list(kind), want, where)
            check_type(kind.value_type if want != of_rows else kind, of_rows, where)

    def steps(self, name):
        """See `Table.steps`."""
        return self.columns[name].values

    def pieces_of(self, start, stop, wants, size):
        """See `Table.pieces_of`. No chunk has rows of two row groups."""
        kinds = {name: want.removeprefix(SEQUENCE) for name, want in wants.items()}
        texts = [name for name, kind in kinds.items() if kind != "number" and is_text(self.columns[name].type)]
        labels = {name: LabelReader(name, kind) for name, kind in kinds.items() if kind != "number"}
        fields = list(dict.fromkeys(self.columns[name].field for name in wants))
        source = Source(self.path, self.head.size)
        with opened(source, read_dictionary=texts) as file:
            for group, end in enumerate(self.ends):
                row = end - self.head.groups[group]
                if row >= stop or end <= start:
                    continue
                for batch in file.iter_batches(size, [group], fields, use_threads=False):
                    first, last = max(start, row), min(stop, row + batch.num_rows)
                    if first < last:
                        own = batch.slice(first - row, last - first)
                        yield first, {name: self.column(own, name, labels.get(name), first) for name in wants}
                    row += batch.num_rows
                    if row >= stop:
                        break

    def column(self, batch, name, labels, first):
        """The numbers or `Labels` of one column of a batch."""
        field = self.columns[name].field
        array, place = batch.column(batch.schema.get_field_index(field)), self.columns[name].place
        if place is not None:
            array = coordinate(array, *place, first, field)
        if not is_list(array.type):
            return numbers_of(array) if labels is None else labels.labels(array, first)
        if array.null_count:
            at = first + array.is_null().index(True).as_py()
            raise Fault(at, f", column {name!r}: the sequence is missing; write an empty list for one without steps")
        steps, offsets = steps_of(array)
        if field != name:
            steps = steps.field(name.removeprefix(f"{field}."))
        return Ragged(numbers_of(steps) if labels is None else labels.labels(steps, first), offsets)

    def close(self):
        """See `Table.close`."""


def open_parquet(paths, world, sequences=frozenset()):
    """The rows of Parquet files. Collective.

    Parameters
    ----------
    paths : str or path, or a list of them, whose rows follow each other
    world : has `rank`, `size` and `allgather(obj)`
    sequences : names of the columns that hold sequences, "" for all; other lists of one width are vectors

    Returns
    -------
    Table
        Every rank can read every row. Numbers are float32 if the file holds float32, else float64; null
        and NaN are missing. The columns that pandas adds for an index are left out.

    Raises
    ------
    DataError
        On all ranks, with the same message: not a Parquet file; files with other columns.
    OSError
        On all ranks when the rank that looks at a file cannot read it.
    """
    return open_files(paths, world, partial(parquet_head, sequences=frozenset(sequences)), ParquetTable)
