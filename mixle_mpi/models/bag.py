"""What models of bags of words have in common: a row is a document, whose steps are its words."""

from __future__ import annotations

import copy
from collections.abc import Hashable

from mixle_mpi.contract.columns import BAG
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.scope import Scope
from mixle_mpi.families.bag import Counts, Words, counts_key
from mixle_mpi.models.sequence import Steps

WORD, COUNT = "word", "count"  # what the columns of a bag are called where their order says nothing


class Bag(Steps):
    """Base of the models of bags of words. The order of a document's words says nothing.

    It reads a column of tokens, each of which counts one, or a column of words and one of their counts. A tile's steps
    of `sequence` are the distinct words of each document with a positive count, ascending; `words.slot_key` are their
    codes in `words.encoding.words`, `counts_key` how often they come.

    Parameters
    ----------
    vocabulary : int, or sequence of str or int, optional
        See `Words`.
    """

    counts: Counts | None = None

    def __init__(self, vocabulary=None):
        try:
            self.words = Words(vocabulary)
        except ModelError as error:
            raise ModelError(f"{self.type_name()}: {error}") from None

    @property
    def counts_key(self) -> Hashable:
        """The key of the counts (steps,) float64 in tiles of steps."""
        return counts_key(self.sequence)

    @property
    def width(self):
        return None

    def step_models(self):
        return (self.words,) if self.counts is None else (self.words, self.counts)

    def roles(self):
        yield "words", self.words
        if self.counts is not None:
            yield "counts", self.counts

    def replace_both(self, of_steps, of_length):
        changed = copy.copy(self)
        changed.words = of_steps(self.words)
        changed.counts = None if self.counts is None else of_steps(self.counts)
        return changed

    def place(self, scope: Scope):
        scope.steps(self.type_name().replace("_", " "))  # refuses bags inside sequences
        word, *count = self._ordered(scope)
        sequence = word + BAG
        counts = Counts() if count else None
        of = {id(self.words): (word,), id(counts): (*count,)}
        placed = copy.copy(self)
        placed.counts = counts
        placed = placed.replace(lambda leaf: leaf.place(Scope(of[id(leaf)], scope.where, scope.prefix, sequence)))
        placed.sequence = sequence
        return placed

    def _ordered(self, scope: Scope) -> tuple[str, ...]:
        """The column of words and, where there is one, that of counts. Raises ModelError."""
        if len(scope.names) not in (1, 2):
            raise ModelError(
                f"{scope.where}: {self.type_name()} reads a column of words, or one of words and one of counts, "
                f"but there are {len(scope.names)} ({', '.join(scope.names)}); a record's field may name its columns"
            )
        last = [name.removeprefix(scope.prefix) for name in scope.names]
        return scope.names[::-1] if last == [COUNT, WORD] else scope.names
