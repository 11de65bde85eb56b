"""From data to encoded rows: weights, float32, ranks, memory."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from mixle_mpi import (
    Categorical,
    Composite,
    DataError,
    Exponential,
    Gaussian,
    Mixture,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    optimize,
)  # fmt: skip
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.execution.threads import run_on_threads

RNG = np.random.default_rng(0)
N = 400
TABLE = {
    "x": np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(5, 2, N)),
    "c": np.array(["a", "b", "c"])[RNG.integers(0, 3, N)],
    "k": RNG.poisson(3, N), "w": RNG.integers(0, 4, N) / 2.0, "e": RNG.exponential(2, N),
}  # fmt: skip
MODEL = Mixture(Record(x=Optional(Gaussian()), c=Categorical(), k=Poisson(), e=Exponential()), 3)
FORMS = ["dict", "csv", "csv.gz", "parquet", "npz", "two csv", "two parquet", "two csv.gz", "npy", "pandas"]


def write(columns, path):
    table = pa.table(columns)
    table = table.set_column(0, "x", pa.array(columns["x"], from_pandas=True)) if "x" in columns else table
    if path.name.endswith(".parquet"):
        pq.write_table(table, path, row_group_size=50)
    elif path.name.endswith(".csv"):
        pyarrow.csv.write_csv(table, path)
    elif path.name.endswith(".csv.gz"):
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(table, sink)
        path.write_bytes(gzip.compress(sink.getvalue().to_pybytes()))
    elif path.name.endswith(".npy"):
        kinds = [(name, column.dtype) for name, column in columns.items()]
        np.save(path, np.array(list(zip(*columns.values())), kinds))
    else:
        np.savez(path, **columns)
    return path


def form(kind, folder, columns=TABLE):
    """The columns as data of one kind."""
    if kind == "dict":
        return columns
    if kind == "pandas":
        import pandas

        return pandas.DataFrame(columns)
    if kind.startswith("two"):
        parts = [slice(0, 130), slice(130, N)]
        for i, part in enumerate(parts):
            write({name: c[part] for name, c in columns.items()}, folder / f"{i}.{kind[4:]}")
        return folder
    return write(columns, folder / f"t.{kind}")


REFERENCE = {}


@pytest.mark.parametrize("kind", FORMS)
def test_every_form_gives_the_same_fit(kind, tmp_path):
    if not REFERENCE:
        REFERENCE["fit"] = fit(TABLE, MODEL, serial_grid(), weights=TABLE["w"], max_iter=5, tol=None)
    expected = REFERENCE["fit"]
    data = form(kind, tmp_path)
    for shape in [(1, 1), (3, 1), (2, 2)]:
        for found in run_on_threads(*shape, lambda g: fit(data, MODEL, g, weights="w", max_iter=5, tol=None)):
            np.testing.assert_allclose(found.history, expected.history, rtol=1e-12)
            assert found.effective_rows == pytest.approx(expected.effective_rows) and found.n_rows == N


def test_the_model_does_not_see_the_weights():
    x = np.stack([TABLE["e"], TABLE["w"], TABLE["k"]], axis=1)
    model = Composite(Exponential(), Poisson())
    found = optimize(x, model, weights="1")
    assert found.history == optimize(x[:, [0, 2]], model, weights=x[:, 1]).history
    with pytest.raises(ValueError, match="no column 'w'"):
        optimize(TABLE, Record(w=Exponential()), weights="w")
    with pytest.raises(DataError, match="weights: no column 'ww'; did you mean 'w'"):
        optimize(TABLE, MODEL, weights="ww")


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("bad, text", [(-0.5, "-0.5"), (np.inf, "inf"), (np.nan, "the value")])
def test_weights_are_checked(kind, bad, text, tmp_path):
    w = TABLE["w"].copy()
    w[[150, 300]] = bad
    data = form(kind, tmp_path, TABLE | {"w": w})

    def refused(grid):
        with pytest.raises(DataError) as caught:
            load(data, MODEL, grid, weights="w")
        return str(caught.value)

    messages = set(run_on_threads(3, 1, refused))
    assert messages == {refused(serial_grid())}
    (message,) = messages
    assert f"column 'w': {text} is not a weight" in message and "w: 2" in message
    where = "row 20 (the first is 0; row 150 of all files)" if kind.startswith("two") else "row 150 (the first is 0)"
    name = "1." if kind.startswith("two") else "t." if kind not in ("dict", "pandas") else ""
    assert where in message and name in message


# -- float32 -------------------------------------------------------------------------------------------


def single(n=3000, seed=3):
    rng = np.random.default_rng(seed)
    x = rng.normal(1000, 1, size=(n, 3)).astype(np.float32)
    x[:, 2] = np.abs(x[:, 2])
    x[rng.random(n) < 0.1, 0] = np.nan
    return x


SINGLE = Mixture(Composite(Optional(Gaussian()), Gaussian(), Exponential()), 4)


@pytest.mark.parametrize("kind", ["array", "npy", "parquet", "two npy"])
def test_float32_fits_as_its_float64_copy_in_half_the_memory_n14(kind, tmp_path):
    x = single()
    data = {"array": x, "npy": tmp_path / "t.npy", "parquet": tmp_path / "t.parquet", "two npy": tmp_path}[kind]
    if kind == "npy":
        np.save(data, x)
    elif kind == "parquet":
        pq.write_table(pa.table({str(j): x[:, j] for j in range(3)}), data, row_group_size=700)
    elif kind == "two npy":
        np.save(tmp_path / "a.npy", x[:1000])
        np.save(tmp_path / "b.npy", x[1000:])
    expected = fit(x.astype(float), SINGLE, serial_grid(), max_iter=6, tol=None)
    wide = load(x.astype(float), SINGLE, serial_grid()).rows
    for shape in [(1, 1), (3, 1), (2, 2)]:
        for found in run_on_threads(*shape, lambda g: fit(data, SINGLE, g, max_iter=6, tol=None)):
            np.testing.assert_allclose(found.history, expected.history, rtol=1e-12)
        shares = run_on_threads(*shape, lambda g: load(data, SINGLE, g).rows)
        numbers = [sum(a.nbytes for k, a in rows.arrays.items() if k in rows.single) for rows in shares]
        assert sum(numbers) == 3 * 4 * len(x) * shape[1]
        for rows in shares:
            assert rows.nbytes < 0.6 * wide.nbytes * rows.n / wide.n
            for key in rows.single:
                np.testing.assert_array_equal(
                    rows.column(key, 0, rows.n), wide.column(key, rows.first, rows.first + rows.n)
                )
    if kind != "two npy":
        return
    np.save(tmp_path / "b.npy", x[1000:].astype(float))  # one file of float64: all ranks keep float64
    assert all(not rows.single for rows in run_on_threads(3, 1, lambda g: load(tmp_path, SINGLE, g).rows))


def test_float32_of_own_rows_is_agreed():
    x = single()
    parts = [x[:1000], x[1000:1200].astype(float), x[1200:]]
    for rows in run_on_threads(3, 1, lambda g: load(parts[g.world.rank], SINGLE, g, local=True).rows):
        assert not rows.single and all(a.dtype != np.float32 for a in rows.arrays.values())
    halves = [x[:1000], x[:0], x[1000:]]
    for rows in run_on_threads(3, 1, lambda g: load(halves[g.world.rank], SINGLE, g, local=True).rows):
        assert len(rows.single) == 3
    whole = load(x, SINGLE, serial_grid()).rows
    for key in whole.single:
        picked = np.array([5, 17, 2999])
        np.testing.assert_array_equal(whole.take(key, picked), whole.column(key, 0, whole.n)[:, picked])


def test_counts_in_float32_n14():
    n = 2**24 + 1
    found = optimize(np.ones(n, np.float32), Exponential(), max_iter=1, tol=None)
    assert found.effective_rows == n and found.model.rate == pytest.approx(1.0, rel=1e-12)


# -- where ---------------------------------------------------------------------------------------------


def test_an_infinite_value_names_file_and_row_d04(tmp_path):
    for i, n in enumerate([30, 0, 50, 20]):
        x = np.arange(float(n))
        if i == 2:
            x[[7, 9]] = np.inf
        np.save(tmp_path / f"{i}.npy", x)

    def refused(grid):
        with pytest.raises(DataError) as caught:
            fit(tmp_path, Gaussian(), grid)
        return str(caught.value)

    text = f"{tmp_path}/2.npy: row 7 (the first is 0; row 37 of all files), column '0': inf is not finite; "
    for shape in [(1, 1), (5, 1)]:
        assert set(run_on_threads(*shape, refused)) == {text + "rows refused by column: 0: 2"}


def test_a_file_that_breaks_while_it_is_encoded_is_an_error_on_all_ranks(tmp_path, monkeypatch):
    from mixle_mpi.execution import load as module

    np.save(tmp_path / "t.npy", np.arange(1000.0))

    def damaging(*arguments):
        bound = bindings(*arguments[:2])
        (tmp_path / "t.npy").write_bytes(b"")
        return bound

    bindings = module.bindings
    monkeypatch.setattr(module, "bindings", lambda *a, **k: damaging(*a))

    def refused(grid):
        with pytest.raises(DataError) as caught:
            fit(tmp_path / "t.npy", Gaussian(), grid)
        return str(caught.value)

    (text,) = set(run_on_threads(3, 1, refused))
    assert "is missing; the file had" in text or "ranks see different files" in text


# -- memory --------------------------------------------------------------------------------------------

MEASURE = """
import resource, sys
from mixle_mpi import Mixture, MultivariateGaussian, optimize
optimize(sys.argv[1], Mixture(MultivariateGaussian(8, structure="diagonal"), 20), max_iter=1, tol=None)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.parametrize("kind", ["npy", "f4", "parquet"])
def test_peak_of_a_fit_p16(kind, tmp_path):
    n = 1_000_000
    x = np.random.default_rng(0).normal(size=(n, 8)).astype("f4" if kind == "f4" else "f8")
    peaks = []
    for rows in (1000, n):
        path = tmp_path / f"{rows}.{'parquet' if kind == 'parquet' else 'npy'}"
        if kind == "parquet":
            pq.write_table(pa.table({str(j): x[:rows, j] for j in range(8)}), path)
        else:
            np.save(path, x[:rows])
        run = subprocess.run([sys.executable, "-W", "ignore", "-c", MEASURE, path], capture_output=True, text=True,
                             cwd=Path(__file__).parents[2], check=True)  # fmt: skip
        peaks.append(int(run.stdout))
    assert peaks[1] - peaks[0] <= 1.3 * x.nbytes + 30e6


def test_parsed_columns_are_forgotten_as_they_are_encoded(tmp_path, monkeypatch):
    from mixle_mpi.data import csv, held

    monkeypatch.setattr(csv, "BLOCK", 2000)
    path = write({"a": np.arange(5000.0)}, tmp_path / "t.csv")
    left = []
    release = held.HeldTable.release

    def watched(table, row):
        release(table, row)
        left.append(sum(piece is not None for piece in table.pieces["a"]))

    monkeypatch.setattr(held.HeldTable, "release", watched)
    monkeypatch.setattr("mixle_mpi.data.table.CHUNK_ROWS", 100)
    load(path, Record(a=Gaussian()), serial_grid())
    assert left[0] > 5 and left == sorted(left, reverse=True) and left[-1] <= 2


def test_vectors_and_columns_of_one_table_share_their_reading(tmp_path):
    np.save(tmp_path / "t.npy", single().astype(float)[:, 1:])
    model = Mixture([MultivariateGaussian(2), Composite(Gaussian(), Gaussian())])
    assert load(tmp_path / "t.npy", model, serial_grid()).rows.n == 3000
