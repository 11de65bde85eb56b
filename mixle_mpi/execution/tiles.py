"""How the rows of a shard are divided into the tiles that are evaluated at once."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.tile import Source
from mixle_mpi.execution.axis import Axis

TILE_VALUES = 1 << 18  # float64 values of scratch in a tile, two megabytes
TILE_ROWS = 128, 16384  # least and most: fewer are slower, as every tile takes some tens of microseconds
TILES_IN_FLIGHT = 2  # of which one is scored while the other waits for a reduction


def tile_widths(bank: Bank, model: Axis) -> tuple[int, int]:
    """Values of scratch for a row, and for a step, of the widest of the model shards: all have the same tiles.
    Collective over the model axis."""
    widths = np.array(bank.widths())
    model.allreduce(widths, "max")
    return int(widths[0]), int(widths[1])


def tile_rows(width: int) -> int:
    """Rows of a tile, or steps, of so many values of scratch each."""
    least, most = TILE_ROWS
    return int(min(max(TILE_VALUES // max(width, 1), least), most))


def tile_borders(source: Source, width: int, step_width: int) -> list[int]:
    """Where the tiles of a source begin, and its end. Tiles of sequences have about as many steps as others have
    rows; a sequence is never divided."""
    rows = tile_rows(width)
    borders = [0]
    if any(s.chunk is not None for s in source.sequences.values()):
        return [0, source.n]  # all shards reduce together
    offsets = [s.offsets for s in source.sequences.values()]
    while borders[-1] < source.n:
        stop = min(borders[-1] + rows, source.n)
        for steps in offsets:
            most = steps[borders[-1]] + tile_rows(step_width)
            stop = min(stop, max(int(np.searchsorted(steps, most, side="right")) - 1, borders[-1] + 1))
        borders.append(stop)
    return borders
