"""Log densities and posteriors of a model with parameters, on rows old or new."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.execution.decode import (
    bank_at,
    captured,
    forecasts_of,
    mixes_of,
    path_of,
    prepared_tiles,
    states_of,
)
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.fitted import state_of
from mixle_mpi.execution.grid import Grid, serial_grid
from mixle_mpi.execution.initialise import level_of
from mixle_mpi.execution.load import load
from mixle_mpi.execution.shard import compile_tree
from mixle_mpi.execution.ties import count_free
from mixle_mpi.kernels.elementary import IMPOSSIBLE
from mixle_mpi.models.chain import HiddenMarkovBank
from mixle_mpi.models.mixture import MixtureBank
from mixle_mpi.models.topic_bank import TopicBank


def executor_for(model: Node, data, grid: Grid, cut: str | None = None, local: bool = False,
                 sequence: str | None = None, divide: bool = True) -> tuple[Executor, int]:  # fmt: skip
    """An executor of a model with parameters over data, and the number of rows. Collective.

    `local` and `sequence` are those of `read`. Without `divide` each rank has whole sequences, however few.

    Raises ModelError when a parameter is absent.
    """
    loaded = load(data, model, grid, divide=divide, strict=False, local=local, sequence=sequence)
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
    executor, _ = executor_for(model, data, serial_grid(), **options)
    if (chain := bank_at(executor, HiddenMarkovBank, path or "")) is not None:
        nothing = np.empty((0, chain[0].node.num_states))
        return np.concatenate([nothing, *(states_of(executor, *chain, tile) for tile in prepared_tiles(executor))])
    found = bank_at(executor, TopicBank, path or "") or mixture_at(executor, path or "")
    nothing = np.empty((0, found[0].node.decomposition().num_units))
    return np.concatenate([nothing, *(resp for _, _, resp in scored_tiles(executor, found))])


def mixture_at(executor: Executor, path: str) -> tuple[MixtureBank, int]:
    """The bank of the mixture at a path, and which of its members. Raises ModelError unless it is one."""
    mixtures = [b for b in executor.bank.walk() if isinstance(b, MixtureBank)]
    for bank in mixtures:
        chosen = np.flatnonzero(bank.place.select(path, bank.members))
        if len(chosen) == 1:
            return bank, int(chosen[0])
    if bank_at(executor, HiddenMarkovBank, path) is not None:
        raise ModelError(f"at {path!r} is a hidden Markov model, of which --steps and --forecast write the states")
    known = ", ".join(repr(b.path) for b in mixtures) or "none"
    topics = ", ".join(repr(b.path) for b in executor.bank.walk() if isinstance(b, TopicBank))
    raise ModelError(f"there is no mixture at {path!r}; mixtures: {known}{topics and f'; topic models: {topics}'}")


def viterbi(model: Node, data, path: str | None = None, **options) -> list[np.ndarray]:
    """See `Node.viterbi`."""
    executor, _ = executor_for(model, data, serial_grid(), **options)
    bank, member = known_chain(executor, path)
    paths: list[np.ndarray] = []
    for tile in prepared_tiles(executor):
        found = path_of(executor, bank, member, tile)
        paths += np.split(found, bank.steps(tile).offsets[1:-1]) if tile.n else []
    return paths


def forecast(model: Node, data, path: str | None = None, **options) -> np.ndarray:
    """See `Node.forecast`."""
    executor, total = executor_for(model, data, serial_grid(), **options)
    bank, member = known_chain(executor, path)
    out = np.empty((total, bank.node.num_states))
    for tile in prepared_tiles(executor):
        out[tile.start : tile.stop] = forecasts_of(executor, bank, member, tile)
    return out


def known_chain(executor: Executor, path: str | None) -> tuple[HiddenMarkovBank, int]:
    """The bank of the hidden Markov model at a path, and which of its members. Raises ModelError unless it is one."""
    chain = bank_at(executor, HiddenMarkovBank, path or "")
    if chain is None:
        paths = [b.path for b in executor.bank.walk() if isinstance(b, HiddenMarkovBank)]
        there = f"; there is one at {', '.join(map(repr, paths[:20]))}" if paths else ", nor elsewhere in the model"
        if any("*" in known for known in paths):
            there += ", where a number stands for *"
        raise ModelError(f"there is no hidden Markov model at path {path or ''!r}{there}")
    return chain


def scored_tiles(executor: Executor, mixture: tuple[MixtureBank | TopicBank, int] | None):
    """Yield (first row of the shard, log densities (n,), posteriors (n, K) of one member of a
    mixture bank, of a mixture of steps (steps, K), mixes of topics (n, K), or None) for each tile.

    A row where the mixture is not observed has its weights; a row of probability zero under each of
    its components has NaN. Collective over the model axis.
    """
    for tile in prepared_tiles(executor):
        if mixture is not None:
            executor._begin()
        score = executor.scores(tile)[0].copy()
        resp = None if mixture is None else _responsibilities(executor, *mixture, tile, score)
        score[score < IMPOSSIBLE] = -np.inf  # log 0 of a leaf is stored as -1e300
        yield tile.start, score, resp


def _responsibilities(executor: Executor, bank: MixtureBank | TopicBank, member: int, tile, score) -> np.ndarray:
    if isinstance(bank, TopicBank):
        return mixes_of(executor, bank, member, tile, score)
    index, groups = captured(executor, bank, tile)
    level = level_of(bank)
    out = np.empty((tile.steps(level).n if level else tile.n, bank.node.num_components))
    for rows, part, log_weights in zip(bank.unit_rows, groups, bank.log_weights):
        own = np.flatnonzero(bank.unit_member[rows] == member)
        number = bank.unit_number[rows[own]]
        out[:, number] = np.exp(log_weights[own])  # where the mixture is not observed
        out[np.ix_(index, number)] = part[own].T
    out[out.sum(axis=1) == 0] = np.nan
    return out


def num_parameters(model: Node) -> int:
    """See `Node.num_parameters`."""
    return count_free(compile_tree(model, None, True))
