"""Sparse matrices in .npz files: what is read by which rank, in how much memory, and what is refused."""

from __future__ import annotations

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
from ranks import Watched, on_ranks, refusal
from unigram import Unigram

from mixle_mpi import Gaussian, Record, optimize
from mixle_mpi.contract.columns import BAG
from mixle_mpi.contract.errors import DataError, ModelError
from mixle_mpi.data import source, sparse_npz
from mixle_mpi.data.open import open_data
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load

WANTS = {"word": "sequence of number", "count": "sequence of number"}


def matrix(n, words, per, seed=0):
    """Documents of `per` words each, of which the first is longer and the second empty."""
    rng = np.random.default_rng(seed)
    lengths = np.full(n, per)
    lengths[:2] = 3 * per, 0
    entries = int(lengths.sum())
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    words_of, counts = rng.integers(0, words, entries).astype(np.int32), rng.integers(1, 9, entries)
    return sp.csr_array((counts, words_of, offsets.astype(np.int32)), shape=(n, words))


def arrays_of(x, **changed):
    """The arrays of a csr file, some of them changed."""
    found = {"format": np.array(b"csr"), "shape": np.array(x.shape), "data": x.data, "indices": x.indices,
             "indptr": x.indptr}  # fmt: skip
    return {name: array for name, array in (found | changed).items() if array is not None}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_pieces_are_whole_rows(compressed, size, tmp_path, monkeypatch):
    monkeypatch.setattr(sparse_npz, "BLOCK", 50)
    monkeypatch.setattr(sparse_npz, "ROWS", 7)
    x = matrix(61, 30, 6)
    sp.save_npz(tmp_path / "x.npz", x, compressed=compressed)

    def work(world):
        table = open_data(tmp_path / "x.npz", world).read(WANTS)
        assert table.names == ("word", "count") and table.total == 61 and table.steps("word") == x.nnz
        start, stop = 61 * world.rank // size, 61 * (world.rank + 1) // size
        found, at = [], start
        for first, part in table.chunks(start, stop, WANTS, 4):
            word, count = part["word"], part["count"]
            assert first == at and len(word) <= 4 and np.array_equal(word.offsets, count.offsets)
            assert len(word.values) <= 50 or len(word) == 1
            found += list(zip(np.split(word.values, word.offsets[1:-1]), np.split(count.values, word.offsets[1:-1])))
            at += len(word)
        assert at == stop
        return found

    rows = [row for part in on_ranks(size, work) for row in part]
    assert len(rows) == 61
    for i, (words, counts) in enumerate(rows):
        own = slice(x.indptr[i], x.indptr[i + 1])
        assert words.tolist() == x.indices[own].tolist() and counts.tolist() == x.data[own].tolist()


def test_stored_rows_are_read_by_those_who_need_them(tmp_path, monkeypatch):
    x = matrix(4000, 100, 10)
    sp.save_npz(tmp_path / "x.npz", x, compressed=False)
    monkeypatch.setattr(source, "open", Watched, raising=False)
    monkeypatch.setattr(Watched, "reads", [])

    def work(world):
        table = open_data(tmp_path / "x.npz", world).read(WANTS)
        return list(table.chunks(1000 * world.rank, 1000 * (world.rank + 1), WANTS)) and None

    assert on_ranks(4, work) == [None] * 4
    for rank in (1, 2, 3):  # rank 0 looks at the heads
        read = sum(n for who, *_, n in Watched.reads if who == rank)
        assert read == 1001 * x.indptr.itemsize + 10_000 * (x.indices.itemsize + 8)


@pytest.mark.parametrize("compressed", [False, True])
def test_memory_is_that_of_a_piece(compressed, tmp_path, monkeypatch):
    monkeypatch.setattr(sparse_npz, "BLOCK", 2**14)
    x = matrix(40_000, 1000, 25)
    sp.save_npz(tmp_path / "x.npz", x, compressed=compressed)
    (opened,) = on_ranks(1, lambda world: open_data(tmp_path / "x.npz", world))
    table = opened.read(WANTS)
    tracemalloc.start()
    total = sum(part["count"].values.sum() for _, part in table.chunks(20_000, 40_000, WANTS))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == x[20_000:].sum()
    assert peak < 6_000_000 < x.data.nbytes + x.indices.nbytes


def test_columns_of_matrices_beside_none(tmp_path):
    sp.save_npz(tmp_path / "x.npz", matrix(9, 5, 3))
    found = load(tmp_path / "x.npz", Unigram(5), serial_grid())
    assert list(found.rows.sequences) == ["word" + BAG]
    with pytest.raises(ModelError, match="no column 'age'"):
        optimize(tmp_path / "x.npz", Record(word=Unigram(5), age=Gaussian()))
    with pytest.raises(DataError, match="column 'word' holds sequences"):
        optimize(tmp_path / "x.npz", Record(word=Gaussian()))


def test_plain_arrays_of_these_names_are_columns(tmp_path):
    arrays = {"format": np.arange(4.0), "shape": np.ones(4), "data": np.arange(4.0) ** 2, "indptr": np.zeros(4)}
    np.savez(tmp_path / "x.npz", **arrays)
    found = load(tmp_path / "x.npz", Record(data=Gaussian(), format=Gaussian()), serial_grid())
    assert found.total == 4 and not found.rows.sequences
    np.savez(tmp_path / "y.npz", data=np.arange(3.0), shape=np.arange(3.0))
    assert load(tmp_path / "y.npz", Record(data=Gaussian()), serial_grid()).total == 3
    sp.save_npz(tmp_path / "z.npz", matrix(4, 3, 2))
    with pytest.raises(DataError, match=r"z.npz: its columns are not those of .*x.npz"):
        load([tmp_path / "x.npz", tmp_path / "z.npz"], Record(data=Gaussian()), serial_grid())
    with pytest.raises(DataError, match=r"column 'data' cannot hold sequences in a .npz file"):
        load(tmp_path / "x.npz", Record(data=Unigram(5)), serial_grid())


X = matrix(6, 5, 3)
FALLS, BEYOND, BEFORE = X.indptr.copy(), X.indptr.copy(), X.indptr.copy()
FALLS[3], BEYOND[-1], BEFORE[0] = 2, 99, 1
OUT_OF_RANGE, NEGATIVE = X.indices.copy(), X.indices.copy()
OUT_OF_RANGE[10], NEGATIVE[20] = 5, -1
DAMAGED = {
    "indptr length": ({"indptr": X.indptr[:-1]}, "array 'indptr' has 6 values, not 7: 'shape' says 6 rows"),
    "indices length": ({"indices": X.indices[:-1]}, "array 'indices' has 20 values, 'data' 21"),
    "no indices": ({"indices": None}, "there is no array 'indices', which a sparse matrix of format csr has"),
    "falls": ({"indptr": FALLS}, "row 2, array 'indptr': its entries are said to be 9 to 2 of 21"),
    "beyond": ({"indptr": BEYOND}, "row 5, array 'indptr': its entries are said to be 18 to 99 of 21"),
    "before": ({"indptr": BEFORE}, "row 0, array 'indptr': its entries are said to be 1 to 9 of 21"),
    "range": ({"indices": OUT_OF_RANGE}, "row 2, array 'indices': 5 is no column of 5"),
    "negative": ({"indices": NEGATIVE}, "row 5, array 'indices': -1 is no column of 5"),
    "shape": ({"shape": np.array([6])}, "array 'shape': [6] is not the shape of documents x words"),
    "shape of floats": ({"shape": np.array([6.0, 5])}, "array 'shape': [6.0, 5.0] is not the shape of documents x "
                        "words"),
    "format": ({"format": np.array(b"xyz")}, "array 'format': 'xyz' is no format that is read: csr, csc, coo, bsr, "
               "dia"),
    "object format": ({"format": np.array("csr", object)}, "array 'format': Object arrays cannot be loaded when "
                      "allow_pickle=False"),
    "objects": ({"data": X.data.astype(object)}, "array 'data': the array holds Python objects, which are not "
                "unpickled"),
    "complex": ({"data": X.data * 1j}, "array 'data' is of complex128, not of counts"),
    "float indices": ({"indices": X.indices * 1.0}, "array 'indices' is of float64, not of integers"),
    "text": ({"data": X.data.astype(str)}, f"array 'data' is of {X.data.astype(str).dtype}, not of counts"),
    "two dimensions": ({"data": X.data[:, None]}, "array 'data' has shape (21, 1), not one dimension"),
}  # fmt: skip


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("name", DAMAGED)
def test_inconsistent_matrices_are_refused(name, save, tmp_path):
    changed, message = DAMAGED[name]
    path = tmp_path / "x.npz"
    save(path, **arrays_of(X, **changed))
    for size in (1, 3):
        error = refusal(path, WANTS, size)
        assert type(error) is DataError and str(error) == f"{path}: {message}"


@pytest.mark.parametrize("kind", ["csc", "coo", "bsr", "dia"])
def test_other_formats_that_are_damaged(kind, tmp_path):
    path = tmp_path / "x.npz"
    sp.save_npz(path, getattr(X, f"to{kind}")())
    with np.load(path) as arrays:
        good = dict(arrays)
    for changed in ({"data": good["data"].astype(object)}, {"data": good["data"][:-1]}, {"shape": np.array([2, 2])}):
        np.savez(path, **(good | changed))
        if kind == "dia" and "shape" in changed:  # diagonals may leave the matrix
            continue
        error = refusal(path, WANTS, 2)
        assert type(error) is DataError and str(error).startswith(f"{path}: not a sparse matrix of format {kind}: ")
    np.savez(path, **{name: array for name, array in good.items() if name not in ("indices", "row", "offsets")})
    assert str(refusal(path, WANTS, 2)).startswith(f"{path}: not a sparse matrix of format {kind}: ")


def test_damaged_zip_files(tmp_path):
    path, x = tmp_path / "x.npz", matrix(3000, 5000, 10)
    sp.save_npz(path, x)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes(400)
    path.write_bytes(data)
    assert "not a .npz file, or damaged" in str(refusal(path, WANTS, 3))
    sp.save_npz(path, x, compressed=False)
    path.write_bytes(path.read_bytes()[:-2000])
    assert "not a .npz file, or damaged" in str(refusal(path, WANTS, 3))
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays_of(x).items():
            whole = io.BytesIO()
            np.save(whole, array)
            archive.writestr(f"{name}.npy", whole.getvalue()[:-8] if name == "indices" else whole.getvalue())
    error = str(refusal(path, WANTS, 3))
    assert error.startswith(f"{path}: array 'indices': shape (30010,) of int32 takes") and "the file has" in error
