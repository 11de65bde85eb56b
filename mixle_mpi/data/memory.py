"""Tables in memory: arrays, lists of rows, dicts of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from mixle_mpi.contract.columns import as_label, label_key
from mixle_mpi.contract.errors import DataError
from mixle_mpi.data.frames import FrameColumn, frame_columns, vectors_of
from mixle_mpi.data.ragged import Ragged, check_sequences, flattened
from mixle_mpi.data.table import SEQUENCE, Labels, Table, places


class Unlike:
    """A column of `n` rows that cannot be read, with the reason: it matters where the column is wanted."""

    def __init__(self, n: int, problem: str):
        self.n, self.problem = n, problem

    def __len__(self) -> int:
        return self.n


Column = np.ndarray | FrameColumn | Ragged | Unlike


class MemoryTable(Table):
    """Columns that are in memory. `first` and `total` are given when each rank brings its own rows."""

    def __init__(self, columns: dict[str, Column], first: int = 0, total: int | None = None):
        rows = len(next(iter(columns.values()))) if columns else 0
        super().__init__(tuple(columns), first, rows, rows if total is None else total, everywhere=total is None)
        self.columns = columns
        self.step_counts: dict[str, int] = {}
        self._converted: dict[tuple[str, str], np.ndarray | Labels | Ragged] = {}

    def steps(self, name):
        """See `Table.steps`."""
        column = self.columns[name]
        if name not in self.step_counts and isinstance(column, Ragged):
            self.step_counts[name] = int(column.offsets[-1])
        return self.step_counts.get(name, self.total)

    def check(self, wants):
        """Raise DataError for columns that are not there or not of the kind that is wanted."""
        places("the data", list(self.names), wants)
        for name, want in wants.items():
            column = self.columns[name]
            check_sequences(isinstance(column, Ragged), want, f"column {name!r}")
            if isinstance(column, FrameColumn):
                column.check(want)
            elif (name, want) not in self._converted:
                self._converted[name, want] = self._convert(name, want)

    def read(self, start, stop, wants):
        """See `Table.read`."""
        own, part = slice(start - self.first, stop - self.first), {}
        for name, want in wants.items():
            if isinstance(self.columns[name], FrameColumn):
                part[name] = self.columns[name].read(own.start, own.stop, want, start)
                continue
            column = self._converted[name, want]
            part[name] = Labels(column.codes[own], column.levels) if isinstance(column, Labels) else column[own]
        return part

    def _convert(self, name: str, want: str) -> np.ndarray | Labels | Ragged:
        column = self.columns[name]
        if isinstance(column, Unlike):
            raise DataError(column.problem)
        if isinstance(column, FrameColumn):
            raise TypeError(f"column {name!r} of a table of another library is converted part by part")
        if isinstance(column, Ragged):
            of_steps = want.removeprefix(SEQUENCE)
            return Ragged(self._flat(name, column.values, of_steps, column.offsets), column.offsets)
        return self._flat(name, column, want)

    def _flat(self, name: str, column: np.ndarray | Labels, want: str, offsets: np.ndarray | None = None):
        def where(row: int) -> str:
            if offsets is None:
                return f"row {self.first + row}, column {name!r}"
            of = int(np.searchsorted(offsets, row, side="right")) - 1
            return f"row {self.first + of}, step {row - offsets[of]}, column {name!r}"

        if isinstance(column, Labels):
            return column
        return _numbers(column, where) if want == "number" else factorize(column, where)

    def close(self) -> None:
        self._converted.clear()


def _numbers(column: np.ndarray, where: Callable[[int], str]) -> np.ndarray:
    """Numbers (n,) of a column; None is missing. `where` names a row."""
    if (column.dtype.kind == "f" and column.dtype.itemsize <= 8) or column.dtype.kind in "iub":
        return column if column.dtype.kind == "f" else column.astype(np.float64)
    numbers = np.empty(len(column))
    for row, value in enumerate(column):
        if value is None:
            numbers[row] = np.nan
        elif isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
            try:
                numbers[row] = value
            except OverflowError:
                raise DataError(f"{where(row)}: the integer is too large") from None
        else:
            raise DataError(f"{where(row)}: {value!r} is not a number; a column of labels wants categorical")
    return numbers


def factorize(column: np.ndarray, where: Callable[[int], str]) -> Labels:
    """Labels of a column of strings, integers or mixed objects; None and NaN are missing. 1 and "1" differ.

    Raises DataError for a label that is not a str, int, bool or float; `where` names its row.
    """
    if column.dtype.kind in "USiub":
        distinct, numbers = np.unique(column, return_inverse=True)
        return Labels(numbers.astype(np.int32), [as_label(v) for v in distinct])
    known: dict[tuple, int] = {}
    levels: list = []
    codes = np.empty(len(column), np.int32)
    for row, value in enumerate(column.tolist() if column.dtype.kind == "f" else column):
        if value is None or (isinstance(value, float) and value != value):
            codes[row] = -1
            continue
        value = as_label(value)
        if not isinstance(value, (str, int, float)):
            raise DataError(f"{where(row)}: the label {value!r} is not a text, an integer or a number")
        key = label_key(value)
        if key not in known:
            known[key] = len(levels)
            levels.append(value)
        codes[row] = known[key]
    return Labels(codes, levels)


def columns_of(data, sequences: frozenset[str] = frozenset()) -> dict[str, Column]:
    """Named columns, each (n,), of an array, a list of rows, a dict of columns, or a pandas or Arrow table.

    The columns of arrays and of tuples are named "0", "1", ... from left to right, nested tuples
    flattened; a vector or tuple in a named column gives `name[0]`, `name[1]`, ..., a dict in it `name.key`.

    `sequences` names the columns that hold a sequence in each row, "" for the rows themselves; what a step holds
    is taken apart as rows are, see `flattened`.
    """
    if sequences:
        return _with_sequences(data, sequences)
    frame = frame_columns(data)
    if frame is not None:
        return {k: v for name, column in frame.items() for k, v in _frame_columns(name, column).items()}
    if isinstance(data, np.ma.MaskedArray):
        raise DataError("a masked array: write NaN or None where values are missing")
    if isinstance(data, Mapping):
        for name, values in data.items():
            if isinstance(values, np.ma.MaskedArray):
                raise DataError(f"column {name!r} is a masked array: write NaN or None where values are missing")
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise DataError(f"column {name!r} is {values!r}, not an array or list")
        columns: dict[str, Column] = _split({str(k): _as_column(v) for k, v in data.items()})
    elif isinstance(data, np.ndarray) and data.dtype.names:
        columns = _split({name: data[name] for name in data.dtype.names})
    elif isinstance(data, np.ndarray) and data.ndim <= 2:
        if data.ndim == 0:
            raise DataError("the data are a single number, not rows")
        columns = {"0": data} if data.ndim == 1 else {str(j): data[:, j] for j in range(data.shape[1])}
    elif isinstance(data, (list, tuple)):
        columns = _from_rows(list(data))
    else:
        raise DataError(f"data of type {type(data).__name__} are not understood: {_of_spark(data)}give a path, "
                        "an array, a list of tuples or dicts, a dict of columns, a pandas or Arrow table")  # fmt: skip
    lengths = {name: len(c) for name, c in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"columns of different lengths: {lengths}")
    return {**columns}


def _of_spark(data) -> str:
    """What to do with data of Spark, which only its backend reads; empty for others."""
    return 'backend="spark" reads them, else ' if type(data).__module__.startswith("pyspark") else ""


def _with_sequences(data, sequences: frozenset[str]) -> dict[str, Column]:
    """Columns of data of which some are sequences, in order."""
    frame = frame_columns(data)
    if frame is not None:
        named: dict[str, Any] = {**frame}
    elif isinstance(data, Mapping):
        named = {str(name): values for name, values in data.items()}
    elif "" in sequences and isinstance(data, (list, tuple, np.ndarray)) and not _named(data):
        return _ragged(list(data), "")
    elif isinstance(data, (list, tuple)) and _named(data):
        named = {str(name): [row.get(name) for row in data] for name in dict.fromkeys(n for row in data for n in row)}
    elif isinstance(data, (list, tuple)):
        if data and not isinstance(data[0], (list, tuple)):
            raise DataError(f"row 0 is {data[0]!r}; where columns hold sequences a row is a tuple or a dict of them")
        width = len(data[0]) if data else 0
        for number, row in enumerate(data):
            if not isinstance(row, (list, tuple)) or len(row) != width:
                raise DataError(f"row {number} is not a list or tuple of {width} columns, as row 0 is")
        named = {str(j): [row[j] for row in data] for j in range(width)}
    else:
        raise DataError(f"data of type {type(data).__name__} are not understood where rows hold sequences: "
                        f"{_of_spark(data)}give a list with one item a sequence, a list of tuples or dicts, or a dict "
                        "of columns")  # fmt: skip
    columns: dict[str, Column] = {}
    for name, values in named.items():
        if isinstance(values, Ragged):
            columns[name] = values
        elif _is_sequence(name, sequences):
            columns |= _ragged(_items(values), name)
        else:
            columns |= _frame_columns(name, values)
    lengths = {name: len(c) for name, c in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"columns of different lengths: {lengths}")
    return columns


def _frame_columns(name: str, values) -> dict[str, Column]:
    """The columns of one of another library's table, which may hold vectors or dicts, or of anything else."""
    if isinstance(values, FrameColumn):
        found = vectors_of(name, values)
        if found is None:
            return {name: values}
        return {**found} if isinstance(found, dict) else columns_of({name: found})
    if isinstance(values, np.ndarray) and values.dtype == object:  # of pandas, where NaN may stand for a missing vector
        sample = next((v for v in values if v is not None and not isinstance(v, float)), None)
        if not isinstance(sample, (list, tuple, np.ndarray, Mapping)):
            return {name: values}
        values = [None if isinstance(v, float) and v != v else v for v in values]
    return columns_of({name: values})


def _is_sequence(name: str, sequences: frozenset[str]) -> bool:
    return "" in sequences or name in sequences


def _named(data) -> bool:
    """Whether rows are dicts."""
    return isinstance(data, (list, tuple)) and bool(data) and isinstance(data[0], Mapping)


def _items(column) -> list:
    """The cells of a column, of another library's table too."""
    return column.arrow(0, len(column)).to_pylist() if isinstance(column, FrameColumn) else list(column)


def _ragged(items: list, name: str) -> dict[str, Column]:
    """The columns of one sequence in each row, named as those of rows are, after `name` where it has one."""
    steps, offsets = flattened(items, name)
    inner = columns_of(steps) or {"0": np.empty(0)}
    return {_step_name(name, column, len(inner)): Ragged(values, offsets) for column, values in inner.items()}


def _step_name(sequence: str, column: str, columns: int) -> str:
    """The name of a column of steps, as `columns_of` names the parts of a named column."""
    if not sequence:
        return column
    if not column.isdigit():
        return f"{sequence}.{column}"
    return sequence if columns == 1 else f"{sequence}[{column}]"


def _as_column(values) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values
    values = list(values)
    column = np.empty(len(values), dtype=object)
    column[:] = [tuple(v) if isinstance(v, list) else v for v in values]
    return column


def _from_rows(rows: list) -> dict[str, Column]:
    if not rows:
        return {}
    if isinstance(rows[0], Mapping):
        names: dict[Any, None] = {}
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise DataError(f"row {number} is {row!r}, not a dict as row 0 is")
            names.update(dict.fromkeys(row))
        return _split({str(n): _as_column([row.get(n) for row in rows]) for n in names})
    if not isinstance(rows[0], (tuple, list, np.ndarray)):
        return {"0": _as_column(rows)}
    flat = [_flat(row) for row in rows]
    width = len(flat[0])
    for number, row in enumerate(flat):
        if len(row) != width:
            raise DataError(f"row {number} has {len(row)} values, row 0 has {width}")
    return {str(j): _as_column([row[j] for row in flat]) for j in range(width)}


def _flat(row) -> list:
    if isinstance(row, (tuple, list)):
        return [v for part in row for v in _flat(part)]
    return row.tolist() if isinstance(row, np.ndarray) and row.ndim == 1 else [row]


def _split(columns: dict[str, np.ndarray]) -> dict[str, Column]:
    """Columns of vectors, tuples or dicts taken apart; a key that a dict lacks is missing there."""
    result: dict[str, Column] = {}
    for name, column in columns.items():
        if column.ndim == 2:
            result |= {f"{name}[{j}]": column[:, j] for j in range(column.shape[1])}
        elif column.ndim != 1:
            raise DataError(f"column {name!r} has {column.ndim} dimensions")
        else:
            sample = next((v for v in column if v is not None), None) if column.dtype == object else None
            if isinstance(sample, Mapping):
                result |= _split_dicts(name, column)
            elif isinstance(sample, (tuple, np.ndarray)):
                width = len(_flat(sample))
                rows = [[None] * width if v is None else _flat(v) for v in column]
                other = next((number for number, row in enumerate(rows) if len(row) != width), None)
                if other is not None:
                    width, problem = max(width, 1), f"has {len(rows[other])} values, others {width}"
                    unlike = Unlike(len(rows), f"row {other}, column {name!r} {problem}")
                    result |= {f"{name}[{j}]": unlike for j in range(width)}
                    continue
                result |= {f"{name}[{j}]": _as_column([row[j] for row in rows]) for j in range(width)}
            else:
                result[name] = column
    return result


def _split_dicts(name: str, column: np.ndarray) -> dict[str, Column]:
    """A column of dicts, taken apart by their keys."""
    other = next((n for n, v in enumerate(column) if v is not None and not isinstance(v, Mapping)), None)
    if other is not None:
        problem = f"row {other}, column {name!r}: {column[other]!r} is not a dict, as others are"
        return {name: Unlike(len(column), problem)}
    keys = dict.fromkeys(key for v in column if v is not None for key in v)
    return _split({f"{name}.{k}": _as_column([None if v is None else v.get(k) for v in column]) for k in keys})
