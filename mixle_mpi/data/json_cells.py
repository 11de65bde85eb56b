"""The cells of JSON lines: from the bytes of whole lines to columns, by pyarrow.json.

It reads a piece where each column is of one type, the one that was seen first. Other pieces are read by the json of
Python, which also finds what is wrong with a row.
"""

import json
import re

import numpy as np

from mixle_mpi.contract.columns import as_label
from mixle_mpi.data.arrow import LabelReader, integers_of, numbers_of, steps_of
from mixle_mpi.data.json_names import Place, pairs_of
from mixle_mpi.data.memory import factorize
from mixle_mpi.data.ragged import Ragged
from mixle_mpi.data.table import SEQUENCE, Fault

BLANKS = b" \t\r\n"
# what pyarrow.json takes for numbers and the json of Python does not
ODD, PLAIN = re.compile(rb"-NaN|\bInf\b"), (b"-NaN", b"Inf")  # the second are searched for faster
SHOWN = 80  # characters of a value in a message
KINDS = {dict: "an object", list: "an array", str: "a text", type(None): "null"}
# Arrow's type by what is wanted and the Python type of the first value; others are left to Python
ARROW = {
    ("number", bool): "bool", ("number", int): "double", ("number", float): "double", ("number", None): "double",
    ("text", str): "string", ("text", int): "int64", ("text", bool): "bool", ("text", None): "string",
    ("integer", int): "int64", ("integer", bool): "bool", ("integer", None): "int64",
}  # fmt: skip


class Unfit(Exception):
    """pyarrow.json does not read a piece, or not to its end."""


class Doubled(dict):
    """An object in which keys come twice, `twice`."""


def unique(pairs):
    """An object of JSON. That a key comes twice is noted: it matters where the key is wanted."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    keys = [key for key, _ in pairs]
    found = Doubled(found)
    found.twice = {key for key in found if keys.count(key) > 1}
    return found


def row_of(line, kind=None):
    """The value of a line, which is of a kind, dict or list; of either where it is None. Raises `Fault` of row 0."""
    try:
        value = json.loads(line, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        text = line[:SHOWN].decode(errors="replace")
        raise Fault(0, f": not JSON: {error}; the line is {text!r}") from error
    if not isinstance(value, (dict, list) if kind is None else kind):
        rows = "an object or an array (of letters, for a text)"
        wanted = rows if kind is None else f"{KINDS[kind]}, as the first row is"
        raise Fault(0, f" is {KINDS.get(type(value), 'a number')}, not {wanted}")
    return value


def lines_of(piece):
    """The lines of a piece that are not blank, without the blanks around them."""
    return [line for line in (line.strip(BLANKS) for line in piece.split(b"\n")) if line]


class Parser:
    """Turns lines into columns: `wanted` is a list of (`Column`, kind), `kind` the type of rows, dict or list."""

    def __init__(self, wanted, kind):
        self.wanted = [(column, want.removeprefix(SEQUENCE)) for column, want in wanted]
        self.kind = kind
        self.tree = tree_of(self.wanted)
        self.type = type_of(self.tree)

    def columns(self, lines):
        """The wanted columns of lines, a dict of name -> (n,) float64, `Labels` or `Ragged`; `Fault` for the first bad
        row, counted from the first line."""
        try:
            return self.fast(lines)
        except Unfit:
            return self.exact(lines)

    def fast(self, lines):
        """`columns` by pyarrow.json. Raises `Unfit`."""
        import pyarrow
        from pyarrow.json import ParseOptions, ReadOptions, read_json

        before, after = (b"{", b"}") if self.kind is dict else (b"[", b"]")
        # pyarrow takes values for rows wherever a line ends, and does not survive some that are no objects
        if self.type is None or not all(line[:1] == before and line[-1:] == after for line in lines):
            raise Unfit
        text = b"\n".join(lines) + b"\n" if self.kind is dict else b'{"":' + b'}\n{"":'.join(lines) + b"}\n"
        if any(word in text for word in PLAIN) and ODD.search(text):
            raise Unfit
        row = self.type if self.kind is dict else pyarrow.struct([("", self.type)])
        parse = ParseOptions(explicit_schema=pyarrow.schema(list(row)), unexpected_field_behavior="ignore")
        try:
            text.isascii() or text.decode()
            read = ReadOptions(use_threads=False, block_size=len(text) + 1)
            table = read_json(pyarrow.BufferReader(text), read, parse)
        except (pyarrow.ArrowInvalid, UnicodeDecodeError):
            raise Unfit from None
        if table.num_rows != len(lines):
            raise Unfit
        cells = pyarrow.StructArray.from_arrays([c.combine_chunks() for c in table.columns], fields=list(row))
        found = {}
        taken(self.tree, cells if self.kind is dict else cells.field(0), None, found)
        return {column.name: found[column.name] for column, _ in self.wanted}

    def exact(self, lines):
        """`columns` by the json of Python."""
        cells = {column.name: [] for column, _ in self.wanted}
        lengths = {column.name: [0] for column, _ in self.wanted}
        for number, line in enumerate(lines):
            try:
                row = row_of(line, self.kind)
                for column, want in self.wanted:
                    values = values_of(row, column, want)
                    cells[column.name] += values
                    lengths[column.name].append(len(values))
            except Fault as fault:
                raise Fault(number, fault.text) from fault
        found = {}
        for column, want in self.wanted:
            own = cells[column.name]
            flat = np.array(own, float) if want == "number" else labels_of(own)
            found[column.name] = Ragged(flat, np.cumsum(lengths[column.name])) if column.ragged else flat
        return found


def labels_of(values):
    """`Labels` of a list of labels, None where missing."""
    column = np.empty(len(values), object)
    column[:] = values
    return factorize(column, str)


def values_of(row, column, want):
    """The values of a column in a row: one, or one for each step. Raises `Fault` of row 0."""
    where = f", column {column.name!r}"
    cell = at(row, column.path, where)
    if not column.ragged:
        return [scalar(cell, want, where)]
    if cell is None:
        raise Fault(0, f"{where}: the sequence is missing; write an empty array for one without steps")
    if column.pairs and isinstance(cell, dict):
        twice = next(iter(cell.twice), None) if isinstance(cell, Doubled) else None
        if twice is not None:
            raise Fault(0, f"{where}: the key {twice!r} comes twice")
        cell = pairs_of(cell)
    if not isinstance(cell, list):
        raise Fault(0, f"{where}: {shown(cell)} is not an array of steps")
    places = ((step, f", step {t}{where}") for t, step in enumerate(cell))
    return [scalar(at(step, column.inner, place), want, place) for step, place in places]


def at(value, path, where):
    """What is at a path below a value, None where it is missing. Raises `Fault` of row 0."""
    for part in path:
        if value is None:
            return None
        if isinstance(part, str):
            if not isinstance(value, dict):
                raise Fault(0, f"{where}: {shown(value)} is not an object")
            if isinstance(value, Doubled) and part in value.twice:
                raise Fault(0, f"{where}: the key {part!r} comes twice")
            value = value.get(part)
        else:
            if not isinstance(value, list):
                raise Fault(0, f"{where}: {shown(value)} is not an array of {part.width} values")
            if len(value) != part.width:
                raise Fault(0, f"{where}: {shown(value)} has {len(value)} values, others {part.width}")
            value = value[part.at]
    return value


def scalar(value, want, where):
    """A number or label as columns have it, NaN or None where it is missing. Raises `Fault` of row 0."""
    if value is None or value != value:
        return np.nan if want == "number" else None
    if want == "number":
        if not isinstance(value, (int, float)):
            hint = "; its model is a sequence or a hidden_markov" if isinstance(value, list) else \
                "; a column of labels wants categorical"  # fmt: skip
            raise Fault(0, f"{where}: {shown(value)} is not a number{hint}")
        try:
            return float(value)
        except OverflowError:
            return np.inf if value > 0 else -np.inf  # as 1e400 is, and pyarrow has it
    if isinstance(value, (dict, list)):
        raise Fault(0, f"{where}: the label {shown(value)} is not a text, an integer or a number")
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Fault(0, f"{where}: {shown(value)} is half of a surrogate pair") from None
    label = as_label(value)
    if want == "integer" and isinstance(label, (str, float)):
        raise Fault(0, f"{where}: {shown(value)} is not an integer")
    return int(label) if want == "integer" else label


def shown(value):
    """A value in a message, as Python writes it, not too long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


# The tree of wanted columns, by part of their paths: a leaf is a (name, kind, Arrow type), what holds steps has one
# entry, STEPS.
STEPS = "steps"


def tree_of(wanted):
    """The wanted columns, a list of (`Column`, kind), as a tree of dicts. A cell that is read in two ways is `None`."""
    tree = {}
    for column, want in wanted:
        if column.pairs:  # objects of other keys in every row
            return None
        leaf = column.name, want, ARROW.get((want, column.kind))
        path = [("key" if isinstance(p, str) else "place", p) for p in column.path]
        path += [(STEPS, STEPS)] * column.ragged
        path += [("key" if isinstance(p, str) else "place", p) for p in column.inner]
        below = tree
        for part in path[:-1]:
            below = below.setdefault(part, {})
            if not isinstance(below, dict):
                return None
        if not path or path[-1] in below:
            return None
        below[path[-1]] = leaf
    return tree


def type_of(tree):
    """The Arrow type of a tree, None where there is none: arrays of values of several types, and labels that are
    floats."""
    import pyarrow

    if tree is None or (isinstance(tree, tuple) and tree[2] is None):
        return None
    if isinstance(tree, tuple):
        return pyarrow.type_for_alias(tree[2])
    forms = {form for form, _ in tree}
    types = [type_of(below) for below in tree.values()]
    if len(forms) != 1 or None in types:
        return None
    if forms == {"key"}:
        return pyarrow.struct([(key, kind) for (_, key), kind in zip(tree, types)])
    widths = {place.width for _, place in tree if isinstance(place, Place)}
    return pyarrow.list_(types[0]) if len(set(types)) == 1 and len(widths) <= 1 else None


def taken(tree, array, offsets, found):
    """Put the columns of a tree into `found`, from the Arrow array of what it stands for. Raises `Unfit`."""
    import pyarrow
    from pyarrow import compute

    if isinstance(tree, tuple):
        name, want, _ = tree
        try:
            flat = numbers_of(array) if want == "number" else LabelReader(name, want).labels(array, 0)
        except (Fault, pyarrow.ArrowInvalid):
            raise Unfit from None
        found[name] = flat if offsets is None else Ragged(flat, offsets)
        return
    for number, ((form, part), below) in enumerate(tree.items()):
        if form == "key":
            taken(below, compute.struct_field(array, number), offsets, found)  # names may look like paths
        elif array.null_count:
            raise Unfit
        elif form == STEPS:
            steps, own = steps_of(array)
            taken(below, steps, own, found)
        else:
            if (integers_of(compute.list_value_length(array), 0) != part.width).any():
                raise Unfit
            places = np.arange(part.at, len(array) * part.width, part.width)
            taken(below, array.flatten().take(pyarrow.array(places)), offsets, found)
