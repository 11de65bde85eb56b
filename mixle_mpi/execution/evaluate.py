"""Log densities and posteriors of a model with parameters, on rows old or new."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.execution.executor import Executor, Pass
from mixle_mpi.execution.fitted import state_of
from mixle_mpi.execution.grid import Grid, serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.execution.shard import compile_tree
from mixle_mpi.execution.ties import count_free
from mixle_mpi.families.logs import safe_log
from mixle_mpi.kernels.elementary import IMPOSSIBLE
from mixle_mpi.kernels.recursion import best_paths
from mixle_mpi.models.chain import HiddenMarkovBank
from mixle_mpi.models.mixture import MixtureBank


def executor_for(model: Node, data, grid: Grid, cut: str | None = None, local: bool = False) -> tuple[Executor, int]:
    """An executor of a model with parameters over data, and the number of rows. Collective.

    Raises ModelError when a parameter is absent.
    """
    loaded = load(data, model, grid, strict=False, local=local)
    executor = Executor(loaded.model, loaded.rows, grid, cut)
    state = state_of(model)
    if state is not None and executor.cut is None:
        executor.theta[:] = state.theta
    elif not executor.given():
        raise ModelError("a parameter of the model is absent: fit it first, or give all parameters")
    executor.publish()
    return executor, loaded.total


def log_density(model: Node, data, **options) -> np.ndarray:
    """See `Node.log_density`."""
    executor, total = executor_for(model, data, serial_grid(), **options)
    out = np.empty(total)
    for first, scores, _ in scored_tiles(executor, None):
        out[first : first + len(scores)] = scores
    return out


def posterior(model: Node, data, path: str | None = None, **options) -> np.ndarray:
    """See `Node.posterior`."""
    executor, total = executor_for(model, data, serial_grid(), **options)
    chain = chain_at(executor, path or "")
    if chain is not None:
        return np.concatenate([resp for _, resp in chain_posteriors(executor, *chain)])
    mixture = mixture_at(executor, path or "")
    out = np.empty((total, mixture[0].node.num_components))
    for first, scores, resp in scored_tiles(executor, mixture):
        out[first : first + len(scores)] = resp
    return out


def mixture_at(executor: Executor, path: str) -> tuple[MixtureBank, int]:
    """The bank of the mixture at a path, and which of its members. Raises ModelError unless it is one."""
    mixtures = [b for b in executor.bank.walk() if isinstance(b, MixtureBank)]
    for bank in mixtures:
        chosen = np.flatnonzero(bank.place.select(path, bank.members))
        if len(chosen) == 1:
            return bank, int(chosen[0])
    known = ", ".join(repr(b.path) for b in mixtures) or "none"
    raise ModelError(f"there is no mixture at {path!r}; mixtures: {known}")


def chain_at(executor: Executor, path: str) -> tuple[HiddenMarkovBank, int] | None:
    """The bank of the hidden Markov model at a path, and which of its members; None where there is none."""
    for bank in executor.bank.walk():
        if isinstance(bank, HiddenMarkovBank):
            chosen = np.flatnonzero(bank.place.select(path, bank.members))
            if len(chosen) == 1:
                return bank, int(chosen[0])
    return None


def chain_posteriors(executor: Executor, bank: HiddenMarkovBank, member: int):
    """Yield first row of the shard and posteriors of the states (steps, states) for each tile; NaN in sequences
    of probability zero. Collective over the model axis."""
    states = slice(member * bank.node.num_states, (member + 1) * bank.node.num_states)
    executor.prepare()
    for batch in executor.batches():
        executor._begin()
        executor._drive([executor.bank.score(tile) for tile in batch], Pass())
        for tile in batch:
            found = _captured(executor, bank, tile)[1][states].T.copy()
            found[found.sum(axis=1) == 0] = np.nan
            yield tile.start, found


def viterbi(model: Node, data, path: str | None = None, **options) -> list[np.ndarray]:
    """See `HiddenMarkov.viterbi`."""
    executor, _ = executor_for(model, data, serial_grid(), **options)
    chain = chain_at(executor, path or "")
    if chain is None:
        raise ModelError(f"there is no hidden Markov model at {path or ''!r}")
    bank, member = chain
    states, paths = bank.node.num_states, []
    executor.prepare()
    for batch in executor.batches():
        for tile in batch:
            steps = bank.steps(tile)
            (scores,) = executor._drive([bank._emissions(steps)], Pass())
            found = np.empty(steps.n, np.int64)
            first, then, end = (safe_log(p) for p in (bank.initial[member], bank.transition[member], bank.node.end))
            own = scores[member * states : (member + 1) * states]
            best = best_paths(own, steps.offsets, first, then, end, found)
            found[np.repeat(best < IMPOSSIBLE, np.diff(steps.offsets))] = -1
            paths += np.split(found, steps.offsets[1:-1]) if tile.n else []
    return paths


def scored_tiles(executor: Executor, mixture: tuple[MixtureBank, int] | None):
    """Yield (first row of the shard, log densities (n,), posteriors (n, K) of one member of a
    mixture bank, or None) for each tile.

    A row where the mixture is not observed has its weights; a row of probability zero under each of
    its components has NaN. Collective over the model axis.
    """
    found = Pass()
    executor.prepare()
    for batch in executor.batches():
        if mixture is not None:
            executor._begin()
        scores = [s[0].copy() for s in executor._drive([executor.bank.score(tile) for tile in batch], found)]
        for tile, score in zip(batch, scores):
            resp = None if mixture is None else _responsibilities(executor, *mixture, tile)
            score[score < IMPOSSIBLE] = -np.inf  # log 0 of a leaf is stored as -1e300
            yield tile.start, score, resp


def _responsibilities(executor: Executor, bank: MixtureBank, member: int, tile) -> np.ndarray:
    index, groups = _captured(executor, bank, tile)
    out = np.empty((tile.n, bank.node.num_components))
    for rows, part, log_weights in zip(bank.unit_rows, groups, bank.log_weights):
        own = np.flatnonzero(bank.unit_member[rows] == member)
        number = bank.unit_number[rows[own]]
        out[:, number] = np.exp(log_weights[own])  # where the mixture is not observed
        out[np.ix_(index, number)] = part[own].T
    out[out.sum(axis=1) == 0] = np.nan
    return out


def _captured(executor: Executor, bank: Bank, tile):
    """What a bank leaves of a scored tile when it accumulates, see `Tile.captured`."""
    tile.captured[id(bank)] = None  # the row sets that were scored share this dict
    executor._drive([executor.bank.accumulate(tile, np.ones((1, tile.n)))], Pass())
    return tile.captured.pop(id(bank))


def num_parameters(model: Node) -> int:
    """See `Node.num_parameters`."""
    return count_free(compile_tree(model, None, True))
