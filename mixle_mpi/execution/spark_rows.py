"""A Spark session, and the rows in its partitions: what backend "spark" asks of PySpark."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import DataError, ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.execution.asked import Asked
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.library_threads import THREADS
from mixle_mpi.execution.load import Loaded, deal, default_borders, read
from mixle_mpi.execution.partitions import (
    Outcome,
    Reading,
    Shard,
    Task,
    answered,
    combined,
    do,
    gathered,
    loaded_of,
    outcome_of,
    part_of,
    read_partition,
)
from mixle_mpi.execution.warm import ROWS

PACKAGE = Path(__file__).resolve().parents[2]


def _pyspark():
    """PySpark. Raises ModelError where it is not installed."""
    try:
        import pyspark
    except ImportError:
        raise ModelError("backend \"spark\" needs PySpark: pip install 'mixle_mpi[spark]'") from None
    return pyspark


def is_spark(data) -> bool:
    """Whether data are a DataFrame or RDD. Raises ModelError for a DataFrame of Spark Connect."""
    modules = [of.__module__ for of in type(data).__mro__]
    if not any(module.startswith("pyspark.") for module in modules):
        return False
    if any(module.startswith("pyspark.sql.connect") for module in modules):
        raise ModelError("a DataFrame of Spark Connect has no partitions that can be reached: use a classic session")
    from pyspark.rdd import RDD
    from pyspark.sql import DataFrame

    return isinstance(data, (RDD, DataFrame))


@contextlib.contextmanager
def context(data) -> Iterator[Any]:
    """The SparkContext of the data, else the one that there is, else one that is started, and stopped afterwards."""
    _pyspark()
    from pyspark import SparkContext
    from pyspark.rdd import RDD

    found = None
    if is_spark(data):
        found = data.context if isinstance(data, RDD) else data.sparkSession.sparkContext
    if found is None:
        found = SparkContext._active_spark_context
    if found is not None:
        yield found
        return
    found = started()
    try:
        yield found
    finally:
        found.stop()


def started():
    """A new SparkContext: that of spark-submit, else of all cores of this machine. Raises ModelError without Java."""
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setAppName("mixle_mpi")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has set where the tasks run
        home = os.environ.get("JAVA_HOME")
        java = shutil.which("java") if home is None else shutil.which("java", path=str(Path(home) / "bin"))
        if java is None:
            raise ModelError("backend \"spark\" needs Java, and there is no `java` "
                             + ("on PATH" if home is None else f"in JAVA_HOME, {home}"))  # fmt: skip
        conf = conf.setMaster("local[*]").set("spark.ui.enabled", "false").set("spark.log.level", "ERROR")
        conf = conf.set("spark.ui.showConsoleProgress", "false")
        paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
        conf = conf.set("spark.executorEnv.PYTHONPATH", os.pathsep.join(paths))
        for name in THREADS:  # a task is one thread, as a rank is
            conf = conf.set(f"spark.executorEnv.{name}", os.environ.get(name) or "1")
    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = before or sys.executable  # read once: tasks run in the Python that this is
    try:
        return SparkContext(conf=conf)
    finally:
        if before is None:
            del os.environ["PYSPARK_PYTHON"]


class Rows:
    """The encoded rows of all partitions, one `Shard` each, for as long as the context lasts."""

    def __init__(self, sc):
        self.sc = sc
        self._shards: Any = None
        self._kept: list[Any] = []

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *error) -> None:
        for rdd in self._kept:
            rdd.unpersist()

    @property
    def size(self) -> int:
        return self._shards.getNumPartitions()

    def of_driver(self, asked: Asked, shards: int | None) -> Loaded:
        """Data that the driver reads, encodes and deals out as any grid does."""
        weights, sequence = asked.options["weights"], asked.options["sequence"]
        found = read(asked.data, asked.model, Alone(), weights=weights, sequence=sequence, warn=True)
        size = max(min(self.sc.defaultParallelism, found.total), 1) if shards is None else shards
        borders = default_borders(found, size)
        loaded = deal(found, Alone(), [(0, 0)], 1)
        own = loaded.weights
        parts = [Shard(part_of(loaded.rows, a, b), None if own is None else own[a:b])
                 for a, b in pairwise(borders)]  # fmt: skip
        self._shards = self.sc.parallelize(parts, size)
        head = part_of(loaded.rows, 0, min(loaded.rows.n, ROWS))
        return Loaded(loaded.model, head, loaded.total, loaded.effective, None)

    def of_spark(self, asked: Asked, shards: int | None) -> Loaded:
        """Data in partitions, which stay where they are."""
        tables = tables_of(asked.data)
        size = tables.getNumPartitions()
        if not size:
            raise DataError("the data have no partitions, and so no rows")
        if shards not in (None, size):
            raise ModelError(f"grid: {shards} data shards, but the data have {size} partitions; data.repartition "
                             f"({shards}) has as many")  # fmt: skip
        weights = asked.options["weights"]
        if weights is not None and not isinstance(weights, str):
            weights = np.asarray(weights)
        with _broadcast(self.sc, Reading(asked.model, weights, asked.options["sequence"])) as reading:
            tables = self._keep(tables)

            def run(answers: list[bytes]) -> Outcome:
                with _broadcast(self.sc, answers) as known:
                    task = partial(_read_about, size=size, answers=known, reading=reading)
                    return gathered(tables.mapPartitionsWithIndex(task).collect())

            abouts, answers = answered(size, run)
            # by value: a partition that is lost is read again, whenever that is
            task = partial(_read_shard, size=size, answers=answers, reading=reading.value)
        self._shards = self._keep(tables.mapPartitionsWithIndex(task))
        self._shards.count()
        tables.unpersist()
        return loaded_of(abouts)

    def _keep(self, rdd):
        from pyspark import StorageLevel

        self._kept.append(rdd.persist(StorageLevel.MEMORY_AND_DISK))
        return rdd

    def runner(self, model: Node) -> Callable[[Task, tuple[int, int]], np.ndarray]:
        """What has all partitions do a task, and returns the reduced buffer."""
        size, shards = self.size, self._shards
        fixed = self.sc.broadcast(model)

        def run(task: Task, borders: tuple[int, int]) -> np.ndarray:
            def once(answers: list[bytes]) -> Outcome:
                with _broadcast(self.sc, (task, answers)) as own:
                    job = partial(_do, size=size, own=own, model=fixed)
                    return shards.mapPartitionsWithIndex(job).treeReduce(partial(combined, borders=borders))

            return answered(size, once)[0]

        return run


@contextlib.contextmanager
def _broadcast(sc, value) -> Iterator[Any]:
    """A value that tasks can see meanwhile."""
    made = sc.broadcast(value)
    try:
        yield made
    finally:
        made.destroy()


def tables_of(data):
    """An RDD with the rows of each partition as one table: a list of rows, or a dict of columns."""
    from pyspark.rdd import RDD

    if isinstance(data, RDD):
        return data.mapPartitions(_listed)
    from pyspark.sql.types import ArrayType, MapType, StructType

    nested = any(isinstance(of, (StructType, MapType))
                 for field in data.schema.fields for of in _inside(field.dataType, ArrayType))  # fmt: skip
    return data.rdd.mapPartitions(partial(_columns, names=tuple(data.columns), nested=nested))


def _inside(kind, array) -> Iterator[Any]:
    yield kind
    if isinstance(kind, array):
        yield from _inside(kind.elementType, array)


# What tasks do: functions of this module, so that they are found by name where they run.


def _listed(rows) -> Iterator[list]:
    yield list(rows)


def _columns(rows, names: tuple[str, ...], nested: bool) -> Iterator[dict[str, list]]:
    taken = [list(row.asDict(recursive=True).values()) if nested else row for row in rows]
    yield {name: [row[k] for row in taken] for k, name in enumerate(names)}


def _read(rank: int, tables, size: int, answers: list[bytes], reading: Reading) -> Outcome:
    (table,) = tables
    return outcome_of(rank, size, answers, lambda axis: read_partition(axis, table, reading))


def _read_about(rank: int, tables, size: int, answers, reading) -> Iterator[Outcome]:
    outcome = _read(rank, tables, size, answers.value, reading.value)
    if outcome.found is not None:
        outcome.found = outcome.found[1]
    yield outcome


def _read_shard(rank: int, tables, size: int, answers: list[bytes], reading: Reading) -> Iterator[Shard]:
    yield _read(rank, tables, size, answers, reading).found[0]


def _do(rank: int, shards, size: int, own, model) -> Iterator[Outcome]:
    (shard,), (task, answers) = shards, own.value
    yield outcome_of(rank, size, answers, lambda axis: do(task, model.value, shard, axis))
