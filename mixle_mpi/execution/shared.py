"""A group of processes of one machine that meet in a segment of shared memory.

Each rank has, in each of a few channels, a counter and two slots of fixed size. To show the others an array it writes
a part to a slot, counts up, and waits until all have; what does not fit goes in rounds. Two slots are enough for one
wait a round: who writes the slot of the round before last knows that all have left that round.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler

import numpy as np

from mixle_mpi.execution.axis import Alone, Axis, checked
from mixle_mpi.execution.exchanged import REDUCE

LINE = 64  # bytes of a cache line: the counters of two ranks are in two of them
SLOT = 1 << 18  # bytes; a few of them are in the cache of a core
# channels: all processes, those of the grid in use by axis, and then parts of the model axis by their colours
ALL, WORLD, DATA, MODEL, PARTS = range(5)
CHANNELS = PARTS + 12  # a rank is in two groups on each level of nested cuts, and in all together
SPIN = 2e-3  # seconds that a rank yields its core in, again and again, before it sleeps
SLEEP = 5e-5, 2e-3  # seconds of a first and of a longest sleep


def segment_bytes(ranks: int) -> int:
    """Size of the segment of so many ranks."""
    return CHANNELS * ranks * (LINE + 2 * SLOT)


class Segment:
    """The counters (channels, ranks) and slots (channels, ranks, 2, SLOT) in a buffer that begins as zeros."""

    def __init__(self, buffer, ranks: int):
        self.counters: np.ndarray = np.ndarray((CHANNELS, ranks), np.int64, buffer, 0, (ranks * LINE, LINE))
        self.slots: np.ndarray = np.ndarray((CHANNELS, ranks, 2, SLOT), np.uint8, buffer, CHANNELS * ranks * LINE)


_FENCE = threading.Lock()


def fence() -> None:
    """What was written before is seen before what is written after, on processors that reorder writes as well: the
    lock is taken twice, as writes may move into the first critical section from both sides."""
    for _ in range(2):
        _FENCE.acquire()
        _FENCE.release()


class SharedAxis(Axis):
    """A group of processes: the ranks `members` of a segment, in one of its channels, of which `own` is this one.

    Sums are taken in rank order by every rank that wants them, so all have the same bits.
    """

    def __init__(self, segment: Segment, channel: int, members: list[int], own: int):
        super().__init__()
        self.rank, self.size = members.index(own), len(members)
        self._segment, self._channel, self._members, self._own = segment, channel, np.array(members), own
        self._counters = segment.counters[channel]

    def part(self, ranks, copy, colour=0):
        if len(ranks) == self.size:
            return self
        found = SharedAxis(self._segment, PARTS + colour, self._members[list(ranks)].tolist(), self._own)
        found.traffic = self.traffic
        return found

    # -- meeting -----------------------------------------------------------------------------------

    def _arrive(self) -> int:
        """Count up; the number of this meeting."""
        turn = int(self._counters[self._own]) + 1
        fence()
        self._counters[self._own] = turn
        return turn

    def _wait(self, turn: int, spin: float = SPIN, seconds: float | None = None, meanwhile=lambda: None) -> bool:
        """Wait until all have arrived; whether they have, within so many seconds."""
        began = time.perf_counter()
        pause, longest = SLEEP
        while not (self._counters[self._members] >= turn).all():
            waited = time.perf_counter() - began
            if waited < spin:
                os.sched_yield()
                continue
            if seconds is not None and waited > seconds:
                return False
            meanwhile()
            time.sleep(pause)
            pause = min(1.5 * pause, longest)
        fence()
        return True

    def barrier(self):
        self._wait(self._arrive())

    def meet(self):
        self._wait(self._arrive(), spin=0.0)

    def arrive(self, seconds, meanwhile=lambda: None):
        return self._wait(self._arrive(), 0.0, seconds, meanwhile)

    def _rounds(self, own: np.ndarray, most: int) -> Iterator[tuple[int, list[np.ndarray]]]:
        """Show the others a flat array, of which the longest has `most` values; collective. In each round the number
        of its first value, and what all ranks show from there on; to be read before the next round."""
        step = SLOT // own.itemsize
        slots = self._segment.slots[self._channel].view(own.dtype)
        for at in range(0, most, step):
            part = own[at : at + step]
            slot = (int(self._counters[self._own]) + 1) & 1
            slots[self._own, slot, : len(part)] = part
            self._wait(self._arrive())
            yield at, [slots[k, slot] for k in self._members]

    # -- collectives -------------------------------------------------------------------------------

    def _gathered(self, array: np.ndarray) -> np.ndarray:
        out = np.empty((self.size, *array.shape), array.dtype)
        flat = out.reshape(self.size, -1)
        for at, parts in self._rounds(array.reshape(-1), array.size):
            for row, part in zip(flat, parts):
                row[at : at + len(part)] = part[: array.size - at]
        return out

    def allgather(self, value):
        self._count_object()
        own = np.frombuffer(ForkingPickler.dumps(value), np.uint8)
        sizes = self._gathered(np.array([len(own)]))[:, 0]
        whole = [np.empty(n, np.uint8) for n in sizes]
        for at, parts in self._rounds(own, int(sizes.max())):
            for to, part in zip(whole, parts):
                to[at : at + len(part)] = part[: max(len(to) - at, 0)]
        return [ForkingPickler.loads(data) for data in whole]

    def allreduce(self, array, how="sum"):
        self._count(checked(array).nbytes)
        flat = array.reshape(-1)
        for at, parts in self._rounds(flat, flat.size):
            own = flat[at : at + len(parts[0])]
            REDUCE[how].reduce([part[: len(own)] for part in parts], out=own)

    def allgather_array(self, array):
        self._count(checked(array).nbytes)
        return self._gathered(array)

    def reduce_scatter(self, array, counts):
        self._count(checked(array, (sum(counts),)).nbytes)
        start, out = sum(counts[: self.rank]), np.empty(counts[self.rank], array.dtype)
        for at, parts in self._rounds(array, len(array)):
            first, stop = max(start, at), min(start + len(out), at + len(parts[0]))
            if first < stop:
                own = [part[first - at : stop - at] for part in parts]
                np.add.reduce(own, out=out[first - start : stop - start])
        return out

    def allgather_parts(self, array, counts):
        self._count(checked(array, (counts[self.rank],)).nbytes, any(counts))
        whole = np.empty(sum(counts), array.dtype)
        places = np.split(whole, np.cumsum(counts)[:-1])
        for at, parts in self._rounds(array, max(counts)):
            for to, part in zip(places, parts):
                to[at : at + len(part)] = part[: max(len(to) - at, 0)]
        return whole

    def bcast(self, array, root=0):
        self._count(checked(array).nbytes)
        flat = array.reshape(-1)
        for at, parts in self._rounds(flat if self.rank == root else flat[:0], flat.size):
            if self.rank != root:
                flat[at : at + len(parts[0])] = parts[root][: flat.size - at]

    def alltoall(self, parts):
        self._count(sum(checked(p).nbytes for p in parts))
        return self._dealt(np.concatenate(parts), [len(p) for p in parts])

    def exchange(self, array, counts, expected, whole):
        self._count(checked(array, (sum(counts),)).nbytes, True)
        return np.concatenate(self._dealt(array, counts))

    def _dealt(self, array: np.ndarray, counts: list[int]) -> list[np.ndarray]:
        """What comes from each rank, of whose flat arrays the next counts[r] values go to rank r."""
        everyone = self._gathered(np.array(counts, np.int64))
        starts = everyone[:, : self.rank].sum(axis=1)
        got = [np.empty(n, array.dtype) for n in everyone[:, self.rank]]
        for at, parts in self._rounds(array, int(everyone.sum(axis=1).max())):
            for start, to, part in zip(starts.tolist(), got, parts):
                first, stop = max(start, at), min(start + len(to), at + len(part))
                if first < stop:
                    to[first - start : stop - start] = part[first - at : stop - at]
        return got

    # -- groups ------------------------------------------------------------------------------------

    def node(self) -> Axis:
        return SharedAxis(self._segment, self._channel, self._members.tolist(), self._own)

    def arranged(self, devices):
        counters = self._segment.counters
        # ranks that were idle, or in other groups, have met less often: all go on from one number
        everyone = self._gathered(counters[WORLD:, self._own].copy())
        counters[WORLD:, self._own] = everyone.max(axis=0)
        self.barrier()
        rank = self.rank
        place = next(((d, m) for d, row in enumerate(devices) for m, r in enumerate(row) if r == rank), None)
        if place is None:
            return None
        d, m = place
        groups = [r for row in devices for r in row], [row[m] for row in devices], list(devices[d])
        return tuple(self._group(channel, ranks) for channel, ranks in zip((WORLD, DATA, MODEL), groups))

    def _group(self, channel: int, ranks: list[int]) -> Axis:
        if len(ranks) == 1:
            return Alone()
        return SharedAxis(self._segment, channel, [int(self._members[r]) for r in ranks], self._own)
