"""Six models, and how what a run counted is compared with what was planned for its grid."""

from __future__ import annotations

import numpy as np

from mixle_mpi import (
    Categorical,
    Exponential,
    Gaussian,
    Mixture,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    Resources,
    Uniform,
)
from mixle_mpi.contract.blocks import shard_rows
from mixle_mpi.execution.choose import observed
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import load
from mixle_mpi.planning.balance import plan_on
from mixle_mpi.planning.cuts import uncut
from mixle_mpi.planning.paths import cut_at
from mixle_mpi.planning.payload import in_run, shard_costs
from mixle_mpi.planning.profile import profile_of

N = 5003  # more than 4096, so that blocks have two rows
GRIDS = [(d, m) for d in range(1, 4) for m in range(1, 4)]  # up to 4 x 4 under real MPI


def table(n: int = N) -> dict:
    """Columns of several kinds."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=n) + 4 * rng.integers(0, 3, n)
    return {
        "x": x, "y": x + rng.normal(size=n), "z": rng.exponential(size=n), "n": rng.poisson(3.0, n),
        "kind": rng.choice(list("abcde"), n), "u": np.where(rng.random(n) < 0.1, np.nan, rng.random(n)),
    }  # fmt: skip


def vector(d: int, *names: str, **options):
    return Record({"v": MultivariateGaussian(d, **options)}, columns={"v": names})


MODELS = {
    "scalars": (Mixture(Record(x=Gaussian(), n=Poisson(), kind=Categorical(), z=Exponential()), 10), [""]),
    "full": (Mixture(vector(3, "x", "y", "z"), 7), [""]),
    "tied": (Mixture(vector(2, "x", "y", structure="tied"), 5), [""]),
    "tied below": (Mixture(Mixture(vector(2, "x", "y", structure="tied"), 2), 3), ["", "component_*", "component_1"]),
    "factors": (
        Mixture(Record(x=Mixture(Gaussian(), 6), y=Gaussian(), z=Uniform(),
                       u=Optional(Gaussian(), estimate_missing=True)), 3),
        ["", "component_*/x", "component_1/x"],
    ),
    "families": (Mixture([vector(2, "x", "y"), Record(x=Gaussian(), y=Gaussian()), vector(2, "x", "y"),
                          Record(x=Gaussian(), y=Gaussian()), vector(2, "x", "y", structure="diagonal")]), [""]),
}  # fmt: skip


def mismatches(model, shape, cut, found, plan=None) -> list[str]:
    """What (coordinates, result) of all ranks counted otherwise than planned, in words; by default for even borders."""
    d, m = shape
    result = found[0][1]
    bound = load(table(), model, serial_grid()).model
    if plan is None:
        plan = plan_on(bound, Resources.local(d * m), n_data=N, shape=shape, cut=cut if m > 1 else None,
                       given=observed(bound, N))  # fmt: skip
    borders = plan.extra["rows"] or [shard_rows(at, d, N)[0] for at in range(d)] + [N]
    passes, m_steps = result.counts.passes, result.n_iter
    wrong = []

    def compare(what: str, counted, planned) -> None:
        if counted != planned:
            wrong.append(f"{what}: counted {counted}, planned {planned}")

    for axis, sums in in_run(plan.extra["payload"], passes, m_steps).items():
        compare(f"{axis} bytes", sum(r.payload[axis].bytes for _, r in found), sums["bytes"])
        compare(f"{axis} messages", sum(r.payload[axis].messages for _, r in found), sums["messages"])
        compare(f"{axis} objects", sum(r.payload[axis].objects for _, r in found), 0)
    kernels = plan.extra["kernels"]
    profile = profile_of(bound)
    divided = uncut(profile) if m == 1 else cut_at(profile, cut)
    held = [round(c.maximized) for c in shard_costs(divided, 1, plan.extra["bounds"])]  # parameter sets of leaves
    compare("units", kernels["units"], max(np.diff(plan.extra["bounds"])))
    compare("maximized", max(r.counts.maximized for _, r in found), m_steps * kernels["maximized"])
    compare("tile rows", max(r.counts.tile_rows for _, r in found), kernels["tile_rows"])
    compare("rows", max(r.counts.rows for _, r in found), passes * kernels["rows"])
    for (at, of), r in found:
        start, stop = borders[at], borders[at + 1]
        compare(f"rows of {at}", r.counts.rows, passes * (stop - start))
        compare(f"densities of {at, of}", r.counts.unit_rows, passes * (stop - start) * held[of])
    for of in range(m):  # every parameter set has one owner among the data shards
        compare(f"owned in {of}", sum(r.counts.maximized for (_, b), r in found if b == of), m_steps * held[of])
    return wrong
