"""From data and model to a bound model and the encoded rows of one data shard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.blocks import shard_rows
from mixle_mpi.contract.errors import DataError, ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.scope import Scope
from mixle_mpi.data.encode import EncodedRows, bindings, check, encode, observed_rows, slots_of, summarise
from mixle_mpi.data.exchange import exchange
from mixle_mpi.data.memory import MemoryTable
from mixle_mpi.data.open import describe_data, is_path, open_named, read_table, table_in_memory
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
    rank brings its own rows of data in memory.

    Raises
    ------
    ValueError, OSError
        The same on all ranks: data that do not fit the model, with row, column and value.
    """
    world = grid.world
    if is_path(data):
        names, opened = open_named(data, world)
        placed = model.place(Scope(names))
        slots = slots_of(placed)
        table = read_table(data, opened, slots.wants(), world)
    else:
        table = table_in_memory(data, world, local)
        if not table.names and not table.rows:
            width = model.width or 0
            table = MemoryTable({str(j): np.empty(0) for j in range(width)}) if width else table
        placed = together(world, lambda: model.place(Scope(table.names)))
        slots = slots_of(placed)
    if not is_path(data):
        together(world, lambda: table.check(slots.wants()))
    start, stop = (
        shard_rows(world.rank, world.size, table.total)
        if table.everywhere
        else (table.first, table.first + table.rows)
    )
    summaries = summarise(slots, table, start, stop, world)
    check(slots, summaries, strict, describe_data(data))
    bound_slots = bindings(slots, summaries, warn and world.rank == 0, centre=strict)
    bound = placed.bind(bound_slots)
    shards, model_shards = grid.shape
    ranges = [shard_rows(rank // model_shards, shards, table.total) for rank in range(world.size)]
    if table.everywhere:
        start, stop = ranges[world.rank]
    rows = encode(slots, bound_slots, bound, table, start, stop)
    table.close()
    own_weights = None
    if weights is not None:
        own = together(world, lambda: checked_weights(weights, table.total, local, stop - start, start))
        rows.arrays["weights"] = own
    if not table.everywhere:
        rows = exchange(rows, ranges, world)
    if weights is not None:
        own_weights = rows.arrays.pop("weights")
    seen = observed_rows(bound_slots, rows)
    mass = np.ones(rows.n) if own_weights is None else own_weights
    effective = np.array([float(mass.sum() if seen is None else mass[seen].sum())])
    grid.data.allreduce(effective)
    return Loaded(bound, rows, table.total, float(effective[0]), own_weights)


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


