"""The linear partition problem: contiguous ranges of units over devices in order, the slowest as fast as can be.

Optimal and exact: a bisection on the bottleneck brackets it, and whenever a partition is found it is asked
whether any is strictly faster, until none is.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np

CLOSE = 1e-9  # relative width of the bracket, from where on bottlenecks are lowered one by one


class Ranges(Protocol):
    """What a range of units costs on a device. More units never cost less.

    `time(a, b, j)` is that of units a to b on device j, infinite where they do not fit; `stop(a, limit, j)` the
    last b with time(a, b, j) <= limit, or a itself when nothing fits; `start(b, limit, j)` the first a with
    time(a, b, j) <= limit. `place(fraction)` is the unit border nearest to a fraction of the whole work.
    """

    units: int
    devices: int

    def time(self, a: int, b: int, j: int) -> float: ...
    def stop(self, a: int, limit: float, j: int) -> int: ...
    def start(self, b: int, limit: float, j: int) -> int: ...
    def place(self, fraction: float) -> int: ...
    def share(self, j: int) -> float: ...


def optimal_bounds(ranges: Ranges) -> list[int] | None:
    """Borders b[0] = 0, ..., b[devices] = units of an optimal partition; None when the units do not fit.

    Of the optimal partitions it is one that leaves no device empty without need, near an even one.
    """
    bounds = _greedy(ranges, math.inf)
    if bounds is None:
        return None
    high, low = bottleneck(ranges, bounds), 0.0
    while high > 0.0:
        # whenever a better one is found, ask whether there is any that is strictly better than that
        found = _greedy(ranges, math.nextafter(high, 0.0))
        if found is None:
            break
        lower = bottleneck(ranges, found)
        if lower >= high:  # the same, but for how sums are rounded
            break
        high = lower
        middle = 0.5 * (low + high)
        while high - low > CLOSE * high:
            found = _greedy(ranges, middle)
            if found is not None:
                high = min(bottleneck(ranges, found), middle)
                break
            low, middle = middle, 0.5 * (middle + high)
    return _even(ranges, high)


def bottleneck(ranges: Ranges, bounds: Sequence[int]) -> float:
    """The longest time of the ranges between the borders; empty ranges take none."""
    times = (ranges.time(a, b, j) for j, (a, b) in enumerate(pairwise(bounds)) if b > a)
    return max(times, default=0.0)


def _greedy(ranges: Ranges, limit: float) -> list[int] | None:
    """Borders when every device takes all that it can within the limit; None when units are left."""
    bounds = [0]
    for j in range(ranges.devices):
        bounds.append(ranges.stop(bounds[-1], limit, j) if bounds[-1] < ranges.units else ranges.units)
    return bounds if bounds[-1] == ranges.units else None


def _even(ranges: Ranges, limit: float) -> list[int]:
    """Borders within the limit, which can be kept, close to the devices' shares of the work."""
    devices, units = ranges.devices, ranges.units
    earliest = [0] * devices + [units]  # the first border from which the devices after it can do the rest
    for j in range(devices - 1, 0, -1):
        earliest[j] = ranges.start(earliest[j + 1], limit, j)
    bounds, done = [0], 0.0
    whole = sum(ranges.share(j) for j in range(devices)) or 1.0
    for j in range(devices):
        at = bounds[-1]
        furthest = ranges.stop(at, limit, j) if at < units else units
        done += ranges.share(j)
        later = devices - 1 - j
        wanted = ranges.place(done / whole) if later else units
        wanted = min(max(wanted, at + 1), max(units - later, at + 1))  # one for me, and one for each of the rest
        bounds.append(min(max(wanted, earliest[j + 1]), furthest))
    return bounds


class Loads:
    """Units of given loads on devices of given speeds, at least `least` units on a device or none."""

    def __init__(self, loads: Sequence[float], speeds: Sequence[float]):
        self.units, self.devices = len(loads), len(speeds)
        self._sum = [0.0, *np.cumsum(np.asarray(loads, dtype=float)).tolist()]
        self._speeds = list(speeds)

    def time(self, a, b, j):
        return (self._sum[b] - self._sum[a]) / self._speeds[j]

    def stop(self, a, limit, j):
        reach = bisect.bisect_right(self._sum, self._sum[a] + limit * self._speeds[j]) - 1
        # the sum that was compared is rounded: go by the time itself
        while reach < self.units and self.time(a, reach + 1, j) <= limit:
            reach += 1
        while reach > a and self.time(a, reach, j) > limit:
            reach -= 1
        return max(reach, a)

    def start(self, b, limit, j):
        first = bisect.bisect_left(self._sum, self._sum[b] - limit * self._speeds[j], 0, b)
        while first > 0 and self.time(first - 1, b, j) <= limit:
            first -= 1
        while first < b and self.time(first, b, j) > limit:
            first += 1
        return first

    def place(self, fraction):
        if self._sum[-1] <= 0.0:
            return round(fraction * self.units)
        at = bisect.bisect_left(self._sum, fraction * self._sum[-1])
        at = min(at, self.units)
        if at and fraction * self._sum[-1] - self._sum[at - 1] < self._sum[at] - fraction * self._sum[-1]:
            at -= 1
        return at

    def share(self, j):
        return self._speeds[j]


def partition(loads: Sequence[float], speeds: Sequence[float], least: int = 1) -> list[int]:
    """Borders b[0] = 0, ..., b[devices] = units that minimise the largest load / speed.

    Parameters
    ----------
    loads : (units,) work of each unit, >= 0
    speeds : (devices,) > 0, in the order in which the devices take their ranges
    least : units of a device that has any

    Raises
    ------
    ValueError
        For loads or speeds that cannot be, no devices, or fewer than `least` units.
    """
    if not all(s > 0 and math.isfinite(s) for s in speeds) or not speeds:
        raise ValueError("speeds must be positive, and at least one")
    if not all(x >= 0 and math.isfinite(x) for x in loads):
        raise ValueError("loads must be numbers >= 0")
    if least > 1 and loads:
        if len(loads) < least:
            raise ValueError(f"{len(loads)} units are fewer than the least of a shard, {least}")
        return _partition_in_batches(loads, speeds, least)
    bounds = optimal_bounds(Loads(loads, speeds))
    if bounds is None:
        raise AssertionError("units without a limit always fit")
    return bounds


def _partition_in_batches(loads: Sequence[float], speeds: Sequence[float], least: int) -> list[int]:
    """As `partition` with `least` > 1: a bisection on the bottleneck over the borders that can be reached."""
    if len(set(loads)) == 1 and len(set(speeds)) == 1:
        used = max(min(len(speeds), len(loads) // least), 1)
        even = [k * len(loads) // used for k in range(used + 1)]
        return even + [len(loads)] * (len(speeds) - used)
    ranges = Loads(loads, speeds)
    everything = [0, *[len(loads)] * len(speeds)]
    best = min((len(loads) and ranges.time(0, len(loads), j), j) for j in range(len(speeds)))
    bounds, high, low = [0] * (best[1] + 1) + everything[1 : len(speeds) - best[1] + 1], best[0], 0.0
    while high > 0.0:
        close = high - low <= CLOSE * high
        limit = math.nextafter(high, 0.0) if close else 0.5 * (low + high)
        found = _batches(ranges, limit, least)
        if found is not None:
            bounds, high = found, bottleneck(ranges, found)
        elif close:
            break
        else:
            low = limit
    return _batches(ranges, high, least) or bounds


def _batches(ranges: Loads, limit: float, least: int) -> list[int] | None:
    """Borders within the limit with 0 or at least `least` units each, or None: all borders that can be reached."""
    reached = [np.zeros(ranges.units + 1, bool) for _ in range(ranges.devices + 1)]
    reached[0][0] = True
    for j in range(ranges.devices):
        after = reached[j + 1]
        after |= reached[j]
        steps = np.zeros(ranges.units + 2, np.int64)
        for a in np.flatnonzero(reached[j]):
            stop = ranges.stop(int(a), limit, j)
            if stop >= a + least:
                steps[a + least] += 1
                steps[stop + 1] -= 1
        after |= np.cumsum(steps)[:-1] > 0
    if not reached[-1][-1]:
        return None
    bounds = [ranges.units]
    whole = sum(ranges.share(j) for j in range(ranges.devices))
    for j in range(ranges.devices - 1, -1, -1):
        b = bounds[0]
        wanted = b - ranges.units * ranges.share(j) / whole
        froms = [a for a in range(b - least + 1) if reached[j][a] and ranges.time(a, b, j) <= limit]
        if froms:
            bounds.insert(0, min(froms, key=lambda a: abs(a - wanted)))
        else:
            bounds.insert(0, b)
    return bounds
