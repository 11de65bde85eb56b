"""Tasks of partitions, as Spark runs them, one after another in this process: each is pickled, and forgets."""

from __future__ import annotations

import warnings
from functools import reduce
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from workload import assert_same, difference, rows, trees

from mixle_mpi import (
    Composite,
    DataError,
    Gaussian,
    HiddenMarkov,
    Laplace,
    LatentDirichletAllocation,
    Mixture,
    Record,
    Uniform,
    optimize,
)
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.em import fit_loaded
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.partitions import (
    PartitionedExecutor,
    Reading,
    answered,
    combined,
    do,
    gathered,
    loaded_of,
    outcome_of,
    read_partition,
)

pytestmark = pytest.mark.filterwarnings("ignore:not converged", "ignore:components without")
UNEVEN = (0, 3, 3, 120, 121)


def travelled(value):
    return ForkingPickler.loads(ForkingPickler.dumps(value))


def fit_in_partitions(data, borders, model, weights=None, sequence=None, **options):
    """The fit of rows that are cut at borders, with the executor of the driver."""
    tables = [data[a:b] for a, b in zip((0, *borders), (*borders, len(data)))]
    size, reading = len(tables), Reading(model, weights, sequence)

    def read(answers):
        return gathered([travelled(outcome_of(
            rank, size, answers, lambda axis: read_partition(axis, travelled(tables[axis.rank]), travelled(reading))
        )) for rank in range(size)])  # fmt: skip

    found, _ = answered(size, read)
    shards = [shard for shard, _ in found]
    loaded = loaded_of([about for _, about in found])

    def run(task, borders):
        def once(answers):
            return reduce(lambda a, b: combined(a, b, borders), [travelled(outcome_of(
                rank, size, answers,
                lambda axis: do(travelled(task), travelled(loaded.model), travelled(shards[axis.rank]), axis)
            )) for rank in range(size)])  # fmt: skip

        return answered(size, once)[0]

    executor = PartitionedExecutor(loaded.model, loaded.rows, run)
    return fit_loaded(loaded, model, serial_grid(), Clock(), executor=executor, **options)


@pytest.mark.parametrize("name", trees())
def test_partitions_agree_with_one_process(name):
    model, options = trees()[name][0], {"max_iter": 3, "tol": None}
    data = rows(131)
    one = optimize(data, model, **options)
    found = fit_in_partitions(data, UNEVEN, model, **options)
    assert_same(found, one)
    for count in ("passes", "rows", "unit_rows", "maximized", "state_steps"):
        assert vars(found.counts)[count] == vars(one.counts)[count], count


def test_weights_starts_bounds_searches_and_columns_far_apart():
    rng = np.random.default_rng(1)
    group = rng.integers(0, 2, 90)
    x = rng.normal(size=(90, 4)) + group[:, None] * [5.0, 5.0, 1e7, 5.0]
    data, weights = [tuple(row) for row in x.tolist()], rng.integers(0, 3, 90).astype(float)
    model = Mixture(Composite(Laplace(), Uniform(), Gaussian(), Gaussian()), 2)
    options = {"starts": 2, "impossible": "skip", "max_iter": 3, "tol": None}
    one = optimize(data, model, weights=weights, **options)
    found = fit_in_partitions(data, (30, 31), model, weights, **options)
    assert_same(found, one)
    assert len(found.starts) == 2 and found.best_start == one.best_start and found.impossible == one.impossible


def test_sequences_documents_and_rows_of_steps():
    options = {"max_iter": 2, "tol": None}
    data = [[0.0, 0.5, 4.0], [], [4.5, 4.0, 0.0, 0.25, 5.0], [1.0]]
    model = HiddenMarkov(Gaussian(), 2)
    for borders in ((1,), (0, 2, 2, 3, 4)):  # some partitions have no rows, one has no steps
        assert_same(fit_in_partitions(data, borders, model, **options), optimize(data, model, **options))
    docs = [["cat", "dog", "cat"], ["dog", "fish"], ["stock", "bond", "stock"], ["bond", "fund"]] * 3
    model = LatentDirichletAllocation(2, topic_prior=0.1)
    assert_same(fit_in_partitions(docs, (5, 7), model, **options), optimize(docs, model, **options))
    steps = [{"who": f"p{k // 5}", "x": float(k % 5 + 3 * (k % 3))} for k in range(30)]
    model = HiddenMarkov(Record(x=Gaussian()), 2)
    columns = {name: [step[name] for step in steps] for name in ("who", "x")}
    found = fit_in_partitions(steps, (7, 22), model, sequence="who", **options)  # borders within sequences
    assert_same(found, optimize(columns, model, sequence="who", **options))


def test_the_refusals_of_partitions_are_those_of_one_process():
    data = [(float(k), float(k % 3)) for k in range(20)]
    data[17] = (1.0, "oops")
    model, messages = Composite(Gaussian(), Gaussian()), []
    for fit in (optimize, lambda data, model: fit_in_partitions(data, (9, 15), model)):
        with pytest.raises(DataError) as caught:
            fit(data, model)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and "row 17, column '1'" in messages[0]
    data[17] = (17.0, 1.0)
    limited = Composite(Mixture([Uniform(low=0.0, high=18.0, fixed=True), Uniform(low=0.0, high=17.0, fixed=True)]),
                        Gaussian())  # fmt: skip
    with pytest.raises(DataError, match="row 19 .* has probability zero"):
        fit_in_partitions(data, (9, 15), limited)
    with pytest.raises(DataError, match="weights of shape"):
        fit_in_partitions(data, (9, 15), model, [1.0, 2.0])


def test_warnings_of_partitions_are_given_once():
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        fit_in_partitions([(1.0, 2.0), (1.0, 3.0)], (1,), Composite(Gaussian(), Gaussian()), max_iter=1, tol=None)
    assert [str(w.message) for w in given if "constant" in str(w.message)] == [
        "column '0' is constant: its variance is set to the floor"
    ]


def test_a_row_that_is_left_out_is_noticed():
    data, model = rows(60), trees()["atomic"][0]
    one = optimize(data, model, max_iter=1, tol=None)
    wrong = fit_in_partitions(data[:59], (20,), model, max_iter=1, tol=None)
    assert difference(wrong, one)[0] > 1e-6
