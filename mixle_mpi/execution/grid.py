"""The D x M grid of ranks. The only module that imports mpi4py and calls its collectives."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.execution.axis import Alone, Axis, Pending, Traffic, checked
from mixle_mpi.execution.messages import cut_out, in_parts, message_limit, rounds

POST = 71  # the tag of numbers that ranks post to each other


class Grid:
    """Ranks arranged as `shards` data shards x `model_shards` model shards.

    Attributes
    ----------
    world : all ranks, model coordinate fastest
    data : the ranks of one model shard, over which rows are dealt
    model : the ranks of one data shard, over which units are dealt
    """

    def __init__(self, world: Axis, data: Axis, model: Axis):
        self.world, self.data, self.model = world, data, model

    @property
    def shape(self) -> tuple[int, int]:
        return self.data.size, self.model.size

    @property
    def coords(self) -> tuple[int, int]:
        return self.data.rank, self.model.rank

    def close(self) -> None:
        """Free the communicators. Collective."""

    def __enter__(self) -> Grid:
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None:  # freeing is collective: after an error the others may not come
            self.close()


def serial_grid() -> Grid:
    """The 1 x 1 grid, without MPI."""
    return Grid(Alone(), Alone(), Alone())


def check_shape(shards: int, model_shards: int, ranks: int) -> None:
    """Raise ModelError unless the grid has as many places as there are ranks."""
    if shards < 1 or model_shards < 1:
        raise ModelError(f"grid {shards} x {model_shards}: both numbers must be at least 1")
    if shards * model_shards != ranks:
        n = shards * model_shards
        other = f"{ranks}x1" + (f" or 1x{ranks}" if ranks > 1 else "")
        raise ModelError(
            f"grid: {shards} x {model_shards} = {n}, but {ranks} ranks; start {n} ranks (mpirun -n {n}) "
            f"or choose --grid {other}"
        )


class MpiPending(Pending):
    """A message in parts, of which some may be under way; its buffer is the result."""

    def __init__(self, result: np.ndarray, requests: list):
        super().__init__(result)
        self.requests = requests

    @property
    def arrived(self):
        return not self.requests


class MpiAxis(Axis):
    """A group of MPI ranks."""

    overlaps = True

    def __init__(self, comm, limit: int | None = None, traffic: Traffic | None = None):
        super().__init__(traffic)
        self._comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._limit = message_limit() if limit is None else limit
        self._made: dict[tuple[tuple[int, ...], int], MpiAxis] = {}
        self._posts: list[tuple[np.ndarray, Any]] = []

    def allgather(self, value: Any) -> list:
        self._count_object()
        return self._comm.allgather(value)

    def allreduce(self, array, how="sum"):
        MPI = _mpi()
        op = {"sum": MPI.SUM, "min": MPI.MIN, "max": MPI.MAX}[how]
        for part in in_parts(checked(array), self._limit):
            self._count(part.nbytes)
            self._comm.Allreduce(MPI.IN_PLACE, part, op=op)

    def allgather_array(self, array):
        out = np.empty((self.size, *checked(array).shape), array.dtype)
        if array.nbytes * self.size <= self._limit:
            self._count(array.nbytes)
            self._comm.Allgather(array, out)
            return out
        flat, columns, at = array.reshape(-1), out.reshape(self.size, -1), 0
        step = max(1, self._limit // (array.itemsize * self.size))
        for at in range(0, flat.size, step):
            part = np.empty((self.size, len(flat[at : at + step])), array.dtype)
            self._count(part[0].nbytes)
            self._comm.Allgather(flat[at : at + step], part)
            columns[:, at : at + step] = part
        return out

    def reduce_scatter(self, array, counts):
        checked(array, (sum(counts),))
        own = np.empty(counts[self.rank], array.dtype)
        for at, step, sizes in rounds(counts, array.itemsize, self._limit):
            send = array if step is None else cut_out(array, counts, at, step)
            self._count(send.nbytes)
            self._comm.Reduce_scatter(send, own[at : at + sizes[self.rank]], sizes, op=_mpi().SUM)
        return own

    def allgather_parts(self, array, counts):
        checked(array, (counts[self.rank],))
        whole = np.empty(sum(counts), array.dtype)
        for at, step, sizes in rounds(counts, array.itemsize, self._limit):
            own = array[at : at + sizes[self.rank]]
            self._count(own.nbytes, any(sizes))
            if step is None:
                self._comm.Allgatherv(own, [whole, sizes])
                continue
            received = np.empty(sum(sizes), array.dtype)
            self._comm.Allgatherv(own, [received, sizes])
            starts = np.cumsum(counts) - counts
            for start, part in zip(starts, np.split(received, np.cumsum(sizes)[:-1])):
                whole[start + at : start + at + len(part)] = part
        return whole

    def bcast(self, array, root=0):
        for part in in_parts(checked(array), self._limit):
            self._count(part.nbytes)
            self._comm.Bcast(part, root=root)

    def alltoall(self, parts):
        counts = np.array([len(checked(p)) for p in parts], dtype=np.int64)
        theirs = np.empty_like(counts)
        self._count(counts.nbytes)
        self._comm.Alltoall(counts, theirs)
        largest = np.array([max(counts.max(), theirs.max())], dtype=np.int64)
        self.allreduce(largest, "max")
        got = [np.empty(n, parts[0].dtype) for n in theirs]
        # in rounds, so that no count exceeds what an MPI call can take
        step = max(1, self._limit // (parts[0].itemsize * self.size))
        for at in range(0, int(largest[0]), step):
            send = np.concatenate([p[at : at + step] for p in parts])
            sizes = [len(p[at : at + step]) for p in parts]
            sizes_in = [len(g[at : at + step]) for g in got]
            receive = np.empty(sum(sizes_in), send.dtype)
            self._count(send.nbytes)
            self._comm.Alltoallv([send, sizes], [receive, sizes_in])
            for part, own in zip(np.split(receive, np.cumsum(sizes_in)[:-1]), got):
                own[at : at + step] = part
        return got

    def exchange(self, array, counts, expected, whole):
        checked(array, (sum(counts),))
        if whole * array.itemsize <= self._limit:  # no rank decides by what it has
            out = np.empty(sum(expected), array.dtype)
            self._count(array.nbytes, True)
            self._comm.Alltoallv([array, counts], [out, expected])
            return out
        return np.concatenate(self.alltoall(np.split(array, np.cumsum(counts)[:-1])))

    def start_allreduce(self, array):
        requests = []
        for part in in_parts(checked(array), self._limit):
            self._count(part.nbytes)
            requests.append(self._comm.Iallreduce(_mpi().IN_PLACE, part, op=_mpi().SUM))
        return MpiPending(array, requests)

    def start_allgather(self, array):
        # one that is too large is sent at once, which holds up no other: it has many members, so that all take part
        if array.nbytes * self.size > self._limit:
            return super().start_allgather(array)
        self._count(checked(array).nbytes)
        out = np.empty((self.size, *array.shape), array.dtype)
        return MpiPending(out, [self._comm.Iallgather(array, out)])

    def start_exchange(self, array, counts, expected, whole):
        if whole * array.itemsize > self._limit:
            return super().start_exchange(array, counts, expected, whole)
        self._count(checked(array, (sum(counts),)).nbytes, True)
        out = np.empty(sum(expected), array.dtype)
        return MpiPending(out, [self._comm.Ialltoallv([array, counts], [out, expected])])

    def wait_any(self, pending):
        while not any(message.arrived for message in pending):
            os.sched_yield()  # ranks that share a core wait in turns: without it MPICH's take three times as long
            for message in pending:
                message.requests = [request for request in message.requests if not request.Test()]
        return super().wait_any(pending)

    def part(self, ranks, copy, colour=0):
        if (ranks, copy) not in self._made:
            group = self._comm.Get_group().Incl(ranks)
            comm = self._comm.Create_group(group)
            group.Free()
            self._made[ranks, copy] = MpiAxis(comm, self._limit, self.traffic)
        return self._made[ranks, copy]

    def barrier(self):
        self._comm.Barrier()

    def meet(self):
        all_arrive(None, self._comm)

    def arrive(self, seconds, meanwhile=lambda: None):
        return all_arrive(seconds, self._comm, meanwhile)

    def post(self, number: int, ranks: Sequence[int]) -> None:
        """Send a number to some ranks, which need not wait for it: see `posted`. Not collective."""
        message = np.array([number], dtype=np.int64)
        self._posts += [(message, self._comm.Isend(message, dest=rank, tag=POST)) for rank in ranks]

    def posted(self, wait: bool = False) -> int | None:
        """A number that another rank posted to this one; None where none has come, unless it is to `wait` for one."""
        any_rank = _mpi().ANY_SOURCE
        if not (wait or self._comm.Iprobe(source=any_rank, tag=POST)):
            return None
        message = np.empty(1, dtype=np.int64)
        self._comm.Recv(message, source=any_rank, tag=POST)
        return int(message[0])

    def posts_came(self) -> None:
        """Return when all numbers that this rank posted were taken, or will be."""
        for _, request in self._posts:
            request.Wait()
        self._posts = []

    def node(self) -> MpiAxis:
        return MpiAxis(self._comm.Split_type(_mpi().COMM_TYPE_SHARED, key=self.rank), self._limit)

    def free(self) -> None:
        for part in self._made.values():
            part.free()
        self._made.clear()
        self._comm.Free()


class MpiGrid(Grid):
    """A grid on a Cartesian communicator, which it makes and frees."""

    def __init__(self, comm, shards: int, model_shards: int, limit: int | None = None):
        check_shape(shards, model_shards, comm.Get_size())
        cart = comm.Create_cart([shards, model_shards], reorder=False)
        super().__init__(
            MpiAxis(cart, limit), MpiAxis(cart.Sub([True, False]), limit), MpiAxis(cart.Sub([False, True]), limit)
        )

    def close(self):
        for axis in (self.model, self.data, self.world):
            axis.free()


def _mpi():
    from mpi4py import MPI

    return MPI


def world_comm():
    """The communicator of all ranks, MPI started if it was not."""
    return _mpi().COMM_WORLD


def mpi_grid(shards: int, model_shards: int, comm=None) -> MpiGrid:
    """The grid on `comm`, by default on all ranks. Collective."""
    return MpiGrid(world_comm() if comm is None else comm, shards, model_shards)


def mpi_world(comm=None) -> MpiAxis:
    """All ranks as one group, before there is a grid."""
    return MpiAxis(world_comm() if comm is None else comm)


def host_names(comm=None) -> list[str]:
    """The host of each rank. Collective."""
    return (world_comm() if comm is None else comm).allgather(socket.gethostname())


def library_version() -> str:
    """Name and version of the MPI library."""
    name, version = _mpi().get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def mpi_facts() -> dict[str, Any]:
    """Library, standard, thread level, and whether ranks can survive the loss of one (ULFM): now, and at all."""
    MPI = _mpi()
    levels = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled", MPI.THREAD_SERIALIZED: "serialized",
              MPI.THREAD_MULTIPLE: "multiple"}  # fmt: skip
    return {
        "library": library_version(),
        "standard": ".".join(map(str, MPI.Get_version())),
        "thread_level": levels[MPI.Query_thread()],
        "ulfm": os.environ.get("OMPI_MCA_mpi_ft_enable", "") in ("1", "true"),  # noqa: SIM112 - mpirun --with-ft ulfm
        "ulfm_available": offers_survival(),
    }


def offers_survival() -> bool:
    """Whether the library has the calls by which ranks go on after the loss of one (ULFM)."""
    MPI = _mpi()
    try:
        MPI.COMM_SELF.Ack_failed(0)  # mpi4py: NotImplementedError where the library lacks the call
    except (NotImplementedError, MPI.Exception):
        return False
    return True


def all_arrive(seconds: float | None, comm=None, meanwhile: Callable[[], None] = lambda: None) -> bool:
    """Whether all ranks call this within so many seconds, None for any time; the answer may differ between ranks.

    Collective, but for a rank that never comes: the others do not wait for it. `meanwhile` is called again and
    again while this rank waits.
    """
    request, pause = (world_comm() if comm is None else comm).Ibarrier(), 0.002
    deadline = None if seconds is None else time.monotonic() + seconds
    while not request.Test():
        if deadline is not None and time.monotonic() > deadline:
            return False
        meanwhile()
        time.sleep(pause)
        pause = min(1.02 * pause, 0.05)  # a rank that waits for long, as idle ones do, leaves its core to others
    return True


def abort(code: int) -> None:
    """End all ranks at once with this exit code; if MPI was never started, this process alone."""
    import sys

    if "mpi4py.MPI" in sys.modules:
        MPI = _mpi()
        if MPI.Is_initialized() and not MPI.Is_finalized():
            MPI.COMM_WORLD.Abort(code)
    os._exit(code)


def ping_pong(axis: MpiAxis, partner: int, message: np.ndarray) -> None:
    """Send an array to another rank of the group and receive it again. Both of a pair call this, nobody else."""
    first, comm = axis.rank < partner, axis._comm
    for sends in (first, not first):
        if sends:
            comm.Send(message, dest=partner)
        else:
            comm.Recv(message, source=partner)


def measured_resources(comm=None):
    """The ranks of a communicator as `execution.calibrate` measures them: its door for plans. Collective."""
    from mixle_mpi.execution import calibrate

    world = mpi_world(comm)
    return calibrate.measured_resources(world, calibrate.calibrated(world), world_comm() if comm is None else comm)


def part_grid(world: Axis, devices: tuple[tuple[int, ...], ...]) -> Grid | None:
    """The grid of some ranks of a group: D rows of M ranks; None on a rank that is not among them. Collective."""
    if isinstance(world, MpiAxis):
        return part_grids(world, [devices])
    groups = world.arranged(devices)
    return None if groups is None else Grid(*groups)


def part_grids(world: Axis, groups: Sequence[tuple[tuple[int, ...], ...]]) -> MpiGrid | None:
    """As `part_grid`, of several grids without a common rank the one that this rank is in. Collective."""
    if not isinstance(world, MpiAxis):
        raise TypeError("only MPI ranks can be on several grids")
    orders = [[rank for row in devices for rank in row] for devices in groups]
    shapes = [(len(devices), len(devices[0])) for devices in groups]
    if orders[0] == list(range(world.size)):
        return MpiGrid(world._comm, *shapes[0])
    own = next((k for k, order in enumerate(orders) if world.rank in order), None)
    colour, key = (_mpi().UNDEFINED, 0) if own is None else (own, orders[own].index(world.rank))
    part = world._comm.Split(colour, key)
    if own is None:
        return None
    grid = MpiGrid(part, *shapes[own])
    part.Free()  # the grid has communicators of its own
    return grid

