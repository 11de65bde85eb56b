"""Topic models, alone and in trees, and documents for them."""

from __future__ import annotations

import numpy as np

from mixle_mpi import (
    Gaussian,
    LatentDirichletAllocation,
    Mixture,
    ProbabilisticLatentSemanticIndexing,
    Record,
)

VOCABULARY = 40


def documents(n: int = 60, seed: int = 0, vocabulary: int = VOCABULARY, topics: int = 4) -> list[list[int]]:
    """Words that come from a few topics each, some documents empty."""
    rng = np.random.default_rng(seed)
    words = rng.dirichlet(np.full(vocabulary, 0.1), topics)
    found = []
    for length in rng.poisson(25, n) * (rng.random(n) < 0.92):
        mix = rng.dirichlet(np.full(topics, 0.2))
        found.append([int(rng.choice(vocabulary, p=words[rng.choice(topics, p=mix)])) for _ in range(length)])
    return found


def described(n: int = 50) -> list[dict]:
    """Documents of two kinds beside a number that tells them apart."""
    rng = np.random.default_rng(7)
    kinds = [documents(n, 8), documents(n, 9)]
    return [{"age": rng.normal(30 + 20 * (i % 2)), "words": kinds[i % 2][i]} for i in range(n)]


def beside(topics) -> Record:
    return Record(age=Gaussian(), words=topics)


Topics = LatentDirichletAllocation
TREES = {
    "topics": (documents, Topics(5, VOCABULARY)),
    "topics with a prior": (documents, Topics(5, VOCABULARY, topic_prior=0.05, alpha=0.2)),
    "asymmetric alpha": (documents, Topics(4, VOCABULARY, topic_prior=0.1, learn_alpha="asymmetric")),
    "symmetric alpha": (documents, Topics(6, learn_alpha="symmetric")),
    "mixes": (documents, ProbabilisticLatentSemanticIndexing(5, VOCABULARY)),
    "topics beside a number": (described, beside(Topics(4, VOCABULARY, topic_prior=0.1))),
    "mixture of topics": (described, Mixture(beside(Topics(4, topic_prior=0.1, learn_alpha="asymmetric")), 2)),
    "mixture of mixes": (described, Mixture(beside(ProbabilisticLatentSemanticIndexing(4, VOCABULARY)), 2)),
    "mixture of both": (documents, Mixture([Topics(3, VOCABULARY, topic_prior=0.1), Topics(5, VOCABULARY)])),
}  # fmt: skip
# where each may be cut; by default at the first node that can be
CUTS = {
    "topics beside a number": ["words", ""],
    "mixture of topics": ["component_*/words", "", "component_1/words"],
    "mixture of mixes": ["component_*/words", ""],
    "mixture of both": ["", "component_1"],
}
