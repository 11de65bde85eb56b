"""From data and model to a bound model and the encoded rows of one data shard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.blocks import shard_rows
from mixle_mpi.contract.errors import DataError, ModelError, nearest
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.scope import Scope
from mixle_mpi.data.bind import WEIGHT, bindings, check, slots_of, summarise
from mixle_mpi.data.encode import EncodedRows, encode, observed_rows
from mixle_mpi.data.exchange import exchange
from mixle_mpi.data.memory import MemoryTable
from mixle_mpi.data.open import Opened, open_data
from mixle_mpi.data.table import together
from mixle_mpi.execution.grid import Grid


@dataclass
class Loaded:
    """A bound model and the rows of this rank's data shard.

    `total` rows in all; `effective` the sum of the weights of those with anything observed; `weights`
    (n,) sample weights of the shard's rows, or None.
    """

    model: Node
    rows: EncodedRows
    total: int
    effective: float
    weights: np.ndarray | None


def load(
    data, model: Node, grid: Grid, *, strict: bool = True, local: bool = False, weights=None, warn: bool = False
) -> Loaded:
    """Place, summarise, bind, encode and deal out the rows. Collective.

    `strict`, for a fit, centres numbers and refuses rows outside the support of the only leaf that reads
    them; without it rows are only scored. `local` says that each
    rank brings its own rows of data in memory. `weights` are the sample weights (n,), or the name of a column
    of the data that holds them; the model does not see that column.

    Raises
    ------
    ValueError, OSError
        The same on all ranks: data that do not fit the model, with row, column and value.
    """
    world = grid.world
    opened = open_data(data, world, local)
    if not opened.names:
        opened = without_rows(model.width or 0)
    named = isinstance(weights, str)
    if named and weights not in opened.names:
        raise DataError(f"weights: no column {weights!r}; {nearest(weights, opened.names)}")
    names = tuple(name for name in opened.names if not (named and name == weights))
    placed = together(world, lambda: model.place(Scope(names)))
    slots = slots_of(placed, weights if named else None)
    table = opened.read(slots.wants())
    start, stop = (
        shard_rows(world.rank, world.size, table.total)
        if table.everywhere
        else (table.first, table.first + table.rows)
    )
    summaries = summarise(slots, table, start, stop, world)
    check(slots, summaries, strict, table)
    bound_slots = bindings(slots, summaries, warn and world.rank == 0, centre=strict)
    bound = placed.bind(bound_slots)
    shards, model_shards = grid.shape
    ranges = [shard_rows(rank // model_shards, shards, table.total) for rank in range(world.size)]
    if table.everywhere:
        start, stop = ranges[world.rank]
    rows = together(world, lambda: encode(slots, bound_slots, bound, table, start, stop))
    table.close()
    if weights is not None and not named:
        rows.arrays[WEIGHT] = together(world, lambda: checked_weights(weights, table.total, local, stop - start, start))
    if not table.everywhere:
        rows = exchange(rows, ranges, world)
    own_weights = rows.arrays.pop(WEIGHT, None)
    seen = observed_rows(bound_slots, rows)
    effective = np.array([mass_of(rows.n, seen, own_weights)])
    grid.data.allreduce(effective)
    return Loaded(bound, rows, table.total, float(effective[0]), own_weights)


def without_rows(width: int) -> Opened:
    """Data in memory without rows, which do not say how many columns they have."""
    table = MemoryTable({str(j): np.empty(0) for j in range(width)})
    return Opened(table.names, lambda wants: table)


def mass_of(n: int, seen: np.ndarray | None, weights: np.ndarray | None) -> float:
    """The sum of the weights (n,) of the rows that are `seen` (n,), each by default."""
    if weights is None:
        return float(n if seen is None else np.count_nonzero(seen))
    return float(weights.sum() if seen is None else weights[seen].sum())


def checked_weights(weights, total: int, local: bool, n: int, start: int) -> np.ndarray:
    """The sample weights (n,) of the rows from `start` on. Raises DataError that names row and value."""
    try:
        w = np.asarray(weights, dtype=float)
    except (TypeError, ValueError):
        raise DataError("weights are not numbers") from None
    expected = n if local else total
    if w.shape != (expected,):
        raise DataError(f"weights of shape {w.shape} for {expected} rows")
    bad = ~(np.isfinite(w) & (w >= 0))
    if bad.any():
        at = int(np.argmax(bad))
        raise DataError(f"row {at + (start if local else 0)}: the weight {w[at]} is not a number >= 0")
    return w if local else w[start : start + n].copy()


def parse_grid(grid, ranks: int) -> tuple[int, int]:
    """D and M of "auto", "2x3" or (2, 3). Raises ModelError."""
    if isinstance(grid, str) and grid == "auto":
        return ranks, 1
    try:
        d, m = grid.lower().split("x") if isinstance(grid, str) else grid
        return int(d), int(m)
    except (ValueError, TypeError, AttributeError):
        raise ModelError(f"grid = {grid!r} is not \"auto\", \"DxM\" or (D, M)") from None


