"""The devices that a plan can use."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from mixle_mpi.contract.errors import ModelError


@dataclass(frozen=True)
class DeviceSpec:
    """One worker: memory in bytes (None when unknown), relative throughput, and the node that it is on."""

    name: str
    kind: str = "cpu"
    memory_bytes: int | None = None
    throughput: float = 1.0
    node: str | None = None

    def __post_init__(self):
        if not self.throughput > 0:
            raise ModelError(f"device {self.name}: throughput = {self.throughput!r} is not a positive number")


@dataclass(frozen=True)
class Resources:
    """Devices in rank order, and what connects them. Those of `from_mpi` can be arranged as a grid.

    Attributes
    ----------
    latency_within, latency_between : seconds a message, within a node and between nodes; None when unknown
    bandwidth_within, bandwidth_between : bytes a second of a rank when all send at once; None when unknown
    flops_per_second : FLOPs of a matrix product on a device of throughput 1; None when unknown
    call_seconds : what a call of a kernel takes besides its work; None when unknown
    """

    devices: tuple[DeviceSpec, ...]
    comm: object = field(default=None, repr=False, compare=False)
    latency_within: float | None = None
    latency_between: float | None = None
    bandwidth_within: float | None = None
    bandwidth_between: float | None = None
    flops_per_second: float | None = None
    call_seconds: float | None = None

    @classmethod
    def from_specs(cls, specs: Sequence[DeviceSpec]) -> Resources:
        """The given devices."""
        return cls(tuple(specs))

    @classmethod
    def local(cls, workers: int | None = None) -> Resources:
        """The CPU slots of this process, or the given number of them."""
        if workers is None:
            workers = len(os.sched_getaffinity(0))
        return cls(tuple(DeviceSpec(f"cpu{i}") for i in range(workers)))

    @classmethod
    def from_mpi(cls, comm=None, calibrate: bool = False) -> Resources:
        """The ranks of a communicator, by default of all ranks. Collective.

        With `calibrate` they are measured, which takes a few seconds: throughputs, FLOPs a second, latencies and
        bandwidths, kept in the user's cache directory for later runs of the same ranks; and the memory that each may
        use is found. Without it these are unknown.
        """
        from mixle_mpi.execution.grid import host_names, measured_resources, world_comm  # the one named exception

        if calibrate:
            return measured_resources(comm)
        comm = world_comm() if comm is None else comm
        hosts = host_names(comm)
        return cls(tuple(DeviceSpec(f"rank{r}", node=host) for r, host in enumerate(hosts)), comm)

    @classmethod
    def from_spark(cls, sc) -> Resources:
        """The task slots of a SparkContext: those of each executor that has registered, and its share of the memory.

        Slots are an executor's cores by `spark.task.cpus`, the node its host. Where no executor is known, as of a
        cluster that has started none, there are `defaultParallelism` slots, `spark.executor.cores` on an executor. The
        memory of an executor is `spark.executor.memory`, or `spark.driver.memory` where Spark runs in one process
        (`local[...]`), None where that is not set.
        """
        from mixle_mpi.planning.machine import parse_bytes

        conf, local = sc.getConf(), str(sc.master).startswith("local") and "cluster" not in str(sc.master)
        slots, cpus = int(sc.defaultParallelism), int(conf.get("spark.task.cpus", "1"))
        cores = slots if local else int(conf.get("spark.executor.cores", "1"))
        executors = [(host, n // cpus) for host, n in executors_of(sc, local)]
        if not executors:
            executors = [(f"executor{k}", min(cores, slots - at)) for k, at in enumerate(range(0, slots, cores))]
        name = "spark.driver.memory" if local else "spark.executor.memory"
        text = conf.get(name, None)
        memory = None
        if text is not None:  # Java's units: "4g" is 4 GiB, a bare number is bytes
            java = text.strip().lower().removesuffix("b")
            unit = {"k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}.get(java[-1:], "")
            memory = parse_bytes(java[:-1] + unit if unit else java, name)
        places = [(host, memory and memory // n) for host, n in executors for _ in range(n)]
        return cls(tuple(DeviceSpec(f"slot{i}", memory_bytes=own, node=host) for i, (host, own) in enumerate(places)))

    @classmethod
    def from_file(cls, path, ranks: int | None = None, ranks_per_node: int | None = None) -> Resources:
        """The cores of a machine file, see `planning.machine`; the first `ranks` of them, node by node.

        With `ranks_per_node` fewer ranks than cores share the memory of each node.

        Raises
        ------
        ModelError
            For a file that is no machine, or has fewer cores than `ranks`.
        OSError
        """
        from mixle_mpi.planning.machine import NETWORK, RATES, read_machine

        tables = read_machine(Path(path))
        if ranks_per_node is not None:
            for node in tables["nodes"]:
                if not 1 <= ranks_per_node <= node["cores"]:
                    raise ModelError(f"{path}: {ranks_per_node} ranks on a node with {node['cores']} cores")
                node["cores"] = ranks_per_node
        cores = sum(n["count"] * n["cores"] for n in tables["nodes"])
        if ranks is not None and not 1 <= ranks <= cores:
            raise ModelError(f"{path}: the machine has places for {cores} ranks, not {ranks}")
        devices = tuple(islice(_cores(tables["nodes"]), cores if ranks is None else ranks))
        network = {name: tables.get("network", {}).get(name) for name in NETWORK}
        return cls(devices, None, **network, **{name: tables.get(name) for name in RATES})

    def to_file(self, path) -> None:
        """Write a machine file, TOML or, when the name ends in .json, JSON; the devices node by node."""
        from mixle_mpi.planning.machine import NETWORK, RATES, compressed, write_machine

        nodes = node_numbers(self.devices)
        devices = [self.devices[i] for i in sorted(range(len(nodes)), key=nodes.__getitem__)]
        known = {name: self.__dict__[name] for name in NETWORK if self.__dict__[name] is not None}
        rate = {name: self.__dict__[name] for name in RATES if self.__dict__[name] is not None}
        network = {"network": known} if known else {}
        write_machine(Path(path), rate | {"nodes": compressed(devices)} | network)

    def limited(self, memory_bytes: int | None) -> Resources:
        """The same devices with so much memory each."""
        devices = tuple(dataclasses.replace(d, memory_bytes=memory_bytes) for d in self.devices)
        return dataclasses.replace(self, devices=devices)

    def without(self, taken_bytes: int) -> Resources:
        """The same devices, of whose known memory a process takes so much by itself."""
        devices = tuple(d if d.memory_bytes is None else
                        dataclasses.replace(d, memory_bytes=max(d.memory_bytes - taken_bytes, 1))
                        for d in self.devices)  # fmt: skip
        return dataclasses.replace(self, devices=devices)

    def grid(self, shards: int, model_shards: int):
        """The Cartesian grid of these ranks, a context manager that frees its communicators. Collective.

        Raises ModelError, before any communicator is made, unless shards x model_shards is the number
        of devices, or the devices are not MPI ranks and there is more than one place.
        """
        from mixle_mpi.execution.grid import check_shape, mpi_grid, serial_grid

        check_shape(shards, model_shards, len(self.devices))
        if self.comm is not None:
            return mpi_grid(shards, model_shards, self.comm)
        if shards * model_shards > 1:
            raise ModelError(f"grid {shards} x {model_shards}: these devices are not MPI ranks; use Resources.from_mpi")
        return serial_grid()


def executors_of(sc, local: bool) -> list[tuple[str, int]]:
    """Host and cores of each executor of a SparkContext, in order of their numbers; the driver where that is all."""
    context = vars(sc).get("_jsc")
    if context is None:
        return []
    known = context.sc().statusStore().executorList(True)
    found = [known.apply(i) for i in range(known.size())]
    own = [e for e in found if local or e.id() != "driver"]
    own.sort(key=lambda e: (len(e.id()), e.id()))
    return [(e.hostPort().rpartition(":")[0], e.totalCores()) for e in own if e.totalCores()]


def node_numbers(devices: Sequence[DeviceSpec]) -> list[int]:
    """The number of each device's node, counted in order of appearance; devices of unknown node are on one."""
    numbers: dict[str | None, int] = {}
    return [numbers.setdefault(d.node, len(numbers)) for d in devices]


def _cores(nodes: list[dict]) -> Iterator[DeviceSpec]:
    """The cores of the nodes of a machine file, in rank order."""
    number = rank = 0
    for kind in nodes:
        memory = None if "memory" not in kind else kind["memory"] // kind["cores"]
        for _ in range(kind["count"]):
            for _ in range(kind["cores"]):
                yield DeviceSpec(f"rank{rank}", kind.get("kind", "cpu"), memory, kind["throughput"], f"node{number}")
                rank += 1
            number += 1
