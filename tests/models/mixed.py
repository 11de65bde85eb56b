"""Trees that mix everything, of simulated patients: visits as a sequence, notes and drugs as bags of words, a growth
curve, and columns with missing values."""

from __future__ import annotations

import numpy as np

from mixle_mpi import (
    Categorical,
    Gaussian,
    GaussianProcess,
    HiddenMarkov,
    LatentDirichletAllocation,
    MarkovChain,
    Mixture,
    MultivariateGaussian,
    Optional,
    Poisson,
    ProbabilisticLatentSemanticIndexing,
    Record,
    Sequence,
)

TIMES = (0.0, 0.4, 1.0, 1.3, 2.0)
WORDS = [f"word{i}" for i in range(20)]


def patients(n: int = 36, seed: int = 0) -> list[dict]:
    """Patients of two kinds; some have no visits, some no notes, and cells are missing."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(len(WORDS), 0.3), 4)
    cover = np.exp(-np.square(np.subtract.outer(TIMES, TIMES))) + 0.1 * np.eye(5)
    found = []
    for i in range(n):
        kind = i % 2
        visits = [{"pulse": None if rng.random() < 0.15 else rng.normal(60 + 20 * kind + 5 * (t % 2)),
                   "note": "abc"[rng.integers(0, 2) + kind]} for t in range(rng.poisson(4))]  # fmt: skip
        mix = rng.dirichlet([0.3, 0.3])
        notes = [WORDS[rng.choice(len(WORDS), p=mix @ shares[2 * kind :][:2])] for _ in range(rng.poisson(8))]
        found.append({
            "age": None if rng.random() < 0.2 else rng.normal(40 + 15 * kind, 8),
            "sex": None if rng.random() < 0.1 else "fm"[int(rng.random() < 0.3 + 0.4 * kind)],
            "visits": visits, "notes": notes, "drugs": rng.integers(0, 6, rng.poisson(3)).tolist(),
            "path": rng.choice(list("xyz"), rng.poisson(4)).tolist(),
            "curve": tuple(kind + np.linalg.cholesky(cover) @ rng.normal(size=5)),
        })  # fmt: skip
    return found


def visits(states: int = 2) -> HiddenMarkov:
    return HiddenMarkov(Record(pulse=Optional(Gaussian()), note=Categorical(pseudo_count=1)), states, length=Poisson())


def topics(number: int = 3) -> LatentDirichletAllocation:
    return LatentDirichletAllocation(number, WORDS, topic_prior=0.1)


def beside(**fields) -> Record:
    return Record(fields | {"age": Optional(Gaussian(), estimate_missing=True),
                            "sex": Optional(Categorical(pseudo_count=1))})  # fmt: skip


def optional_curve(**options) -> Optional:
    return Optional(GaussianProcess(TIMES, **options))


Mixes = ProbabilisticLatentSemanticIndexing
TREES = {
    "everything": (patients, Mixture(beside(visits=visits(), notes=topics(), curve=GaussianProcess(TIMES)), 2)),
    "everything without a curve": (patients, Mixture(beside(visits=visits(3), notes=topics(), drugs=Mixes(2, 6),
                                                            path=MarkovChain(length=Poisson())), 2)),
    "unlike records": (patients, Mixture([
        beside(visits=visits(), notes=topics(), drugs=Mixes(3, 6), path=MarkovChain()),
        beside(visits=Sequence(Record(pulse=Optional(Mixture(Gaussian(), 2)), note=Categorical())),
               notes=Mixes(2, WORDS), drugs=LatentDirichletAllocation(2, 6, alpha=0.3),
               path=HiddenMarkov(Categorical(), 2)),
        beside(visits=visits(), notes=topics(4), drugs=Mixes(3, 6), path=MarkovChain(order=2, length=Poisson())),
    ])),
    "a record of mixtures": (patients, Record(
        visits=Mixture(visits(), 2), notes=Mixture([topics(), Mixes(2, WORDS), topics()]),
        age=Optional(Mixture(Gaussian(), 3)), curve=Mixture([MultivariateGaussian(5, structure="diagonal"),
                                                             MultivariateGaussian(5, structure="spherical")]))),
    "keys": (patients, Mixture([
        beside(visits=HiddenMarkov(Record(pulse=Optional(Gaussian(key="pulse"), 0.1, estimate_missing=True),
                                          note=Categorical(key="note")), states),
               notes=LatentDirichletAllocation(3, WORDS, topic_prior=0.1, key="notes"), drugs=Mixes(2, 6, key="drugs"))
        for states in (2, 3)])),
    "two bags": (patients, Record(notes=topics(4), drugs=Mixture(Mixes(2, 6), 2),
                                  age=Optional(Mixture(Gaussian(), 2)))),
}  # fmt: skip
# Where each is cut under real MPI.
CUTS = {
    "everything": ["component_*", "component_*/notes"],
    "everything without a curve": ["", "component_*/visits/state_*", "component_*/drugs"],
    "unlike records": ["", "component_0", "component_1/visits/element/pulse/of", "component_2/notes"],
    "a record of mixtures": ["", "visits/component_*/state_*", "notes", "age/of"],
    "keys": ["component_1", "component_0/visits", "component_1/notes"],
    "two bags": ["", "notes", "drugs/component_*"],
}
