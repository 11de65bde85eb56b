"""A plan in one sentence that a person can act on."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np

from mixle_mpi.contract.decomposition import DecompAxis
from mixle_mpi.planning.coupling import network_of
from mixle_mpi.planning.cuts import Cut, uncut
from mixle_mpi.planning.grids import Candidate, Task, candidate, pools_of
from mixle_mpi.planning.paths import cuts_of
from mixle_mpi.planning.profile import FLOAT
from mixle_mpi.planning.rows import busiest_rows


def size(count: float) -> str:
    """Bytes in words."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} bytes"


def counted(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def named(cut: Cut) -> str:
    """What is cut, in words."""
    unit = {DecompAxis.COMPONENT: "component", DecompAxis.FACTOR: "factor", DecompAxis.STATE: "state",
            DecompAxis.TOPIC: "topic"}[cut.axis]  # fmt: skip
    first = cut.nodes[0].path
    where = f' of "{first}"' if first else ""
    if cut.nested:
        return f"the {counted(cut.units, 'unit')} of {counted(len(cut.nodes), 'nested node')}{where}"
    return f"the {counted(cut.units, unit)}{where}"


def rationale(task: Task, plan: Candidate, others: list[Candidate]) -> str:
    """Why this plan, never more than the plan itself says."""
    if not plan.fits:
        return too_big(task, plan, f"on the nearest grid, {plan.shards:,} x {plan.model_shards:,},")
    d, m, total = plan.shards, plan.model_shards, len(task.resources.devices)
    most = int(np.diff(plan.row_bounds).max()) if plan.row_bounds is not None else busiest_rows(task.rows, d)
    rows = f"at most {counted(most, task.word)} each"
    idle = total - plan.busy
    if m == 1:
        what = (
            f"each of {counted(d, 'worker')} holds the whole model and at most {counted(most, task.word)}" if d > 1
            else f"one worker does everything, {counted(task.rows, task.word)} of the whole model"
        )  # fmt: skip
        text = f"{what}, as no division of the model over workers is faster"
        if task.in_time:
            text = f"{what}: {_why_in_time(task, plan)}"
        if total == 1:
            text = f"{what}: there is one worker only"
        elif task.model.load.e_step and not others_cut(others):
            text = f"{what}: nothing in the model can be divided" if not _can_cut(task) else text
    else:
        widest = max(b - a for a, b in pairwise(plan.bounds))
        units = f"{named(plan.cut)} are divided over {counted(m, 'model shard')}, at most {widest:,} each"
        text = f"{units}, with {counted(d, 'data shard')} of {rows}, because {_why_cut(task, plan, others)}"
    if idle:
        text += f"; {counted(idle, 'worker')} idle, as {_why_idle(task, plan)}"
    return text[0].upper() + text[1:] + "."


def _finest(task: Task) -> Cut:
    """The cut into most units."""
    return max([uncut(task.model), *cuts_of(task.model)], key=lambda c: c.units)


def others_cut(others: list[Candidate]) -> bool:
    return any(c.model_shards > 1 for c in others)


def _can_cut(task: Task) -> bool:
    return next(cuts_of(task.model), None) is not None


def _whole(task: Task) -> Candidate | None:
    """The best plan that keeps the model whole, on as many data shards as can be, where it fits."""
    pool = pools_of(task.resources)[0]
    d = min(len(task.resources.devices), task.rows)
    return candidate(task, uncut(task.model), d, 1, pool)


def _why_cut(task: Task, plan: Candidate, others: list[Candidate]) -> str:
    undivided = [c for c in others if c.model_shards == 1]
    whole = min(undivided, key=lambda c: c.total, default=None) or _whole(task)
    if whole is None:
        pool = pools_of(task.resources)[0]
        d = min(len(task.resources.devices), task.rows)
        loose = candidate(task, uncut(task.model), d, 1, pool, strict=False)
        if loose is not None and not loose.fits:
            room = loose.bytes["total"] / loose.excess
            return f"a worker with the whole model would need {size(loose.bytes['total'])} of its {size(room)} memory"
        return "the whole model fits on no worker"
    gain = whole.total / plan.total
    if task.rows < len(task.resources.devices) and plan.busy > task.rows:
        alone = f"{counted(task.rows, 'row')} alone would keep only {task.rows:,} of the workers busy"
        share = task.passes * plan.cut.fixed.e_step / (task.passes * task.model.load.e_step)
        besides = f", as {100 * share:.0f} % of the E-step is not divided" if share > 0.2 else ""
        return f"{alone}: it is {gain:.4g}x faster{besides}"
    if gain > 1.0 + 1e-9:
        most = busiest_rows(task.rows, whole.shards)
        shards = f"{counted(whole.shards, 'data shard')} of the whole model, at most {counted(most, 'row')} each,"
        return f"{shards} would take {gain:.4g}x as long"
    return f"it is as fast as {whole.shards:,} data shards alone and keeps more workers busy"


def _why_in_time(task: Task, plan: Candidate) -> str:
    alone, verb = counted(task.sequences, "sequence"), "is" if task.sequences == 1 else "are"
    text = f"{alone} alone would keep only {task.sequences:,} of the workers busy, and {verb} divided in time"
    undivided = dataclasses.replace(task, sequences=0)  # as many steps, but nothing to repair
    whole = candidate(undivided, uncut(task.model), task.sequences, 1, pools_of(task.resources)[0])
    return text if whole is None else f"{text}, which is {whole.total / plan.total:.4g}x faster"


def _why_idle(task: Task, plan: Candidate) -> str:
    if plan.shards < task.rows and network_of(task.resources).known:
        return "with more of them the network would cost more time than they save"
    if plan.shards >= task.rows and not _can_cut(task):
        there = f"there {'is' if task.rows == 1 else 'are'} {counted(task.rows, 'row')}"
        return f"{there} and nothing in the model can be divided"
    return "neither rows nor units divide over more of them without being slower or too big"


def too_big(task: Task, plan: Candidate, where: str) -> str:
    """How far a plan is from fitting, on the grid that `where` says."""
    need = plan.bytes["total"]
    limit = need / plan.excess
    parts = sorted((k for k in plan.bytes if k != "total"), key=lambda k: -plan.bytes[k])[:2]
    most = " and ".join(f"{size(plan.bytes[kind])} for {kind}" for kind in parts)
    unit = FLOAT * max(s.load.total_held.params for s in _finest(task).segments)
    return (
        f"Does not fit: {where} the heaviest worker needs {size(need)} ({need:.0f} bytes, {most}), "
        f"but its memory is {size(limit)} ({limit:.0f} bytes); the parameters of the heaviest unit alone, which cannot "
        f"be divided, are {unit:.0f} bytes."
    )
