"""Tiles, and the row sets that nodes pick from them."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.tile import Tile
from mixle_mpi.data.encode import EncodedRows

X = np.arange(40.0).reshape(2, 20)


def tile(start=3, stop=13):
    made = Tile(EncodedRows(1000, 20, {"x": X, "flag": X[0] % 3 == 0}))
    made.move(start, stop)
    return made


def test_a_tile_is_a_range_of_rows():
    t = tile()
    assert t.n == 10
    assert np.array_equal(t.column("x"), X[:, 3:13])
    assert t.column("nothing") is None
    assert t.global_rows.tolist() == list(range(1003, 1013))


def test_row_sets_nest():
    t = tile()
    t.labels = {1: np.arange(10, dtype=np.int32)}
    some = t.subset("owner", np.array([0, 4, 9]))
    assert some.n == 3
    assert np.array_equal(some.column("x"), X[:, [3, 7, 12]])
    assert some.global_rows.tolist() == [1003, 1007, 1012]
    assert some.labels[1].tolist() == [0, 4, 9]
    fewer = some.subset("inner", np.array([2]))
    assert fewer.global_rows.tolist() == [1012]
    assert fewer.labels[1].tolist() == [9]
    none = some.subset("other", np.empty(0, int))
    assert none.n == 0 and none.column("x").shape == (2, 0)


def test_a_row_set_that_was_scored_is_kept_until_the_tile_moves():
    owner, t = object(), tile()
    scored = t.subset(owner, np.array([1, 2]))
    scored.saved[5] = ["what score left"]
    assert t.row_set(owner, np.array([1, 2])) is scored
    assert t.row_set(owner, np.array([1, 2])).saved[5] == ["what score left"]
    t.move(13, 20)
    again = t.row_set(owner, np.array([0]))
    assert again.global_rows.tolist() == [1013]
    t.move(13, 20)  # the same range once more, with another row set
    assert t.row_set(owner, np.array([3])).global_rows.tolist() == [1016]


def test_scratch_is_kept_by_owner_and_name_and_is_contiguous():
    a, b, t = object(), object(), tile()
    first = t.array(a, "scores", 4, 10)
    first[:] = 1.0
    assert np.shares_memory(first, t.array(a, "scores", 4, 10))
    assert np.shares_memory(first, t.array(a, "scores", 2, 5))
    assert not np.shares_memory(first, t.array(a, "other", 4, 10))
    assert not np.shares_memory(first, t.array(b, "scores", 4, 10))
    assert t.array(a, "scores", 3, 7).flags.c_contiguous
    assert t.array(a, "scores", 40, 10).shape == (40, 10)
    assert t.array(a, "labels", 3, dtype=np.int32).dtype == np.int32


def test_what_comes_from_the_rows_alone_is_made_once_a_move():
    owner, t = object(), tile()
    assert [t.first_time(owner), t.first_time(owner)] == [True, False]
    assert t.first_time(object())
    t.move(0, 5)
    assert t.first_time(owner)
    inside = t.subset(owner, np.array([1]))
    assert inside.first_time(owner)
    t.move(5, 9)
    assert t.subset(owner, np.array([0])).first_time(owner)


def test_captured_reaches_row_sets_that_exist_already():
    owner, t = object(), tile()
    inside = t.subset(owner, np.array([1]))
    t.captured[9] = None
    assert 9 in inside.captured
