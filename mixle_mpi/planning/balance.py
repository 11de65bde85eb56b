"""The planner of the grid: D data shards x M model shards, the cut and its bounds, fastest under the memory limit.

The objective is the time of an iteration: the busiest worker's FLOPs by its speed (its whole rows of the
replicated part and of its own units, and its share of the M-step) and what crosses the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from mixle_mpi.contract.decomposition import DecompAxis
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.work import FLOP_SECONDS, Assumed
from mixle_mpi.planning.coupling import network_of
from mixle_mpi.planning.cuts import uncut
from mixle_mpi.planning.grids import Candidate, Task, as_given, balanced, candidate, pools_of
from mixle_mpi.planning.model_decomposition import ModelCut
from mixle_mpi.planning.model_parallel import ModelParallelEstimator
from mixle_mpi.planning.paths import cut_at, cuts_of
from mixle_mpi.planning.payload import in_time, payload, rows_of, seen
from mixle_mpi.planning.profile import FLOAT, profile_of
from mixle_mpi.planning.rationale import counted, named, rationale, too_big
from mixle_mpi.planning.resources import Resources
from mixle_mpi.planning.rows import busiest_rows
from mixle_mpi.planning.search import RUNNER_UPS, better, search
from mixle_mpi.planning.shards import even_bounds

Given = Mapping[str, Mapping[str, float]]


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
        grid, `dealt` over the data shards (rows, or steps of sequences), `payload` in an iteration and what `kernels`
        see, whether tiles are `pipelined`, `runner_ups`, `assumed`
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


def plan_grid(model: Node, resources: Resources, *, n_data: int, nested: bool = True, given: Given | None = None,
              cut: str | None = None, first: int | None = None) -> BalancePlan:  # fmt: skip
    """The fastest plan that fits, over all numbers of shards, cuts and optimal bounds.

    When none fits, the nearest to fitting, with `fits` False. Of equally fast ones that with more workers
    busy, then with fewer model shards.

    Parameters
    ----------
    n_data : rows (sequences, documents) in all
    nested : whether cuts of several nodes at once are plans, too
    given : what only the data can tell, see `contract.work.Assumed`
    cut : the path of the only cut that counts, beside none
    first : the number of the device that has to be at (0, 0) of the grid

    Raises
    ------
    ModelError
        Without devices, for a number of rows that is none, or a cut that cannot be planned.
    """
    task, assumed = task_of(model, resources, n_data, given)
    cuts = [uncut(task.model)]
    if len(resources.devices) > 1:
        cuts += cuts_of(task.model, nested) if cut is None else [cut_at(task.model, cut)]
    best, others = search(task, cuts, pools_of(resources, first))
    if task.model.cost.steps and n_data < len(resources.devices):
        timed, _ = task_of(model, resources, n_data, given, True)
        found, besides = search(timed, [uncut(timed.model)], pools_of(resources, first))
        if found.shards > n_data and found.fits >= best.fits and better(found, best):
            task, best, others = timed, found, [best, *others, *besides][:RUNNER_UPS]
    return made_plan(task, best, rationale(task, best, others), others, assumptions(assumed, resources))


def plan_shape(model: Node, resources: Resources, *, n_data: int, shape: tuple[int, int], cut: str | None,
               given: Given | None = None, first: int | None = None, devices=None) -> BalancePlan:  # fmt: skip
    """The fastest plan on a D x M grid, as `plan_grid` finds it, with one cut or, where that is None, any; see there.

    `devices` are (D, M) numbers of devices that stay in their places, by default those that suit best.

    Raises ModelError when M > 1 and nothing can be cut.
    """
    task, assumed = task_of(model, resources, n_data, given, n_data < shape[0] and shape[1] == 1)
    cuts = [uncut(task.model)]
    if shape[1] > 1:
        cuts = list(cuts_of(task.model)) if cut is None else [cut_at(task.model, cut)]
    if not cuts:
        raise ModelError(f"grid {shape[0]} x {shape[1]}: no node of this model can be cut; use M = 1")
    best: Candidate | None = None
    for divided in cuts:
        tried = [balanced(task, divided, np.asarray(devices))] if devices is not None else [
            candidate(task, divided, *shape, pool) for pool in pools_of(resources, first)
            if len(pool.numbers) >= shape[0] * shape[1]]  # fmt: skip
        for found in tried:
            if found is not None and better(found, best):
                best = found
    if best is None:
        cut = cuts[0].path if shape[1] > 1 else None
        return plan_on(model, resources, n_data=n_data, shape=shape, cut=cut, devices=devices, given=given)
    return made_plan(task, best, described(task, best), [], assumptions(assumed, resources))


def plan_on(model: Node, resources: Resources, *, n_data: int, shape: tuple[int, int], cut: str | None,
            bounds: Sequence[int] | None = None, rows: Sequence[int] | None = None, devices=None,
            given: Given | None = None) -> BalancePlan:  # fmt: skip
    """What a D x M grid takes whose every border is given, or even.

    Parameters
    ----------
    cut : path of the nodes that are cut, where M > 1
    bounds, rows : borders of the units of the model shards, and of the rows of the data shards (of the steps of
        sequences that are divided in time), None for even ones
    devices : (D, M) numbers of the devices, by default in their order

    Raises
    ------
    ModelError
        As `plan_grid`; and when the borders are not those of this model, these rows and this grid.
    """
    chunks = n_data < shape[0] and shape[1] == 1 and (rows is None or rows[-1] != n_data)
    task, assumed = task_of(model, resources, n_data, given, chunks)
    divided = uncut(task.model) if shape[1] == 1 else cut_at(task.model, cut or "")
    units = even_bounds(divided.units, shape[1]) if bounds is None else list(bounds)
    at = np.arange(shape[0] * shape[1]).reshape(shape) if devices is None else np.asarray(devices)
    borders = units if rows is None else [*units, *rows]
    if (at.shape != tuple(shape) or at.max() >= len(resources.devices) or len(units) != shape[1] + 1
            or units[-1] != divided.units or (rows is not None and (len(rows) != shape[0] + 1 or rows[-1] != task.rows))
            or min(borders) < 0):  # fmt: skip
        raise ModelError(f"a plan for {shape[0]} x {shape[1]}: the borders {borders} do not belong to it")
    made = as_given(task, divided, at, units, rows)
    return made_plan(task, made, described(task, made), [], assumptions(assumed, resources))


def described(task: Task, plan: Candidate) -> str:
    """What a grid that was not chosen here is, in place of a rationale."""
    d, m = plan.shards, plan.model_shards
    if not plan.fits:
        return too_big(task, plan, f"on {d:,} x {m:,}")
    most = int(np.diff(plan.row_bounds).max()) if plan.row_bounds is not None else busiest_rows(task.rows, d)
    text = f"{counted(d, 'data shard')} of at most {counted(most, task.word)}"
    if m > 1:
        widest = max(b - a for a, b in pairwise(plan.bounds))
        text += f", and {named(plan.cut)} divided over {counted(m, 'model shard')}, at most {widest:,} each"
    return f"{text[0].upper()}{text[1:]}."


def task_of(model: Node, resources: Resources, n_data: int, given: Given | None,
            chunks: bool = False) -> tuple[Task, Assumed]:  # fmt: skip
    """What is planned, and what is assumed for it; with `chunks` sequences are divided in time, if the model can be.

    Raises ModelError.
    """
    if not resources.devices:
        raise ModelError("there is no device to plan for")
    if isinstance(n_data, bool) or not isinstance(n_data, (int, np.integer)) or n_data < 1:
        raise ModelError(f"n_data = {n_data!r} is not a whole number >= 1")
    assumed, network = Assumed({} if given is None else given), network_of(resources)
    whole = profile_of(model, assumed)
    steps = round(whole.cost.steps * int(n_data))
    if not (chunks and steps):
        return Task(whole, int(n_data), resources, network), assumed
    single = Assumed({**assumed.given, "length": {"": 1.0}}, notes=assumed.notes)  # of steps, one by one
    return Task(profile_of(model, single), steps, resources, network, int(n_data)), assumed


def made_plan(task: Task, best: Candidate, why: str, others: list[Candidate], notes: dict) -> BalancePlan:
    """The plan of a candidate."""
    resources, load = task.resources, task.model.load
    return BalancePlan(
        data_parallel=best.shards,
        model_parallel=best.model_shards,
        workers_used=best.busy,
        workers_total=len(resources.devices),
        axis=best.cut.axis,
        model_cuts=model_cuts(best, resources),
        model_flops=load.e_step,
        model_bytes=int(FLOAT * load.total_held.params),
        per_worker_flops=best.busiest_flops,
        fits=best.fits,
        rationale=why,
        extra=details(task, best, others) | {"assumed": notes},
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
    rows = rows_of(task.rows, plan.shards, plan.row_bounds)
    sent = payload(plan.cut, rows, plan.bounds)
    if task.in_time and plan.shards > 1:
        sent = in_time(sent, plan.shards, task.model.decomposition.num_units)
    return {
        "seconds": dict(plan.seconds),
        "bytes": {kind: int(size) for kind, size in plan.bytes.items()},
        "heaviest_shard": plan.heaviest,
        "cut": None if plan.cut.axis is DecompAxis.NONE else plan.cut.path,
        "cuts": cut_ranges(plan),
        "bounds": list(plan.bounds),
        "rows": None if plan.row_bounds is None else list(plan.row_bounds),
        "n_data": task.sequences or task.rows,
        "dealt": {"what": f"{task.word}s", "number": task.rows},
        "passes": task.passes,
        "devices": plan.devices,
        "payload": sent,
        "kernels": seen(plan.cut, rows, plan.bounds),
        "pipelined": plan.pipelined,
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
            "cut": None if plan.cut.axis is DecompAxis.NONE else plan.cut.path,
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
