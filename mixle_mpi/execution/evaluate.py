"""Log densities and posteriors of a model with parameters, on rows old or new."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.execution.executor import Executor, Pass, compile_tree
from mixle_mpi.execution.fitted import state_of
from mixle_mpi.execution.grid import Grid, serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.kernels.elementary import IMPOSSIBLE
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
    executor.prepare()
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
    bank = mixture_at(executor, path or "")
    out = np.empty((total, bank.node.num_components))
    for first, scores, resp in scored_tiles(executor, bank):
        out[first : first + len(scores)] = resp
    return out


def mixture_at(executor: Executor, path: str) -> MixtureBank:
    """The bank of the mixture at a path. Raises ModelError when there is none."""
    mixtures = [b for b in executor.bank.walk() if isinstance(b, MixtureBank) and b.total_members == 1]
    for bank in mixtures:
        if bank.path == path:
            return bank
    known = ", ".join(repr(b.path) for b in mixtures) or "none"
    raise ModelError(f"there is no mixture at {path!r}; mixtures: {known}")


def scored_tiles(executor: Executor, bank: MixtureBank | None):
    """Yield (first row of the shard, log densities (n,), posteriors (n, K) of `bank` or None) for each tile.

    A row where the mixture is not observed has its weights; a row of probability zero under each of
    its components has NaN. Collective over the model axis.
    """
    found = Pass()
    executor.prepare()
    for batch in executor.batches():
        if bank is not None:
            executor._begin()
        scores = [s[0].copy() for s in executor._drive([executor.bank.score(tile) for tile in batch], found)]
        for tile, score in zip(batch, scores):
            resp = None if bank is None else _responsibilities(executor, bank, tile, score)
            score[score < IMPOSSIBLE] = -np.inf  # log 0 of a leaf is stored as -1e300
            yield tile.start, score, resp


def _responsibilities(executor: Executor, bank: MixtureBank, tile, score) -> np.ndarray:
    tile.captured[id(bank)] = None  # the row sets that were scored share this dict
    executor._drive([executor.bank.accumulate(tile, np.ones((1, tile.n)))], Pass())
    index, groups = tile.captured.pop(id(bank))
    by_unit = np.empty((len(bank.unit_number), len(index)))
    for rows, part in zip(bank.unit_rows, groups):
        by_unit[rows] = part
    weights = np.concatenate([np.exp(w) for w in bank.log_weights])
    out = np.empty((tile.n, len(bank.unit_number)))
    for rows, w in zip(bank.unit_rows, np.split(weights, np.cumsum([len(r) for r in bank.unit_rows])[:-1])):
        out[:, rows] = w
    out[index] = by_unit.T
    out[out.sum(axis=1) == 0] = np.nan
    return out


def num_parameters(model: Node) -> int:
    """See `Node.num_parameters`."""
    return sum(bank.num_free() for bank in compile_tree(model, None, True).walk())
