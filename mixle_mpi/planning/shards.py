"""What contiguous ranges of a cut's units cost a worker, in time and memory, for the optimal partition."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixle_mpi.planning.cuts import Cut
from mixle_mpi.planning.profile import FLOAT, Held, Load, Sent, Share

# As in `execution.executor`, which plans cannot import: a test compares them.
TILE_VALUES = 1 << 18
TILE_ROWS = 128, 16384
TILES_IN_FLIGHT = 2


def tile_rows(scratch: float) -> int:
    """Rows of a tile whose scratch is so many float64 values a row."""
    least, most = TILE_ROWS
    return int(min(max(TILE_VALUES // max(scratch, 1.0), least), most))


def workspace(scratch: float, rows: int, tiles: int) -> float:
    """Bytes of scratch memory of at most `tiles` tiles that are used together; never less for more scratch or rows."""
    (least, most), scratch = TILE_ROWS, max(scratch, 1.0)
    values = max(min(tiles * TILE_VALUES, min(rows, tiles * most) * scratch), min(rows, tiles * least) * scratch)
    return FLOAT * values


@dataclass(frozen=True)
class Job:
    """What a shard has to do: `rows` observations of `row_bytes` each, `passes` of them an iteration, and the
    M-step of the members of which it shares the work with `owners` data shards."""

    rows: int
    owners: int
    passes: float
    row_bytes: float


@dataclass(frozen=True)
class RangeCost:
    """Values held and sent, bytes of workspace, E-step FLOPs of an observation in all passes, M-step FLOPs, parameter
    sets of leaves that the busiest owner maximises, and float64 values of scratch for each row of a tile."""

    held: Held
    sent: Sent
    space: float
    e_step: float
    m_step: float
    maximized: float
    scratch: float


@dataclass(frozen=True)
class _Part:
    """What a segment's unit, a group or an owner adds, in plain numbers."""

    flops: float
    resident: float
    scratch: float
    m_step: float
    keys: tuple[tuple[str, float], ...]


def _part(load: Load, owners: int) -> _Part:
    keys = tuple((key, held.resident) for key, held in load.keyed.items())
    held = load.held + load.shared
    return _Part(load.e_step, held.resident, load.scratch + load.row_scratch, load.m_step(owners), keys)


def _times(share: Share, count: float) -> Share:
    return share._replace(members=share.members * count)


class _State:
    """A range of units while it grows."""

    __slots__ = ("counts", "flops", "groups", "keys", "m_step", "m_steps", "owners", "resident", "scratch")

    def __init__(self, fixed: _Part):
        self.flops, self.resident, self.scratch, self.m_step = fixed.flops, fixed.resident, fixed.scratch, fixed.m_step
        self.keys: set[str] = {key for key, _ in fixed.keys}
        self.resident += sum(size for _, size in fixed.keys)
        self.counts: dict[tuple[int, tuple[Share, ...]], int] = {}
        self.m_steps: dict[tuple[int, tuple[Share, ...]], float] = {}
        self.groups: set[int] = set()
        self.owners: set[int] = set()

    def add(self, part: _Part, count: int) -> None:
        self.flops += count * part.flops
        self.resident += count * part.resident
        self.scratch += count * part.scratch
        for key, size in part.keys:
            if key not in self.keys:
                self.keys.add(key)
                self.resident += size


class Shards:
    """The units of a cut as `Ranges`: seconds are FLOPs by speed, `room` bytes limit what fits.

    Parameters
    ----------
    speeds : (devices,) FLOPs in a unit of time
    room : (devices,) bytes, infinite where unknown
    """

    def __init__(self, cut: Cut, job: Job, speeds: Sequence[float], room: Sequence[float]):
        self.cut, self.job = cut, job
        self.speeds, self.room = speeds, room
        self.units, self.devices = cut.units, len(speeds)
        self._ends = list(itertools.accumulate(s.count for s in cut.segments))
        self._work = np.concatenate([[0.0], np.cumsum([s.count * s.load.flops for s in cut.segments])])
        self._fixed = _part(cut.fixed, job.owners)
        self._segments = [_part(s.load, job.owners) for s in cut.segments]
        self._groups = [_part(g, job.owners) for g in cut.groups]
        self._owners = [_part(o, job.owners) for o in cut.owners]
        self._elsewhere = cut.elsewhere or (0.0,) * len(cut.groups)
        self._tiles = TILES_IN_FLIGHT if cut.units > 1 else 1
        self._inside: dict[tuple, int] = {}
        self._sums: dict[tuple[int, int], tuple[float, float]] = {}

    # -- what a range costs ------------------------------------------------------------------------

    def _m_step(self, which: tuple[int, tuple[Share, ...]], count: int) -> float:
        """M-step FLOPs of `count` units of a group, of which the others of its banks are held by everyone."""
        owners, other = self.job.owners, self._elsewhere[which[0]]
        return sum((_times(b, count + other).of(owners) - _times(b, other).of(owners)) * b.flops for b in which[1])

    def _add(self, state: _State, at: int, count: int) -> None:
        """Add `count` units of segment `at` to a range."""
        s = self.cut.segments[at]
        state.add(self._segments[at], count)
        which = (s.group, s.load.banks)
        state.counts[which] = state.counts.get(which, 0) + count
        state.m_steps[which] = self._m_step(which, state.counts[which])
        if s.group not in state.groups:
            state.groups.add(s.group)
            state.add(self._groups[s.group], 1)
        for number in s.owners:
            if number not in state.owners:
                state.owners.add(number)
                state.add(self._owners[number], 1)
                state.m_step += self._owners[number].m_step

    def _peek(self, state: _State, at: int, count: int) -> tuple[float, float]:
        """FLOPs and bytes of a range if `count` units of segment `at` were added: to the bit what it then has."""
        s, unit = self.cut.segments[at], self._segments[at]
        new = [self._groups[s.group]] if s.group not in state.groups else []
        new += [self._owners[n] for n in s.owners if n not in state.owners]
        flops, resident = state.flops + count * unit.flops, state.resident + count * unit.resident
        scratch, m_step = state.scratch + count * unit.scratch, state.m_step
        keys: dict[str, float] = {}
        for part in new:
            flops, resident, scratch = flops + part.flops, resident + part.resident, scratch + part.scratch
            m_step += part.m_step if part is not self._groups[s.group] else 0.0
            keys.update(part.keys)
        keys.update(unit.keys)
        resident += sum(size for key, size in keys.items() if key not in state.keys)
        which = (s.group, s.load.banks)
        shares = state.m_steps | {which: self._m_step(which, state.counts.get(which, 0) + count)}
        return self._result(flops, resident, scratch, m_step + sum(shares.values()))

    def _result(self, flops: float, resident: float, scratch: float, m_step: float) -> tuple[float, float]:
        job = self.job
        size = FLOAT * resident + workspace(scratch, job.rows, self._tiles) + job.rows * job.row_bytes
        return job.passes * job.rows * flops + m_step, size

    def _state(self, a: int, b: int) -> _State:
        state = _State(self._fixed)
        at = bisect.bisect_right(self._ends, a)
        while a < b:
            end = min(b, self._ends[at])
            self._add(state, at, end - a)
            a, at = end, at + 1
        return state

    def _total(self, state: _State) -> tuple[float, float]:
        """FLOPs of an iteration and bytes."""
        m_step = state.m_step + sum(state.m_steps.values())
        return self._result(state.flops, state.resident, state.scratch, m_step)

    def total(self, a: int, b: int) -> tuple[float, float]:
        """FLOPs of an iteration and bytes of a shard that holds units a to b."""
        at = bisect.bisect_right(self._ends, a)
        within = b <= self._ends[min(at, len(self._ends) - 1)]
        name = (-1 - at, b - a) if within else (a, b)  # the same wherever in a segment
        if name not in self._sums:
            if len(self._sums) > 100_000:
                self._sums.clear()
            self._sums[name] = self._total(self._state(a, b))
        return self._sums[name]

    def state(self, a: int, b: int) -> RangeCost:
        """What units a to b cost in detail."""
        state = self._state(a, b)
        fixed = self.cut.fixed
        held, keyed, sent = fixed.held + fixed.shared, dict(fixed.keyed), fixed.sent + fixed.together
        maximized = fixed.maximized(self.job.owners)
        at, left = bisect.bisect_right(self._ends, a), a
        while left < b:
            end, load = min(b, self._ends[at]), self.cut.segments[at].load
            held, sent, keyed = held + load.held * (end - left), sent + load.sent * (end - left), keyed | load.keyed
            left, at = end, at + 1
        for load in [*(self.cut.groups[g] for g in state.groups), *(self.cut.owners[o] for o in state.owners)]:
            held, keyed = held + load.held + load.shared, keyed | load.keyed
            maximized += load.maximized(self.job.owners)
        for load in [*self.cut.groups, *(self.cut.owners[o] for o in state.owners)]:  # all have what groups share
            sent = sent + load.sent + load.together
        for which, count in state.counts.items():
            other, owners = self._elsewhere[which[0]], self.job.owners
            maximized += sum((_times(b, count + other).of(owners) - _times(b, other).of(owners)) * b.leaves
                             for b in which[1])  # fmt: skip
        m_step = state.m_step + sum(state.m_steps.values())
        space = workspace(state.scratch, self.job.rows, self._tiles)
        return RangeCost(sum(keyed.values(), held), sent, space, self.job.passes * state.flops, m_step, maximized,
                         state.scratch)  # fmt: skip

    # -- Ranges ------------------------------------------------------------------------------------

    def _time(self, total: tuple[float, float], j: int) -> float:
        return total[0] / self.speeds[j] if total[1] <= self.room[j] else math.inf

    def time(self, a, b, j):
        return self._time(self.total(a, b), j)

    def stop(self, a, limit, j):
        at = bisect.bisect_right(self._ends, a)
        most = self._within(at, limit, j)
        left = self._ends[at] - a
        if most < left or (most == left and at + 1 == len(self._ends)):
            return a + most
        state = _State(self._fixed)
        while at < len(self._ends):
            count = self._ends[at] - a
            if self._time(self._peek(state, at, count), j) > limit:
                return a + self._most(state, at, count - 1, limit, j)
            self._add(state, at, count)
            a, at = a + count, at + 1
        return a

    def _within(self, at: int, limit: float, j: int) -> int:
        """How many units of segment `at` alone fit: the same wherever in the segment a range begins."""
        name = (at, limit, self.speeds[j], self.room[j])
        if name not in self._inside:
            if len(self._inside) > 100_000:
                self._inside.clear()
            count = self.cut.segments[at].count
            self._inside[name] = self._most(_State(self._fixed), at, count, limit, j)
        return self._inside[name]

    def _most(self, state: _State, at: int, count: int, limit: float, j: int) -> int:
        """How many units of segment `at`, at most `count`, can be added to a range."""
        low, high = 0, count
        while low < high:
            middle = (low + high + 1) // 2
            if self._time(self._peek(state, at, middle), j) <= limit:
                low = middle
            else:
                high = middle - 1
        return low

    def start(self, b, limit, j):
        if not b:
            return 0
        at = bisect.bisect_left(self._ends, b)
        most = self._within(at, limit, j)
        begin = self._ends[at] - self.cut.segments[at].count
        if most < b - begin:
            return b - most
        low, high = 0, begin
        while low < high:
            middle = (low + high) // 2
            if self._time(self._total(self._state(middle, b)), j) <= limit:
                high = middle
            else:
                low = middle + 1
        return low

    def place(self, fraction):
        if self._work[-1] <= 0.0:
            return round(fraction * self.units)
        wanted = fraction * self._work[-1]
        at = min(int(np.searchsorted(self._work, wanted, side="right")), len(self._ends)) - 1
        segment = self.cut.segments[at]
        each = segment.load.flops
        offset = round((wanted - self._work[at]) / each) if each > 0 else segment.count
        return self._ends[at] - segment.count + min(int(offset), segment.count)

    def share(self, j):
        return self.speeds[j]


def even_bounds(units: int, devices: int) -> list[int]:
    """Borders of the even split that `contract.blocks.unit_range` makes."""
    return [k * units // devices for k in range(devices + 1)]


def is_uniform(cut: Cut) -> bool:
    """Whether all units are equal and nothing is shared by a part of them."""
    return len(cut.segments) == 1 and not cut.segments[0].owners
