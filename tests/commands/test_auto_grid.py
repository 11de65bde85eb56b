"""`fit` on a planned grid: fewer ranks than there are, in the plan's order; measured grids; resumed ones; memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mixle_mpi.commands.fit import main

PROGRAM = Path(__file__).with_name("fit_on_machine.py")
# ranks 1 and 2 are a thousand times slower: only 0 and 3 are worth having, and 3 is the faster
UNEQUAL = "".join(f"[[nodes]]\ncount = 1\ncores = 1\nthroughput = {t}\n" for t in (1.0, 0.001, 0.001, 2.0))
EQUAL = "[[nodes]]\ncount = 1\ncores = 2\nthroughput = 1.0\n"
TINY = '[[nodes]]\ncount = 1\ncores = 2\nthroughput = 1.0\nmemory = "20kB"\n'
SINGULAR = '[data]\npath = "x.csv"\n[model]\ntype = "multivariate_gaussian"\ndim = 2\nmin_variance = 0\n'
RUN = """[data]
path = "x.csv"
[model]
type = "mixture"
components = 4
component = { type = "record", fields = { a = { type = "gaussian" }, b = { type = "gaussian" } } }
[fit]
max_iter = 3
tol = "none"
"""

pytestmark = pytest.mark.launched


def result(path: Path) -> dict:
    return json.loads((path / "result.json").read_text())


@pytest.fixture
def fit_on(mpirun, tmp_path):
    """`fit_on(ranks, machine, *words)` runs `fit` with these words on ranks of a machine."""

    def call(ranks: int, machine: str, *words, failing: int = -1):
        (tmp_path / "machine.toml").write_text(machine)
        return mpirun(ranks, [PROGRAM, "machine.toml", failing, "--", *words], timeout=90, cwd=tmp_path)

    return call


def test_idle_ranks_wait_and_the_fit_is_the_same(fit_on, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--demo", "--max-iter", "12", "--tol", "none"]
    run = fit_on(4, UNEQUAL, *words, "--out", "part")
    assert run.code == 0, run.err
    assert "grid 2 x 1 of 4 ranks, 2 idle: each of 2 workers holds the whole model" in run.out
    assert main([*words, "--quiet", "--out", "alone"]) == 0
    part, alone = result(tmp_path / "part"), result(tmp_path / "alone")
    assert max(abs(a - b) for a, b in zip(part["history"], alone["history"])) < 1e-12 * 6300
    plan = part["plan"]
    assert (part["grid"], part["cut"], plan["idle"], plan["ranks"]) == ([2, 1], None, 2, 4)
    first, border, last = plan["rows"]
    assert (first, last) == (0, 344) and 100 < border < 130  # a third, less its M-step
    assert part["counts"]["rows"] == [border * 13, (344 - border) * 13]
    assert part["accounting"]["performance"]["core_hours"] > 3 * part["accounting"]["wall"] / 3600
    spent = [float((tmp_path / f"cpu-{rank}").read_text()) for rank in range(4)]
    assert max(spent[1:3]) < 0.3 * min(spent[0], spent[3])
    assert plan["seconds"]["total"] > 0 and plan["bytes"]["total"] > 0 and "idle" in plan["rationale"]


def test_what_the_grid_agrees_on_ends_the_idle_ranks_too(fit_on, tmp_path):
    rows = "".join(f"{k},{2 * k}\n" for k in range(100))
    (tmp_path / "x.csv").write_text("a,b\n" + rows)
    (tmp_path / "r.toml").write_text(SINGULAR)
    run = fit_on(4, UNEQUAL, "r.toml")
    assert run.code == 4, run.err
    assert run.err.count("mixle_mpi.fit: error: ") == 1 and "Traceback" not in run.err
    found = result(tmp_path / "runs" / "r")
    assert (found["status"], found["grid"], found["plan"]["idle"]) == ("failed", [2, 1], 2)


def test_a_crash_ends_the_idle_ranks_too(fit_on):
    run = fit_on(4, UNEQUAL, "--demo", failing=3)
    assert run.code == 1 and run.seconds < 60
    assert run.err.count("Traceback (most recent call last)") == 1 and "rank 3 of 4" in run.err


def test_measured_grids_are_told_and_the_kept_one_is_resumed(fit_on, tmp_path):
    words = ["--demo", "--tol", "none", "--out", "out"]
    run = fit_on(2, EQUAL, *words, "--tune", "--max-iter", "3")
    assert run.code == 0, run.err
    plan = result(tmp_path / "out")["plan"]
    assert plan["how"] == "tuned" and 2 <= len(plan["tried"]) <= 4
    fastest = min(plan["tried"], key=lambda of: of["measured"])
    assert plan["grid"] == fastest["grid"] and all(of["predicted"] > 0 for of in plan["tried"])
    assert "grid tried" in run.out and f"the fastest of {len(plan['tried'])} that were measured" in run.out
    again = fit_on(2, EQUAL, *words, "--tune", "--resume", "--max-iter", "6")
    assert again.code == 0, again.err
    assert "kept from the checkpoint" in again.out and "grid tried" not in again.out
    kept = result(tmp_path / "out")
    assert (kept["plan"]["how"], kept["grid"], kept["n_iter"]) == ("kept", fastest["grid"], 6)
    other = fit_on(3, EQUAL.replace("cores = 2", "cores = 3"), *words, "--resume", "--max-iter", "8")
    assert other.code == 0, other.err
    assert "kept" not in other.out and result(tmp_path / "out")["plan"]["how"] == "auto"


def test_a_model_too_big_is_exit_code_3_with_both_numbers(fit_on, tmp_path):
    run = fit_on(2, TINY, "--demo")
    assert run.code == 3, run.err
    assert "Does not fit" in run.err and run.err.count("error: ") == 1
    assert "10000 bytes" in run.err and "each process takes" in run.err
    assert not (tmp_path / "runs/demo/model.npz").exists()
    asked = fit_on(2, TINY, "--demo", "--grid", "2x1", "--overwrite")
    assert asked.code == 3 and "10000 bytes" in asked.err


SCRIPT = """
import warnings
import numpy as np
from mixle_mpi import DeviceSpec, Gaussian, Mixture, ModelError, ModelParallelEstimator, Resources, optimize
from mixle_mpi.execution import em
from mixle_mpi.execution.grid import mpi_world

warnings.simplefilter("ignore")
world = mpi_world()
x = np.random.default_rng(0).normal(size=300) + 4.0 * (np.arange(300) % 3)
model, same = Mixture(Gaussian(), 4), {"max_iter": 5, "tol": None}
alone = optimize(x, model, **same)
speeds = 1.0, 0.001, 2.0, 0.001
em.resources_of = lambda world: Resources(tuple(DeviceSpec(f"r{k}", throughput=t) for k, t in enumerate(speeds)))
found = optimize(x, model, backend="mpi", **same)
told = world.allgather((found.grid, found.history, found.model.state.theta.tobytes(), found.plan.rationale, found.bic))
assert all(t == told[0] for t in told) and found.grid == (2, 1), told
assert np.max(np.abs(np.array(found.history) - alone.history)) < 1e-12 * 1000
rows = world.allgather(found.counts.rows)
assert rows[1] == rows[3] == 0 and sum(rows) == 300 * 6, rows
found = optimize(x, ModelParallelEstimator(model, 2), backend="mpi", **same)
assert found.grid == (2, 2) and found.plan.model_parallel == 2 and found.plan.data_parallel == 2
assert np.max(np.abs(np.array(found.history) - alone.history)) < 1e-12 * 1000
found = optimize(x, model, backend="mpi", tune=True, **same)
assert np.max(np.abs(np.array(found.history) - alone.history)) < 1e-12 * 1000
for estimator, options, says in [
    (ModelParallelEstimator(model, 3), {}, "do not divide 4 ranks"),
    (model, {"init": "nonsense"}, "nonsense"),
    (model, {"weights": -np.ones(300)}, "row 0"),
]:
    try:
        optimize(x, estimator, backend="mpi", **options)
    except ValueError as error:
        assert says in str(error), error
    else:
        raise AssertionError(says)
print("SAME")
"""


def test_optimize_returns_the_same_on_all_ranks(mpirun, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    run = mpirun(4, ["script.py"], timeout=90, cwd=tmp_path)
    assert run.code == 0 and run.out.count("SAME") == 4, run.err


def test_a_machine_file_deals_the_rows(mpirun, tmp_path):
    nodes = "".join(f"[[nodes]]\nthroughput = {t}\n" for t in (1.0, 3.0))
    (tmp_path / "machine.toml").write_text(f"call_seconds = 1e-12\n{nodes}[network]\nlatency_between = 1e-9\n")
    (tmp_path / "x.csv").write_text("a,b\n" + "".join(f"{k % 7},{k % 11}\n" for k in range(40000)))
    (tmp_path / "r.toml").write_text(RUN)
    words = ["-m", "mixle_mpi.fit", "r.toml", "--machine", "machine.toml", "--grid", "2x1"]
    run = mpirun(2, words, timeout=90, cwd=tmp_path)
    assert run.code == 0, run.err
    assert "throughputs as given, not as measured: rank 1 is given as 3 times as fast as rank 0" in run.out
    plan = result(tmp_path / "runs" / "r")["plan"]
    first, border, last = plan["rows"]
    assert f"data shards have {border} / {40000 - border} rows" in run.out
    assert (first, last) == (0, 40000) and 9000 < border <= 10000  # a quarter, less its M-step
    assert result(tmp_path / "runs" / "r")["counts"]["rows"] == [4 * border, 4 * (40000 - border)]
