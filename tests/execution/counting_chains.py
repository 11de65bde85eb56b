"""Models of sequences, and how what a run counted is compared with what was planned for its grid."""

from __future__ import annotations

import numpy as np

from mixle_mpi import Gaussian, HiddenMarkov, Mixture, Poisson, Record, Resources
from mixle_mpi.execution.choose import observed
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.planning.balance import plan_on
from mixle_mpi.planning.payload import in_run

GRIDS = [(1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (3, 2), (1, 4), (4, 4)]
IN_TIME = [(1, 1), (2, 1), (3, 1), (4, 1)]


def numbers(*lengths: int, places: int = 3) -> list[np.ndarray]:
    """Sequences of numbers around a few places."""
    rng = np.random.default_rng(5)
    return [rng.normal(4.0 * rng.integers(0, places, n)) for n in lengths]


def records(count: int = 24) -> list[dict]:
    rng = np.random.default_rng(6)
    return [{"age": rng.normal(40), "x": rng.normal(size=7)} for _ in range(count)]


# data, model, the node that is cut, the chains of an observation, and the grids
MODELS = {
    "alike": (numbers(*[12] * 24), HiddenMarkov(Gaussian(), 6), "", 1, GRIDS),
    "ragged": (numbers(9, 1, 30, 4, 12, 2, 17, 5), HiddenMarkov(Gaussian(), 5, length=Poisson()), "", 1, GRIDS),
    "in a mixture": (numbers(*[10] * 12), Mixture(HiddenMarkov(Gaussian(), 4), 3), "component_*", 3, GRIDS),
    "in a record": (records(), Record(age=Gaussian(), x=HiddenMarkov(Mixture(Gaussian(), 2), 4)), "x", 1, GRIDS),
    "one in time": (numbers(700), HiddenMarkov(Gaussian(), 3), "", 1, IN_TIME),
    "two in time": (numbers(90, 160), HiddenMarkov(Gaussian(), 3), "", 1, [(3, 1), (4, 1)]),
    "one by states": (numbers(40), HiddenMarkov(Gaussian(), 520), "", 1, [(1, 1), (1, 2), (1, 3), (1, 4)]),
}  # fmt: skip


def mismatches(name: str, shape: tuple[int, int], found: list) -> list[str]:
    """What (coordinates, result) of all ranks counted otherwise than planned, in words."""
    data, model, cut, chains, _ = MODELS[name]
    (d, m), n = shape, len(data)
    sizes = [len(row["x"] if isinstance(row, dict) else row) for row in data]
    result, states = found[0][1], next(x for x in model.walk() if isinstance(x, HiddenMarkov)).num_states
    bound = load(data, model, serial_grid()).model
    plan = plan_on(bound, Resources.local(d * m), n_data=n, shape=shape, cut=cut if m > 1 else None,
                   given=observed(bound, n))  # fmt: skip
    passes, wrong = result.counts.passes, []

    def compare(what: str, counted, planned) -> None:
        if counted != planned:
            wrong.append(f"{what}: counted {counted}, planned {planned}")

    sent = in_run(plan.extra["payload"], passes, result.n_iter)
    if plan.extra["dealt"]["what"] == "steps" and d > 1:  # of settling the least was planned
        more = result.counts.told - 4 * passes, result.counts.composed
        sent["data"]["messages"] += d * sum(more)
        sent["data"]["bytes"] += 8 * d * (more[0] * (states + 2) + more[1] * states**2)
    for axis, sums in sent.items():
        compare(f"{axis} bytes", sum(r.payload[axis].bytes for _, r in found), sums["bytes"])
        compare(f"{axis} messages", sum(r.payload[axis].messages for _, r in found), sums["messages"])
        compare(f"{axis} objects", sum(r.payload[axis].objects for _, r in found), 0)
    whole = passes * chains * states * sum(sizes)
    repaired = states * sum(r.counts.repaired for _, r in found)
    compare("recursions", sum(r.counts.state_steps for _, r in found), whole + repaired)
    if "states" in name and m > 1:  # every rank its own columns
        held = np.diff(plan.extra["bounds"]) * passes * sum(sizes)
        compare("recursions of each", [r.counts.state_steps for _, r in sorted(found, key=lambda f: f[0])], list(held))
    if name == "alike" and n % d == 0 and n // d % m == 0:
        compare("busiest", max(r.counts.state_steps for _, r in found), whole // (d * m))
    return wrong
