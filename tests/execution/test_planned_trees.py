"""Random trees on random grids, cut as the planner would: the answer of one rank, and counted is planned.

`python tests/execution/test_planned_trees.py N [SEED]` tries N trees, half of them over columns of every kind, and
prints what fails.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_random_trees import FLAT, ITERATIONS, Forest, Thicket, try_all

from mixle_mpi import GaussianProcess, Resources
from mixle_mpi.contract.blocks import shard_rows
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.choose import observed
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import read
from mixle_mpi.execution.shard import compile_tree, layout_of
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.models.sequence import Steps
from mixle_mpi.models.topic_model import TopicModel
from mixle_mpi.planning.balance import plan_shape
from mixle_mpi.planning.cuts import uncut
from mixle_mpi.planning.paths import cut_at
from mixle_mpi.planning.payload import in_run, shard_costs
from mixle_mpi.planning.profile import profile_of


def planned(model, data, shape):
    """The bound model, and the plan for a grid of equal devices: with whatever cut is fastest, on fewer model shards
    where nothing can be cut."""
    bound, n = read(data, model, Alone()).model, len(data)
    options = {"n_data": n, "cut": None, "given": observed(bound, n)}
    try:
        plan = plan_shape(bound, Resources.local(shape[0] * shape[1]), shape=shape, **options)
    except ModelError:
        plan = plan_shape(bound, Resources.local(shape[0]), shape=(shape[0], 1), **options)
    return bound, plan


def on_threads(plan, work) -> list:
    """What `work` returns on all ranks of the plan's grid."""
    return run_on_threads(plan.data_parallel, plan.model_parallel, work)


def problem_of(model, data, shape: tuple[int, int], seed: int, on_ranks=on_threads) -> str | None:
    """What does not hold for one tree; None when all does."""
    bound, plan = planned(model, data, shape)
    d, m, cut = plan.data_parallel, plan.model_parallel, plan.extra["cut"]
    n, where = len(data), f"grid {d} x {m} cut {cut!r} {plan.extra['bounds']}"
    if plan.extra["dealt"]["what"] == "steps":
        return None  # those are dealt by the ranks of a grid that leaves none idle, see test_counted_chains
    options = {"max_iter": ITERATIONS, "tol": None, "seed": seed}
    found = on_ranks(plan, lambda g: (g.coords, fit(
        data, model, g, cut=cut, bounds=tuple(plan.extra["bounds"]) if m > 1 else None, **options)))  # fmt: skip
    if not found:
        return None  # another rank compares
    serial = fit(data, model, serial_grid(), **options)
    if has_no_noise(bound, serial.model.state.theta):
        return None
    size = max(abs(serial.log_likelihood), n)
    numeric = any(isinstance(node, GaussianProcess) for node in model.walk())
    if len({r.model.state.theta.tobytes() for _, r in found}) != 1:
        return f"{where}: ranks have different parameters"
    result = found[0][1]
    away = np.abs(np.array(result.history) - serial.history).max() / size
    if not away <= (1e-10 if numeric else 1e-12):
        return f"{where}: log likelihoods differ by {away:.1e}"
    a, b = result.model.state.theta, serial.model.state.theta
    if not (np.abs(a - b) <= (FLAT if numeric else 1e-8) * np.maximum(1, np.abs(b))).all():
        return f"{where}: parameters differ by {np.abs(a - b).max():.1e}"
    wrong = miscounted(bound, plan, n, found)
    return f"{where}: {'; '.join(wrong)}" if wrong else None


def has_no_noise(bound, theta: np.ndarray) -> bool:
    """Whether there is a process whose covariance is all but singular: it multiplies roundings by that much, as flat
    vectors do (`test_random_trees.FLOOR`)."""
    views = layout_of(compile_tree(bound, None, True)).param_views(theta).values()
    return any((of["white_variance"] < 1e-5 * of["rbf_variance"]).any() for of in views if "white_variance" in of)


def miscounted(bound, plan, n: int, found) -> list[str]:
    """What ranks counted otherwise than planned, in words.

    Plans do not count what nodes of one key and searches send; how often documents of a topic model that is cut go
    round is the run's own.
    """
    d, m, cut = plan.data_parallel, plan.model_parallel, plan.extra["cut"]
    result, profile, nodes = found[0][1], profile_of(bound), list(bound.walk())
    passes, wrong = result.counts.passes, []
    divided = uncut(profile) if m == 1 else cut_at(profile, cut)
    held = [round(c.maximized) for c in shard_costs(divided, 1, plan.extra["bounds"])]

    def compare(what: str, counted, expected) -> None:
        if counted != expected:
            wrong.append(f"{what}: counted {counted}, planned {expected}")

    quiet = not any(node.key is not None or (isinstance(node, Family) and node.searches) for node in nodes)
    rounds = any(isinstance(node.profile.node, TopicModel) for node in divided.divided)
    for axis, sums in in_run(plan.extra["payload"], passes, result.n_iter).items():
        if quiet and not (axis == "model" and rounds):
            compare(f"{axis} bytes", sum(r.payload[axis].bytes for _, r in found), sums["bytes"])
            compare(f"{axis} messages", sum(r.payload[axis].messages for _, r in found), sums["messages"])
        compare(f"{axis} objects", sum(r.payload[axis].objects for _, r in found), 0)
    by_steps = any(isinstance(node, Steps) for node in nodes)  # so that rows are dealt by their steps
    fixed = any(isinstance(node, Family) and node.fixed for node in nodes)  # evaluated, and not maximised
    compare("rows", sum(r.counts.rows for (_, of), r in found if of == 0), passes * n)
    for (at, of), r in [] if by_steps else found:
        start, stop = shard_rows(at, d, n)
        compare(f"rows of {at}", r.counts.rows, passes * (stop - start))
        if not fixed:
            compare(f"densities of {at, of}", r.counts.unit_rows, passes * (stop - start) * held[of])
    if quiet:
        most = plan.extra["kernels"]["maximized"]
        compare("maximised", max(r.counts.maximized for _, r in found), result.n_iter * most)
    return wrong


def tried(seed: int, mixed: bool, on_ranks=on_threads, most: int = 16) -> str | None:
    """One tree on a grid of up to 4 x 4, and of `most` ranks."""
    rng = np.random.default_rng([seed, 3])
    shape = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    while shape[0] * shape[1] > most:
        shape = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    forest = Thicket(seed) if mixed else Forest(seed)
    model = forest.tree()
    n = int(rng.integers(20, 60)) if mixed else int(rng.integers(40, 160))
    data = forest.rows(n) if mixed else model.sample(n, seed=seed)
    return problem_of(model, data, shape, seed, on_ranks)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6), mixed=st.booleans())
def test_trees_that_are_cut_as_planned(seed, mixed):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = tried(seed, mixed)
    assert problem is None, f"{problem}\n{(Thicket(seed) if mixed else Forest(seed)).tree()!r}"


if __name__ == "__main__":
    sys.exit(try_all("planned tree", lambda seed: tried(seed, seed % 2 == 1), *map(int, sys.argv[1:])))
