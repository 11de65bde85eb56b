"""What a fit prints: where it runs, its progress, how it ended."""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from mixle_mpi import __version__
from mixle_mpi.execution.choose import Choice
from mixle_mpi.execution.result import Iteration, Result
from mixle_mpi.planning.describe import table
from mixle_mpi.planning.paths import cut_words
from mixle_mpi.planning.side_by_side import groups_line
from mixle_mpi.report.accounting import Accounting
from mixle_mpi.report.environment import spread
from mixle_mpi.report.model import model_lines

MOST_SHARES = 8  # of a grid, whose rows are printed one by one


def start_lines(found: dict[str, Any]) -> list[str]:
    """The environment in one line: ranks, nodes, affinity and threads."""
    library = found["versions"]["mpi"]
    alone = "1 process" if found["ranks"] == 1 else f"{found['ranks']} processes"
    where = f"{alone} without MPI" if library is None else f"{plural(found['ranks'], 'rank')}, {library}"
    return [
        f"mixle_mpi {__version__}: {where}; {plural(len(found['hosts']), 'node')}; "
        f"ranks per node {spread(found['hosts'].values())}, affinity {spread(found['affinity'])} of "
        f"{spread(found['cores'])} cores, threads per rank {spread(found['threads'])}"
    ]


def crowded(found: dict[str, Any]) -> list[str]:
    """What to say of each node that has more threads than cores."""
    threads: Counter = Counter()
    cores: dict[str, int] = {}
    for host, own, of in zip(found["rank_hosts"], found["threads"], found["cores"]):
        threads[host] += own
        cores[host] = of
    return [
        f"{host}: {threads[host]} threads (ranks x threads of each) on {cores[host]} cores"
        for host in threads if threads[host] > cores[host]
    ]  # fmt: skip


def warn_crowded(found: dict[str, Any]) -> None:
    """Warn of nodes with more threads than cores."""
    nodes = crowded(found)
    if nodes:
        warnings.warn(nodes[0] + (f", and {len(nodes) - 1} more nodes" if len(nodes) > 1 else ""))


def begun_lines(settings: dict, shape: tuple[int, int] | None) -> list[str]:
    """What is fitted to what, and on which grid if that was asked for."""
    model = settings["model"]
    number = model.get("components")
    of = f" of {number if isinstance(number, int) else len(number)} components" if number else ""
    path = settings["data"]["path"]
    data = f"{shown(path[0])} and {len(path) - 1} more" if isinstance(path, list) else shown(path)
    on = "" if shape is None else f" on a {shape[0]} x {shape[1]} grid"
    return [f"fitting a {model['type']}{of} to {data}{on}"]


def choice_lines(choice: Choice) -> list[str]:
    """Which grid, and why; with what was measured where grids were tried. Of one that was asked for only if its
    borders are uneven, and in any case if throughputs are not those that were measured."""
    lines = [choice.note] if choice.note else []
    if choice.how == "asked":
        if choice.plan is None:
            return lines
        spare = choice.shape[1] - len({*choice.plan.extra["bounds"]}) + 1
        if spare:
            lines.append(f"{plural(spare, 'model shard')} of {choice.shape[1]} without units: --cut PATH says where "
                         "there are more, PATH/** takes those inside as well")  # fmt: skip
        return [*lines, border_words(choice)] if choice.row_bounds or choice.bounds else lines
    if choice.beside:
        return [*lines, beside_line(choice)]
    d, m = choice.shape
    if choice.tried:
        rows = [["grid tried", "cut", "predicted s", "measured s"]]
        for of in choice.tried:
            cut = "-" if of["cut"] is None else cut_words(of["cut"])
            numbers = ("-" if of[k] is None else f"{of[k]:.3g}" for k in ("predicted", "measured"))
            rows.append([f"{of['grid'][0]} x {of['grid'][1]}", cut, *numbers])
        lines += table(rows[0], rows[1:])
    why = "" if choice.plan is None else choice.plan.rationale
    if choice.how == "kept":
        why = "Kept from the checkpoint."
    if choice.how == "tuned":
        why = f"The fastest of {len(choice.tried)} that were measured."
    idle = f", {choice.idle} idle" if choice.idle else ""
    cut = f", cut at {cut_words(choice.cut or '')}" if m > 1 else ""
    return [*lines, f"grid {d} x {m} of {plural(choice.ranks, 'rank')}{idle}{cut}: {why[:1].lower()}{why[1:]}"]


def border_words(choice: Choice) -> str:
    """The rows and units of every shard, where these are not even."""
    found = (("data shards have", "rows", choice.row_bounds), ("model shards have", "units", choice.bounds))
    shares = ((who, what, [b - a for a, b in pairwise(bounds)]) for who, what, bounds in found if bounds is not None)
    return "; ".join(f"{who} {' / '.join(map(str, each[:MOST_SHARES]))}{' ...' * (len(each) > MOST_SHARES)} {what}"
                     for who, what, each in shares)  # fmt: skip


def beside_line(choice: Choice) -> str:
    """Which grids make which starts side by side, and what for."""
    idle = f", {choice.idle} idle" if choice.idle else ""
    why = "kept from the checkpoint" if choice.how == "kept" else f"{choice.gain:.3g}x as fast as all on the best grid"
    return f"{plural(len(choice.groups), 'grid')} side by side of {plural(choice.ranks, 'rank')}{idle}, {why}: " + (
        groups_line((g.starts, g.shape, g.active) for g in choice.groups))  # fmt: skip


class Progress:
    """One flushed line for every `every` iterations, below a heading, and each of several starts below its own.

    `word` is what the log likelihood is divided by the number of: rows, or steps of sequences.
    """

    def __init__(self, every: int, starts: int = 1, seed: int = 0, word: str = "row"):
        self.every, self.starts, self.seed, self.word = every, starts, seed, word
        self._is_headed = False

    def show(self, iteration: Iteration) -> None:
        """Print the line of an iteration."""
        if iteration.n_iter == 0 or not self._is_headed:
            self._is_headed = True
            if self.starts > 1:
                print(start_words(iteration.start, self.starts, self.seed), flush=True)
            print(f"iteration  {'log likelihood/' + self.word:>18}  {'change/' + self.word:>14}   seconds", flush=True)
        if iteration.n_iter % self.every == 0:
            change = "-" if iteration.change is None else f"{iteration.change:.3e}"
            numbers = f"{iteration.n_iter:9d}  {iteration.per_row:18.10f}  {change:>14}  {iteration.seconds:8.2f}"
            print(numbers, flush=True)


def ended_lines(result: Result, accounting: Accounting, is_crowded: bool, directory: Path) -> list[str]:
    """The summary, the accounting and the model."""
    d, m = result.grid
    cut = "" if result.cut is None else f", cut at {cut_words(result.cut)}"
    on = f"grid {d} x {m}{cut}"
    if len(result.groups) > 1:
        on = groups_line((of["starts"], of["grid"], of["ranks"]) for of in result.groups)
    bound = " (a lower bound)" if any(node.restarts for node in result.model.walk()) else ""
    return [
        f"{result.status} after {plural(result.n_iter, 'iteration')}: "
        f"log likelihood {result.log_likelihood:.6f}{bound}, BIC {result.bic:.3f}, AIC {result.aic:.3f}",
        f"{plural(result.n_rows, 'row')}, {plural(result.n_parameters, 'free parameter')}; {on}",
        "",
        *accounting.lines(is_crowded),
        "",
        f"output in {shown(str(directory))}",
        *model_lines(result.model),
    ]


def start_words(start: int, starts: int, seed: int) -> str:
    """Which of several starts, and its seed."""
    return f"start {start + 1} of {starts} (seed {seed + start})"


def starts_lines(result: Result, starts: int, seed: int) -> list[str]:
    """How each start ended, and which was the best; nothing where there is only one."""
    if starts == 1:
        return []
    lines = []
    for of in result.starts:
        words = f"{start_words(of['start'], starts, seed)}: {of['status']} after {plural(of['n_iter'], 'iteration')}"
        best = "  (the best)" if of["start"] == result.best_start else ""
        lines.append(f"{words}, log likelihood {of['history'][-1]:.6f}{best}")
    return lines


def plural(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def shown(path: str) -> str:
    """A path relative to the working directory where it is below."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path
