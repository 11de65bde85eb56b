"""Backend "spark", on a Spark that runs: every pass over the data is a job of it."""

from __future__ import annotations

import json
import sys
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
from backend_cases import CASES, ITERATIONS, assert_agree, penguin_rows

from mixle_mpi import (
    Composite,
    DataError,
    Gaussian,
    HiddenMarkov,
    Laplace,
    Mixture,
    ModelError,
    ModelParallelEstimator,
    ProbabilisticLatentSemanticIndexing,
    Record,
    Resources,
    optimize,
)
from mixle_mpi.execution import spark_rows

pytestmark = [pytest.mark.launched, pytest.mark.filterwarnings("ignore")]
FEW = {"max_iter": 1, "tol": None}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def session(log):
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").appName("test of mixle_mpi")
        for key, value in {
            "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR",
            "spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file://{log}",
            "spark.eventLog.compress": "false", "spark.driver.memory": "1g",
            "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
        }.items():  # fmt: skip
            builder = builder.config(key, value)
        made = builder.getOrCreate()
    yield made
    made.stop()


@pytest.fixture
def sc(session):
    return session.sparkContext


@cache
def expected(name: str):
    data, model, options = CASES[name]()
    return optimize(data, model, **options)


def jobs(log) -> int:
    """Jobs that have ended, as Spark's log of events has them."""
    lines = [line for path in log.rglob("*") if path.is_file() and not path.name.startswith(".")
             for line in path.read_text().splitlines() if '"SparkListenerJobEnd"' in line]  # fmt: skip
    return sum(json.loads(line)["Job Result"]["Result"] == "JobSucceeded" for line in lines)


@pytest.mark.parametrize("name, shards", [("penguins", 2), ("chains", 3)])
def test_data_of_the_driver_agree_with_one_process(sc, log, name, shards):
    data, model, options = CASES[name]()
    heard, before = [], jobs(log)
    found = optimize(data, model, backend="spark", grid=(shards, 1), callback=heard.append, **options)
    assert_agree(found, expected(name))
    assert found.grid == (shards, 1) and found.plan.data_parallel == shards
    assert [iteration.log_likelihood for iteration in heard] == found.history
    made = jobs(log) - before
    print(f"application {sc.applicationId}: {made} jobs of Spark for {ITERATIONS} iterations of {name}")
    assert sc.applicationId.startswith("local-") and made >= ITERATIONS + 1


def test_partitions_of_rows_agree_with_one_process(session, sc):
    rows, (_, model, options) = penguin_rows(), CASES["penguins"]()
    found = optimize(sc.parallelize(rows, 3), model, backend="spark", **options)
    assert_agree(found, expected("penguins"))
    names = list(rows[0])
    schema = ", ".join(f"{name} {'double' if isinstance(rows[0][name], float) else 'string'}" for name in names)
    frame = session.createDataFrame(sc.parallelize([tuple(row.values()) for row in rows], 2), schema)
    found = optimize(frame, model, backend="spark", **options)
    assert_agree(found, expected("penguins"))
    assert found.grid == (2, 1) and not sc._jsc.getPersistentRDDs()


def test_uneven_and_empty_partitions_of_sequences(session, sc):
    data, model, options = CASES["chains"]()
    uneven = sc.parallelize(range(3), 3).flatMap(lambda k: data[(0, 0, 5)[k] : (0, 5, 6)[k]])  # 0, 5 and 1 rows
    assert_agree(optimize(uneven, model, backend="spark", **options), expected("chains"))
    frame = session.createDataFrame([([1.0, 5.0, 5.5],), ([],), ([0.0, 0.5, 4.0, 6.0],)], "x array<double>").coalesce(1)
    model = Record(x=HiddenMarkov(Gaussian(), 2))
    one = optimize([{"x": [1.0, 5.0, 5.5]}, {"x": []}, {"x": [0.0, 0.5, 4.0, 6.0]}], model, **FEW)
    assert_agree(optimize(frame, model, backend="spark", **FEW), one)


def test_a_bad_cell_in_a_partition_is_refused_as_in_one_process(sc):
    rows = [(float(k), float(k % 3)) for k in range(20)]
    rows[17] = (1.0, "oops")
    model, messages = Composite(Gaussian(), Gaussian()), []
    for data, options in ((rows, {}), (sc.parallelize(rows, 3), {"backend": "spark"})):
        with pytest.raises(DataError) as caught:
            optimize(data, model, **options)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and "row 17, column '1'" in messages[0]


def test_a_checkpoint_is_written_and_gone_on_from(sc, tmp_path):
    rows = [float(k % 7) for k in range(40)]
    model = Mixture(Composite(Laplace()), 2)
    options = {"tol": None, "starts": 1, "weights": np.arange(40.0)}
    one = optimize(rows, model, max_iter=2, **options)
    optimize(rows, model, backend="spark", max_iter=1, checkpoint=tmp_path, **options)
    found = optimize(rows, model, backend="spark", max_iter=2, checkpoint=tmp_path, resume=True, **options)
    found.counts.rows = one.counts.rows
    assert_agree(found, one)


@pytest.mark.parametrize("options, says", [
    ({"grid": "1x2"}, "M = 2, and only M = 1"), ({"workers": 2}, "workers = 2"), ({"rows": "local"}, 'rows = "local"'),
    ({"tune": True}, "nothing to tune"), ({"grid": (3, 1)}, "3 data shards, but the data have 2 partitions"),
])  # fmt: skip
def test_what_spark_cannot_do_is_refused(sc, options, says):
    with pytest.raises(ModelError, match=says):
        optimize(sc.parallelize([1.0, 2.0, 3.0], 2), Gaussian(), backend="spark", **options)


def test_models_that_spark_cannot_fit_are_refused(sc):
    with pytest.raises(ModelError, match="M = 2, and only M = 1"):
        optimize([1.0, 2.0], ModelParallelEstimator(Mixture(Gaussian(), 2), 2), backend="spark")
    with pytest.raises(ModelError, match="probabilistic_latent_semantic_indexing keeps"):
        optimize([["a", "b"]], ProbabilisticLatentSemanticIndexing(2), backend="spark")


def test_without_pyspark_or_java_one_sentence_says_what_is_needed(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ModelError, match="needs Java, and there is no `java` in JAVA_HOME"):
        spark_rows.started()
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ModelError, match=r"pip install 'mixle_mpi\[spark\]'"):
        optimize([1.0], Gaussian(), backend="spark")


def test_resources_are_the_slots_of_the_executors(sc):
    found = Resources.from_spark(sc).devices
    assert len(found) == 2 and {d.memory_bytes for d in found} == {2**29}
    assert len({d.node for d in found}) == 1 and found[0].node
