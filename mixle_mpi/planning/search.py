"""The best plan: all cuts, numbers of model shards and of data shards, those that could be best first.

A candidate's lower bound comes from a few array operations for all numbers of shards at once; candidates are
worked out in the order of their bounds until no bound is below the best plan found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.blocks import num_blocks
from mixle_mpi.planning.coupling import axis_bytes, data_axis_seconds, model_axis_seconds
from mixle_mpi.planning.cuts import Cut
from mixle_mpi.planning.grids import Candidate, Pool, Task, candidate
from mixle_mpi.planning.profile import FLOAT, Load, Sent
from mixle_mpi.planning.rows import least_busiest_rows
from mixle_mpi.planning.shards import is_uniform

TIE = 1e-12  # relative
RUNNER_UPS = 5
FEW = 64  # up to so many unequal devices every number of data shards is tried


@dataclass(frozen=True, eq=False)
class Options:
    """Numbers of data shards and model shards, (k,) each, with lower bounds of seconds and of bytes / memory."""

    cut: Cut
    pool: Pool
    shards: np.ndarray
    model_shards: np.ndarray
    seconds: np.ndarray
    excess: np.ndarray


def better(a: Candidate, b: Candidate | None) -> bool:
    """Whether a is the better plan: faster, or as fast with more workers busy, or with fewer model shards."""
    if b is None or a.total < b.total * (1.0 - TIE):
        return True
    if a.total > b.total * (1.0 + TIE):
        return False
    return (-a.busy, a.model_shards, a.cut.nested) < (-b.busy, b.model_shards, b.cut.nested)


def search(task: Task, cuts: list[Cut], pools: list[Pool]) -> tuple[Candidate, list[Candidate]]:
    """The best plan that fits, else the one nearest to fitting; and the best of the others."""
    options = [bounds_below(task, cut, pool) for cut in cuts for pool in pools]
    best: Candidate | None = None
    others: list[Candidate] = []
    for cut, pool, d, m, bound in _in_order(options):
        if best is not None and len(others) > RUNNER_UPS:
            if bound > best.total * (1.0 + TIE):
                break
            if bound >= best.total * (1.0 - TIE) and (-d * m, m) >= (-best.busy, best.model_shards):
                continue  # as fast at best, and it would not win the tie
        found = candidate(task, cut, d, m, pool)
        if found is None:
            continue
        others.append(found)
        if better(found, best):
            best = found
    if best is None:
        best = nearest_to_fitting(task, options)
    return best, ranked(others, best)


def _in_order(options: list[Options]) -> Iterator[tuple[Cut, Pool, int, int, float]]:
    """All candidates that may fit, the lowest bound first; of equal ones those with most workers."""
    which = np.concatenate([np.full(len(o.shards), k) for k, o in enumerate(options)])
    d, m, seconds, excess = (
        np.concatenate([o.__dict__[name] for o in options]) for name in ("shards", "model_shards", "seconds", "excess")
    )
    may_fit = np.flatnonzero(excess <= 1.0 + 1e-9)
    for k in may_fit[np.lexsort((m[may_fit], -(d * m)[may_fit], seconds[may_fit]))]:
        o = options[which[k]]
        yield o.cut, o.pool, int(d[k]), int(m[k]), float(seconds[k])


def nearest_to_fitting(task: Task, options: list[Options]) -> Candidate:
    """Of plans that do not fit, the one whose heaviest worker is least beyond its memory."""
    best: Candidate | None = None
    ranking = sorted(((float(o.excess[k]), j, int(k)) for j, o in enumerate(options) for k in _least(o.excess)))
    for bound, j, k in ranking:
        if best is not None and bound > best.excess:
            break
        o = options[j]
        found = candidate(task, o.cut, int(o.shards[k]), int(o.model_shards[k]), o.pool, strict=False)
        if found is not None and (best is None or found.excess < best.excess * (1.0 - TIE)):
            best = found
    if best is None:
        raise AssertionError("without limits every plan can be worked out")
    return best


def _least(values: np.ndarray) -> np.ndarray:
    return np.argsort(values, kind="stable")[:RUNNER_UPS]


def ranked(others: list[Candidate], best: Candidate) -> list[Candidate]:
    """The best of the other plans, one for each grid and path."""
    seen = {(best.shards, best.model_shards, best.cut.path)}
    result = []
    for c in sorted(others, key=lambda c: (c.total, -c.busy, c.model_shards)):
        name = (c.shards, c.model_shards, c.cut.path)
        if name not in seen:
            seen.add(name)
            result.append(c)
    return result[:RUNNER_UPS]


def bounds_below(task: Task, cut: Cut, pool: Pool) -> Options:
    """Lower bounds for the numbers of shards worth trying, on the fastest devices of a pool."""
    d, m = shapes(task, cut.units, pool)
    if is_uniform(cut) and pool.alike:
        d, m = without_equals(cut.units, d, m)
    else:
        d, m = thinned(len(pool.numbers), d, m)
    rows = least_busiest_rows(task.rows, d)
    units = sum(s.count * s.load.flops for s in cut.segments)
    fixed_m = sum((-(-b.members // d) if b.dealt else b.members) * b.flops for b in cut.fixed.banks)
    if is_uniform(cut):
        most = -(-cut.units // m)
        spare = float(any(cut.elsewhere))  # members elsewhere may round up in any case
        heaviest = task.passes * rows * (most * cut.segments[0].load.flops + cut.groups[0].row_flops)
        heaviest = heaviest + sum((-(-(b.members * most) // d) - spare if b.dealt else b.members * most) * b.flops
                                  for b in cut.segments[0].load.banks)  # fmt: skip
    else:
        m_step = 0.0 if any(cut.elsewhere) else sum(s.count * b.members * b.flops / (d if b.dealt else 1)
                                                    for s in cut.segments for b in s.load.banks)  # fmt: skip
        heaviest = np.maximum((task.passes * rows * units + m_step) / m,
                              task.passes * rows * max(s.load.flops for s in cut.segments))  # fmt: skip
    fastest = pool.speeds.max()
    seconds = (task.passes * rows * cut.fixed.e_step + heaviest + fixed_m) / fastest
    if not (pool.speeds == fastest).all():
        # whole work over all speeds, and one row of the heaviest shard
        speed = np.cumsum(pool.speeds)[d * m - 1]
        whole = task.rows * task.passes * (m * cut.fixed.e_step + units)
        least = task.passes * (cut.fixed.e_step + max(s.load.flops for s in cut.segments))
        seconds = np.maximum(0.999 * whole / speed, least / fastest)
    seconds = seconds + _coupling_below(task, cut, d, m, rows)
    return Options(cut, pool, d, m, seconds, _excess_below(task, cut, d, m, rows, pool))


def shapes(task: Task, units: int, pool: Pool) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of data shards and model shards worth trying.

    Without coupling more data shards are never slower on equal devices. With it, and on unequal ones, fewer may
    be faster.
    """
    devices, most = len(pool.numbers), min(len(pool.numbers), units)
    m = np.arange(1 if units == 1 else 2, most + 1)
    if not len(m):
        return m, m
    d = np.minimum(devices // m, min(task.rows, num_blocks(task.rows)))
    alike = bool((pool.speeds == pool.speeds[0]).all()) and bool((pool.room == pool.room[0]).all())
    if alike and not task.network.known:
        return d, m
    if not alike and devices <= FEW:
        pairs = [(k, n) for n, top in zip(m, d) for k in range(1, top + 1)]
        return np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    ds, ms = [d], [m]
    fewer = d // 2
    while fewer.any():
        ds.append(fewer[fewer > 0])
        ms.append(m[fewer > 0])
        fewer = fewer // 2
    return np.concatenate(ds), np.concatenate(ms)


def thinned(devices: int, d: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All of up to `FEW` model shards, the most for each of up to `FEW` data shards, of the rest steps of 5 per cent.

    Unequal units take time to divide; numbers of model shards within five per cent of one another are alike.
    """
    most = {devices // k for k in range(1, FEW + 1)}
    steps = set(np.unique(np.round(FEW * 1.05 ** np.arange(400))).astype(np.int64).tolist())
    kept = np.isin(m, np.array(sorted(most | steps))) | (m <= FEW) | (m == m.max(initial=1))
    return d[kept], m[kept]


def without_equals(units: int, d: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of equally many data shards with equally many units for the busiest, the least and the most model shards.

    The least has the least to send, the most keeps most workers busy; all others take as long.
    """
    order = np.lexsort((m, d))
    d, m = d[order], m[order]
    heaviest = -(-units // np.maximum(m, 1))
    same = (d[1:] == d[:-1]) & (heaviest[1:] == heaviest[:-1])
    inner = np.zeros(len(d), bool)
    inner[1:-1] = same[1:] & same[:-1]
    return d[~inner], m[~inner]


def _coupling_below(task: Task, cut: Cut, d, m, rows):
    """Seconds of coupling at least."""
    if not task.network.known:
        return 0.0
    received = axis_bytes(cut.reduction, m, cut.payload, rows, cut.exchanged) * task.passes
    model = model_axis_seconds(task.network, m, received, cut.messages * task.passes)
    sent = [cut.fixed.sent + cut.fixed.together, *(s.load.sent * (s.count / m) for s in cut.segments)]
    return 0.999 * (model + data_axis_seconds(task.network, d, m, sum(sent, Sent())))


def _excess_below(task: Task, cut: Cut, d, m, rows, pool: Pool):
    """Bytes of the heaviest worker by the largest memory, at least."""
    largest = pool.room.max()
    if not np.isfinite(largest):
        return np.zeros(len(d))

    def resident(load: Load) -> float:
        return load.total_held.resident

    units = sum(s.count * s.load.held.resident for s in cut.segments)
    most = np.maximum(units / m, max(s.load.held.resident for s in cut.segments))
    if is_uniform(cut):
        most = -(-cut.units // m) * cut.segments[0].load.held.resident
    even = pool.speeds.max() == pool.speeds.min()
    share = rows if even else task.rows // d
    return (FLOAT * (resident(cut.fixed) + most) + share * task.model.row_bytes()) / largest
