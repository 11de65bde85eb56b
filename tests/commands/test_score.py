"""The command `score`: what it writes is what the model says, to the last bit."""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mixle_mpi import Categorical, Composite, Gaussian, HiddenMarkov, Mixture, Record, load, optimize
from mixle_mpi.commands import fit
from mixle_mpi.commands.score import main
from mixle_mpi.commands.settings import DEMO

DATA = DEMO.parent / "penguins.csv"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The directory of a fitted demo."""
    out = tmp_path_factory.mktemp("fitted") / "demo"
    assert fit.main(["--demo", "--quiet", "--out", str(out)]) == 0
    return out


def table(path) -> tuple[list[str], list[list[str]]]:
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    return rows[0], rows[1:]


def test_scores_read_back_equal_the_models(fitted, tmp_path, capsys):
    out = tmp_path / "new" / "p.csv"
    assert main([str(fitted), str(DATA), "--out", str(out)]) == 0
    names, rows = table(out)
    assert names == ["row", "log_density", "component", "p_0", "p_1", "p_2"]
    assert [int(r[0]) for r in rows] == list(range(344))
    numbers = np.array([r[1:] for r in rows], dtype=float)
    model = load(fitted)
    expected = model.log_density(DATA)
    np.testing.assert_array_equal(numbers[:, 0], expected)
    np.testing.assert_array_equal(numbers[:, 2:], model.posterior(DATA))
    np.testing.assert_array_equal(numbers[:, 1], numbers[:, 2:].argmax(axis=1))
    np.testing.assert_allclose(numbers[:, 2:].sum(axis=1), 1.0, atol=1e-12)
    printed = capsys.readouterr().out
    assert f"344 rows: log likelihood {expected.sum():.6f}" in printed and str(out) in printed


def test_all_ranks_write_the_same_file(fitted, tmp_path, mpirun):
    assert main([str(fitted), str(DATA), "--out", str(tmp_path / "alone.csv"), "--quiet"]) == 0
    run = mpirun(3, ["-m", "mixle_mpi.score", fitted, DATA, "--out", tmp_path / "three.csv"])
    assert run.code == 0, run.err
    assert run.out.count("344 rows: log likelihood") == 1
    (names, alone), (_, three) = table(tmp_path / "alone.csv"), table(tmp_path / "three.csv")
    assert names == table(tmp_path / "three.csv")[0] and [r[0] for r in alone] == [r[0] for r in three]
    np.testing.assert_allclose(
        np.array([r[1:] for r in three], float), np.array([r[1:] for r in alone], float), rtol=1e-12, atol=1e-12
    )
    assert {p.name for p in tmp_path.iterdir()} == {"alone.csv", "three.csv"}


def test_more_ranks_than_rows(tmp_path, mpirun):
    optimize([1.0, 2.0, 4.0], Gaussian()).model.save(tmp_path / "m")
    (tmp_path / "x.csv").write_text("0\n5\n6\n")
    run = mpirun(4, ["-m", "mixle_mpi.score", "m", "x.csv", "--out", "s.csv"], cwd=tmp_path)
    assert run.code == 0, run.err
    names, rows = table(tmp_path / "s.csv")
    assert names == ["row", "log_density"]
    assert [(int(r), float(v)) for r, v in rows] == list(enumerate(load(tmp_path / "m").log_density([5.0, 6.0])))


def test_rows_of_probability_zero_are_counted(tmp_path, capsys):
    data = {"x": ["a", "b", "a", "b"], "y": [1.0, 2.0, 3.0, 4.0]}
    optimize(data, Mixture(Record(x=Categorical(), y=Gaussian()), 2), max_iter=3).model.save(tmp_path / "m")
    (tmp_path / "x.csv").write_text("x,y\na,1\nz,1\nb,2\n")
    out = tmp_path / "s.csv"
    assert main([str(tmp_path / "m"), str(tmp_path / "x.csv"), "--out", str(out)]) == 0
    rows = table(out)[1]
    assert rows[1] == ["1", "-inf", "", "", ""]
    assert all(len(r) == 5 and r[2] in ("0", "1") for r in (rows[0], rows[2]))
    assert "1 of the rows have probability zero" in capsys.readouterr().out


def test_path_names_a_mixture_inside(tmp_path, capsys):
    rng = np.random.default_rng(1)
    x = np.stack([rng.normal(size=50) + 4 * (np.arange(50) % 2), rng.normal(size=50)], axis=1)
    np.save(tmp_path / "x.npy", x)
    model = optimize(x, Composite(Mixture(Gaussian(), 2), Gaussian())).model
    model.save(tmp_path / "m")
    words = [str(tmp_path / "m"), str(tmp_path / "x.npy"), "--quiet"]
    assert main([*words, "--out", str(tmp_path / "root.csv")]) == 0
    assert table(tmp_path / "root.csv")[0] == ["row", "log_density"]
    assert main([*words, "--out", str(tmp_path / "in.csv"), "--path", "factor_0"]) == 0
    names, rows = table(tmp_path / "in.csv")
    assert names == ["row", "log_density", "component", "p_0", "p_1"]
    np.testing.assert_array_equal(np.array([r[3:] for r in rows], float), model.posterior(x, path="factor_0"))
    np.testing.assert_array_equal(np.array([r[1] for r in rows], float), model.log_density(x))
    assert main([*words, "--out", str(tmp_path / "no.csv"), "--path", "factor_1"]) == 2
    assert "there is no mixture at 'factor_1'" in capsys.readouterr().err
    assert not (tmp_path / "no.csv").exists()


def test_a_file_is_not_overwritten_by_mistake(fitted, tmp_path, capsys):
    out = tmp_path / "p.csv"
    out.write_text("mine\n")
    assert main([str(fitted), str(DATA), "--out", str(out)]) == 2
    assert "--overwrite replaces it" in capsys.readouterr().err and out.read_text() == "mine\n"
    assert main([str(fitted), str(DATA), "--out", str(out), "--overwrite", "--quiet"]) == 0
    assert len(table(out)[1]) == 344
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "change, code, says",
    [
        (lambda d: (d / "model.npz").write_bytes((d / "model.npz").read_bytes()[:-9]), 2, "truncated"),
        (lambda d: (d / "model.json").write_text("{"), 2, "truncated"),
        (lambda d: (d / "model.json").unlink(), 74, "model.json: No such file"),
    ],
)
def test_a_damaged_model_is_refused(fitted, tmp_path, capsys, change, code, says):
    """U06."""
    copy = tmp_path / "m"
    copy.mkdir()
    for name in ("model.json", "model.npz"):
        (copy / name).write_bytes((fitted / name).read_bytes())
    change(copy)
    assert main([str(copy), str(DATA), "--out", str(tmp_path / "p.csv")]) == code
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "argv, code, says",
    [
        (["m"], 2, "required: DATA, --out"),
        (["m", "d", "--out", "x", "--uot", "y"], 2, "did you mean '--out'?"),
        (["nothere", "d.csv", "--out", "x.csv"], 74, "nothere"),
    ],
)
def test_refusals(argv, code, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(argv) == code
    assert says in capsys.readouterr().err


def test_states_of_steps_and_of_the_next(tmp_path, mpirun):
    """What is written of a hidden Markov model is what the model says, with more ranks than sequences, too."""
    states = [Gaussian(0.0, 1.0), Gaussian(4.0, 2.0)]
    model = HiddenMarkov(states, initial=[0.3, 0.7], transition=[[0.9, 0.1], [0.2, 0.8]])
    rng = np.random.default_rng(4)
    rows = [rng.normal(4.0 * (i % 2), 1.0, n) for i, n in enumerate((300, 0, 5))]
    pq.write_table(pa.table({"0": [x.tolist() for x in rows]}), tmp_path / "x.parquet")
    model = optimize(rows, model, max_iter=2, tol=None).model
    model.save(tmp_path / "model")
    data = tmp_path / "x.parquet"
    for ranks in (1, 4):
        for what in ("--steps", "--forecast"):
            out = tmp_path / f"{ranks}{what}.csv"
            if ranks == 1:
                assert main([str(tmp_path / "model"), str(data), "--out", str(out), what]) == 0
            else:
                run = mpirun(ranks, ["-m", "mixle_mpi.score", tmp_path / "model", data, "--out", out, what])
                assert run.code == 0 and "3 sequences, 305 steps" in run.out, run.err
            names, lines = table(out)
            found = np.array(lines, dtype=float)
            if what == "--steps":
                assert names == ["row", "step", "state", "p_0", "p_1"]
                assert found[:, 0].tolist() == [0] * 300 + [2] * 5
                assert found[:, 1].tolist() == [*range(300), *range(5)]
                np.testing.assert_array_equal(found[:, 2], np.concatenate(model.viterbi(rows)))
                np.testing.assert_allclose(found[:, 3:], model.posterior(rows), atol=1e-14)
            else:
                assert names == ["row", "state", "p_0", "p_1"] and found[:, 0].tolist() == [0, 1, 2]
                np.testing.assert_allclose(found[:, 2:], model.forecast(rows), atol=1e-14)
                np.testing.assert_array_equal(found[:, 1], found[:, 2:].argmax(axis=1))


def test_states_are_those_of_a_hidden_markov_model(fitted, tmp_path, capsys):
    assert main([str(fitted), str(DATA), "--out", str(tmp_path / "s.csv"), "--steps"]) == 2
    assert "there is no hidden Markov model at path '', nor elsewhere" in capsys.readouterr().err
    assert main([str(fitted), str(DATA), "--out", str(tmp_path / "s.csv"), "--steps", "--forecast"]) == 2
    assert not (tmp_path / "s.csv").exists()
