"""Grids side by side: how they are chosen and kept, and which rows their ranks get; the rest is under real MPI."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from starts_case import ROWS, SIDES, STARTS, model, table

from mixle_mpi import Gaussian, Poisson, Resources
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.beside import grids_beside, with_others
from mixle_mpi.execution.choose import choose
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import deal_to, load, read
from mixle_mpi.execution.threads import run_on_threads

FIVE = Resources.local(5)
BOUND = read(table(), model(), Alone()).model


def chosen(starts=range(STARTS), resources=FIVE, bound=BOUND, shape=None, kept=None):
    choice = choose(bound, ROWS, Alone(), resources, shape=shape, kept=kept)
    return grids_beside(choice, bound, ROWS, resources, starts, None, kept)


def told(choice) -> list:
    return [{k: v for k, v in of.items() if k != "cut"} for of in choice.groups_data()]


def test_every_rank_has_its_place():
    choice = chosen()
    assert told(choice) == SIDES and choice.idle == 0 and choice.gain > 1.2
    assert [choice.place(rank) for rank in range(4)] == [(0, divmod(rank, 2)) for rank in range(4)]
    assert choice.place(4) == (1, (0, 0)) and dataclasses.replace(choice, beside=()).place(4) is None
    assert choice.beside[0].plan.fits and choice.as_data()["beside"][0]["grid"] == [1, 1]
    assert choice.beside[0].coords == [None] * 4 + [(0, 0)]


@pytest.mark.parametrize(
    "options", [{"starts": [3]}, {"starts": []}, {"shape": (5, 1)}, {"resources": Resources.local(1)}]
)
def test_one_grid_makes_all_starts_where_there_is_nothing_to_choose(options):
    choice = chosen(**options)
    assert choice.beside == () and choice.starts == tuple(options.get("starts", range(STARTS)))
    tuned = dataclasses.replace(choose(BOUND, ROWS, Alone(), FIVE), how="tuned")
    assert grids_beside(tuned, BOUND, ROWS, FIVE, range(8), None, None).beside == ()


def test_a_process_by_itself_is_not_planned_for():
    choice = choose(BOUND, ROWS, Alone(), Resources.local(1))
    assert with_others(choice, BOUND, ROWS, Alone(), FIVE, range(8)).beside == ()


def test_kept_grids_go_on_with_their_own_starts():
    kept = json.loads(json.dumps(chosen().record()))
    again = chosen([2, 3, 4, 5, 7], kept=kept)
    assert again.how == "kept" and [g.starts for g in again.groups] == [(2, 3, 4, 5), (7,)]
    assert [g.devices for g in again.groups] == [g.devices for g in chosen().groups]
    assert [g.starts for g in chosen([4, 5], kept=kept).groups] == [(4, 5)], "the fifth has made its starts"
    assert [g.starts for g in chosen([6], kept=kept).groups] == [(), (6,)], "rank 0's grid has the best so far"
    twice = chosen([4, 6], kept=json.loads(json.dumps(chosen([4, 5, 6], kept=kept).record())))
    assert [g.starts for g in twice.groups] == [(4,), (6,)]
    other = chosen([0, 9], kept=kept)  # a start that no grid had: planned anew
    assert sorted(k for g in other.groups for k in g.starts) == [0, 9]
    alone = json.loads(json.dumps(chosen([5]).record()))
    assert chosen([5], kept=alone).beside == () and "beside" not in alone


@pytest.mark.parametrize("local", [False, True])
def test_each_grid_gets_every_row(local):
    x, weights = np.random.default_rng(0).poisson(3, 30), np.arange(30.0)
    whole = load(x, Poisson(), serial_grid(), weights=weights)
    grids = [([(0, 0), (0, 1), (1, 0), (1, 1), None], 2, [0, 11, 30]), ([None] * 4 + [(0, 0)], 1, None)]

    def dealt(grid):
        part = slice(6 * grid.world.rank, 6 * grid.world.rank + 6)
        data, own = (x[part], weights[part]) if local else (x, weights)
        return deal_to(read(data, Poisson(), grid.world, local=local, weights=own), grid.world, grids)

    results = run_on_threads(5, 1, dealt)
    for loaded, (start, stop) in zip(results, [(0, 11), (0, 11), (11, 30), (11, 30), (0, 30)]):
        assert (loaded.rows.first, loaded.rows.n) == (start, stop - start)
        assert (loaded.total, loaded.effective) == (30, whole.effective)
        np.testing.assert_array_equal(loaded.weights, weights[start:stop])
        for key, values in loaded.rows.arrays.items():
            np.testing.assert_array_equal(values, whole.rows.arrays[key][..., start:stop])


def test_plans_of_groups_are_of_the_rows_that_they_hold():
    choice = chosen(bound=read(table()["a"], Gaussian(), Alone()).model)
    assert all(g.plan.extra["n_data"] == ROWS for g in choice.groups)
