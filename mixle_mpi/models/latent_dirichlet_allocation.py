"""Latent Dirichlet allocation, the topic model, by variational EM."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.errors import ModelError, nearest
from mixle_mpi.contract.work import Cost, Work
from mixle_mpi.families.labelled import at_least_zero
from mixle_mpi.models.topic_model import TopicModel

LEARN = ("none", "symmetric", "asymmetric")
SLOWEST = 4.0  # times as many rounds as documents take on average take the slowest of a tile, for whom all wait


class LatentDirichletAllocation(TopicModel):
    """Documents of words, each word from one of `topics` that a document mixes in its own proportions.

    The log density of a document is its variational lower bound, from the same start in every iteration, so that it
    depends on the parameters and the document alone. An empty document has log density 0.

    Parameters
    ----------
    topics : int
    vocabulary : int, or list of str or int, optional
        How many words there are, which are then the numbers from 0 on; or the words; by default those of the data.
    alpha : float, or (topics,), optional
        Of the Dirichlet prior of the proportions; 1 / topics by default.
    learn_alpha : "none", "symmetric" or "asymmetric"
        Whether `alpha` is estimated, one for all topics or one for each.
    topic_prior : float
        Concentration of the Dirichlet prior of the topics, whose posterior is then estimated; with 0 topics are
        probabilities.
    topic_word : (topics, words), optional
        Without `topic_prior` rows of probabilities; with it the concentrations of the posterior of each topic.
    fixed : bool
        Keep `topic_word` and `alpha` as they are.

    Source
    ------
    Blei, Ng, Jordan (2003), J. Mach. Learn. Res. 3, 993-1022; the posterior of topics as in its section 5.4.
    """

    dirichlet = restarts = True

    def __init__(self, topics: int, vocabulary=None, *, alpha=None, learn_alpha: str = "none",
                 topic_prior: float = 0.0, topic_word=None, key: str | None = None, fixed: bool = False):  # fmt: skip
        where = self.type_name()
        super().__init__(topics, vocabulary, topic_word, at_least_zero(where, "topic_prior", topic_prior), key, fixed)
        self.alpha = None if alpha is None else self._checked_alpha(alpha)
        if not isinstance(learn_alpha, str) or learn_alpha not in LEARN:
            raise ModelError(f"{where}: learn_alpha = {learn_alpha!r}; {nearest(str(learn_alpha), LEARN)}")
        self.learn_alpha = learn_alpha
        if learn_alpha == "symmetric" and self.alpha is not None and len(np.unique(self.alpha)) > 1:
            raise ModelError(f'{where}: learn_alpha = "symmetric", but alpha has different numbers')

    def _checked_alpha(self, alpha) -> np.ndarray:
        try:
            found = np.array(alpha, dtype=float)
        except (TypeError, ValueError):
            found = np.array(np.nan)
        if found.shape not in ((), (self.num_topics,)) or not ((found > 0) & np.isfinite(found)).all():
            raise ModelError(f"{self.type_name()}: alpha = {alpha!r} is not one positive number, or one for each of "
                             f"{self.num_topics} topics")  # fmt: skip
        return np.full(self.num_topics, found) if found.ndim == 0 else found

    def cost(self, assumed):
        # a document's proportions, by digamma and exponential of each topic in every inner round; cut by topic, a round
        # brings together one normaliser for each token and how far each document still moves, and the end its bound
        k, rounds, tokens = self.num_topics, assumed.value("rounds"), assumed.value("length")
        unit = Cost(Work(special=rounds, exp=rounds), scratch_member=2.5)
        stats = k + 1 if self.learns_alpha else 0
        return Cost(Work(log=tokens + 2.0), m_step=Work(special=4.0 * k) if self.learns_alpha else Work(), params=k,
                    stats=stats, kernel=k, scratch_member=3.0 * tokens + 4.0, columns={("offset",): 8.0}, unit=unit,
                    payload=(tokens + 1.0) * rounds + 1.0, messages=SLOWEST * rounds + 1.0,
                    pooled=self.learns_alpha)  # fmt: skip

    def signature(self):
        return (*super().signature(), self.learn_alpha)

    def options(self):
        own = {"topic_prior": self.prior, "learn_alpha": "" if self.learn_alpha == "none" else self.learn_alpha}
        return super().options() | {k: v for k, v in own.items() if v}

    def described(self, parameters):
        spec = super().described(parameters)
        return spec | ({"alpha": self.alpha.tolist()} if parameters and self.alpha is not None else {})
