"""The command `show`: a saved model in words."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mixle_mpi.commands.ending import DONE, run, say
from mixle_mpi.commands.parser import Parser
from mixle_mpi.contract.errors import DataError, ModelError

NAME = "mixle_mpi.show"
EPILOG = """Components come by falling weight, categories by falling probability; a covariance is cut to its first
entries. --json prints the structure with all parameters, in the user's units.

  python -m mixle_mpi.show runs/penguins --top 3"""
FROM_RESULT = ("status", "log_likelihood", "n_iter", "n_rows", "bic", "aic")


def parser(speaks: bool) -> Parser:
    """The command line of `show`."""
    p = Parser(speaks=speaks, prog="python -m mixle_mpi.show", description="A saved model in words.", epilog=EPILOG)
    p.set_defaults(allow_singleton=True)  # it reads, and needs no other process
    p.add_argument("model", metavar="MODEL_DIR", help="directory that fit or Node.save wrote")
    p.add_argument("--top", type=int, default=8, metavar="N", help="components, categories and entries to show (8)")
    p.add_argument("--json", action="store_true", help="print everything as JSON instead")
    return p


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run(NAME, parser, work, argv)


def work(options: argparse.Namespace, world, threads: int) -> int:
    """Print the model on rank 0; the exit code. Collective."""
    from mixle_mpi.data.table import on_first

    text = on_first(world, lambda: described(Path(options.model), options.top, options.json))
    if world.rank == 0:
        say(text)
    return DONE


def described(directory: Path, top: int, as_json: bool) -> str:
    """The model of a directory in words, or as JSON. Raises ModelError, DataError, OSError."""
    from mixle_mpi.execution.saved import load
    from mixle_mpi.models.specification import describe
    from mixle_mpi.report.model import column_lines, model_lines

    if top < 1:
        raise ModelError(f"--top {top}: at least 1 is shown")
    model = load(directory)
    result = result_beside(directory)
    if as_json:
        found = {"num_parameters": model.num_parameters, "model": describe(model), "columns": column_lines(model)}
        return json.dumps(found | {"result": result}, indent=1)
    kind = model.type_name()
    lines = [f"{directory}: a {kind} with {model.num_parameters} free parameters"]
    if result is not None:
        level, bic = result["log_likelihood"], result["bic"]
        figures = "" if level is None or bic is None else f", log likelihood {level:.6f}, BIC {bic:.3f}"
        lines.append(f"{result['status']} after {result['n_iter']} iterations on {result['n_rows']} rows{figures}")
    return "\n".join([
        *lines, "",
        *model_lines(model, components=top, values=top, lines=max(60, 40 * top), by_weight=True), "",
        "columns:", *(f"  {line}" for line in column_lines(model)),
    ])  # fmt: skip


def result_beside(directory: Path) -> dict | None:
    """What `result.json` in the directory says of the fit, None without one. Raises DataError when it is damaged."""
    path = directory / "result.json"
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: found[name] for name in FROM_RESULT}
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not the result of a fit ({error})") from None
