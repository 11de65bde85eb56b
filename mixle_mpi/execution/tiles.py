"""How the rows of a shard are divided into the tiles that are evaluated at once."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.node import Node
from mixle_mpi.contract.tile import Source
from mixle_mpi.execution.shard import PathCuts, compile_tree

TILE_VALUES = 1 << 18  # float64 values of scratch in a tile, two megabytes
TILE_ROWS = 128, 16384  # least and most: fewer are slower, as every tile takes some tens of microseconds
TILES_A_MESSAGE = 2  # tiles scored together when a reduction has to wait for other ranks


def tile_widths(model: Node, cut: str | None, model_shards: int, bounds: tuple[int, ...] | None = None):
    """Values of scratch for a row, and for a step, of the widest of the model shards: all have the same tiles."""
    widths = []
    looked_at = {0, model_shards // 2, model_shards - 1}
    if bounds is not None:
        looked_at.add(int(np.argmax(np.diff(bounds))))
    for shard in sorted(looked_at):
        cuts = PathCuts(cut, shard, model_shards, bounds) if cut is not None and model_shards > 1 else None
        widths.append(compile_tree(model, cuts, True).widths())
    return max(row for row, _ in widths), max(step for _, step in widths)


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
