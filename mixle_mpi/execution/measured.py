"""What was measured of a machine, and the files in which that is kept for the next start on the same ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CACHE = "MIXLE_MPI_CACHE"  # names the directory of the files
NETWORK = ("latency_within", "latency_between", "bandwidth_within", "bandwidth_between")


@dataclass(frozen=True)
class Measured:
    """Speeds of ranks while all work at once, and of messages between them.

    Attributes
    ----------
    throughputs : of each rank, relative to `flops_per_second`
    flops_per_second : FLOPs of a matrix product on a rank of throughput 1
    exps_per_second : exponentials of a log-sum-exp on a rank of throughput 1
    stream_per_second : bytes that such a rank copies in memory, read and written
    call_seconds : of a NumPy call with hardly any work
    latency_within, latency_between : seconds a message, within a node and between nodes; None without any
    bandwidth_within, bandwidth_between : bytes a second that a rank receives when all send; None without any
    seconds : what measuring took
    kept : whether this was measured at an earlier start
    """

    throughputs: tuple[float, ...]
    flops_per_second: float
    exps_per_second: float
    stream_per_second: float
    call_seconds: float
    latency_within: float | None = None
    latency_between: float | None = None
    bandwidth_within: float | None = None
    bandwidth_between: float | None = None
    seconds: float = 0.0
    kept: bool = False

    @property
    def network(self) -> dict[str, float | None]:
        """The latencies and bandwidths, as `Resources` names them."""
        return {name: self.__dict__[name] for name in NETWORK}


def cache_file(key: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Path:
    """The file for what `key` tells apart, in MIXLE_MPI_CACHE or the user's cache directory."""
    home = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    directory = environment.get(CACHE) or os.path.join(home, "mixle_mpi")
    return Path(directory) / f"machine-{_digest(key)[:16]}.json"


def _digest(key: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()


def recall(path: Path, key: Mapping[str, Any], ranks: int) -> Measured | None:
    """What is kept in a file; None when it is not there, damaged, or of other ranks."""
    try:
        found = json.loads(path.read_bytes())
        if found.pop("key") != _digest(key):
            return None
        made = Measured(**found | {"throughputs": tuple(found["throughputs"]), "kept": True})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    needed = (*made.throughputs, made.flops_per_second, made.exps_per_second, made.stream_per_second,
              made.call_seconds, made.seconds)
    values = (*needed, *(v for v in made.network.values() if v is not None))
    sound = all(_positive(v) for v in values) and all(1e-3 <= t <= 1e3 for t in made.throughputs)
    return made if sound and len(made.throughputs) == ranks else None


def _positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 1e-15 < value < 1e18


def keep(path: Path, key: Mapping[str, Any], measured: Measured) -> None:
    """Write the file, whole or not at all; nothing where it cannot be written, and then it is measured each time."""
    kept = dataclasses.asdict(measured)
    del kept["kept"]
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps({"key": _digest(key)} | kept))
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
