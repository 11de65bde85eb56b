"""Bags of words in memory, in the forms that only bags have: matrices of counts, and dicts of word -> count."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from mixle_mpi.contract.errors import DataError
from mixle_mpi.data.bags import placed
from mixle_mpi.data.ragged import Ragged
from mixle_mpi.data.table import Labels
from mixle_mpi.families.bag import Words
from mixle_mpi.models.bag import COUNT, WORD


def bags_in_memory(data, bags: Mapping[str, Words]):
    """Data in memory with steps for the bags in it, for `columns_of`; all else as it is.

    Parameters
    ----------
    bags : the words of each column that holds a bag in each row; of "" where rows are bags themselves

    Raises
    ------
    DataError
        A dense matrix of counts, which would be taken for tokens; a sparse one that has no rows and columns, or no
        counts.
    """
    if "" in bags and _is_sparse(data):
        return _of_matrix(data, "", bags[""])
    if isinstance(data, np.ndarray) and "" in bags:
        _refuse_dense(data, "the data are")
        return data
    if isinstance(data, Mapping):
        columns: dict[str, Any] = {}
        for name, values in data.items():
            words = bags.get(str(name), bags.get(""))
            columns |= {name: values} if words is None else _of_column(values, str(name), words)
        return columns
    if not isinstance(data, (list, tuple)) or not any(isinstance(row, Mapping) for row in data):
        return data
    if "" in bags:
        return _listed(data)
    return [{name: list(cell.items()) if name in bags and isinstance(cell, Mapping) else cell
             for name, cell in row.items()} if isinstance(row, Mapping) else row for row in data]  # fmt: skip


def _of_column(values, name: str, words: Words) -> dict[str, Any]:
    """A column of bags under its name, or as two columns of steps."""
    if _is_sparse(values):
        return _of_matrix(values, name, words)
    if isinstance(values, np.ndarray):
        _refuse_dense(values, f"column {name!r} is")
    return {name: _listed(values) if isinstance(values, (list, tuple)) else values}


def _is_sparse(data) -> bool:
    """Whether data are a matrix or array of scipy.sparse; these exist only where it is loaded."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and sparse.issparse(data)


def _refuse_dense(data: np.ndarray, what: str) -> None:
    if data.ndim == 2 and data.dtype != object:
        raise DataError(f"{what} a dense array of shape {data.shape}: of counts, documents x words, give "
                        "scipy.sparse.csr_array(x)")  # fmt: skip


def _of_matrix(matrix, name: str, words: Words) -> dict[str, Any]:
    """The steps of the rows of a sparse matrix: the numbers of the columns with entries, and these."""
    where = f"column {name!r}: " if name else ""
    if matrix.ndim != 2:
        raise DataError(f"{where}a sparse array of shape {matrix.shape} is not one of documents x words")
    if matrix.dtype.kind not in "fiub":
        raise DataError(f"{where}a sparse matrix of {matrix.dtype} holds no counts")
    rows = matrix.tocsr()
    offsets = rows.indptr.astype(np.int64)
    stored = slice(0, int(offsets[-1]))
    steps = matrix_words(rows.indices[stored], words)
    prefix = f"{name}." if name else ""
    return {prefix + WORD: Ragged(steps, offsets), prefix + COUNT: Ragged(rows.data[stored], offsets)}


def matrix_words(columns: np.ndarray, words: Words):
    """The words (steps,) that columns of a matrix stand for: numbers, or the words of a vocabulary of texts, in order.
    """
    levels = words.levels
    if words.numbered or levels is None or not all(isinstance(level, str) for level in levels):
        return columns
    placed([int(columns.max(initial=0))], len(levels))
    return Labels(columns.astype(np.int32, copy=False), list(levels))


def _listed(documents):
    """Documents that are dicts of word -> count as lists of pairs; all others, and rows with named columns, as they
    are."""
    if not all(document is None or _is_bag(document) for document in documents):
        return documents
    return [document if document is None else list(document.items()) for document in documents]


def _is_bag(document) -> bool:
    return isinstance(document, Mapping) and all(isinstance(count, numbers.Real) for count in document.values())
