"""Checkpoint files: `state.npz`, and `state_prev.npz` before it. One of them is complete at any instant. No pickle.

Where starts run on several grids side by side each grid but the first has such files of its own, `state-1.npz` and so
on. A checkpoint holds no rank: parameters are the whole tree's matrices by name, so that any grid resumes it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import DataError
from mixle_mpi.execution.saved import sync_directory

SCHEMA = 1
STATE = "state"  # the files' name; that of a grid beside the first is followed by its number
NEWEST, PREVIOUS = f"{STATE}.npz", f"{STATE}_prev.npz"
NAMED = re.compile(rf"({STATE}(?:-\d+)?)(?:_prev)?\.npz")
Matrices = dict[str, np.ndarray]


@dataclass
class Checkpoint:
    """What a fit goes on from.

    Attributes
    ----------
    document : plain data: the state between two iterations, and the run that it belongs to
    theta : matrix name -> (rows, width) float64, the parameters
    best : the same of the best start that ended, or None
    rows : path -> (rows, values), what banks keep of the rows
    path : the file that it was read from
    flaw : why the newest file was passed over, else ""
    """

    document: dict
    theta: Matrices
    best: Matrices | None = None
    rows: Matrices = field(default_factory=dict)
    path: Path = Path(NEWEST)
    flaw: str = ""


def name_of(group: int) -> str:
    """The name of the files of a grid, by its number among those side by side."""
    return f"{STATE}-{group}" if group else STATE


def found_in(directory: Path) -> list[str]:
    """The checkpoint files in a directory, good or bad, the first grid's first."""
    names = (path.name for path in directory.glob(f"{STATE}*.npz"))
    return sorted((name for name in names if NAMED.fullmatch(name)), key=lambda name: (len(name), name))


def exists(directory: Path) -> bool:
    """Whether there is a checkpoint file, good or bad."""
    return bool(found_in(directory))


def write(directory: Path, checkpoint: Checkpoint, keep: bool = True, name: str = STATE) -> None:
    """Make a checkpoint the newest, and the newest the previous unless `keep` is False (it is known to be bad).

    The file is complete and on the disk before it takes its place: a kill at any instant leaves a complete one.

    Raises
    ------
    OSError
        When it cannot be written; the files before stay as they are.
    """
    newest, previous = _files(directory, name)
    temporary = newest.with_name(f"{newest.name}.part")
    try:
        with open(temporary, "wb") as file:
            entries: dict[str, Any] = _entries(checkpoint)
            np.savez(file, **entries)
            file.flush()
            os.fsync(file.fileno())
        if keep and newest.exists():
            os.replace(newest, previous)
        os.replace(temporary, newest)
        sync_directory(directory)
    except OSError:
        with contextlib.suppress(OSError):  # the error to tell of is the first
            temporary.unlink()
        raise


def _files(directory: Path, name: str) -> tuple[Path, Path]:
    """The newest and the previous file of a name."""
    return directory / f"{name}.npz", directory / f"{name}_prev.npz"


def read_all(directory: Path) -> Iterator[Checkpoint]:
    """The newest complete checkpoint of each grid that left some, one after another. See `read` for errors."""
    names = dict.fromkeys(named[1] for file in found_in(directory) if (named := NAMED.fullmatch(file)) is not None)
    return (found for name in names if (found := read(directory, name)) is not None)


def read(directory: Path, name: str = STATE) -> Checkpoint | None:
    """The newest checkpoint of a name that is complete; None when there is no file at all.

    Raises
    ------
    DataError
        When there are files and none is complete.
    OSError
        When a file cannot be read.
    """
    flaws = []
    for path in _files(directory, name):
        try:
            found = _read(path)
        except FileNotFoundError:
            continue
        except DataError as error:
            flaws.append(str(error))
        else:
            found.flaw = "; ".join(flaws)
            return found
    if flaws:
        raise DataError(f"{directory} holds no complete checkpoint: {'; '.join(flaws)}")
    return None


def _entries(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """The arrays of a file: a document, numbered matrices, and the checksum of them all."""
    parts = {"theta": checkpoint.theta, "best": checkpoint.best or {}, "rows": checkpoint.rows}
    names = {part: list(matrices) for part, matrices in parts.items()}
    text = json.dumps({"schema": SCHEMA, "matrices": names} | checkpoint.document)
    arrays = {"document": np.frombuffer(text.encode(), np.uint8)}
    for part, matrices in parts.items():
        arrays |= {f"{part}_{k}": np.ascontiguousarray(values) for k, values in enumerate(matrices.values())}
    return arrays | {"sha256": np.frombuffer(_digest(arrays), np.uint8)}


def _digest(arrays: dict[str, np.ndarray]) -> bytes:
    """SHA-256 over names, shapes, types and bytes."""
    digest = hashlib.sha256()
    for name, values in arrays.items():
        digest.update(f"{name} {values.shape} {values.dtype.str}\n".encode())
        digest.update(values.data.cast("B") if values.size else b"")
    return digest.digest()


def _read(path: Path) -> Checkpoint:
    """One file. Raises DataError when it is not complete, OSError when it cannot be read."""
    with open(path, "rb") as file:
        try:
            with np.load(file, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            expected = bytes(arrays.pop("sha256"))
        except Exception as error:  # damaged bytes may fail anywhere in zipfile and numpy
            if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # no position in the file
                raise
            raise DataError(f"{path.name} is truncated or damaged ({type(error).__name__}: {error})") from None
    if _digest(arrays) != expected:
        raise DataError(f"{path.name} is damaged: its checksum does not match")
    document = json.loads(bytes(arrays["document"]))
    if document["schema"] != SCHEMA:
        raise DataError(f"{path.name} has schema {document['schema']}, but this version reads {SCHEMA}")
    parts = {part: {name: arrays[f"{part}_{k}"] for k, name in enumerate(names)}
             for part, names in document["matrices"].items()}  # fmt: skip
    return Checkpoint(document, parts["theta"], parts["best"] or None, parts.get("rows", {}), path)
