"""Sparse matrices in .npz files, as scipy.sparse.save_npz writes them: a row is a bag of words, "word" and "count".

Of the csr format each rank reads the rows that it is asked for: arrays that are stored as they are by position, those
that are compressed as streams, unpacked up to the last row that a rank needs. Other formats have no rows, and are read
whole by every rank.
"""

from typing import NamedTuple

import numpy as np

from mixle_mpi.data import npy
from mixle_mpi.data.bags import BLOCK, blocks
from mixle_mpi.data.labels import labels_of_array, readable
from mixle_mpi.data.npz_members import Member, bytes_of, damaged, member_of
from mixle_mpi.data.ragged import Ragged, check_sequences
from mixle_mpi.data.source import Source
from mixle_mpi.data.table import SEQUENCE, DataError, Fault, Table, places
from mixle_mpi.models.bag import COUNT, WORD

MARKS = ("format", "shape", "data")  # arrays that every sparse matrix has; of a plain file the first is one of rows
WHOLE = ("csc", "coo", "bsr", "dia")
ROWS = 2**16  # of which the borders are read at once


class Head(NamedTuple):
    """Format, shape and arrays of a sparse matrix by name, and the size of the file in bytes."""

    format: str
    shape: tuple
    members: dict
    size: int


def is_sparse(source, archive):
    """Whether the arrays of a zip file are those of a sparse matrix, of which the format is one text."""
    infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if not all(name in infos for name in MARKS):
        return False
    with archive.open(infos["format"]) as stream:
        return npy.header_of(f"{source.path}: array 'format'", stream)[0] == ()


def sparse_head(source, archive):
    """The `Head` of an open file. Raises DataError that names the array with which something is wrong."""
    infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    kind = small(source.path, archive, infos["format"], "format")
    kind = kind.decode(errors="replace") if isinstance(kind, bytes) else kind
    shape = small(source.path, archive, infos["shape"], "shape")
    if not (isinstance(shape, list) and len(shape) == 2 and all(isinstance(n, int) and n >= 0 for n in shape)):
        raise DataError(f"{source.path}: array 'shape': {shape!r} is not the shape of documents x words")
    if kind not in ("csr", *WHOLE):
        raise DataError(f"{source.path}: array 'format': {kind!r} is no format that is read: csr, {', '.join(WHOLE)}")
    head = Head(kind, tuple(shape), {}, source.size)
    for name in ("indptr", "indices", "data") if kind == "csr" else ():
        if name not in infos:
            raise DataError(f"{source.path}: there is no array {name!r}, which a sparse matrix of format {kind} has")
        head.members[name] = member_of(source, archive, infos[name])
    if head.members:
        check_head(source.path, head)
    return head


def small(path, archive, info, name):
    """A scalar or a few values as plain Python. Raises DataError."""
    try:
        with archive.open(info) as stream:
            values = np.lib.format.read_array(stream, allow_pickle=False)
    except ValueError as error:
        raise DataError(f"{path}: array {name!r}: {error}") from error
    return values.tolist()


def check_head(path, head):
    """Raise DataError unless the arrays can be those of a matrix of this shape."""
    for name, member in head.members.items():
        check_kind(path, name, member.head.dtype)
        shape = member.head.shape
        if len(shape) != 1:
            raise DataError(f"{path}: array {name!r} has shape {shape}, not one dimension")
    lengths = {name: member.head.shape[0] for name, member in head.members.items()}
    if lengths["indptr"] != head.shape[0] + 1:
        raise DataError(f"{path}: array 'indptr' has {lengths['indptr']} values, not {head.shape[0] + 1}: 'shape' says "
                        f"{head.shape[0]} rows")  # fmt: skip
    if lengths["indices"] != lengths["data"]:
        raise DataError(f"{path}: array 'indices' has {lengths['indices']} values, 'data' {lengths['data']}")


def check_kind(path, name, dtype):
    """Raise DataError unless an array of this name can be of a type."""
    kinds, what = ("fiub", "counts") if name == "data" else ("iu", "integers")
    if dtype.kind not in kinds or not readable(dtype, "number"):
        raise DataError(f"{path}: array {name!r} is of {dtype}, not of {what}")


class Values:
    """An array of one dimension in a file, read by ranges that increase."""

    def __init__(self, path, size, member: Member):
        self.source, self.head = bytes_of(path, size, member), member.head

    def read(self, start, stop):
        """The values start to stop."""
        self.source.open()
        values = np.empty(stop - start, self.head.dtype)
        if len(values):
            self.source.read(self.head.offset + start * self.head.dtype.itemsize, values.view(np.uint8))
        return values

    def close(self):
        """Close the file."""
        self.source.close()


class Rows:
    """The rows of a matrix in csr format, read from its file."""

    def __init__(self, path, head: Head):
        self.arrays = {name: Values(path, head.size, member) for name, member in head.members.items()}
        self.words, self.entries = head.shape[1], head.members["data"].head.shape[0]

    def pieces(self, start, stop, size):
        """Yield (row, words, counts, offsets) for the rows start to stop, at most `size` rows and some entries a time.

        Raises `Fault`.
        """
        last = None
        for row in range(start, stop, ROWS):
            end = min(row + ROWS, stop)
            # the last border again would be a step back in a stream
            new = self.arrays["indptr"].read(row + (last is not None), end + 1).astype(np.int64)
            borders = new if last is None else np.append(last, new)
            last = borders[-1:]
            self.check_borders(row, borders)
            for a, b in blocks(borders, BLOCK):
                for c in range(a, b, size):
                    yield row + c, *self.entries_of(row + c, borders[c : min(c + size, b) + 1])

    def check_borders(self, row, borders):
        """Raise `Fault` of the first row whose entries are not where the others end, or not there."""
        begin, end = borders[:-1], borders[1:]
        bad = (begin < 0) | (end < begin) | (end > self.entries)
        bad[0] |= row == 0 and begin[0] != 0
        if bad.any():
            at = int(np.argmax(bad))
            raise Fault(row + at, f", array 'indptr': its entries are said to be {begin[at]} to {end[at]} of "
                        f"{self.entries}")  # fmt: skip

    def entries_of(self, row, borders):
        """Words, counts and offsets of the rows with these borders."""
        first, stop = int(borders[0]), int(borders[-1])
        words, counts = (self.arrays[name].read(first, stop) for name in ("indices", "data"))
        bad = (words < 0) | (words >= self.words)
        if bad.any():
            at = int(np.argmax(bad))
            raise Fault(row + int(np.searchsorted(borders - first, at, side="right")) - 1,
                        f", array 'indices': {words[at]} is no column of {self.words}")  # fmt: skip
        return words, counts, borders - first

    def close(self):
        """Close the files."""
        for values in self.arrays.values():
            values.close()


class WholeMatrix:
    """The rows of a matrix in another format, read by SciPy when they are first asked for."""

    def __init__(self, path, head: Head):
        self.path, self.head, self.held = path, head, None

    @property
    def entries(self):
        """How many entries the matrix has."""
        return self.matrix().nnz

    def pieces(self, start, stop, size):
        """See `Rows.pieces`."""
        matrix = self.matrix()
        borders = matrix.indptr[start : stop + 1].astype(np.int64)
        for a, b in blocks(borders, BLOCK):
            for c in range(a, b, size):
                own = borders[c : min(c + size, b) + 1]
                part = slice(own[0], own[-1])
                yield start + c, matrix.indices[part], matrix.data[part], own - own[0]

    def matrix(self):
        """The matrix as csr, read when it is not there."""
        if self.held is None:
            self.held = self.read()
            check_kind(self.path, "data", self.held.dtype)
        return self.held

    def read(self):
        """The matrix, as csr. Raises DataError."""
        import scipy.sparse

        source = Source(self.path, self.head.size)
        try:
            source.open()
            with damaged(self.path):
                return scipy.sparse.load_npz(self.path).tocsr()
        except (ValueError, KeyError, TypeError, IndexError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{self.path}: not a sparse matrix of format {self.head.format}: {error}") from error
        finally:
            source.close()

    def close(self):
        """Free the memory."""
        self.held = None


class SparseTable(Table):
    """A sparse matrix in a .npz file: documents x words, of counts."""

    matrix = True

    def __init__(self, path, head: Head):
        super().__init__((WORD, COUNT), 0, head.shape[0], head.shape[0], everywhere=True)
        self.path, self.head = path, head
        self.files = [(path, 0)]
        self.rows_of = Rows(path, head) if head.format == "csr" else WholeMatrix(path, head)

    def check(self, wants):
        """See `Table.check`."""
        places(self.path, list(self.names), wants)
        for name, want in wants.items():
            where = f"{self.path}: column {name!r}"
            if name == COUNT and check_sequences(True, want, where) != "number":
                raise DataError(f"{where} is of counts; it cannot be read as labels")
            check_sequences(True, want, where)

    def steps(self, name):
        """See `Table.steps`."""
        return self.rows_of.entries

    def pieces_of(self, start, stop, wants, size):
        """See `Table.pieces_of`."""
        for row, words, counts, offsets in self.rows_of.pieces(start, stop, size):
            columns = {WORD: words, COUNT: counts}
            yield row, {name: Ragged(flat(columns[name], name, want), offsets) for name, want in wants.items()}

    def close(self):
        """See `Table.close`."""
        self.rows_of.close()


def flat(values, name, want):
    """The values of all steps as they are wanted."""
    want = want.removeprefix(SEQUENCE)
    return npy.converted(name, values, want, 0) if want == "number" else labels_of_array(values, want, name, 0)
