"""A grid whose ranks are threads of one process: for tests, and for model shards without MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from mixle_mpi.execution.axis import Pending, Traffic, checked
from mixle_mpi.execution.exchanged import ExchangedAxis
from mixle_mpi.execution.grid import Grid, check_shape

PATIENCE = 120.0  # seconds that a thread waits for the others before the group is broken


class _Place:
    """Where all threads of a grid wait: one condition, so that a thread can wait for any of several messages."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.broken = False

    def abort(self) -> None:
        """End all waits."""
        with self.condition:
            self.broken = True
            self.condition.notify_all()


class _Round(Pending):
    """The values that the threads of a group leave in one call."""

    def __init__(self, size: int):
        super().__init__()
        self.values: list[Any] = [None] * size
        self.left = 0

    @property
    def arrived(self):
        return self.left == len(self.values)


class _Reading(Pending):
    """A call of one thread: its result is made of the values of all."""

    def __init__(self, meeting: _Round, make: Callable[[list], Any]):
        super().__init__()
        self._round, self._make = meeting, make

    @property
    def arrived(self):
        return self._round.arrived

    def result(self):
        return self._make(self._round.values)


class _Meeting:
    """Where the threads of one group leave their values and pick up those of the others, call by call."""

    def __init__(self, ranks: tuple[int, ...], place: _Place):
        self.ranks, self.place = ranks, place
        self.rounds: dict[int, _Round] = {}
        self.parts: dict[tuple[tuple[int, ...], int], _Meeting] = {}

    def leave(self, rank: int, call: int, value: Any) -> _Round:
        """Leave a value for the group's call of that number."""
        with self.place.condition:
            found = self.rounds.setdefault(call, _Round(len(self.ranks)))
            found.values[rank] = value
            found.left += 1
            if found.arrived:
                del self.rounds[call]
                self.place.condition.notify_all()
            return found

    def part(self, ranks: tuple[int, ...], copy: int) -> _Meeting:
        with self.place.condition:
            return self.parts.setdefault((ranks, copy), _Meeting(ranks, self.place))


class ThreadAxis(ExchangedAxis):
    """A group of threads."""

    overlaps = True

    def __init__(self, rank: int, meeting: _Meeting, traffic: Traffic | None = None):
        super().__init__(traffic)
        self.rank, self.size = rank, len(meeting.ranks)
        self._meeting, self._calls = meeting, 0
        self._made: dict[tuple[tuple[int, ...], int], ThreadAxis] = {}

    def _exchange(self, value):
        return self._wait(self._start(value, list))

    def _start(self, value, make: Callable[[list], Any]) -> _Reading:
        self._calls += 1
        return _Reading(self._meeting.leave(self.rank, self._calls, value), make)

    def _wait(self, pending: Pending):
        self.wait_any([pending])
        return pending.result()

    def wait_any(self, pending):
        place = self._meeting.place
        with place.condition:
            came = place.condition.wait_for(lambda: place.broken or any(p.arrived for p in pending), PATIENCE)
            if not came:
                place.broken = True
                place.condition.notify_all()
            if place.broken:
                raise threading.BrokenBarrierError
        return super().wait_any(pending)

    def start_allreduce(self, array):
        self._count(checked(array).nbytes)

        def total(parts: list) -> np.ndarray:
            array[...] = np.add.reduce([checked(part, array.shape) for part in parts])
            return array

        return self._start(array.copy(), total)

    def start_allgather(self, array):
        self._count(checked(array).nbytes)
        return self._start(array.copy(), lambda parts: np.stack([checked(part, array.shape) for part in parts]))

    def start_exchange(self, array, counts, expected, whole):
        self._count(checked(array, (sum(counts),)).nbytes, True)
        return self._start((array.copy(), counts), lambda everyone: np.concatenate(
            [np.split(theirs, np.cumsum(sizes)[:-1])[self.rank] for theirs, sizes in everyone]))  # fmt: skip

    def part(self, ranks, copy, colour=0):
        if (ranks, copy) not in self._made:
            meeting = self._meeting.part(ranks, copy)
            self._made[ranks, copy] = ThreadAxis(ranks.index(self.rank), meeting, self.traffic)
        return self._made[ranks, copy]

def run_on_threads(shards: int, model_shards: int, work: Callable[[Grid], Any]) -> list:
    """What `work(grid)` returns on each rank of a shards x model_shards grid of threads, in rank order.

    An exception on one rank breaks the group: all ranks end, and it is raised here.
    """
    check_shape(shards, model_shards, shards * model_shards)
    place, everyone = _Place(), shards * model_shards
    world = _Meeting(tuple(range(everyone)), place)
    data = [_Meeting(tuple(range(shards)), place) for _ in range(model_shards)]
    model = [_Meeting(tuple(range(model_shards)), place) for _ in range(shards)]
    results: list[Any] = [None] * everyone
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        d, m = divmod(rank, model_shards)
        try:
            results[rank] = work(Grid(ThreadAxis(rank, world), ThreadAxis(d, data[m]), ThreadAxis(m, model[d])))
        except threading.BrokenBarrierError:
            pass  # another rank failed first; its error is raised below
        except BaseException as error:
            errors.append(error)
            place.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    if place.broken:
        raise TimeoutError(f"a thread waited {PATIENCE} s for others that did not come to the same call")
    return results
