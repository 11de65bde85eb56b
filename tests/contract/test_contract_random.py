"""Keyed random numbers: uniform, and the same whoever draws them in whatever order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mixle_mpi.contract.random import keyed_generator, keyed_uniform, stream

ROWS = np.arange(20000, dtype=np.int64)


@pytest.mark.parametrize(
    "seed, purpose, numbers", [(0, "start", ()), (1, "start", ()), (-5, "sample", (3,)), (2**70, "x", (1, 2))]
)
def test_uniform(seed, purpose, numbers):
    u = keyed_uniform(seed, purpose, ROWS, *numbers)
    assert u.min() > 0 and u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 5 / np.sqrt(len(u))
    pairs = np.histogram2d(u[::2], u[1::2], bins=8)[0].ravel()
    assert stats.chisquare(pairs).pvalue > 1e-3


def test_rows_far_apart_and_beyond_32_bits():
    far = keyed_uniform(0, "start", ROWS * 2**33)
    assert stats.kstest(far, "uniform").pvalue > 1e-3
    assert not np.isin(far[1:], keyed_uniform(0, "start", ROWS)).any()


def test_a_draw_depends_on_its_row_alone():
    whole = keyed_uniform(7, "start", ROWS)
    order = np.random.default_rng(0).permutation(len(ROWS))
    assert np.array_equal(keyed_uniform(7, "start", ROWS[order]), whole[order])
    parts = [keyed_uniform(7, "start", ROWS[a:b]) for a, b in ((0, 1), (1, 777), (777, 777), (777, 20000))]
    assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("other", [(8, "start", ()), (7, "sample", ()), (7, "start", (0,)), (7, "start", (1,))])
def test_streams_are_independent(other):
    seed, purpose, numbers = other
    a, b = keyed_uniform(7, "start", ROWS), keyed_uniform(seed, purpose, ROWS, *numbers)
    assert not (a == b).any()
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(len(a))


def test_keys_do_not_change_between_versions():
    assert stream(0, "start").dtype == np.uint64
    assert int(stream(0, "start")[0]) == 11256512931124914588
    u = keyed_uniform(3, "start", np.array([0, 1, 2**40]))
    assert [v.hex() for v in u.tolist()] == ["0x1.c896714bdbe9ep-3", "0x1.10b95818ece49p-2", "0x1.f360a7001d274p-1"]
    a = keyed_generator(3, "sample").random(5)
    assert np.array_equal(a, keyed_generator(3, "sample").random(5))
    assert not np.array_equal(a, keyed_generator(4, "sample").random(5))
    assert not np.array_equal(a, keyed_generator(3, "sample", 1).random(5))
