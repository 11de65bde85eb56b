"""Where EM starts: from given parameters, from k-means++ on the numeric columns, or at random.

Everything is keyed by global row and computed on a sample of rows that depends on the number of rows
and components only, so the start is the same on every grid.
"""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.path import Components, Path
from mixle_mpi.contract.random import keyed_uniform
from mixle_mpi.execution.executor import Executor
from mixle_mpi.models.composite import Factors
from mixle_mpi.models.mixture import Mixture, MixtureBank
from mixle_mpi.models.optional import Optional

METHODS = ("auto", "kmeans++", "random")
SAMPLE_ROWS = 16384  # at least; and ROWS_A_COMPONENT for each component
ROWS_A_COMPONENT = 64
MOST_CENTRES = 1024  # more are drawn at random: k-means++ takes time with their square
LLOYD_ROUNDS = 10


def start(executor: Executor, total: int, init: str, seed: int, number: int = 0) -> None:
    """Write the parameters to start from to `executor.theta`. Collective.

    Start `number` has the seed `seed + number`; with init "auto" every other start is a random one.

    Raises
    ------
    ModelError
        When `init` is not known or `seed` no integer, or "kmeans++" has no numeric column to work on.
    """
    if init not in METHODS:
        raise ModelError(f"init = {init!r}: choose one of {', '.join(METHODS)}")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ModelError(f"seed = {seed!r} is not an integer")
    everything = np.array([int(executor.given())])
    executor.grid.world.allreduce(everything, "min")  # a rank that holds nothing has all that it needs
    if everything[0]:
        executor.publish()
        return
    if init == "auto" and number % 2:
        init = "random"  # k-means++ may lead many seeds to one partition, and it may be a bad one
    labels = starting_labels(executor, total, init, int(seed) + number)
    own = {id(b): labels[b.path] for b in executor.bank.walk() if isinstance(b, MixtureBank)}
    executor.theta[:] = 0.0
    executor.prepare_start()
    executor.accumulate_labels(own)
    executor.reduce_stats()
    executor.start_from_stats()
    executor.given()
    executor.publish()


def has_mixture(node: Node) -> bool:
    """Whether there is a mixture at or below a node."""
    return any(isinstance(n, Mixture) for n in node.walk())


def starting_labels(executor: Executor, total: int, init: str, seed: int) -> dict[str, np.ndarray]:
    """For each mixture bank's path, the unit (n,) int32 that each local row starts in; -1 for none."""
    model, source = executor.model, executor.source
    mixtures = [n for n in model.walk() if isinstance(n, Mixture)]
    if not mixtures:
        return {}
    wanted = max(SAMPLE_ROWS, ROWS_A_COMPONENT * _most_components(model))
    rows = np.arange(source.first, source.first + source.n, dtype=np.int64)
    chosen = np.ones(source.n, bool)
    if total > wanted:
        chosen = keyed_uniform(seed, "start sample", rows) * total < wanted
    if executor.weights is not None:
        chosen &= executor.weights > 0
    own = np.flatnonzero(chosen)
    columns = _standardised(model, source, own)
    gathered = executor.grid.data.allgather((rows[own], columns))
    sample_rows = np.concatenate([r for r, _ in gathered])
    sample = {key: np.concatenate([c[key] for _, c in gathered], axis=1) for key in columns}
    labels: dict[str, np.ndarray] = {}
    _label(model, Path(), np.arange(len(sample_rows)), sample_rows, sample, init, seed, labels)
    # one rank's arithmetic for all: a distance may have other last bits on another processor
    mine = np.searchsorted(sample_rows, rows[own])
    result = {}
    for path in sorted(labels):
        executor.grid.world.bcast(labels[path])
        result[path] = np.full(source.n, -1, np.int32)
        result[path][own] = labels[path][mine]
    return result


def _most_components(node: Node) -> int:
    """Components on the way to the deepest mixture: the product of the nested numbers."""
    below = max((_most_components(child) for _, child in node.roles()), default=1)
    return below * node.num_components if isinstance(node, Mixture) else below


def _standardised(model: Node, source, own: np.ndarray) -> dict[tuple[str, ...], np.ndarray]:
    """Numbers (d, k) of each numeric slot's columns at rows `own`, in spreads; NaN where missing."""
    found: dict[tuple[str, ...], np.ndarray] = {}
    for leaf in model.walk():
        if isinstance(leaf, Family) and leaf.slot != "label" and leaf.columns not in found:
            x = source.take(leaf.slot_key, own)
            if leaf.slot == "plain":
                x = (x - leaf.encoding.shift[:, None]) / leaf.encoding.scale[:, None]
            mask = source.column(("mask", leaf.columns), 0, source.n)
            found[leaf.columns] = x if mask is None else np.where(mask[own], x, np.nan)
    return found


def _label(node, path: Path, at: np.ndarray, rows, sample, init: str, seed: int, labels) -> None:
    """Fill `labels[path]` (all sample rows) for the mixtures at and below a node, which has rows `at`."""
    if isinstance(node, Mixture):
        unit = _cluster(node, path, at, rows, sample, init, seed)
        own = labels.setdefault(str(path), np.full(len(rows), -1, np.int32))
        own[at] = unit
        for positions in node.groups():
            below = path / Components(tuple(positions), node.num_components)
            for k in positions:
                child = node.template or node.components[k]
                if has_mixture(child):
                    _label(child, below, at[unit == k], rows, sample, init, seed, labels)
    elif isinstance(node, (Factors, Optional)):
        for role, child in node.roles():
            if has_mixture(child):
                _label(child, path / role, at, rows, sample, init, seed, labels)


def _cluster(node: Mixture, path: Path, at, rows, sample, init: str, seed: int) -> np.ndarray:
    """The starting component of each of the rows `at`, (k,) int32."""
    k = node.num_components
    columns = {n.columns for n in node.walk() if isinstance(n, Family) and n.slot != "label"}
    if init == "kmeans++" and not columns:
        where = str(path) or "the root"
        raise ModelError(f"init = 'kmeans++': the mixture at {where} has no numeric column; use 'random'")
    purpose = f"start {path}"
    if init == "random" or not columns or k > MOST_CENTRES:
        order = np.argsort(keyed_uniform(seed, purpose, rows[at]), kind="stable")
        unit = np.empty(len(at), np.int32)
        unit[order] = np.arange(len(at)) % k
        return unit
    x = np.concatenate([sample[c][:, at] for c in sorted(columns)])
    return kmeans(x, rows[at], k, seed, purpose)


def kmeans(x: np.ndarray, rows: np.ndarray, k: int, seed: int, purpose: str) -> np.ndarray:
    """Cluster (n,) int32 of each column of x (d, n), NaN where missing: k-means++, then Lloyd's rounds.

    A centre is drawn with probability proportional to the squared distance from those before by an
    exponential race: the row with the smallest -log(u) / distance^2, u keyed by global row. Missing
    coordinates count as the mean of those observed.

    Source
    ------
    Arthur and Vassilvitskii (2007), SODA, 1027-1035.
    """
    d, n = x.shape
    seen = ~np.isnan(x)
    x = np.where(seen, np.clip(x, -1e75, 1e75), 0.0)
    share = d / np.maximum(seen.sum(axis=0), 1)
    nearest = np.ones(n)
    unit = np.zeros(n, np.int32)
    centres = np.zeros((min(k, n), d))
    for c in range(len(centres)):
        race = -np.log(keyed_uniform(seed, purpose, rows, c)) / (nearest + 1e-290)
        centres[c] = x[:, int(np.argmin(race))]
        distance = _distance(x, seen, centres[c], share)
        closer = distance < nearest if c else np.ones(n, bool)
        unit[closer] = c
        nearest = np.where(closer, distance, nearest)
    for _ in range(LLOYD_ROUNDS):
        for c in range(len(centres)):
            members = unit == c
            counts = seen[:, members].sum(axis=1)
            centres[c] = np.where(counts > 0, x[:, members].sum(axis=1) / np.maximum(counts, 1), centres[c])
        before = unit.copy()
        nearest[:] = np.inf
        for c, centre in enumerate(centres):
            distance = _distance(x, seen, centre, share)
            unit[distance < nearest] = c
            nearest = np.minimum(distance, nearest)
        if (unit == before).all():
            break
    return unit


def _distance(x, seen, centre, share) -> np.ndarray:
    """Squared distance (n,) over the observed coordinates, as if all were observed."""
    return (np.square(x - centre[:, None]) * seen).sum(axis=0) * share
