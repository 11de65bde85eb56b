"""The arrays of .npz files and their bytes, stored as they are or compressed."""

import contextlib
import zipfile
import zlib
from typing import NamedTuple

from mixle_mpi.data import npy
from mixle_mpi.data.source import Source
from mixle_mpi.data.table import DataError

SKIP = 2**20  # bytes that are unpacked and dropped at once
LOCAL = 30  # bytes of a zip file's local header before the name


class Member(NamedTuple):
    """An array: its name, the zip member, its `npy.Head`, and where its bytes start if they are stored as they are."""

    name: str
    file: str
    head: npy.Head
    position: int | None


@contextlib.contextmanager
def damaged(path):
    """Errors of unpacking as a DataError."""
    try:
        yield  # zipfile: NotImplementedError for a compression that it does not know, RuntimeError for a password
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{path}: not a .npz file, or damaged: {error}") from error


def member_of(source, archive, info):
    """The `Member` of an entry of the zip file."""
    name = info.filename.removesuffix(".npy")
    with archive.open(info) as stream:
        head = npy.read_header(f"{source.path}: array {name!r}", stream, info.file_size)
    position = None
    if info.compress_type == zipfile.ZIP_STORED:
        source.file.seek(info.header_offset + LOCAL - 4)
        lengths = source.file.read(4)
        position = info.header_offset + LOCAL + sum(int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2))
    return Member(name, info.filename, head, position)


class Shifted:
    """A `Source` whose positions start inside the file."""

    def __init__(self, source, start):
        self.source, self.start = source, start

    def open(self):
        """Open the file."""
        self.source.open()

    def read(self, position, buffer):
        """See `Source.read`."""
        self.source.read(self.start + position, buffer)

    def close(self):
        """Close the file."""
        self.source.close()


class Unpacked:
    """The bytes of a compressed member, read by positions that increase; else it starts again."""

    def __init__(self, path, size, name):
        self.source, self.name = Source(path, size), name
        self.archive = self.stream = None
        self.position = 0

    def open(self):
        """Open the file."""
        self.source.open()

    def read(self, position, buffer):
        """See `Source.read`."""
        view = memoryview(buffer)
        with damaged(self.source.path):
            if self.stream is None or position < self.position:
                self.source.file.seek(0)
                self.archive = zipfile.ZipFile(self.source.file)
                self.stream, self.position = self.archive.open(self.name), 0
            while self.position < position:
                self.position += len(self.checked(self.stream.read(min(SKIP, position - self.position))))
            done = 0
            while done < len(view):
                piece = self.checked(self.stream.read(min(SKIP, len(view) - done)))
                view[done : done + len(piece)] = piece
                done += len(piece)
            self.position += done

    def checked(self, piece):
        """The piece, unless the stream has ended."""
        if not piece:
            raise EOFError(f"{self.name} ends too early")
        return piece

    def close(self):
        """Close the file."""
        self.archive = self.stream = None
        self.source.close()


def bytes_of(path, size, member):
    """The bytes of an array in a file of `size` bytes, as a `Source` that starts where its header does."""
    if member.position is not None:
        return Shifted(Source(path, size), member.position)
    return Unpacked(path, size, member.file)
