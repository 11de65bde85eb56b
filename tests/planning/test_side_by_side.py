"""Starts side by side: which groups end first, which starts each makes, and what memory and ties say."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from mixle_mpi import DeviceSpec, Gaussian, Mixture, MultivariateGaussian, Poisson, Record, Resources
from mixle_mpi.commands.plan import main
from mixle_mpi.contract.work import CALL_SECONDS
from mixle_mpi.planning.balance import plan_grid, plan_on
from mixle_mpi.planning.side_by_side import (
    Side,
    dealt,
    groups_line,
    last_end,
    numbers_tried,
    ranges,
    ranks_of,
    seconds_of,
    side_by_side,
    sides_lines,
)

MODEL = Mixture(Record(a=Gaussian(), b=Poisson(), **{f"x{j}": Gaussian() for j in range(6)}), 2)


def machine(*throughputs: float, memory: int | None = None) -> Resources:
    return Resources(tuple(DeviceSpec(f"r{k}", memory_bytes=memory, throughput=t) for k, t in enumerate(throughputs)))


def planned(resources, starts=8, rows=12, model=MODEL, **options):
    one = plan_grid(model, resources, n_data=rows, first=0, **options)
    return side_by_side(model, resources, range(starts), one, n_data=rows, **options), one


def shapes(sides) -> list:
    return [((s.plan.data_parallel, s.plan.model_parallel), s.starts, ranks_of(s)) for s in sides]


def test_the_fifth_works_beside_two_by_two():
    sides, one = planned(machine(*[1.0] * 5))
    assert (one.data_parallel, one.model_parallel) == (2, 2)
    assert shapes(sides) == [((2, 2), (0, 1, 2, 3, 4, 5), [0, 1, 2, 3]), ((1, 1), (6, 7), [4])]
    assert last_end(sides) < 8 * seconds_of(one)


@pytest.mark.parametrize("ranks, starts", [(1, 8), (5, 1), (5, 0)])
def test_one_rank_or_one_start_is_one_grid(ranks, starts):
    sides, one = planned(machine(*[1.0] * ranks), starts)
    assert [(s.plan, s.starts) for s in sides] == [(one, tuple(range(starts)))]


def test_where_calls_cost_more_than_rows_each_rank_makes_starts_alone():
    resources = dataclasses.replace(machine(*[1.0] * 4), call_seconds=CALL_SECONDS)
    sides, _ = planned(resources, 8, model=Mixture(Record(a=Gaussian(), b=Poisson()), 4), rows=200)
    assert [(s.plan.data_parallel, s.plan.model_parallel, len(s.starts)) for s in sides] == [(1, 1, 2)] * 4


@pytest.mark.parametrize("seed", range(4))
def test_groups_are_apart_their_plans_are_what_is_run_and_no_start_is_lost(seed):
    rng = np.random.default_rng(seed)
    resources = machine(*rng.choice([0.5, 1.0, 2.0], rng.integers(3, 7)))
    starts, rows = int(rng.integers(2, 12)), int(rng.integers(2, 80))
    sides, one = planned(resources, starts, rows)
    assert [k for s in sides for k in s.starts] == list(range(starts))
    assert ranks_of(sides[0])[0] == 0, "rank 0 prints and writes"
    ranks = [rank for s in sides for rank in ranks_of(s)]
    assert len(set(ranks)) == len(ranks) and set(ranks) <= set(range(len(resources.devices)))
    assert last_end(sides) <= starts * seconds_of(one) * (1 + 1e-12)
    for side in sides:
        extra = side.plan.extra
        shape = side.plan.data_parallel, side.plan.model_parallel
        again = plan_on(MODEL, resources, n_data=rows, shape=shape, cut=extra["cut"], bounds=extra["bounds"],
                        rows=extra["rows"], devices=extra["devices"])  # fmt: skip
        assert again.extra["seconds"]["total"] == pytest.approx(seconds_of(side.plan), rel=1e-12)
    assert shapes(planned(resources, starts, rows)[0]) == shapes(sides)


@pytest.mark.parametrize("seed", range(20))
def test_no_deal_of_starts_ends_before(seed):
    """All deals are tried; the first group has one start in each."""
    rng = np.random.default_rng(seed)
    groups, starts = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    times = rng.choice([1.0, 1.5, 2.0, 5.0, 40.0], groups)
    one = plan_grid(MODEL, machine(1.0), n_data=12)
    plans = [dataclasses.replace(one, extra={"seconds": {"total": t}}) for t in times]
    sides = dealt(plans, range(starts))
    least = min(
        max(n * t for n, t in zip(counts, times))
        for counts in itertools.product(range(starts + 1), repeat=groups) if sum(counts) == starts and counts[0]
    )  # fmt: skip
    assert max(s.seconds for s in sides) == pytest.approx(least)
    assert sides[0].plan is plans[0] and all(s.starts for s in sides)


def test_ties_have_fewer_groups():
    """Twelve equal starts without any loss in a group take as long either way."""
    model = MultivariateGaussian(40)
    sides, one = planned(machine(1.0, 1.0), 2, 2, model)
    halves = dealt([plan_grid(model, machine(1.0), n_data=2)] * 2, range(2))
    if last_end(halves) > 2 * seconds_of(one) * (1 - 1e-9):
        assert len(sides) == 1
    same = dataclasses.replace(one, extra=one.extra | {"seconds": {"total": last_end(halves) / 2}})
    assert len(side_by_side(model, machine(1.0, 1.0), range(2), same, n_data=2)) == 1


def test_memory_holds_for_each_group():
    """A group of fewer ranks has more rows a rank: where these do not fit, the ranks stay together."""
    rows, equal = 4000, machine(*[1.0] * 4)
    free, one = planned(dataclasses.replace(equal, call_seconds=CALL_SECONDS), 8, rows)
    assert len(free) == 4
    alone = free[0].plan.extra["bytes"]["total"]
    for memory, most in ((alone, 4), (alone - 1, 2), (alone // 3, 1)):
        tight = dataclasses.replace(machine(*[1.0] * 4, memory=memory), call_seconds=CALL_SECONDS)
        sides, one = planned(tight, 8, rows)
        assert one.fits and all(s.plan.fits for s in sides) and len(sides) <= most
        assert all(s.plan.extra["bytes"]["total"] <= memory for s in sides)
    none, one = planned(machine(*[1.0] * 4, memory=1000), 8, rows)
    assert not one.fits and [s.plan for s in none] == [one]


def test_many_ranks_and_starts_are_planned_in_few_steps():
    assert numbers_tried(2) == [2] and numbers_tried(8) == list(range(2, 9))
    assert numbers_tried(64) == [2, 3, 4, 5, 6, 7, 8, 16, 32, 64] and numbers_tried(20)[-2:] == [16, 20]
    sides, _ = planned(machine(*[1.0] * 1000), 500, 100_000)
    assert sum(len(s.starts) for s in sides) == 500 and len(sides) <= 64


def test_groups_in_words():
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8" and ranges([]) == "none"
    two = [((0, 1), (2, 2), (0, 1, 2, 3)), ((2,), (1, 1), (4,))]
    assert groups_line(two) == "starts 1-2 on 2 x 2 (ranks 0-3), start 3 on 1 x 1 (rank 4)"
    five = [*two, *(((k,), (1, 1), (k + 2,)) for k in range(3, 6))]
    assert groups_line(five) == "starts 1-2 on 2 x 2 (ranks 0-3), starts 3-6 on 4 grids of 1 x 1 (ranks 4-7)"
    sides, one = planned(machine(*[1.0] * 5))
    assert sides_lines(sides, one)[0].startswith("8 starts side by side: starts 1-6 on 2 x 2 (ranks 0-3), starts 7-8")
    assert "one after another on 2 x 2" in sides_lines([Side(one, (0, 1))], one)[0] and not sides_lines(sides[1:0], one)


def test_the_command_shows_groups(tmp_path, capsys):
    run = tmp_path / "r.toml"
    fields = "".join(f'x{j} = {{ type = "gaussian" }}\n' for j in range(8))
    run.write_text(f'[model]\ntype = "mixture"\ncomponents = 2\n[model.component]\ntype = "record"\n'
                   f"[model.component.fields]\n{fields}")  # fmt: skip
    words = [str(run), "--ranks", "5", "--rows", "12"]
    assert main([*words, "--starts", "8"]) == 0
    assert "8 starts side by side: starts 1-" in capsys.readouterr().out
    assert main([*words, "--starts", "8", "--json"]) == 0
    sides = json.loads(capsys.readouterr().out)["sides"]
    assert [k for side in sides for k in side["starts"]] == list(range(8))
    assert main(words) == 0 and "side by side" not in capsys.readouterr().out
    assert main([*words, "--starts", "none"]) == 2 and "--starts none" in capsys.readouterr().err
