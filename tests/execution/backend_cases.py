"""Two fits that every backend must agree on; alone, or under mpirun, this prints their histories as JSON."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np

import mixle_mpi
from mixle_mpi import Categorical, Composite, Gaussian, HiddenMarkov, optimize
from mixle_mpi.commands.settings import read
from mixle_mpi.models.specification import build

DEMO = Path(mixle_mpi.__file__).parent / "demo"
NUMBERS = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")
ITERATIONS = 2


def penguins():
    """Path, model and options of the demo."""
    settings = read(DEMO / "penguins.toml")
    options = {"init": "random", "seed": 2, "max_iter": ITERATIONS, "tol": None}
    return DEMO / "penguins.csv", build(settings["model"]), options


def penguin_rows() -> list[dict]:
    """The rows of the demo, numbers as such, None where missing."""
    with open(DEMO / "penguins.csv", newline="") as file:
        rows = [{k: None if v in ("", "NA") else v for k, v in row.items()} for row in csv.DictReader(file)]
    return [row | {k: None if row[k] is None else float(row[k]) for k in NUMBERS} for row in rows]


def chains():
    """Sequences of two columns, one of them empty; a model, and options."""
    rng = np.random.default_rng(5)
    data = []
    for n in (31, 0, 58, 7, 24, 3):
        state = np.repeat(rng.integers(0, 2, n // 4 + 1), 4)[:n]
        data.append([(float(x), "ab"[s ^ (u < 0.1)]) for x, s, u in zip(rng.normal(3.0 * state), state, rng.random(n))])
    model = HiddenMarkov(Composite(Gaussian(), Categorical(pseudo_count=1)), 2)
    return data, model, {"max_iter": ITERATIONS, "tol": None}


CASES = {"penguins": penguins, "chains": chains}


def numbers_of(result) -> np.ndarray:
    """All parameters of a fitted model."""
    return vars(result.model)["state"].theta


def assert_agree(found, expected) -> None:
    """Histories to 1e-12 of max(|L|, N), and parameters alike."""
    assert found.n_iter == expected.n_iter and found.status == expected.status
    assert (found.n_rows, found.effective_rows) == (expected.n_rows, expected.effective_rows)
    size = max(abs(expected.log_likelihood), expected.effective_rows)
    assert np.abs(np.array(found.history) - expected.history).max() <= 1e-12 * size
    a, b = numbers_of(found), numbers_of(expected)
    assert np.abs(a - b).max() <= 1e-12 * max(np.abs(b).max(), size)
    assert found.plan is not None and found.seconds["score"] > 0 and found.counts.rows == expected.counts.rows


if __name__ == "__main__":
    printed = {}
    for name, case in CASES.items():
        data, model, options = case()
        result = optimize(data, model, backend=sys.argv[1], grid=sys.argv[2], **options)
        printed[name] = [result.history, numbers_of(result).tolist(), result.grid]
    from mixle_mpi.execution.grid import world_comm

    if world_comm().Get_rank() == 0:
        print(json.dumps(printed))
