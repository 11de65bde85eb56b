"""Columns in Arrow's memory, as parquet files, CSV parsing and pandas deliver them."""

import numpy as np

from mixle_mpi.contract.columns import as_label
from mixle_mpi.data.labels import whole
from mixle_mpi.data.table import DataError, Fault, Labels

NUMBERS = ("float", "integer", "bool", "decimal", "empty")
LABELS = {"text": ("text", "integer", "bool", "float", "empty"), "integer": ("integer", "bool", "float", "empty")}


def family_of(kind):
    """What an Arrow type holds: "float", "text", ..., or "other"; of a dictionary, what its values are."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return family_of(kind.value_type)
    tests = {
        "float": types.is_floating, "integer": types.is_integer, "bool": types.is_boolean,
        "decimal": types.is_decimal, "empty": types.is_null, "text": is_text,
        "list": lambda t: types.is_list(t) or types.is_large_list(t) or types.is_fixed_size_list(t),
        "time": types.is_temporal,
    }  # fmt: skip
    return next((name for name, test in tests.items() if test(kind)), "other")


def is_text(kind):
    """Whether an Arrow type is one of its strings."""
    from pyarrow import types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def check_type(kind, want, where):
    """Raise DataError unless a column of an Arrow type can be read as what is wanted."""
    family = family_of(kind)
    if family in (NUMBERS if want == "number" else LABELS[want]):
        return
    hint = {
        "list": "; its model is a sequence, markov_chain or hidden_markov",
        "time": "; times are not read: write them as numbers, such as seconds",
        "text": "; write numbers as numbers",
        "decimal": "; write labels as texts or integers",
    }.get(family, "")
    what = {"number": "numbers", "text": "labels", "integer": "integer labels"}[want]
    raise DataError(f"{where} is {kind}; it cannot be read as {what}{hint}")


def is_list(kind):
    """Whether an Arrow type is one of its lists."""
    return family_of(kind) == "list"


def steps_of(array):
    """The values of all lists of an Arrow array one after another, and offsets (n + 1,) int64 from 0; an absent list
    is an empty one."""
    from pyarrow import compute

    lengths = integers_of(compute.list_value_length(array), 0)
    return array.flatten(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def width_of(array):
    """How many values, two at least, every list of an Arrow array has that is not null; None where there are no such
    lists, or of several widths."""
    from pyarrow import compute, types

    if types.is_fixed_size_list(array.type):
        return array.type.list_size if array.type.list_size > 1 else None
    lengths = integers_of(compute.list_value_length(array).drop_null(), 0)
    return int(lengths[0]) if len(lengths) and lengths[0] > 1 and (lengths == lengths[0]).all() else None


def coordinate(array, at, width, first, name):
    """The values at one place of the lists of an Arrow array, null where a list is. Raises `Fault` for a list of
    another width; `first` is the global number of the first row."""
    from pyarrow import compute

    lengths = integers_of(compute.list_value_length(array), width)
    if (lengths != width).any():
        row = int(np.argmax(lengths != width))
        raise Fault(first + row, f", column {name!r}: it has {lengths[row]} values, others {width}")
    return compute.list_element(array, at) if len(array) else array.slice(0, 0).flatten()


def integers_of(array, absent):
    """The integers (n,) of an Arrow array, `absent` where it is null."""
    values, present = values_of(array)
    return values if present is None else np.where(present, values, absent)


def values_of(array):
    """The values (n,) of an Arrow array of numbers, a view that must not be written to, and (n,) bool which of them
    are there, None for all.

    From its buffers: Arrow's own conversion imports pandas wherever that is installed, a third of a second on every
    rank.
    """
    import pyarrow

    kinds = {pyarrow.float64(): np.float64, pyarrow.float32(): np.float32, pyarrow.int64(): np.int64,
             pyarrow.int32(): np.int32}  # fmt: skip
    bits, data = array.buffers()
    own = slice(array.offset, array.offset + len(array))
    values = np.empty(0, kinds[array.type]) if data is None else np.frombuffer(data, kinds[array.type])[own]
    if not array.null_count or bits is None:
        return values, None
    return values, np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[own].astype(bool)


def numbers_of(array):
    """Numbers (n,) of an Arrow array, float32 if it is, else float64; NaN where it is null."""
    import pyarrow

    if pyarrow.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.type not in (pyarrow.float64(), pyarrow.float32()):
        array = array.cast(pyarrow.float64(), safe=False)
    values, present = values_of(array)
    return values if present is None else np.where(present, values, values.dtype.type(np.nan))


class LabelReader:
    """Labels of one column, array by array. A dictionary that comes again is not looked through again."""

    def __init__(self, name, want):
        self.name, self.want = name, want
        self.dictionary = None

    def labels(self, array, first):
        """`Labels` of an Arrow array; null and NaN are missing. Raises `Fault`, rows counted from `first`."""
        import pyarrow

        if not pyarrow.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        if self.dictionary is None or not array.dictionary.equals(self.dictionary):
            # Never changed in place: the identity of the list says that the levels are the same.
            self.dictionary = array.dictionary
            self.levels, self.moved = self.levels_of(array.dictionary)
        codes = integers_of(array.indices.cast(pyarrow.int32()), np.int32(-1))
        if self.moved is not None:
            codes = self.moved[codes]
        if self.broken:
            bad = np.flatnonzero(np.isin(codes, list(self.broken)))
            if bad.size:
                value = self.levels[codes[bad[0]]]
                raise Fault(first + int(bad[0]), f", column {self.name!r}: {value!r} is not an integer")
        return Labels(codes, self.levels)

    def levels_of(self, dictionary):
        """The levels of a dictionary, and (levels + 1,) the code of each and of -1, None when they are its own."""
        kept, moved, self.broken = [], np.full(len(dictionary) + 1, -1, np.int32), set()
        for i, value in enumerate(dictionary.to_pylist()):
            if value is None or value != value:
                continue
            label = as_label(value)
            moved[i] = len(kept)
            if self.want == "integer":
                try:
                    label = whole(label)
                except ValueError:
                    self.broken.add(len(kept))  # only if a row has it is it a fault
            kept.append(label)
        return kept, None if len(kept) == len(dictionary) else moved


def labels_of(array):
    """`Labels` of an Arrow array of texts or integers."""
    return LabelReader("", "text").labels(array, 0)
