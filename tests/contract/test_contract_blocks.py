"""Blocks of rows: who holds which, with 64 bits (case D06)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixle_mpi.contract.blocks import balanced_rows, block_of, block_start, num_blocks, shard_rows, unit_range

counts = st.one_of(st.integers(0, 20000), st.integers(0, 10**12))


@pytest.mark.parametrize("n", [0, 1, 2, 100, 4095, 4096])
def test_up_to_4096_rows_each_is_a_block(n):
    assert num_blocks(n) == n
    assert [block_start(b, n) for b in range(n + 1)] == list(range(n + 1))


@settings(max_examples=200, deadline=None)
@given(st.integers(4097, 10**13))
def test_above_the_number_of_blocks_is_the_largest_power_of_two_not_above_n_over_32(n):
    blocks = num_blocks(n)
    assert blocks & (blocks - 1) == 0
    assert blocks <= n / 32 < 2 * blocks


@settings(max_examples=100, deadline=None)
@given(counts, st.integers(0, 2**40))
def test_blocks_differ_by_at_most_one_row(n, which):
    blocks = num_blocks(n)
    if blocks:
        b = which % blocks
        size = block_start(b + 1, n) - block_start(b, n)
        assert n // blocks <= size <= n // blocks + 1
    assert block_start(0, n) == 0 and block_start(blocks, n) == n


@settings(max_examples=200, deadline=None)
@given(counts, st.integers(1, 5000))
def test_every_row_is_in_exactly_one_shard(n, shards):
    ranges = [shard_rows(d, shards, n) for d in range(shards)]
    assert ranges[0][0] == 0 and ranges[-1][1] == n
    assert all(a <= b for a, b in ranges)
    assert all(left[1] == right[0] for left, right in pairwise(ranges))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 200000), st.integers(1, 64))
def test_shards_are_whole_blocks(n, shards):
    borders = {block_start(b, n) for b in range(num_blocks(n) + 1)} if n else {0}
    for d in range(shards):
        assert set(shard_rows(d, shards, n)) <= borders


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 300))
def test_units_are_dealt_evenly(units, shards):
    ranges = [unit_range(m, shards, units) for m in range(shards)]
    assert ranges[0][0] == 0 and ranges[-1][1] == units
    assert all(left[1] == right[0] for left, right in pairwise(ranges))
    assert max(b - a for a, b in ranges) - min(b - a for a, b in ranges) <= 1


def test_d06_three_billion_rows():
    n = 3_000_000_000
    ranges = [shard_rows(d, 3, n) for d in range(3)]
    assert sum(b - a for a, b in ranges) == n
    assert ranges[2][1] == n and ranges[2][0] > 2**30
    assert max(b - a for a, b in ranges) - min(b - a for a, b in ranges) <= 2 * 64
    assert num_blocks(n) == 2**26
    assert block_start(2**26 - 1, n) == n - 45


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10**12), st.integers(0, 2**60))
def test_a_row_is_in_its_block(n, which):
    row = which % n
    block = block_of(row, n)
    assert block_start(block, n) <= row < block_start(block + 1, n)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 9000), st.integers(1, 12), st.integers(0, 2**32))
def test_rows_are_balanced_by_their_work(n, shards, seed):
    work = np.random.default_rng(seed).integers(0, 1000, num_blocks(n))
    borders = balanced_rows(work, shards, n)
    assert borders[0] == 0 and borders[-1] == n and len(borders) == shards + 1
    assert all(a <= b for a, b in pairwise(borders))
    of = [int(work[block_of(a, n) : block_of(b - 1, n) + 1].sum()) if b > a else 0 for a, b in pairwise(borders)]
    assert sum(of) == work.sum()
    assert not n or max(of) <= work.sum() / shards + work.max()
