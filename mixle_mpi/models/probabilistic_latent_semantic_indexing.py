"""Probabilistic latent semantic indexing: topics without a prior, and a mix of them for each document."""

from __future__ import annotations

from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.models.topic_model import TopicModel


class ProbabilisticLatentSemanticIndexing(TopicModel):
    """Documents of words: log p(document) = sum over words of count log sum_k mix[k] topic_word[k, word].

    In a fit each document has a mix of its own, which EM improves once an iteration, and which lives with the rows. A
    document that is scored is folded in: its mix is the likeliest under the topics as they are.

    Parameters
    ----------
    topics : int
    vocabulary : int, or list of str or int, optional
        How many words there are, which are then the numbers from 0 on; or the words; by default those of the data.
    topic_word : (topics, words), optional
        Rows add up to one.
    fixed : bool
        Keep `topic_word` as it is.

    Source
    ------
    Hofmann (1999), Proc. SIGIR, 50-57.
    """

    dirichlet = False

    def __init__(self, topics: int, vocabulary=None, *, topic_word=None, key: str | None = None, fixed: bool = False):
        super().__init__(topics, vocabulary, topic_word, 0.0, key, fixed)

    def cost(self, assumed):
        # one round: cut by topic, one normaliser for each token is brought together; the mixes, this iteration's and
        # the next one's, are held with the rows
        tokens = assumed.value("length")
        unit = Cost(Work(flop=2.0), scratch_member=2.5, columns={("mix",): 16.0})
        return Cost(Work(log=tokens), scratch_member=3.0 * tokens + 4.0, columns={("offset",): 8.0}, unit=unit,
                    payload=tokens, messages=1.0)  # fmt: skip
