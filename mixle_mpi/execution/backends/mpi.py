"""Backend "mpi": all ranks of an MPI launch, each of which makes the same call."""

from __future__ import annotations

from mixle_mpi.execution.asked import Asked
from mixle_mpi.execution.em import fit_on_ranks
from mixle_mpi.execution.grid import mpi_world
from mixle_mpi.execution.result import Result


def fit(asked: Asked) -> Result:
    """The fit on all ranks; callbacks are called on each. Collective. Raises ValueError, the same on all ranks."""
    asked.refuse("mpi", workers=True)
    world = mpi_world()
    return fit_on_ranks(
        asked.data, asked.model, world, shape=asked.shape(world.size), local=asked.local, watch=asked.watch(),
        callback=asked.callback, **asked.options,
    )  # fmt: skip
