"""Drawing rows from a model with parameters."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.random import keyed_generator
from mixle_mpi.models.composite import Composite, Record
from mixle_mpi.models.hidden_markov import HiddenMarkov
from mixle_mpi.models.markov_chain import MarkovChain
from mixle_mpi.models.mixture import Mixture
from mixle_mpi.models.optional import Optional
from mixle_mpi.models.sequence import Sequence, Steps


def sample(model: Node, n: int, seed: int = 0):
    """See `Node.sample`."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0:
        raise ModelError(f"n = {n!r} is not a number >= 0")
    drawn = draw(model, int(n), keyed_generator(seed, "sample"))
    if isinstance(drawn, dict):
        return [dict(zip(drawn, row)) for row in zip(*(_cells(v) for v in drawn.values()))] if n else []
    numbers = _stacked(drawn)
    return numbers if numbers is not None else list(_cells(drawn))


def draw(node: Node, n: int, rng: np.random.Generator):
    """`n` rows: (n,) or (n, d) of a leaf, a list of factors of a composite, a dict of fields of a record."""
    if isinstance(node, Family):
        if any(v is None for v in node.values.values()):
            raise ModelError(f"{node.type_name()}: a parameter is absent; fit the model first, or give it")
        columns = node.sample_rows(rng, n)
        return columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
    if isinstance(node, Composite):
        return [draw(f, n, rng) for f in node.factors]
    if isinstance(node, Record):
        return _named(node, {name: draw(f, n, rng) for name, f in node.fields.items()})
    if isinstance(node, Optional):
        p = node.p_missing or 0.0
        missing = rng.random(n) < p
        return _with_missing(draw(node.of, n, rng), missing) if missing.any() else draw(node.of, n, rng)
    if isinstance(node, Mixture):
        if node.weights is None:
            raise ModelError("mixture: the weights are absent; fit the model first, or give them")
        which = rng.choice(node.num_components, size=n, p=node.weights)
        used = np.unique(which) if n else np.zeros(1, int)
        parts = [(np.flatnonzero(which == k), draw(node.components[k], int((which == k).sum()), rng)) for k in used]
        return _merged(parts, n)
    if isinstance(node, Sequence):
        lengths = _lengths(node, n, rng)
        return _split(draw(node.element, int(lengths.sum()), rng), lengths)
    if isinstance(node, HiddenMarkov):
        return _chains(node, n, rng)
    if isinstance(node, MarkovChain):
        return _labels(node, n, rng)
    raise ModelError(f"{node.type_name()} cannot be sampled")


def _lengths(node: Steps, n: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of steps (n,) int64 of sequences."""
    if node.length is None:
        raise ModelError(f"{node.type_name()}: without a model of the length sequences cannot be sampled; give length")
    drawn = np.asarray(draw(node.length, n, rng), dtype=float)
    return np.maximum(np.round(drawn), 0).astype(np.int64)


def _chains(node: HiddenMarkov, n: int, rng: np.random.Generator) -> np.ndarray:
    """Sequences (n,) of a hidden Markov model."""
    if node.initial is None or node.transition is None:
        raise ModelError("hidden_markov: initial or transition is absent; fit the model first, or give them")
    lengths = _lengths(node, n, rng)
    states = np.empty(int(lengths.sum()), np.int64)
    starts = np.cumsum(lengths) - lengths
    ends = None if node.terminal is None else _ends(node, int(lengths.max(initial=0)))
    u = rng.random(len(states))
    for t in range(int(lengths.max(initial=0))):  # all sequences that have a step t
        at = starts[lengths > t] + t
        p = np.broadcast_to(node.initial, (len(at), node.num_states)) if t == 0 else node.transition[states[at - 1]]
        if ends is not None:
            p = p * ends[lengths[lengths > t] - 1 - t]
            if (p.sum(axis=1) == 0).any():
                none = int(lengths[lengths > t][np.argmin(p.sum(axis=1))])
                raise ModelError(f"hidden_markov: no path of {none} steps ends in a terminal state")
            p = p / p.sum(axis=1, keepdims=True)
        states[at] = np.minimum((np.cumsum(p, axis=1) <= u[at, None]).sum(axis=1), node.num_states - 1)
    used = np.unique(states) if len(states) else np.zeros(1, int)
    parts = [(np.flatnonzero(states == s), draw(node.emissions[s], int((states == s).sum()), rng)) for s in used]
    return _split(_merged(parts, len(states)), lengths)


def _ends(node: HiddenMarkov, steps: int) -> np.ndarray:
    """How likely a path ends in a terminal state after so many more steps, (steps, states), each row up to a factor."""
    found = np.empty((max(steps, 1), node.num_states))
    found[0] = node.end
    for more in range(1, steps):
        found[more] = node.transition @ found[more - 1]
        found[more] /= max(found[more].max(), np.finfo(float).tiny)
    return found


def _labels(node: MarkovChain, n: int, rng: np.random.Generator) -> np.ndarray:
    """Sequences (n,) of a Markov chain."""
    parts, count = [p for p in node.parts if p is not None], len(node.levels or ())
    if len(parts) <= node.order:
        raise ModelError("markov_chain: initial or transition is absent; fit the model first, or give them")
    lengths = _lengths(node, n, rng)
    drawn = np.empty(int(lengths.sum()), np.int64)
    starts = np.cumsum(lengths) - lengths
    u = rng.random(len(drawn))
    for t in range(int(lengths.max(initial=0))):  # all sequences that have a step t
        at, known = starts[lengths > t] + t, min(t, node.order)
        context = tuple(drawn[at - back] for back in range(known, 0, -1))
        rows = np.broadcast_to(parts[known][context], (len(at), count))
        drawn[at] = np.minimum((np.cumsum(rows, axis=1) <= u[at, None]).sum(axis=1), count - 1)
    labels = np.empty(count, dtype=object)
    labels[:] = node.levels
    return _split(labels[drawn], lengths)


def _split(drawn, lengths: np.ndarray) -> np.ndarray:
    """Sequences (n,) of the steps that were drawn, arrays of numbers or lists of cells, in the form of one step."""
    out = np.empty(len(lengths), dtype=object)
    numbers = _stacked(drawn)
    steps = numbers if numbers is not None else list(_cells(drawn))
    at = np.concatenate([[0], np.cumsum(lengths)])
    for i in range(len(lengths)):
        out[i] = steps[at[i] : at[i + 1]]
    return out


def _named(node: Record, drawn: dict) -> dict:
    """The fields of a record's rows by the names of the columns that they read, where those were declared."""
    named: dict = {}
    for name, rows in drawn.items():
        columns = node.field_columns.get(name)
        if columns is None:
            named[name] = rows
        else:
            named |= rows if isinstance(rows, dict) else dict(zip(columns, _columns(rows)))
    return named


def _columns(drawn) -> list[np.ndarray]:
    """All columns (n,) of rows of vectors and composites, left to right."""
    if isinstance(drawn, list):
        return [c for part in drawn for c in _columns(part)]
    return [drawn] if drawn.ndim == 1 else list(drawn.T)


def _form(drawn):
    """How the columns of drawn rows are nested."""
    if isinstance(drawn, dict):
        return {k: _form(v) for k, v in drawn.items()}
    return [_form(v) for v in drawn] if isinstance(drawn, list) else drawn.shape[1:]


def _merged(parts: list, n: int):
    """Rows drawn component by component, put in their places."""
    first = parts[0][1]
    if any(_form(rows) != _form(first) for _, rows in parts):  # a vector beside a composite of numbers
        parts = [(at, _columns(rows)) for at, rows in parts]
        first = parts[0][1]
    if isinstance(first, dict):
        return {k: _merged([(at, rows[k]) for at, rows in parts], n) for k in first}
    if isinstance(first, list):
        return [_merged([(at, rows[i]) for at, rows in parts], n) for i in range(len(first))]
    kind = object if any(rows.dtype == object for _, rows in parts) else float
    out = np.empty((n, *first.shape[1:]), dtype=kind)
    for at, rows in parts:
        out[at] = rows
    return out


def _with_missing(rows, missing: np.ndarray):
    if isinstance(rows, dict):
        return {k: _with_missing(v, missing) for k, v in rows.items()}
    if isinstance(rows, list):
        return [_with_missing(v, missing) for v in rows]
    rows = rows.copy()
    rows[missing] = None if rows.dtype == object else np.nan
    return rows


def _stacked(drawn) -> np.ndarray | None:
    """Numbers of all columns side by side, or None where there are labels or names."""
    if isinstance(drawn, np.ndarray):
        return drawn if drawn.dtype != object else None
    if isinstance(drawn, dict):
        return None
    parts = [p for p in map(_stacked, drawn) if p is not None]
    if len(parts) < len(drawn):
        return None
    return np.concatenate([p if p.ndim == 2 else p[:, None] for p in parts], axis=1)


def _cells(drawn):
    """One cell a row: a number, a label, a tuple of a vector or a composite, a dict of a record."""
    if isinstance(drawn, dict):
        return [dict(zip(drawn, row)) for row in zip(*(_cells(v) for v in drawn.values()))]
    if isinstance(drawn, list):
        return list(zip(*(_cells(v) for v in drawn)))
    return [tuple(v) if isinstance(v, list) else v for v in drawn.tolist()]
