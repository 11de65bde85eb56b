"""Several files, patterns, directories and gzip, on ranks that are threads."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import Watched, on_ranks, read_all, refusal

from mixle_mpi.data import csv as csv_reader
from mixle_mpi.data import gzip_csv, source
from mixle_mpi.data.csv import share_of
from mixle_mpi.data.gzip_csv import owner_of
from mixle_mpi.data.open import files_of, is_path, open_data
from mixle_mpi.data.table import DataError

FEW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WANTS = {"x": "number", "s": "text"}


def write(path, rows, order="xs"):
    """Rows (x, s) as a file of the kind of its name, columns in an order."""
    columns = {"x": [float(x) for x, _ in rows], "s": [s for _, s in rows]}
    columns = {name: columns[name] for name in order}
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=3)
    elif path.suffix == ".npy":
        np.save(path, np.array([tuple(row) for row in zip(*columns.values())],
                               [(name, "f8" if name == "x" else "U60") for name in order]))  # fmt: skip
    else:
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values()))
        data = text.getvalue().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def rows_of(counts):
    """For each file its rows; some cells have newlines and quotes."""
    rows = [(n, f'w{n},"\n' if n % 3 else f"v{n}" * (n % 11 + 1)) for n in range(sum(counts))]
    return [rows[sum(counts[:i]) : sum(counts[: i + 1])] for i in range(len(counts))]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "npy"])
@FEW
@given(counts=st.lists(st.sampled_from([0, 0, 1, 2, 5, 40, 200]), min_size=1, max_size=7), size=st.integers(1, 6),
       block=st.integers(1, 300), chunk=st.integers(1, 50))  # fmt: skip
def test_rows_of_many_files_follow_each_other(kind, counts, size, block, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK", block)
    monkeypatch.setattr(gzip_csv, "BLOCK", block)
    names = [tmp_path / f"part{i}.{kind}" for i in range(len(counts))]
    files = [write(name, rows, "xs" if i % 2 else "sx") for i, (name, rows) in enumerate(zip(names, rows_of(counts)))]
    expected = [row for rows in rows_of(counts) for row in rows]
    found = read_all(files, WANTS, size, chunk)
    assert list(zip(found["x"], found["s"])) == expected


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.integers(1, 9))
def test_shares_of_bytes_are_equal_and_without_gaps(bodies, size):
    parts = [share_of(bodies, rank, size) for rank in range(size)]
    sizes = [sum(stop - start for _, start, stop in part) for part in parts]
    assert sum(sizes) == sum(bodies) and max(sizes) - min(sizes) <= 1
    covered = [(file, byte) for part in parts for file, start, stop in part for byte in range(start, stop)]
    assert covered == [(file, byte) for file, body in enumerate(bodies) for byte in range(body)]


def test_shares_beyond_32_bits():
    (file, start, stop), *rest = share_of([2**40, 7, 2**40], 1, 2)
    assert (file, start, stop) == (1, 3, 7) and rest == [(2, 0, 2**40)]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.integers(1, 9))
def test_owners_of_gzip_files(sizes, ranks):
    owners = [owner_of(sizes, file, ranks) for file in range(len(sizes))]
    assert owners == sorted(owners) and set(owners) <= set(range(ranks))
    if len(set(sizes)) == 1 and sizes[0]:
        counts = [owners.count(rank) for rank in range(ranks)]
        assert max(counts) - min(counts) <= 1


def test_ranks_read_equal_shares_of_small_and_large_files(tmp_path, monkeypatch):
    counts = [5000, 1, 1, 300, 0, 2000]
    files = [write(tmp_path / f"p{i}.csv", rows) for i, rows in enumerate(rows_of(counts))]
    total = sum(f.stat().st_size for f in files)
    monkeypatch.setattr(source, "open", Watched, raising=False)
    monkeypatch.setattr(csv_reader, "BLOCK", 500)
    for size in (2, 5):
        monkeypatch.setattr(Watched, "reads", [])
        read_all(files, WANTS, size)
        for rank in range(size):
            own = [(path, at, n) for who, path, at, n in Watched.reads if who == rank]
            heads = 4096 * (-(-len(files) // size))
            assert sum(n for *_, n in own) <= 2 * total / size + heads + 500
    # the heads are shared out: no file is looked at twice
    firsts = [path for _, path, at, n in Watched.reads if (at == 0 and n > 500) or n == Path(path).stat().st_size]
    assert max(map(firsts.count, firsts)) <= 2


def test_one_rank_reads_a_gzip_file_in_pieces(tmp_path, monkeypatch):
    rows = rows_of([3000, 3000])
    files = [write(tmp_path / f"p{i}.csv.gz", r) for i, r in enumerate(rows)]
    monkeypatch.setattr(source, "open", Watched, raising=False)
    monkeypatch.setattr(Watched, "reads", [])
    monkeypatch.setattr(gzip_csv, "BLOCK", 1000)
    taken = []
    filled = gzip_csv.filled
    monkeypatch.setattr(gzip_csv, "filled", lambda stream, n: taken.append(n) or filled(stream, n))
    read_all(files, WANTS, 2)
    assert {(who, Path(path).name) for who, path, *_ in Watched.reads} == {(0, "p0.csv.gz"), (1, "p1.csv.gz")}
    assert max(taken) <= 4096


@pytest.mark.parametrize("kind", ["csv", "csv.gz"])
@pytest.mark.parametrize(
    "bad, words",
    [
        ("1,2,3\n", " has 3 cells; the header has 2"),
        ("oops,a\n", ", column 'x': 'oops' is not a number; a column of labels wants categorical"),
        ('1,5" pipe\n', " has a quote inside a cell that is not quoted"),
        ('1,"open\n', " has a quote that is never closed"),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_the_file_and_its_row_are_named(kind, bad, words, at, tmp_path, monkeypatch):
    files = []
    for i, count in enumerate([20, 3, 30]):
        lines = [f'{n},"{n}\n,"\n' for n in range(count)]
        text = "x,s\n" + "".join([*lines, bad * (i >= at), "1,a\n" * count])
        files.append(tmp_path / f"f{i}.{kind}")
        files[-1].write_bytes(gzip.compress(text.encode()) if kind == "csv.gz" else text.encode())
    count, before = [20, 3, 30][at], sum(2 * c for c in [20, 3, 30][:at])
    messages = set()
    for size, block in [(1, 2**20), (2, 16), (3, 2**20), (7, 16)]:
        monkeypatch.setattr(csv_reader, "BLOCK", block)
        monkeypatch.setattr(gzip_csv, "BLOCK", block)
        error = refusal(files, WANTS, size)
        assert type(error) is DataError
        messages.add(str(error))
    (message,) = messages
    assert message.startswith(f"{files[at]}: row {count} (row {before + count} of all files){words}")


@pytest.mark.parametrize("kind", ["parquet", "npy"])
def test_bad_values_name_the_file_too(kind, tmp_path):
    values = [[1.0, 2.0], [3.0], [4.0, 5.5, 6.0]]
    files = [tmp_path / f"f{i}.{kind}" for i in range(3)]
    for path, column in zip(files, values):
        if kind == "npy":
            np.save(path, np.array(column).view([("x", "f8")]))
        else:
            pq.write_table(pa.table({"x": column}), path)
    for size in (1, 2, 5):
        message = str(refusal(files, {"x": "integer"}, size))
        assert message == f"{files[2]}: row 1 (row 4 of all files), column 'x': 5.5 is not an integer"


def test_other_columns_are_refused(tmp_path):
    a = write(tmp_path / "a.csv", [(1, "u")])
    b = tmp_path / "b.csv"
    for text, words in [("x,t\n1,2\n", "it has no 's' and it has 't' more"), ("s\n1\n", "it has no 'x'"),
                        ("s,x,y\n1,2,3\n", "it has 'y' more"), ("x,s,s\n", "3 columns, not 2")]:  # fmt: skip
        b.write_text(text)
        for size in (1, 3):
            message = str(refusal([a, b], WANTS, size))
            assert message.startswith(f"{b}: ") and words in message
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    np.save(tmp_path / "b.npy", np.zeros((2, 4)))
    assert "b.npy: its columns are not" in str(refusal([tmp_path / "a.npy", tmp_path / "b.npy"], {"0": "number"}, 3))


def test_patterns_and_directories(tmp_path):
    for name in ("b.csv", "a.csv", "c.csv", ".hidden.csv", "_temporary.csv"):
        write(tmp_path / name, [(ord(name[0]), name)])
    (tmp_path / "readme.md").write_text("no data")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "sub").mkdir()
    expected = {"x": [97, 98, 99], "s": ["a.csv", "b.csv", "c.csv"]}
    several = [tmp_path / "[ab].csv", tmp_path / "c.csv"]
    for data in (tmp_path, str(tmp_path), f"{tmp_path}/", tmp_path / "[a-c].csv", several):
        assert read_all(data, WANTS, 2) == expected
    assert files_of([tmp_path / "c.csv", tmp_path / "a.csv"]) == [str(tmp_path / n) for n in ("c.csv", "a.csv")]
    odd = write(tmp_path / "sub" / "o[1].csv", [(1, "odd")])
    assert read_all(odd, WANTS, 1)["s"] == ["odd"]  # a file that is there is no pattern
    assert read_all(tmp_path / "s*" / "*.csv", WANTS, 1)["s"] == ["odd"]


def test_files_that_are_no_table(tmp_path):
    (tmp_path / "empty").mkdir()
    for data, words in [
        (tmp_path / "empty", "the directory has no files of a kind that is read: .csv, .csv.gz"),
        (tmp_path / "*.csv", "no file matches"),
        (tmp_path / "a.xlsx", "a.xlsx: files of this kind are not read; read are .csv, .csv.gz, .npy, .npz, .parquet"),
        (tmp_path / ".csv", "files of this kind are not read"),
        ([tmp_path / "a.csv", tmp_path / "b.npy"], "files of several kinds"),
        (["a.csv", "b.txt"], "b.txt: files of this kind"),
    ]:
        error = refusal(data, WANTS, 3)
        assert type(error) is DataError and words in str(error)
    write(tmp_path / "a.csv", [])
    write(tmp_path / "b.csv.gz", [])
    assert "files of several kinds" in str(refusal(tmp_path, WANTS, 2))
    error = refusal([tmp_path / "a.csv", tmp_path / "gone.csv"], WANTS, 3)
    assert type(error) is FileNotFoundError and error.filename == str(tmp_path / "gone.csv")


def test_labels_are_not_paths():
    assert not is_path(["b", "a", "a"]) and not is_path(["m/s", "N/A", "*"]) and not is_path([])
    assert is_path(["a.csv", "b.csv"]) and is_path([Path("anything")]) and is_path("x") and not is_path([1, "a.csv"])


def test_gzip_files_that_are_damaged(tmp_path):
    path = write(tmp_path / "t.csv.gz", rows_of([500])[0])
    data = path.read_bytes()
    for bad in (b"", b"x,s\n1,2\n", data[:-5], data[: len(data) // 2], data[:400] + bytes(9) + data[409:]):
        path.write_bytes(bad)
        error = refusal(path, WANTS, 3)
        assert type(error) is DataError
        assert "damaged" in str(error) or (not bad and "the file is empty" in str(error))
    path.write_bytes(data + gzip.compress(b"7,member\n"))
    assert read_all(path, WANTS, 2)["s"][-1] == "member"


def test_a_gzip_file_is_never_whole_in_memory(tmp_path, monkeypatch):
    import tracemalloc

    monkeypatch.setattr(gzip_csv, "BLOCK", 2**16)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"x,s\n" + b"".join(b"%d,%s\n" % (i, b"z" * 50) for i in range(100_000))))
    (opened,) = on_ranks(1, lambda world: open_data(path, world))
    tracemalloc.start()
    on_ranks(1, lambda world: opened.read({"x": "number"}).total)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * 2**16 + 100_000 < 5_000_000


def test_many_files_are_not_open_at_once(tmp_path, monkeypatch):
    files = []
    for i in range(40):
        np.save(tmp_path / f"{i:02}.npy", np.full((3, 2), float(i)))
        files.append(tmp_path / f"{i:02}.npy")
    now = []

    class Counted(io.FileIO):
        def __init__(self, path, *_, **__):
            super().__init__(path)
            now.append(1)

        def close(self):
            if not self.closed:
                now.pop()
            super().close()

    monkeypatch.setattr(source, "open", Counted, raising=False)
    (opened,) = on_ranks(1, lambda world: open_data(files, world))
    assert not now
    for _ in opened.read({"0": "number"}).chunks(0, 120, {"0": "number"}):
        assert len(now) == 1
    assert not now
