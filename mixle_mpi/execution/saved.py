"""Saved models: `model.json` for structure and encodings, `model.npz` for the exact parameters. No pickle."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from mixle_mpi.contract.columns import LENGTH, Encoding, SlotKey
from mixle_mpi.contract.errors import DataError, ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.scope import Scope
from mixle_mpi.execution.fitted import fitted, state_of
from mixle_mpi.execution.shard import compile_tree, layout_of
from mixle_mpi.models.specification import build, describe
from mixle_mpi.models.units import ManyUnits

SCHEMA = 1
WORDS = "<i4"  # of positions in a vocabulary in files
NUMBERS = ("shift", "scale", "low", "high", "mean", "variance", "frequencies")


def save(model: Node, path) -> None:
    """See `Node.save`. Each file is written beside its place and moved there, so it is never half there.

    Raises ModelError for a model that is not fitted.
    """
    state = state_of(model)
    if state is None:
        raise ModelError("only a fitted model can be saved: fit it first (a part of one cannot be saved by itself)")
    directory = Path(path)
    directory.mkdir(parents=True, exist_ok=True)
    bank = compile_tree(model, None, True)
    layout = layout_of(bank)
    arrays = {m.name or "root": layout.param_rows(state.theta, m.name) for m in layout.matrices}
    named: dict[str, Any] = {_key(k): v for k, v in arrays.items()}
    encodings = {slot_name(f.slot_key): f.encoding for f in _leaves(model)}
    words = [e.words for e in encodings.values()]
    named |= {_words_key(number): own.astype(WORDS) for number, own in enumerate(words) if len(own)}
    replace_file(directory / "model.npz", lambda file: np.savez(file, **named))
    document = {
        "schema": SCHEMA,
        "model": describe(structure(model), parameters=False),
        "columns": _root_columns(model),
        "encodings": {name: encoding_to_json(e) for name, e in encodings.items()},
        "parameters": _parameters(layout),
        "sha256": digest_of(directory / "model.npz"),
    }  # fmt: skip
    text = json.dumps(document, indent=1)
    replace_file(directory / "model.json", lambda file: file.write(text.encode()))


def load(path) -> Node:
    """The model that `save` wrote into the directory `path`.

    Raises
    ------
    DataError
        When a file is truncated, changed, or of a schema that this version does not know.
    OSError
        When a file is not there or cannot be read.
    """
    directory = Path(path)
    try:
        document = json.loads((directory / "model.json").read_text())
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            schema = document.get("schema") if isinstance(document, dict) else None
            raise DataError(f"{directory / 'model.json'}: schema {schema!r}, but this version reads {SCHEMA}")
        digest = digest_of(directory / "model.npz")
        if digest != document["sha256"]:
            raise DataError(f"{directory / 'model.npz'}: truncated, or not the file that model.json was saved with")
        with np.load(directory / "model.npz", allow_pickle=False) as arrays:
            encodings = {name: _encoding_from_json(e, arrays.get(_words_key(number), np.empty(0)))
                         for number, (name, e) in enumerate(document["encodings"].items())}  # fmt: skip
        columns = document["columns"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError) as error:
        raise DataError(f"{directory / 'model.json'}: truncated or not a saved model ({error})") from None
    placed = build(document["model"]).place(Scope(tuple(columns)))
    bound = placed.bind({f.slot_key: encodings[slot_name(f.slot_key)] for f in _leaves(placed)})
    bank = compile_tree(bound, None, True)
    layout = layout_of(bank)
    if document["parameters"] != _parameters(layout):
        raise DataError(f"{directory / 'model.json'}: the parameters are not those of the model that it describes")
    theta = np.empty(layout.num_params)
    with np.load(directory / "model.npz", allow_pickle=False) as arrays:
        for m in layout.matrices:
            layout.param_rows(theta, m.name)[:] = arrays[_key(m.name or "root")]
    return fitted(bank, theta)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, read piece by piece."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def replace_file(path: Path, write) -> None:
    """Write a file beside its place, sync it, and move it there."""
    temporary = path.with_name(path.name + ".part")
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on the disk, not only the files."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot, and need not
            raise
    finally:
        os.close(descriptor)


def _key(name: str) -> str:
    return name.replace("/", "|")


def _words_key(number: int) -> str:
    """The array of the words of an encoding, which has a number among those of a model; no path is so called."""
    return f"|words|{number}"


def _parameters(layout) -> dict:
    """Fields and rows of each matrix of parameters, as `model.json` lists them."""
    return {m.name: {"fields": {k: list(s) for k, s in m.params.items()}, "rows": len(m.rows)}
            for m in layout.matrices}  # fmt: skip


def _leaves(model: Node) -> list[Family]:
    return [n for n in model.walk() if isinstance(n, Family)]


def structure(model: Node) -> Node:
    """The model with mixtures of copies as one copy and a number, whatever has been looked at."""
    return model.structure(structure) if isinstance(model, ManyUnits) else model.replace(structure)


def _root_columns(model: Node) -> list[str]:
    """The columns that the root reads, once each, in order."""
    columns = [c for leaf in _leaves(model) for c in leaf.columns]
    return list(dict.fromkeys(c for c in columns if not c.endswith(LENGTH)))


def slot_name(key: SlotKey) -> str:
    """A slot in words, as files name it."""
    steps = f" of the steps of {json.dumps(key.sequence)}" if key.sequence else ""
    return f"{key.kind}:{json.dumps(list(key.columns))}{steps}"


def encoding_to_json(encoding: Encoding) -> dict[str, Any]:
    """An encoding as plain data, its numbers to the bit; of words, which may be many, their number and a digest."""
    numbers = {name: [float(v).hex() for v in getattr(encoding, name)] for name in NUMBERS}
    key = encoding.key
    steps = {"sequence": key.sequence} if key.sequence else {}
    own = encoding.words.astype(WORDS)
    words = {"words": [len(own), hashlib.sha256(own.tobytes()).hexdigest()]} if len(own) else {}
    return {"kind": key.kind, "columns": list(key.columns), "levels": list(encoding.levels)} | steps | words | numbers


def _encoding_from_json(spec: dict[str, Any], words: np.ndarray) -> Encoding:
    numbers: dict[str, Any] = {name: np.array([float.fromhex(v) for v in spec[name]]) for name in NUMBERS}
    key = SlotKey(spec["kind"], tuple(spec["columns"]), spec.get("sequence", ""))
    return Encoding(key, levels=tuple(spec["levels"]), words=words.astype(np.int64), **numbers)
