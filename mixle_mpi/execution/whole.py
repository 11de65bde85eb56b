"""What all ranks of a grid hold together, brought to the first of them, and dealt out again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.shard import compile_tree, layout_of

# Bytes of parameters from which, where the model is cut, only the first rank gets all of them: the others could not
# hold them beside their own
LARGE_MODEL = 1 << 28
ROWS_AT_ONCE = 1 << 20  # values that are brought or dealt out in one message, of kept rows or of a large model


def is_large(executor: Executor) -> bool:
    """Whether the whole model is more than each rank is asked to hold."""
    if executor.cut is None:
        return False
    return 8 * layout_of(compile_tree(executor.model, None, True)).num_params >= LARGE_MODEL


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
        values = np.empty((0, 0)) if m is None else layout.param_rows(own, m.name)
        receivers = range(axis.size if everyone else 1)
        for senders, start, stop in turns(axis, len(rows), m.param_width if m else 0, everyone):
            now = [k in receivers and axis.rank in senders for k in range(axis.size)]
            some = slice(start, stop)
            numbers = axis.alltoall([rows[some] if yes else rows[:0] for yes in now])
            parts = axis.alltoall([values[some].ravel() if yes else values[:0].ravel() for yes in now])
            if theta is not None:
                to = whole.param_rows(theta, matrix.name)
                for k in reversed(senders):  # what several hold is taken from model coordinate 0
                    to[numbers[k]] = parts[k].reshape(len(numbers[k]), matrix.param_width)
    return theta


def turns(axis: Axis, rows: int, width: int, everyone: bool) -> list[tuple[range, int, int]]:
    """Who sends which of its rows together: all at once to `everyone`, but to the first rank alone one rank after
    another, the last one first, a few rows at a time: it holds little beside the whole. Collective over `axis`."""
    counts, wide = zip(*axis.allgather((rows, width)))
    if everyone:
        return [(range(axis.size), 0, max(counts))]
    step = max(ROWS_AT_ONCE // max(*wide, 1), 1)
    return [(range(k, k + 1), at, at + step) for k in reversed(range(axis.size)) for at in range(0, counts[k], step)]


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
        step = max(ROWS_AT_ONCE // max(bank.kept_width, 1), 1)
        for start in range(0, total, step):
            part = np.empty((min(step, total - start), bank.kept_width))
            if world.rank == 0:
                part[:] = whole[bank.path][start : start + len(part)]
            world.bcast(part)
            a, b = max(source.first, start), min(source.first + source.n, start + len(part))
            if a < b:
                bank.kept_rows[a - source.first : b - source.first] = part[a - start : b - start, bank.kept_columns]
