"""Parquet files against pyarrow, on ranks that are threads."""

from __future__ import annotations

import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import Watched, current, on_ranks, read_all, refusal

from mixle_mpi import Categorical, Gaussian, Record, Sequence, optimize
from mixle_mpi.data import source
from mixle_mpi.data.open import open_data
from mixle_mpi.data.table import DataError

FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def example(n=1000, seed=0):
    rng = np.random.default_rng(seed)

    def some(values, kind=None):
        return pa.array(values, kind, mask=rng.random(n) < 0.1)

    return pa.table({
        "f8": some(rng.normal(size=n)), "f4": some(rng.normal(size=n).astype("f4")),
        "f2": some(rng.normal(size=n).astype("f2")), "i8": some(rng.integers(-9, 9, n)),
        "u1": some(rng.integers(0, 9, n).astype("u1")), "b": some(rng.random(n) < 0.5),
        "dec": some([Decimal(int(v)) / 4 for v in rng.integers(0, 99, n)], pa.decimal128(9, 2)),
        "s": some([f"w{v}" for v in rng.integers(0, 9, n)]),
        "d": some([f"x{v}" for v in rng.integers(0, 9, n)]).dictionary_encode(),
        "large": some(["é" * v for v in rng.integers(0, 3, n)], pa.large_string()),
        "none": pa.nulls(n), "whole": some(rng.integers(0, 3, n).astype(float)),
    })  # fmt: skip


NUMBERS = {name: "number" for name in ("f8", "f4", "f2", "i8", "u1", "b", "dec", "none")}
LABELS = {name: "text" for name in ("s", "d", "large", "i8", "u1", "b", "none", "whole")}


@pytest.mark.parametrize("group", [1000, 137, 1])
@pytest.mark.parametrize("size", [1, 3, 4])
def test_values_are_those_of_arrow(group, size, tmp_path):
    table = example(1000 if group > 1 else 40)
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=group)
    found = read_all(path, NUMBERS, size, 50)
    for name in NUMBERS:
        assert found[name] == [None if v is None else float(v) for v in table[name].to_pylist()]
    found = read_all(path, LABELS, size, 50)
    for name in LABELS:
        assert found[name] == table[name].to_pylist()
        types = {type(v) for v in found[name]} - {type(None)}
        assert types <= {{"i8": int, "u1": int, "b": bool, "whole": int}.get(name, str)}
    found = read_all(path, {"i8": "integer", "whole": "integer", "b": "integer"}, size)
    assert found["whole"] == table["whole"].to_pylist() and found["i8"] == table["i8"].to_pylist()


def test_nan_is_missing_and_inf_is_not(tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"x": [1.0, np.nan, None, np.inf, -np.inf], "l": pa.array([1.5, np.nan, None, 2, 1.5])})
    pq.write_table(table, path)
    assert read_all(path, {"x": "number"}, 2)["x"] == [1, None, None, np.inf, -np.inf]
    assert read_all(path, {"l": "text"}, 2)["l"] == [1.5, None, None, 2, 1.5]


def test_only_float32_is_float32(tmp_path):
    pq.write_table(example(), tmp_path / "t.parquet")
    table = on_ranks(1, lambda world: open_data(tmp_path / "t.parquet", world).read(NUMBERS))[0]
    for _, part in table.chunks(0, 1000, NUMBERS, 100):
        for name, column in part.items():
            assert column.dtype == (np.float32 if name == "f4" else np.float64)


@FEW
@given(n=st.integers(0, 60), group=st.integers(1, 30), size=st.integers(1, 5), chunk=st.integers(1, 20))
def test_each_row_once_and_in_order(n, group, size, chunk, tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": pa.array(range(n), pa.int64()), "s": [f"{i % 7}" for i in range(n)]}), path,
                   row_group_size=group)  # fmt: skip
    found = read_all(path, {"s": "text", "x": "number"}, size, chunk)
    assert found == {"x": list(range(n)), "s": [f"{i % 7}" for i in range(n)]}


def test_dictionaries_that_change_between_groups(tmp_path):
    path = tmp_path / "t.parquet"
    words = [f"w{i // 10}" for i in range(1000)]
    pq.write_table(pa.table({"s": words}), path, row_group_size=100)
    assert read_all(path, {"s": "text"}, 3, 30)["s"] == words
    pq.write_table(pa.table({"s": words}), path, dictionary_pagesize_limit=64, data_page_size=64)  # falls back to plain
    assert read_all(path, {"s": "text"}, 2, 30)["s"] == words


def test_nobody_reads_what_it_does_not_need(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.normal(size=80_000) for name in "abcd"})
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=10_000, compression="none", use_dictionary=False)
    monkeypatch.setattr(source, "open", Watched, raising=False)
    monkeypatch.setattr(Watched, "reads", [])
    read_all(path, {"c": "number"}, 4)
    footer = path.stat().st_size - 8 * 4 * 80_000
    for rank in range(4):
        own = [(at, n) for who, _, at, n in Watched.reads if who == rank]
        # two groups of one column, and the footer once for the rows, by rank 0 once more to look
        assert 2 * 80_000 <= sum(n for _, n in own) <= 2 * 80_000 + 2 * (footer + 2**16) + 2000
        low = rank * 2 * 4 * 80_000
        data = [(at, n) for at, n in own if at < path.stat().st_size - footer - 2**16]
        assert all(low <= at and at + n <= low + 2 * 4 * 80_000 + 1000 for at, n in data)


def test_a_large_group_is_decoded_to_the_last_row_of_a_rank_only(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.arange(100_000.0)}), path, row_group_size=100_000)
    batches = []
    whole = pq.ParquetFile.iter_batches

    def counted(self, size, groups, columns, **options):
        for batch in whole(self, size, groups, columns, **options):
            batches.append((current.rank, batch.num_rows, groups, columns))
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    assert read_all(path, {"x": "number"}, 4, 1000)["x"] == list(range(100_000))
    for rank in range(4):
        own = [each for each in batches if each[0] == rank]
        assert sum(n for _, n, *_ in own) == 25_000 * (rank + 1)
        assert all(n <= 1000 and groups == [0] and columns == ["x"] for _, n, groups, columns in own)


@pytest.mark.parametrize(
    "column, want, words",
    [
        (pa.array([[1.0], [2.0]]), "number", "column 'x' holds sequences: its model is a sequence"),
        (pa.array(["a", "b"]), "number", "column 'x' is string; it cannot be read as numbers"),
        (pa.array(["a", "b"]), "integer", "column 'x' is string; it cannot be read as integer labels"),
        (pa.array([1, 2], pa.timestamp("ms")), "number", "column 'x' is timestamp.*times are not read"),
        (pa.array([1, 2], pa.date32()), "text", "column 'x' is date32.*times are not read"),
        (pa.array([Decimal(1), Decimal(2)]), "text", "column 'x' is decimal.*labels as texts"),
        (pa.array([{"a": 1}, {"a": 2}]), "number", "column 'x' is struct"),
        (pa.array([b"a", b"b"]), "text", "column 'x' is binary"),
        (pa.array([1.0, 2.5]), "integer", "row 1, column 'x': 2.5 is not an integer"),
    ],
)
def test_types_that_are_refused(column, want, words, tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": column}), path)
    for size in (1, 3):
        error = refusal(path, {"x": want}, size)
        assert type(error) is DataError and str(error).startswith(f"{path}: ")
        with pytest.raises(DataError, match=words):
            raise error


def test_files_that_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(example(), path)
    assert "no column 'larg'; did you mean 'large'" in str(refusal(path, {"larg": "text"}, 3))
    whole = path.read_bytes()
    for data in (b"", b"PAR1", whole[:-9], b"x" * 400, whole[:4] + whole[300:]):
        path.write_bytes(data)
        error = refusal(path, NUMBERS | LABELS | {"i8": "number", "u1": "number", "b": "number", "none": "number"}, 3)
        assert type(error) is DataError and "not a Parquet file, or damaged" in str(error)
    assert type(refusal(tmp_path / "none.parquet", NUMBERS, 3)) is FileNotFoundError


def test_the_index_of_pandas_is_left_out(tmp_path):
    import pandas as pd

    pd.DataFrame({"a": [1.0, 2.0], "b": ["x", None]}, index=[3, 5]).to_parquet(tmp_path / "t.pq")
    assert "__index_level_0__" in pq.read_schema(tmp_path / "t.pq").names
    (opened,) = on_ranks(1, lambda world: open_data(tmp_path / "t.pq", world))
    assert opened.names == ("a", "b")
    assert read_all(tmp_path / "t.pq", {"a": "number", "b": "text"}, 2) == {"a": [1, 2], "b": ["x", None]}


def test_lists_are_sequences(tmp_path):
    """Lists of numbers, of labels and of structs, in several row groups, against the same rows in memory."""
    words = [["a", "b"], [], ["b"], ["a", "a", "b"]] * 5
    numbers = [[float(len(w) + t) for t in range(len(w))] for w in words]
    steps = [[{"x": x, "word": w} for x, w in zip(*both)] for both in zip(numbers, words)]
    age = [float(i % 7) for i in range(20)]
    pq.write_table(pa.table({"word": words, "x": numbers}), tmp_path / "flat.parquet", row_group_size=3)
    pq.write_table(pa.table({"age": age, "visits": steps}), tmp_path / "nested.parquet", row_group_size=7)
    step = Record(x=Gaussian(1.0, 2.0), word=Categorical(["a", "b"], [0.4, 0.6]))
    flat = Sequence(step)
    expected = flat.log_density({"x": numbers, "word": words})
    assert expected[1] == 0.0 and len(expected) == 20
    np.testing.assert_array_equal(flat.log_density(tmp_path / "flat.parquet"), expected)
    both = Record(age=Gaussian(3.0, 4.0), visits=Sequence(step))
    rows = [{"age": a, "visits": s} for a, s in zip(age, steps)]
    np.testing.assert_array_equal(both.log_density(tmp_path / "nested.parquet"), both.log_density(rows))
    table = pa.table({"x": numbers, "word": words})
    model = Sequence(Record(x=Gaussian(), word=Categorical()))
    forms = {"x": numbers, "word": words}, table, table.to_pandas(), tmp_path / "flat.parquet"
    fits = [optimize(data, model, max_iter=1, tol=None) for data in forms]
    assert len({result.log_likelihood for result in fits}) == 1
    columns = {name: list(itertools.chain(*lists)) for name, lists in (("x", numbers), ("word", words))}
    flattened = optimize(columns, model.element, max_iter=1, tol=None)
    assert fits[0].log_likelihood == pytest.approx(flattened.log_likelihood, rel=1e-13)


def test_absent_lists_and_lists_of_another_length_are_refused(tmp_path):
    pq.write_table(pa.table({"x": [[1.0], None]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="row 1, column 'x': the sequence is missing"):
        optimize(tmp_path / "x.parquet", Sequence(Gaussian()))
    pq.write_table(pa.table({"x": [[1.0], [2.0]], "y": [[1.0], [2.0, 3.0]]}), tmp_path / "xy.parquet")
    with pytest.raises(DataError, match="row 1: 2 steps in column 'y', 1 in 'x'"):
        optimize(tmp_path / "xy.parquet", Sequence(Record(x=Gaussian(), y=Gaussian())))
    with pytest.raises(DataError, match="column 'x' holds sequences"):
        optimize(tmp_path / "x.parquet", Gaussian())
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "flat.parquet")
    with pytest.raises(DataError, match="column 'x' holds no sequences"):
        optimize(tmp_path / "flat.parquet", Sequence(Gaussian()))
