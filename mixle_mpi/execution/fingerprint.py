"""What a run is a run of: model, data and settings, as plain data; and where two runs differ.

Of the data it has what every grid finds alike: the number of rows, and the encodings.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import numpy as np

from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.execution.fitted import state_of
from mixle_mpi.execution.load import Loaded
from mixle_mpi.execution.saved import encoding_to_json, slot_name, structure
from mixle_mpi.models.hidden_markov import HiddenMarkov
from mixle_mpi.models.markov_chain import MarkovChain
from mixle_mpi.models.mixture import Mixture
from mixle_mpi.models.optional import Optional
from mixle_mpi.models.specification import describe
from mixle_mpi.models.topic_model import TopicModel

MOMENTS = ("mean", "variance")  # their last bits depend on how many ranks add them up
CLOSE = 1e-9


def fingerprint(estimator: Node, loaded: Loaded, settings: dict[str, Any]) -> dict[str, Any]:
    """Model, parameters given, data and settings of a run, as JSON holds them."""
    columns: dict[str, dict] = {}
    for leaf in loaded.model.walk():
        if isinstance(leaf, Family):
            e = leaf.encoding
            columns[slot_name(leaf.slot_key)] = encoding_to_json(e) | {"observed": e.observed, "missing": e.missing}
    found = {
        "model": describe(structure(estimator), parameters=False),
        "parameters given": given_digest(estimator),
        "rows": loaded.total,
        "effective rows": loaded.effective,
        "columns": columns,
        "fit": settings,
    }
    return json.loads(json.dumps(found, default=_plain))


def given_digest(estimator: Node) -> str:
    """SHA-256 over the parameters that an estimator comes with: EM starts there."""
    digest = hashlib.sha256()
    state = state_of(estimator)
    if state is not None:
        digest.update(state.theta.tobytes())
        return digest.hexdigest()
    for node in estimator.walk():
        values: list[Any] = []
        if isinstance(node, Family):
            values = list(node.values.values())
        elif isinstance(node, Mixture):
            values = [node.weights]
        elif isinstance(node, Optional):
            values = [node.p_missing]
        elif isinstance(node, HiddenMarkov):
            values = [node.initial, node.transition]
        elif isinstance(node, MarkovChain):
            values = list(node.parts)
        elif isinstance(node, TopicModel):
            values = [node.given_topics, node.alpha]
        for value in values:
            digest.update(b"none" if value is None else np.asarray(value, dtype=float).tobytes())
    return digest.hexdigest()


def differences(now: Any, then: Any, where: str = "") -> list[str]:
    """In words, where plain data differ from those of before: each key that was added, dropped or changed."""
    if isinstance(now, dict) and isinstance(then, dict):
        found = []
        for key in dict.fromkeys([*then, *now]):
            path = f"{where}.{key}" if where else str(key)
            if key not in now or key not in then:
                found.append(f"{path} was {'added' if key in now else 'dropped'}")
            else:
                found += differences(now[key], then[key], path)
        return found
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [text for k, pair in enumerate(zip(now, then)) for text in differences(*pair, f"{where}[{k}]")]
    if now == then or _close(now, then, where):
        return []
    if where == "parameters given":
        return ["the parameters given in the model differ"]
    return [f"{where} is {_short(now)}, but was {_short(then)}"]


def _close(now, then, where: str) -> bool:
    """Whether two sums are equal but for the order in which they were added."""
    if where == "effective rows":
        return math.isclose(now, then, rel_tol=CLOSE)
    if not any(f".{name}[" in where for name in MOMENTS) or not (isinstance(now, str) and isinstance(then, str)):
        return False
    return math.isclose(float.fromhex(now), float.fromhex(then), rel_tol=CLOSE, abs_tol=CLOSE)


def _short(value) -> str:
    """A value in few characters; numbers that are kept as hexadecimal in decimal."""
    text = str(value)
    if isinstance(value, str) and "0x" in value[:3]:
        return repr(float.fromhex(value))
    if isinstance(value, list):
        text = f"[{', '.join(map(_short, value[:4]))}{', ...' if len(value) > 4 else ''}] ({len(value)})"
    return text if len(text) <= 60 else text[:57] + "..."


def _plain(value):
    """What json does not know: arrays and NumPy's numbers."""
    return np.asarray(value).tolist()
