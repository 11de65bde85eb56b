"""The flat buffers: views cover them exactly once, and bounds have segments of their own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixle_mpi.contract.cuts import ALONE, EVERYONE, Groups, Holders
from mixle_mpi.contract.fields import Combine
from mixle_mpi.contract.layout import Layout, Matrix


def matrix(name, rows, params, stats, alone=None, total=None):
    rows = np.array(rows, dtype=np.int64)
    held = np.full(len(rows), ALONE) if alone is None else np.where(alone, ALONE, EVERYONE)
    return Matrix(name, rows, total or len(rows), Holders(held, Groups(2)), params, stats)


SUM, MIN, MAX = Combine.SUM, Combine.MIN, Combine.MAX
TOY = [
    matrix("a", [0, 1, 2], {"mean": (), "cov": (2, 2)}, {"w": (SUM, ()), "low": (MIN, (2,)), "s": (SUM, (3,))}),
    matrix("empty", [], {"rate": ()}, {"w": (SUM, ())}),
    matrix("b", [4, 7], {"p": (3,)}, {"high": (MAX, ()), "low": (MIN, ()), "w": (SUM, ())}, [True, False], 9),
    matrix("counts only", [0], {}, {"w": (SUM, ())}),
]


def flat(views):
    return [v for fields in views.values() for v in fields.values()]


def test_sizes_and_segments():
    layout = Layout(TOY)
    assert layout.num_params == 3 * 5 + 2 * 3
    assert layout.segments == {SUM: slice(0, 15), MIN: slice(15, 23), MAX: slice(23, 25)}
    assert layout.num_stats == 25


def covers_once(vector, views):
    for number, view in enumerate(flat(views)):
        assert view.size == 0 or np.shares_memory(view, vector)
        assert np.isnan(view).all(), "no view overlaps one before it"
        view[...] = number
    assert not np.isnan(vector).any(), "all of the buffer belongs to a view"


def test_views_cover_the_buffers_exactly_once():
    layout = Layout(TOY)
    params, stats = np.full(layout.num_params, np.nan), np.full(layout.num_stats, np.nan)
    covers_once(params, layout.param_views(params))
    covers_once(stats, layout.stat_views(stats))


def test_statistics_of_no_rows():
    layout = Layout(TOY)
    stats = layout.empty_stats()
    views = layout.stat_views(stats)
    assert (views["a"]["w"] == 0).all() and (views["a"]["s"] == 0).all()
    assert (views["a"]["low"] == np.inf).all() and (views["b"]["low"] == np.inf).all()
    assert (views["b"]["high"] == -np.inf).all()
    stats[:] = 7.0
    layout.clear(stats)
    assert np.array_equal(stats, layout.empty_stats())


def test_rows_of_a_matrix_are_contiguous():
    layout = Layout(TOY)
    vector = np.arange(layout.num_params, dtype=float)
    rows = layout.param_rows(vector, "a")
    assert rows.shape == (3, 5) and rows.flags.c_contiguous
    assert np.array_equal(rows[1], [5, 6, 7, 8, 9])
    views = layout.param_views(vector)["a"]
    assert views["mean"][1] == 5 and np.array_equal(views["cov"][1], [[6, 7], [8, 9]])


def test_two_matrices_of_one_name_are_refused():
    with pytest.raises(ValueError, match="'a'"):
        Layout([TOY[0], TOY[0]])


shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)
fields = st.dictionaries(st.sampled_from("pqrs"), shapes, max_size=3)
stat_fields = st.dictionaries(st.sampled_from("tuvw"), st.tuples(st.sampled_from(list(Combine)), shapes), max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), fields, stat_fields), max_size=4))
def test_any_layout_covers_its_buffers_once(parts):
    layout = Layout([matrix(f"m{i}", range(n), p, s) for i, (n, p, s) in enumerate(parts)])
    params, stats = np.full(layout.num_params, np.nan), np.full(layout.num_stats, np.nan)
    covers_once(params, layout.param_views(params))
    covers_once(stats, layout.stat_views(stats))
    assert sum(s.stop - s.start for s in layout.segments.values()) == layout.num_stats
