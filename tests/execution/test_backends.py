"""Every backend has the same answer as one process."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from backend_cases import CASES, assert_agree

from mixle_mpi import optimize

pytestmark = [pytest.mark.launched, pytest.mark.filterwarnings("ignore:not converged")]


@cache
def expected(name: str):
    data, model, options = CASES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optimize(data, model, **options)


@pytest.mark.parametrize("name, grid", [("penguins", "2x1"), ("penguins", "1x2"), ("chains", "2x2")])
def test_processes_agree_with_one_process(name, grid):
    data, model, options = CASES[name]()
    heard = []
    found = optimize(data, model, backend="mp", grid=grid, callback=heard.append, **options)
    found.counts.rows = expected(name).counts.rows  # those of one rank are of its own rows
    assert_agree(found, expected(name))
    assert "x".join(map(str, found.grid)) == grid
    assert [iteration.log_likelihood for iteration in heard] == found.history
    assert found.payload["data" if grid == "2x1" else "model"].bytes > 0


def test_ranks_agree_with_one_process(mpirun):
    run = mpirun(2, [Path(__file__).parent / "backend_cases.py", "mpi", "2x1"])
    assert run.code == 0, run.err
    for name, (history, theta, grid) in json.loads(run.out).items():
        one = expected(name)
        size = max(abs(one.log_likelihood), one.effective_rows)
        assert grid == [2, 1] and np.abs(np.array(history) - one.history).max() <= 1e-12 * size
        assert np.abs(np.array(theta) - vars(one.model)["state"].theta).max() <= 1e-12 * size
