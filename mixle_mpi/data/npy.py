"""NumPy .npy files, which every rank can read by rows without holding more than a chunk.

Rows are read with file reads, not through a memory map: pages of a map count as resident memory
of every rank that touches them.
"""

import ast
import math
import struct
from typing import NamedTuple

import numpy as np

from mixle_mpi.data.files import open_files
from mixle_mpi.data.labels import labels_of_array, readable
from mixle_mpi.data.source import Source
from mixle_mpi.data.table import DataError, Table, places

# Bytes per read. A row-major file is read through a buffer of this size, or of one row.
PIECE = 2**22


class Head(NamedTuple):
    """Shape, order and dtype of an array, position of its first value, and size of the file in bytes."""

    shape: tuple
    fortran: bool
    dtype: np.dtype
    offset: int
    size: int


def read_header(path, file, size):
    """The `Head` of an array in the .npy format: a file at its beginning, of `size` bytes.

    Raises DataError for other formats, Python objects, arrays that are no tables, and too few bytes.
    """
    head = Head(*header_of(path, file), file.tell(), size)
    named_columns(path, head.shape, head.dtype)
    expected = head.offset + head.dtype.itemsize * math.prod(head.shape)
    if size < expected:
        raise DataError(f"{path}: shape {head.shape} of {head.dtype} takes {expected} bytes; the file has {size}")
    return head


def header_of(path, file):
    """Shape, whether in Fortran order, and dtype of an array in the .npy format. Raises DataError for other formats."""
    try:
        version = np.lib.format.read_magic(file)
        # numpy limits the header because it is parsed as Python; a table may have many fields.
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(file, max_header_size=2**20)
        elif version == (2, 0):
            header = np.lib.format.read_array_header_2_0(file, max_header_size=2**20)
        elif version == (3, 0):
            # The header of version 2 in UTF-8, for which numpy has no public reader.
            (length,) = struct.unpack("<I", file.read(4))
            fields = ast.literal_eval(file.read(min(length, 2**20)).decode())
            dtype = np.lib.format.descr_to_dtype(fields["descr"])
            header = fields["shape"], fields["fortran_order"], dtype
        else:
            raise ValueError(f"version {version} of the format is unknown")
    except (ValueError, SyntaxError, KeyError, struct.error) as error:
        raise DataError(f"{path}: not a .npy file: {error}") from error
    return header


def npy_head(path):
    """The `Head` of a .npy file. Not collective."""
    source = Source(path)
    try:
        size = source.open()
        source.file.seek(0)
        return read_header(source.path, source.file, size)
    finally:
        source.close()


def named_columns(path, shape, dtype):
    """The columns as a dict of name -> dtype; refuses arrays that are no table of scalars."""
    if dtype.hasobject:
        raise DataError(f"{path}: the array holds Python objects, which are not unpickled")
    if dtype.names is None and len(shape) in (1, 2):
        columns = shape[1] if len(shape) == 2 else 1
        return {str(column): dtype for column in range(columns)}
    if dtype.names is None or len(shape) != 1:
        raise DataError(f"{path}: shape {shape} of {dtype} is not a table of rows and columns")
    for name in dtype.names:
        if dtype[name].names is not None or dtype[name].subdtype is not None:
            raise DataError(f"{path}: field {name!r} is {dtype[name]}; a field must be one value")
    return {name: dtype[name] for name in dtype.names}


class NpyTable(Table):
    """An array in the .npy format; each chunk is read when it is asked for.

    Attributes
    ----------
    source : the bytes, read by position
    dtypes : dict of column name -> numpy.dtype in the file
    """

    def __init__(self, path, head, source=None):
        self.dtypes = named_columns(path, head.shape, head.dtype)
        super().__init__(self.dtypes, 0, head.shape[0], head.shape[0], everywhere=True)
        self.path = path
        self.files = [(path, 0)]
        self.source = Source(path, head.size) if source is None else source
        self.by_column = head.fortran and len(head.shape) == 2
        self.dtype = head.dtype
        self.offset = head.offset
        self.row_bytes = head.dtype.itemsize * (head.shape[1] if len(head.shape) == 2 else 1)

    def check(self, wants):
        """See `Table.check`; a column whose dtype cannot be read as its kind is a `DataError`."""
        places(self.path, list(self.names), wants)
        for name, kind in wants.items():
            check_column(self.path, name, self.dtypes[name], kind)

    def read(self, start, stop, wants):
        """See `Table.read`."""
        raw = self.read_raw(start, stop, wants)
        return {name: converted(name, raw[name], kind, start) for name, kind in wants.items()}

    def read_raw(self, start, stop, names):
        """The rows start to stop of the named columns, (n,) in the types of the file."""
        self.source.open()
        raw = {name: np.empty(stop - start, self.dtypes[name]) for name in names}
        if self.by_column:
            self.read_by_column(start, raw)
        else:
            self.read_by_row(start, stop, raw)
        return raw

    def read_by_column(self, start, raw):
        """Fill the (n,) arrays of `raw` from row `start` on; a column is contiguous there."""
        for name, values in raw.items():
            first = int(name) * self.rows + start
            self.source.read(self.offset + first * self.dtype.itemsize, values.view(np.uint8))

    def read_by_row(self, start, stop, raw):
        """Fill the (n,) arrays of `raw` from row `start` on; a row is contiguous in the file."""
        size = min(PIECE // max(self.row_bytes, 1) + 1, stop - start)
        buffer = np.empty(size * self.row_bytes, np.uint8)
        for row in range(start, stop, size):
            n = min(size, stop - row)
            filled = buffer[: n * self.row_bytes]
            self.source.read(self.offset + row * self.row_bytes, filled)
            block = filled.view(self.dtype)
            if self.dtype.names is None:
                block = block.reshape(n, len(self.names))
            for name, values in raw.items():
                column = block[name] if self.dtype.names else block[:, int(name)]
                values[row - start : row - start + n] = column

    def close(self):
        """See `Table.close`."""
        self.source.close()


def check_column(path, name, dtype, kind):
    """Raise DataError unless a column of a NumPy type can be read as a kind."""
    if not readable(dtype, kind):
        raise DataError(f"{path}: column {name!r} is {dtype}; it cannot be read as {kind}")


def converted(name, values, kind, first):
    """Values of a file, (n,), from row `first` on, as `Table.chunks` yields them.

    Missing is a NaN, and of strings the empty one.
    """
    if kind == "number":
        single = values.dtype.kind == "f" and values.dtype.itemsize == 4
        return values.astype(np.float32 if single else np.float64, copy=False)
    return labels_of_array(values, kind, name, first)


def open_npy(paths, world):
    """The rows of 1-d, 2-d or structured arrays in .npy files. Collective.

    Parameters
    ----------
    paths : str or path, or a list of them, whose rows follow each other
    world : has `rank`, `size` and `allgather(obj)`

    Returns
    -------
    Table
        Every rank can read every row. Columns are "0", "1", ... or the names of the fields.
        Numbers are float32 if the file holds float32, else float64. Floats can be read as
        "integer" when they are whole.

    Raises
    ------
    DataError
        On all ranks, with the same message: not a .npy file; shorter than its header says; Python
        objects; not a table; files with other columns.
    OSError
        On all ranks when the rank that looks at a file cannot read it.
    """
    return open_files(paths, world, npy_head, NpyTable)
