"""What topic models have in common: topics are distributions of words, and documents mix them."""

from __future__ import annotations

import copy

import numpy as np

from mixle_mpi.contract.bank import Bank
from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, ReductionOp
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Branch, Node, checked_key
from mixle_mpi.contract.work import Assumed, Cost, Work
from mixle_mpi.families.bag import Words
from mixle_mpi.models.bag import Bag
from mixle_mpi.models.structure import checked_count, checked_numbers, checked_probabilities

REPR_VALUES = 100  # parameters that are written out where a model is shown in one line


class Topic(Node):
    """A topic as the planner sees it: the parameters of the words that occur, and what their tokens cost."""

    def __init__(self, words: Words, dirichlet: bool, prior: float):
        self.words, self.dirichlet, self.prior = words, dirichlet, prior

    def num_words(self, assumed: Assumed) -> int:
        """Words with parameters."""
        if self.words.encoding is not None:
            return len(self.words.encoding.words)
        return self.words.assumed_sizes(assumed)["levels"]

    def cost(self, assumed):
        # for each different word of a document: two multiply-adds in every round, read and added to at the end
        rounds = assumed.value("rounds") if self.dirichlet else 1.0
        words = self.num_words(assumed)
        special = Work(special=float(words)) if self.prior > 0 else Work()
        return Cost(Work(lookup=1.0, flop=4.0 * rounds, scatter=1.0), m_step=Work(flop=4.0 * words) + special,
                    params=words, stats=words, kernel=2 * words, columns={("token",): 12.0})  # fmt: skip

    def signature(self):
        return (type(self), self.dirichlet, self.prior, self.words.signature())


class TopicModel(Bag):
    """Base of the models of documents that mix topics.

    Parameters
    ----------
    topics : how many
    vocabulary : see `Words`
    topic_word : (topics, words) in the order of the vocabulary, optional
    prior : concentration of the Dirichlet prior of topics, of which rows of `topic_word` then are the posterior; where
        it is 0, rows are probabilities
    """

    dirichlet: bool  # whether the mixes of documents have a Dirichlet prior, of concentrations `alpha`
    alpha: np.ndarray | None = None
    learn_alpha: str = "none"

    def __init__(self, topics: int, vocabulary, topic_word, prior: float, key: str | None, fixed: bool):
        where = self.type_name()
        super().__init__(vocabulary)
        self.num_topics = checked_count(where, "topics", topics)
        self.prior = prior
        self._given = None if topic_word is None else self._checked(topic_word)
        self._fitted: tuple[np.ndarray, np.ndarray] | None = None
        self.words.whole = self._given is not None
        self.key, self.fixed = checked_key(where, key), bool(fixed)
        if self.fixed and topic_word is None:
            raise ModelError(f"{where}: fixed=True needs topic_word")

    def _checked(self, topic_word) -> np.ndarray:
        where = self.type_name()
        if not self.words.num_words:
            raise ModelError(f"{where}: topic_word needs a vocabulary, whose order its columns have")
        shape = self.num_topics, self.words.num_words
        if not self.prior:
            return checked_probabilities(where, "topic_word", topic_word, shape)
        given = checked_numbers(where, "topic_word", topic_word, shape)
        if not ((given > 0) & np.isfinite(given)).all():
            at = np.argwhere(~((given > 0) & np.isfinite(given)))[0].tolist()
            raise ModelError(f"{where}: topic_word{at} = {given[tuple(at)]:g}, but with topic_prior > 0 its rows are "
                             "positive concentrations: how many words are of the topic, and the prior")  # fmt: skip
        return given

    @property
    def learns_alpha(self) -> bool:
        return self.learn_alpha != "none" and not self.fixed

    @property
    def given_topics(self) -> np.ndarray | None:
        """Parameters (topics, k) of the words that have any: of all that were given, or of those of an earlier fit."""
        return self._given if self._fitted is None else self._fitted[0]

    @property
    def topic_word(self) -> np.ndarray | None:
        """(topics, words) in the order of the vocabulary: probabilities of the words, or with a prior of topics the
        concentrations of their Dirichlet posterior; None before the fit."""
        if self._fitted is None:
            return self._given
        values, words = self._fitted
        whole = np.full((self.num_topics, self.words.num_words), self.prior)
        whole[:, words] = values
        return whole

    @property
    def word_probabilities(self) -> np.ndarray:
        """(topics, words) probabilities of the words in each topic, in the order of the vocabulary.

        Raises ModelError before the fit.
        """
        found = self.topic_word
        if found is None:
            raise ModelError(f"{self.type_name()}: topic_word is absent; fit the model first, or give it")
        return found / found.sum(axis=1, keepdims=True)

    def top_words(self, n: int = 10) -> list[list]:
        """The `n` most probable words of each topic, the likeliest first; of equal ones the first of the vocabulary.

        Raises ModelError before the fit.
        """
        if self._fitted is None:
            values = self.word_probabilities
            words = np.arange(values.shape[1])
        else:
            values, words = self._fitted
        order = np.argsort(-values, axis=1, kind="stable")[:, : checked_count("top_words", "n", n)]
        return [[self.words.word(int(words[w])) for w in row] for row in order]

    def with_topics(self, values: np.ndarray, words: np.ndarray):
        """A copy with the parameters (topics, k) of the words at these positions of the vocabulary."""
        changed = copy.copy(self)
        changed._fitted = values, words
        return changed

    def with_fewer(self, topics: int):
        """A copy with at most so many topics, to be started anew."""
        changed = copy.copy(self)
        changed.num_topics = min(self.num_topics, topics)
        return changed

    def decomposition(self):
        return Decomposition(DecompAxis.TOPIC, self.num_topics, ReductionOp.SUM, child_roles=("topic_*",))

    def branches(self, assumed):
        topic = Topic(self.words, self.dirichlet, self.prior)
        yield Branch("topic_*", topic, self.num_topics, unit=True, rows=assumed.value("length"))

    def signature(self):
        return (type(self), self.num_topics, self.prior, self.key, self.fixed, self.sequence,
                self.words.signature(), self.counts is None)  # fmt: skip

    def options(self):
        return super().options() | ({"fixed": True} if self.fixed else {})

    def described(self, parameters: bool) -> dict:
        """The constructor's keywords."""
        spec: dict = {"topics": self.num_topics}
        vocabulary = self.words.vocabulary
        if vocabulary is None and parameters and self.topic_word is not None:
            vocabulary = self.words.levels  # of the data of the fit
        if vocabulary is not None:
            spec["vocabulary"] = list(vocabulary) if isinstance(vocabulary, tuple) else vocabulary
        if parameters and self.topic_word is not None and vocabulary is not None:
            spec["topic_word"] = self.topic_word.tolist()
        return spec

    def compile(self, nodes, path, members, total, holders, cuts) -> Bank:
        from mixle_mpi.models.topic_bank import TopicBank

        held = cuts.held(path, holders, members, total, self.num_topics)
        return TopicBank(nodes, path, members, total, holders, held)

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in (self.described(False) | self.options()).items()
                          if not isinstance(v, list) or len(v) <= REPR_VALUES)  # fmt: skip
        return f"{type(self).__name__}({inner})"
