"""The accounting of a fit, `info`, and processes that do not see each other."""

from __future__ import annotations

import functools
import json
import re
import time
from dataclasses import asdict

import numpy as np
import pytest

from mixle_mpi.commands.ending import SingletonError
from mixle_mpi.commands.launch import Launch, launch
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.execution.clock import LOOP, PHASES, Clock
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.executor import Counts, Executor
from mixle_mpi.execution.result import Result
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.families.gaussian import Gaussian
from mixle_mpi.families.gaussian_process import GaussianProcess
from mixle_mpi.models.mixture import Mixture
from mixle_mpi.planning.resources import Resources
from mixle_mpi.report.accounting import Accounting, OwnRecord, account, excess
from mixle_mpi.report.model import model_lines

FIT = ["-m", "mixle_mpi.fit", "--demo", "--every", "10", "--out", "out"]
COLUMNS = {"calls", "min", "avg", "max", "share", "bytes", "messages"}
NAMED = {"read", "initialise", "compile", *LOOP, "output", "other"} - {"search"}


def table(text: str) -> dict[str, list[str]]:
    """The printed rows by phase."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("phase "))
    end = next(i for i, line in enumerate(lines) if line.startswith("total "))
    return {line.split()[0]: line.split()[1:] for line in lines[start + 1 : end + 1]}


@pytest.fixture(scope="module")
def demo_on(mpirun, tmp_path_factory):
    """`demo_on(ranks, shape)`: the `Run` of the demo on a grid of equal ranks, and what its `result.json` holds."""

    @functools.cache
    def call(ranks: int, shape: str):
        place = tmp_path_factory.mktemp(shape)
        (place / "equal.toml").write_text(f"[[nodes]]\ncores = {ranks}\n")  # whatever is measured, rows are even
        run = mpirun(ranks, [*FIT, "--grid", shape, "--cut", "", "--machine", "equal.toml"], cwd=place, timeout=90)
        assert run.code == 0, run.err
        return run, json.loads((place / "out/result.json").read_text())

    return call


@pytest.mark.parametrize("ranks, shape", [(1, "1x1"), (3, "3x1"), (4, "2x2")])
def test_the_rows_of_the_accounting_add_up_to_the_wall_time(demo_on, ranks, shape):
    run, found = demo_on(ranks, shape)
    wall = run.seconds
    phases = found["accounting"]["phases"]
    assert set(phases) >= NAMED and set(phases) <= set(PHASES)
    assert all(set(row) == COLUMNS for row in phases.values())
    total = sum(row["avg"] for row in phases.values())
    assert total == pytest.approx(found["accounting"]["wall"], rel=0.01)
    assert sum(row["share"] for row in phases.values()) == pytest.approx(1.0, abs=0.01)
    assert 0.1 * wall < found["accounting"]["wall"] < wall
    assert all(0 <= row["min"] <= row["avg"] * (1 + 1e-9) <= row["max"] * (1 + 2e-9) for row in phases.values())
    assert phases["score"]["calls"] == found["n_iter"] + 1
    assert found["seconds"]["score"] == phases["score"]["max"]
    printed = table(run.out)
    assert set(printed) == {*phases, "total"}
    assert sum(float(cells[2]) for name, cells in printed.items() if name != "total") == pytest.approx(
        float(printed["total"][1]), rel=0.01, abs=1e-3
    )
    assert printed["total"][-3] == "100.0"
    assert run.out.count("average load imbalance") == (ranks > 1)
    figures = r"performance: (\S+) rows/s, (\S+) rows/\(core s\), (\S+) iterations/hour; (\S+) core-hours"
    performance = re.search(figures, run.out)
    rate, own, hourly, _ = map(float, performance.groups())
    assert rate == pytest.approx(ranks * own, rel=1e-2)
    assert hourly == pytest.approx(rate / 344 * 3600, rel=1e-2)


def test_what_is_sent_is_in_the_table(demo_on):
    """On 2 x 2, bytes of a pass follow from the layout; more in tests/execution/test_counting.py."""
    _, found = demo_on(4, "2x2")
    passes, phases, payload = found["n_iter"] + 1, found["accounting"]["phases"], found["counts"]["payload"]
    assert phases["model_axis"]["bytes"] == sum(payload["model"]["bytes"]) and phases["model_axis"]["bytes"] > 0
    assert phases["model_axis"]["bytes"] >= passes * 2 * 2 * 344 * 8
    assert phases["data_axis"]["bytes"] == sum(payload["data"]["bytes"])
    assert payload["data"]["messages"] == [2 * passes + found["n_iter"]] * 4  # dealt and summed; gathered
    for axis, sums in found["predicted"]["payload"].items():
        assert sums == found["measured"]["payload"][axis]
        assert sums == {what: sum(payload[axis][what]) for what in ("messages", "bytes")}
    assert phases["wait"]["bytes"] == sum(payload["world"]["bytes"]) == 4 * passes * 48
    assert all(sum(payload[axis]["objects"]) == 0 for axis in payload)  # P03: nothing is pickled in the loop
    assert found["counts"]["rows"] == [passes * 172] * 4


@pytest.mark.timed
def test_a_slow_rank_shows_as_waiting_of_the_others(monkeypatch):
    """One of four data shards sleeps in each pass: the others wait, and its own wait is short. No barrier is needed."""
    x, rest, original = np.random.default_rng(0).normal(size=400), 0.05, Executor.e_step

    def slow(self):
        found = original(self)
        if self.grid.data.size == 4 and self.grid.data.rank == 2:  # and not in the rehearsal
            time.sleep(rest)
            found.seconds["score"] += rest
        return found

    def work(grid):
        clock = Clock()
        result = fit(x, Mixture(Gaussian(), 2), grid, max_iter=9, tol=None, clock=clock)
        return account(grid.world, clock, result, (0, grid.coords), 1)

    monkeypatch.setattr(Executor, "e_step", slow)
    accounting = run_on_threads(4, 1, work)[0]
    waits = [r.seconds["wait"] for r in accounting.records]
    assert min(waits[0], waits[1], waits[3]) > 8 * rest > 5 * waits[2]
    found = accounting.imbalance()
    assert found["data"] > 1.0 and found["model"] < 1e-9 and found["waiting"] > 0.3
    line = next(text for text in accounting.lines(False) if text.startswith("average load imbalance"))
    assert "% of the iterations' time spent waiting" in line and "--grid" in line and "data shards differ most" in line


def made(works: list[float], waits: list[float], grid: tuple[int, int], loop: float = 1.0, **counts) -> Accounting:
    """An accounting of ranks with these seconds of work and of waiting, and what all of them counted."""
    records = [
        OwnRecord(divmod(r, grid[1]), w + v + loop, {"score": w, "wait": v, "data_axis": loop - v},
                  {"score": 10}, {}, {}, asdict(Counts(passes=10, rows=1, **counts)), {}, 0)
        for r, (w, v) in enumerate(zip(works, waits))
    ]  # fmt: skip
    result = Result(Gaussian(), 0.0, [0.0], 9, True, "converged", 1000, 1000.0, 1, grid, None, counts=Counts(passes=10))
    return Accounting(records, result, 1)


@pytest.mark.parametrize(
    "accounting, crowded, says",
    [
        (made([5, 5, 5, 5], [0.01] * 4, (4, 1)), False, "little to gain"),
        (made([5, 9, 5, 9], [1, 0, 1, 0], (2, 2)), False, "try --cut at another node, or --grid 4x1"),
        (made([5, 5, 9, 9], [1, 1, 0, 0], (2, 2)), False, "or try --grid 1x4"),
        (made([5, 5, 9], [1, 1, 0], (3, 1)), False, "or try another --grid"),
        (made([5, 5, 5, 5], [1] * 4, (4, 1)), False, "fewer data shards"),
        (made([5, 5, 9, 9], [1, 1, 0, 0], (2, 2)), True, "more threads than cores"),
        (made([1e-3] * 2, [2e-3] * 2, (2, 1), 3e-3), False, "less than a millisecond"),
    ],
)
def test_the_advice_names_the_option_to_change(accounting, crowded, says):
    (line,) = (text for text in accounting.lines(crowded) if text.startswith("average"))
    assert says in line


def test_steps_that_were_repaired_are_told():
    def line(**counts):
        return [text for text in made([1, 1], [0, 0], (2, 1), **counts).lines(False) if "in time" in text]

    assert line() == []
    (text,) = line(told=40, repaired=70)
    assert "14.0 steps again, at most 7.0 on a rank" in text and "composed" not in text
    assert "composed" in line(told=40, composed=20, repaired=70)[0]


def test_numeric_m_steps_are_told_beside_what_plans_take():
    def line(**counts):
        return [text for text in made([1, 1], [0, 0], (2, 1), **counts).lines(False) if "numeric" in text]

    assert line() == []
    assert "took 17.5 evaluations for each parameter set; a plan without --searches takes 20" in line(
        searches=70, searched=4)[0]  # fmt: skip


def test_a_process_is_shown_with_its_kernel():
    kernel = "rbf(length_scale=[0.5, 2.25]) * matern32(length_scale=1e-7) + white(variance=0.123456789)"
    model = GaussianProcess([[0.0, 1.0], [1.0, 2.0]], kernel.replace("rbf(", "rbf(variance=3, "), 1.23456789)
    short = "rbf(variance=3.0, length_scale=[0.5, 2.25]) * matern32(length_scale=1e-07) + white(variance=0.12346)"
    assert model_lines(model) == ["gaussian_process mean 1.2346", f"  kernel {short}"]


def test_imbalance_is_the_busiest_over_the_average():
    assert excess([1.0, 1.0, 2.0]) == pytest.approx(0.5) and excess([0.0]) == 0.0
    found = made([5, 9, 5, 9], [0] * 4, (2, 2)).imbalance()
    assert found["ranks"] == pytest.approx(9 / 7 - 1) and found["model"] == pytest.approx(9 / 7 - 1)
    assert found["data"] == 0.0
    assert {p for p in LOOP} <= set(PHASES)


def test_the_environment_is_kept_and_printed(mpirun, python, tmp_path):
    run = mpirun(2, [*FIT, "--quiet", "--max-iter", "1", "--tol", "none"], cwd=tmp_path)
    assert run.code == 0, run.err
    kept = json.loads((tmp_path / "out/result.json").read_text())["environment"]
    shown = mpirun(2, ["-m", "mixle_mpi.info", "--json"], cwd=tmp_path)
    assert shown.code == 0 and json.loads(shown.out) == kept
    assert kept["ranks"] == 2 and sum(kept["hosts"].values()) == 2 and kept["mpi"]["library"] == kept["versions"]["mpi"]
    assert kept["mpi"]["thread_level"] in ("single", "funneled", "serialized", "multiple")
    assert isinstance(kept["mpi"]["ulfm"], bool) and kept["blas"] and kept["memory"]["total"] > 1 << 28
    alone = python("-m", "mixle_mpi.info", environment={"SLURM_JOB_ID": "77", "SLURM_MEM_PER_NODE": "4000"})
    assert alone.code == 0
    assert [line.split()[0] for line in alone.out.splitlines()] == [
        "mixle_mpi", "versions", "BLAS", "MPI", "CPU", "ranks", "affinity", "memory", "scheduler",
    ]  # fmt: skip
    assert "not started" in alone.out and "SLURM_JOB_ID 77" in alone.out and "SLURM_MEM_PER_NODE 4000" in alone.out
    assert alone.out.splitlines()[0].startswith("mixle_mpi  0.")


def test_the_measured_machine_is_printed_and_written(mpirun, python, tmp_path):
    kept = {"MIXLE_MPI_CACHE": str(tmp_path / "cache")}
    run = mpirun(2, ["-m", "mixle_mpi.info", "--machine", "m.toml"], cwd=tmp_path, environment=kept, timeout=90)
    assert run.code == 0, run.err
    names = [line[:10].rstrip() for line in run.out.splitlines()]
    assert names[9:] == ["measured", "computing", "throughput", "within", "between", "rank has"]
    assert "GFLOP/s" in run.out and "us a message" in run.out and "GiB of memory" in run.out
    machine = Resources.from_file(tmp_path / "m.toml")
    assert len(machine.devices) == 2 and machine.flops_per_second > 1e7 and machine.bandwidth_within > 1e4
    assert machine.devices[0].memory_bytes > 2**24 and machine.latency_between is None
    alone = python("-m", "mixle_mpi.info", "--calibrate", "--json", cwd=tmp_path, environment=kept)
    assert alone.code == 0, alone.err
    found = json.loads(alone.out)["measured"]
    assert found["throughputs"] == [1.0] and found["latency_within"] is None and not found["kept"]
    assert len(list((tmp_path / "cache").iterdir())) == 2
    lost = python("-m", "mixle_mpi.info", "--machine", "no/where.toml", cwd=tmp_path, environment=kept)
    assert lost.code == 74 and "no/where.toml: No such file" in lost.err and "Traceback" not in lost.err


def test_info_does_not_load_mpi_alone(python):
    script = """
import sys
from mixle_mpi.commands.info import main
assert main([]) == 0
assert "mpi4py.MPI" not in sys.modules
"""
    assert python("-c", script).code == 0


@pytest.mark.parametrize("command", ["info", "show"])
def test_help_of_the_new_commands_imports_nothing_heavy(python, command):
    """P15."""
    run = python("-X", "importtime", "-m", f"mixle_mpi.{command}", "--help")
    assert run.code == 0 and "usage:" in run.out
    imported = {line.split("|")[-1].strip().split(".")[0] for line in run.err.splitlines()}
    assert not imported & {"numpy", "scipy", "pandas", "matplotlib", "pyarrow", "numba", "mpi4py"}


# -- singletons -----------------------------------------------------------------------------------

OPENMPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}
MPICH = {"PMI_SIZE": "4", "PMI_RANK": "0"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
SCRIPT = {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}


def foreign() -> dict:
    """The variables of the launcher whose MPI is not this environment's: MPI then starts as a singleton."""
    from mpi4py import MPI

    return MPICH if MPI.get_vendor()[0] == "Open MPI" else OPENMPI


@pytest.mark.parametrize("variables", [STEP, SCRIPT], ids=["step", "script"])
def test_singletons_of_slurm_are_refused_with_both_numbers(python, tmp_path, variables):
    run = python(*FIT, cwd=tmp_path, environment=variables)
    assert run.code == 2
    (line,) = (text for text in run.err.splitlines() if text.startswith("mixle_mpi.fit: error:"))
    assert "the launcher started 4 ranks, but MPI counts 1" in line and "--allow-singleton" in line
    assert not (tmp_path / "out").exists()


def test_singletons_of_a_foreign_launcher_are_refused_once(python, tmp_path):
    first = python(*FIT, cwd=tmp_path, environment=foreign())
    assert first.code == 2 and "started 4 ranks, but MPI counts 1" in first.err
    (name,) = (n for n in foreign() if n.endswith("RANK"))
    other = python(*FIT, cwd=tmp_path, environment=foreign() | {name: "2"})
    assert other.code == 2 and "mixle_mpi.fit: error" not in other.err


def test_a_singleton_may_be_allowed(python, tmp_path):
    run = python(*FIT, "--quiet", "--allow-singleton", cwd=tmp_path, environment=STEP)
    assert run.code == 0, run.err
    assert json.loads((tmp_path / "out/result.json").read_text())["grid"] == [1, 1]
    shown = python("-m", "mixle_mpi.show", "out", cwd=tmp_path, environment=SCRIPT)
    assert shown.code == 0 and "mixture of 3" in shown.out  # it needs no other process


def test_launchers_within_a_slurm_job():
    assert launch(SCRIPT) == Launch(0, 4)
    assert launch(STEP | {"SLURM_PROCID": "3"}) == Launch(3, 4)
    assert launch(SCRIPT | {"SLURM_NTASKS": "1"}) is None
    # mpirun in a batch script: the job's variables are inherited, and say nothing of the ranks
    assert launch(SCRIPT | {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}) == Launch(1, 2)
    assert launch(SCRIPT | {"PMIX_RANK": "1"}) == Launch(1, None)
    # an interactive step of one task within a job of four
    assert launch(STEP | {"SLURM_STEP_NUM_TASKS": "1"}) is None
    assert issubclass(SingletonError, ModelError)


# -- show -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    from mixle_mpi.commands.fit import main

    directory = tmp_path_factory.mktemp("fitted") / "demo"
    assert main(["--demo", "--quiet", "--out", str(directory)]) == 0
    return directory


def show(python, *words):
    return python("-m", "mixle_mpi.show", *words)


def test_show_tells_the_model_in_words(python, fitted):
    run = show(python, fitted)
    assert run.code == 0, run.err
    found = json.loads((fitted / "result.json").read_text())
    assert "47 free parameters" in run.out and f"BIC {found['bic']:.3f}" in run.out and "converged after 15" in run.out
    weights = [float(w) for w in re.findall(r"component_\d weight (\S+)", run.out)]
    assert len(weights) == 3 and weights == sorted(weights, reverse=True)
    assert "island: Dream 0.371, Torgersen 0.340, Biscoe 0.289" in run.out
    assert "bill_length_mm: numbers from 32.1 to 59.6, encoded (x - 44.5) / 8" in run.out
    assert "sex: 2 categories: female, male" in run.out


def test_show_is_cut_on_request_and_says_so(python, fitted):
    run = show(python, fitted, "--top", "1")
    assert run.out.count("weight 0.") == 2 and "2 more components, weight 0.5559 together" in run.out
    assert "2 more" in run.out
    assert show(python, fitted, "--top", "0").code == 2


def test_show_as_json_has_everything(python, fitted):
    import mixle_mpi

    found = json.loads(show(python, fitted, "--json").out)
    model = mixle_mpi.load(fitted)
    assert found["num_parameters"] == model.num_parameters == 47
    assert found["model"]["weights"] == model.weights.tolist() and found["result"]["status"] == "converged"


def test_show_without_a_result_and_without_a_model(python, fitted, tmp_path):
    import mixle_mpi

    mixle_mpi.load(fitted).save(tmp_path / "only")
    run = show(python, tmp_path / "only")
    assert run.code == 0 and "BIC" not in run.out
    (tmp_path / "only/result.json").write_text("{")
    assert show(python, tmp_path / "only").code == 2
    assert show(python, tmp_path / "nothing").code == 74
