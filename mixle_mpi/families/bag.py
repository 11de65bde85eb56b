"""The leaves of a bag of words: which word, and how often it comes. By themselves they have no probabilities."""

from __future__ import annotations

import copy
from collections.abc import Hashable

import numpy as np

from mixle_mpi.contract.columns import SlotKey, as_label, label_key
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.family import Family
from mixle_mpi.families.labelled import Labelled

MOST_WORDS = 2**31 - 2  # words are numbered by int32, and one more stands for those that do not occur


class Words(Labelled):
    """A column of words.

    Once it is bound, `encoding.words` (words,) int64 are the positions in the vocabulary of the words that occur in
    the data of the fit; only these have parameters.

    Parameters
    ----------
    vocabulary : int, or sequence of str or int, optional
        How many words there are, which are then the numbers from 0 on; or the words, in the order in which parameters
        have them. By default the sorted labels of the data.
    """

    if_missing = "a bag has a word in each step"
    whole = False  # whether all words of the vocabulary have parameters, as where some were given

    def __init__(self, vocabulary=None):
        super().__init__(None)
        self.vocabulary: int | tuple | None = checked_vocabulary(vocabulary)
        self.levels = self.vocabulary if isinstance(self.vocabulary, tuple) else None

    @property
    def num_words(self) -> int:
        """Size of the vocabulary; 0 before the labels of the data are known."""
        return self.vocabulary if isinstance(self.vocabulary, int) else len(self.levels or ())

    @property
    def numbered(self) -> bool:
        """Whether words are numbers, not labels."""
        return isinstance(self.vocabulary, int)

    @property
    def sizes(self):
        return {"levels": self.num_words}

    def assumed_sizes(self, assumed):
        return {"levels": int(assumed.value("levels", self.num_words or None))}

    @property
    def slot_key(self) -> SlotKey:
        return SlotKey("word" if self.numbered else "label", self.columns, self.sequence)

    @property
    def base_key(self):
        return (*super().base_key, self.vocabulary if self.numbered else 0, self.whole)

    def word(self, position: int):
        """The word at a position of the vocabulary."""
        return position if self.numbered or self.levels is None else self.levels[position]

    def bind(self, bindings):
        bound = copy.copy(super().bind(bindings))
        bound.levels = None if self.numbered else bound.encoding.levels
        return bound

    def support(self, x):
        if not self.numbered:
            return None
        return (x[0] >= 0) & (x[0] < self.num_words) & (x[0] == np.floor(x[0]))

    def support_text(self):
        return f"whole numbers from 0 to {self.num_words - 1}"


class Counts(Family):
    """A column of how often words come: finite numbers >= 0, fractions too."""

    slot = "count"
    if_missing = "a bag has a count for each word; write 0 for none"

    def __init__(self):
        super().__init__({})

    def support(self, x):
        return (x[0] >= 0) & np.isfinite(x[0])

    def support_text(self):
        return "numbers >= 0"


def counts_key(sequence: str) -> Hashable:
    """The key of the encoded counts of a bag."""
    return ("counts", sequence)


def checked_vocabulary(vocabulary) -> int | tuple | None:
    """A vocabulary as it is kept: its size, its words in the user's order, or None. Raises ModelError."""
    if vocabulary is None:
        return None
    if isinstance(vocabulary, (int, np.integer)) and not isinstance(vocabulary, bool):
        if not 1 <= vocabulary <= MOST_WORDS:
            raise ModelError(f"vocabulary = {vocabulary} is not from 1 to {MOST_WORDS} words")
        return int(vocabulary)
    if isinstance(vocabulary, np.ndarray):
        vocabulary = vocabulary.tolist()
    if not isinstance(vocabulary, (list, tuple)):
        raise ModelError(f"vocabulary = {vocabulary!r} is neither a number of words nor a list of them")
    found = tuple(as_label(word) for word in vocabulary)
    seen: set = set()
    for word in found:
        if not isinstance(word, (str, int, float)):
            raise ModelError(f"vocabulary: {word!r} is not a text, an integer or a number")
        if label_key(word) in seen:
            raise ModelError(f"vocabulary: {word!r} comes twice")
        seen.add(label_key(word))
    if not found:
        raise ModelError("vocabulary: there are no words in it")
    return found
