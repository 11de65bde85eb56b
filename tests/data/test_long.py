"""One row a step: against the same sequences in memory and in other files, on ranks that are threads."""

from __future__ import annotations

import csv
import gzip
import itertools
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranks import on_ranks, values_of

from mixle_mpi import (
    Bernoulli,
    Categorical,
    Composite,
    Gaussian,
    HiddenMarkov,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    Sequence,
    optimize,
)
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.data import csv as csv_reader
from mixle_mpi.data import table as tables
from mixle_mpi.data.long import Share, owners
from mixle_mpi.data.open import open_data
from mixle_mpi.data.table import DataError
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.evaluate import executor_for, scored_tiles
from mixle_mpi.execution.threads import run_on_threads

FEW = settings(max_examples=80, deadline=None)
STEP = Record(x=Optional(Gaussian()), w=Optional(Categorical(pseudo_count=1)))
MODEL = Record(age=Gaussian(), visits=HiddenMarkov(STEP, 2, length=Poisson()))


def patients(n=23, seed=0):
    """Rows with a scalar and steps of two columns, each missing now and then; sequences of 1 to 9 steps."""
    rng = np.random.default_rng(seed)
    one = [lambda: {"x": float(rng.normal()), "w": "abc"[rng.integers(3)]}, lambda: {"x": None, "w": "a"},
           lambda: {"x": 0.5, "w": None}]  # fmt: skip
    return [{"age": float(i % 7), "visits": [one[min(int(rng.integers(0, 9)), 2)]() for _ in range(i * 5 % 9 + 1)]}
            for i in range(n)]  # fmt: skip


def steps_of(rows, weight=None):
    """The same with one row a step, a dict of columns."""
    flat = [{"patient": f"p{i}", "day": t, "age": row["age"], **step}
            for i, row in enumerate(rows) for t, step in enumerate(row["visits"])]  # fmt: skip
    columns = {name: [row[name] for row in flat] for name in flat[0]}
    if weight is not None:
        columns["n"] = [weight[int(name[1:])] for name in columns["patient"]]
    return columns


def write(path, columns):
    """A dict of columns as a file of the kind that its name says."""
    kind = path.name.split(".", 1)[1]
    rows = list(zip(*columns.values()))
    if kind.startswith("csv"):
        with gzip.open(path, "wt") if kind.endswith("gz") else open(path, "w") as file:
            csv.writer(file, lineterminator="\n").writerows([list(columns), *rows])
    elif kind.startswith("jsonl"):
        with gzip.open(path, "wt") if kind.endswith("gz") else open(path, "w") as file:
            file.writelines(json.dumps(dict(zip(columns, row))) + "\n" for row in rows)
    elif kind == "parquet":
        pq.write_table(pa.table(columns), path, row_group_size=17)
    else:
        kinds = {name: "U4" if any(isinstance(v, str) for v in values) else "f8" for name, values in columns.items()}
        empty = {"U4": "", "f8": np.nan}
        array = np.empty(len(rows), list(kinds.items()))
        for name, values in columns.items():
            array[name] = [empty[kinds[name]] if v is None else v for v in values]
        np.save(path, array)
    return path


def fitted(data, model, size, **options):
    """History and parameters of a fit on so many threads, each of which reads its share."""
    options = {"max_iter": 3, "tol": None, "init": "random"} | options
    (result, *_) = run_on_threads(size, 1, lambda grid: fit(data, model, grid, **options))
    chain = result.model.fields["visits"]
    return result.history, [e.fields["x"].of.mean for e in chain.emissions], chain.transition.tolist()


def test_a_fit_is_one_fit_from_memory_from_lists_and_from_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK", 256)
    rows = patients()
    columns = steps_of(rows)
    expected = fitted(rows, MODEL, 1)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "lists.parquet")
    assert fitted(tmp_path / "lists.parquet", MODEL, 1) == expected
    kinds = "csv", "csv.gz", "parquet", "jsonl", "jsonl.gz", "npy"
    forms = [write(tmp_path / f"t.{kind}", columns) for kind in kinds]
    half = {name: values[:40] for name, values in columns.items()}
    rest = {name: values[40:] for name, values in columns.items()}
    forms += [[write(tmp_path / "1.csv", half), write(tmp_path / "2.csv", rest)]]
    forms += [columns, pd.DataFrame(columns), pa.table(columns)]
    for data in forms:
        assert fitted(data, MODEL, 1, sequence="patient") == expected
    for size, data in itertools.product((2, 3, 4, 7), [forms[0], forms[2], forms[3], forms[6], columns]):
        found = fitted(data, MODEL, size, sequence="patient")
        for own, other in zip(found, expected):
            np.testing.assert_allclose(own, other, rtol=1e-11)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)


def test_log_densities_are_those_of_the_sequences_in_order_on_any_ranks(tmp_path):
    """Of one sequence too, and with more ranks than sequences or rows."""
    for n in (1, 2, 23):
        rows = patients(n)
        model = optimize(patients(), MODEL, max_iter=2, tol=None, init="random").model
        expected = model.log_density(rows)
        path = write(tmp_path / "t.csv", steps_of(rows))

        def scored(grid):
            executor, total = executor_for(model, path, grid, sequence="patient")  # noqa: B023
            return total, executor.source.first, [s for _, scores, _ in scored_tiles(executor, None) for s in scores]

        for size in (1, 3, 7):
            found = run_on_threads(size, 1, scored)
            assert {total for total, *_ in found} == {n}
            assert [at for _, at, _ in found] == np.cumsum([0, *(len(part) for *_, part in found)])[:-1].tolist()
            np.testing.assert_allclose([s for *_, part in found for s in part], expected, rtol=1e-13)


def test_posteriors_and_paths_have_a_row_for_each_step(tmp_path):
    rows = patients()
    path = write(tmp_path / "t.parquet", steps_of(rows))
    model = optimize(patients(), MODEL, max_iter=2, tol=None, init="random").model
    found = model.posterior(path, path="visits", sequence="patient")
    assert len(found) == len(steps_of(rows)["day"])
    np.testing.assert_array_equal(found, model.posterior(rows, path="visits"))
    chain = model.fields["visits"]
    expected = chain.viterbi([row["visits"] for row in rows])
    for own, other in zip(model.viterbi(path, path="visits", sequence="patient"), expected):
        np.testing.assert_array_equal(own, other)


def test_numbers_of_four_bytes_stay_so(tmp_path):
    rng = np.random.default_rng(0)
    lists = [rng.normal(1e4, 1.0, n).astype("f4") for n in (5, 3, 9, 1)]
    pq.write_table(pa.table({"x": pa.array(lists, pa.list_(pa.float32()))}), tmp_path / "lists.parquet")
    ids = np.repeat(np.arange(4), [5, 3, 9, 1])
    pq.write_table(pa.table({"id": ids, "x": np.concatenate(lists)}), tmp_path / "steps.parquet")
    model = Record(x=HiddenMarkov(Gaussian(), 2))
    expected = optimize(tmp_path / "lists.parquet", model, max_iter=2, tol=None)

    def on(grid):
        return fit(tmp_path / "steps.parquet", model, grid, sequence="id", max_iter=2, tol=None).history

    assert run_on_threads(1, 1, on)[0] == expected.history
    for size in (3, 7):  # ranks without any row of the sequences that begin there too
        np.testing.assert_allclose(run_on_threads(size, 1, on)[0], expected.history, rtol=1e-12)
    (table, *_) = on_ranks(7, lambda world: open_data(tmp_path / "steps.parquet", world, sequence="id").read(
        {"x": "sequence of number"}))  # fmt: skip
    assert next(table.chunks(0, table.rows, {"x": "sequence of number"}))[1]["x"].values.dtype == np.float32


def test_weights_count_once_a_sequence(tmp_path):
    rows, weight = patients(), [i % 3 for i in range(23)]
    path = write(tmp_path / "t.csv", steps_of(rows, weight))
    repeated = [row for row, n in zip(rows, weight) for _ in range(n)]
    step = Record(x=Optional(Gaussian(0.0, 1.0)), w=Optional(Categorical(["a", "b", "c"], [0.5, 0.25, 0.25])))
    model = Record(age=Gaussian(3.0, 2.0), visits=Sequence(step))
    expected = optimize(repeated, model, max_iter=1, tol=None)
    for size in (1, 3):
        (found, *_) = run_on_threads(size, 1, lambda grid: fit(
            path, model, grid, weights="n", sequence="patient", max_iter=1, tol=None))  # fmt: skip
        np.testing.assert_allclose(found.history, expected.history, rtol=1e-12)
        assert found.model.fields["age"].mean == pytest.approx(expected.model.fields["age"].mean, rel=1e-12)
    given = optimize(path, model, weights=weight, sequence="patient", max_iter=1, tol=None)
    np.testing.assert_allclose(given.history, expected.history, rtol=1e-12)


def test_how_columns_are_found():
    """A root that is a sequence, a record's field by its own name, by `field.column`, and by the columns alone."""
    ids, x, y = [1, 1, 2], [1.0, 2.0, 3.0], [0, 1, 1]
    lists = {"x": [[1.0, 2.0], [3.0]], "y": [[0, 1], [1]]}
    both = Record(x=Gaussian(1.0, 1.0), y=Bernoulli(0.4))
    expected = Sequence(both).log_density(lists)
    plain = {"id": ids, "x": x, "y": y}
    named = {"id": ids, "visits.x": x, "visits.y": y}
    for model, data in [
        (Sequence(both), plain), (Record(visits=Sequence(both)), plain), (Record(visits=Sequence(both)), named),
        (Record(visits=Sequence(both)), named | {"x": [9.0] * 3, "y": [0] * 3}), (Sequence(both), {"day": x} | plain),
        (Record({"visits": Sequence(Composite(*both.factors))}, columns={"visits": ("x", "y")}), plain),
    ]:  # fmt: skip
        np.testing.assert_array_equal(model.log_density(data, sequence="id"), expected)
    alone = Record(x=Sequence(Gaussian(1.0, 1.0)), y=Sequence(Bernoulli(0.4)))
    np.testing.assert_allclose(alone.log_density(plain, sequence="id"), expected, rtol=1e-15)
    plane = MultivariateGaussian(2, [1.0, 1.0], [[2.0, 0.5], [0.5, 1.0]])
    vectors = {"id": ids, "p": np.array([x, x]).T}
    expected = Record(p=Sequence(plane)).log_density({"p": [[[1.0, 1.0], [2.0, 2.0]], [[3.0, 3.0]]]})
    np.testing.assert_array_equal(Record(p=Sequence(plane)).log_density(vectors, sequence="id"), expected)
    with_length = Sequence(Record(x=Gaussian(1.0, 1.0)), Poisson(2.0))
    expected = Sequence(Gaussian(1.0, 1.0), Poisson(2.0)).log_density(lists["x"])
    np.testing.assert_array_equal(with_length.log_density({"day": y} | plain, sequence="id"), expected)


def test_names_of_sequences_keep_their_types(tmp_path):
    """1, "1", true and 1.5 are four sequences; 1 and 1.0 are one."""
    names = [1, 1, "1", True, 1.5, 1.5, "a", "é"]
    x = [float(i) for i in range(8)]
    expected = Sequence(Gaussian(1.0, 9.0)).log_density([[0, 1], [2.0], [3.0], [4, 5], [6.0], [7.0]])
    model = Record(x=Sequence(Gaussian(1.0, 9.0)))
    for data in ({"id": np.array(names, object), "x": x}, write(tmp_path / "t.jsonl", {"id": names, "x": x})):
        np.testing.assert_array_equal(model.log_density(data, sequence="id"), expected)
    data = write(tmp_path / "w.jsonl", {"id": [1, 1.0, 2], "x": [1, 2, 3]})
    assert len(model.log_density(data, sequence="id")) == 2


def grouped(ids, columns, scalars):
    """The runs of equal names, by plain Python."""
    found = {name: [] for name in columns}
    for _, run in itertools.groupby(range(len(ids)), key=lambda i: ids[i]):
        rows = list(run)
        for name, values in columns.items():
            found[name].append(values[rows[0]] if name in scalars else [values[i] for i in rows])
    return found


@FEW
@given(lengths=st.lists(st.integers(1, 6), max_size=8), borders=st.lists(st.integers(0, 40), max_size=6),
       chunk=st.integers(1, 9), seed=st.integers(0, 99))  # fmt: skip
def test_sequences_that_ranks_share_are_whole_where_they_begin(lengths, borders, chunk, seed):
    """Rows dealt to ranks at any borders, some without any, against grouping by plain Python."""
    rng = np.random.default_rng(seed)
    total = sum(lengths)
    ids = [f"s{i}" for i, n in enumerate(lengths) for _ in range(n)]
    columns = {
        "x": [None if rng.random() < 0.2 else float(v) for v in rng.normal(size=total)],
        "w": [None if rng.random() < 0.2 else f"w{v}" for v in rng.integers(0, 5, total)],
        "a": [None if i % 4 == 3 else float(i) for i, n in enumerate(lengths) for _ in range(n)],
        "b": [None if i % 3 == 2 else i for i, n in enumerate(lengths) for _ in range(n)],
    }
    wants = {"x": "sequence of number", "w": "sequence of text", "a": "number", "b": "text"}
    ends = sorted(min(b, total) for b in borders)
    spans = list(itertools.pairwise([0, *ends, total]))

    def work(world):
        own = slice(*spans[world.rank])
        data = {"id": ids[own]} | {name: values[own] for name, values in columns.items()}
        found = open_data(data, world, True, sequence="id").read(wants)
        parts = {name: [] for name in wants}
        for _, part in found.chunks(found.first, found.first + found.rows, wants, 2):
            for name, column in part.items():
                if name in "xw":
                    flat = values_of(column.values)
                    parts[name] += [flat[a:b] for a, b in itertools.pairwise(column.offsets)]
                else:
                    parts[name] += values_of(column)
        return found.first, found.rows, found.total, found.steps("x"), parts

    rows, tables.CHUNK_ROWS = tables.CHUNK_ROWS, chunk
    try:
        results = on_ranks(len(spans), work)
    finally:
        tables.CHUNK_ROWS = rows
    for result in results:
        if isinstance(result, Exception):
            raise result
    expected = grouped(ids, columns, "ab")
    for name in wants:
        assert [value for *_, parts in results for value in parts[name]] == expected[name]
    assert [first for first, *_ in results] == np.cumsum([0, *(n for _, n, *_ in results)])[:-1].tolist()
    assert {(found, steps) for *_, found, steps, _ in results} == {(len(lengths), total)}
    starts = np.cumsum([0, *lengths])[:-1]
    for (start, stop), (_, n, *_) in zip(spans, results):  # each is where its first row was read
        assert n == sum(start <= at < stop for at in starts)


@FEW
@given(ids=st.lists(st.sampled_from("abcd"), min_size=1, max_size=14), borders=st.lists(st.integers(0, 14), max_size=5))
def test_a_value_that_comes_back_is_refused_at_the_first_row_where_one_does(ids, borders):
    spans = list(itertools.pairwise([0, *sorted(min(b, len(ids)) for b in borders), len(ids)]))
    again = next((i for i in range(1, len(ids)) if ids[i] != ids[i - 1] and ids[i] in ids[:i]), None)

    def work(world):
        own = slice(*spans[world.rank])
        data = {"id": ids[own], "x": [1.0] * len(ids[own])}
        return open_data(data, world, True, sequence="id").read({"x": "sequence of number"}).total

    results = on_ranks(len(spans), work)
    if again is None:
        assert set(results) == {len(set(ids))}
    else:
        assert {(type(error), str(error)) for error in results} == {(DataError, (
            f"row {again} (the first is 0), column 'id': {ids[again]!r} comes back after other values; the rows of a "
            "sequence follow each other: sort the data by that column"))}  # fmt: skip


def test_owners():
    """Ranks without rows stand between those of one sequence."""
    a, b, c, none = (1, 1), (2, 2), (3, 3), Share(0, 0, (), ())
    assert owners([Share(2, 1, a, a)]) == [0]
    shared = [Share(2, 1, a, a), Share(3, 1, a, a), none, Share(4, 2, a, b), Share(1, 1, b, b)]
    assert owners(shared) == [0, 0, 2, 0, 3]
    assert owners([none, Share(2, 2, a, b), Share(1, 1, c, c), Share(1, 1, c, c)]) == [0, 1, 2, 2]


@pytest.mark.parametrize("change, says", [
    ({"patient": ("p1", 9)}, "row 9 (the first is 0), column 'patient': 'p1' comes back after other values; .* sort"),
    ({"patient": (None, 5)}, "row 5 (the first is 0), column 'patient': the value is missing, which says of what seq"),
    ({"age": (7.5, 8)}, "row 8 (the first is 0), column 'age': 7.5, but 2 where the sequence 'p2' begins, {}row 7;"),
    ({"n": (3, 5)}, "row 5 (the first is 0), column 'n': 3, but 1 where the sequence 'p1' begins, {}row 1; what is"),
    ({"age": (None, 3)}, "row 3 (the first is 0), column 'age': nothing, but 1 where the sequence 'p1' begins, {}row"),
    ({"x": (np.inf, 4)}, "row 4 (the first is 0; step 3 of 'p1'), column 'x': inf is not finite; rows refused by col"),
    ({"n": (-1, 0)}, "row 0 (the first is 0; step 0 of 'p0'), column 'n': -1 is not a weight"),
    ({"day": ("x", 11)}, "row 11, column 'day': 'x' is not a number"),
])  # fmt: skip
def test_rows_that_are_refused(change, says, tmp_path):
    """By file, row, column and value, on all ranks alike, whoever reads the row; of several files by both numbers."""
    rows = [{"age": float(i), "visits": [{"x": 0.5, "w": "a"}] * (1, 6, 4, 2)[i]} for i in range(4)]
    columns = steps_of(rows, [1] * 4)
    for name, (value, row) in change.items():
        columns[name][row] = value
    path = write(tmp_path / "t.csv", columns)
    step = Record(x=Optional(Gaussian(0.0, 1.0)), w=Categorical(["a"], [1.0]), day=Gaussian(0.0, 1.0))
    model = Record(age=Optional(Gaussian(3.0, 1.0)), visits=Sequence(step))

    def refused(data, size):
        def work(grid):
            try:
                fit(data, model, grid, weights="n", sequence="patient", max_iter=0, tol=None)
            except DataError as error:
                return str(error)

        texts = run_on_threads(size, 1, work)
        assert len(set(texts)) == 1
        return texts[0]

    expected = says.replace("(", r"\(").replace(")", r"\)").format(f"{path}: ")
    for size in (1, 2, 3, 4, 7):
        with pytest.raises(DataError, match=f"^{path}: {expected}"):
            raise DataError(refused(path, size))
    before = write(tmp_path / "a.csv", {n: [{"patient": "first", "w": "a"}.get(n, 1)] for n in columns})
    row = next(iter(change.values()))[1]
    text = refused([before, path], 3)
    assert text.startswith(f"{path}: row {row} (") and f"row {row + 1} of all files)" in text


def test_data_that_are_refused(tmp_path):
    columns = steps_of(patients(3))
    with pytest.raises(DataError, match="sequence: no column 'patien'; did you mean 'patient'"):
        optimize(columns, MODEL, sequence="patien")
    with pytest.raises(ModelError, match="sequence = 'patient': the model has no sequence or hidden_markov"):
        optimize(columns, Record(age=Gaussian()), sequence="patient")
    with pytest.raises(ModelError, match="field 'patient': no column 'patient'"):
        optimize(columns, Record(patient=Sequence(Categorical())), sequence="patient")
    with pytest.raises(ModelError, match="column 'age' is read as number and as sequence of number"):
        optimize(columns, Record(age=Gaussian(), more=Sequence(Record(age=Gaussian()))), sequence="patient")
    with pytest.raises(DataError, match=r"t.csv: column '\w+' cannot hold sequences in a .csv file.*`sequence` names"):
        optimize(write(tmp_path / "t.csv", columns), MODEL)
    with pytest.raises(DataError, match="there is nothing to fit: 0 rows"):
        optimize({name: [] for name in columns}, MODEL, sequence="patient")
    with pytest.raises(DataError, match="sequence: no column 'patient'; known: none"):
        optimize([], MODEL, sequence="patient")


def test_what_moves_is_what_crosses_a_border():
    """Beside small objects, only the rows of sequences that began on another rank are sent."""
    n = 40_000
    data = {"id": np.repeat(np.arange(40), n // 40), "x": np.arange(float(n)), "y": np.arange(float(n))}

    def sent(grid):
        before = grid.world.traffic.bytes
        table = open_data(data, grid.world, sequence="id").read({"x": "sequence of number", "y": "sequence of number"})
        return table.rows, grid.world.traffic.bytes - before

    names = 24  # bytes of what a sequence is called, and its first row; 8 are those of the first that comes back
    assert run_on_threads(4, 1, sent) == [(10, 10 * names + 8)] * 4  # borders between sequences
    moved = [0, 14_000 - n // 3, 27_000 - 2 * n // 3]
    assert run_on_threads(3, 1, sent) == [(own, own * names + 8 + 16 * m) for own, m in zip((14, 13, 13), moved)]


def test_one_long_sequence_is_divided_in_time_again(tmp_path):
    """It is brought together where it begins, and dealt out over the shards as one in memory is."""
    x = np.random.default_rng(0).normal(size=400) + 3.0 * (np.arange(400) // 50 % 2)
    path = write(tmp_path / "t.csv", {"id": [1] * 400, "x": x.tolist()})
    rows = tmp_path / "t.jsonl"
    rows.write_text(json.dumps(x.tolist()))
    model = HiddenMarkov(Gaussian(), 2)
    expected = optimize([x], model, max_iter=4, tol=None)
    for size, (data, options) in itertools.product((1, 4), ((path, {"sequence": "id"}), (rows, {}))):
        found = run_on_threads(size, 1, lambda grid: fit(data, model, grid, max_iter=4, tol=None, **options))  # noqa: B023
        np.testing.assert_allclose(found[0].history, expected.history, rtol=1e-12)
        np.testing.assert_allclose(found[0].model.transition, expected.model.transition, rtol=1e-10)
