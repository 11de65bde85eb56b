"""Where the time of a fit went, over all ranks: the table, the imbalance, the performance."""

from __future__ import annotations

import resource
from dataclasses import asdict, dataclass, field

from mixle_mpi.contract.work import DEFAULTS
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.clock import AXES, LOOP, PHASES, Clock
from mixle_mpi.execution.result import Result
from mixle_mpi.report.prediction import lines as comparison_lines
from mixle_mpi.report.prediction import measured, predicted

WORK = ("score", "accumulate", "search", "m_step")  # phases in which a rank of the loop waits for nobody
NOTABLE = 0.05  # share of the time spent waiting below which nothing is to be gained
SHORT = 1e-3  # seconds of an iteration below which messages take as long as arithmetic


@dataclass(frozen=True)
class OwnRecord:
    """What one rank brings to the table."""

    coords: tuple[int, int]
    wall: float
    seconds: dict[str, float]
    calls: dict[str, int]
    bytes: dict[str, int]
    messages: dict[str, int]
    counts: dict[str, int]
    payload: dict[str, dict[str, int]]
    kernels: int
    peak_bytes: int = 0
    typical: dict[str, float] = field(default_factory=dict)
    resident: int = 0
    in_flight: float = 0.0
    waited: float = 0.0
    group: int = 0


@dataclass(frozen=True)
class Row:
    """A line of the table: calls of the busiest rank, seconds over ranks, bytes and messages of all ranks."""

    phase: str
    calls: int
    least: float
    mean: float
    most: float
    share: float
    bytes: int
    messages: int


class Accounting:
    """The records of all ranks of the grid, in its order; `idle` ranks count in core-hours only.

    Of several grids side by side all ranks, grid after grid; what compares ranks with each other, or with the plan, is
    of the `first` grid alone.
    """

    def __init__(self, records: list[OwnRecord], result: Result, threads: int, idle: int = 0):
        self.records, self.result, self.threads, self.idle = records, result, threads, idle
        self.first = [r for r in records if r.group == 0]
        self.groups = [[r for r in records if r.group == k] for k in sorted({r.group for r in records})]
        self.wall = sum(r.wall for r in records) / len(records)

    @property
    def rows(self) -> list[Row]:
        """One row for each phase that took time on some rank; their means add up to the wall time."""
        rows = []
        for phase in PHASES:
            if any(phase in r.seconds for r in self.records):
                seconds = [r.seconds.get(phase, 0.0) for r in self.records]
                mean = sum(seconds) / len(seconds)
                rows.append(Row(
                    phase, max(r.calls.get(phase, 0) for r in self.records), min(seconds), mean, max(seconds),
                    mean / max(self.wall, 1e-12), sum(r.bytes.get(phase, 0) for r in self.records),
                    sum(r.messages.get(phase, 0) for r in self.records),
                ))  # fmt: skip
        return rows

    @property
    def loop_seconds(self) -> float:
        """Seconds of the iterations of the first grid, the mean over ranks: they end together."""
        return loop_seconds(self.first)

    def imbalance(self) -> dict[str, float]:
        """How far the busiest exceeds the average, minus one: over ranks, and over the shards of either axis."""
        work = [sum(r.seconds.get(phase, 0.0) for phase in WORK) for r in self.first]
        found = {"ranks": excess(work)}
        for number, axis in enumerate(("data", "model")):
            shards: dict[int, list[float]] = {}
            for record, own in zip(self.first, work):
                shards.setdefault(record.coords[number], []).append(own)
            found[axis] = excess([sum(own) / len(own) for own in shards.values()])
        waited = sum(r.seconds.get("wait", 0.0) for r in self.first) / len(self.first)
        return found | {"waiting": waited / max(self.loop_seconds, 1e-12)}

    def performance(self) -> dict[str, float]:
        """Rows a second and a core second, iterations an hour, of the loop; core-hours, of the whole run."""
        cores = len(self.records) * self.threads
        speed = sum(max(r.counts["passes"] for r in of) / max(loop_seconds(of), 1e-9) for of in self.groups)
        rate = self.result.n_rows * speed
        return {
            "rows_per_second": rate,
            "rows_per_core_second": rate / cores,
            "iterations_per_hour": 3600.0 * speed,
            "core_hours": (len(self.records) + self.idle) * self.threads * max(r.wall for r in self.records) / 3600.0,
        }

    def comparison(self) -> dict[str, dict]:
        """What was predicted, where there was a plan, and what was measured, see `report.prediction`."""
        found = measured([r.typical for r in self.first], [r.payload for r in self.first],
                         [r.peak_bytes for r in self.first])  # fmt: skip
        plan = self.result.plan
        if plan is None:
            return {"measured": found}
        passes = max(r.counts["passes"] for r in self.first)
        own = [s for s in self.result.starts if not self.result.groups or s["start"] in self.result.groups[0]["starts"]]
        m_steps = sum(s["n_iter"] for s in own) if self.result.starts else self.result.n_iter
        resident = max(r.resident for r in self.first)
        return {"predicted": predicted(plan, passes, m_steps, resident), "measured": found}

    def lines(self, crowded: bool) -> list[str]:
        """The table, the imbalance with what to do about it, and the performance."""
        lines = [
            "phase        calls      min s      avg s      max s  max/min  % wall         bytes  messages"
        ]
        for row in self.rows:
            ratio = f"{row.most / row.least:.2f}" if row.least > 1e-6 else "-"
            lines.append(
                f"{row.phase:10}  {row.calls:6d}  {row.least:9.4f}  {row.mean:9.4f}  {row.most:9.4f}  {ratio:>7}  "
                f"{100 * row.share:6.1f}  {row.bytes:12d}  {row.messages:8d}"
            )
        calls = sum(row.messages for row in self.rows)
        lines.append(
            f"{'total':10}  {'':6}  {min(r.wall for r in self.records):9.4f}  {self.wall:9.4f}  "
            f"{max(r.wall for r in self.records):9.4f}  {'':7}  {100 * sum(r.share for r in self.rows):6.1f}  "
            f"{sum(row.bytes for row in self.rows):12d}  {calls:8d}"
        )
        made = [r.kernels for r in self.records]
        if any(made):
            by = sum(n > 0 for n in made)
            lines.append(f"{sum(made)} kernels compiled on {by} of {len(made)} ranks; the next run loads them")
        lines += self._hidden() + self._division_in_time() + self._numeric_m_steps() + self._inner_rounds()
        beside = self.comparison()
        if "predicted" in beside:
            lines += comparison_lines(beside["predicted"], beside["measured"])
        if len(self.first) > 1:
            lines.append(self._imbalance_line(crowded))
        p = self.performance()
        lines.append(
            f"performance: {p['rows_per_second']:.4g} rows/s, {p['rows_per_core_second']:.4g} rows/(core s), "
            f"{p['iterations_per_hour']:.4g} iterations/hour; {p['core_hours']:.3g} core-hours in all"
        )
        peaks = [r.peak_bytes / 1e6 for r in self.records]
        lines.append(f"peak memory of a rank: {min(peaks):.0f} to {max(peaks):.0f} MB, libraries included")
        return lines

    def hidden(self) -> float | None:
        """Share of the time of messages over the model axis in which ranks did other things; None where there were
        none."""
        in_flight = sum(r.in_flight for r in self.records)
        return 1.0 - sum(r.waited for r in self.records) / in_flight if in_flight else None

    def _hidden(self) -> list[str]:
        hidden = self.hidden()
        if hidden is None:
            return []
        in_flight = sum(r.in_flight for r in self.records) / len(self.records)
        return [f"messages over the model axis were under way for {in_flight:.4f} s on average, of which "
                f"{100 * max(hidden, 0.0):.0f} % were hidden behind the scoring of other rows"]  # fmt: skip

    def _division_in_time(self) -> list[str]:
        """How far data shards that divide sequences in time had to work out steps again."""
        again = [r.counts["repaired"] for r in self.records]
        if not any(r.counts["told"] for r in self.records):
            return []
        passes = max(r.counts["passes"] for r in self.records)
        how = ", and composed what did not forget" if any(r.counts["composed"] for r in self.records) else ""
        return [f"sequences were divided in time; a pass worked out {sum(again) / passes:.1f} steps again, at most "
                f"{max(again) / passes:.1f} on a rank{how}"]  # fmt: skip

    def _numeric_m_steps(self) -> list[str]:
        """What M-steps that search for the maximum took, beside what plans reckon with."""
        took = sum(r.counts["searches"] for r in self.records)
        sets = sum(r.counts["searched"] for r in self.records)
        if not sets:
            return []
        return [f"numeric M-steps took {took / sets:.1f} evaluations for each parameter set; a plan without --searches "
                f"takes {DEFAULTS['searches']:g}"]  # fmt: skip

    def _inner_rounds(self) -> list[str]:
        """Rounds that documents of topic models took, beside what plans reckon with."""
        first = [r for r in self.records if r.coords[1] == 0]
        rows = sum(r.counts["rows"] for r in first)
        took = sum(r.counts["document_rounds"] for r in first)
        if not any(node.restarts for node in self.result.model.walk()):
            return []
        return [f"documents took {took / max(rows, 1):.1f} inner rounds a pass, over all topic models; a plan without "
                f"--rounds takes {DEFAULTS['rounds']:g} in each"]  # fmt: skip

    def _imbalance_line(self, crowded: bool) -> str:
        found = self.imbalance()
        return (
            f"average load imbalance {100 * found['ranks']:.1f} %, {100 * found['waiting']:.1f} % of the iterations' "
            f"time spent waiting; {self._advice(found, crowded)}"
        )

    def _advice(self, found: dict[str, float], crowded: bool) -> str:
        d, m = self.result.grid
        passes = max(r.counts["passes"] for r in self.first)
        if found["waiting"] < NOTABLE:
            return "there is little to gain from another --grid"
        if crowded:
            return "there are more threads than cores: start fewer ranks (mpirun -n)"
        if self.loop_seconds / max(passes, 1) < SHORT:
            return "an iteration takes less than a millisecond: fewer ranks (mpirun -n) are enough for these rows"
        if m > 1 and found["model"] >= found["data"]:
            return f"the model shards differ most: try --cut at another node, or --grid {d * m}x1"
        if found["data"] < NOTABLE:
            return "the ranks work alike and wait for messages: try --grid with fewer data shards, or fewer ranks"
        other = f"--grid {d // 2}x{2 * m}" if d % 2 == 0 else "another --grid"
        return f"the data shards differ most, at equal rows: look for a slow or shared node, or try {other}"

    def slowest(self) -> dict[str, float]:
        """Seconds by phase, of the slowest rank in each, and in all."""
        return {row.phase: row.most for row in self.rows} | {"total": max(r.wall for r in self.records)}

    def to_json(self) -> dict:
        """For `result.json`: `accounting` and `counts`."""
        return {
            "accounting": {
                "wall": self.wall,
                "phases": {
                    row.phase: {
                        "calls": row.calls, "min": row.least, "avg": row.mean, "max": row.most,
                        "share": row.share, "bytes": row.bytes, "messages": row.messages,
                    }
                    for row in self.rows
                },
                "imbalance": self.imbalance(),
                "hidden": self.hidden(),
                "performance": self.performance(),
                "kernels_compiled": [r.kernels for r in self.records],
                "peak_bytes": [r.peak_bytes for r in self.records],
                "groups": [r.group for r in self.records],
            },
            **self.comparison(),
            "counts": {
                **{name: [r.counts[name] for r in self.records] for name in self.records[0].counts},
                "payload": {
                    axis: {what: [r.payload[axis][what] for r in self.records]
                           for what in self.records[0].payload[axis]}
                    for axis in AXES
                },
            },
        }  # fmt: skip


def loop_seconds(records: list[OwnRecord]) -> float:
    """Seconds of the iterations of a grid, the mean over its ranks."""
    return sum(r.seconds.get(phase, 0.0) for r in records for phase in LOOP) / len(records)


def excess(work: list[float]) -> float:
    """max / mean - 1, 0 of nothing."""
    mean = sum(work) / len(work)
    return max(work) / mean - 1.0 if mean > 0 else 0.0


def account(
    world: Axis, clock: Clock, result: Result, place: tuple[int, tuple[int, int]] | None, threads: int
) -> Accounting:
    """The accounting of a fit that ended, the same on every rank. Collective.

    `place` is the number of this rank's grid and its coordinates there, None on an idle one.
    """
    from mixle_mpi.kernels.compiling import kernels_compiled

    sent = {phase: list(by_axis.values()) for phase, by_axis in clock.traffic.items()}
    own = None if place is None else OwnRecord(
        place[1],
        wall=clock.total(),
        seconds=clock.seconds(),
        calls=dict(clock.calls),
        bytes={phase: sum(t.bytes for t in all_axes) for phase, all_axes in sent.items()},
        messages={phase: sum(t.messages + t.objects for t in all_axes) for phase, all_axes in sent.items()},
        counts=asdict(result.counts),
        payload={axis: asdict(traffic) for axis, traffic in result.payload.items()},
        kernels=kernels_compiled(),
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # Linux counts in KiB
        typical=clock.typical(),
        resident=clock.resident,
        in_flight=clock.in_flight,
        waited=clock.waited,
        group=place[0],
    )  # fmt: skip
    records = sorted((r for r in world.allgather(own) if r is not None), key=lambda r: (r.group, r.coords))
    return Accounting(records, result, threads, world.size - len(records))
