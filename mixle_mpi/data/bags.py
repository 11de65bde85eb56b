"""Bags of words: from steps as they are read to the distinct words of each document, with their summed counts.

Words are known by their positions in the vocabulary until all have been seen, and then by their positions among those
that occur. Chunks hold whole documents, so what becomes of one does not depend on who reads it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mixle_mpi.contract.columns import Encoding, Summary, label_key
from mixle_mpi.contract.errors import DataError
from mixle_mpi.data.ragged import Level, Ragged, row_and_step
from mixle_mpi.data.table import Labels, Table
from mixle_mpi.families.bag import Counts, Words
from mixle_mpi.models.bag import Bag

BLOCK = 2**18  # steps that are merged at once, in whole documents: some ten arrays of that size are held
ABSENT = -1  # the position of a word that is not in the vocabulary
OUTSIDE = "outside"  # reason of a fault that is no refusal: words that are not in the vocabulary
EXACT = 2.0**53  # whole numbers below it are all float64
SHOWN = 60  # characters of a word in a message


class Documents(NamedTuple):
    """Consecutive documents, of distinct words: positions (steps,) int64, ascending in each, their counts (steps,)
    float64, and where each begins, `offsets` (documents + 1,) int64 from 0."""

    words: np.ndarray
    counts: np.ndarray
    offsets: np.ndarray


class BagColumns:
    """The columns of a bag, and what its vocabulary is.

    Attributes
    ----------
    words, counts : the leaves; `counts` is None where each step counts one
    levels : words of the vocabulary, which are labels; None while those of the data are still to be found, and where
        words are numbers
    size : how many words there are; None while they are still to be found
    places : whether words are read as the numbers of the columns of a matrix, and stand for the words of a vocabulary
        of texts in its order
    """

    def __init__(self, words: Words, counts: Counts | None, levels: tuple | None, matrix: bool = False):
        self.words, self.counts, self.levels = words, counts, levels
        self.size = words.num_words if words.numbered else None if levels is None else len(levels)
        self.known: dict[tuple, int] = {label_key(level): i for i, level in enumerate(levels or ())}
        self.places = matrix and bool(levels) and all(isinstance(level, str) for level in levels or ())
        self._read: list | None = None
        self._to = np.empty(0, np.int64)

    @property
    def leaves(self) -> tuple[Words | Counts, ...]:
        """The leaves of its columns."""
        return (self.words,) if self.counts is None else (self.words, self.counts)

    @property
    def found(self) -> int:
        """How many words are known so far."""
        return len(self.known) if self.size is None else self.size

    def positions(self, level: Level) -> np.ndarray:
        """Positions (steps,) int64 of the words of a chunk in the vocabulary, `ABSENT` where they are not in it."""
        column = level.columns[self.words.columns[0]]
        if not isinstance(column, Labels):
            return column.astype(np.int64)
        if column.levels is not self._read:
            self._read = column.levels
            keys = [label_key(label) for label in column.levels]
            if self.places:
                self._to = placed(column.levels, self.found)
            elif self.size is None:
                self._to = np.array([self.known.setdefault(key, len(self.known)) for key in keys], np.int64)
            else:
                self._to = np.array([self.known.get(key, ABSENT) for key in keys], np.int64)
        return self._to[column.codes] if len(column.levels) else np.full(len(column.codes), ABSENT, np.int64)

    def pieces(self, level: Level) -> Iterator[Level]:
        """A chunk in pieces of some steps each, whole documents."""
        offsets = offsets_of(level)
        columns = {leaf.columns[0]: Ragged(level.columns[leaf.columns[0]], offsets) for leaf in self.leaves}
        for start, stop in blocks(offsets, BLOCK):
            piece = Level(level.first + start, stop - start, offsets[start : stop + 1] - offsets[start])
            piece.columns = {name: column[start:stop].values for name, column in columns.items()}
            yield piece

    def documents(self, piece: Level) -> Documents:
        """The documents of a piece."""
        counts = None if self.counts is None else piece.columns[self.counts.columns[0]].astype(np.float64)
        positions = self.positions(piece)
        return Documents(*merged(positions, counts, offsets_of(piece), self.found))


def placed(columns: list[int], size: int) -> np.ndarray:
    """Columns of a matrix as positions (k,) int64 in a vocabulary of so many words. Raises DataError."""
    beyond = next((column for column in columns if column >= size), None)
    if beyond is not None:
        raise DataError(f"column {beyond} of the matrix has counts, but the vocabulary has {size} words")
    return np.array(columns, np.int64)


def offsets_of(level: Level) -> np.ndarray:
    """Where the documents of a chunk begin, (rows + 1,) int64. Raises TypeError at the level of rows."""
    if level.offsets is None:
        raise TypeError("rows have no steps")
    return level.offsets


def blocks(offsets: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Consecutive ranges of rows with at most so many steps, or of one row; at least one range."""
    start, rows = 0, len(offsets) - 1
    while start < rows or not rows:
        stop = int(np.searchsorted(offsets, offsets[start] + most, side="right")) - 1
        stop = min(max(stop, start + 1), rows)
        yield start, stop
        start = stop
        if not rows:
            return


def merged(words: np.ndarray, counts: np.ndarray | None, offsets: np.ndarray, size: int):
    """The distinct words of each document, ascending, their counts, and where documents begin.

    Parameters
    ----------
    words : (steps,) int64 below `size`; `ABSENT` ones are left out
    counts : (steps,) float64 >= 0, None where each step counts one; words of count 0 are left out
    offsets : (documents + 1,) int64 from 0
    """
    if _is_merged(words, counts, offsets):
        return words, np.ones(len(words)) if counts is None else counts, offsets
    documents = len(offsets) - 1
    keys = np.repeat(np.arange(documents, dtype=np.int64) * size, np.diff(offsets)) + words
    kept = words != ABSENT
    if counts is not None:
        kept &= counts > 0
    if not kept.all():
        keys, counts = keys[kept], None if counts is None else counts[kept]
    if counts is None:
        keys.sort()
    else:
        order = np.argsort(keys, kind="stable")
        keys, counts = keys[order], counts[order]
    new = np.diff(keys, prepend=-1) > 0
    if counts is None:
        counts = np.diff(np.flatnonzero(new), append=len(keys)).astype(np.float64)
    elif not new.all():  # one by one, in the order in which they came
        counts = np.bincount(np.cumsum(new) - 1, counts)
    of, words = np.divmod(keys[new], size)
    return words, counts, np.searchsorted(of, np.arange(documents + 1)).astype(np.int64)


def _is_merged(words: np.ndarray, counts: np.ndarray | None, offsets: np.ndarray) -> bool:
    """Whether documents are as `merged` leaves them."""
    if counts is not None and not (counts > 0).all():
        return False
    if len(words) and words.min() == ABSENT:
        return False
    falls = words[1:] <= words[:-1]
    begins = offsets[(offsets > 0) & (offsets < len(words))]
    falls[begins - 1] = False
    return not falls.any()


class BagTally:
    """What the chunks of one rank say of a bag.

    Attributes
    ----------
    key : the slot of its words
    summaries : of its slots
    seen : (words,) which words occur, bool, or of labels in how many documents
    """

    def __init__(self, bag: BagColumns):
        self.bag, self.key, self.numbered = bag, bag.words.slot_key, bag.words.numbered
        self.summaries = {leaf.slot_key: Summary(1) for leaf in bag.leaves}
        self.seen = np.zeros(bag.size or 0, bool if self.numbered else np.int64)

    def add(self, level: Level) -> np.ndarray:
        """Add a chunk; how many distinct words its documents have, (rows,) int64."""
        return np.concatenate([self._add(piece) for piece in self.bag.pieces(level)])

    def _add(self, piece: Level) -> np.ndarray:
        if any([self._refused(leaf, piece) for leaf in self.bag.leaves]):
            return np.zeros(len(piece.lengths), np.int64)
        self._note_outside(piece)
        documents = self.bag.documents(piece)
        self.summaries[self.key].observed += len(documents.words)
        if self.numbered:
            self.seen[documents.words] = True
        else:
            if self.bag.found > len(self.seen):
                self.seen = np.append(self.seen, np.zeros(self.bag.found - len(self.seen), np.int64))
            self.seen += np.bincount(documents.words, minlength=len(self.seen))
        return np.diff(documents.offsets)

    def finish(self) -> None:
        """Put into the summary which labels occur; numbers are united by arrays."""
        if not self.numbered:
            labels = list(self.bag.known)
            self.summaries[self.key].counts = {labels[i]: int(self.seen[i]) for i in np.flatnonzero(self.seen)}

    def _refused(self, leaf: Words | Counts, level: Level) -> bool:
        """Note what cannot be used in a column; whether there is anything."""
        column, key = leaf.columns[0], leaf.slot_key
        x = level.columns[column]
        if isinstance(x, Labels):
            bad = {"missing": x.codes < 0}
        else:
            inside = leaf.support(x[None])
            if inside is None or inside.all():
                return False
            nothing, infinite = np.isnan(x), np.isinf(x)
            bad = {"missing": nothing, "infinite": infinite, repr(leaf.base_key): ~(inside | nothing | infinite)}
        found = {reason: steps for reason, steps in bad.items() if steps.any()}
        for reason, steps in found.items():
            at = int(np.argmax(steps))
            value = "nothing" if reason == "missing" else shown_number(x[at])
            self.summaries[key].fault(reason).add(int(steps.sum()), int(level.numbers[at]), column, value)
        return bool(found)

    def _note_outside(self, level: Level) -> None:
        """Note words that are not in the vocabulary."""
        column = self.key.columns[0]
        labels = level.columns[column]
        outside = self.bag.positions(level) == ABSENT if isinstance(labels, Labels) and self.bag.size else None
        if outside is not None and outside.any():
            at = int(np.argmax(outside))
            word = shown_word(labels.levels[labels.codes[at]])
            self.summaries[self.key].fault(OUTSIDE).add(int(outside.sum()), int(level.numbers[at]), column, word)


class BagEncoder:
    """Turns the chunks of a bag into codes among the words of an encoding, and counts. `key` is the slot of its words.
    """

    def __init__(self, bag: Bag, encoding: Encoding, matrix: bool):
        self.bag = BagColumns(bag.words, bag.counts, None if bag.words.numbered else encoding.levels, matrix)
        self.key, self.words = bag.words.slot_key, encoding.words

    def documents(self, level: Level) -> Iterator[Documents]:
        """The documents of a chunk, some at a time, whose words are (steps,) int32 codes, ascending in each; those
        that did not occur in the fit have the code that follows all, and come last."""
        last = len(self.words)
        for piece in self.bag.pieces(level):
            words, counts, offsets = self.bag.documents(piece)
            codes = np.searchsorted(self.words, words)
            new = codes == last
            new[~new] = self.words[codes[~new]] != words[~new]
            if new.any():
                codes[new] = last
                of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
                order = np.lexsort((codes, of))
                codes, counts = codes[order], counts[order]
            yield Documents(codes.astype(np.int32), counts, offsets)


def united(own: np.ndarray, size: int, world) -> np.ndarray:
    """The union of whole numbers (k,) int64 below `size`, ascending and distinct on each rank. Collective.

    Each rank unites a range of them, so that none holds what all have together.
    """
    borders = np.searchsorted(own, [size * rank // world.size for rank in range(1, world.size)])
    parts = [np.ascontiguousarray(part, np.int64) for part in np.split(own, borders)]
    mine = np.sort(np.concatenate(world.alltoall(parts)))
    mine = mine[np.diff(mine, prepend=-1) > 0]
    return world.allgather_parts(mine, world.allgather(len(mine)))


def warn_of_outside(summaries: dict, table: Table, aloud: bool) -> None:
    """Warn, `aloud` on one rank, of the words that are left out as they are in no vocabulary. Collective."""
    for summary in summaries.values():
        fault = summary.faults.get(OUTSIDE)
        if fault is None:
            continue
        where = table.place(*row_and_step(fault.row), "the first is 0")
        if aloud:
            many, are = ("1 word", "is") if fault.count == 1 else (f"{fault.count} words", "are")
            warnings.warn(f"column {fault.column!r}: {many} {are} not in the vocabulary and {are} left out; the first "
                          f"is {fault.value}, {where}", stacklevel=2)  # fmt: skip


def shown_number(value: float) -> str:
    """A number in a message, whole ones with all digits."""
    return str(int(value)) if abs(value) < EXACT and value == np.floor(value) else f"{value:g}"


def shown_word(word) -> str:
    """A word in a message, not too long."""
    text = repr(word)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
