"""The command `fit`, in this process and alone: output, exit codes, overwriting."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mixle_mpi import Gaussian, Mixture, Record, load, optimize
from mixle_mpi.commands import score
from mixle_mpi.commands.fit import main
from mixle_mpi.execution.executor import Executor
from mixle_mpi.report.lines import start_lines, warn_crowded
from mixle_mpi.report.model import column_lines, label_text, model_lines

FIELDS = {
    "schema", "status", "converged", "log_likelihood", "history", "n_iter", "n_rows", "n_parameters", "bic", "aic",
    "grid", "cut", "seed", "exit_code", "seconds", "bytes", "versions",
}  # fmt: skip
FILES = {"run.toml", "metrics.jsonl", "model.npz", "model.json", "result.json", "state.npz"}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """No launcher, and a working directory of the test's own."""
    for name in ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def result(path) -> dict:
    return json.loads((path / "result.json").read_text())


def test_the_demo_finds_the_species(tmp_path, capsys):
    assert main(["--demo"]) == 0
    out = tmp_path / "runs" / "demo"
    assert {p.name for p in out.iterdir()} == FILES
    found = result(out)
    assert set(found) >= FIELDS
    assert found["status"] == "converged" and found["converged"] and found["exit_code"] == 0
    assert (found["n_rows"], found["n_parameters"], found["grid"], found["cut"]) == (344, 47, [1, 1], None)
    assert found["log_likelihood"] == found["history"][-1] == pytest.approx(-6225.688768, abs=1e-3)
    assert len(found["history"]) == found["n_iter"] + 1
    assert found["bic"] == pytest.approx(47 * np.log(344) - 2 * found["log_likelihood"], abs=1e-9)
    assert found["seconds"]["total"] >= sum(s for p, s in found["seconds"].items() if p not in ("total", "other"))
    model = load(out)
    shares = [dict(zip(c.fields["species"].levels, c.fields["species"].values["probabilities"]))
              for c in model.components]  # fmt: skip
    assert {max(s, key=s.get) for s in shares} == {"Adelie", "Chinstrap", "Gentoo"}
    assert all(max(s.values()) > 0.95 for s in shares)
    printed = capsys.readouterr()
    assert "converged after" in printed.out and "runs/demo" in printed.out and printed.err == ""


def test_every_iteration_has_a_line_in_metrics(tmp_path):
    assert main(["--demo", "--quiet"]) == 0
    lines = [json.loads(s) for s in (tmp_path / "runs/demo/metrics.jsonl").read_text().splitlines()]
    found = result(tmp_path / "runs/demo")
    assert [line["iteration"] for line in lines] == list(range(found["n_iter"] + 1))
    assert [line["log_likelihood"] for line in lines] == found["history"]
    assert lines[0]["change"] is None
    for line in lines[1:]:
        step = found["history"][line["iteration"]] - found["history"][line["iteration"] - 1]
        assert line["change"] == pytest.approx(step / 344, rel=1e-9)


def test_the_saved_run_file_repeats_the_run(tmp_path):
    assert main(["--demo", "--quiet", "--tol", "1e-3", "--seed", "4", "-o", "model.components=2", "--out", "a"]) == 0
    assert main([str(tmp_path / "a/run.toml"), "--out", "b"]) == 0
    a, b = result(tmp_path / "a"), result(tmp_path / "b")
    assert a["history"] == b["history"] and a["seed"] == b["seed"] == 4
    assert (tmp_path / "a/model.npz").read_bytes() == (tmp_path / "b/model.npz").read_bytes()


def test_print_config_prints_the_saved_run_file_and_fits_nothing(tmp_path, capsys):
    assert main(["--demo", "--quiet", "--max-iter", "3", "--tol", "none", "--out", "a"]) == 0
    capsys.readouterr()
    assert main(["--demo", "--quiet", "--max-iter", "3", "--tol", "none", "--out", "a", "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "a/run.toml").read_text()
    (tmp_path / "again.toml").write_text(printed)
    assert main(["again.toml", "--print-config"]) == 0
    assert capsys.readouterr().out == printed


def test_progress_comes_every_kth_iteration(capsys):
    assert main(["--demo", "--every", "4", "--max-iter", "9", "--tol", "none"]) == 0
    numbers = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line[:9].strip().isdigit()]
    assert numbers == ["0", "4", "8"]


def test_quiet_prints_warnings_only(capsys):
    assert main(["--demo", "--quiet", "--max-iter", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "mixle_mpi.fit: warning: not converged after 2 iterations; raise max_iter or tol\n"


def test_exit_code_5_only_when_convergence_is_required(tmp_path, capsys):
    assert main(["--demo", "--quiet", "--max-iter", "2", "--require-convergence"]) == 5
    found = result(tmp_path / "runs/demo")
    assert (found["status"], found["converged"], found["exit_code"]) == ("max_iter", False, 5)
    assert main(["--demo", "--quiet", "--require-convergence", "--overwrite"]) == 0


def test_a_numerical_failure_is_recorded(tmp_path, capsys):
    (tmp_path / "x.csv").write_text("a,b\n" + "".join(f"{i},{2 * i}\n" for i in range(20)))
    (tmp_path / "r.toml").write_text(
        '[data]\npath = "x.csv"\n[model]\ntype = "multivariate_gaussian"\ndim = 2\nmin_variance = 0\n'
    )
    assert main(["r.toml"]) == 4
    found = result(tmp_path / "runs/r")
    assert (found["status"], found["exit_code"], found["converged"]) == ("failed", 4, False)
    assert found["message"] in capsys.readouterr().err
    assert set(found) >= FIELDS and "model.json" not in {p.name for p in (tmp_path / "runs/r").iterdir()}


@pytest.mark.parametrize(
    "argv, code, says",
    [
        ([], 2, "a run file is needed, or --demo"),
        (["--demo", "--bogus"], 2, "there is no option --bogus"),
        (["--demo", "--max-itre=3"], 2, "did you mean '--max-iter'?"),
        (["--demo", "more", "evenmore"], 2, "'evenmore' is one argument too many"),
        (["--demo", "-o", "fit.max_itr=3"], 2, "did you mean 'max_iter'?"),
        (["--demo", "-o", "fit.max_iter"], 2, "write -o key=value"),
        (["--demo", "--tol", "small"], 2, "--tol small: fit.tol = 'small'"),
        (["--demo", "--grid", "2x1"], 2, "2 x 1 = 2, but 1 ranks; start 2 ranks (mpirun -n 2) or choose --grid 1x1"),
        (["--demo", "--cut", "nowhere"], 2, "cut 'nowhere': no node there"),
        (["--demo", "-o", "fit.starts=0"], 2, "starts"),
        (["--demo", "--data", "x.feather"], 2, "files of this kind are not read"),
        (["--demo", "--data", "nothere.csv"], 74, "nothere.csv: No such file or directory"),
        (["nothere.toml"], 74, "nothere.toml: No such file or directory"),
        (["--demo", "-o", "model.component.fields.colour={type='gaussian'}"], 2, "no column 'colour'"),
        (["--demo", "-o", "model.component.fields.sex={type='categorical'}"], 2, "row 3"),
    ],
)
def test_refusals_are_one_line_and_a_code(argv, code, says, capsys):
    assert main(argv) == code
    printed = capsys.readouterr()
    assert printed.out == "" or argv[:1] == ["--demo"]
    assert says in printed.err
    assert printed.err.startswith("mixle_mpi.fit: error: ") and printed.err.count("\n") == 1


def test_an_unforeseen_error_is_a_traceback_and_code_1(monkeypatch, capsys):
    def boom(self):
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(Executor, "e_step", boom)
    assert main(["--demo", "--quiet"]) == 1
    err = capsys.readouterr().err
    assert err.count("Traceback") == 1 and "ZeroDivisionError: boom" in err and "failed:" in err


def contents(directory) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file()}


def test_a_result_is_not_overwritten_by_mistake(tmp_path, capsys):
    assert main(["--demo", "--quiet", "--max-iter", "3", "--tol", "none"]) == 0
    before = contents(tmp_path / "runs/demo")
    assert main(["--demo"]) == 2
    assert "holds a result (model.npz, model.json, result.json); --overwrite" in capsys.readouterr().err
    assert contents(tmp_path / "runs/demo") == before
    assert main(["--demo", "--quiet", "--overwrite"]) == 0
    assert set(contents(tmp_path / "runs/demo")) == FILES and contents(tmp_path / "runs/demo") != before
    assert not (tmp_path / "runs/demo/unfinished").exists()


def test_a_failed_run_leaves_the_old_result(tmp_path, monkeypatch):
    assert main(["--demo", "--quiet", "--max-iter", "3", "--tol", "none"]) == 0
    before = contents(tmp_path / "runs/demo")
    monkeypatch.setattr(Executor, "maximize", lambda self: 1 / 0)
    assert main(["--demo", "--quiet", "--overwrite"]) == 1
    assert contents(tmp_path / "runs/demo") == before
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert main(["--demo", "--quiet", "--overwrite"]) == 0
    assert not (tmp_path / "runs/demo/unfinished").exists()


def test_an_output_directory_that_cannot_be_made_is_code_74(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["--demo", "--out", "file/below"]) == 74
    assert "file/below" in capsys.readouterr().err


def processes(hosts: list[str], affinity: list[int], cores: list[int], threads: list[int]) -> dict:
    """The part of an environment that tells where the ranks are."""
    return {
        "versions": {"mpi": "Open MPI 5.0"}, "ranks": len(hosts), "hosts": {h: hosts.count(h) for h in hosts},
        "rank_hosts": hosts, "affinity": affinity, "cores": cores, "threads": threads,
    }  # fmt: skip


def test_the_start_line_tells_ranks_affinity_and_threads():
    line = start_lines(processes(["a", "a", "b"], [1, 1, 2], [8, 8, 8], [1, 1, 4]))[0]
    assert "3 ranks, Open MPI 5.0" in line
    assert "2 nodes; ranks per node 1 to 2, affinity 1 to 2 of 8 cores, threads per rank 1 to 4" in line


def test_more_threads_than_cores_are_warned_of():
    with pytest.warns(UserWarning, match=r"a: 6 threads .* on 4 cores"):
        warn_crowded(processes(["a", "a", "b"], [2, 2, 2], [4, 4, 8], [3, 3, 1]))


def test_the_printed_model_is_cut():
    from mixle_mpi import Categorical

    levels = [f"l{i:02d}" for i in range(40)]
    one = Record(x=Gaussian(1.0, 2.0), y=Categorical(levels, [1 / 40] * 40))
    lines = model_lines(Mixture([one] * 30, weights=[1 / 30] * 30))
    assert lines[0] == "mixture of 30" and lines[-1] == "  ... 18 more components, weight 0.6000 together"
    assert lines[2] == "    x: gaussian mean 1, variance 2"
    assert lines[3].startswith("    y: l00 0.025") and lines[3].endswith("32 more")


def test_several_files_a_weight_column_and_starts(tmp_path, capsys):
    """A list of files, the same as a directory and as one array; the best of three starts."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=90) + 4 * rng.integers(0, 2, 90), rng.integers(0, 3, 90)
    for k in range(3):
        part = slice(30 * k, 30 * k + 30)
        lines = ["w,x", *(f"{a},{b!r}" for a, b in zip(w[part].tolist(), x[part].tolist()))]
        (tmp_path / f"part{k}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "run.toml").write_text(
        '[data]\npath = ["part0.csv", "part1.csv", "part2.csv"]\nweight = "w"\n'
        '[model]\ntype = "mixture"\ncomponents = 2\n[model.component]\ntype = "gaussian"\n[fit]\nstarts = 3\n'
    )
    run = str(tmp_path / "run.toml")
    assert main([run, "--out", str(tmp_path / "list"), "--quiet"]) == 0
    assert main([run, "--out", str(tmp_path / "pattern"), "--quiet", "--data", str(tmp_path / "part?.csv")]) == 0
    expected = optimize(x, Mixture(Gaussian(), 2), weights=w, starts=3)
    for name in ("list", "pattern"):
        result = json.loads((tmp_path / name / "result.json").read_text())
        assert result["log_likelihood"] == pytest.approx(expected.log_likelihood, rel=1e-12)
        assert result["effective_rows"] == w.sum()
    capsys.readouterr()
    assert main([run, "--out", str(tmp_path / "no"), "-o", "data.path=[1]"]) == 2
    assert "data.path = [1] is not a text in quotes, or a list of them" in capsys.readouterr().err


def test_several_starts_have_headings_and_records(tmp_path, capsys):
    assert main(["--demo", "--starts", "2", "--seed", "5", "--max-iter", "4", "--out", "two"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = [lines.index(f"start {k} of 2 (seed {k + 4})") for k in (1, 2)]
    assert all(lines[i + 1].startswith("iteration ") for i in at)
    found = result(tmp_path / "two")
    ended = [line for line in lines if line.startswith("start ") and "max_iter after 4 iterations, log lik" in line]
    assert len(ended) == 2 and [line.endswith("(the best)") for line in ended].index(True) == found["best_start"]
    assert [(s["start"], s["seed"], s["status"], s["n_iter"]) for s in found["starts"]] == [
        (0, 5, "max_iter", 4), (1, 6, "max_iter", 4),
    ]  # fmt: skip
    best = found["starts"][found["best_start"]]
    assert best["history"] == found["history"]
    assert best["log_likelihood"] == max(s["log_likelihood"] for s in found["starts"])
    assert main(["--demo", "--max-iter", "2", "--out", "one"]) == 0
    assert "start 1" not in capsys.readouterr().out and len(result(tmp_path / "one")["starts"]) == 1


def test_columns_are_shown_in_their_own_units():
    from mixle_mpi import Exponential, LogNormal, Poisson

    x = np.geomspace(1000.0, 9000.0, 50)
    model = Record(a=Gaussian(), b=Exponential(), c=Poisson(), d=LogNormal())
    fitted = optimize({"a": x, "b": x, "c": np.arange(50), "d": x}, model).model
    a, b, c, d = column_lines(fitted)
    assert a.startswith("a: numbers from 1000 to 9000, encoded (x - ")
    assert b == "b: numbers from 1000 to 9000, encoded as it is"
    assert c == "c: numbers from 0 to 49, encoded as it is"
    assert d.startswith("d: numbers from 1000 to 9000, encoded (log x - ")
    words = model_lines(fitted)
    assert words[1].startswith("b: exponential rate ") and words[3].endswith("(of the log)")


def test_labels_that_would_be_misread_are_quoted():
    from mixle_mpi import Categorical

    labels = ["a", "b, c", " d", "", "e\n", "f g", 1]
    assert [label_text(v) for v in labels] == ["a", "'b, c'", "' d'", "''", "'e\\n'", "f g", "1"]
    fitted = optimize({"x": ["b, c", "", "", "a", "a", "a"]}, Record(x=Categorical())).model
    assert model_lines(fitted) == ["x: a 0.500, '' 0.333, 'b, c' 0.167"]
    assert column_lines(fitted) == ["x: 3 categories: '', a, 'b, c'"]


def test_a_file_stop_from_before_does_not_end_the_run(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/STOP").touch()
    assert main(["--demo", "--max-iter", "3", "--out", "out"]) == 0
    assert "out/STOP was there before the run began and is removed" in capsys.readouterr().out
    assert not (tmp_path / "out/STOP").exists()


def test_sequences_in_rows_of_steps_and_in_json_lines_are_one_fit(tmp_path, mpirun, capsys):
    """Under mpirun, with a sequence on both ranks; scored as they were fitted; what is out of order is exit code 2."""
    rng = np.random.default_rng(0)
    rows = [{"patient": f"p{i}", "pulse": rng.normal(60 + 30 * (i % 2), 5.0, n).tolist()}
            for i, n in enumerate([3, 40, 1, 7, 5, 9])]  # fmt: skip
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    steps = [f"{row['patient']},{x!r}\n" for row in rows for x in row["pulse"]]
    (tmp_path / "steps.csv").write_text("patient,pulse\n" + "".join(steps))
    model = """[model]
type = "record"
[model.fields.pulse]
type = "hidden_markov"
states = 2
emission = { type = "gaussian" }
[fit]
max_iter = 5
tol = "none"
grid = "2x1"
"""
    (tmp_path / "steps.toml").write_text(f'[data]\npath = "steps.csv"\nsequence = "patient"\n{model}')
    (tmp_path / "rows.toml").write_text(f'[data]\npath = "rows.jsonl"\n{model}')
    for name in ("steps", "rows"):
        run = mpirun(2, ["-m", "mixle_mpi.fit", f"{name}.toml", "--out", name], cwd=tmp_path)
        assert run.code == 0, run.err
    one, other = result(tmp_path / "steps"), result(tmp_path / "rows")
    assert one["n_rows"] == other["n_rows"] == 6 and one["grid"] == other["grid"] == [2, 1]
    np.testing.assert_allclose(one["history"], other["history"], rtol=1e-12)
    run = mpirun(2, ["-m", "mixle_mpi.score", "steps", "steps.csv", "--sequence", "patient", "--out", "s.csv"],
                 cwd=tmp_path)  # fmt: skip
    assert run.code == 0, run.err
    found = [float(line.split(",")[1]) for line in (tmp_path / "s.csv").read_text().splitlines()[1:]]
    np.testing.assert_allclose(found, load(tmp_path / "steps").log_density(tmp_path / "rows.jsonl"), rtol=1e-12)
    assert sum(found) == pytest.approx(one["log_likelihood"], rel=1e-10)
    capsys.readouterr()
    assert score.main(["steps", "steps.csv", "--sequence", "patien", "--out", "x.csv"]) == 2
    assert "sequence: no column 'patien'; did you mean 'patient'" in capsys.readouterr().err
    (tmp_path / "steps.csv").write_text("patient,pulse\n" + "".join([*steps, steps[0]]))
    for more in ([], ["--dry-run"]):
        assert main(["steps.toml", "--out", "x", "-o", "fit.grid=1x1", *more]) == 2
        printed = capsys.readouterr()
        assert "steps.csv: row 65 (the first is 0), column 'patient': 'p0' comes back" in printed.err
    assert main(["rows.toml", "--sequence", "patient", "--out", "x", "-o", "fit.grid=1x1", "--data", "steps.csv"]) == 2
    assert "'p0' comes back after other values" in capsys.readouterr().err
