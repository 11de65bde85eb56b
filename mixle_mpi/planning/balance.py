"""The planner of the grid: D data shards x M model shards, the cut and its bounds, fastest under the memory limit.

The objective is the time of an iteration: the busiest worker's FLOPs by its speed (its whole rows of the
replicated part and of its own units, and its share of the M-step) and what crosses the network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from mixle_mpi.contract.decomposition import DecompAxis
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.work import FLOP_SECONDS, Assumed
from mixle_mpi.planning.coupling import network_of
from mixle_mpi.planning.cuts import cuts_of, uncut
from mixle_mpi.planning.grids import Candidate, Task, pools_of
from mixle_mpi.planning.model_decomposition import ModelCut
from mixle_mpi.planning.model_parallel import ModelParallelEstimator
from mixle_mpi.planning.profile import FLOAT, profile_of
from mixle_mpi.planning.rationale import rationale
from mixle_mpi.planning.resources import Resources
from mixle_mpi.planning.search import search


@dataclass(frozen=True)
class BalancePlan:
    """A grid for one EM estimation, balanced by compute under a memory constraint.

    Attributes
    ----------
    data_parallel, model_parallel : D and M
    workers_used : workers that have rows and units
    model_cuts : the range of units of each model shard, in the order of the model axis
    model_flops : E-step FLOPs of an observation
    model_bytes : bytes of the parameters
    per_worker_flops : FLOPs of the busiest worker in an iteration
    fits : whether the heaviest worker's bytes are within its memory
    rationale : one sentence
    extra : `seconds` by phase, `bytes` of the heaviest worker by kind, `cuts` with path and ranges of every cut
        node, `bounds` of the units, `rows` (borders of the data shards, where they are not even), `devices` of the
        grid, `runner_ups`, `assumed`
    """

    data_parallel: int
    model_parallel: int
    workers_used: int
    workers_total: int
    axis: DecompAxis
    model_cuts: tuple[ModelCut, ...]
    model_flops: float
    model_bytes: int
    per_worker_flops: float
    fits: bool
    rationale: str
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def is_model_parallel(self) -> bool:
        return self.model_parallel > 1

    @property
    def workers_idle(self) -> int:
        return self.workers_total - self.workers_used


def balance_plan(model: Node, resources: Resources, *, n_data: int) -> BalancePlan:
    """The fastest plan that fits, with nested cuts and default assumptions; see `plan_grid`."""
    return plan_grid(model, resources, n_data=n_data)


def plan_grid(model: Node, resources: Resources, *, n_data: int, nested: bool = True,
              given: Mapping[str, Mapping[str, float]] | None = None) -> BalancePlan:  # fmt: skip
    """The fastest plan that fits, over all numbers of shards, cuts and optimal bounds.

    When none fits, the nearest to fitting, with `fits` False. Of equally fast ones that with more workers
    busy, then with fewer model shards.

    Parameters
    ----------
    n_data : rows (sequences, documents) in all
    nested : whether cuts of several nodes at once are plans, too
    given : what only the data can tell, see `contract.work.Assumed`

    Raises
    ------
    ModelError
        Without devices, or for a number of rows that is none.
    """
    if not resources.devices:
        raise ModelError("there is no device to plan for")
    if isinstance(n_data, bool) or not isinstance(n_data, (int, np.integer)) or n_data < 1:
        raise ModelError(f"n_data = {n_data!r} is not a whole number >= 1")
    assumed = Assumed({} if given is None else given)
    profile = profile_of(model, assumed)
    task = Task(profile, int(n_data), resources, network_of(resources))
    cuts = [uncut(profile), *(cuts_of(profile, nested) if len(resources.devices) > 1 else ())]
    best, others = search(task, cuts, pools_of(resources))
    held = profile.load.total_held
    return BalancePlan(
        data_parallel=best.shards,
        model_parallel=best.model_shards,
        workers_used=best.busy,
        workers_total=len(resources.devices),
        axis=best.cut.axis,
        model_cuts=model_cuts(best, resources),
        model_flops=profile.load.e_step,
        model_bytes=int(FLOAT * held.params),
        per_worker_flops=best.busiest_flops,
        fits=best.fits,
        rationale=rationale(task, best, others),
        extra=details(task, best, others) | {"assumed": assumptions(assumed, resources)},
    )


def model_cuts(plan: Candidate, resources: Resources) -> tuple[ModelCut, ...]:
    """One entry for each model shard, with its device of the first data shard; none for an uncut model."""
    if plan.cut.axis is DecompAxis.NONE:
        return ()
    devices = (resources.devices[int(n)] for n in plan.devices[0])
    return tuple(ModelCut(device, a, b, plan.cut.reduction)
                 for device, a, b in zip(devices, plan.bounds, plan.bounds[1:]))  # fmt: skip


def details(task: Task, plan: Candidate, others: list[Candidate]) -> dict[str, Any]:
    """What `BalancePlan.extra` tells, but for what was assumed."""
    return {
        "seconds": dict(plan.seconds),
        "bytes": {kind: int(size) for kind, size in plan.bytes.items()},
        "heaviest_shard": plan.heaviest,
        "cut": None if plan.cut.axis is DecompAxis.NONE else plan.cut.path,
        "cuts": cut_ranges(plan),
        "bounds": list(plan.bounds),
        "rows": None if plan.row_bounds is None else list(plan.row_bounds),
        "n_data": task.rows,
        "passes": task.passes,
        "devices": plan.devices,
        "runner_ups": [summary(c) for c in others],
    }


def cut_ranges(plan: Candidate) -> list[dict[str, Any]]:
    """Path, member ("*" for all) and the range of units of each model shard, for every cut node.

    A node inside another is listed with its own units, counted from its first; shards without any have (0, 0).
    Where a node is divided by the nodes inside its units, its ranges count the deepest units.
    """
    if plan.cut.axis is DecompAxis.NONE:
        return []
    found = []
    for node in plan.cut.nodes:
        ranges = []
        for a, b in pairwise(plan.bounds):
            low, high = max(a, node.first), min(b, node.stop)
            ranges.append((low - node.first, high - node.first) if low < high else (0, 0))
        member = "*" if "*" in node.path else 0
        found.append({"path": node.path, "member": member, "axis": node.axis.value, "units": node.units,
                      "first": node.first, "stop": node.stop, "ranges": ranges})  # fmt: skip
    return found


def summary(plan: Candidate) -> dict[str, Any]:
    """A runner-up in short."""
    return {"data_parallel": plan.shards, "model_parallel": plan.model_shards, "axis": plan.cut.axis.value,
            "cut": None if plan.cut.axis is DecompAxis.NONE else plan.cut.path, "nested": plan.cut.nested,
            "seconds": plan.total, "workers_used": plan.busy, "bytes": int(plan.bytes["total"])}  # fmt: skip


def assumptions(assumed: Assumed, resources: Resources) -> dict[str, float | str]:
    """What was taken for lack of knowledge."""
    notes: dict[str, float | str] = dict(assumed.notes)
    if resources.flops_per_second is None:
        notes["flops_per_second"] = 1.0 / FLOP_SECONDS
    if not network_of(resources).known:
        notes["coupling"] = "unknown, taken as 0"
    if all(d.memory_bytes is None for d in resources.devices):
        notes["memory"] = "unknown, not limited"
    return notes


def auto_balanced_estimator(
    estimator: Node, model: Node, resources: Resources | None = None, *, n_data: int
) -> tuple[Node | ModelParallelEstimator, BalancePlan]:
    """The estimator, wrapped to be divided over model shards when that is the plan for `model`, and the plan."""
    plan = balance_plan(model, Resources.local() if resources is None else resources, n_data=n_data)
    if plan.is_model_parallel:
        return ModelParallelEstimator(estimator, plan.model_parallel), plan
    return estimator, plan
