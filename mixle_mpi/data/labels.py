"""Labels out of typed arrays. A label has the type of its column: 1 and "1" differ."""

import numpy as np

from mixle_mpi.contract.columns import as_label
from mixle_mpi.data.table import Fault, Labels

# By kind of dtype: "f" float, "i" "u" integers, "b" bool, "U" "S" strings.
READABLE = {"number": "fiub", "integer": "iubf", "text": "USiubf"}


def readable(dtype, kind):
    """Whether values of a NumPy type can be read as a kind of column."""
    return dtype.kind in READABLE[kind] and not (dtype.kind == "f" and dtype.itemsize > 8)


def labels_of_array(values, kind, name, first):
    """`Labels` of an array (n,) of a readable type; NaN and the empty string are missing.

    Raises `Fault` for bytes that are not UTF-8 and, for "integer", a float that is not whole; rows are
    counted from `first`.
    """
    levels, codes = np.unique(values, return_inverse=True)
    kept, code = [], np.full(len(levels), -1, np.int32)
    for i, level in enumerate(levels.tolist()):
        if level != level or level in ("", b""):
            continue
        problem = "is not UTF-8"
        try:
            label = as_label(level)
            if kind == "integer":
                problem = "is not an integer"
                label = whole(label)
        except ValueError as error:
            row = first + int(np.flatnonzero(values == levels[i])[0])
            raise Fault(row, f", column {name!r}: {level!r} {problem}") from error
        code[i] = len(kept)
        kept.append(label)
    return Labels(code[codes.reshape(-1)], kept)


def whole(label):
    """A number as int. Raises ValueError unless it is whole."""
    if isinstance(label, float):
        raise ValueError("is not an integer")
    return int(label)
