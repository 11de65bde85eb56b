"""Columns of pandas and Arrow tables in memory, converted a chunk at a time.

Neither library is imported to find out: data of a type of theirs exist only where it is loaded.
"""

from __future__ import annotations

import sys

import numpy as np

from mixle_mpi.data.arrow import (
    NUMBERS,
    LabelReader,
    check_type,
    coordinate,
    family_of,
    is_list,
    numbers_of,
    width_of,
)
from mixle_mpi.data.table import DataError, Labels


class FrameColumn:
    """A column that is an Arrow array or ChunkedArray, or a pandas Series that Arrow can read."""

    def __init__(self, name: str, values):
        self.name, self.values = name, values
        self._labels: dict[str, LabelReader] = {}

    def __len__(self) -> int:
        return len(self.values)

    def arrow(self, start: int, stop: int):
        """The rows start to stop as one Arrow array."""
        import pyarrow

        if isinstance(self.values, (pyarrow.Array, pyarrow.ChunkedArray)):
            part = self.values.slice(start, stop - start)
        else:
            part = pyarrow.array(self.values.iloc[start:stop], from_pandas=True)
        return part.combine_chunks() if isinstance(part, pyarrow.ChunkedArray) else part

    def check(self, want: str) -> None:
        """Raise DataError unless the column can be read as what is wanted."""
        check_type(self.arrow(0, 0).type, want, f"column {self.name!r}")

    def read(self, start: int, stop: int, want: str, first: int) -> np.ndarray | Labels:
        """The rows start to stop, as `Table.chunks` yields them; `first` is the global number of `start`."""
        array = self.arrow(start, stop)
        if want == "number":
            return numbers_of(array)
        return self._labels.setdefault(want, LabelReader(self.name, want)).labels(array, first)


def frame_columns(data) -> dict[str, np.ndarray | FrameColumn] | None:
    """The columns of a pandas or Arrow table, or of one column of theirs, called by its name or "0".

    None for anything else. Columns of NumPy types come as arrays. Raises DataError for a name that comes twice.
    """
    pandas, pyarrow = sys.modules.get("pandas"), sys.modules.get("pyarrow")
    if pandas is not None and isinstance(data, (pandas.DataFrame, pandas.Series)):
        if isinstance(data, pandas.Series):
            named = [("0" if data.name is None else str(data.name), data)]
        else:
            named = [(str(name), data.iloc[:, j]) for j, name in enumerate(data.columns)]
        columns = [(name, _series(name, series)) for name, series in named]
    elif pyarrow is not None and isinstance(data, (pyarrow.Table, pyarrow.RecordBatch)):
        columns = [(name, FrameColumn(name, data.column(j))) for j, name in enumerate(data.schema.names)]
    elif pyarrow is not None and isinstance(data, (pyarrow.Array, pyarrow.ChunkedArray)):
        columns = [("0", FrameColumn("0", data))]
    else:
        return None
    names = [name for name, _ in columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{names.count(twice)} columns are called {twice!r}")
    return dict(columns)


def vectors_of(name: str, column: FrameColumn) -> dict[str, np.ndarray] | list | None:
    """The places `name[0]`, ... of a column of lists that are vectors of numbers, each (n,); the cells of one of other
    vectors; None for a column of no vectors."""
    array = column.arrow(0, len(column)) if is_list(column.arrow(0, 0).type) else None
    width = None if array is None else width_of(array)
    if array is None or width is None:
        return None
    if family_of(array.type.value_type) not in NUMBERS:
        return array.to_pylist()
    places = [numbers_of(coordinate(array, j, width, 0, name)) for j in range(width)]
    return {f"{name}[{j}]": values for j, values in enumerate(places)}


def _series(name: str, series) -> np.ndarray | FrameColumn:
    """A Series of numbers or objects as it is in memory; other types by way of Arrow."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiubO":
        return series.to_numpy()
    return FrameColumn(name, series)
