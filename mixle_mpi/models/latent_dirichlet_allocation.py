"""Latent Dirichlet allocation, the topic model."""

from __future__ import annotations

import copy

import numpy as np

from mixle_mpi.contract.decomposition import DecompAxis, Decomposition, ReductionOp
from mixle_mpi.contract.errors import ModelError
from mixle_mpi.contract.node import Branch, checked_key
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.models.structure import StructureOnly, checked_count


class Topic(StructureOnly):
    """A topic: the probabilities of the words of a vocabulary. Made by LatentDirichletAllocation."""

    def __init__(self, vocabulary: int):
        self.vocabulary = vocabulary

    def cost(self, assumed):
        # for each different token of a document: a look-up in the first round, two multiply-adds in every inner
        # round (its normaliser, and the share of the topic), a scatter at the end
        rounds = assumed.value("rounds")
        return Cost(Work(lookup=1.0, flop=4.0 * rounds, scatter=1.0), m_step=Work(log=self.vocabulary),
                    params=self.vocabulary, stats=self.vocabulary, kernel=self.vocabulary, scratch_member=2.0,
                    columns={("token",): 12.0})  # fmt: skip

    def signature(self):
        return (type(self), self.vocabulary)

    def described(self, describe):
        return {"vocabulary": self.vocabulary}


class LatentDirichletAllocation(StructureOnly):
    """Documents of tokens, each token from one of `topics` that a document mixes in its own proportions.

    Parameters
    ----------
    topics, vocabulary : int
    alpha : (topics,) or float, optional, of the Dirichlet prior of the proportions
    topic_prior : float, of the Dirichlet prior of the topics
    topic_word : (topics, vocabulary), optional; rows sum to one
    """

    def __init__(self, topics: int, vocabulary: int, *, alpha=None, topic_prior: float = 0.0, topic_word=None,
                 key: str | None = None, fixed: bool = False):  # fmt: skip
        where = "latent_dirichlet_allocation"
        self.num_topics = checked_count(where, "topics", topics)
        self.vocabulary = checked_count(where, "vocabulary", vocabulary)
        self.alpha = None if alpha is None else np.array(alpha, dtype=float)
        if self.alpha is not None and (self.alpha.shape not in ((), (topics,)) or not (self.alpha > 0).all()):
            raise ModelError(f"{where}: alpha = {alpha!r} is not one positive number, or one for each topic")
        self.topic_word = None if topic_word is None else np.array(topic_word, dtype=float)
        if self.topic_word is not None and self.topic_word.shape != (topics, vocabulary):
            raise ModelError(f"{where}: topic_word has shape {self.topic_word.shape}, not {(topics, vocabulary)}")
        self.topic_prior = float(topic_prior)
        self.topic = Topic(self.vocabulary)
        self.key, self.fixed = checked_key(where, key), bool(fixed)

    def decomposition(self):
        return Decomposition(DecompAxis.TOPIC, self.num_topics, ReductionOp.SUM, child_roles=("topic_*",))

    def roles(self):
        yield "topic_*", self.topic

    def branches(self, assumed):
        yield Branch("topic_*", self.topic, self.num_topics, unit=True, rows=assumed.value("length"))

    def cost(self, assumed):
        # a document's proportions, by digamma and exponential of each topic in every inner round, are
        # held by all shards; cut by topic, a round brings together one normaliser for each token
        k, rounds, tokens = self.num_topics, assumed.value("rounds"), assumed.value("length")
        return Cost(Work(special=k * rounds, exp=k * rounds, log=tokens), m_step=Work(special=4.0 * k),
                    params=k, stats=k + 1, kernel=k, scratch_member=3.0 * k + 2.0 * tokens,
                    columns={("offset",): 8.0}, payload=tokens * rounds, messages=rounds)  # fmt: skip

    def replace(self, change):
        return copy.copy(self)  # topics are no children that can be changed

    def signature(self):
        return (type(self), self.num_topics, self.vocabulary, self.topic_prior, self.key, self.fixed)

    def options(self):
        own = {"topic_prior": self.topic_prior, "fixed": self.fixed}
        return super().options() | {k: v for k, v in own.items() if v}

    def described(self, describe):
        spec: dict = {"topics": self.num_topics, "vocabulary": self.vocabulary}
        given = {"alpha": self.alpha, "topic_word": self.topic_word}
        return spec | {k: v.tolist() for k, v in given.items() if v is not None}
