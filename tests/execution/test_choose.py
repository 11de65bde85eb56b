"""The choice of a grid: planned, asked for or kept; rows dealt to some of the ranks; uneven borders."""

from __future__ import annotations

import json

import numpy as np
import pytest
from workload import assert_same, rows, trees

from mixle_mpi import (
    DeviceSpec,
    Gaussian,
    HiddenMarkov,
    Mixture,
    ModelError,
    ModelParallelEstimator,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    Resources,
    Sequence,
    optimize,
)
from mixle_mpi.commands.ending import exit_code
from mixle_mpi.contract.errors import MemoryLimitError
from mixle_mpi.execution.asked import shape_of
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.choose import Choice, alternatives, choose, observed
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.em import fit, fit_loaded, fit_on_ranks
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import deal, load, read
from mixle_mpi.execution.stopping import Checkpoints
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.execution.tune import Stopwatch
from mixle_mpi.planning.balance import plan_grid, plan_on, plan_shape

DATA = rows()
MODEL = Mixture(Record(a=Optional(Gaussian()), b=Poisson()), 5)


def machine(*throughputs: float, memory: int | None = None) -> Resources:
    return Resources(tuple(DeviceSpec(f"r{k}", memory_bytes=memory, throughput=t) for k, t in enumerate(throughputs)))


def found(model=MODEL, data=DATA):
    return read(data, model, Alone())


def made(resources: Resources, model=MODEL, total: int | None = None, **options) -> Choice:
    bound = found(model)
    return choose(bound.model, bound.total if total is None else total, Alone(), resources, **options)


# -- what is chosen --------------------------------------------------------------------------------


def test_one_process_has_a_plan_too():
    result = optimize(DATA, MODEL, max_iter=1, tol=None)
    assert result.grid == (1, 1) and result.plan.extra["seconds"]["total"] > 0 and result.plan.fits


def test_the_planner_decides_and_its_figures_are_of_what_is_run():
    for resources, total in ((machine(*[1.0] * 4), 200), (machine(*[1.0] * 6), 2), (machine(1.0, 0.3, 0.5, 2.0), 50)):
        choice = made(resources, total=total)
        plan = plan_on(found().model, resources, n_data=total, shape=choice.shape, cut=choice.cut,
                       bounds=choice.bounds, rows=choice.row_bounds, devices=choice.devices,
                       given=observed(found().model, total))  # fmt: skip
        assert plan.extra["seconds"] == choice.plan.extra["seconds"]
        assert plan.extra["bytes"] == choice.plan.extra["bytes"]
        assert choice.how == "auto" and choice.idle == len(resources.devices) - np.size(choice.devices)
    assert made(machine(*[1.0] * 6), total=1, cut="").shape == (1, 5)
    assert made(machine(*[1.0] * 6), total=1).shape == (1, 6)  # several nodes are cut at once


@pytest.mark.parametrize("seed", range(20))
def test_rank_0_is_at_the_origin_whatever_its_speed(seed):
    rng = np.random.default_rng(seed)
    speeds = rng.choice([0.01, 0.5, 1.0, 2.0], rng.integers(2, 9))
    choice = made(machine(*speeds), total=int(rng.integers(1, 300)))
    assert choice.devices[0][0] == 0 and choice.coords[0] == (0, 0)
    assert sorted(rank for row in choice.devices for rank in row) == sorted(set(np.ravel(choice.devices).tolist()))
    assert [k for k, at in enumerate(choice.coords) if at is None] == sorted(
        set(range(len(speeds))) - set(np.ravel(choice.devices).tolist())
    )


def test_a_cut_restricts_the_planner():
    model = Mixture(Record(a=Optional(Gaussian()), b=Mixture(Poisson(), 3)), 4)
    for cut in ("", "component_*", "component_*/b", "component_1/b"):
        choice = made(machine(*[1.0] * 3), model, total=1, cut=cut)
        assert choice.cut in (None, cut)
    assert made(machine(*[1.0] * 3), model, total=1, cut="component_*/b").cut == "component_*/b"
    with pytest.raises(ModelError, match="no node there that can be cut"):
        made(machine(1.0, 1.0), model, cut="component_*/a")


def test_a_grid_that_is_asked_for_is_planned_as_it_is_run():
    choice = made(machine(*[1.0] * 4), shape=(2, 2), cut="")
    assert (choice.how, choice.shape, choice.cut, choice.bounds, choice.row_bounds) == ("asked", (2, 2), "", None, None)
    assert choice.devices == ((0, 1), (2, 3)) and choice.plan.extra["bounds"] == [0, 2, 5]
    free = made(machine(*[1.0] * 4), shape=(2, 2))
    assert (free.cut, free.shape) == ("**1", (2, 2))
    assert free.plan.extra["seconds"]["total"] < choice.plan.extra["seconds"]["total"]
    with pytest.raises(ModelError, match="2 x 1 = 2, but 4 ranks"):
        made(machine(*[1.0] * 4), shape=(2, 1))


def test_unlike_nodes_under_a_star_run_without_a_plan():
    model = Mixture([Record(a=Optional(Mixture(Gaussian(), 2)), b=Poisson()),
                     Record(a=Optional(Mixture(Gaussian(), 3)), b=Poisson())])  # fmt: skip
    choice = made(machine(1.0, 1.0), model, shape=(1, 2), cut="component_*/a/of")
    assert choice.plan is None and choice.cut == "component_*/a/of" and choice.as_data()["seconds"] is None
    with pytest.raises(ModelError, match="cannot be planned: its nodes are not alike"):
        made(machine(1.0, 1.0), model, cut="component_*/a/of")


def test_a_model_too_big_is_refused_with_both_numbers():
    for options in ({}, {"shape": (2, 1)}):
        with pytest.raises(MemoryLimitError, match=r"needs .* \(\d+ bytes.*its memory is .* \(5000 bytes\)") as refused:
            made(machine(1.0, 1.0, memory=5000), **options)
        assert exit_code(refused.value) == 3
    assert exit_code(ModelError("x")) == 2


def test_the_observed_share_is_that_of_what_is_scored_apart():
    data = {"a": [1.0, None, 2.0, None], "b": [1, 2, 3, 4]}
    model = Mixture(Record(a=Optional(Mixture(Gaussian(), 2)), b=Optional(Poisson())), 2)
    assert observed(found(model, data).model, 4) == {"observed": {"a": 0.5, "b": 1.0}, "length": {}}


def test_the_length_is_the_mean_of_the_sequences():
    bound = found(Mixture(HiddenMarkov(Gaussian(), 2), 2), [[1.0, 2.0], [], [3.0], [0.0] * 9]).model
    assert observed(bound, 4)["length"] == {"": 3.0}


# -- kept ------------------------------------------------------------------------------------------


def test_a_kept_grid_is_taken_again_with_its_borders():
    resources = machine(1.0, 0.3, 0.5, 2.0)
    choice = made(resources)
    kept = json.loads(json.dumps(choice.record()))
    again = made(machine(*[1.0] * 4), kept=kept)
    assert again.how == "kept"
    assert (again.devices, again.row_bounds, again.bounds) == (choice.devices, choice.row_bounds, choice.bounds)
    assert made(machine(*[1.0] * 3), kept=kept).how == "auto"  # another number of ranks
    assert made(resources, total=77, kept=kept).how == "auto"  # other rows
    assert made(resources, kept=kept | {"how": "asked"}).how == "auto"
    assert made(resources, shape=(4, 1), kept=kept).how == "asked"
    divided = json.loads(json.dumps(made(machine(*[1.0] * 4), total=1).record()))
    assert divided["cut"] == "**1" and made(machine(*[1.0] * 4), total=1, kept=divided).cut == "**1"
    assert made(machine(*[1.0] * 4), Record(b=Poisson()), total=1, kept=divided).how == "auto"  # nothing to divide
    assert made(machine(*[1.0] * 4), total=1, kept=divided, cut="component_*").how == "auto"


def test_a_checkpoint_keeps_the_grid(tmp_path):
    watch = Checkpoints(tmp_path, resume=True)
    assert watch.kept(Alone()) is None
    fit_on_ranks(DATA, MODEL, Alone(), max_iter=2, tol=None, watch=watch)
    kept = Checkpoints(tmp_path, resume=True).kept(Alone())
    assert (kept["devices"], kept["ranks"], kept["how"]) == ([[0]], 1, "auto")
    assert Checkpoints(tmp_path).kept(Alone()) is None
    told = []
    watch = Checkpoints(tmp_path, resume=True)
    result = fit_on_ranks(DATA, MODEL, Alone(), max_iter=4, tol=None, watch=watch, told=told.append)
    assert result.n_iter == 4 and told[0].how == "kept"
    fit(DATA, MODEL, serial_grid(), max_iter=5, tol=None, watch=Checkpoints(tmp_path, resume=True))
    assert Checkpoints(tmp_path, resume=True).kept(Alone()) is None  # by a fit on a grid that nobody chose


# -- rows and units --------------------------------------------------------------------------------


@pytest.mark.parametrize("coords, borders", [
    ([(0, 0), None, (1, 0), None], None),
    ([(0, 0), (1, 0), None, None], [0, 13, 120]),
    ([(0, 0), (0, 1), (1, 0), (1, 1)], [0, 100, 120]),
    ([(0, 0), None, None, None], None),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["memory", "local", "csv"])
def test_rows_are_dealt_to_some_of_the_ranks(tmp_path, coords, borders, kind):
    x = np.random.default_rng(0).normal(size=120)
    w = np.arange(120.0)
    np.savetxt(tmp_path / "x.csv", x, header="x", comments="", fmt="%.17g")
    whole = load(x, Gaussian(), serial_grid(), weights=w)
    key = next(iter(whole.rows.arrays))
    shards = len({at[0] for at in coords if at})

    def dealt(grid):
        r = grid.world.rank
        part = slice(30 * r, 30 * r + 30)
        data = {"memory": x, "local": x[part], "csv": tmp_path / "x.csv"}[kind]
        own = w[part] if kind == "local" else w
        parsed = read(data, Gaussian(), grid.world, local=kind == "local", weights=own)
        twice = [deal(parsed, grid.world, coords, shards, borders, keep=k) for k in (True, True, False)]
        assert parsed.kept is None
        return twice

    for rank, twice in enumerate(run_on_threads(4, 1, dealt)):
        for loaded in twice:
            assert (loaded.total, loaded.effective) == (120, whole.effective)
            at = coords[rank]
            if at is None:
                assert loaded.rows.n == 0
                continue
            edges = borders or [120 * d // shards for d in range(shards + 1)]
            own = slice(edges[at[0]], edges[at[0] + 1])
            assert loaded.rows.first == own.start and loaded.rows.n == own.stop - own.start
            (values,) = loaded.rows.arrays.values()
            np.testing.assert_allclose(values, whole.rows.arrays[key][:, own], rtol=1e-12)
            np.testing.assert_array_equal(loaded.weights, w[own])


@pytest.mark.parametrize("bounds", [(0, 1, 5), (0, 5, 5), (0, 4, 5)])
@pytest.mark.parametrize("borders", [None, (0, 7, 60)])
def test_uneven_borders_fit_alike(bounds, borders):
    data = DATA[:60]
    expected = fit(data, MODEL, serial_grid(), max_iter=6, tol=None)
    shards = 1 if borders is None else 2

    def work(grid):
        coords = [divmod(rank, 2) for rank in range(grid.world.size)]
        loaded = deal(read(data, MODEL, grid.world), grid.world, coords, shards, borders)
        return fit_loaded(loaded, MODEL, grid, Clock(), cut="", bounds=bounds, max_iter=6, tol=None)

    for result in run_on_threads(shards, 2, work):
        assert_same(result, expected)


# -- measuring -------------------------------------------------------------------------------------


def test_alternatives_differ_in_shape_and_have_the_whole_model_on_all_ranks():
    bound = found()
    for ranks in (2, 3, 4, 7):
        resources = machine(*[1.0] * ranks)
        choice = made(resources)
        shapes = [c.shape for c in alternatives(choice, bound.model, bound.total, resources)]
        assert shapes[0] == choice.shape and len(set(shapes)) == len(shapes) and 2 <= len(shapes) <= 4
        assert (ranks, 1) in shapes
    asked = made(resources, shape=(7, 1))
    assert alternatives(asked, bound.model, bound.total, resources) == [asked]


def test_a_stopwatch_measures_a_second_after_the_first_pass(monkeypatch):
    times = iter([0.0, 5.0, 5.3, 5.7, 6.1])
    monkeypatch.setattr("mixle_mpi.execution.tune.time.perf_counter", lambda: next(times))
    watch = Stopwatch(leads=True)
    monkeypatch.setattr("mixle_mpi.execution.tune.SECONDS", 5.5)
    wishes = [watch.wishes(k) for k in range(4)]
    assert wishes == [(False, False), (False, False), (False, False), (True, False)]
    assert watch.seconds == pytest.approx(0.4)
    assert Stopwatch(leads=False).seconds == np.inf


def test_shapes_are_planned_as_the_planner_finds_them():
    model, resources = found().model, machine(1.0, 0.3, 0.5, 2.0, 1.0)
    plan = plan_grid(model, resources, n_data=40, nested=False, first=0)
    for other in plan.extra["runner_ups"]:
        shape = other["data_parallel"], other["model_parallel"]
        again = plan_shape(model, resources, n_data=40, shape=shape, cut=other["cut"], first=0)
        assert again.extra["seconds"]["total"] == pytest.approx(other["seconds"], rel=1e-12)


# -- optimize --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mixture of records", "deep"])
def test_a_model_parallel_estimator_runs_on_threads(name):
    model = trees()[name][0]
    seen = []
    expected = optimize(DATA, model, max_iter=5, tol=None)
    result = optimize(DATA, ModelParallelEstimator(model, 2), max_iter=5, tol=None, callback=seen.append)
    assert result.grid == (1, 2) and result.plan.model_parallel == 2 and len(seen) == 6
    assert_same(result, expected)
    assert optimize(DATA, ModelParallelEstimator(model, 1), max_iter=1, tol=None).grid == (1, 1)


def test_resources_that_are_given_deal_units_and_steps():
    model, devices = Mixture(MultivariateGaussian(2), 8), machine(1.0, 3.0)
    data = np.random.default_rng(5).normal(size=(20000, 2))
    result = optimize(data, ModelParallelEstimator(model, 2), max_iter=2, tol=None, resources=devices)
    first, border, last = result.plan.extra["bounds"]
    assert (first, last) == (0, 8) and border < 4
    with pytest.raises(ModelError, match="there are 2 of them, but 1 rank$"):
        optimize(data, model, resources=devices)


@pytest.mark.parametrize("speeds", [(1.0, 3.0), (1.0, 1e-6, 1.0), (4.0, 1.0, 1.0)])
def test_a_sequence_in_time_is_dealt_by_throughput(speeds):
    """Where a plan has a shard without steps, it gets one."""
    data, model = [np.random.default_rng(6).normal(size=40000)], HiddenMarkov(Gaussian(), 3)
    expected, told, shape = fit(data, model, serial_grid(), max_iter=3, tol=None), [], (len(speeds), 1)

    def work(grid):
        return fit_on_ranks(data, model, grid.world, shape=shape, ready=grid, resources=machine(*speeds),
                            max_iter=3, tol=None, told=told.append)  # fmt: skip

    results = run_on_threads(*shape, work)
    assert max(abs(a - b) for a, b in zip(results[0].history, expected.history)) < 1e-12 * 40000
    borders = told[0].row_bounds
    assert borders[-1] == 40000 and told[0].plan.extra["dealt"]["what"] == "steps"
    for result, a, b in zip(results, borders, borders[1:]):
        steps = result.counts.state_steps - 3 * result.counts.repaired
        assert steps == pytest.approx(4 * 3 * (b - a), abs=4 * 3)
    kept = json.loads(json.dumps(told[0].record()))
    again = choose(found(model, data).model, 1, Alone(), machine(*speeds), shape=shape, kept=kept)
    assert again.how == "asked" and again.row_bounds == borders


def test_sequences_are_dealt_by_steps():
    """A quarter of the rows of a plan is a quarter of the steps."""
    lengths = [40] * 10 + [2] * 30
    data = [np.arange(float(k)) for k in lengths]

    def work(grid):
        parsed = read(data, Sequence(Gaussian()), grid.world)
        return deal(parsed, grid.world, [(0, 0), (1, 0)], 2, (0, 10, 40)).rows.n

    assert run_on_threads(2, 1, work) == [3, 37]  # 120 of 460 steps


def test_shapes_that_do_not_go_together_are_refused():
    assert shape_of("auto", None, 4) is None and shape_of("2x2", None, 4) == (2, 2)
    assert shape_of("auto", 2, 6) == (3, 2) and shape_of((3, 2), 2, 6) == (3, 2)
    for grid, workers, ranks, tune, says in [
        ("auto", 4, 6, False, "do not divide 6 ranks"), ("2x3", 2, 6, False, "asks for 3 x 2"),
        ("2x2", None, 4, True, "tune chooses among grids"), ("2x2", None, 3, False, "but 3 ranks"),
    ]:  # fmt: skip
        with pytest.raises(ModelError, match=says):
            shape_of(grid, workers, ranks, tune)
    with pytest.raises(ModelError, match="no node of this model can be cut"):
        optimize([1.0, 2.0], ModelParallelEstimator(Gaussian(), 2))
