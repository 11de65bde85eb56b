"""Arrays in .npz files against numpy.load, on ranks that are threads."""

from __future__ import annotations

import tracemalloc
import zipfile

import numpy as np
import pytest
from ranks import Watched, on_ranks, read_all, refusal

from mixle_mpi.data import source
from mixle_mpi.data.open import open_data
from mixle_mpi.data.table import DataError

SAVE = {"stored": np.savez, "compressed": np.savez_compressed}


def kinds_of(*names):
    return dict.fromkeys(names, "number")


@pytest.mark.parametrize("save", SAVE)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("n", [0, 1, 57])
def test_one_array(save, order, n, tmp_path):
    x = np.asarray(np.random.default_rng(0).normal(size=(n, 3)), order=order)
    SAVE[save](tmp_path / "a.npz", x)
    for size in (1, 3):
        found = read_all(tmp_path / "a.npz", kinds_of("0", "2"), size, 10)
        assert found == {"0": x[:, 0].tolist(), "2": x[:, 2].tolist()}
    SAVE[save](tmp_path / "b.npz", mass=x[:, 1])
    assert read_all(tmp_path / "b.npz", kinds_of("mass"), 2) == {"mass": x[:, 1].tolist()}


@pytest.mark.parametrize("save", SAVE)
@pytest.mark.parametrize("order", "CF")
def test_several_arrays_are_columns(save, order, tmp_path):
    rng = np.random.default_rng(1)
    arrays = {
        "a": rng.normal(size=41).astype("f4"), "v": np.asarray(rng.normal(size=(41, 2)), order=order),
        "k": rng.integers(0, 5, 41), "s": np.array(["u", "", "w"])[rng.integers(0, 3, 41)],
    }  # fmt: skip
    SAVE[save](tmp_path / "t.npz", **arrays)
    wants = {"v[1]": "number", "a": "number", "k": "text", "s": "text", "v[0]": "number"}
    found = read_all(tmp_path / "t.npz", wants, 3, 7)
    assert found["a"] == arrays["a"].tolist() and found["k"] == arrays["k"].tolist()
    assert found["v[0]"] == arrays["v"][:, 0].tolist() and found["v[1]"] == arrays["v"][:, 1].tolist()
    assert found["s"] == [s or None for s in arrays["s"].tolist()]
    (opened,) = on_ranks(1, lambda world: open_data(tmp_path / "t.npz", world))
    assert opened.names == ("a", "v[0]", "v[1]", "k", "s")


def test_files_that_are_refused(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, a=np.zeros(3), b=np.zeros(4))
    assert "arrays of different lengths: {'a': 3, 'b': 4}" in str(refusal(path, kinds_of("a"), 3))
    np.savez(path, a=np.array([1, "x"], object))
    assert "Python objects, which are not unpickled" in str(refusal(path, kinds_of("a"), 3))
    np.savez(path, a=np.zeros((2, 2, 2)))
    assert "array 'a': shape (2, 2, 2)" in str(refusal(path, kinds_of("a"), 3))
    np.savez(path, a=np.zeros(2, "f8,f8"), b=np.zeros(2))
    assert "array 'a' has fields" in str(refusal(path, kinds_of("b"), 3))
    np.savez(path, a=np.zeros(2))
    assert "column 'a' is float64" not in str(refusal(path, kinds_of("b"), 2))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "hello")
    assert "array 'a.txt': not a .npy file" in str(refusal(path, kinds_of("a"), 3))
    with zipfile.ZipFile(path, "w"):
        pass
    assert "there is no array" in str(refusal(path, kinds_of("a"), 3))
    path.write_bytes(b"no zip file")
    error = refusal(path, kinds_of("a"), 3)
    assert type(error) is DataError and "not a .npz file, or damaged" in str(error)
    np.savez_compressed(path, a=np.random.default_rng(0).normal(size=5000))
    data = bytearray(path.read_bytes())
    data[20_000:20_400] = bytes(400)
    path.write_bytes(data)
    assert "not a .npz file, or damaged" in str(refusal(path, kinds_of("a"), 3))


def test_stored_arrays_are_read_by_ranges(tmp_path, monkeypatch):
    np.savez(tmp_path / "t.npz", a=np.arange(10_000.0), b=np.zeros(10_000))
    monkeypatch.setattr(source, "open", Watched, raising=False)
    monkeypatch.setattr(Watched, "reads", [])
    read_all(tmp_path / "t.npz", kinds_of("a"), 4)
    for rank in (1, 2, 3):  # rank 0 looks at the heads
        assert sum(n for who, *_, n in Watched.reads if who == rank) == 8 * 2500


@pytest.mark.parametrize("order", "CF")
def test_compressed_arrays_are_unpacked_in_pieces(order, tmp_path):
    np.savez_compressed(tmp_path / "t.npz", np.asarray(np.ones((400_000, 5)), order=order))
    (opened,) = on_ranks(1, lambda world: open_data(tmp_path / "t.npz", world))
    table = opened.read(kinds_of("1", "4"))
    tracemalloc.start()
    total = sum(part["4"].sum() for _, part in table.chunks(0, 400_000, kinds_of("1", "4"), 5000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 400_000 and peak < 6_000_000 < 8 * 2_000_000 / 2
