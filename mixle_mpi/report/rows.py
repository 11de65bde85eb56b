"""One CSV line for each scored row, and the file that all ranks write together."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np

from mixle_mpi.data.table import agree, on_first

COPY = 1 << 20  # bytes


def header(units: int, word: str = "component") -> bytes:
    """The first line; without posteriors for 0 units, of which each is a `word`."""
    names = [word, *(f"p_{k}" for k in range(units))] if units else []
    return (",".join(["row", "log_density", *names]) + "\n").encode()


def completion_header(topics: int) -> bytes:
    """The first line of a file of documents of which words are held out."""
    return (",".join(["row", "words", "log_density", "topic", *(f"p_{k}" for k in range(topics))]) + "\n").encode()


def completion_lines(first: int, words: np.ndarray, scores: np.ndarray, mixes: np.ndarray) -> bytes:
    """The lines of rows from `first` on: words held out (n,), their log densities (n,), and mixes (n, topics)."""
    rows = zip(words.tolist(), scores.tolist(), mixes.argmax(axis=1).tolist(), mixes.tolist())
    return "".join(f"{first + i},{n:g},{s!r},{k},{_cells(p)}\n" for i, (n, s, k, p) in enumerate(rows)).encode()


def row_lines(first: int, scores: np.ndarray, posterior: np.ndarray | None) -> bytes:
    """The lines of scores (n,) and posteriors (n, K) of rows from `first` on; NaN is an empty cell."""
    rows = [f"{first + i},{score!r}" for i, score in enumerate(scores.tolist())]
    if posterior is not None:
        likeliest = posterior.argmax(axis=1).tolist()
        for i, p in enumerate(posterior.tolist()):
            known = p[0] == p[0]
            rows[i] += f",{likeliest[i]}," + ",".join(map(repr, p)) if known else "," * (len(p) + 1)
    return "".join(row + "\n" for row in rows).encode()


def decoded_header(states: int, steps: bool) -> bytes:
    """The first line of a file of states: of each step, or of the one after the last."""
    return (",".join(["row", *["step"] * steps, "state", *(f"p_{k}" for k in range(states))]) + "\n").encode()


def step_lines(first: int, offsets: np.ndarray, path: np.ndarray, posterior: np.ndarray) -> bytes:
    """The lines of all steps of rows from `first` on, between offsets (rows + 1,): states path (steps,), an empty cell
    for -1, and their posteriors (steps, S), an empty cell for NaN."""
    lengths = np.diff(offsets)
    row = np.repeat(np.arange(first, first + len(lengths)), lengths).tolist()
    step = (np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)).tolist()
    cells = zip(row, step, path.tolist(), posterior.tolist())
    return "".join(f"{r},{t},{s if s >= 0 else ''},{_cells(p)}\n" for r, t, s, p in cells).encode()


def forecast_lines(first: int, forecast: np.ndarray) -> bytes:
    """The lines of rows from `first` on: the likeliest state of the next step, and forecasts (rows, S)."""
    rows = zip(forecast.argmax(axis=1).tolist(), forecast.tolist())
    return "".join(f"{first + i},{s if p[0] == p[0] else ''},{_cells(p)}\n" for i, (s, p) in enumerate(rows)).encode()


def _cells(p: list[float]) -> str:
    return ",".join(repr(x) if x == x else "" for x in p)


class SharedFile:
    """A file to which every rank appends; the parts follow each other in rank order.

    What a rank writes is spooled to a nameless file beside the target. `finish` copies the spools to their
    places in one temporary file, which takes the target's place when it is complete.
    """

    def __init__(self, path: Path, world):
        self.path, self.world = path, world
        self._part = path.with_name(path.name + ".part")

    def __enter__(self) -> SharedFile:
        agree(self.world, self._open)
        return self

    def __exit__(self, kind, error, trace) -> None:
        self._spool.close()

    def _open(self) -> None:
        self._spool = tempfile.TemporaryFile(dir=self.path.parent)

    def write(self, text: bytes) -> None:
        """Append to this rank's part."""
        self._spool.write(text)

    def finish(self) -> None:
        """Put the parts together. Collective.

        Raises OSError on all ranks when a rank cannot write its part.
        """
        lengths = agree(self.world, self._length)
        on_first(self.world, lambda: self._part.write_bytes(b""))
        agree(self.world, lambda: self._copy_to(sum(lengths[: self.world.rank])))
        on_first(self.world, lambda: os.replace(self._part, self.path))

    def _length(self) -> int:
        self._spool.flush()
        return self._spool.tell()

    def _copy_to(self, position: int) -> None:
        self._spool.seek(0)
        with open(self._part, "r+b") as file:
            file.seek(position)
            shutil.copyfileobj(self._spool, file, COPY)
            file.flush()
            os.fsync(file.fileno())
