"""JSON lines against the json of Python and against the same rows in memory, on ranks that are threads."""

from __future__ import annotations

import gzip
import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import Watched, on_ranks, read_all, refusal, share, values_of

from mixle_mpi import (
    Categorical,
    Composite,
    Gaussian,
    HiddenMarkov,
    LatentDirichletAllocation,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    Sequence,
    optimize,
)
from mixle_mpi.data import json_cells, json_lines, source
from mixle_mpi.data.memory import MemoryTable, columns_of
from mixle_mpi.data.open import open_data
from mixle_mpi.data.table import DataError, Labels
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.threads import run_on_threads

FEW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
STEPS = {"visits.x": "sequence of number", "visits.w": "sequence of text"}


def write(path, rows, end="\n"):
    """One value a line, texts as they are."""
    text = end.join(row if isinstance(row, str) else json.dumps(row) for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def sequences_in(data, wants, size, sequences=frozenset(), chunk=None):
    """Every wanted column as a list with a value, or a list of the steps' values, a row; read by `size` ranks."""

    def work(world):
        table = open_data(data, world, sequences=sequences).read(wants)
        found = {name: [] for name in wants}
        for _, part in table.chunks(*share(table, world), wants, chunk):
            for name, column in part.items():
                if wants[name].startswith("sequence"):
                    flat, ends = values_of(column.values), column.offsets
                    found[name] += [flat[a:b] for a, b in itertools.pairwise(ends)]
                else:
                    found[name] += values_of(column)
        return found

    results = on_ranks(size, work)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return {name: [value for part in results for value in part[name]] for name in wants}


def refused(data, wants, size, sequences=frozenset()):
    """The text of the one DataError of all ranks."""

    def work(world):
        return open_data(data, world, sequences=sequences).read(wants)

    errors = on_ranks(size, work)
    assert {(type(error), str(error)) for error in errors} == {(DataError, str(errors[0]))}
    return str(errors[0])


def patients(n=40, seed=0):
    """Rows with a scalar and steps of two columns, each missing now and then; some without steps."""
    rng = np.random.default_rng(seed)
    step = [lambda: {"x": float(rng.normal()), "w": "abc"[rng.integers(3)]}, lambda: {"x": None, "w": "a"},
            lambda: {"w": "ü\"\\\n{"}, lambda: {"x": 3}]  # fmt: skip
    return [{"age": float(i % 7) if i % 5 else None, "unused": [1, "x", {"y": i}],
             "visits": [step[min(int(rng.integers(0, 9)), 3)]() for _ in range(i * 5 % 9)]}
            for i in range(n)]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("kind", ["jsonl", "ndjson.gz"])
def test_every_row_and_step_once_and_in_order(size, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "BLOCK", 200)  # lines longer than blocks too
    rows = patients()
    path = write(tmp_path / f"p.{kind}", rows)
    found = sequences_in(path, {"age": "number"} | STEPS, size, frozenset({"visits"}), 3)
    assert found["age"] == [row["age"] for row in rows]
    for name in "xw":
        assert found[f"visits.{name}"] == [[step.get(name) for step in row["visits"]] for row in rows]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_blank_lines_marks_and_ends_of_lines(size, tmp_path):
    for end in ("\n", "\r\n", "\n\n \t\n"):
        for last in ("", end):
            path = tmp_path / "t.jsonl"
            text = "\ufeff" + end + end.join(f'  {{"x": {i}}} ' for i in range(9)) + last
            path.write_bytes(text.encode())
            assert read_all(path, {"x": "number"}, size)["x"] == list(range(9))


def test_labels_keep_their_types(tmp_path, monkeypatch):
    """Of one type, read by pyarrow, and mixed, read by json; true and 1 and 1.0 and "1" as in memory."""
    columns = {
        "i": [1, 2, 2**60 + 1, None], "b": [True, False, True, None], "s": ["1", "", "ü", None],
        "mixed": [1, "1", True, 1.5], "whole": [1.0, 2, 2.0, None], "nan": [math.nan, "a", None, "b"],
        "big": [2**70, -(2**70), 1, 2],
    }  # fmt: skip
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    path = write(tmp_path / "t.jsonl", rows)
    expected = columns | {"whole": [1, 2, 2, None], "nan": [None, "a", None, "b"]}
    for size in (1, 3):
        found = read_all(path, dict.fromkeys(columns, "text"), size)
        assert found == expected
        assert all(type(a) is type(b) for name in expected for a, b in zip(found[name], expected[name]))
    exact, calls = json_cells.Parser.exact, []
    monkeypatch.setattr(json_cells.Parser, "exact", lambda self, lines: (calls.append(1), exact(self, lines))[1])
    assert read_all(path, {"i": "text", "b": "text", "s": "text"}, 1)["b"] == columns["b"]
    assert not calls
    assert read_all(path, {"i": "text", "mixed": "text"}, 1)["mixed"] == columns["mixed"] and calls
    del calls[:]
    assert read_all(path, {"i": "integer", "b": "integer"}, 1) == {"i": columns["i"], "b": [1, 0, 1, None]}
    assert not calls
    assert read_all(path, {"whole": "integer"}, 1)["whole"] == [1, 2, 2, None]
    assert read_all(path, {"b": "number", "whole": "number"}, 1) == {"b": [1, 0, 1, None], "whole": [1, 2, 2, None]}


def test_numbers(tmp_path):
    rows = ['{"x": 1}', '{"x": -0.1e-3}', '{"x": null}', "{}", '{"x": NaN}', '{"x": Infinity}', '{"x": 1e400}',
            '{"x": 123456789012345678901234567890}', '{"x": 0.30000000000000004}', '{"x": 1' + "0" * 400 + "}",
            '{"x": -1' + "0" * 400 + "}"]  # fmt: skip
    expected = [1, -0.1e-3, None, None, None, np.inf, np.inf, 123456789012345678901234567890.0, 0.1 + 0.2, np.inf,
                -np.inf]  # fmt: skip
    for more in ([], ['{"x": true}']):  # which pyarrow leaves to json
        for size in (1, 3):
            found = read_all(write(tmp_path / "t.jsonl", [*rows, *more]), {"x": "number"}, size)["x"]
            assert found == expected + [1.0] * len(more)
    with pytest.raises(DataError, match="row 5 .*, column 'x': inf is not finite"):
        optimize(tmp_path / "t.jsonl", Record(x=Optional(Gaussian())))


@pytest.mark.parametrize("data, model, sequences", [
    ([[1.0, 2.0], [], [0.5]], Sequence(Gaussian(1.0, 2.0)), {""}),
    ([["a", "b"], [], ["b"]], Sequence(Categorical(["a", "b"], [0.3, 0.7]), Poisson(1.5)), {""}),
    ([[[1.0, "a"], [2.0, "b"]], [], [[0.5, "a"]]],
     Sequence(Composite(Gaussian(1.0, 2.0), Categorical(["a", "b"], [0.3, 0.7]))), {""}),
    ([[[1.0, 2.0], [2.0, 0.5]], [], [[0.5, 0.0]]],
     Sequence(MultivariateGaussian(2, [1.0, 1.0], [[2.0, 0.5], [0.5, 1.0]])), {""}),
    ([[{"x": 1.0, "w": "a"}], [], [{"x": 0.5, "w": "b"}]],
     Sequence(Record(x=Gaussian(1.0, 2.0), w=Categorical(["a", "b"], [0.3, 0.7]))), {""}),
    ([[{"p": [1.0, 2.0], "q": {"r": 1.0}}], [{"p": [0.5, 1.0], "q": {"r": 2.0}}]],
     Sequence(Record(p=MultivariateGaussian(2, [1.0, 1.0], [[2.0, 0.5], [0.5, 1.0]]), q=Record(r=Gaussian(1.0, 2.0)))),
     {""}),
    ([{"x": [1.0, 2.0], "w": ["a", "b"]}, {"x": [], "w": []}],
     Sequence(Record(x=Gaussian(1.0, 2.0), w=Categorical(["a", "b"], [0.3, 0.7]))), {""}),
    ([{"age": 3.0, "x": [[1.0], [2.0]]}, {"age": 4.0, "x": [[0.5]]}],
     Record(age=Gaussian(3.0, 4.0), x=Sequence(Gaussian(1.0, 2.0))), {"x"}),
    ([{"x": [[1.0, 0.0], [2.0, 1.0]]}, {"x": [[0.5, 0.5]]}],
     Record(x=Sequence(MultivariateGaussian(2, [1.0, 1.0], [[2.0, 0.5], [0.5, 1.0]]))), {"x"}),
    ([[3.0, [1.0, 2.0]], [4.0, [0.5]]], Composite(Gaussian(3.0, 4.0), Sequence(Gaussian(1.0, 2.0))), {"1"}),
    ([[3.0, "a"], [4.0, "b"]], Composite(Gaussian(3.0, 4.0), Categorical(["a", "b"], [0.3, 0.7])), set()),
    ([[3.0, 1.0], [4.0, 0.0]], Composite(Gaussian(3.0, 4.0), Gaussian(1.0, 2.0)), set()),
    ([{"p": [1.0, 2.0], "q": {"r": 1.0}}, {"p": [0.5, 1.0], "q": {"r": 2.0}}],
     Record(p=MultivariateGaussian(2, [1.0, 1.0], [[2.0, 0.5], [0.5, 1.0]]), q=Record(r=Gaussian(1.0, 2.0))), set()),
])  # fmt: skip
@pytest.mark.parametrize("exact", [False, True])
def test_the_same_model_on_the_same_data_as_in_memory(data, model, sequences, exact, tmp_path, monkeypatch):
    """Columns are called as in memory, and what pyarrow and json read is what is in memory."""
    path = write(tmp_path / "t.jsonl", data)
    names = open_data(path, Alone(), sequences=frozenset(sequences)).names
    assert names == tuple(columns_of(data, frozenset(sequences)))
    if exact:
        def unfit(self, lines):
            raise json_cells.Unfit

        monkeypatch.setattr(json_cells.Parser, "fast", unfit)
    expected = model.log_density(data)
    assert len(expected) == len(data) and np.isfinite(expected).all()
    np.testing.assert_array_equal(model.log_density(path), expected)


def fitted_on(data, model, size):
    """Log likelihood and emission means of a fit on so many threads, each of which reads its share."""
    (result, *_) = run_on_threads(size, 1, lambda grid: fit(data, model, grid, max_iter=3, tol=None, init="random"))
    return result.history, [emission.fields["x"].of.mean for emission in result.model.fields["visits"].emissions]


def test_a_fit_from_memory_parquet_and_json_lines_is_one_fit(tmp_path):
    rows = [row | {"visits": [{"x": step.get("x"), "w": step.get("w", "c")} for step in row["visits"]]}
            for row in patients()]  # fmt: skip
    step = Record(x=Optional(Gaussian()), w=Categorical(pseudo_count=1))
    model = Record(age=Optional(Gaussian()), visits=HiddenMarkov(step, 2, length=Poisson()))
    kept = [{"age": row["age"], "visits": row["visits"]} for row in rows]
    pq.write_table(pa.Table.from_pylist(kept), tmp_path / "t.parquet")
    files = [write(tmp_path / f"{name}.jsonl", part) for name, part in (("a", rows[:11]), ("b", rows[11:]))]
    packed = write(tmp_path / "t.jsonl.gz", rows)
    whole = write(tmp_path / "t.jsonl", rows)
    history, means = fitted_on(kept, model, 1)
    for data in (tmp_path / "t.parquet", whole, packed, files):
        assert fitted_on(data, model, 1) == (history, means)
    for size in (2, 3, 4, 7):
        found = fitted_on(whole, model, size)
        np.testing.assert_allclose(found[0], history, rtol=1e-12)
        np.testing.assert_allclose(found[1], means, rtol=1e-10)


def test_more_ranks_than_rows_and_files_without_any(tmp_path):
    files = [write(tmp_path / f"{i}.jsonl", rows) for i, rows in enumerate([[], [[1.0, 2.0], []], [], [[3.0]], []])]
    wants = {"0": "sequence of number"}
    for size in (1, 3, 7):
        assert sequences_in(files, wants, size, frozenset({""}))["0"] == [[1.0, 2.0], [], [3.0]]
    assert sequences_in(tmp_path, wants, 2, frozenset({""}))["0"] == [[1.0, 2.0], [], [3.0]]
    model = Sequence(Gaussian(1.0, 1.0))
    (found, *_) = run_on_threads(5, 1, lambda grid: fit(files, model, grid, max_iter=0, tol=None))
    assert found.log_likelihood == pytest.approx(model.log_density([[1.0, 2.0], [], [3.0]]).sum(), rel=1e-14)
    assert "there are no rows" in refused(files[0], wants, 3)


def test_columns_of_files_are_taken_together(tmp_path):
    """A key that a file lacks is missing there; steps that are empty in one are what they are in another."""
    one = write(tmp_path / "1.jsonl", [{"v": [], "a": None}, {"v": []}])
    two = write(tmp_path / "2.jsonl", [{"v": [{"x": 1}, None], "b": "q"}])
    opened = open_data([one, two], Alone(), sequences=frozenset({"v"}))
    assert opened.names == ("a", "v.x", "b")
    found = sequences_in([one, two], {"v.x": "sequence of number", "b": "text"}, 2, frozenset({"v"}))
    assert found == {"v.x": [[], [], [1.0, None]], "b": [None, None, "q"]}


@pytest.mark.parametrize("line, wants, says", [
    ('{"x": 1', {"x": "number"}, r"row 3: not JSON: Expecting ',' delimiter.*the line is '{\"x\": 1'"),
    ("nonsense", {"x": "number"}, "row 3: not JSON"),
    ('{"x": 1} {"x": 2}', {"x": "number"}, "row 3: not JSON: Extra data"),
    ("null", {"x": "number"}, "row 3 is null, not an object, as the first row is"),
    ("[1]", {"x": "number"}, "row 3 is an array, not an object, as the first row is"),
    ("7", {"x": "number"}, "row 3 is a number, not an object"),
    ('{"x": "a"}', {"x": "number"}, "row 3, column 'x': 'a' is not a number; a column of labels wants categorical"),
    ('{"x": [1]}', {"x": "number"}, r"row 3, column 'x': \[1\] is not a number; its model is a sequence"),
    ('{"x": [1]}', {"x": "text"}, r"row 3, column 'x': the label \[1\] is not a text, an integer or a number"),
    ('{"x": 1.5}', {"x": "integer"}, "row 3, column 'x': 1.5 is not an integer"),
    ('{"x": "1"}', {"x": "integer"}, "row 3, column 'x': '1' is not an integer"),
    ('{"x": 1, "x": 2}', {"x": "number"}, "row 3, column 'x': the key 'x' comes twice"),
    ('{"x": "\\ud800"}', {"x": "text"}, r"row 3, column 'x': '\\ud800' is half of a surrogate pair"),
    ('{"v": null}', {"v": "sequence of number"}, "row 3, column 'v': the sequence is missing; write an empty array"),
    ("{}", {"v": "sequence of number"}, "row 3, column 'v': the sequence is missing"),
    ('{"v": 5}', {"v": "sequence of number"}, "row 3, column 'v': 5 is not an array of steps"),
    ('{"v": [1, "a"]}', {"v": "sequence of number"}, "row 3, step 1, column 'v': 'a' is not a number"),
    ('{"v": [1, 2.5]}', {"v": "sequence of integer"}, "row 3, step 1, column 'v': 2.5 is not an integer"),
    ('{"o": [{"a": 1}, 7]}', {"o.a": "sequence of number"}, "row 3, step 1, column 'o.a': 7 is not an object"),
    ('{"p": [[1, 2], [3]]}', {"p[0]": "sequence of number"}, r"row 3, step 1, column 'p\[0\]': \[3\] has 1 values, o"),
    ('{"p": [[1, 2], 3]}', {"p[1]": "sequence of number"}, r"row 3, step 1, column 'p\[1\]': 3 is not an array of 2"),
])  # fmt: skip
@pytest.mark.parametrize("late", [False, True])
def test_rows_that_are_refused(line, wants, says, late, tmp_path, monkeypatch):
    """By file, row, step, column and value, on all ranks alike; met when columns are looked for, or when read."""
    good = {"x": 1, "v": [1], "o": [{"a": 1}], "p": [[1, 2]]}
    path = tmp_path / "t.jsonl"
    write(path, [good, "", good, good, line, good, "bad too"])
    if late:
        monkeypatch.setattr(json_lines, "BEGINNING", len(json.dumps(good)) + 5)
    else:
        write(path, [good, "", good, good, line, good])
    for size in (1, 2, 3, 7):
        text = refused(path, wants, size, frozenset("vop"))
        assert text.startswith(f"{path}: ")
        with pytest.raises(DataError, match=says):
            raise DataError(text)
    several = [write(tmp_path / "a.jsonl", [good] * 5), path]
    if late:
        assert "row 3 (row 8 of all files)" in refused(several, wants, 3, frozenset("vop"))


def test_columns_and_files_that_are_refused(tmp_path):
    path = write(tmp_path / "t.jsonl", [{"length": 1, "v": [1], "r": [1, 2]}, {"length": 2, "v": [2], "r": [1]}])
    assert "no column 'lengt'; did you mean 'length'" in str(refusal(path, {"lengt": "number"}, 3))
    assert "column 'length' holds no sequences" in refused(path, {"length": "sequence of number"}, 2)
    assert "column 'r' holds sequences: its model is a sequence" in refused(path, {"r": "number"}, 2)
    other = write(tmp_path / "a.jsonl", [[1, 2]])
    assert f"{other}: its rows are arrays; those of {path} are objects" == refused([path, other], {"v": "number"}, 2)
    packed = write(tmp_path / "t.jsonl.gz", [{"x": 1}])
    assert "files of several kinds are not one table" in refused([path, packed], {"x": "number"}, 2)
    packed.write_bytes(packed.read_bytes()[:-9])
    assert "not a gzip file, or damaged" in refused(packed, {"x": "number"}, 2)
    path.write_bytes(b'{"x": "\xff"}\n')
    assert "row 0: not JSON: 'utf-8' codec can't decode" in refused(path, {"x": "text"}, 2)
    assert type(refusal(tmp_path / "none.jsonl", {"x": "number"}, 3)) is FileNotFoundError
    with pytest.raises(DataError, match="2 steps in column 'y', 1 in 'x'"):
        optimize(write(path, [{"x": [1], "y": [1, 2]}]), Sequence(Record(x=Gaussian(), y=Gaussian())))


def test_each_rank_reads_its_own_bytes(tmp_path, monkeypatch):
    path = write(tmp_path / "t.jsonl", [{"x": float(i), "pad": "p" * 40} for i in range(60_000)])
    monkeypatch.setattr(source, "open", Watched, raising=False)
    monkeypatch.setattr(Watched, "reads", [])
    assert read_all(path, {"x": "number"}, 4)["x"] == list(range(60_000))
    size = path.stat().st_size
    for rank in range(4):
        own = [(at, n) for who, _, at, n in Watched.reads if who == rank]
        looked = json_lines.BEGINNING if rank == 0 else 0
        assert size / 4 - 200 <= sum(n for _, n in own) <= size / 4 + looked + 2 * 2**16 + 200


NAMES = ["x", "y", "w"]
scalars = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_infinity=False), st.text(max_size=3))
numbers = st.one_of(st.none(), st.integers(-9, 9), st.floats(allow_infinity=False))
a_step = st.dictionaries(st.sampled_from(NAMES), scalars)
a_row = st.fixed_dictionaries({"v": st.lists(a_step, max_size=4)}, optional={"n": numbers, "l": scalars})


def plain(value):
    """A value as columns have it: nothing for NaN, whole floats as integers."""
    if value is None or value != value:
        return None
    return int(value) if isinstance(value, float) and value.is_integer() else value


@FEW
@given(rows=st.lists(a_row, min_size=1, max_size=12), size=st.sampled_from([1, 2, 3, 4, 7]), block=st.integers(1, 300))
def test_random_rows_are_those_of_json_loads(rows, size, block, tmp_path):
    path = write(tmp_path / "t.jsonl", rows)
    names = open_data(path, Alone(), sequences=frozenset("v")).names
    labels = [name for name in names if name in ("l", "v.x", "v.y", "v.w")]
    wants = {name: "sequence of text" if "." in name else "text" for name in labels}
    wants |= {"n": "number"} if "n" in names else {}
    assert set(names) - {"v"} == set(wants)
    if not wants:
        return
    whole, json_lines.BLOCK = json_lines.BLOCK, block
    try:
        found = sequences_in(path, wants, size, frozenset("v"))
    finally:
        json_lines.BLOCK = whole
    loaded = [json.loads(line) for line in path.read_text().split("\n")]
    for name in labels:
        of_steps = [[plain(step.get(name[2:])) for step in row["v"]] for row in loaded]
        expected = of_steps if "." in name else [plain(row.get("l")) for row in loaded]
        assert repr(found[name]) == repr(expected)
    if "n" in wants:
        expected = [row.get("n") for row in loaded]
        assert found["n"] == [None if v is None or v != v else float(v) for v in expected]


def test_held_steps_come_in_any_chunk_and_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "BLOCK", 64)
    path = write(tmp_path / "t.jsonl", [{"v": list(range(i % 4))} for i in range(50)])
    expected = [[float(j) for j in range(i % 4)] for i in range(50)]
    for chunk in (1, 7, 50):
        found = sequences_in(path, {"v": "sequence of number"}, 3, frozenset("v"), chunk)["v"]
        assert found == expected
    tables = on_ranks(3, lambda world: open_data(path, world, sequences=frozenset("v")).read(
        {"v": "sequence of number"}))  # fmt: skip
    assert [table.steps("v") for table in tables] == [sum(map(len, expected))] * 3
    memory = MemoryTable(columns_of([{"v": row} for row in expected], frozenset("v")))
    assert memory.steps("v") == tables[0].steps("v")
    assert not isinstance(next(tables[0].chunks(0, 1, {"v": "sequence of number"}))[1]["v"].values, Labels)


def test_the_length_is_modelled_beside_columns_that_nobody_reads(tmp_path):
    rows = [{"v": [{"day": 1, "x": 0.5}, {"day": 3, "x": 1.5}]}, {"v": []}]
    path = write(tmp_path / "t.jsonl", rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    model = Record(v=Sequence(Record(x=Gaussian(1.0, 1.0)), Poisson(1.0)))
    expected = Sequence(Gaussian(1.0, 1.0), Poisson(1.0)).log_density([[0.5, 1.5], []])
    for data in (rows, path, tmp_path / "t.parquet"):
        np.testing.assert_array_equal(model.log_density(data), expected)


def test_keys_are_any_texts(tmp_path):
    """Those that look like paths too; one that comes twice matters where it is read."""
    names = ["", ".a", "[0]", "a.b", "x y", "ü", "a"]
    path = write(tmp_path / "t.jsonl", ['{"b": 1, "b": 2}', *({name: i for name in names} for i in range(3))])
    for size in (1, 2):
        found = read_all(path, dict.fromkeys(names, "number"), size)
        assert found == {name: [None, 0, 1, 2] for name in names}
    assert "row 0, column 'b': the key 'b' comes twice" in refused(path, {"b": "number"}, 2)
    write(path, [{"v": [{".": 1, "[1]": {"..": 2}}]}])
    found = sequences_in(path, {"v..": "sequence of number", "v.[1]...": "sequence of number"}, 1, frozenset("v"))
    assert found == {"v..": [[1]], "v.[1]...": [[2]]}


def test_ragged_sequences_d03(tmp_path):
    emissions = [Categorical(levels=[0, 1], probabilities=p) for p in ([0.9, 0.1], [0.3, 0.7])]
    model = HiddenMarkov(emissions, initial=[0.6, 0.4], transition=[[0.7, 0.3], [0.2, 0.8]])
    path = write(tmp_path / "t.jsonl", [[0, 1, 1], [], [1], [0, 0]])
    for size in (1, 3, 7):
        found = run_on_threads(size, 1, lambda grid: fit(path, model, grid, max_iter=1, tol=None))[0]
        assert found.history[0] == pytest.approx(-4.055740656, abs=1e-9)
        np.testing.assert_allclose(found.model.initial, [0.57331172, 0.42668828], atol=1e-8)


def test_bags_as_objects_are_those_in_memory(tmp_path):
    """word -> count, beside lists of tokens and of pairs, and as rows; a word that comes twice is refused."""
    docs = [{"a": 2, "b": 1}, {"c": 3.0}, {}, {"b": 1, "d": 4}]
    model = LatentDirichletAllocation(2, list("abcd"), topic_prior=0.5)
    write = (tmp_path / "docs.jsonl").write_text
    write("".join(json.dumps(doc) + "\n" for doc in docs))
    expected = optimize(docs, model, max_iter=2, tol=None).history
    assert optimize(tmp_path / "docs.jsonl", model, max_iter=2, tol=None).history == expected
    mixed = [*docs[:2], [], [["b", 1], ["d", 4]]]
    write("".join(json.dumps({"x": k, "words": doc}) + "\n" for k, doc in enumerate(mixed)))
    record = Record(words=model)
    assert optimize(tmp_path / "docs.jsonl", record, max_iter=2, tol=None).history == expected
    write('{"words": {"a": 1}}\n{"words": {"a": 1, "a": 2}}\n')
    with pytest.raises(DataError, match="row 1.*the key 'a' comes twice"):
        optimize(tmp_path / "docs.jsonl", record)
    write('{"words": {"a": 1}}\n{"words": {"a": "x"}}\n')
    with pytest.raises(DataError, match="row 1.*'x' is not a number"):
        optimize(tmp_path / "docs.jsonl", record)
