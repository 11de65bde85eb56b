"""How good topics are: what they say of words that are held out, and how often their words come together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Node
from mixle_mpi.contract.random import keyed_uniform
from mixle_mpi.data.encode import EncodedRows, EncodedSteps
from mixle_mpi.data.ragged import step_numbers
from mixle_mpi.execution.decode import bank_at, prepared_tiles
from mixle_mpi.execution.evaluate import executor_for
from mixle_mpi.execution.executor import Executor
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.models.topic_bank import TopicBank

TOP = 10  # words of a topic whose coming together is counted


@dataclass
class Completion:
    """The documents of a tile with half of their words held out.

    Attributes
    ----------
    words, log_densities : (documents,) how many words of each are held out, and what their probabilities given the
        other half are, as logarithms in nats
    mixes : (documents, topics) expected mixes given the other half
    """

    words: np.ndarray
    log_densities: np.ndarray
    mixes: np.ndarray


def known_topics(executor: Executor, path: str | None) -> tuple[TopicBank, int]:
    """The bank of the topic model at a path, and which of its members. Raises ModelError unless it is one."""
    found = bank_at(executor, TopicBank, path or "")
    if found is None:
        paths = [b.path for b in executor.bank.walk() if isinstance(b, TopicBank)]
        there = f"; there is one at {', '.join(map(repr, paths[:20]))}" if paths else ", nor elsewhere in the model"
        raise ModelError(f"there is no topic model at path {path or ''!r}{there}")
    return found


def log_perplexity(model: Node, data, path: str | None = None, *, seed: int = 0, **options) -> float:
    """Held-out log-perplexity by document completion, in nats a word: half of the words of each document are held out,
    and scored by the topics in the proportions that the other half says. It is an estimate, and no bound.

    Each word of a document goes to either half at random, by `seed`, its row and the word. The other options are those
    of `Node.log_density`.

    Raises ValueError when there is no topic model at the path, or no word to hold out.

    Source
    ------
    Wallach, Murray, Salakhutdinov, Mimno (2009), Proc. ICML, 1105-1112: document completion.
    """
    executor, _ = executor_for(model, data, serial_grid(), **options)
    return total_log_perplexity(executor, known_topics(executor, path), seed)


def total_log_perplexity(executor: Executor, topics: tuple[TopicBank, int], seed: int) -> float:
    """As `log_perplexity`, of the rows of all ranks. Collective over the whole grid. Raises ModelError."""
    sums = np.zeros(2)
    for _, found in completed(executor, topics, seed):
        sums += found.words.sum(), found.log_densities.sum()
    executor.grid.world.allreduce(sums)
    if not sums[0] > 0:
        raise ModelError("no document has two words, of which one could be held out")
    return float(-sums[1] / sums[0])


def completed(executor: Executor, topics: tuple[TopicBank, int], seed: int):
    """Yield (first row of the shard, `Completion`) for each tile. The executor is not used afterwards: it reads half
    of the words only.
    """
    bank, member = topics
    source = executor.source
    if not isinstance(source, EncodedRows):
        raise TypeError("words are held out of rows in memory")
    node = bank.node
    steps = source.sequences[node.sequence]
    given, held = halves(steps, node.counts_key, source.first, seed)
    source.sequences[node.sequence] = EncodedSteps(steps.offsets, steps.arrays | {node.counts_key: given}, steps.single)
    executor.prepare()
    probabilities = bank.probabilities(member)
    for tile in prepared_tiles(executor):
        executor.drive(bank.score(tile))
        mixes = bank.expected(tile, member)
        here = bank.steps(tile)
        own = held[steps.offsets[tile.start] : steps.offsets[tile.stop]]
        densities = bank.densities(here, mixes, probabilities)
        with np.errstate(divide="ignore"):
            logs = np.where(own > 0, own * np.log(np.where(own > 0, densities, 1.0)), 0.0)
        of = np.repeat(np.arange(tile.n), np.diff(here.offsets))
        yield tile.start, Completion(np.bincount(of, own, tile.n), np.bincount(of, logs, tile.n), mixes)


def halves(steps: EncodedSteps, key, first: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts (steps,) that are given and that are held out: of each word of a document half, an odd one at random."""
    counts = steps.arrays[key]
    odd = counts - 2.0 * np.floor(counts / 2.0)
    up = keyed_uniform(seed, "held out", step_numbers(steps.offsets, first)) < 0.5
    held = np.floor(counts / 2.0) + np.where(up, odd, 0.0)
    return counts - held, held


def coherence(model: Node, data, path: str | None = None, *, words: int = TOP, **options) -> np.ndarray:
    """UMass coherence (topics,) of the `words` most probable words of each topic in the documents of `data`: the sum
    over pairs of log((documents with both + 1) / documents with the likelier one). 0 is best.

    Raises ValueError when there is no topic model at the path.

    Source
    ------
    Mimno, Wallach, Talley, Leenders, McCallum (2011), Proc. EMNLP, 262-272.
    """
    executor, _ = executor_for(model, data, serial_grid(), **options)
    return total_coherence(executor, known_topics(executor, path), words)


def total_coherence(executor: Executor, topics: tuple[TopicBank, int], words: int = TOP) -> np.ndarray:
    """As `coherence`, of the documents of all ranks. Collective over the whole grid."""
    bank, member = topics
    if isinstance(words, bool) or not isinstance(words, (int, np.integer)) or words < 2:
        raise ModelError(f"words = {words!r}: coherence is of 2 or more words")
    executor.prepare()
    top = bank.top_codes(member, words)
    used, place = np.unique(top, return_inverse=True)
    place = place.reshape(top.shape)
    together = np.zeros((len(used), len(used)))
    for tile in prepared_tiles(executor):
        here = bank.steps(tile)
        codes = here.known(bank.node.words.slot_key)
        at = np.minimum(np.searchsorted(used, codes), max(len(used) - 1, 0))
        chosen = (used[at] == codes) & (here.known(bank.node.counts_key) > 0)
        present = np.zeros((tile.n, len(used)))
        of = np.repeat(np.arange(tile.n), np.diff(here.offsets))
        present[of[chosen], at[chosen]] = 1.0
        together += present.T @ present
    executor.grid.data.allreduce(together)
    found = np.zeros(len(top))
    for k, own in enumerate(place):
        pairs = together[np.ix_(own, own)]
        upper = np.triu_indices(len(own), 1)  # the likelier word first
        alone = np.maximum(np.diag(pairs)[upper[0]], 1.0)
        found[k] = np.log((pairs[upper] + 1.0) / alone).sum()
    return found
