"""What all ranks of a grid hold together, brought to the first of them, and dealt out again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mixle_mpi.contract.node import Node
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.shard import compile_tree, layout_of

# Bytes of parameters from which, where the model is cut, only the first rank gets all of them: the others could not
# hold them beside their own
LARGE_MODEL = 1 << 28
VALUES_AT_ONCE = 1 << 20  # values that are gathered, or dealt out, in one message


def is_large(model: Node, cut: str | None) -> bool:
    """Whether the whole of a bound model is more than each rank is asked to hold, as it was cut at `cut`."""
    return cut is not None and 8 * layout_of(compile_tree(model, None, True)).num_params >= LARGE_MODEL


def whole_theta(executor: Executor, own: np.ndarray | None = None, everyone: bool = True) -> np.ndarray | None:
    """The parameters of the whole model, in the layout of the uncut tree: on `everyone`, or on the first rank alone and
    None elsewhere. Collective over both axes.

    Of `own`, a vector in the layout of the local tree; by default of the current parameters.
    """
    own = executor.theta if own is None else own
    if executor.cut is None or executor.grid.data.size > 1:
        own = own.copy()  # to be returned, or completed
        executor.complete(own)
    first = executor.grid.world.rank == 0
    if executor.cut is None:
        return own if everyone or first else None
    if not everyone and executor.grid.coords[0] > 0:
        return None  # another data shard has the same
    axis, layout = executor.grid.model, executor.layout
    whole = layout_of(compile_tree(executor.model, None, True))
    theta = np.full(whole.num_params, np.nan) if first or everyone else None
    held = {m.name: m for m in layout.matrices}
    for matrix in whole.matrices:
        m = held.get(matrix.name)
        rows = np.empty(0, np.int64) if m is None else m.rows
        values = np.empty((0, matrix.param_width)) if m is None else layout.param_rows(own, m.name)
        to = None if theta is None else whole.param_rows(theta, matrix.name)
        _bring(axis, rows, values, to, everyone)
    return theta


def _bring(axis: Axis, rows: np.ndarray, values: np.ndarray, to: np.ndarray | None, everyone: bool) -> None:
    """Write the values (k, width) that all ranks have of some rows to `to`, on everyone or on the first rank alone.

    Collective. They come piece by piece; what several have is taken from the lowest rank, which comes last.
    """
    counts = axis.allgather_array(np.array([len(rows)]))[:, 0]
    step = max(VALUES_AT_ONCE // max(values.shape[1], 1), 1)
    for k in reversed(range(axis.size)):
        for at in range(0, int(counts[k]), step):
            n = min(step, int(counts[k]) - at) if axis.rank == k or everyone else 0
            own = slice(at, at + n if axis.rank == k else at)
            number, part = rows[own].copy(), np.ascontiguousarray(values[own]).ravel()
            if everyone:
                if axis.rank != k:
                    number, part = np.empty(n, np.int64), np.empty(n * values.shape[1])
                axis.bcast(number, k)
                axis.bcast(part, k)
            else:
                number = axis.alltoall([number if r == 0 else number[:0] for r in range(axis.size)])[k]
                part = axis.alltoall([part if r == 0 else part[:0] for r in range(axis.size)])[k]
            if to is not None:
                to[number] = part.reshape(len(number), to.shape[1])


def total_rows(executor: Executor) -> int:
    """Rows of all data shards. Collective over the data axis."""
    total = np.array([executor.source.n])
    executor.grid.data.allreduce(total)
    return int(total[0])


def whole_rows(executor: Executor) -> dict[str, np.ndarray]:
    """What banks keep of the rows of all ranks, (rows, values) by path, on the first rank; elsewhere nothing.
    Collective."""
    found, world = {}, executor.grid.world
    for bank in executor.bank.walk():
        if bank.kept_rows is None:
            continue
        total = total_rows(executor)
        source, kept, columns = executor.source, bank.kept_rows, bank.kept_columns
        place = np.array([source.first, source.n, *columns])
        parts = [place if k == 0 else place[:0] for k in range(world.size)]
        places = world.alltoall(parts)
        values = world.alltoall([kept.ravel() if k == 0 else kept.ravel()[:0] for k in range(world.size)])
        if world.rank == 0:
            found[bank.path] = np.empty((total, bank.kept_width))
            for (first, n, *own), part in zip((p.tolist() for p in places), values):
                found[bank.path][first : first + n, own] = part.reshape(n, len(own))
    return found


def deal_rows(executor: Executor, whole: Mapping[str, np.ndarray]) -> None:
    """Give banks what they keep of their rows, out of what `whole_rows` brought to the first rank. Collective."""
    source, world = executor.source, executor.grid.world
    for bank in executor.bank.walk():
        if bank.kept_rows is None:
            continue
        total = total_rows(executor)
        step = max(VALUES_AT_ONCE // max(bank.kept_width, 1), 1)
        for start in range(0, total, step):
            part = np.empty((min(step, total - start), bank.kept_width))
            if world.rank == 0:
                part[:] = whole[bank.path][start : start + len(part)]
            world.bcast(part)
            a, b = max(source.first, start), min(source.first + source.n, start + len(part))
            if a < b:
                bank.kept_rows[a - source.first : b - source.first] = part[a - start : b - start, bank.kept_columns]
