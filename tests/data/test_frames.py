"""pandas and Arrow tables in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ranks import on_ranks, read_all, refusal

from mixle_mpi import Categorical, Gaussian, MultivariateGaussian, Optional, Record, optimize
from mixle_mpi.data.memory import columns_of
from mixle_mpi.data.open import open_data
from mixle_mpi.data.table import DataError

NAN = float("nan")
FRAME = pd.DataFrame({
    "f8": [1.5, NAN, 3.0, 4.0], "f4": np.array([1, 2, NAN, 4], "f4"), "i": [1, 2, 3, 4], "b": [True, False, True, True],
    "I": pd.array([1, None, 3, 4], dtype="Int64"), "B": pd.array([True, None, False, True], dtype="boolean"),
    "F": pd.array([1.5, None, 2.5, 1.5], dtype="Float64"), "s": ["u", None, "w", "u"],
    "o": np.array([1, "1", None, True], object), "c": pd.Categorical(["b", None, "a", "b"]),
    "k": pd.Categorical([7, 7, None, 8]), "A": pd.array([1, None, 3, 4], dtype=pd.ArrowDtype(pa.int16())),
})  # fmt: skip
NUMBERS = {"f8": [1.5, None, 3, 4], "f4": [1, 2, None, 4], "i": [1, 2, 3, 4], "b": [1, 0, 1, 1], "I": [1, None, 3, 4],
           "B": [1, None, 0, 1], "F": [1.5, None, 2.5, 1.5], "A": [1, None, 3, 4]}  # fmt: skip
LABELS = {"i": [1, 2, 3, 4], "b": [True, False, True, True], "I": [1, None, 3, 4], "B": [True, None, False, True],
          "s": ["u", None, "w", "u"], "o": [1, "1", None, True], "c": ["b", None, "a", "b"], "k": [7, 7, None, 8],
          "A": [1, None, 3, 4], "F": [1.5, None, 2.5, 1.5]}  # fmt: skip


def same(found, expected):
    assert found == expected
    assert [type(v) for v in found] == [type(v) for v in expected]


@pytest.mark.parametrize("size", [1, 3])
def test_pandas(size):
    found = read_all(FRAME, dict.fromkeys(NUMBERS, "number"), size)
    for name, expected in NUMBERS.items():
        assert found[name] == expected
    found = read_all(FRAME, dict.fromkeys(LABELS, "text"), size)
    for name, expected in LABELS.items():
        same(found[name], expected)
    moved = FRAME.iloc[[3, 1]]  # the index does not count
    assert read_all(moved, {"I": "number", "c": "text"}, size) == {"I": [4, None], "c": ["b", None]}


@pytest.mark.parametrize("size", [1, 3])
def test_arrow(size):
    table = pa.table({
        "x": pa.chunked_array([[1.0, None], [NAN, 4.0]]), "d": pa.array(["u", None, "w", "u"]).dictionary_encode(),
        "s": ["u", None, "w", "u"], "i": pa.array([1, None, 3, 4], pa.uint8()),
    })  # fmt: skip
    for data in (table, table.combine_chunks().to_batches()[0], table.slice(0, 4)):
        found = read_all(data, {"x": "number", "d": "text", "s": "text", "i": "text"}, size, 2)
        assert found["x"] == [1, None, None, 4] and found["i"] == [1, None, 3, 4]
        assert found["d"] == found["s"] == ["u", None, "w", "u"]
    assert read_all(table["x"], {"0": "number"}, size)["0"] == [1, None, None, 4]


def test_float32_stays_float32():
    for data in (FRAME, pa.table({"f4": pa.array([1, None], pa.float32())})):
        (table,) = on_ranks(1, lambda world, d=data: open_data(d, world).read({"f4": "number"}))
        assert [part["f4"].dtype for _, part in table.chunks(0, table.total, {"f4": "number"})] == [np.float32]


# before pandas 3 a column of texts is one of objects, each looked at by itself
OBJECTS = pd.DataFrame({"t": ["a"]})["t"].dtype == object
TEXTS = "row 0, column 't': 'a' is not a number" if OBJECTS else "column 't' is .*string; it cannot be read as numbers"


@pytest.mark.parametrize(
    "data, want, words",
    [
        (pd.DataFrame({"t": pd.to_datetime(["2020-01-01"])}), "number", "column 't' is timestamp.*times are not read"),
        (pd.DataFrame({"t": pd.to_timedelta([1], "s")}), "text", "column 't' is duration.*times are not read"),
        (pd.DataFrame({"t": ["a"]}), "number", TEXTS),
        (pd.DataFrame({"t": pd.Categorical(["a"])}), "number", "column 't' is dictionary.*as numbers"),
        (pa.table({"t": [[1.0]]}), "number", "column 't' is list.*its model is a sequence"),
        (pd.DataFrame([[1, 2]], columns=["t", "t"]), "number", "2 columns are called 't'"),
        (pa.table([[1], [2]], ["t", "t"]), "number", "2 columns are called 't'"),
    ],
)
def test_what_is_refused(data, want, words):
    error = refusal(data, {"t": want}, 3)
    assert type(error) is DataError
    with pytest.raises(DataError, match=words):
        raise error


def test_a_fit_is_that_of_a_dict_of_columns():
    rng = np.random.default_rng(0)
    x, c = rng.normal(size=300), np.array(["a", "b", "c"])[rng.integers(0, 3, 300)]
    x[::7] = NAN
    model = Record(x=Optional(Gaussian()), c=Categorical())
    expected = optimize({"x": x, "c": c}, model)
    frame = pd.DataFrame({"x": x, "c": c})
    for data in (frame, frame.astype({"c": "category", "x": "Float64"}), pa.Table.from_pandas(frame)):
        found = optimize(data, model)
        assert found.history == expected.history and found.model.fields["c"].levels == ("a", "b", "c")


def test_neither_library_is_imported():
    code = "import sys, mixle_mpi as m; m.optimize([1.0], m.Gaussian()); print({'pandas', 'pyarrow'} & {*sys.modules})"
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_lists_of_one_width_are_vectors(tmp_path):
    """In Arrow and pandas tables and in Parquet files, of fixed size or not, as tuples in memory; None is missing."""
    cells = [(0.0, 1.0), (2.0, 2.5), None, (1.0, 0.0), (3.0, 1.0)]
    model = Record(v=Optional(MultivariateGaussian(2)))
    rows = [{"v": v, "n": [1] * k, "d": {f"k{k}": 1}} for k, v in enumerate(cells)]  # n and d are nobody's
    expected = optimize(rows, model, max_iter=1, tol=None).history
    lists = [None if v is None else list(v) for v in cells]
    for kind in (pa.list_(pa.float64()), pa.list_(pa.float64(), 2), pa.large_list(pa.float32())):
        table = pa.table({"v": pa.array(lists, kind), "n": [[1] * k for k in range(5)]})
        pq.write_table(table, tmp_path / "v.parquet", row_group_size=2)
        for source in (table, tmp_path / "v.parquet"):
            assert optimize(source, model, max_iter=1, tol=None).history == pytest.approx(expected, rel=1e-12)
    assert optimize(pd.DataFrame({"v": lists}), model, max_iter=1, tol=None).history == expected


def test_a_list_of_another_width_is_refused(tmp_path):
    lists = [[1.0, 2.0]] * 1500 + [[1.0]]
    pq.write_table(pa.table({"v": lists}), tmp_path / "v.parquet")
    with pytest.raises(DataError, match="row 1500.*column 'v': it has 1 values, others 2"):
        optimize(tmp_path / "v.parquet", Record(v=MultivariateGaussian(2)))
    with pytest.raises(DataError, match="row 2, column 'v' has 1 values, others 2"):
        optimize([{"v": v} for v in [*lists[:2], (1.0,)]], Record(v=MultivariateGaussian(2)))


@pytest.mark.parametrize("sequences", [frozenset(), frozenset({"visits"})])
def test_data_of_spark_name_their_backend(sequences):
    class DataFrame:
        __module__ = "pyspark.sql.classic.dataframe"

    with pytest.raises(DataError, match='DataFrame are not understood.*: backend="spark" reads them, else give'):
        columns_of(DataFrame(), sequences)
