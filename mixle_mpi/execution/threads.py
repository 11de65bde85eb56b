"""A grid whose ranks are threads of one process: for tests, and for model shards without MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mixle_mpi.execution.exchanged import ExchangedAxis
from mixle_mpi.execution.grid import Grid, check_shape

PATIENCE = 120.0  # seconds that a thread waits for the others before the group is broken


class _Meeting:
    """Where the threads of one group leave their values and pick up those of the others."""

    def __init__(self, size: int, barrier_of: list[threading.Barrier]):
        self.values: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=PATIENCE)
        barrier_of.append(self.barrier)


class ThreadAxis(ExchangedAxis):
    """A group of threads."""

    def __init__(self, rank: int, meeting: _Meeting):
        super().__init__()
        self.rank, self.size = rank, len(meeting.values)
        self._meeting = meeting

    def _exchange(self, value):
        self._meeting.values[self.rank] = value
        self._meeting.barrier.wait()
        values = list(self._meeting.values)
        self._meeting.barrier.wait()
        return values


def run_on_threads(shards: int, model_shards: int, work: Callable[[Grid], Any]) -> list:
    """What `work(grid)` returns on each rank of a shards x model_shards grid of threads, in rank order.

    An exception on one rank breaks the group: all ranks end, and it is raised here.
    """
    check_shape(shards, model_shards, shards * model_shards)
    barriers: list[threading.Barrier] = []
    world = _Meeting(shards * model_shards, barriers)
    data = [_Meeting(shards, barriers) for _ in range(model_shards)]
    model = [_Meeting(model_shards, barriers) for _ in range(shards)]
    results: list[Any] = [None] * (shards * model_shards)
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        d, m = divmod(rank, model_shards)
        try:
            results[rank] = work(Grid(ThreadAxis(rank, world), ThreadAxis(d, data[m]), ThreadAxis(m, model[d])))
        except threading.BrokenBarrierError:
            pass  # another rank failed first; its error is raised below
        except BaseException as error:
            errors.append(error)
            for barrier in barriers:
                barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    if world.barrier.broken or any(meeting.barrier.broken for meeting in (*data, *model)):
        raise TimeoutError(f"a thread waited {PATIENCE} s for others that did not come to the same call")
    return results
