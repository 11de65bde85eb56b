"""Processes of this machine as ranks: they are started, given their work through shared memory, and watched.

They are spawned, as new interpreters, and not forked: a fork of a process in which a BLAS, numba or Spark has started
threads has their locks but not the threads, and may wait for ever. A fork server would begin somewhat faster but
depends on what it has imported by then, and so does how many threads its BLAS has.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from multiprocessing.shared_memory import SharedMemory
from typing import Any

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.execution.axis import Axis
from mixle_mpi.execution.library_threads import THREADS
from mixle_mpi.execution.shared import ALL, Segment, SharedAxis, segment_bytes

MEETING = 2.5  # seconds that other ranks have for an error of their own once one has had one
STARTER = "MIXLE_MPI_STARTED_BY"  # variable of processes that are being started: the number of their parent
NO_GUARD = 78  # exit code of a process that would start processes itself
PROTOCOL = 5  # of pickles whose arrays lie beside them
ALIGNED = 64  # bytes
SHARED_MEMORY = "/dev/shm"

Work = Callable[[Axis, Any, Callable[[Any], None]], Any]


class WorkerLost(RuntimeError):
    """A process that ended before its work."""


class WorkerTraceback(Exception):
    """Where in a process an error was raised: its cause, as the traceback itself does not travel."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def run_on_processes(count: int, work: Work, job: Any, hear: Callable[[Any], None] = lambda said: None,
                     relayed: tuple[int, ...] = ()) -> Any:  # fmt: skip
    """What `work(world, job, tell)` returns on rank 0 of a group of so many processes.

    Parameters
    ----------
    work : a function of a module, which is imported in each process
    job : goes through shared memory, arrays without copies, which are then read-only
    hear : called here with what rank 0 says to `tell`
    relayed : signals to this process that go to rank 0 instead

    Raises
    ------
    ValueError, OSError, ...
        What `work` raises, of the lowest rank where several do.
    WorkerLost
        When a process ends before its work, with the rank and the signal or exit code.
    ModelError
        When this is called while the main module of a script is imported, without a guard; when the memory of
        /dev/shm is too small.
    """
    if os.environ.get(STARTER) == str(os.getppid()):
        os._exit(NO_GUARD)  # the parent, which waits for this process, tells
    pickled, sizes = packed(job)
    room = segment_bytes(count) + sum(-(-size // ALIGNED) * ALIGNED for size in sizes)
    check_room(room)
    with contextlib.ExitStack() as stack:
        meeting = stack.enter_context(_segment(segment_bytes(count)))
        parcel = stack.enter_context(_segment(max(room - segment_bytes(count), 1)))
        whole = memoryview(parcel.buf or b"")
        for (start, stop), part in zip(places(sizes), pickled):
            whole[start:stop] = part
        whole.release()
        crew = stack.enter_context(Crew(count, work, (meeting.name, parcel.name, sizes)))
        with relay(relayed, crew):
            return crew.watch(hear, [meeting, parcel])


def packed(job: Any) -> tuple[list[memoryview], list[int]]:
    """The pickle of a job and, beside it, its arrays, as bytes; and their sizes."""
    stream, beside = io.BytesIO(), list[Any]()
    ForkingPickler(stream, PROTOCOL, True, beside.append).dump(job)
    parts = [stream.getbuffer(), *(buffer.raw() for buffer in beside)]
    return parts, [part.nbytes for part in parts]


def places(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """First byte and the byte after the last of parts of these sizes, one after another."""
    at = 0
    for size in sizes:
        yield at, at + size
        at += -(-size // ALIGNED) * ALIGNED


def unpacked(parcel: SharedMemory, sizes: list[int]) -> Any:
    """The job in a segment; arrays are views of it."""
    whole = memoryview(parcel.buf or b"").toreadonly()
    first, *beside = [whole[start:stop] for start, stop in places(sizes)]
    return ForkingPickler.loads(first, buffers=beside)


def check_room(needed: int) -> None:
    """Raise ModelError where shared memory is too small: to write beyond it ends a process without a word."""
    with contextlib.suppress(FileNotFoundError):
        found = os.statvfs(SHARED_MEMORY)
        if found.f_bavail * found.f_frsize < needed:
            raise ModelError(f'backend "mp" needs {needed} bytes of shared memory, and {SHARED_MEMORY} has '
                             f"{found.f_bavail * found.f_frsize}; data in files are read by each process")  # fmt: skip


@contextlib.contextmanager
def _segment(size: int) -> Iterator[SharedMemory]:
    """A new segment, which is gone afterwards. It may be unlinked before, once all who need it have opened it."""
    memory = SharedMemory(create=True, size=size)
    try:
        yield memory
    finally:
        memory.close()
        with contextlib.suppress(FileNotFoundError):
            os.stat(f"{SHARED_MEMORY}/{memory.name}")
            memory.unlink()


@contextlib.contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes that are started meanwhile have one thread in each library, unless the environment says otherwise, and
    do not get the SIGINT of a terminal, which is for this process."""
    begun = {name: "1" for name in THREADS if not os.environ.get(name)} | {STARTER: str(os.getpid())}
    before = {name: os.environ.get(name) for name in begun}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(begun)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def relay(numbers: tuple[int, ...], crew: Crew) -> Iterator[None]:
    """Send signals to rank 0 instead."""
    old = {number: signal.signal(number, lambda n, frame: crew.signal(n)) for number in numbers}
    try:
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)


class Crew:
    """Processes at work. A context: none is left after it."""

    def __init__(self, count: int, work: Work, segments: tuple):
        self.count = count
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        self._work, self._segments = work, segments

    def __enter__(self) -> Crew:
        context = multiprocessing.get_context("spawn")
        try:
            with one_thread_each():
                for rank in range(self.count):
                    own, theirs = context.Pipe()
                    self._pipes.append(own)
                    process = context.Process(
                        target=begin, args=(rank, self.count, self._work, theirs, *self._segments), daemon=True,
                        name=f"mixle_mpi rank {rank}",
                    )  # fmt: skip
                    process.start()
                    self._processes.append(process)
                    theirs.close()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error) -> None:
        for process in self._processes:
            process.kill()  # one that has ended is not hurt; nothing of a rank has to be torn down
        for process in self._processes:
            process.join()
            process.close()
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes = [], []

    def signal(self, number: int) -> None:
        """Send a signal to rank 0."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._processes[0].pid, number)

    def watch(self, hear: Callable[[Any], None], segments: list[SharedMemory]) -> Any:
        """The result of rank 0, once all have ended; see `run_on_processes`. The segments lose their names once
        all ranks have opened them: whatever ends now, nothing is left of them."""
        outcomes: dict[int, tuple[str, Any]] = {}
        opened, deadline = 0, None
        while len(outcomes) < self.count:
            at_work = [rank for rank in range(self.count) if rank not in outcomes]
            seconds = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            ready = wait([x for r in at_work for x in (self._pipes[r], self._processes[r].sentinel)], seconds)
            for rank in at_work:
                pipe, process = self._pipes[rank], self._processes[rank]
                while pipe in ready or process.sentinel in ready:
                    kind, said = self._next(rank, process.sentinel in ready)
                    if kind in ("done", "raised", "lost"):
                        outcomes[rank] = kind, said
                        break
                    if kind == "open":
                        opened += 1
                        if opened == self.count:
                            for segment in segments:
                                segment.unlink()
                    elif kind == "said":
                        hear(said)
                    elif kind == "warned":
                        text, category = said
                        warnings.warn(text, category, stacklevel=6)
                    if not pipe.poll() and process.sentinel not in ready:
                        break
            failed = any(kind != "done" for kind, _ in outcomes.values())
            if any(kind == "lost" for kind, _ in outcomes.values()):
                break
            if failed and deadline is None:
                deadline = time.monotonic() + MEETING
            if deadline is not None and time.monotonic() >= deadline:
                break
        for kind in ("raised", "lost"):
            for rank in sorted(outcomes):
                if outcomes[rank][0] == kind:
                    raise outcomes[rank][1]
        return outcomes[0][1]

    def _next(self, rank: int, ended: bool) -> tuple[str, Any]:
        """What a rank says next: ("open" | "said" | "warned" | "done" | "raised" | "lost", what)."""
        try:
            if ended and not self._pipes[rank].poll():
                raise EOFError
            kind, said = self._pipes[rank].recv()
        except (EOFError, ConnectionResetError):
            return "lost", self._loss(rank)
        if kind == "raised":
            error, text = said
            if not isinstance(error, (ValueError, OSError)):
                error.__cause__ = WorkerTraceback(text)
            return kind, error
        return kind, said

    def _loss(self, rank: int) -> Exception:
        """The error that is raised for a process that ended."""
        self._processes[rank].join()
        code = self._processes[rank].exitcode
        if code == NO_GUARD:
            return ModelError('backend "mp" starts processes that import this script: what the script does must stand '
                              'under `if __name__ == "__main__":`')  # fmt: skip
        how = f"exit code {code}"
        if code < 0:
            how = f"signal {-code} ({signal.Signals(-code).name})"
            if -code == signal.SIGKILL:
                how += ", as the system does where memory runs out"
        return WorkerLost(f'rank {rank} of {self.count} processes of backend "mp" was lost: it ended by {how}')


def begin(rank: int, count: int, work: Work, pipe: Connection, meeting: str, parcel: str, sizes: list[int]) -> None:
    """What a process does: its work, of which it tells the parent through a pipe. It does not return."""
    del os.environ[STARTER]
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    segment, data = SharedMemory(meeting), SharedMemory(parcel)
    pipe.send(("open", None))

    def show(message, category, filename, lineno, file=None, line=None):
        pipe.send(("warned", (str(message), category)))

    warnings.showwarning = show
    try:
        world = SharedAxis(Segment(segment.buf, count), ALL, list(range(count)), rank)
        result = work(world, unpacked(data, sizes), lambda said: pipe.send(("said", said)))
        message: tuple[str, Any] = ("done", result if rank == 0 else None)
    except Exception as error:  # the parent raises it
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        message = ("raised", (_that_travels(error, text), f"rank {rank}: {text}"))
    pipe.send(message)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # arrays look into the segments: they could not be closed in an orderly end


def _that_travels(error: Exception, text: str) -> Exception:
    """The error, or where it cannot be pickled one with its text."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:  # an error's own code runs here, and may raise whatever it likes; its text travels instead
        return RuntimeError(text)
    return error


def _end_with_parent(pipe: Connection) -> None:
    """End this process when the parent has: it never says anything."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv()
    os._exit(1)
