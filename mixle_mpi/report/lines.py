"""What a fit prints: where it runs, its progress, how it ended."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

from mixle_mpi import __version__
from mixle_mpi.execution.result import Iteration, Result
from mixle_mpi.report.model import model_lines
from mixle_mpi.report.versions import mpi_library

Process = tuple[str, int, int, int]  # host, cores that it may use, cores of the host, threads


def start_lines(processes: list[Process]) -> list[str]:
    """The line that tells ranks, nodes, affinity and threads."""
    nodes = Counter(host for host, *_ in processes)
    affinity, threads = ({p[i] for p in processes} for i in (1, 3))
    library = mpi_library()
    where = "1 process without MPI" if library is None else f"{plural(len(processes), 'rank')}, {library}"
    cores = spread(p[2] for p in processes)
    return [
        f"mixle_mpi {__version__}: {where}; {plural(len(nodes), 'node')}; "
        f"ranks per node {spread(nodes.values())}, affinity {spread(affinity)} of {cores} cores, "
        f"threads per rank {spread(threads)}"
    ]


def warn_crowded(processes: list[Process]) -> None:
    """Warn of nodes with more threads than cores."""
    threads: Counter = Counter()
    for host, _, _, own in processes:
        threads[host] += own
    cores = {host: of for host, _, of, _ in processes}
    crowded = [host for host in threads if threads[host] > cores[host]]
    if crowded:
        host = crowded[0]
        more = f", and {len(crowded) - 1} more nodes" if len(crowded) > 1 else ""
        warnings.warn(f"{host}: {threads[host]} threads (ranks x threads of each) on {cores[host]} cores{more}")


def begun_lines(settings: dict, shape: tuple[int, int]) -> list[str]:
    """What is fitted to what."""
    d, m = shape
    model = settings["model"]
    number = model.get("components")
    of = f" of {number if isinstance(number, int) else len(number)} components" if number else ""
    return [f"fitting a {model['type']}{of} to {shown(settings['data']['path'])} on a {d} x {m} grid"]


class Progress:
    """One flushed line for every `every` iterations, below a heading."""

    def __init__(self, every: int):
        self.every = every

    def show(self, iteration: Iteration) -> None:
        """Print the line of an iteration."""
        if iteration.n_iter == 0:
            print("iteration  log likelihood/row      change/row   seconds", flush=True)
        if iteration.n_iter % self.every == 0:
            change = "-" if iteration.change is None else f"{iteration.change:.3e}"
            numbers = f"{iteration.n_iter:9d}  {iteration.per_row:18.10f}  {change:>14}  {iteration.seconds:8.2f}"
            print(numbers, flush=True)


def ended_lines(result: Result, seconds: dict[str, float], ranks: int, directory: Path) -> list[str]:
    """The summary and the model."""
    d, m = result.grid
    loop = sum(seconds[p] for p in ("score", "accumulate", "model_axis", "data_axis", "m_step", "wait"))
    rate = result.n_rows * (result.n_iter + 1) / max(loop, 1e-9)
    phases = sorted(((s, p) for p, s in seconds.items() if p != "total" and s >= 0.005), reverse=True)
    cut = "" if result.cut is None else f", cut at {result.cut or 'the root'}"
    return [
        f"{result.status} after {plural(result.n_iter, 'iteration')}: log likelihood {result.log_likelihood:.6f}, "
        f"BIC {result.bic:.3f}, AIC {result.aic:.3f}",
        f"{plural(result.n_rows, 'row')}, {plural(result.n_parameters, 'free parameter')}; grid {d} x {m}{cut}",
        f"{seconds['total']:.2f} s ({', '.join(f'{p} {s:.2f}' for s, p in phases[:6])}); "
        f"{rate:.3g} rows/s, {rate / ranks:.3g} rows/s a rank",
        f"output in {shown(str(directory))}",
        *model_lines(result.model),
    ]


def plural(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def spread(values) -> str:
    """One number, or the least and the largest."""
    low, high = min(values := list(values)), max(values)
    return str(low) if low == high else f"{low} to {high}"


def shown(path: str) -> str:
    """A path relative to the working directory where it is below."""
    return str(Path(path).relative_to(Path.cwd())) if Path(path).is_relative_to(Path.cwd()) else path
