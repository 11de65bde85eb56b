"""Files of bytes that are read by position."""

import os

import numpy as np

from mixle_mpi.data.table import DataError


class Source:
    """A file of bytes, read by position, unbuffered: only the bytes asked for are read.

    `size` is its size in bytes, None until it is known; a file that has another one is refused.
    """

    def __init__(self, path, size=None):
        self.path = os.fspath(path)
        self.size = size
        self.file = None

    def open(self):
        """Open the file, if it is not open, and return its size in bytes."""
        if self.file is None:
            self.file = open(self.path, "rb", buffering=0)
            size = self.file.seek(0, os.SEEK_END)
            if self.size not in (None, size):
                self.close()
                raise DataError(f"{self.path}: ranks see different files, of {sorted([self.size, size])} bytes")
            self.size = size
        return self.size

    def beginning(self, size):
        """The first `size` bytes of an open file, (k,) uint8, or all that it has."""
        text = np.empty(min(size, self.size), np.uint8)
        self.read(0, text)
        return text

    def read(self, position, buffer):
        """Fill `buffer`, a contiguous (k,) uint8 array, with the k bytes from `position` on."""
        view = memoryview(buffer)
        done = 0
        try:
            self.file.seek(position)
            while done < len(view):
                # One read of Linux gives at most 2 GiB - 4 KiB, and a network file may give less.
                count = self.file.readinto(view[done:])
                if not count:
                    raise DataError(
                        f"{self.path}: byte {position + done} is missing; the file had "
                        f"{self.size} bytes when it was opened"
                    )
                done += count
        except OSError as error:
            error.filename = self.path
            raise

    def blocks(self, start, stop, size):
        """Yield (position, (k,) uint8) for the bytes start to stop, `size` bytes at a time."""
        for position in range(start, stop, size):
            block = np.empty(min(size, stop - position), np.uint8)
            self.read(position, block)
            yield position, block

    def close(self):
        """Close the file."""
        if self.file is not None:
            self.file.close()
            self.file = None
