"""Where EM starts: from given parameters, from k-means++ on the numeric columns, or at random.

Everything is keyed by global row and computed on a sample of rows that depends on the number of rows
and components only, so the start is the same on every grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.columns import BAG
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.path import Path, UnitLevel
from mixle_mpi.contract.random import keyed_uniform
from mixle_mpi.data.ragged import STEP_BITS, step_numbers
from mixle_mpi.execution.executor import Executor, Labels
from mixle_mpi.models.chain import HiddenMarkovBank
from mixle_mpi.models.hidden_markov import HiddenMarkov
from mixle_mpi.models.mixture import MixtureBank
from mixle_mpi.models.sequence import Steps, sums_of_sequences
from mixle_mpi.models.topic_bank import TopicBank
from mixle_mpi.models.topic_model import TopicModel
from mixle_mpi.models.units import ManyUnits

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
    executor.start_rows()
    everything = np.array([int(executor.given())])
    executor.grid.world.allreduce(everything, "min")  # a rank that holds nothing has all that it needs
    if everything[0]:
        executor.publish()
        return
    if init == "auto" and number % 2:
        init = "random"  # k-means++ may lead many seeds to one partition, and it may be a bad one
    executor.theta[:] = 0.0
    executor.prepare_start()
    executor.accumulate_labels(partial(own_labels, total=total, init=init, seed=int(seed) + number))
    executor.reduce_stats()
    executor.start_from_stats()
    executor.given()
    executor.publish()


def own_labels(executor: Executor, total: int, init: str, seed: int) -> Labels:
    """`starting_labels` by the id of a bank. Collective."""
    labels = starting_labels(executor, total, init, seed)
    return {name: {id(b): found[b.path] for b in executor.bank.walk() if level_of(b) == name and b.path in found}
            for name, found in labels.items()}  # fmt: skip


def has_units(node: Node) -> bool:
    """Whether there is a node of many units, or topics, at or below a node."""
    return any(isinstance(n, (ManyUnits, TopicModel)) for n in node.walk())


def level_of(bank: Bank) -> str | None:
    """Of what a bank has starting units: "" for rows, a sequence's name for its steps; None for most banks."""
    if isinstance(bank, HiddenMarkovBank):
        return bank.node.sequence
    if isinstance(bank, TopicBank):
        return ""
    if not isinstance(bank, MixtureBank):
        return None
    below = next(n for n in bank.node.walk() if isinstance(n, (Family, Steps)))
    return "" if isinstance(below, Steps) else below.sequence


@dataclass
class Level:
    """Sampled rows, or steps of a sequence: `numbers` (k,) over all ranks, ascending; `own`, which of this rank's `n`
    are among them, and where; `columns` as `_standardised`."""

    numbers: np.ndarray
    own: tuple[np.ndarray, np.ndarray]
    n: int
    columns: dict[tuple[str, ...], np.ndarray]


def starting_labels(executor: Executor, total: int, init: str, seed: int) -> dict[str, dict[str, np.ndarray]]:
    """For rows, and the steps of each sequence, and each bank's path: the unit (n,) int32 that each local row or
    step starts in; -1 for none."""
    model, source = executor.model, executor.source
    if not has_units(model):
        return {}
    wanted = max(SAMPLE_ROWS, ROWS_A_COMPONENT * _most_components(model))
    rows = np.arange(source.first, source.first + source.n, dtype=np.int64)
    chosen = np.ones(source.n, bool)
    if total > wanted:
        chosen = keyed_uniform(seed, "start sample", rows) * total < wanted
    if executor.weights is not None:
        chosen &= executor.weights > 0
    levels = {"": _gathered(executor, model, "", source, rows, np.flatnonzero(chosen))}
    for name, steps in source.sequences.items():
        if name.endswith(BAG):
            continue
        count = np.array([steps.n])
        executor.grid.data.allreduce(count)
        share = wanted / max(count[0] * min(1.0, wanted / max(total, 1)), 1.0)
        numbers = step_numbers(steps.offsets, source.first)
        if steps.chunk is not None and steps.n:
            numbers[: steps.offsets[np.argmax(steps.offsets > 0)]] += steps.chunk.earlier
        taken = np.repeat(chosen, np.diff(steps.offsets))
        if share < 1:
            taken &= keyed_uniform(seed, "start steps", numbers) < share
        levels[name] = _gathered(executor, model, name, steps, numbers, np.flatnonzero(taken))
    labels: dict[str, dict[str, np.ndarray]] = {name: {} for name in levels}
    _label(model, Path(), "", np.arange(len(levels[""].numbers)), levels, init, seed, labels)
    # one rank's arithmetic for all: a distance may have other last bits on another processor
    result: dict[str, dict[str, np.ndarray]] = {name: {} for name in levels}
    for name, level in levels.items():
        for path in sorted(labels[name]):
            executor.grid.world.bcast(labels[name][path])
            result[name][path] = np.full(level.n, -1, np.int32)
            result[name][path][level.own[0]] = labels[name][path][level.own[1]]
    return result


def _gathered(executor: Executor, model: Node, name: str, source, numbers: np.ndarray, own: np.ndarray) -> Level:
    """The sampled rows or steps of all ranks, of which `own` are this one's. Collective over the data axis."""
    gathered = executor.grid.data.allgather((numbers[own], _standardised(model, name, source, own)))
    everyone = np.concatenate([r for r, _ in gathered])
    keys = gathered[0][1]
    columns = {key: np.concatenate([c[key] for _, c in gathered], axis=-1) for key in keys}
    return Level(everyone, (own, np.searchsorted(everyone, numbers[own])), source.n, columns)


def _most_components(node: Node) -> int:
    """Components on the way to the deepest mixture: the product of the nested numbers."""
    below = max((_most_components(child) for _, child in node.roles()), default=1)
    return below * node.num_units if isinstance(node, ManyUnits) else below


def _standardised(model: Node, name: str, source, own: np.ndarray) -> dict[tuple[str, ...], np.ndarray]:
    """Numbers (d, k) of each numeric slot's columns at rows or steps `own`, in spreads; NaN where missing. Codes (k,)
    of labels. Of sequences in rows the means of their steps."""
    found: dict[tuple[str, ...], np.ndarray] = {}
    for leaf in model.walk():
        if isinstance(leaf, TopicModel) and not name:
            found[leaf.words.columns] = np.diff(source.sequences[leaf.sequence].offsets)[own][None]
        if not isinstance(leaf, Family) or leaf.columns in found or leaf.sequence.endswith(BAG):
            continue  # words are no numbers, and too many
        if leaf.sequence == name:
            found[leaf.columns] = _numbers(leaf, source, own)
        elif not name and leaf.slot != "label":
            steps = source.sequences[leaf.sequence]
            lengths = np.diff(steps.offsets)
            taken = np.repeat(np.isin(np.arange(source.n), own), lengths)
            x = _numbers(leaf, steps, np.flatnonzero(taken))
            borders = np.concatenate([[0], np.cumsum(lengths[own])])
            with np.errstate(invalid="ignore", divide="ignore"):
                found[leaf.columns] = sums_of_sequences(x, borders) / lengths[own]
    return found


def _numbers(leaf: Family, source, own: np.ndarray) -> np.ndarray:
    x = source.take(leaf.slot_key, own)
    if leaf.slot == "label":
        return x
    if leaf.slot == "plain":
        x = (x - leaf.encoding.shift[:, None]) / leaf.encoding.scale[:, None]
    mask = source.column(("mask", leaf.columns), 0, source.n)
    return x if mask is None else np.where(mask[own], x, np.nan)


def _label(node, path: Path, name: str, at: np.ndarray, levels: dict[str, Level], init: str, seed: int, labels) -> None:
    """Fill `labels[level][path]` (all sampled) for the units at and below a node, which has rows or steps `at`."""
    if isinstance(node, TopicModel):
        level = levels[name]
        own = labels[name].setdefault(str(path), np.full(len(level.numbers), -1, np.int32))
        words = level.columns[node.words.columns][0, at]
        race = -np.log(keyed_uniform(seed, f"start {path}", level.numbers[at])) / np.maximum(words, 1e-300)
        seeds = at[np.argsort(race, kind="stable")[: min(node.num_topics, np.count_nonzero(words))]]
        own[seeds] = np.arange(len(seeds))
        return
    if isinstance(node, Steps):
        if node.length is not None and has_units(node.length):
            _label(node.length, path / "length", name, at, levels, init, seed, labels)
        level = levels[node.sequence]
        rows = levels[name].numbers[at]
        name, at = node.sequence, np.flatnonzero(np.isin(level.numbers >> STEP_BITS, rows))
    if isinstance(node, ManyUnits):
        level = levels[name]
        unit = _cluster(node, path, at, level, init, seed)
        own = labels[name].setdefault(str(path), np.full(len(level.numbers), -1, np.int32))
        own[at] = unit
        for positions in node.groups():
            below = path / UnitLevel(tuple(positions), node.num_units, node.word)
            for k in positions:
                child = node.template or node.units[k]
                if has_units(child):
                    _label(child, below, name, at[unit == k], levels, init, seed, labels)
    else:
        length = node.length if isinstance(node, Steps) else None
        for role, child in node.roles():
            if has_units(child) and child is not length:
                _label(child, path / role, name, at, levels, init, seed, labels)


def _cluster(node: ManyUnits, path: Path, at, level: Level, init: str, seed: int) -> np.ndarray:
    """The starting unit of each of the rows or steps `at`, (k,) int32."""
    k, rows = node.num_units, level.numbers[at]
    leaves = [n for n in node.walk() if isinstance(n, Family) and n.columns in level.columns]
    columns = {n.columns for n in leaves if n.slot != "label"}
    if init == "kmeans++" and not columns:
        where = str(path) or "the root"
        raise ModelError(f"init = 'kmeans++': the mixture at {where} has no numeric column; use 'random'")
    purpose = f"start {path}"
    steps = isinstance(node, HiddenMarkov)
    if steps and columns and k <= MOST_CENTRES:
        x = np.concatenate([level.columns[c][:, at] for c in sorted(columns)])
        return kmeans(x, rows, k, seed, purpose, apart=init != "random")
    if steps and leaves:  # states that differ in labels, or all would be alike and stay so
        codes = level.columns[leaves[0].columns][at]
        return (keyed_order(int(codes.max(initial=0)) + 1, seed, purpose) % k).astype(np.int32)[codes]
    if init == "random" or not columns or k > MOST_CENTRES:
        order = np.argsort(keyed_uniform(seed, purpose, rows), kind="stable")
        unit = np.empty(len(at), np.int32)
        unit[order] = np.arange(len(at)) % k
        return unit
    x = np.concatenate([level.columns[c][:, at] for c in sorted(columns)])
    return kmeans(x, rows, k, seed, purpose)


def keyed_order(n: int, seed: int, purpose: str) -> np.ndarray:
    """A permutation (n,) that a seed and a purpose decide."""
    return np.argsort(np.argsort(keyed_uniform(seed, purpose, np.arange(n)), kind="stable"), kind="stable")


def kmeans(x: np.ndarray, rows: np.ndarray, k: int, seed: int, purpose: str, apart: bool = True) -> np.ndarray:
    """Cluster (n,) int32 of each column of x (d, n), NaN where missing: k-means++, then Lloyd's rounds.

    Unless `apart` the centres are any rows, and there are no rounds.

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
        race = -np.log(keyed_uniform(seed, purpose, rows, c)) / (nearest + 1e-290 if apart else 1.0)
        centres[c] = x[:, int(np.argmin(race))]
        distance = _distance(x, seen, centres[c], share)
        closer = distance < nearest if c else np.ones(n, bool)
        unit[closer] = c
        nearest = np.where(closer, distance, nearest)
    for _ in range(LLOYD_ROUNDS if apart else 0):
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
