"""open_npy against numpy.load, on ranks that are threads."""

import io
import threading
import tracemalloc

import numpy as np
import pytest

from mixle_mpi.data import npy as reader
from mixle_mpi.data.npy import open_npy
from mixle_mpi.data.table import DataError, Labels

NUMBERS = ["f8", "f4", "f2", ">f8", ">f4", "i8", "i4", "i1", ">i2", "u8", "u1", "?"]


class World:
    """A rank that is a thread; if a rank stays away, all fail."""

    def __init__(self, rank, size, slots, barrier):
        self.rank, self.size, self.slots, self.barrier = rank, size, slots, barrier

    def troubles(self, error):
        return self.allgather(error)

    def allgather(self, item):
        self.slots[self.rank] = item
        self.barrier.wait(5)
        items = list(self.slots)
        self.barrier.wait(5)
        return items


def on_ranks(size, work):
    """The results, or exceptions, of work(world) on `size` ranks."""
    slots, barrier, results = [None] * size, threading.Barrier(size), [None] * size

    def run(rank):
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


def refusal(path, size=3):
    """The one error that all ranks raise."""
    errors = on_ranks(size, lambda world: open_npy(path, world))
    assert {type(error) for error in errors} == {DataError}
    assert {str(error) for error in errors} == {str(errors[0])}
    return str(errors[0])


def opened(path):
    (table,) = on_ranks(1, lambda world: open_npy(path, world))
    if isinstance(table, Exception):
        raise table
    return table


def saved(tmp_path, array, name="a.npy"):
    np.save(tmp_path / name, array)
    return tmp_path / name


def labels_of(column):
    assert isinstance(column, Labels) and column.codes.dtype == np.int32
    assert len(set(column.levels)) == len(column.levels)
    return [None if code < 0 else column.levels[code] for code in column.codes]


def example(dtype, shape):
    rng = np.random.default_rng(5)
    array = (rng.normal(size=shape) * 50).astype(dtype)
    if array.dtype.kind == "f":
        array[rng.random(shape) < 0.2] = np.nan
    return array


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("shape", [(23,), (23, 4), (23, 1), (1, 5), (0,), (0, 3)])
def test_numbers_are_those_of_numpy_load(dtype, order, shape, tmp_path, monkeypatch):
    path = saved(tmp_path, np.asarray(example(dtype, shape), order=order))
    expected = np.load(path)
    if len(shape) == 1:
        expected = expected[:, None]
    target = np.float32 if np.dtype(dtype).str[1:] == "f4" else np.float64
    names = [str(i) for i in range(expected.shape[1])]
    monkeypatch.setattr(reader, "PIECE", 50)
    for table in on_ranks(2, lambda world: open_npy(path, world)):
        assert table.names == tuple(names) and table.everywhere
        assert (table.first, table.rows, table.total) == (0, shape[0], shape[0])
        for wants in (names, names[::-1][:2]):
            for start, size in [(0, 7), (0, 65536), (shape[0] // 2, 1)]:
                row, stop = start, shape[0]
                kinds = dict.fromkeys(wants, "number")
                for at, part in table.chunks(start, stop, kinds, size):
                    assert at == row and list(part) == wants
                    row = min(row + size, stop)
                    for name, values in part.items():
                        assert values.dtype == target and values.dtype.isnative
                        np.testing.assert_array_equal(values, expected[at:row, int(name)])
                assert row == stop
        table.close()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_structured(version, tmp_path):
    fields = [("mass", "<f4"), ("größe", ">i2"), ("sex", "U6"), ("code", "S3"), ("alive", "?")]
    if version != (3, 0):
        fields[1] = ("grosse", ">i2")
    array = np.zeros(5, fields)
    array["mass"] = [1.5, np.nan, 3, 4, 5]
    array[fields[1][0]] = [3, -7, 3, 0, 3]
    array["sex"] = ["male", "", "femalé", "male", "x"]
    array["code"] = ["é".encode(), b"b", b"b", b"", b"\xc3\xa9"]
    array["alive"] = [True, False, True, True, False]
    path = tmp_path / "s.npy"
    with open(path, "wb") as file:
        np.lib.format.write_array(file, array, version)
    table = opened(path)
    assert table.names == tuple(name for name, _ in fields)
    whole = fields[1][0]
    wants = {"mass": "number", whole: "integer", "sex": "text", "code": "text", "alive": "number"}
    ((_, part),) = table.chunks(0, 5, wants)
    np.testing.assert_array_equal(part["mass"], np.float32([1.5, np.nan, 3, 4, 5]))
    assert part["mass"].dtype == np.float32
    assert labels_of(part[whole]) == [3, -7, 3, 0, 3]
    assert labels_of(part["sex"]) == ["male", None, "femalé", "male", "x"]
    assert labels_of(part["code"]) == ["é", "b", "b", None, "é"]
    assert part["alive"].tolist() == [1, 0, 1, 1, 0]
    ((row, part),) = table.chunks(1, 3, {"alive": "text", whole: "text"})
    assert row == 1
    assert labels_of(part["alive"]) == [False, True] and labels_of(part[whole]) == [-7, 3]


def test_whole_floats_can_be_labels(tmp_path):
    array = np.array([[0.5, 3.0], [1.5, np.nan], [2.5, -1.0], [np.inf, 3.0]])
    table = opened(saved(tmp_path, array))
    ((_, part),) = table.chunks(0, 4, {"1": "integer"})
    assert labels_of(part["1"]) == [3, None, -1, 3]
    assert all(type(level) is int for level in part["1"].levels)
    with pytest.raises(DataError, match="row 3, column '0': inf is not an integer"):
        list(table.chunks(3, 4, {"0": "integer"}))
    with pytest.raises(DataError, match="row 1, column '0': 1.5 is not an integer"):
        list(table.chunks(1, 2, {"0": "integer"}))


def test_kinds_that_do_not_fit(tmp_path):
    table = opened(saved(tmp_path, np.array([(1.0, "a", b"\xff", 1j)], "f8,U1,S1,c16")))
    for wants in ({"f1": "number"}, {"f1": "integer"}, {"f3": "number"}):
        with pytest.raises(DataError, match="cannot be read as"):
            list(table.chunks(0, 0, wants))
    with pytest.raises(DataError, match=r"row 0, column 'f2': b'\\xff' is not UTF-8"):
        list(table.chunks(0, 1, {"f2": "text"}))
    with pytest.raises(DataError, match="no column 'f00'; did you mean 'f0'"):
        list(table.chunks(0, 1, {"f00": "number"}))
    with pytest.raises(ValueError, match="rows 0 to 2 were asked for"):
        list(table.chunks(0, 2, {"f0": "number"}))


class Trap:
    """An object that must not be unpickled."""

    def __reduce__(self):
        return pytest.fail, ("unpickled",)


@pytest.mark.parametrize(
    "array, message",
    [
        (np.array([Trap(), 1], object), "the array holds Python objects"),
        (np.zeros(2, [("a", "f8"), ("b", object)]), "the array holds Python objects"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\) of float64 is not a table"),
        (np.float64(1), r"shape \(\) of float64 is not a table"),
        (np.zeros((2, 2), "f8,f8"), "is not a table"),
        (np.zeros(2, [("a", "f8", (3,))]), "field 'a' is .*; a field must be one value"),
        (np.zeros(2, [("a", [("b", "f8")])]), "field 'a' is .*; a field must be one value"),
    ],
)
def test_arrays_that_are_no_tables(array, message, tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, array, allow_pickle=True)
    text = refusal(path)
    assert text.startswith(f"{path}: ")
    with pytest.raises(DataError, match=message):
        raise DataError(text)


def test_truncated(tmp_path):
    path = saved(tmp_path, np.zeros((10, 3)))
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert f"takes {len(data)} bytes; the file has {len(data) - 1}" in refusal(path)
    for end in (0, 5, 9, 40):
        path.write_bytes(data[:end])
        assert "not a .npy file" in refusal(path)
    path.write_bytes(b"PK\3\4" + data)
    assert "not a .npy file" in refusal(path)
    path.write_bytes(data[:6] + b"\7" + data[7:])
    assert "not a .npy file" in refusal(path)


def test_file_that_shrinks_while_open(tmp_path):
    path = saved(tmp_path, np.zeros(1000))
    table = opened(path)
    table.source.open()
    path.write_bytes(path.read_bytes()[:4000])
    with pytest.raises(DataError, match="byte 4000 is missing; the file had 8128 bytes"):
        list(table.chunks(0, 1000, {"0": "number"}))
    table.close()
    with pytest.raises(DataError, match=r"ranks see different files, of \[4000, 8128\] bytes"):
        list(table.chunks(0, 1000, {"0": "number"}))


def test_missing_file(tmp_path):
    errors = on_ranks(3, lambda world: open_npy(tmp_path / "none.npy", world))
    assert {type(error) for error in errors} == {FileNotFoundError}


@pytest.mark.parametrize("order", "CF")
def test_rows_beyond_32_bits(order, tmp_path):
    # 3 * 2**31 values in a file of holes: only the header and the last row are written.
    rows = 2**31
    path = tmp_path / "big.npy"
    header = {"descr": "|i1", "fortran_order": order == "F", "shape": (rows, 3)}
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        offset = file.tell()
        for column in range(3):
            last = column * rows + rows - 1 if order == "F" else 3 * rows - 3 + column
            file.seek(offset + last)
            file.write(bytes([column + 1]))
    assert path.stat().st_blocks * 512 < 2**20
    table = opened(path)
    assert table.total == rows
    ((row, part),) = table.chunks(rows - 2, rows, {"0": "number", "2": "number"})
    assert row == rows - 2
    assert part["0"].tolist() == [0, 1] and part["2"].tolist() == [0, 3]


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_memory_is_that_of_a_chunk(order, dtype, tmp_path, monkeypatch):
    rows, columns, size = 20_000, 40, 1000
    path = saved(tmp_path, np.asarray(np.ones((rows, columns), dtype), order=order))
    piece = 2**16
    monkeypatch.setattr(reader, "PIECE", piece)
    table = opened(path)
    tracemalloc.start()
    total = 0.0
    for _, part in table.chunks(0, rows, {"3": "number", "39": "number"}, size):
        total += part["3"].sum() + part["39"].sum()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 2 * rows
    assert peak < piece + 2 * 4 * 8 * size + 20_000 < path.stat().st_size / 10


def test_only_the_wanted_bytes_of_a_column_are_read(tmp_path):
    path = saved(tmp_path, np.asfortranarray(np.arange(3000.0).reshape(1000, 3)))
    reads = []

    class Watched(io.FileIO):
        def readinto(self, buffer):
            reads.append((self.tell(), len(buffer)))
            return super().readinto(buffer)

    table = opened(path)
    table.source.file = Watched(path)
    ((_, part),) = table.chunks(10, 20, {"2": "number"})
    assert part["2"].tolist() == [3 * row + 2 for row in range(10, 20)]
    assert reads == [(128 + 8 * 2010, 80)]
