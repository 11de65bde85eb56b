"""The linear partition problem, against all partitions."""

from __future__ import annotations

import itertools
import math
import random
from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixle_mpi import Categorical, Gaussian, Mixture, MultivariateGaussian, Poisson, Record
from mixle_mpi.contract.blocks import num_blocks, shard_rows
from mixle_mpi.planning.partition import partition
from mixle_mpi.planning.paths import cuts_of
from mixle_mpi.planning.profile import profile_of
from mixle_mpi.planning.rows import busiest_rows, deal_rows, least_busiest_rows
from mixle_mpi.planning.shards import Job, Shards


def slowest(loads, speeds, bounds) -> float:
    return max(sum(loads[a:b]) / s for (a, b), s in zip(pairwise(bounds), speeds))


def sizes(bounds) -> list[int]:
    return [b - a for a, b in pairwise(bounds)]


def best(loads, speeds, least=1) -> float:
    cuts = combinations_with_replacement(range(len(loads) + 1), len(speeds) - 1)
    whole = ([0, *c, len(loads)] for c in cuts)
    return min(slowest(loads, speeds, b) for b in whole if not any(0 < n < least for n in sizes(b)))


@pytest.mark.parametrize(
    ("loads", "speeds", "expected"),
    [
        ((10, 9, 9, 10, 1), (1, 1, 1), [10, 18, 11]),
        ((29, 14, 14), (1, 1), [29, 28]),
        ((0, 0, 0), (1, 1, 1), [0, 0, 0]),
        ((1,) * 12, (1, 100), [0, 12]),
    ],
)
def test_contract_rows(loads, speeds, expected):
    bounds = partition(loads, speeds)
    assert [sum(loads[a:b]) for a, b in pairwise(bounds)] == expected
    if not any(loads):
        assert sizes(bounds) == [1, 1, 1]


def test_a_fast_device_takes_what_slow_ones_would_wait_for():
    bounds = partition([1.0] * 12, [4, 1, 1, 1])
    assert slowest([1.0] * 12, [4, 1, 1, 1], bounds) == 2.0
    assert all(sizes(bounds))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 9), st.floats(0, 10)), min_size=1, max_size=7),
    st.lists(st.sampled_from([1.0, 1.0, 2.0, 3.5, 100.0]), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_no_partition_is_faster(loads, speeds, least):
    if least > len(loads):
        with pytest.raises(ValueError, match="fewer than the least"):
            partition(loads, speeds, least)
        return
    bounds = partition(loads, speeds, least)
    assert bounds[0] == 0 and bounds[-1] == len(loads) and len(bounds) == len(speeds) + 1
    assert all(n == 0 or n >= least for n in sizes(bounds))
    assert slowest(loads, speeds, bounds) <= best(loads, speeds, least) * (1 + 1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 12))
def test_equal_devices_are_empty_only_when_units_run_out(loads, devices):
    assert sum(n > 0 for n in sizes(partition(loads, [1.0] * devices))) == min(len(loads), devices)


def test_what_cannot_be_is_refused():
    for loads, speeds in [([1.0], []), ([1.0], [0.0]), ([-1.0], [1.0]), ([float("nan")], [1.0])]:
        with pytest.raises(ValueError, match=r"speeds|loads"):
            partition(loads, speeds)


def test_large_ones_are_near_the_mean():
    rng = random.Random(1)
    loads = [rng.random() for _ in range(20000)]
    bounds = partition(loads, [1.0] * 512)
    assert slowest(loads, [1.0] * 512, bounds) <= sum(loads) / 512 + max(loads)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=1, max_size=4), st.booleans())
def test_rows_are_dealt_as_fast_as_can_be(n, per_row, limited):
    most = [n // 2 if limited and k == 0 else float("inf") for k in range(len(per_row))]
    bounds = deal_rows(n, per_row, [1.0] * len(per_row), most)
    counts = [c for c in _compositions(n, len(per_row)) if all(a <= m for a, m in zip(c, most))]
    if bounds is None:
        assert not counts
        return
    assert bounds[0] == 0 and bounds[-1] == n
    least = min(max(1 + c * p for c, p in zip(count, per_row)) for count in counts)
    assert max(1 + c * p for c, p in zip(sizes(bounds), per_row)) <= least * (1 + 1e-9)


def _compositions(n, parts):
    for inner in combinations_with_replacement(range(n + 1), parts - 1):
        yield sizes([0, *inner, n])


@pytest.mark.parametrize("n", [1, 9, 4096, 4097, 99_999, 10**9])
@pytest.mark.parametrize("shards", [1, 3, 8, 100, 5000])
def test_busiest_rows_are_those_of_the_blocks(n, shards):
    exact = max(b - a for a, b in (shard_rows(d, shards, n) for d in range(shards)))
    assert busiest_rows(n, shards) == exact
    assert num_blocks(n) < shards or least_busiest_rows(n, shards) <= exact


def test_rows_go_to_borders_of_blocks():
    n = 1_000_003
    bounds = deal_rows(n, [1.0, 2.0, 5.0], [0.0] * 3, [float("inf")] * 3)
    borders = {b * n // num_blocks(n) for b in range(num_blocks(n) + 1)}
    assert set(bounds) <= borders
    assert max(c * p for c, p in zip(sizes(bounds), [1, 2, 5])) < n / (1 + 0.5 + 0.2) * 1.001


def test_a_range_reaches_as_far_as_its_own_time_allows():
    """To the bit, whatever the order of sums: else a plan may leave its last unit out."""
    fields = {"a": Gaussian(), "b": Categorical([1, 2, 3]), "c": Categorical(list(range(9))), "d": Poisson(),
              "e": MultivariateGaussian(3), "f": Gaussian(), "g": Categorical([1, 2])}  # fmt: skip
    profile = profile_of(Mixture(Record(fields), 3))
    for cut in cuts_of(profile):
        for shards in (1, 3):
            ranges = Shards(cut, Job(2, shards, 1.0, 53.0), [3.7] * 4, [math.inf] * 4)
            for a, b in itertools.combinations(range(cut.units + 1), 2):
                assert ranges.stop(a, ranges.time(a, b, 0), 0) >= b
                assert ranges.start(b, ranges.time(a, b, 0), 0) <= a
