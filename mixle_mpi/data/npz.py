"""NumPy .npz files: named arrays in a zip file, read by rows.

An array that is stored as it is, is read by position like a .npy file. One that is compressed can only be
read from its beginning: it is unpacked as a stream, a chunk at a time, up to the last row that a rank needs.
"""

import zipfile
from typing import NamedTuple

from mixle_mpi.data import npy, sparse_npz
from mixle_mpi.data.files import open_files
from mixle_mpi.data.npz_members import Unpacked, bytes_of, damaged, member_of
from mixle_mpi.data.source import Source
from mixle_mpi.data.table import DataError, Table, places


class Head(NamedTuple):
    """The arrays of a file, and its size in bytes."""

    members: list
    size: int


def npz_head(path):
    """The `Head` of a .npz file, or that of a sparse matrix in it. Not collective."""
    source = Source(path)
    try:
        size = source.open()
        with damaged(source.path), zipfile.ZipFile(source.file) as archive:
            if sparse_npz.is_sparse(source, archive):
                return sparse_npz.sparse_head(source, archive)
            members = [member_of(source, archive, info) for info in archive.infolist()]
    finally:
        source.close()
    check_members(source.path, members)
    return Head(members, size)


def check_members(path, members):
    """Raise DataError unless the arrays are columns of one table."""
    if not members:
        raise DataError(f"{path}: there is no array in it")
    lengths = {member.name: member.head.shape[0] for member in members}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{path}: arrays of different lengths: {lengths}")
    for member in members:
        if len(members) > 1 and member.head.dtype.names:
            raise DataError(f"{path}: array {member.name!r} has fields; that is read as the only array of a file")


class NpzTable(Table):
    """The arrays of a .npz file side by side.

    Attributes
    ----------
    columns : dict of column name -> (table of its array, its name there)
    """

    def __init__(self, path, head):
        self.path = path
        self.tables = []
        self.columns = {}
        for member in head.members:
            for table, names in self.tables_of(member, head.size, len(head.members) == 1):
                self.tables.append(table)
                self.columns |= {outside: (table, inside) for inside, outside in names.items()}
        rows = head.members[0].head.shape[0]
        super().__init__(self.columns, 0, rows, rows, everywhere=True)
        self.files = [(path, 0)]

    def tables_of(self, member, size, alone):
        """Yield (table, dict of name in the table -> column) for an array.

        A compressed array in Fortran order has a table, and a stream, for each column.
        """
        head, name = member.head, member.name
        table = npy.NpyTable(self.path, head, bytes_of(self.path, size, member))
        if len(head.shape) == 1:
            yield table, {inside: inside if head.dtype.names else name for inside in table.names}
            return
        names = {str(j): str(j) if alone else f"{name}[{j}]" for j in range(head.shape[1])}
        if member.position is not None or not head.fortran:
            yield table, names
            return
        for j, column in names.items():
            at = head.offset + int(j) * head.shape[0] * head.dtype.itemsize
            own = head._replace(shape=head.shape[:1], fortran=False, offset=at)
            yield npy.NpyTable(self.path, own, Unpacked(self.path, size, member.file)), {"0": column}

    def check(self, wants):
        """See `Table.check`."""
        places(self.path, list(self.names), wants)
        for name, kind in wants.items():
            table, inside = self.columns[name]
            npy.check_column(self.path, name, table.dtypes[inside], kind)

    def read(self, start, stop, wants):
        """See `Table.read`."""
        raw = {}
        for table in self.tables:
            inside = {self.columns[name][1]: name for name in wants if self.columns[name][0] is table}
            if inside:
                part = table.read_raw(start, stop, inside)
                raw |= {name: part[own] for own, name in inside.items()}
        return {name: npy.converted(name, raw[name], kind, start) for name, kind in wants.items()}

    def close(self):
        """See `Table.close`."""
        for table in self.tables:
            table.close()


def table_of(path, head):
    """The table of a file whose `Head` is known."""
    return sparse_npz.SparseTable(path, head) if isinstance(head, sparse_npz.Head) else NpzTable(path, head)


def open_npz(paths, world):
    """The rows of the arrays in .npz files. Collective.

    Parameters
    ----------
    paths : str or path, or a list of them, whose rows follow each other
    world : has `rank`, `size` and `allgather(obj)`

    Returns
    -------
    Table
        Every rank can read every row. One 2-d array has columns "0", "1", ..., and one with fields their
        names; otherwise a 1-d array is the column of its name, and a 2-d array the columns name[0], name[1], ...
        A sparse matrix, see `sparse_npz`, has the columns "word" and "count" of sequences.

    Raises
    ------
    DataError
        On all ranks, with the same message: not a .npz file; Python objects; arrays of different lengths.
    OSError
        On all ranks when the rank that looks at a file cannot read it.
    """
    return open_files(paths, world, npz_head, table_of)
