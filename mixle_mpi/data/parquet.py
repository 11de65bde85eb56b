"""Parquet files: each rank decodes the row groups that its rows are in, and only the wanted columns.

Row groups are decoded from their beginning, a batch at a time. Where ranks share a row group, each of
them decodes it up to its own last row: the time of one decoding, no message, and never more than a
batch in memory.
"""

import contextlib
import itertools
import re
from typing import NamedTuple

from mixle_mpi.data.arrow import LabelReader, check_type, is_text, numbers_of
from mixle_mpi.data.files import open_files
from mixle_mpi.data.source import Source
from mixle_mpi.data.table import DataError, Table, places

BUFFER = 2**17  # bytes; a column of a row group is read in pieces of this size
INDEX = re.compile(r"__index_level_\d+__")  # what pandas adds for the index of a DataFrame


class Head(NamedTuple):
    """Columns with their Arrow types, rows of each row group, and the size of a file in bytes."""

    names: list
    types: list
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


def parquet_head(path):
    """The `Head` of a Parquet file. Not collective."""
    source = Source(path)
    with opened(source) as file:
        fields = [field for field in file.schema_arrow if not INDEX.fullmatch(field.name)]
        groups = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        return Head([field.name for field in fields], [field.type for field in fields], groups, source.size)


class ParquetTable(Table):
    """A Parquet file, opened whenever rows are asked for."""

    def __init__(self, path, head):
        self.ends = list(itertools.accumulate(head.groups))
        rows = self.ends[-1] if self.ends else 0
        super().__init__(head.names, 0, rows, rows, everywhere=True)
        self.path, self.head = path, head
        self.files = [(path, 0)]

    def check(self, wants):
        """See `Table.check`; a column whose type cannot be read as its kind is a `DataError`."""
        for (name, want), place in zip(wants.items(), places(self.path, list(self.names), wants)):
            check_type(self.head.types[place], want, f"{self.path}: column {name!r}")

    def pieces_of(self, start, stop, wants, size):
        """See `Table.pieces_of`. No chunk has rows of two row groups."""
        types = dict(zip(self.names, self.head.types))
        texts = [name for name, want in wants.items() if want != "number" and is_text(types[name])]
        labels = {name: LabelReader(name, want) for name, want in wants.items() if want != "number"}
        source = Source(self.path, self.head.size)
        with opened(source, read_dictionary=texts) as file:
            for group, end in enumerate(self.ends):
                row = end - self.head.groups[group]
                if row >= stop or end <= start:
                    continue
                for batch in file.iter_batches(size, [group], list(wants), use_threads=False):
                    first, last = max(start, row), min(stop, row + batch.num_rows)
                    if first < last:
                        own = batch.slice(first - row, last - first)
                        yield first, {name: self.column(own, name, labels.get(name), first) for name in wants}
                    row += batch.num_rows
                    if row >= stop:
                        break

    def column(self, batch, name, labels, first):
        """The numbers or `Labels` of one column of a batch."""
        array = batch.column(batch.schema.get_field_index(name))
        return numbers_of(array) if labels is None else labels.labels(array, first)

    def close(self):
        """See `Table.close`."""


def open_parquet(paths, world):
    """The rows of Parquet files. Collective.

    Parameters
    ----------
    paths : str or path, or a list of them, whose rows follow each other
    world : has `rank`, `size` and `allgather(obj)`

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
    return open_files(paths, world, parquet_head, ParquetTable)
