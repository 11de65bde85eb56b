"""The plan against all plans, on random small trees, and that more resources are never slower."""

from __future__ import annotations

import math
import random

import pytest
from oracle import best_time, best_unequal_time, random_tree

from mixle_mpi import DeviceSpec, Resources
from mixle_mpi.planning.balance import plan_grid
from mixle_mpi.planning.profile import profile_of


def machine(speeds, memories) -> Resources:
    devices = (DeviceSpec(f"d{i}", throughput=s, memory_bytes=m) for i, (s, m) in enumerate(zip(speeds, memories)))
    return Resources(tuple(devices), flops_per_second=1.0)


def time_of(model, speeds, memories, n: int, nested: bool = False) -> float:
    plan = plan_grid(model, machine(speeds, memories), n_data=n, nested=nested)
    return plan.extra["seconds"]["total"] if plan.fits else math.inf


def some_memory(rng: random.Random, model) -> int:
    return int(8 * profile_of(model).load.total_held.resident * rng.uniform(0.3, 2.0) + rng.choice([0, 20_000]))


@pytest.mark.parametrize("block", range(10))
def test_no_grid_axis_or_partition_is_faster_on_equal_devices(block):
    for seed in range(15 * block, 15 * block + 15):
        rng = random.Random(seed)
        model, workers, n = random_tree(rng, 4), rng.randint(1, 6), rng.randint(1, 9)
        memory = None if rng.random() < 0.4 else some_memory(rng, model)
        best = best_time(model, workers, n, math.inf if memory is None else memory)
        found = time_of(model, [1.0] * workers, [memory] * workers, n)
        assert found == pytest.approx(best, rel=1e-9), (seed, model, workers, n, memory)
        nested = time_of(model, [1.0] * workers, [memory] * workers, n, nested=True)
        assert nested <= found * (1 + 1e-9), (seed, model, workers, n, memory)


@pytest.mark.parametrize("block", range(4))
def test_unequal_devices_are_used_within_a_quarter_of_the_best(block):
    for seed in range(1000 + 25 * block, 1000 + 25 * block + 25):
        rng = random.Random(seed)
        model, workers, n = random_tree(rng, 3), rng.randint(1, 4), rng.randint(1, 6)
        speeds = [rng.choice([1, 1, 2, 4, 10]) for _ in range(workers)]
        best = best_unequal_time(model, speeds, n)
        found = time_of(model, speeds, [None] * workers, n)
        assert best * (1 - 1e-9) <= found <= 1.25 * best, (seed, model, speeds, n)


@pytest.mark.parametrize("block", range(4))
def test_more_is_never_slower(block):
    for seed in range(7000 + 6 * block, 7000 + 6 * block + 6):
        rng = random.Random(seed)
        model, workers = random_tree(rng, 4), rng.randint(1, 7)
        n, memory = rng.choice([1, 3, 7, 20, 100, 5000, 9999]), some_memory(rng, model)
        rooms = [memory] * workers
        base = time_of(model, [1.0] * workers, rooms, n, True)
        more = {
            "memory": time_of(model, [1.0] * workers, [2 * m for m in rooms], n, True),
            "workers": time_of(model, [1.0] * (workers + 1), [memory] * (workers + 1), n, True),
            "speed": time_of(model, [1.5] * workers, rooms, n, True),
        }
        assert all(t <= base * (1 + 1e-9) for t in more.values()), (seed, base, more)
        speeds = [rng.choice([1.0, 2.0, 3.0, 10.0]) for _ in range(workers)]
        limits = [rng.choice([None, memory, 2 * memory]) for _ in range(workers)]
        unequal = time_of(model, speeds, limits, n)
        further = rng.choice([0.5, 1.0, 2.0, 5.0, 20.0]), rng.choice([None, memory // 2, 2 * memory])
        with_it = time_of(model, [*speeds, further[0]], [*limits, further[1]], n)
        assert with_it <= unequal * (1 + 1e-9), (seed, speeds, limits, further)
