"""The columns of JSON lines: which parts of a row, or of the steps in it, are columns, and how they are called.

Names are those that the same rows have in memory, see `columns_of` of `memory`; steps that are objects give
`name.key`, as structs do in Parquet files.
"""

from typing import NamedTuple


class Place(NamedTuple):
    """Where in an array of `width` values a part of it is, from 0."""

    at: int
    width: int


class Column(NamedTuple):
    """A column: what is at `path` of a row, or of a `ragged` one at `inner` of each step of the array there.

    Paths are keys of objects and `Place`s in arrays. `kind` is the type of its first value, None where none was seen.
    In a column of `pairs` objects are bags of words, word -> count, and stand for arrays of [word, count].
    """

    name: str
    path: tuple
    ragged: bool
    inner: tuple
    kind: type | None
    pairs: bool = False


def columns_of_rows(rows, sequences, bags=frozenset()):
    """The list of `Column` of rows, which are all objects, or all arrays.

    Parameters
    ----------
    rows : list of what JSON values are in Python
    sequences : names of the columns that hold sequences, "" where rows are sequences themselves, see `columns_of`
    bags : those of them that are bags of words
    """
    first = rows[0] if rows else None
    if "" in bags and first is not None and all(is_bag(row) for row in rows):
        return steps_columns("", (), [pairs_of(row) for row in rows], True)
    if isinstance(first, list) and "" in sequences:
        return steps_columns("", (), rows)
    if isinstance(first, list) and not sequences:
        return [Column(suffix[1:-1], path, False, (), kind) for suffix, path, kind in parts(rows)]
    if isinstance(first, list):
        width = len(first)
        cells = {str(j): ((Place(j, width),), [row[j] for row in rows if len(row) > j]) for j in range(width)}
    elif isinstance(first, dict):
        keys = dict.fromkeys(key for row in rows for key in row)
        cells = {key: ((key,), [row.get(key) for row in rows]) for key in keys}
    else:
        cells = {}
    return [column for name, (path, values) in cells.items()
            for column in cell_columns(name, path, values, sequences, bags)]  # fmt: skip


def is_bag(value):
    """Whether a value is an object word -> count."""
    return isinstance(value, dict) and all(isinstance(count, (int, float)) for count in value.values())


def pairs_of(bag):
    """A bag of words as an array of [word, count]."""
    return [list(pair) for pair in bag.items()]


def cell_columns(name, path, values, sequences, bags=frozenset()):
    """The columns of the cells (list) of one name. An array is a sequence where it is to be one, or has no width."""
    some = [value for value in values if value is not None]
    if name in bags and any(is_bag(value) for value in some):
        lists = [pairs_of(value) if is_bag(value) else value for value in some]
        return steps_columns(name, path, [value for value in lists if isinstance(value, list)], True)
    lists = [value for value in some if isinstance(value, list)]
    wanted = "" in sequences or name in sequences
    if (lists and (wanted or len({len(value) for value in lists}) > 1)) or (wanted and not some):
        return steps_columns(name, path, lists)
    return [Column(name + suffix, (*path, *rest), False, (), kind) for suffix, rest, kind in parts(some)]


def steps_columns(name, path, lists, pairs=False):
    """The columns of the steps in cells, each a list, or of `pairs`."""
    found = parts([step for steps in lists for step in steps])
    return [Column(step_name(name, suffix, len(found)), path, True, inner, kind, pairs)
            for suffix, inner, kind in found]  # fmt: skip


def step_name(sequence, suffix, columns):
    """The name of a part of steps that have so many columns."""
    if suffix == "[0]" and columns == 1:
        suffix = ""
    if sequence:
        return sequence + suffix
    return (suffix[1:-1] if suffix[:1] == "[" else suffix[1:]) or "0"


def parts(values):
    """The parts of values that are no sequences: a list of (what it adds to the name, path, type of its first value).

    Objects give ".key", arrays "[0]", "[1]", ..., those in arrays numbered on.
    """
    some = [value for value in values if value is not None]
    first = some[0] if some else None
    if isinstance(first, dict):
        rows = [value for value in some if isinstance(value, dict)]
        keys = dict.fromkeys(key for row in rows for key in row)
        below = {key: parts([row.get(key) for row in rows]) for key in keys}
        return [(f".{key}{name}", (key, *path), kind) for key, found in below.items() for name, path, kind in found]
    if isinstance(first, list):
        rows, width = [value for value in some if isinstance(value, list)], len(first)
        inner = [parts([row[j] for row in rows if len(row) > j]) for j in range(width)]
        flat = [((Place(j, width), *path), kind) for j, found in enumerate(inner) for _, path, kind in found]
        return [(f"[{i}]", path, kind) for i, (path, kind) in enumerate(flat)]
    return [("", (), None if first is None else type(first))]


def united(columns):
    """The columns of several files, a list of lists: each name once, as it is where a value was seen."""
    found = {}
    for column in (column for own in columns for column in own):
        known = found.get(column.name)
        if known is None or (known.kind is None and column.kind is not None):
            found[column.name] = column
    # what is empty in one place may be of several columns in another
    seen = [name for name, column in found.items() if column.kind is not None]
    return [column for column in found.values()
            if column.kind is not None
            or not any(other.startswith((f"{column.name}.", f"{column.name}[")) for other in seen)]  # fmt: skip
