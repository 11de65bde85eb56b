"""The measured machine, for people and as plain data."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from mixle_mpi.execution.measured import Measured
from mixle_mpi.planning.resources import Resources


def machine_data(measured: Measured, resources: Resources) -> dict[str, Any]:
    """What was measured, see `Measured`, and bytes of memory by rank."""
    return dataclasses.asdict(measured) | {"memory": [d.memory_bytes for d in resources.devices]}


def machine_lines(measured: Measured, resources: Resources) -> list[str]:
    """The block that people read."""
    shares = [d.memory_bytes / 2**30 for d in resources.devices if d.memory_bytes is not None]
    speeds = Counter(measured.throughputs)
    pairs = [
        ("measured", f"in {measured.seconds:.1f} s"),
        ("computing", f"{measured.flops_per_second / 1e9:.1f} GFLOP/s of a matrix product, "
                      f"{measured.exps_per_second / 1e9:.2f} G exponentials/s, "
                      f"copying {measured.stream_per_second / 1e9:.1f} GB/s; of one rank while all work"),
        ("throughput", ", ".join(f"{speed:g} of {n} ranks" for speed, n in sorted(speeds.items(), reverse=True))),
        ("within", _messages(measured.latency_within, measured.bandwidth_within) or "no node with two ranks"),
        ("between", _messages(measured.latency_between, measured.bandwidth_between) or "one node"),
        ("rank has", " to ".join(dict.fromkeys(f"{v:.2f}" for v in (min(shares), max(shares)))) + " GiB of memory"),
    ]  # fmt: skip
    return [f"{name:10} {text}" for name, text in pairs]


def _messages(latency: float | None, bandwidth: float | None) -> str:
    if latency is None or bandwidth is None:
        return ""
    return f"{1e6 * latency:.1f} us a message, {bandwidth / 1e9:.2f} GB/s received by each rank"
