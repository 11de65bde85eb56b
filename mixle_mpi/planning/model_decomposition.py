"""Sizes and costs of a model's tree, the axes on which it can be cut, and the cut of one model over devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, ReductionOp, decomposition_for
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.work import Assumed
from mixle_mpi.planning.cuts import Cut, shardable
from mixle_mpi.planning.partition import partition
from mixle_mpi.planning.paths import cut_words, cuts_of
from mixle_mpi.planning.profile import FLOAT, Profile, profile_of
from mixle_mpi.planning.resources import DeviceSpec, Resources
from mixle_mpi.planning.shards import even_bounds, is_uniform, workspace


@dataclass(frozen=True)
class NodeSize:
    """Size of one node of a model's tree: bytes of its own parameters and of its subtree's, and E-step FLOPs.

    `subtree_work` is per observation of the node itself: a sequence's element per step.
    """

    path: str
    axis: DecompAxis
    num_units: int
    own_param_bytes: int
    subtree_param_bytes: int
    subtree_work: float = 1.0
    children: tuple[NodeSize, ...] = ()


def size_model_tree(model: Node, _path: str = "", _seen: set[str] | None = None) -> NodeSize:
    """Sizes of a node and all below it, every copy on its own; nodes of one key are charged at the first place."""
    return _sized(profile_of(model), _path, set() if _seen is None else _seen, True)


def _sized(profile: Profile, path: str, seen: set[str], shared: bool) -> NodeSize:
    """`shared` says whether what siblings share is charged here."""
    charged = profile.key is None or profile.key not in seen
    if profile.key is not None:
        seen.add(profile.key)
    cost = profile.cost
    own = FLOAT * (profile.own_params + cost.shared_params * shared) if charged else 0
    children = []
    for run in profile.runs:
        for k in range(run.count):
            here = "/".join(filter(None, [path, run.role_of(k)]))
            first = (k == 0 and not run.again) if profile.gathers else shared
            child = _sized(run.profile, here, seen, first)
            children.append(child if charged else _uncharged(child))
    total = own + sum(c.subtree_param_bytes for c in children)
    dc = profile.decomposition
    return NodeSize(path, dc.axis, dc.num_units, own, total, profile.load.e_step, tuple(children))


def _uncharged(size: NodeSize) -> NodeSize:
    children = tuple(_uncharged(c) for c in size.children)
    return NodeSize(size.path, size.axis, size.num_units, 0, 0, size.subtree_work, children)


def shard_children(node: Node, dc: Decomposition | None = None) -> tuple[Node, ...]:
    """The children that a node splits along its own axis, copies repeated; none for a node without an axis."""
    dc = decomposition_for(node) if dc is None else dc
    if dc.axis is DecompAxis.NONE:
        return ()
    return tuple(b.node for b in node.branches(Assumed()) if b.unit for _ in range(b.count))


def cost_children(model: Node) -> tuple[Node, ...]:
    """All children of a node, also those that are not on its axis, copies repeated."""
    decomposition_for(model)
    return tuple(b.node for b in model.branches(Assumed()) for _ in range(b.count))


def subtree_work(model: Node, _seen: set[str] | None = None) -> float:
    """E-step FLOPs of one observation, of the node and all below it. Nodes of one key work wherever they are scored."""
    return profile_of(model).load.e_step


def compute_cost(model: Node, _seen: set[str] | None = None) -> tuple[float, int]:
    """E-step FLOPs of one observation, and bytes of the parameters."""
    load = profile_of(model).load
    return load.e_step, int(FLOAT * load.total_held.params)


@dataclass(frozen=True)
class AxisCandidate:
    """One axis somewhere in a model, with the E-step FLOPs of an observation of the model for each unit."""

    path: str
    axis: DecompAxis
    reduction: ReductionOp
    num_units: int
    unit_works: tuple[float, ...]

    @property
    def total_work(self) -> float:
        return sum(self.unit_works)


def tree_axes(model: Node) -> list[AxisCandidate]:
    """Every axis that can be cut, anywhere in the tree, each member's by its own path."""
    return list(_axes(profile_of(model), "", 1.0))


def _axes(profile: Profile, path: str, rows: float) -> Iterator[AxisCandidate]:
    if profile.is_shardable:
        dc = profile.decomposition
        yield AxisCandidate(path, dc.axis, dc.reduction, dc.num_units, _unit_works(profile, rows))
    for run in profile.runs:
        if any(True for _ in shardable(run.profile)):
            for k in range(run.count):
                yield from _axes(run.profile, "/".join(filter(None, [path, run.role_of(k)])), rows * run.rows)


def _unit_works(profile: Profile, rows: float) -> tuple[float, ...]:
    return tuple(w for run in profile.units() for w in [run.profile.load.flops * run.rows * rows] * run.count)


def best_parallel_axis(model: Node, max_workers: int | None = None) -> AxisCandidate | None:
    """The axis that takes most off the serial time when its units are spread over equal workers.

    The parallel time is the largest load of the optimal partition, so never below the heaviest unit. None
    when nothing is gained. Of equal axes the first in tree order; `*` in a path stands for every member.
    """
    if max_workers is not None and max_workers < 1:
        raise ModelError(f"max_workers = {max_workers} is not a number >= 1")
    profile = profile_of(model)
    best: tuple[float, Cut] | None = None
    for cut in cuts_of(profile, nested=False):
        workers = cut.units if max_workers is None else min(max_workers, cut.units)
        total = sum(s.count * s.load.flops for s in cut.segments)
        saved = total - _parallel(cut, workers)
        if saved > 1e-12 * total and (best is None or saved > best[0] * (1.0 + 1e-12)):
            best = saved, cut
    return None if best is None else _as_axis(best[1])


def _parallel(cut: Cut, workers: int) -> float:
    """The largest load of a worker when the units' work is spread over equal workers."""
    if is_uniform(cut):
        return -(-cut.units // workers) * cut.segments[0].load.flops
    loads = works_of(cut)
    bounds = partition(loads, [1.0] * workers)
    sums = np.concatenate([[0.0], np.cumsum(loads)])
    return float(np.diff(sums[bounds]).max())


def works_of(cut: Cut) -> list[float]:
    """E-step FLOPs of each unit of a cut."""
    return [w for s in cut.segments for w in [s.load.flops] * s.count]


def _as_axis(cut: Cut) -> AxisCandidate:
    return AxisCandidate(cut.path, cut.axis, cut.reduction, cut.units, tuple(works_of(cut)))


@dataclass(frozen=True)
class ModelCut:
    """A contiguous range of units on one device, with the reduction of their scores."""

    device: DeviceSpec
    start: int
    stop: int
    reduction: ReductionOp


@dataclass(frozen=True)
class ModelDecomposition:
    """How a model is placed on devices: replicated (axis NONE, no cuts), or its units cut into ranges."""

    axis: DecompAxis
    reduction: ReductionOp
    num_units: int
    cuts: tuple[ModelCut, ...]
    rationale: str
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def is_model_parallel(self) -> bool:
        return sum(c.stop > c.start for c in self.cuts) > 1


def decompose_model(
    model: Node,
    resources: Resources,
    *,
    n_data: int | None = None,
    min_components_per_shard: int = 1,
    prefer_data_parallel: bool = True,
) -> ModelDecomposition:
    """Where the units of the best axis go, on all devices in their order, balanced by the units' E-step work.

    With `prefer_data_parallel` a model that fits on every device, with rows for every device (`n_data`, None for
    enough), is replicated. `min_components_per_shard` is the least number of units of a shard that has any.

    Raises
    ------
    ModelError
        Without devices, or for a minimum or number of rows that cannot be.
    """
    devices = resources.devices
    if not devices:
        raise ModelError("there is no device to place the model on")
    if min_components_per_shard < 1:
        raise ModelError(f"min_components_per_shard = {min_components_per_shard} is not a number >= 1")
    if n_data is not None and n_data < 1:
        raise ModelError(f"n_data = {n_data} is not a number >= 1")
    assumed = Assumed()
    profile = profile_of(model, assumed)
    extra: dict[str, Any] = {"assumed": dict(assumed.notes)}
    need = replicated_bytes(profile)
    limits = [d.memory_bytes for d in devices if d.memory_bytes is not None]
    fits = not limits or need <= min(limits)
    enough = n_data is None or n_data >= len(devices)
    extra |= {"replicated_bytes": int(need), "fits_replicated": fits}
    if prefer_data_parallel and fits and enough:
        return _replicated("The model fits on every worker and there are rows for all of them: each holds the whole "
                           "model, and the rows are divided.", extra)  # fmt: skip
    workers = len(devices)
    best = best_parallel_axis(model, workers)
    cut = None if best is None else next(c for c in cuts_of(profile, nested=False) if c.path == best.path)
    if cut is None or best is None or cut.units < min_components_per_shard:
        why = "No axis of the model is worth cutting" if cut is None else "There are fewer units than one shard needs"
        limit = "" if fits else f", though it needs {need:.0f} bytes of the {min(limits)} that a worker has"
        return _replicated(f"{why}: every worker holds the whole model{limit}.", extra)
    works = works_of(cut)
    bounds = placed_bounds(cut, works, resources, min_components_per_shard)
    cuts = tuple(ModelCut(d, a, b, cut.reduction) for d, a, b in zip(devices, bounds, bounds[1:]))
    sums = np.concatenate([[0.0], np.cumsum(works)])
    loads = np.diff(sums[bounds])
    slowest = int(np.argmax(loads / np.array([d.throughput for d in devices])))
    extra |= {"path": cut.path, "bounds": bounds, "loads": loads.tolist(),
              "replicated_work": cut.fixed.e_step}  # fmt: skip
    reason = (
        f"it needs {need:.0f} bytes whole, and the smallest worker has {min(limits)}" if not fits
        else f"there are {n_data} rows for {workers} workers" if not enough else "data parallelism is not preferred"
    )  # fmt: skip
    busy = sum(c.stop > c.start for c in cuts)
    where = cut_words(cut.path)
    return ModelDecomposition(
        cut.axis, cut.reduction, cut.units, cuts,
        f"The {cut.units} units of {where} are divided over {busy} of {workers} workers, because {reason}; "
        f"{devices[slowest].name} is the slowest with {loads[slowest]:.4g} of {sums[-1]:.4g} FLOPs an observation.",
        extra,
    )  # fmt: skip


def placed_bounds(cut: Cut, works: list[float], resources: Resources, least: int) -> list[int]:
    """Borders of the units over all devices in their order."""
    speeds = [d.throughput for d in resources.devices]
    if is_uniform(cut) and len(set(speeds)) == 1 and least == 1 and cut.units >= len(speeds):
        return even_bounds(cut.units, len(speeds))
    return partition(works, speeds, least)


def replicated_bytes(profile: Profile) -> float:
    """Bytes of a worker that holds the whole model, without rows."""
    load = profile.load
    return FLOAT * load.total_held.resident + workspace(load.scratch + load.row_scratch, 1 << 20, 1)


def _replicated(text: str, extra: dict[str, Any]) -> ModelDecomposition:
    return ModelDecomposition(DecompAxis.NONE, ReductionOp.REPLICATE, 1, (), text, extra)
