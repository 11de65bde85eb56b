"""The run file: its keys, the options that override them, and the effective settings."""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixle_mpi.contract.errors import ModelError, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEMO = Path(__file__).parent.parent / "demo" / "penguins.toml"
DATA = (".csv", ".csv.gz", ".npy", ".npz", ".parquet", ".jsonl", ".jsonl.gz")
TABLES = ("data", "model", "fit", "output")


@dataclass(frozen=True)
class Setting:
    """A key of the run file outside [model].

    `check` says what is wrong with a value, as the rest of a sentence, or None; `default` is None for a key that
    may be absent. A `path` is relative to the run file, or as an option to the working directory.
    """

    key: str
    check: Callable[[Any], str | None]
    default: Any
    help: str
    metavar: str = ""
    path: bool = False

    @property
    def table(self) -> str:
        return self.key.split(".")[0]

    @property
    def name(self) -> str:
        return self.key.split(".")[1]


def text(value) -> str | None:
    return None if isinstance(value, str) else "is not a text in quotes"


def some_text(value) -> str | None:
    return None if isinstance(value, str) and value else "is not a text in quotes, or empty"


def places(value) -> str | None:
    some = value if isinstance(value, list) else [value]
    return None if some and all(some_text(v) is None for v in some) else "is not a text in quotes, or a list of them"


def yes_or_no(value) -> str | None:
    return None if isinstance(value, bool) else "is neither true nor false"


def auto_or_not(value) -> str | None:
    return None if value == "auto" or isinstance(value, bool) else 'is neither true nor false nor "auto"'


def whole(least: int | None) -> Callable[[Any], str | None]:
    """A check for whole numbers, from `least` on if that is not None."""
    bound = "" if least is None else f" >= {least}"

    def check(value):
        ok = isinstance(value, int) and not isinstance(value, bool) and (least is None or value >= least)
        return None if ok else f"is not a whole number{bound}"

    return check


def tolerance(value) -> str | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    ok = value == "none" or (number and value >= 0 and math.isfinite(value))
    return None if ok else 'is neither a number >= 0 nor "none"'


def one_of(*choices: str) -> Callable[[Any], str | None]:
    """A check for one of a few words."""

    def check(value):
        return None if value in choices and isinstance(value, str) else f"is none of {', '.join(map(repr, choices))}"

    return check


def grid(value) -> str | None:
    if isinstance(value, list) and len(value) == 2 and all(whole(1)(v) is None for v in value):
        return None
    parts = value.split("x") if isinstance(value, str) else []
    ok = value == "auto" or (len(parts) == 2 and all(p.isascii() and p.isdigit() and int(p) > 0 for p in parts))
    return None if ok else 'is neither "auto" nor "DxM", two whole numbers >= 1'


def time_limit(value) -> str | None:
    from mixle_mpi.commands.watching import seconds_of_setting

    ok = value in ("auto", "none") or seconds_of_setting(value) is not None
    return None if ok else 'is neither minutes nor "HH:MM:SS" nor "D-HH:MM:SS", nor "auto" or "none"'


def minutes(value) -> str | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if number and value >= 0 and math.isfinite(value) else "is not a number of minutes >= 0"


SETTINGS = (
    Setting("data.path", places, None, "the data: a file (.csv, .csv.gz, .npy, .npz, .parquet, .jsonl, "
            ".jsonl.gz), a list, a pattern or a directory", "FILE", path=True),
    Setting("data.weight", some_text, None, "the column of sample weights", "COLUMN"),
    Setting("data.sequence", some_text, None, "one row is one step: the column that says of which sequence", "COLUMN"),
    Setting("fit.grid", grid, "auto", "data shards x model shards; auto is the fastest plan", "DxM"),
    Setting("fit.cut", text, None, "path of the nodes that are dealt over the model shards", "PATH"),
    Setting("fit.tune", yes_or_no, False, "measure the best few plans, a second each, and take the fastest"),
    Setting("fit.max_iter", whole(0), 100, "M-steps at most", "N"),
    Setting("fit.tol", tolerance, 1e-6, "stop when L changes by less per row; none never stops", "X"),
    Setting("fit.init", one_of("auto", "kmeans++", "random"), "auto", "auto, kmeans++ or random", "HOW"),
    Setting("fit.starts", whole(1), 1, "starts with other seeds; the best is kept", "N"),
    Setting("fit.seed", whole(None), 0, "the start depends on it and on nothing else", "N"),
    Setting("fit.impossible", one_of("error", "skip"), "error", "rows of probability zero: error or skip", "HOW"),
    Setting("fit.pipelined", auto_or_not, "auto", "score the next tile while one waits for other model shards"),
    Setting("fit.backend", one_of("auto", "local", "mpi", "mp", "spark"), "auto",
            "auto is mpi under a launcher, else local; mp starts processes", "NAME"),
    Setting("fit.workers", whole(1), None, "processes that mp starts; else as many as the grid, or the CPUs", "N"),
    Setting("fit.max_time", time_limit, "auto", "end in time, with a checkpoint; auto is SLURM's end of the job",
            "HH:MM:SS"),
    Setting("fit.require_convergence", yes_or_no, False, "exit 5 unless the fit converged"),
    Setting("output.dir", some_text, None, "where results go; else runs/<name of the run file>", "DIR", path=True),
    Setting("output.resume", yes_or_no, False, "go on from the checkpoint there, if there is one"),
    Setting("output.checkpoint_every", minutes, 15.0, "minutes between checkpoints; 0: each iteration", "MIN"),
    Setting("output.every", whole(1), 1, "print every Nth iteration", "N"),
    Setting("output.quiet", yes_or_no, False, "print warnings and errors only"),
)
BY_KEY = {s.key: s for s in SETTINGS}


def effective(run_file: Path | None, options: list[tuple[str, str, Any]], name: str = "") -> dict[str, dict]:
    """The settings of a run: defaults, then the run file, then the options in order.

    Parameters
    ----------
    run_file : None for the packaged example
    options : (how the user wrote it, key, value) of each option
    name : what the default output directory is called, by default the name of the run file

    Raises
    ------
    ModelError
        Names the file or option, the key, and the nearest known one.
    OSError
        When the run file cannot be read.
    """
    path = DEMO if run_file is None else run_file
    settings = read(path)
    for written, key, value in options:
        parts = split_key(key, written)
        if len(parts) == 1 and parts[0] in ("data", "fit", "output"):
            raise ModelError(f"{written}: {key} is a table; name a key of it, as in {key}.{_names(key)[0]}")
        place(settings, parts, value, written)
        check(settings, written)
        _make_absolute(settings, Path.cwd())
    settings.setdefault("output", {}).setdefault("dir", str(Path.cwd() / "runs" / (name or path.stem)))
    result: dict[str, dict] = {table: {} for table in TABLES}
    for setting in SETTINGS:
        value = settings.get(setting.table, {}).get(setting.name, setting.default)
        if value is not None:
            result[setting.table][setting.name] = value
    if "path" not in result["data"]:
        raise ModelError(f"{path}: the data are missing: give path = under [data], or --data")
    if "model" not in settings:
        raise ModelError(f"{path}: the table [model] is missing")
    result["model"] = settings["model"]
    if isinstance(result["fit"]["grid"], list):
        result["fit"]["grid"] = "x".join(map(str, result["fit"]["grid"]))
    if isinstance(result["fit"]["max_time"], datetime.time):  # what TOML makes of 01:30:00 without quotes
        result["fit"]["max_time"] = result["fit"]["max_time"].isoformat()
    return result


def read(path: Path) -> dict[str, Any]:
    """The tables of a run file, checked but for [model], paths made absolute."""
    try:
        with open(path, "rb") as file:
            settings = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        if path.name.endswith(DATA):
            raise ModelError(f"{path}: a run file is needed; data go with --data") from None
        raise ModelError(f"{path}: not TOML: {error}") from None
    check(settings, str(path))
    _make_absolute(settings, path.absolute().parent)
    return settings


def check(settings: dict[str, Any], where: str) -> None:
    """Refuse unknown tables and keys, and values that a key cannot have. [model] is left to `build`."""
    for table, keys in settings.items():
        if table not in TABLES:
            raise ModelError(f"{where}: there is no table [{table}]; {nearest(table, TABLES)}")
        if not isinstance(keys, dict):
            raise ModelError(f"{where}: {table} = {keys!r} is not a table; write [{table}]")
        for name, value in keys.items() if table != "model" else ():
            key = f"{table}.{name}"
            if key not in BY_KEY:
                raise ModelError(f"{where}: [{table}] has no key {name!r}; {nearest(name, _names(table))}")
            problem = BY_KEY[key].check(value)
            if problem is not None:
                raise ModelError(f"{where}: {key} = {value!r} {problem}")


def _names(table: str) -> list[str]:
    return [s.name for s in SETTINGS if s.table == table]


def _make_absolute(settings: dict[str, Any], base: Path) -> None:
    for setting in SETTINGS:
        keys = settings.get(setting.table, {})
        if setting.path and setting.name in keys:
            value = keys[setting.name]
            if isinstance(value, list):
                keys[setting.name] = [str((base / v).absolute()) for v in value]
            else:
                keys[setting.name] = str((base / value).absolute())


def place(settings: dict[str, Any], parts: list[str], value: Any, written: str) -> None:
    """Set the key of these parts, making tables on the way; a number is the place in a list, from 0."""
    at: Any = settings
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        if isinstance(at, list):
            if not (part.isdigit() and int(part) < len(at)):
                there = f"{'.'.join(parts[:depth])} has the numbers 0 to {len(at) - 1}"
                raise ModelError(f"{written}: {there}, not {part!r}")
            index: Any = int(part)
        elif isinstance(at, dict):
            index = part
            if not last:
                at.setdefault(part, {})
        else:
            raise ModelError(f"{written}: {'.'.join(parts[:depth])} = {at!r} is not a table")
        if last:
            at[index] = value
        else:
            at = at[index]


def split_key(key: str, written: str) -> list[str]:
    """The parts of a dotted key, each bare or quoted, as TOML writes them."""
    try:
        found: Any = tomllib.loads(f"{key} = 0") if "\n" not in key else {}
    except tomllib.TOMLDecodeError:
        found = {}
    parts = []
    while isinstance(found, dict) and len(found) == 1:
        (part, found), = found.items()
        parts.append(part)
    if found != 0 or not parts:
        raise ModelError(f"{written}: {key!r} is not a key such as fit.max_iter")
    return parts


def parse_value(written: str, text: str) -> Any:
    """A value in TOML; a text may go without quotes. Raises ModelError for a list or table with an error."""
    try:
        found = tomllib.loads(f"value = {text}")
        if list(found) == ["value"]:
            return found["value"]
    except tomllib.TOMLDecodeError as error:
        if text.lstrip()[:1] in ("[", "{", '"', "'"):
            raise ModelError(f"{written}: not TOML: {error}; the shell takes quotes away unless the whole is in "
                             "quotes of the other kind") from None  # fmt: skip
    return text


def to_toml(settings: dict[str, Any]) -> str:
    """A run file of these settings, which repeats the run."""
    import tomli_w

    return tomli_w.dumps(settings)
