"""One candidate: a cut, a D x M grid of devices, the bounds of every shard, and the seconds that it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mixle_mpi.contract.blocks import shard_rows
from mixle_mpi.contract.decomposition import ReductionOp
from mixle_mpi.contract.work import (
    AGAIN_CALLS,
    FLOP_SECONDS,
    M_STEP_CALLS,
    MESSAGE_CALLS,
    NODE_CALLS,
    PASS_CALLS,
    READ_CALLS,
    SPILL,
    SPILLED_FEATURES,
    STEP_SECONDS,
    TILE_CALLS,
    WEIGHT,
)
from mixle_mpi.planning.coupling import (
    Network,
    axis_bytes,
    copy_seconds,
    data_axis_seconds,
    data_messages,
    hidden_seconds,
    model_axis_seconds,
)
from mixle_mpi.planning.cuts import Cut
from mixle_mpi.planning.partition import optimal_bounds
from mixle_mpi.planning.payload import CHUNK_MESSAGES
from mixle_mpi.planning.profile import FLOAT, Profile, Sent, count_banks
from mixle_mpi.planning.resources import Resources, node_numbers
from mixle_mpi.planning.rows import busiest_rows, deal_rows
from mixle_mpi.planning.shards import Job, RangeCost, Shards, even_bounds, is_uniform, tile_rows

REPAIRED = 200.0  # steps of a chunk of a sequence that are worked out again, as a filter forgets its start
FEW_SHARDS = 64  # up to so many, units and rows are dealt in turn
MOST_POOLS = 8  # orders of the devices that are tried


@dataclass(frozen=True, eq=False)
class Pool:
    """Devices in the order in which a grid takes them: their numbers, FLOPs a second, and bytes of memory."""

    numbers: np.ndarray
    speeds: np.ndarray
    room: np.ndarray

    @property
    def alike(self) -> bool:
        return bool((self.speeds == self.speeds[0]).all() and (self.room == self.room[0]).all())


@dataclass(frozen=True)
class Task:
    """What is planned: the model's profile, the number of rows, and the devices.

    Where sequences are divided `in_time` over data shards, the rows are their steps, of so many `sequences`.
    """

    model: Profile
    rows: int
    resources: Resources
    network: Network
    sequences: int = 0

    @property
    def in_time(self) -> bool:
        return self.sequences > 0

    @property
    def word(self) -> str:
        """What its rows are called."""
        return "step" if self.in_time else "row"

    @property
    def rate(self) -> float:
        """FLOPs a second of a device of throughput 1."""
        return rate_of(self.resources)

    @property
    def passes(self) -> float:
        """Passes over the data in an iteration."""
        return 1.0 + self.model.passes

    def calls(self, rows, tiles) -> tuple[Any, float]:
        """Seconds besides the work, where throughput is 1: of an E-step over so many rows and tiles, and of an M-step.

        These are kernel calls, and reading features again for both products. Known of measured machines only.
        """
        each, nodes = self.resources.call_seconds or 0.0, count_banks(self.model)
        calls = (TILE_CALLS + nodes * NODE_CALLS) * tiles + nodes * PASS_CALLS
        features = self.model.load.row_scratch
        features *= SPILL if features > SPILLED_FEATURES else 1.0
        calls += READ_CALLS * features * rows
        return each * calls * self.passes, each * nodes * M_STEP_CALLS

    def repair_seconds(self, shards: int, speed: float) -> float:
        """Seconds in which a data shard works out again what depends on the steps of another."""
        repaired = REPAIRED * self.model.cost.step_flops * (self.in_time and shards > 1)
        return min(repaired, self.rows / shards * self.model.cost.step_flops) / speed

    def chunk_seconds(self, shards: int) -> float:
        """Seconds of the messages by which data shards that divide sequences in time agree."""
        if not self.in_time or shards == 1:
            return 0.0
        each = float(data_axis_seconds(self.network, shards, 1, Sent()))
        return CHUNK_MESSAGES * (each + MESSAGE_CALLS * (self.resources.call_seconds or 0.0))


@dataclass(frozen=True, eq=False)
class Candidate:
    """A plan and what it takes.

    Attributes
    ----------
    bounds : borders of the units of the M model shards
    row_bounds : borders of the rows of the D data shards, None for those of `contract.blocks.shard_rows`
    devices : (D, M) numbers of the devices
    seconds : by phase; `total` is what the plan is judged by
    busiest_flops : FLOPs of the slowest worker in an iteration
    pipelined : whether two tiles are in flight
    bytes : of the heaviest worker, by kind; `excess` the largest bytes / memory over all workers, 0 when no
        memory is known
    """

    cut: Cut
    shards: int
    model_shards: int
    bounds: tuple[int, ...]
    row_bounds: tuple[int, ...] | None
    devices: np.ndarray
    seconds: dict[str, float]
    busiest_flops: float
    bytes: dict[str, float]
    heaviest: int
    excess: float
    busy: int
    pipelined: bool

    @property
    def total(self) -> float:
        return self.seconds["total"]

    @property
    def fits(self) -> bool:
        return self.excess <= 1.0


def rate_of(resources: Resources) -> float:
    """FLOPs a second of a device of throughput 1."""
    return 1.0 / FLOP_SECONDS if resources.flops_per_second is None else resources.flops_per_second


def pools_of(resources: Resources, first: int | None = None) -> list[Pool]:
    """The devices fastest first, then node by node; and without the smallest ones, where memories differ.

    The device of number `first` comes before all others in each, so that it is at (0, 0) of every grid.
    """
    devices, nodes = resources.devices, np.array(node_numbers(resources.devices))
    speeds = np.array([d.throughput * rate_of(resources) for d in devices])
    room = np.array([math.inf if d.memory_bytes is None else d.memory_bytes for d in devices])
    others = np.array([number != first for number in range(len(devices))])
    order = np.lexsort((nodes, -room, -speeds, others))  # stable: then in rank order
    pools = [Pool(order, speeds[order], room[order])]
    sizes = sorted(set(room.tolist()))[1:]
    if sizes:
        by_room = np.lexsort((nodes, -speeds, -room, others))
        pools.append(Pool(by_room, speeds[by_room], room[by_room]))
        picked = sorted({round(k * (len(sizes) - 1) / MOST_POOLS) for k in range(MOST_POOLS + 1)})
        for least in (sizes[k] for k in picked):
            kept = order[(room[order] >= least) | ~others[order]]
            pools.append(Pool(kept, speeds[kept], room[kept]))
    return pools


class _BySize(Shards):
    """Ranges that are judged by their bytes."""

    def _time(self, total, j):
        return total[1] / self.room[j] if math.isfinite(self.room[j]) else 0.0


def candidate(task: Task, cut: Cut, shards: int, model_shards: int, pool: Pool, strict: bool = True):
    """The best plan on the first D x M devices of a pool; None when it does not fit, and `strict`."""
    found = [made for made in _layouts(task, cut, shards, model_shards, pool, strict) if made is not None]
    return min(found, key=lambda c: (c.total if strict else c.excess, -c.busy), default=None)


def _layouts(task: Task, cut: Cut, d: int, m: int, pool: Pool, strict: bool) -> Iterator[Candidate | None]:
    """The ways to arrange the devices: neighbours in one model group, or in one model column."""
    used = slice(0, d * m)
    whole = Pool(pool.numbers[used], pool.speeds[used], pool.room[used])
    columns = [np.arange(d * m).reshape(d, m)]
    if not whole.alike and d > 1 and m > 1:
        columns.append(np.arange(d * m).reshape(m, d).T)
    for at in columns:
        speeds, room = whole.speeds[at], whole.room[at]
        if whole.alike or m > 1:
            bounds = None if m > 1 else (0, cut.units)
            yield _filled(task, cut, whole.numbers[at], speeds, room, None, bounds, strict)
        if not whole.alike:
            yield _dealt(task, cut, whole.numbers[at], speeds, room, strict)


def _bounds(task: Task, cut: Cut, rows: int, d: int, speeds, room, strict: bool) -> tuple[int, ...] | None:
    """Borders of the units for model shards of these speeds, (m,), and memories."""
    m = len(speeds)
    if m == 1:
        return 0, cut.units
    job = Job(rows, d, task.passes, task.model.row_bytes())
    if strict and is_uniform(cut) and len(set(speeds.tolist())) == 1 and len(set(room.tolist())) == 1:
        bounds = even_bounds(cut.units, m)
        widest = max(b - a for a, b in pairwise(bounds))
        fits = Shards(cut, job, speeds, room).total(0, widest)[1] <= room[0]
        return tuple(bounds) if fits else None
    kind = Shards if strict else _BySize
    ranges = kind(cut, job, speeds.tolist(), room.tolist())
    best = optimal_bounds(ranges)
    return None if best is None else tuple(best)


def as_given(task: Task, cut: Cut, devices: np.ndarray, bounds: Sequence[int], row_bounds: Sequence[int] | None):
    """The candidate with these devices (D, M), borders of units, and borders of rows, None for even ones."""
    pool = pools_of(task.resources)[0]
    at = np.argsort(pool.numbers)[devices]
    made = _measured(task, cut, devices, pool.speeds[at], pool.room[at], row_bounds, bounds, False)
    if made is None:
        raise AssertionError("without limits every plan can be worked out")
    return made


def balanced(task: Task, cut: Cut, devices: np.ndarray) -> Candidate | None:
    """The best plan with these devices (D, M) where they are, rows and units as suits them; None when none fits."""
    pool, whole = pools_of(task.resources)[0], (0, cut.units) if devices.shape[1] == 1 else None
    at = np.argsort(pool.numbers)[devices]
    speeds, room = pool.speeds[at], pool.room[at]
    found = [_filled(task, cut, devices, speeds, room, None, whole, True)]
    if not pool.alike:
        found.append(_dealt(task, cut, devices, speeds, room, True))
    return min((made for made in found if made is not None), key=lambda c: c.total, default=None)


def _filled(task, cut, numbers, speeds, room, row_bounds, bounds, strict) -> Candidate | None:
    """The plan with given borders of rows (None for even ones); those of units are found where not given."""
    d = len(speeds)
    rows = busiest_rows(task.rows, d) if row_bounds is None else max(np.diff(row_bounds))
    if bounds is None:
        # a column goes at the pace of its slowest device, a group at that of its slowest
        pace = speeds.max(axis=1, keepdims=True)
        bounds = _bounds(task, cut, int(rows), d, (speeds / pace).min(axis=0) * pace.max(), room.min(axis=0), strict)
    return None if bounds is None else _measured(task, cut, numbers, speeds, room, row_bounds, bounds, strict)


def _dealt(task, cut, numbers, speeds, room, strict) -> Candidate | None:
    """The plan with rows dealt by speed."""
    d, m = speeds.shape
    rows, best = busiest_rows(task.rows, d), None
    pace = speeds.max(axis=1, keepdims=True)
    columns = [speeds.min(axis=0), (speeds / pace).min(axis=0) * pace.max()]
    for column in columns if m > 1 else columns[:1]:
        for _ in range(3 if m <= FEW_SHARDS else 1):
            bounds = _bounds(task, cut, int(rows), d, column, room.min(axis=0), strict)
            row_bounds = None if bounds is None else _rows_by_speed(task, cut, speeds, room, bounds)
            if bounds is None or row_bounds is None:
                break
            made = _measured(task, cut, numbers, speeds, room, row_bounds, bounds, strict)
            if made is not None and (best is None or made.total < best.total):
                best = made
            if m == 1:
                break
            # units again, for the rows that each group has now
            dealt = np.maximum(np.diff(row_bounds), 1)
            rows = dealt.max()
            column = (speeds / dealt[:, None]).min(axis=0) * rows
    return best


def _rows_by_speed(task, cut, speeds, room, bounds) -> list[int] | None:
    d, _ = speeds.shape
    flops, m_steps, held, spaces, scratch = _shard_costs(task, cut, d, busiest_rows(task.rows, d), bounds)
    tile = tile_rows(scratch.max())
    none, of_m_step = task.calls(0, 0)
    of_row = (task.calls(tile, 1)[0] - none) / tile
    slowness = task.rate / speeds
    row_bytes = task.model.row_bytes()
    most = np.full(d, math.inf)
    if row_bytes:
        most = np.floor((room - FLOAT * held - spaces) / row_bytes).min(axis=1)
    if (most < 0).all():
        return None
    room_for = np.maximum(most, 0.0).tolist()
    per_row = (flops / speeds + of_row * slowness).max(axis=1)
    return deal_rows(task.rows, per_row, (m_steps / speeds + (none + of_m_step) * slowness).max(axis=1), room_for)


def _shard_costs(task, cut, d: int, rows: int, bounds: Sequence[int]):
    """E-step FLOPs a row, M-step FLOPs, resident values, bytes of workspace and values of scratch a row of every
    model shard, (m,) each."""
    job = Job(rows, d, task.passes, 0.0)
    m = len(bounds) - 1
    shards = Shards(cut, job, [1.0] * m, [math.inf] * m)
    done: dict[tuple, tuple] = {}
    uniform = is_uniform(cut)
    costs = []
    for a, b in pairwise(bounds):
        name = (b - a,) if uniform else (a, b)
        if name not in done:
            c = shards.state(a, b)
            done[name] = (c.e_step, c.m_step, c.held.resident, c.space, c.scratch) if b > a else (0.0,) * 5
        costs.append(done[name])
    return np.array(costs).T


def _measured(task, cut, numbers, speeds, room, row_bounds, bounds, strict) -> Candidate | None:
    """Seconds and bytes of a complete plan; None when it does not fit, and `strict`."""
    d, m = speeds.shape
    if row_bounds is None:
        most = busiest_rows(task.rows, d)
        rows = np.full(d, most) if d > 4096 else np.array([b - a for a, b in _even_rows(task.rows, d)])
    else:
        rows = np.diff(row_bounds)
        most = int(rows.max())
    flops, m_steps, held, spaces, _ = _shard_costs(task, cut, d, most, bounds)
    there = np.broadcast_to(np.diff(bounds)[None, :] > 0, speeds.shape)
    used = (rows[:, None] > 0) & there
    work = np.where(there, rows[:, None] * flops + m_steps, 0.0)
    times = work / speeds
    sizes = np.where(there, rows[:, None] * task.model.row_bytes() + FLOAT * held + spaces, 0.0)
    excess = float((sizes / room).max())
    if strict and excess > 1.0:
        return None
    heavy = int(np.unravel_index(int((sizes / np.where(np.isfinite(room), room, 1e300)).argmax()), times.shape)[1])
    kinds, cost = _bytes(task, cut, d, most, bounds, heavy)
    tile = tile_rows(cost.scratch)
    tiles = math.ceil(most / tile)
    calls, of_m_step = task.calls(rows[:, None], np.ceil(rows[:, None] / tile))
    slowness = task.rate / speeds
    at = np.unravel_index(int((times + (calls + of_m_step) * slowness).argmax()), times.shape)
    e_step = float(rows[at[0]] * flops[at[1]] / speeds[at])
    messages = tiles * cut.messages * task.passes
    each = MESSAGE_CALLS * (task.resources.call_seconds or 0.0)
    exchanged, uneven, of_message = cut.exchanged, 0.0, each
    if cut.steps and cut.by_states(most, m):
        of_message = STEP_SECONDS * (each > 0.0)
        messages, exchanged = 2.0 * cut.steps * most * task.passes, cut.exchanged * m
    elif cut.steps:  # the shard with most sequences has more than its share of their recursions
        uneven = (math.ceil(most / m) - most / m) * cut.steps * cut.step_flops * task.passes
    received = axis_bytes(cut.reduction, m, cut.payload, most, exchanged) * task.passes
    if cut.reduction is ReductionOp.LOGSUMEXP and task.network.known:  # folding what all shards sent
        folding = m * 0.5 * cut.payload * most * task.passes * WEIGHT["exp"] / float(speeds[at])
    else:
        folding = 0.0
    under_way = float(model_axis_seconds(task.network, m, received, messages))
    hidden = hidden_seconds(task.network, m, messages, e_step, tiles)
    again = AGAIN_CALLS * cost.scratch * int(most) * task.passes * (task.resources.call_seconds or 0.0) * (m > 1)
    pipelined = hidden >= again  # with two tiles in flight, the scratch of one leaves the cache before it is needed
    model_axis = float(folding + under_way - hidden * pipelined + copy_seconds(task.network, m, cut.copied))
    data_axis = float(data_axis_seconds(task.network, d, m, cost.sent))
    model_axis += of_message * messages * (m > 1)
    data_axis += each * (float(data_messages(cost.sent)) * (d > 1) + (d * m > 1))
    m_step = float(times[at]) - e_step + float(of_m_step * slowness[at])
    e_step += uneven / float(speeds[at]) + task.repair_seconds(d, float(speeds[at])) + again * pipelined
    data_axis += task.chunk_seconds(d)
    e_step += float(calls[at[0], 0] * slowness[at])
    seconds = {"e_step": e_step, "m_step": m_step, "model_axis": model_axis, "data_axis": data_axis}
    seconds["total"] = sum(seconds.values())
    return Candidate(cut, d, m, tuple(bounds), None if row_bounds is None else tuple(row_bounds), numbers, seconds,
                     float(work[at]), kinds, heavy, excess, int(used.sum()), pipelined)  # fmt: skip


def _even_rows(n: int, d: int) -> Iterator[tuple[int, int]]:
    return (shard_rows(k, d, n) for k in range(d))


def _bytes(task, cut, d, rows, bounds, heavy) -> tuple[dict[str, float], RangeCost]:
    """Bytes by kind of the heaviest shard, and what it costs."""
    m = len(bounds) - 1
    shards = Shards(cut, Job(rows, d, task.passes, 0.0), [1.0] * m, [math.inf] * m)
    a, b = bounds[heavy], bounds[heavy + 1]
    cost = shards.state(a, b)
    held = cost.held
    kinds = {
        "rows": rows * task.model.row_bytes(), "parameters": FLOAT * held.params, "new parameters": FLOAT * held.params,
        "statistics": FLOAT * held.stats, "kernels": FLOAT * held.kernel, "workspace": cost.space,
    }  # fmt: skip
    return kinds | {"total": sum(kinds.values())}, cost
