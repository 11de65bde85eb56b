"""The command `fit`: a run file in, a fitted model and its record out."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import warnings
from pathlib import Path

from mixle_mpi.commands import dry_run
from mixle_mpi.commands import settings as run_file
from mixle_mpi.commands.ending import DONE, NUMERICAL, UNFORESEEN, run, say
from mixle_mpi.commands.parser import Parser
from mixle_mpi.commands.plan import add_machine_options, machine_of
from mixle_mpi.commands.watching import SIGNALS, Signals, checkpoint_lines, code_of, finished, time_limit
from mixle_mpi.contract.errors import ModelError, NumericalError

NAME = "mixle_mpi.fit"
EPILOG = """Alone, the fit runs in this process and needs no MPI; under a launcher on all its ranks:

  mpirun -n 4 python -m mixle_mpi.fit examples/penguins.toml --grid 2x2 --out runs/penguins

Exit codes: 0 done; 1 unforeseen error; 2 usage, run file or data; 3 too big for the memory of these ranks;
4 numerical failure, or the log likelihood fell; 5 not converged, with --require-convergence; 74 input or output failed;
75 stopped with a checkpoint, by the time limit, a signal (USR1, USR2, TERM, INT) or a file STOP in the output
directory: --resume goes on."""


class Override(argparse.Action):
    """An option that stands for one key of the run file: collected in the order of the command line."""

    def __call__(self, parser, namespace, values, option_string=None):
        if self.dest == "option":
            key, equals, text = values.partition("=")
            written = f"{option_string} {values}"
            if not equals:
                parser.error(f"{written}: write -o key=value, as in -o fit.max_iter=50")
            value = run_file.parse_value(written, text)
        elif self.nargs == 0:
            written, key, value = option_string, self.dest, True
        else:
            written, key = f"{option_string} {values}", self.dest
            words = run_file.BY_KEY[key].check("x") is None or key in ("fit.grid", "fit.max_time")
            value = values if words else run_file.parse_value(written, values)
        namespace.overrides.append((written, key, value))


def parser(speaks: bool) -> Parser:
    """The command line of `fit`."""
    p = Parser(speaks=speaks, prog="python -m mixle_mpi.fit", description="Fit the model of a run file by EM.",
               epilog=EPILOG)  # fmt: skip
    p.set_defaults(overrides=[])
    p.add_argument("run_file", nargs="?", metavar="RUN.toml")
    p.add_argument("--demo", action="store_true", help="the packaged example, with no file at all")
    flags = {
        "--data": "data.path", "--weight": "data.weight", "--sequence": "data.sequence", "--out": "output.dir",
        "--backend": "fit.backend", "--workers": "fit.workers", "--grid": "fit.grid", "--cut": "fit.cut",
        "--tune": "fit.tune", "--max-iter": "fit.max_iter", "--tol": "fit.tol", "--init": "fit.init",
        "--seed": "fit.seed", "--starts": "fit.starts", "--impossible": "fit.impossible",
        "--require-convergence": "fit.require_convergence", "--max-time": "fit.max_time",
        "--resume": "output.resume", "--checkpoint-every": "output.checkpoint_every", "--every": "output.every",
        "--quiet": "output.quiet",
    }  # fmt: skip
    for flag, key in flags.items():
        setting = run_file.BY_KEY[key]
        shape = {"metavar": setting.metavar or "N"} if setting.default is not False else {"nargs": 0}
        p.add_argument(flag, dest=key, action=Override, help=f"{key}: {setting.help}", **shape)
    p.add_argument("-o", dest="option", action=Override, metavar="KEY=VALUE",
                   help="any key of the run file, as in -o model.components=4")  # fmt: skip
    p.add_argument("--overwrite", action="store_true", help="replace the result in the output directory")
    p.add_argument("--dry-run", action="store_true", help="read the data, print the plan of the fit, and stop")
    add_machine_options(p)
    p.add_argument("--print-config", action="store_true", help="print the effective run file and stop")
    return p


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run(NAME, parser, work, argv)


def read_settings(options: argparse.Namespace) -> dict[str, dict]:
    """The effective settings. Raises ModelError, OSError."""
    if options.demo == (options.run_file is not None):
        raise ModelError("give a run file or --demo, not both" if options.demo else "a run file is needed, or --demo")
    path = None if options.demo else Path(options.run_file)
    return run_file.effective(path, options.overrides, "demo" if options.demo else "")


def work(options: argparse.Namespace, world, threads: int) -> int:
    """Fit, print and save; the exit code. Collective."""
    if world.size == 1 and not (options.print_config or options.dry_run):
        settings = read_settings(options)
        if settings["fit"]["backend"] == "mp":
            return on_processes(options, settings["fit"], threads)
    with Signals(NAME) as signals:
        return work_watched(options, world, threads, signals)


def on_processes(options: argparse.Namespace, fit: dict, threads: int) -> int:
    """The work on processes that are started for it; the exit code. Signals to this process go to rank 0."""
    from mixle_mpi.execution.backends.mp import count_of
    from mixle_mpi.execution.processes import WorkerLost, run_on_processes

    count = count_of(fit.get("workers"), fit["grid"], None)
    try:
        return run_on_processes(count, work_there, (options, threads), relayed=SIGNALS)
    except WorkerLost as error:
        say(f"{NAME}: error: {error}", sys.stderr)
        return UNFORESEEN


def work_there(world, job: tuple[argparse.Namespace, int], tell) -> int:
    """`work` on one of the processes."""
    options, threads = job
    with Signals(NAME) as signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return work_watched(options, world, threads, signals)


def work_watched(options: argparse.Namespace, world, threads: int, signals: Signals) -> int:
    """`work` while signals are noted. Collective."""
    began = time.perf_counter()
    from mixle_mpi.data.table import on_first
    from mixle_mpi.models.specification import build

    first = world.rank == 0
    settings = on_first(world, lambda: read_settings(options))
    model = build(settings["model"])
    dry_run.check(options)
    shape = None if options.dry_run else check_fit(settings["fit"], model, world)
    resources = None if options.dry_run else on_first(world, lambda: given_machine(options, world.size))
    if options.print_config:
        if first:
            say(run_file.to_toml(settings).rstrip())
        return DONE
    if options.dry_run:
        return dry_run.dry_run(options, settings, model, world)

    from mixle_mpi.execution.clock import Clock
    from mixle_mpi.models.bag import Bag
    from mixle_mpi.models.sequence import Steps
    from mixle_mpi.report.accounting import account
    from mixle_mpi.report.environment import environment
    from mixle_mpi.report.lines import (
        Progress,
        begun_lines,
        choice_lines,
        crowded,
        ended_lines,
        start_lines,
        starts_lines,
        warn_crowded,
    )
    from mixle_mpi.report.output import Output

    limit = time_limit(settings["fit"])
    several = world.size > 1 or settings["fit"]["backend"] == "spark"
    quiet = settings["output"]["quiet"]
    output = Output(Path(settings["output"]["dir"]))
    done, output.place = on_first(world, lambda: open_output(output, settings, options.overwrite))
    if done is not None:
        if first and not quiet:
            say(f"finished before: {done['status']} after {done['n_iter']} iterations, log likelihood "
                f"{done['log_likelihood']:.6f}; output in {output.directory}")  # fmt: skip
        return code_of(done["status"], settings["fit"])
    removed = on_first(world, lambda: remove_old_stop(output.directory))
    clock = Clock(began)
    found = environment(world, threads)
    starts = settings["fit"]["starts"], settings["fit"]["seed"]
    kinds = {isinstance(node, Bag) for node in model.walk() if isinstance(node, Steps)}
    word = "word" if kinds == {True} else "step" if kinds else "row"
    progress = Progress(settings["output"]["every"], *starts, word)
    if first:
        warn_crowded(found)
        if not quiet:
            lines = [*removed, *start_lines(found), *begun_lines(settings, shape if several else (1, 1))]
            say("\n".join([*lines, *checkpoint_lines(settings, limit)]))

    def callback(iteration):
        if first:
            output.add(iteration)
            if not quiet:
                progress.show(iteration)

    watch = watch_of(settings, output, limit, signals)
    chosen = []

    def told(choice):
        chosen.append(choice)
        for line in choice_lines(choice) if first and not quiet and several else ():
            say(line)

    try:
        clock.lap("start")
        result = fit_on_all(world, settings, model, shape, callback, watch, clock, told, resources)
    except NumericalError as error:
        if first:  # without agreement: the others may not have failed
            plan = chosen[0].as_data() if chosen else {"grid": None, "cut": settings["fit"].get("cut")}
            output.failed(str(error), settings["fit"], plan, NUMERICAL)
        raise
    (choice,) = chosen
    on_first(world, lambda: output.save(result.model))
    clock.lap("output")
    accounting = account(world, clock, result, choice.place(world.rank), threads)
    record = {"environment": found, "plan": choice.as_data()} | accounting.to_json()
    code = code_of(result.status, settings["fit"])
    on_first(world, lambda: output.done(result, settings["fit"], accounting.slowest(), code, record))
    if first:
        warn(result, settings["fit"])
        if not quiet:
            lines = ended_lines(result, accounting, bool(crowded(found)), output.place)
            say("\n".join([*starts_lines(result, *starts), *lines]))
        if watch.reason:
            say(f"stopped by {watch.reason}; the same command with --resume goes on", sys.stderr if quiet else None)
    return code


def open_output(output, settings: dict, overwrite: bool) -> tuple[dict | None, Path]:
    """The result of a fit that is finished already, else None with the place of the new one made. On rank 0.

    Raises
    ------
    ModelError
        When there is a result or checkpoint that this command does not own.
    """
    resume = settings["output"]["resume"]
    if resume and overwrite:
        raise ModelError("--overwrite begins anew and --resume goes on: give one of them")
    done = None
    if resume:
        output.find()
        done = finished(output.place, settings)
    if done is None:
        output.open(run_file.to_toml(settings), overwrite, resume)
    return done, output.place


def remove_old_stop(directory: Path) -> list[str]:
    """Remove a file STOP that was there before the run began; the line that says so, if there was one. On rank 0."""
    from mixle_mpi.execution.stopping import STOP

    if not (directory / STOP).exists():
        return []
    (directory / STOP).unlink()
    return [f"{directory / STOP} was there before the run began and is removed"]


def watch_of(settings: dict, output, limit: tuple[float, str] | None, signals: Signals):
    """What saves the fit, and ends it early."""
    from mixle_mpi.execution.stopping import Checkpoints

    asked = settings["output"]
    return Checkpoints(
        output.place, every=asked["checkpoint_every"], resume=asked["resume"],
        seconds=None if limit is None else limit[0], asked=signals.asked, asking=output.directory,
        tell=(lambda line: None) if asked["quiet"] else say,
    )  # fmt: skip


def check_fit(fit: dict, model, world) -> tuple[int, int] | None:
    """D and M of the grid, None where it is to be planned.

    Raises ModelError for a setting that these ranks or this model cannot have.
    """
    from mixle_mpi.execution.asked import check_options, shape_of
    from mixle_mpi.execution.grid import MpiAxis
    from mixle_mpi.execution.shard import check_cut

    check_options(model, fit["max_iter"], tolerance(fit), fit["starts"], fit["impossible"], "replicated")
    if fit["backend"] in ("local", "spark") and world.size > 1:
        raise ModelError(f'backend = "{fit["backend"]}" is one process, but there are {world.size} ranks')
    if fit["backend"] == "mp" and isinstance(world, MpiAxis):
        raise ModelError(f'backend = "mp" starts processes of its own, and is not for the {world.size} ranks of a '
                         "launcher")  # fmt: skip
    if "workers" in fit and fit["backend"] != "mp":
        raise ModelError(f'workers = {fit["workers"]} is how many processes backend "mp" starts; backend is '
                         f'"{fit["backend"]}"')  # fmt: skip
    shape = None if fit["backend"] == "spark" else shape_of(fit["grid"], None, world.size, fit["tune"])
    if "cut" in fit:
        check_cut(model, fit["cut"])
    return shape


def given_machine(options: argparse.Namespace, ranks: int):
    """The ranks as the option --machine has them, None without it. Raises ModelError for another number of them."""
    if options.machine is None:
        return None
    resources, *_ = machine_of(options)
    if len(resources.devices) != ranks:
        here = "is 1 rank" if ranks == 1 else f"are {ranks} ranks"
        raise ModelError(f"--machine {options.machine}: the machine has {len(resources.devices)} cores for one rank "
                         f"each, but there {here}; --ranks-per-node R uses fewer of a node")  # fmt: skip
    return resources


def tolerance(fit: dict) -> float | None:
    """`tol` as `optimize` takes it."""
    return None if fit["tol"] == "none" else float(fit["tol"])


def fit_on_all(world, settings: dict, model, shape, callback, watch, clock, told, resources=None):
    """The `Result` of the fit on a grid of these ranks, which are `resources` where these are given. Collective."""
    from mixle_mpi.execution.em import fit_on_ranks
    from mixle_mpi.execution.grid import mpi_world

    asked, data = settings["fit"], settings["data"]
    path = [Path(p) for p in data["path"]] if isinstance(data["path"], list) else data["path"]
    if asked["backend"] == "spark":
        return fit_on_spark(asked, data, path, model, callback, watch, clock, told)
    if asked["backend"] == "mpi" and world.size == 1:
        world = mpi_world()
    return fit_on_ranks(
        path, model, world, shape=shape, weights=data.get("weight"), sequence=data.get("sequence"),
        cut=asked.get("cut"), tune=asked["tune"], max_iter=asked["max_iter"], tol=tolerance(asked),
        starts=asked["starts"], init=asked["init"], seed=asked["seed"], impossible=asked["impossible"],
        pipelined=None if asked["pipelined"] == "auto" else asked["pipelined"],
        callback=callback, watch=watch, clock=clock, told=told, resources=resources,
    )  # fmt: skip


def fit_on_spark(fit: dict, data: dict, path, model, callback, watch, clock, told):
    """The `Result` of the fit on partitions of Spark."""
    from mixle_mpi.execution.asked import Asked
    from mixle_mpi.execution.backends.spark import fit_on_partitions

    options = {name: fit[name] for name in ("tune", "max_iter", "starts", "init", "seed", "impossible")}
    options |= {"cut": fit.get("cut"), "tol": tolerance(fit), "weights": data.get("weight"),
                "sequence": data.get("sequence")}  # fmt: skip
    asked = Asked(path, model, None, fit["grid"], None, False, callback, (None, 0.0, False, None), options)
    return fit_on_partitions(asked, watch, clock, told)


def warn(result, fit: dict) -> None:
    """Warn of what a user must not overlook in a result."""
    if result.status == "decreased":
        warnings.warn(f"the log likelihood fell after iteration {result.n_iter - 1}: the result is not a maximum")
    if result.impossible:
        warnings.warn(f"{result.impossible} rows of probability zero under every component were left out")
