"""Run under mpirun on 5 ranks: starts on grids side by side, against one rank that makes all of them.

The planner takes the ranks for equal ones whose messages take no time, and lays starts 0 to 5 on 2 x 2 and 6 and 7 on
the fifth rank. Prints a line for each case; exit code 1 when one differs.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from starts_case import ROWS, SIDES, STARTS, model, table

from mixle_mpi import DataError, Gaussian, HiddenMarkov, NumericalError, Poisson, Resources, optimize
from mixle_mpi.execution import em, starts, whole
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.clock import Clock
from mixle_mpi.execution.em import fit_on_ranks
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.grid import mpi_world
from mixle_mpi.report.accounting import account

OPTIONS = {"starts": STARTS, "init": "random", "max_iter": 8, "seed": 0, "tol": 1e-9}
E_STEP, MAXIMIZE, START = Executor.e_step, Executor.maximize, starts.start


def same(found, alone, parameters: bool = True) -> bool:
    """Whether two results have the same starts, best and parameters, to rounding."""
    scale = max(abs(alone.log_likelihood), alone.n_rows)
    if [r["status"] for r in found.starts] != [r["status"] for r in alone.starts]:
        return False
    apart = max(np.abs(np.array(a["history"]) - b["history"]).max() for a, b in zip(found.starts, alone.starts))
    near = not parameters or np.allclose(found.model.state.theta, alone.model.state.theta, rtol=1e-9, atol=1e-9)
    kept = (found.best_start, found.status, found.n_iter) == (alone.best_start, alone.status, alone.n_iter)
    listed = [r["start"] for r in found.starts] == list(range(len(alone.starts)))
    listed = listed and found.history == found.starts[found.best_start]["history"]
    return bool(apart < 1e-12 * scale and near and kept and listed)


def failing(which, where: int):
    """M-steps of some starts fail in their third iteration, on one rank of all or, with -1, on one of each grid."""
    now = {}
    rank = mpi_world().rank

    def start(executor, total, init, seed, number):
        now[id(executor)] = [number, 0]
        return START(executor, total, init, seed, number)

    def maximize(self):
        own = now.setdefault(id(self), [-1, 0])
        own[1] += 1
        last = self.grid.world.rank == self.grid.world.size - 1 if where < 0 else rank == where
        return NumericalError(f"start {own[0]} broke") if own[0] in which and own[1] == 3 and last else MAXIMIZE(self)

    starts.start, Executor.maximize = start, maximize


def undisturbed() -> None:
    """What cases before have changed is as it was."""
    starts.start, Executor.maximize, Executor.e_step = START, MAXIMIZE, E_STEP


def raised(kind, where: int) -> str:
    """What a fit says in which one rank raises in its fifth pass, if all ranks raise that kind of error."""
    rank = mpi_world().rank

    def e_step(self):
        if rank == where and self.counts.passes == 4:
            raise kind("boom")
        return E_STEP(self)

    Executor.e_step = e_step
    try:
        optimize(table(), model(), backend="mpi", **OPTIONS)
    except kind as error:
        return str(error)
    finally:
        undisturbed()
    return ""


def cases(world):
    """Name and verdict of each case, on this rank."""
    alone = optimize(table(), model(), **OPTIONS)
    clock = Clock()
    found = fit_on_ranks(table(), model(), world, clock=clock, **OPTIONS)
    groups = [{k: v for k, v in of.items() if k != "cut"} for of in found.groups]
    yield "five ranks", same(found, alone) and groups == SIDES and found.grid == (2, 2)
    yield "records", all(r["ranks"] == SIDES[k > 5]["ranks"] for k, r in enumerate(found.starts))
    place = (0, divmod(world.rank, 2)) if world.rank < 4 else (1, (0, 0))
    accounting = account(world, clock, found, place, 1)
    counts = accounting.to_json()["counts"]
    passes = sum(r["n_iter"] + 1 for r in found.starts[6:])
    yield "the fifth works", counts["passes"][4] == passes > 0 and counts["rows"][4] == passes * ROWS
    yield "all densities", counts["unit_rows"][4] == counts["rows"][4] * 2 * 8 and min(counts["unit_rows"]) > 0
    beside = accounting.comparison()
    bytes_of = [{axis: of["bytes"] for axis, of in beside[k]["payload"].items()} for k in ("predicted", "measured")]
    yield "counted is planned on the first grid", bytes_of[0] == bytes_of[1] and min(bytes_of[0].values()) > 0

    failing({0, 7}, -1)
    expected = optimize(table(), model(), **OPTIONS)
    failing({0, 7}, -1)
    found = optimize(table(), model(), backend="mpi", **OPTIONS)
    yield "failed starts", [r["status"] for r in found.starts].count("failed") == 2 and same(found, expected)
    failing(set(range(6)), -1)
    expected = optimize(table(), model(), **OPTIONS)
    failing(set(range(6)), -1)
    whole.LARGE_MODEL = 1  # bytes: the parameters are of a model that only the first rank is asked to hold
    found = optimize(table(), model(), backend="mpi", **OPTIONS)
    whole.LARGE_MODEL = 1 << 28
    held = same(found, expected, world.rank == 0) and (found.model is None) == (world.rank > 0)
    yield "the best is on the fifth", found.best_start in (6, 7) and held
    failing(set(range(STARTS)), -1)
    try:
        optimize(table(), model(), backend="mpi", **OPTIONS)
        text = ""
    except NumericalError as error:
        text = str(error)
    undisturbed()
    yield "all starts failed", text == "start 7 broke"
    yield "an error on the fifth", raised(NumericalError, 4) == "boom" and raised(DataError, 4) == "boom"

    chain, steps = HiddenMarkov(Gaussian(), 2), [np.random.default_rng(3).normal(size=40)]
    em.resources_of = lambda world: Resources.local(world.size)
    expected = optimize(steps, chain, **OPTIONS | {"starts": 3})
    found = optimize(steps, chain, backend="mpi", **OPTIONS | {"starts": 3})
    yield f"one sequence, divided on {[of['grid'] for of in found.groups]}", same(found, expected)
    rate = optimize([1, 2, 5], Poisson(), backend="mpi", starts=2, weights=[1.0, 2.0, 0.5])
    yield "weights", abs(rate.model.rate - 7.5 / 3.5) < 1e-12


def main() -> int:
    warnings.simplefilter("ignore")
    em.resources_of = lambda world: Resources.local(world.size if not isinstance(world, Alone) else 1)
    world, wrong = mpi_world(), 0
    for name, right in cases(world):
        everyone = world.allgather(bool(right))
        wrong += not all(everyone)
        if world.rank == 0:
            print(f"{'same' if all(everyone) else f'DIFFERENT {everyone}'} {name}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
