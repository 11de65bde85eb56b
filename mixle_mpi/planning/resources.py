"""The devices that a plan can use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DeviceSpec:
    """One worker: memory in bytes (None when unknown), relative throughput, and the node that it is on."""

    name: str
    kind: str = "cpu"
    memory_bytes: int | None = None
    throughput: float = 1.0
    node: str | None = None


@dataclass(frozen=True)
class Resources:
    """Devices in rank order. Those of `from_mpi` can be arranged as a grid."""

    devices: tuple[DeviceSpec, ...]
    comm: object = field(default=None, repr=False, compare=False)

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
    def from_mpi(cls, comm=None) -> Resources:
        """The ranks of a communicator, by default of all ranks. Collective."""
        from mixle_mpi.execution.grid import host_names, world_comm  # the one named exception

        comm = world_comm() if comm is None else comm
        hosts = host_names(comm)
        return cls(tuple(DeviceSpec(f"rank{r}", node=host) for r, host in enumerate(hosts)), comm)

    def grid(self, shards: int, model_shards: int):
        """The Cartesian grid of these ranks, a context manager that frees its communicators. Collective.

        Raises ModelError, before any communicator is made, unless shards x model_shards is the number
        of devices, or the devices are not MPI ranks and there is more than one place.
        """
        from mixle_mpi.contract.errors import ModelError
        from mixle_mpi.execution.grid import check_shape, mpi_grid, serial_grid

        check_shape(shards, model_shards, len(self.devices))
        if self.comm is not None:
            return mpi_grid(shards, model_shards, self.comm)
        if shards * model_shards > 1:
            raise ModelError(f"grid {shards} x {model_shards}: these devices are not MPI ranks; use Resources.from_mpi")
        return serial_grid()
