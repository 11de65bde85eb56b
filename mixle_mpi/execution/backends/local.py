"""Backend "local": this process; M > 1 model shards are threads of it."""

from __future__ import annotations

from mixle_mpi.execution.asked import Asked
from mixle_mpi.execution.axis import Alone, Axis
from mixle_mpi.execution.em import fit_on_ranks
from mixle_mpi.execution.grid import Grid
from mixle_mpi.execution.result import Result
from mixle_mpi.execution.threads import run_on_threads


def fit(asked: Asked) -> Result:
    """The fit in this process. Raises ValueError."""
    asked.refuse("local", workers=True)
    shape = asked.shape(asked.model_shards or 1)

    def run(ranks: Axis, ready: Grid | None = None) -> Result:
        return fit_on_ranks(
            asked.data, asked.model, ranks, shape=shape, ready=ready, local=asked.local, watch=asked.watch(),
            callback=asked.callback if ranks.rank == 0 else None, **asked.options,
        )  # fmt: skip

    if shape is not None and shape[1] > 1:
        return run_on_threads(*shape, lambda threads: run(threads.world, threads))[0]
    return run(Alone())
