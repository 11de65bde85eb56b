"""What a model says of what is hidden behind the rows of a tile: responsibilities, and of the states of sequences that
one rank has whole posteriors, paths, forecasts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.tile import Tile
from mixle_mpi.execution.executor import Executor
from mixle_mpi.families.logs import safe_log
from mixle_mpi.kernels.elementary import IMPOSSIBLE
from mixle_mpi.kernels.recursion import best_paths
from mixle_mpi.models.chain import HiddenMarkovBank
from mixle_mpi.models.topic_bank import TopicBank

Of = TypeVar("Of", bound=Bank)


def bank_at(executor: Executor, kind: type[Of], path: str) -> tuple[Of, int] | None:
    """The bank of a kind at a path, and which of its members; None where there is none."""
    for bank in executor.bank.walk():
        if isinstance(bank, kind):
            chosen = np.flatnonzero(bank.place.select(path, bank.members))
            if len(chosen) == 1:
                return bank, int(chosen[0])
    return None


def mixes_of(executor: Executor, bank: TopicBank, member: int, tile: Tile, score: np.ndarray) -> np.ndarray:
    """Expected mixes (rows, topics) of the documents of a tile that was scored, of log densities `score` (rows,); NaN
    in documents of probability zero, even ones where there is no document."""
    index, groups = captured(executor, bank, tile)
    out = np.full((tile.n, bank.node.num_topics), 1.0 / bank.node.num_topics)
    out[slice(None) if index is None else index] = groups[member]
    out[score < IMPOSSIBLE] = np.nan
    return out


def captured(executor: Executor, bank: Bank, tile: Tile, top: Bank | None = None):
    """What a bank leaves of a tile when `top` accumulates, which scored it, by default the root: `Tile.captured`."""
    top = executor.bank if top is None else top
    tile.captured[id(bank)] = None  # the row sets that were scored share this dict
    executor.drive(top.accumulate(tile, np.ones((top.size, tile.n))))
    return tile.captured.pop(id(bank))


def prepared_tiles(executor: Executor) -> Iterator[Tile]:
    """The tiles of an executor, one after another, with kernels set up for its parameters."""
    executor.prepare()
    yield from executor.tiles()


def states_of(executor: Executor, bank: HiddenMarkovBank, member: int, tile: Tile) -> np.ndarray:
    """Posterior probabilities of the states in all steps of a tile (steps, states), given that the sequences are of
    this chain; NaN in sequences of probability zero. Collective over the model axis."""
    executor._begin()
    executor.drive(bank.score(tile))
    states = slice(member * bank.node.num_states, (member + 1) * bank.node.num_states)
    found = captured(executor, bank, tile, bank)[1][states].T.copy()
    total = found.sum(axis=1, keepdims=True)
    return np.divide(found, total, out=np.full_like(found, np.nan), where=total > 0)


def path_of(executor: Executor, bank: HiddenMarkovBank, member: int, tile: Tile) -> np.ndarray:
    """Most probable states (steps,) int64 of the sequences of a tile; -1 in sequences of probability zero."""
    steps, states = bank.steps(tile), bank.node.num_states
    scores = executor.finished(bank._emissions(steps))
    found = np.empty(steps.n, np.int64)
    first, then, end = (safe_log(p) for p in (bank.initial[member], bank.transition[member], bank.node.end))
    own = scores[member * states : (member + 1) * states]
    best = best_paths(own, steps.offsets, first, then, end, found)
    found[np.repeat(best < IMPOSSIBLE, np.diff(steps.offsets))] = -1
    return found


def forecasts_of(executor: Executor, bank: HiddenMarkovBank, member: int, tile: Tile) -> np.ndarray:
    """Probabilities of the states of the step after the last (rows, states) of the sequences of a tile, given their
    steps; NaN after sequences of probability zero."""
    executor.drive(bank.score(tile))
    chains = tile.saved[id(bank)][0]
    out = np.tile(bank.initial[member], (tile.n, 1))
    out[chains.packing.by_length] = chains.last(member) @ bank.transition[member]
    out[out.sum(axis=1) == 0] = np.nan
    return out
