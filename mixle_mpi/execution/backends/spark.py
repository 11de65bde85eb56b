"""Backend "spark": the partitions of a Spark DataFrame or RDD, or of other data that the driver deals out.

Every pass over the data is a Spark job: parameters are broadcast, each partition yields one flat buffer of statistics,
these are reduced in a tree, and the driver makes the M-step. Callbacks, warnings and checkpoints are the driver's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.execution.asked import Asked, shape_of
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.choose import Choice, choose, unmeasured
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.em import fit_loaded
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import parse_grid
from mixle_mpi.execution.partitions import PartitionedExecutor, check_model
from mixle_mpi.execution.result import Result
from mixle_mpi.execution.spark_rows import Rows, context, is_spark
from mixle_mpi.execution.stopping import Checkpoints


def fit(asked: Asked) -> Result:
    """The fit on the partitions of data. Raises ValueError."""
    return fit_on_partitions(asked, asked.watch(), Clock(asked.begun))


def fit_on_partitions(
    asked: Asked, watch: Checkpoints | None, clock: Clock, told: Callable[[Choice], None] = lambda choice: None
) -> Result:
    """`fit` with a watch and a clock; `told` is called with the choice of the grid, as by `em.fit_on_ranks`."""
    asked.refuse("spark", workers=True, local=True)
    shards = shards_of(asked)
    check_model(asked.model)
    options = dict(asked.options)
    for name in ("weights", "sequence", "tune", "cut", "pipelined", "resources"):
        del options[name]
    with context(asked.data) as sc, Rows(sc) as rows:
        clock.lap("start")
        loaded = rows.of_spark(asked, shards) if is_spark(asked.data) else rows.of_driver(asked, shards)
        clock.lap("read")
        kept = None if watch is None else watch.kept(Alone())
        choice = choose(loaded.model, loaded.total, Alone(), unmeasured(rows.size), shape=(rows.size, 1), kept=kept)
        told(choice)
        if watch is not None:
            watch.grid = choice.record()
        executor = PartitionedExecutor(loaded.model, loaded.rows, rows.runner(loaded.model))
        result = fit_loaded(loaded, asked.model, serial_grid(), clock, executor=executor, watch=watch,
                            callback=asked.callback, **options)  # fmt: skip
    return dataclasses.replace(result, grid=choice.shape, plan=choice.plan)


def shards_of(asked: Asked) -> int | None:
    """D, None where it is left to the data. Raises ModelError for M > 1, and for `tune`."""
    shape = parse_grid(asked.grid)
    if (asked.model_shards or 1) > 1 or (shape is not None and shape[1] != 1):
        m = asked.model_shards or (shape or (1, 1))[1]
        raise ModelError(f'backend "spark" has no model shards: M = {m}, and only M = 1 runs there; "mp" and "mpi" '
                         "have them")  # fmt: skip
    if asked.options["tune"]:
        raise ModelError('backend "spark" has as many data shards as there are partitions: there is nothing to tune')
    if asked.options["resources"] is not None:
        raise ModelError('backend "spark" has rows where Spark puts the partitions: resources shape nothing')
    return None if shape is None else shape_of(shape, None, shape[0])[0]  # type: ignore[index]
