"""What the plan of a fit predicted, beside what was measured: seconds by phase, payload by axis, memory."""

from __future__ import annotations

from typing import Any

from mixle_mpi.execution.clock import AXES, PLANNED
from mixle_mpi.execution.initialise import SAMPLE_ROWS
from mixle_mpi.execution.memory_limit import KERNEL_BYTES
from mixle_mpi.planning.balance import BalancePlan
from mixle_mpi.planning.describe import seconds, table
from mixle_mpi.planning.payload import in_run

SAMPLES = 3  # copies of the rows that the start looks at


def predicted(plan: BalancePlan, passes: int, m_steps: int, resident: int) -> dict[str, Any]:
    """Seconds of an iteration by phase, what all ranks send in so many passes and M-steps, and a rank's memory.

    `resident` are the bytes of a rank before rows are encoded: Python, libraries, MPI, and what was read.
    """
    rows = plan.extra["kernels"]["rows"]
    sample = SAMPLES * min(SAMPLE_ROWS, rows) * plan.extra["bytes"]["rows"] // max(rows, 1)
    return {
        "seconds": dict(plan.extra["seconds"]),
        "payload": in_run(plan.extra["payload"], passes, m_steps),
        "peak_bytes": resident + KERNEL_BYTES + sample + plan.extra["bytes"]["total"],
    }


def measured(
    typical: list[dict[str, float]], payload: list[dict[str, dict[str, int]]], peaks: list[int]
) -> dict[str, Any]:
    """The same, of all ranks: the slowest in each phase, the sums of what was sent, the largest memory."""
    return {
        "seconds": {name: max(of[name] for of in typical) for name in PLANNED if all(name in of for of in typical)},
        "payload": {axis: {what: sum(of.get(axis, {}).get(what, 0) for of in payload) for what in ("messages", "bytes")}
                    for axis in AXES},
        "peak_bytes": max(peaks),
    }  # fmt: skip


def lines(plan: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Both in a table; nothing of iterations where there were too few to measure one."""
    names = [name for name in PLANNED if name in found["seconds"]]
    if not names:
        return []
    header = ["an iteration; bytes in all", *names, *(f"{axis} bytes" for axis in AXES), "peak MB"]
    rows = [
        [what, *(seconds(of["seconds"][name]) for name in names), *(f"{of['payload'][axis]['bytes']}" for axis in AXES),
         f"{of['peak_bytes'] / 1e6:.0f}"]
        for what, of in (("predicted", plan), ("measured", found))
    ]  # fmt: skip
    return table(header, rows)
