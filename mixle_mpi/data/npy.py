"""NumPy .npy files, which every rank can read by rows without holding more than a chunk.

Rows are read with file reads, not through a memory map: pages of a map count as resident memory
of every rank that touches them.
"""

import ast
import struct

import numpy as np

from mixle_mpi.data.table import DataError, Labels, Source, Table, agree, places

# Bytes per read. A row-major file is read through a buffer of this size, or of one row.
PIECE = 2**22

# By kind of dtype: "f" float, "i" "u" integers, "b" bool, "U" "S" strings.
READABLE = {"number": "fiub", "integer": "iubf", "text": "USiub"}


def read_header(source):
    """The shape, order and dtype of a .npy file, and the position of its first value.

    Returns
    -------
    shape : tuple of int
    fortran : bool
    dtype : numpy.dtype
    offset : int, bytes
    """
    file = source.file
    file.seek(0)
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
        raise DataError(f"{source.path}: not a .npy file: {error}") from error
    return *header, file.tell()


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
    """A .npy file that stays open; each chunk is read when it is asked for.

    Attributes
    ----------
    dtypes : dict of column name -> numpy.dtype in the file
    """

    def __init__(self, source, shape, fortran, dtype, offset):
        self.dtypes = named_columns(source.path, shape, dtype)
        super().__init__(self.dtypes, 0, shape[0], shape[0], everywhere=True)
        self.source = source
        self.by_column = fortran and len(shape) == 2
        self.dtype = dtype
        self.offset = offset
        self.row_bytes = dtype.itemsize * (shape[1] if len(shape) == 2 else 1)

    def check(self, wants):
        """See `Table.check`; a column whose dtype cannot be read as its kind is a `DataError`."""
        places(self.source.path, list(self.names), wants)
        for name, kind in wants.items():
            dtype = self.dtypes[name]
            long = dtype.kind == "f" and dtype.itemsize > 8
            if dtype.kind not in READABLE[kind] or long:
                raise DataError(
                    f"{self.source.path}: column {name!r} is {dtype}; it cannot be read as {kind}"
                )

    def read(self, start, stop, wants):
        """See `Table.read`."""
        raw = {name: np.empty(stop - start, self.dtypes[name]) for name in wants}
        if self.by_column:
            self.read_by_column(start, raw)
        else:
            self.read_by_row(start, stop, raw)
        return {name: self.converted(name, raw[name], kind, start) for name, kind in wants.items()}

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

    def converted(self, name, values, kind, start):
        """Values of the file, (n,), as `Table.chunks` yields them.

        Missing is a NaN, and as text the empty string.
        """
        if kind == "number":
            single = values.dtype.kind == "f" and values.dtype.itemsize == 4
            return values.astype(np.float32 if single else np.float64, copy=False)
        levels, codes = np.unique(values, return_inverse=True)
        levels = [self.level(name, kind, value, values, start) for value in levels.tolist()]
        # NaN and the empty string became None; the others move together.
        kept = [level for level in levels if level is not None]
        present = np.array([level is not None for level in levels], bool)
        code = np.where(present, np.cumsum(present) - 1, -1).astype(np.int32)
        return Labels(code[codes], kept)

    def level(self, name, kind, value, values, start):
        """The level for one value of the column, or None if it means missing."""
        if value != value or value in ("", b""):
            return None
        try:
            if kind == "text":
                return value.decode() if isinstance(value, bytes) else str(value)
            if isinstance(value, float) and not value.is_integer():
                raise ValueError("is not an integer")
            return int(value)
        except ValueError as error:
            text = "is not UTF-8" if kind == "text" else error
            row = start + int(np.flatnonzero(values == value)[0])
            where = f"{self.source.path}: row {row}, column {name!r}"
            raise DataError(f"{where}: {value!r} {text}") from error

    def close(self):
        """See `Table.close`."""
        self.source.close()


def open_npy(path, world):
    """The rows of a 1-d or 2-d or structured array in a .npy file. Collective.

    Parameters
    ----------
    path : str or path
    world : has `rank`, `size` and `allgather(obj)`

    Returns
    -------
    Table
        Every rank can read every row. Columns are "0", "1", ... or the names of the fields.
        Numbers are float32 if the file holds float32, else float64. Floats can be read as
        "integer" when they are whole. It keeps the file open until `close`.

    Raises
    ------
    DataError
        On all ranks, with the same message: not a .npy file; shorter than its header says; Python
        objects; not a table.
    OSError
        On all ranks when any rank cannot read the file.
    """
    source = Source(path)

    def opened():
        size = source.open()
        shape, fortran, dtype, offset = read_header(source)
        table = NpyTable(source, shape, fortran, dtype, offset)
        expected = offset + table.rows * table.row_bytes
        if size < expected:
            raise DataError(
                f"{source.path}: shape {shape} of {dtype} takes {expected} bytes; "
                f"the file has {size}"
            )
        return shape, fortran, dtype, offset

    try:
        found = agree(world, opened)
        if any(each != found[0] for each in found):
            raise DataError(f"{source.path}: ranks see different files: {found}")
    except Exception:
        source.close()
        raise
    return NpyTable(source, *found[world.rank])
