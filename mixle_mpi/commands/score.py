"""The command `score`: log density, likeliest component and posterior of every row, as CSV."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from mixle_mpi.commands.ending import DONE, run, say
from mixle_mpi.commands.parser import Parser
from mixle_mpi.contract.errors import ModelError

NAME = "mixle_mpi.score"
SEED = 0  # of which words are held out
EPILOG = """The file has one line a row of the data, in their order: row (the first is 0), log_density (nats) and, where
the root or the node at --path is a mixture, component (the likeliest) and p_0, p_1, ... (the posterior). Numbers
read back to the last bit. A row of probability zero has log_density -inf and no posterior.

Of a hidden Markov model, the root or the node at --path, --steps writes one line a step instead: row, step (the first
is 0), state on the most probable path and p_0, p_1, ..., the posterior of each state; and --forecast one line a row:
the likeliest state of the next step, and the probabilities of all.

Of a topic model, the root or the node at --path, the columns are topic and p_0, p_1, ..., the expected shares of all
topics in the document, and log_density is a bound from below. --completion holds out half of the words of each document
instead, and writes row, words (how many are held out), log_density (of these, given the others), topic and p_0, ...;
it prints the log-perplexity, nats a word. --coherence also prints the UMass coherence of each topic in these documents.

  mpirun -n 4 python -m mixle_mpi.score runs/penguins examples/penguins.csv --out posteriors.csv"""


def parser(speaks: bool) -> Parser:
    """The command line of `score`."""
    p = Parser(speaks=speaks, prog="python -m mixle_mpi.score",
               description="Log densities and posteriors of all rows under a saved model.", epilog=EPILOG)  # fmt: skip
    p.add_argument("model", metavar="MODEL_DIR", help="directory that fit or Node.save wrote")
    p.add_argument("data", metavar="DATA", 
                   help="a file (.csv, .csv.gz, .npy, .npz, .parquet, .jsonl, .jsonl.gz), a pattern in quotes, or a "
                        "directory")
    p.add_argument("--out", required=True, metavar="FILE", help="the CSV file to write")
    p.add_argument("--path", metavar="PATH",
                   help="the mixture, hidden Markov model or topic model that is meant, by default the root")
    what = p.add_mutually_exclusive_group()
    what.add_argument("--steps", action="store_true", help="write the states of all steps of a hidden Markov model")
    what.add_argument("--forecast", action="store_true", help="write the states of the next step of each sequence")
    what.add_argument("--completion", action="store_true",
                      help="hold out half of the words of each document, and print their log-perplexity")
    p.add_argument("--coherence", action="store_true", help="print how often the words of each topic come together")
    p.add_argument("--sequence", metavar="COLUMN",
                   help="one row of DATA is one step: the column that says of which sequence; written are sequences")
    p.add_argument("--quiet", action="store_true", help="print warnings and errors only")
    p.add_argument("--overwrite", action="store_true", help="replace FILE")
    return p


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run(NAME, parser, work, argv)


def work(options: argparse.Namespace, world, threads: int) -> int:
    """Score, write and print; the exit code. Collective."""
    began = time.perf_counter()
    import numpy as np

    from mixle_mpi.data.table import on_first, together
    from mixle_mpi.execution.decode import topics_at
    from mixle_mpi.execution.evaluate import executor_for, known_chain, mixture_at
    from mixle_mpi.execution.grid import mpi_grid, serial_grid
    from mixle_mpi.execution.initialise import level_of
    from mixle_mpi.execution.saved import load
    from mixle_mpi.execution.topics import known_topics, total_coherence
    from mixle_mpi.execution.warm import warm
    from mixle_mpi.models.mixture import Mixture
    from mixle_mpi.report.rows import SharedFile

    out, sums = Path(options.out), np.zeros(2)
    on_first(world, lambda: check_output(out, options.overwrite))
    model = together(world, lambda: load(options.model))
    with mpi_grid(world.size, 1) if world.size > 1 else serial_grid() as grid:
        whole = options.steps or options.forecast
        executor, total = executor_for(model, options.data, grid, sequence=options.sequence, divide=not whole)
        warm(executor)
        mixture = chain = topics = None
        if options.completion or options.coherence or topics_at(executor, options.path or ""):
            topics = known_topics(executor, options.path)
        coherence = total_coherence(executor, topics) if topics is not None and options.coherence else None
        if options.steps or options.forecast:
            chain = known_chain(executor, options.path)
        elif topics is None and (options.path is not None or isinstance(model, Mixture)):
            mixture = mixture_at(executor, options.path or "")
            if level_of(mixture[0]):
                raise ModelError(f"--path {options.path}: the mixture there is of steps, of which `score` writes none")
        with SharedFile(out, grid.world) as file:
            if topics is not None and options.completion:
                together(grid.world, lambda: write_completion(executor, topics, file, sums))
            elif chain is None:
                together(grid.world, lambda: write_rows(executor, topics or mixture, file, sums))
            else:
                together(grid.world, lambda: write_states(executor, *chain, options.steps, file, sums))
            file.finish()
        grid.world.allreduce(sums)
    if world.rank == 0 and not options.quiet:
        seconds = time.perf_counter() - began
        if coherence is not None and topics is not None:
            say("\n".join(coherence_lines(topics[0].node, coherence)))
        if options.completion:
            say("\n".join(completion_summary(total, sums, out, seconds)))
        elif chain is None:
            say("\n".join(summary(total, int(sums[1]), float(sums[0]), out, seconds)))
        else:
            say(f"{total} sequences, {int(sums[0])} steps\n{seconds:.2f} s; written to {out}")
    return DONE


def write_rows(executor, mixture, file, sums) -> None:
    """Write the lines of this rank's rows; add to `sums` (2,) log likelihood and number of the possible ones."""
    import numpy as np

    from mixle_mpi.execution.evaluate import scored_tiles
    from mixle_mpi.report.rows import header, row_lines

    if executor.grid.world.rank == 0:
        of = None if mixture is None else mixture[0].node.decomposition()
        file.write(header(0) if of is None else header(of.num_units, of.axis.value))
    for first, scores, posterior in scored_tiles(executor, mixture):
        file.write(row_lines(executor.source.first + first, scores, posterior))
        possible = scores[scores > -np.inf]
        sums += possible.sum(), len(possible)


def write_completion(executor, topics, file, sums) -> None:
    """Write the lines of this rank's documents, half of whose words are held out; add to `sums` (2,) the log densities
    of these and their number."""
    from mixle_mpi.execution.topics import completed
    from mixle_mpi.report.rows import completion_header, completion_lines

    if executor.grid.world.rank == 0:
        file.write(completion_header(topics[0].node.num_topics))
    for first, found in completed(executor, topics, SEED):
        lines = completion_lines(executor.source.first + first, found.words, found.log_densities, found.mixes)
        file.write(lines)
        sums += found.log_densities.sum(), found.words.sum()


def completion_summary(total: int, sums, out: Path, seconds: float) -> list[str]:
    """Documents, words held out and their log-perplexity."""
    if not sums[1]:
        return [f"{total} documents, none with two words, of which one could be held out", f"written to {out}"]
    return [f"{total} documents, {sums[1]:.0f} words held out: log-perplexity {-sums[0] / sums[1]:.10f} nats a word "
            "(an estimate by document completion, no bound)", f"{seconds:.2f} s; written to {out}"]  # fmt: skip


def coherence_lines(node, coherence) -> list[str]:
    """The UMass coherence of each topic, with its likeliest words."""
    from mixle_mpi.report.model import label_text

    words = node.top_words(8)
    lines = [f"  topic_{k} {value:9.3f}: {', '.join(map(label_text, words[k]))}" for k, value in enumerate(coherence)]
    return [f"UMass coherence, mean {coherence.mean():.4f} (0 is best):", *lines]


def write_states(executor, bank, member, of_steps, file, sums) -> None:
    """Write the lines of the sequences of this rank, of all steps or of the next; add to `sums` (2,) the steps."""
    from mixle_mpi.execution.decode import forecasts_of, path_of, prepared_tiles, states_of
    from mixle_mpi.report.rows import decoded_header, forecast_lines, step_lines

    if executor.grid.world.rank == 0:
        file.write(decoded_header(bank.node.num_states, of_steps))
    for tile in prepared_tiles(executor):
        first, offsets = executor.source.first + tile.start, bank.steps(tile).offsets
        sums[0] += offsets[-1]
        if of_steps:
            posterior = states_of(executor, bank, member, tile)
            file.write(step_lines(first, offsets, path_of(executor, bank, member, tile), posterior))
        else:
            file.write(forecast_lines(first, forecasts_of(executor, bank, member, tile)))


def check_output(out: Path, overwrite: bool) -> None:
    """Refuse a file that is there, a directory, or a place that cannot be written."""
    if out.is_dir():
        raise ModelError(f"{out} is a directory; --out is the file to write")
    if out.exists() and not overwrite:
        raise ModelError(f"{out} exists; --overwrite replaces it")
    out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise PermissionError(13, os.strerror(13), str(out.parent))


def summary(total: int, possible: int, log_likelihood: float, out: Path, seconds: float) -> list[str]:
    """Rows, total log likelihood, mean per row, and the rows that are impossible."""
    mean = log_likelihood / possible if possible else float("nan")
    lines = [f"{total} rows: log likelihood {log_likelihood:.6f}, {mean:.10f} per row"]
    if possible < total:
        none = total - possible
        lines.append(f"{none} of the rows have probability zero (log_density -inf) and are not in the sums")
    return [*lines, f"{seconds:.2f} s; written to {out}"]
