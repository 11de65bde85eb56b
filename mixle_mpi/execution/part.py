"""Work on a grid of some of the ranks, while the others wait without burning a core."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mixle_mpi.contract.errors import DataError, ModelError, NumericalError
from mixle_mpi.data.table import with_origin
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.choose import Choice
from mixle_mpi.execution.grid import Grid, part_grid, serial_grid

MEETING = 2.5  # seconds that a rank with a refusal waits for the others to have it too
T = TypeVar("T")


def on_grid(
    world: Axis, choice: Choice, work: Callable[[Grid], T], ready: Grid | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> T | None:  # fmt: skip
    """What `work` returns on this rank of the chosen grid; None on an idle rank. Collective.

    `ready` is the grid where there is one already; else it is made, and freed. Idle ranks call `meanwhile` now and
    then.

    Raises
    ------
    ValueError, OSError
        What the grid's ranks agree on is raised on the idle ones as well. Any other error, and one that others
        do not come to meet, is raised where it is, and idle ranks wait on: the command ends them.
    """
    if ready is not None:
        return work(ready)
    grid = serial_grid() if world.size == 1 else part_grid(world, choice.devices)
    if grid is not None and not choice.idle:
        with grid:
            return work(grid)
    result, error = None, None
    try:
        if grid is not None:
            result = work(grid)
    except (ModelError, DataError, NumericalError, OSError) as problem:
        if not world.arrive(MEETING):
            raise
        error = with_origin(problem, world)
    else:
        world.arrive(None, meanwhile if grid is None else lambda: None)
    agreed = next((e for e in world.allgather(error) if e is not None), None)
    if agreed is not None:
        raise agreed
    if grid is not None:
        grid.close()
    return result
