"""read_csv against python's csv module, on 1 to 8 ranks that are threads."""

import csv
import io
import pickle
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixle_mpi.data import csv as reader
from mixle_mpi.data import csv_rows, source
from mixle_mpi.data.csv import csv_head, read_csv
from mixle_mpi.data.csv_cells import DEFAULT
from mixle_mpi.data.csv_rows import Scan, cut, row_ends, scan
from mixle_mpi.data.held import agree_rows
from mixle_mpi.data.table import DataError, Fault, Labels, agree

SIZES = (1, 2, 3, 4, 8)
FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
current = threading.local()


class World:
    """A rank that is a thread. Objects are pickled, as by MPI; if a rank stays away, all fail."""

    def __init__(self, rank, size, slots, barrier):
        self.rank, self.size, self.slots, self.barrier = rank, size, slots, barrier

    def troubles(self, error):
        return self.allgather(error)

    def allgather(self, item):
        self.slots[self.rank] = pickle.dumps(item)
        self.barrier.wait(5)
        items = [pickle.loads(slot) for slot in self.slots]
        self.barrier.wait(5)
        return items


def on_ranks(size, work):
    """The results, or exceptions, of work(world) on `size` ranks."""
    slots, barrier, results = [None] * size, threading.Barrier(size), [None] * size

    def run(rank):
        current.rank = rank
        try:
            results[rank] = work(World(rank, size, slots, barrier))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def values_of(column):
    """A chunk's column as a list of python values, None where missing."""
    if isinstance(column, Labels):
        assert column.codes.dtype == np.int32
        return [None if code < 0 else column.levels[code] for code in column.codes]
    return [None if np.isnan(value) else value for value in column.tolist()]


def read_all(path, wants, size, chunk=65536, **options):
    """Every column of the file as a list, from `size` ranks that hold the rows in order."""
    tables = on_ranks(size, lambda world: read_csv(path, wants, world, **options))
    columns = {name: [] for name in wants}
    row = 0
    for table in tables:
        if isinstance(table, Exception):
            raise table
        assert not table.everywhere and table.first == row
        for start, part in table.chunks(row, row + table.rows, wants, chunk):
            assert start == row
            for name, column in part.items():
                values = values_of(column)
                assert 0 < len(values) <= chunk
                columns[name] += values
            row += len(values)
        assert row == table.first + table.rows
    assert {table.total for table in tables} == {row}
    return columns


def refusal(path, wants, size, **options):
    """The one error that all ranks raise."""
    errors = on_ranks(size, lambda world: read_csv(path, wants, world, **options))
    assert {type(error) for error in errors} == {type(errors[0])}
    assert {str(error) for error in errors} == {str(errors[0])}
    return errors[0]


cells = st.text(alphabet='ab,"\n\r é\ufeff;', max_size=5)


@st.composite
def files(draw):
    """(rows of cells with the header first, bytes of the file)."""
    width = draw(st.integers(1, 3))
    named = cells.filter(lambda cell: cell.strip("\r\n\ufeff"))
    header = draw(st.lists(named, min_size=width, max_size=width, unique=True))
    rows = draw(st.lists(st.lists(cells, min_size=width, max_size=width), max_size=12))
    newline = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    quote_all = draw(st.booleans())
    lines = []
    for row in [header, *rows]:
        line = ""
        for i, cell in enumerate(row):
            needed = set(cell) & set('",\r\n') or (width == 1 and not cell)
            if quote_all or needed or draw(st.booleans()):
                cell = '"' + cell.replace('"', '""') + '"'
            line += "," * (i > 0) + cell
        lines.append(line + newline * draw(st.sampled_from([1, 1, 1, 2, 3])))
    text = "".join(lines)
    if draw(st.booleans()):
        text = text.rstrip("\r\n")
    mark = draw(st.sampled_from(["", "\ufeff"]))
    if not mark and text.startswith("\ufeff"):
        mark = "\ufeff"  # without it the first character of the header would be the mark
    return [header, *rows], (mark + text).encode()


@FEW
@given(file=files(), block=st.integers(1, 60), chunk=st.integers(1, 5))
def test_each_row_once_and_in_order(file, block, chunk, tmp_path, monkeypatch):
    rows, data = file
    python = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""))
    assert [row for row in python if row] == rows
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    monkeypatch.setattr(reader, "BLOCK", block)
    assert csv_head(path).names == rows[0]
    wants = dict.fromkeys(rows[0], "text")
    expected = {name: [row[i] or None for row in rows[1:]] for i, name in enumerate(rows[0])}
    for size in SIZES:
        assert read_all(path, wants, size, chunk) == expected


@FEW
@given(
    rows=st.lists(
        st.tuples(st.floats(), st.integers(-(2**63), 2**63 - 1), st.text("xyz", max_size=2)),
        max_size=30,
    ),
    spaces=st.sampled_from(["", " ", "\t "]),
)
def test_numbers_are_exact(rows, spaces, tmp_path):
    path = tmp_path / "n.csv"
    lines = [f"{spaces}{x!r}{spaces};{spaces}{i}{spaces};{t}\n" for x, i, t in rows]
    path.write_text("x;i;t\n" + "".join(lines))
    expected = {
        "x": [None if np.isnan(x) else x for x, _, _ in rows],
        "i": [i for _, i, _ in rows],
        "t": [t or None for _, _, t in rows],
    }
    wants = {"t": "text", "x": "number", "i": "integer"}
    for size in (1, 3):
        assert read_all(path, wants, size, delimiter=";") == expected


def test_kinds_and_missing(tmp_path):
    path = tmp_path / "k.csv"
    path.write_text(
        'a,unused,b,c,unused\n1,x,3,3,\n ,"",,,\n"NA",,NA,"NA",\nNaN,, n/a ,nan,\n'
        '"2.5",,"4",x y,\n Infinity ,,+5, z,\n-inf,,-0,"""",\n+1e3,,007,N,\n1e999,,1,1,\n'
    )
    wants = {"a": "number", "b": "integer", "c": "text"}
    inf = np.inf
    for size in SIZES:
        columns = read_all(path, wants, size)
        assert columns["a"] == [1, None, None, None, 2.5, inf, -inf, 1000, inf]
        assert columns["b"] == [3, None, None, None, 4, 5, 0, 7, 1]
        assert columns["c"] == ["3", None, None, None, "x y", " z", '"', "N", "1"]
    assert read_all(path, {"c": "text"}, 2, missing=("N", "x y"))["c"][2:8] == [
        "NA", "nan", None, " z", '"', None,
    ]  # fmt: skip
    assert "" not in DEFAULT and "None" not in DEFAULT


def test_only_what_was_read_can_be_asked_for(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3,4\n")
    (table,) = on_ranks(1, lambda world: read_csv(path, {"a": "number"}, world))
    assert table.names == ("a", "b")
    ((row, part),) = table.chunks(1, 2, {"a": "number"})
    assert row == 1 and part["a"].tolist() == [3.0]
    for wants in ({"b": "number"}, {"a": "text"}):
        with pytest.raises(ValueError, match="asked for as"):
            list(table.chunks(0, 2, wants))
    with pytest.raises(ValueError, match="rows 0 to 3 were asked for"):
        list(table.chunks(0, 3, {"a": "number"}))
    table.close()
    with pytest.raises(ValueError, match="rows 0 to 2"):
        list(table.chunks(0, 2, {"a": "number"}))


@pytest.mark.parametrize("wants", [{}, {"a": "float"}])
def test_wants_are_checked(wants, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    assert "one column or more is needed" in str(refusal(path, wants, 2))


GOOD = "".join(f"{i},{i}.5,s{i % 3}\n" for i in range(17))
WANTS = {"id": "integer", "mass": "number", "sex": "text"}
REFUSALS = [
    ("id,mass,sex\n" + GOOD + "1,abc,x\n" + GOOD, "row 17, column 'mass': 'abc' is not a number"),
    ("id,mass,sex\n" + GOOD + "\n\n1.5,2,x\n" + GOOD, "row 17, column 'id': '1.5' is not an integer"),
    ("id,mass,sex\n" + GOOD + "9223372036854775808,2,x", "row 17, column 'id': '9223372036854775808'"),
    ("id,mass,sex\n" + GOOD + "1,2\n" + GOOD, "row 17 has 2 cells; the header has 3"),
    ("id,mass,sex\n" + GOOD + "1,2,3,4\nx,x,x\n", "row 17 has 4 cells; the header has 3"),
    ("id,mass,sex\n1,2\n1,x,2\n1,2,3,4\n", "row 0 has 2 cells"),
    ("id,mass,sex\n1,x,2\n1,2\n", "row 0, column 'mass': 'x'"),
    ("id,mass,sex\nx,1,2\n1,x,2\n", "row 0, column 'id': 'x'"),
    ("id,mass,sex\n1,1,2\n1,x,2\nx,1,2\n", "row 1, column 'mass': 'x'"),
    ("id,mass,sex\n" + GOOD + '1,2,"x\n' + GOOD, "row 17 has a quote that is never closed"),
    ("id,mass,sex\n" + GOOD + '1,2,5" pipe\n' + GOOD, "row 17 has a quote inside a cell that is not"),
    ("id,mass,sex\n" + GOOD + '1,2,5" or 6" pipe\n' + GOOD, "row 17 has a quote inside a cell that"),
    ("id,mass,sex\n" + GOOD + '1,2,"x\n' + GOOD + '1,2,"y"\n', "row 17 has a quote inside a cell"),
    ("id,mass,sex\n1,x,1\n" + GOOD + '1,2,"x\n' + GOOD, "row 0, column 'mass': 'x' is not a number"),
    (b"id,mass,sex\n" + GOOD.encode() + b"1,2,caf\xe9\n1,x,2\n", r"row 17, column 'sex': b'caf\\xe9' is not UTF-8"),
    (b"id,mass,sex\n" + GOOD.encode() + b"1,\xe9,x\n", r"row 17, column 'mass': b'\\xe9' is not UTF-8"),
    ("id,mas,sex\n" + GOOD, r"no column 'mass'; did you mean 'mas'\? The columns are 'id', 'mas', 'sex'"),
    ("i,j\n1,2\n", r"no column 'id'.* The columns are 'i', 'j'"),
    ("id,mass,sex,mass\n", "2 columns are called 'mass'"),
    ("", "the file is empty"),
    ("\r\n\n\ufeff"[:3], "the file is empty"),
    ("\ufeff\n", "the file is empty"),
    ('id,"mass', "the header has a quote that is never closed"),
    ('id,ma"ss,"\n', "the header has a quote"),
    (b"\xff\xfei\0d\0", "the header cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize("text, message", REFUSALS)
def test_all_ranks_refuse_alike(text, message, tmp_path, monkeypatch):
    path = tmp_path / "penguins.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    seen = set()
    for size, block in [(1, 2**20), (1, 16), (2, 2**20), (3, 16), (4, 2**20), (8, 16)]:
        monkeypatch.setattr(reader, "BLOCK", block)
        error = refusal(path, WANTS, size)
        assert type(error) is DataError
        seen.add(str(error))
    assert len(seen) == 1, "the message depends on the number of ranks or on the block size"
    message_seen = seen.pop()
    assert message_seen.startswith(str(path) + ": ")
    assert re.search(message, message_seen)


@FEW
@given(rows=st.integers(1, 40), data=st.data())
def test_row_of_a_bad_cell(rows, data, tmp_path):
    bad = data.draw(st.integers(0, rows - 1))
    lines = [f'{"oops" if i == bad else i},"{"x" * (i % 7)}\n"' for i in range(rows)]
    path = tmp_path / "b.csv"
    path.write_text("a,b\n" + "\n".join(lines))
    for size in SIZES:
        error = refusal(path, {"a": "number"}, size)
        says = f"{path}: row {bad}, column 'a': 'oops' is not a number; a column of labels wants categorical"
        assert str(error) == says


def test_long_rows_and_headers_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n1," + "x" * 300 + "\n")
    monkeypatch.setattr(reader, "BLOCK", 32)
    monkeypatch.setattr(csv_rows, "ROW_LIMIT", 200)
    for size in (1, 4):
        assert "row 1 is longer than 200 bytes" in str(refusal(path, {"a": "number"}, size))
    monkeypatch.setattr(csv_rows, "HEADER_LIMIT", 4096)
    path.write_text("a," * 5000 + "\n")
    assert "the header is longer" in str(refusal(path, {"a": "number"}, 2))


def test_header_longer_than_a_read(tmp_path):
    path = tmp_path / "t.csv"
    names = [f'c"{i}\n' for i in range(5000)]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    path.write_text(",".join(quoted) + "\n" + ",".join(map(str, range(5000))) + "\n")
    assert csv_head(path).names == names
    assert read_all(path, {names[4321]: "integer"}, 3) == {names[4321]: [4321]}


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n", "é"])
def test_delimiter_is_checked(delimiter, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    error = refusal(path, {"a": "number"}, 3, delimiter=delimiter)
    assert type(error) is ValueError and "is not one ASCII character" in str(error)


def test_missing_file(tmp_path):
    path = tmp_path / "none.csv"
    error = refusal(path, {"a": "number"}, 3)
    assert type(error) is FileNotFoundError
    assert str(path) in str(error) and "ranks" not in str(error)
    error = refusal(tmp_path, {"a": "number"}, 3)
    assert type(error) is IsADirectoryError


class Watched(io.FileIO):
    """A file that notes (rank, position, bytes) of every read, and fails a rank's reads on demand."""

    reads = []
    failing = None

    def readinto(self, buffer):
        if current.rank == self.failing:
            raise TimeoutError(110, "Connection timed out")
        self.reads.append((current.rank, self.tell(), len(buffer)))
        return super().readinto(buffer)


def test_one_rank_that_cannot_open_or_read(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "1\n" * 100)

    def guarded(path, mode, buffering):
        if current.rank in (2, 3):
            raise PermissionError(13, "Permission denied", path)
        return io.FileIO(path)

    monkeypatch.setattr(source, "open", guarded, raising=False)
    error = refusal(path, {"a": "number"}, 4)
    assert type(error) is PermissionError and error.filename == str(path)
    assert "Permission denied (on 2 of 4 ranks: 2, 3)" in str(error)

    monkeypatch.setattr(Watched, "failing", 1)
    monkeypatch.setattr(source, "open", lambda path, *_, **__: Watched(path), raising=False)
    error = refusal(path, {"a": "number"}, 4)
    assert type(error) is TimeoutError and error.filename == str(path)
    assert "(on 1 of 4 ranks: 1)" in str(error)


def test_ranks_that_see_different_files(tmp_path, monkeypatch):
    for name in "ab":
        (tmp_path / name).write_text("a\n" + name * 3)
    (tmp_path / "b").write_text("a\n1\n2\n")

    def opened(*_, **__):
        return io.FileIO(tmp_path / "ab"[current.rank])

    monkeypatch.setattr(source, "open", opened, raising=False)
    assert "ranks see different files, of [5, 6] bytes" in str(refusal("t", {"a": "number"}, 2))


def test_a_rank_reads_its_range_and_the_tail_of_a_row(tmp_path, monkeypatch):
    rows = [f'{i},"{"word, " * (i % 11)}\n{i}"\n' for i in range(3000)]
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "".join(rows))
    total, longest = path.stat().st_size - 4, max(map(len, rows))
    monkeypatch.setattr(reader, "BLOCK", 1000)
    monkeypatch.setattr(source, "open", lambda path, *_, **__: Watched(path), raising=False)
    for size in (2, 4, 7):
        monkeypatch.setattr(Watched, "reads", [])
        assert read_all(path, {"a": "integer"}, size)["a"] == list(range(3000))
        for rank in range(size):
            start, stop = (4 + total * r // size for r in (rank, rank + 1))
            header = 4096 if rank == 0 else 0
            mine = [(at, n) for who, at, n in Watched.reads if who == rank]
            assert min(at for at, _ in mine) >= (start - 1 if rank else 0)
            assert max(at + n for at, n in mine) <= stop + longest
            assert sum(n for _, n in mine) <= 2 * (stop - start) + longest + 1 + header


class Endless(io.RawIOBase):
    """A file of 2**36 bytes: a header of 16 and then rows of 16 bytes that hold their number."""

    size = 2**36
    position = 0

    def seek(self, offset, whence=0):
        self.position = offset + (self.size if whence == 2 else 0)
        return self.position

    def readinto(self, buffer):
        first, skip = divmod(self.position, 16)
        n = (skip + len(buffer)) // 16 + 1
        text = "".join(f"{'a' if row == 0 else row - 1:>15}\n" for row in range(first, first + n))
        buffer[:] = text.encode()[skip : skip + len(buffer)]
        self.position += len(buffer)
        return len(buffer)


class LoneWorld:
    """One rank of 2**18, with the answers that the others would give."""

    size = 2**18

    def __init__(self, rank):
        self.rank, self.calls = rank, 0

    def troubles(self, error):
        return self.allgather(error)

    def allgather(self, item):
        assert not isinstance(item, Exception), item
        self.calls += 1
        items = [item] * self.size
        if self.calls == 1:
            items = [[]] * self.size
            items[0] = [csv_head("endless")]
            assert self.rank > 0 and not item
        if self.calls == 2:
            share = Endless.size - 16
            starts = [16 + share * rank // self.size for rank in range(self.size)]
            borders = [-(-start // 16) * 16 for start in starts]
            items = [[(0, Scan(0, (border, None), (None, None), None))] for border in borders]
            assert items[self.rank] == item
        if self.calls == 3:
            items = [([(0, 2**14)], None)] * self.size
            items[0] = ([(0, 2**14 - 1)], None)
            assert items[self.rank] == item
        return items


def test_positions_and_rows_beyond_32_bits(monkeypatch):
    monkeypatch.setattr(source, "open", lambda *_, **__: Endless(), raising=False)
    world = LoneWorld(2**18 - 7)
    name = " " * 14 + "a"
    table = read_csv("endless", {name: "integer"}, world)
    assert table.total == 2**32 - 1
    ((row, part),) = table.chunks(table.first + 5, table.first + 7, {name: "integer"})
    assert row > 2**31 and values_of(part[name]) == [row, row + 1]


def test_cut_and_counts_beyond_32_bits():
    far = 2**40
    scans = [
        Scan(3, (9, 12), (None, 10), far - 5),
        Scan(0, (None, None), (None, None), None),
        Scan(1, (far + 5, far + 6), (None, None), 2 * far),
    ]
    assert cut(scans, 7, 3 * far) == ([7, far + 6, far + 6, 3 * far], None, csv_rows.UNCLOSED)
    assert cut(scans[:2], 7, far)[1] == far - 5

    def count(world):
        def work():
            if world.rank == 2:
                return [(1, 0)], Fault(1, " is bad")
            return [(world.rank // 2, 2**31)], None

        return agree_rows(world, work, ["p", "q"])

    text = f"q: row 1 (row {2**32 + 1} of all files) is bad"
    assert {str(error) for error in on_ranks(4, count)} == {text}
    seen = scan([(far, np.frombuffer(b'1,"\nx"\n2', np.uint8))], far, ord(","), ord(","))
    assert seen == Scan(2, (far + 7, far + 4), (None, far + 5), far + 5)


@given(st.binary(max_size=30).map(lambda data: bytes(b'a,"\n\r'[i % 5] for i in data)), st.booleans())
def test_row_ends(data, inside):
    ends, state = [], inside
    for i, byte in enumerate(data):
        state ^= byte == ord('"')
        if byte in b"\r\n" and not state:
            ends.append(i + 1)
    found, after = row_ends(np.frombuffer(data, np.uint8), inside)
    assert found.tolist() == ends and after == state


def test_the_lowest_error_wins():
    def work(world):
        def fail():
            if world.rank == 1:
                return [(0, 0)], Fault(0, " is bad")
            if world.rank > 1:
                raise OSError(5, "Input/output error", "f")
            return [(0, 10)], None

        return agree_rows(world, fail, ["p"])

    assert {str(error) for error in on_ranks(4, work)} == {"p: row 10 is bad"}
    results = on_ranks(3, lambda world: agree(world, lambda: 1 // (2 - world.rank)))
    assert {type(error) for error in results} == {ZeroDivisionError}


MEASURE = """
import sys, tracemalloc
import pyarrow
from mixle_mpi.data import csv

class World:
    rank, size = 0, 1
    def troubles(self, error):
        return self.allgather(error)

    def allgather(self, item):
        return [item]

csv.BLOCK = int(sys.argv[2])
wants = {"a": "number", "b": "text"}
csv.read_csv(sys.argv[3], wants, World())  # imports what it imports
tracemalloc.start()
table = csv.read_csv(sys.argv[1], wants, World())
print(table.total, tracemalloc.get_traced_memory()[1], pyarrow.default_memory_pool().max_memory())
"""


def test_peak_memory(tmp_path):
    # In a process of its own: arrow keeps the peak of the whole process.
    rows, block = 200_000, 2**18
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n" + "".join(f"{i}.25,group{i % 9},{'z' * 30}\n" for i in range(rows)))
    small = tmp_path / "small.csv"
    small.write_text("a,b\n1,x\n")
    root = str(Path(source.__file__).parents[2])
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, path, str(block), small],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    total, traced, arrow = map(int, run.stdout.split())
    columns = rows * (8 + 4)
    assert total == rows and path.stat().st_size > 3.5 * columns
    assert columns < traced + arrow < columns + 12 * block
