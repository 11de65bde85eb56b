"""Models of sequences, and data for them."""

from __future__ import annotations

import numpy as np

from mixle_mpi import (
    Categorical,
    Gaussian,
    HiddenMarkov,
    MarkovChain,
    Mixture,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    Sequence,
)


def sequences(n: int = 60, seed: int = 0) -> list[np.ndarray]:
    """Numbers that stay for a while around one of three places, ragged, some empty."""
    rng = np.random.default_rng(seed)
    found = []
    for length in rng.poisson(15, n) * (rng.random(n) < 0.9):
        state, x = rng.integers(0, 3), []
        for _ in range(length):
            state = state if rng.random() < 0.8 else rng.integers(0, 3)
            x.append(rng.normal(4.0 * state))
        found.append(np.array(x))
    return found


def records(n: int = 40) -> list[dict]:
    """A number, and a sequence of steps with a number that may be missing and a label."""
    rng = np.random.default_rng(3)
    found = []
    for i in range(n):
        kind = i % 2
        steps = []
        for t in range(rng.poisson(6)):
            x = None if rng.random() < 0.1 else rng.normal(3.0 * kind + (t % 2))
            steps.append({"x": x, "word": "abc"[rng.integers(0, 3)]})
        found.append({"age": rng.normal(40 + 10 * kind), "visits": steps})
    return found


def texts(n: int = 50) -> list[str]:
    """Words that repeat their letters, or alternate; some are empty."""
    rng = np.random.default_rng(5)
    found = []
    for i in range(n):
        at, word = int(rng.integers(0, 4)), ""
        for _ in range(rng.poisson(12) * (rng.random() < 0.9)):
            stays = rng.random() < (0.8 if i % 2 else 0.1)
            at = at if stays else int(rng.integers(0, 4))
            word += "abcd"[at]
        found.append(word)
    return found


def paths(n: int = 40) -> list[dict]:
    """A number that may be missing, and a path of whole numbers."""
    rng = np.random.default_rng(6)
    return [{"age": None if rng.random() < 0.2 else rng.normal(30 + 20 * (i % 2)),
             "path": (rng.integers(0, 5, rng.poisson(7)) * (1 + i % 2)).tolist()} for i in range(n)]  # fmt: skip


STEP = Record(x=Optional(Gaussian()), word=Categorical())
TREES = {
    "gaussian": (sequences, HiddenMarkov(Gaussian(), 3)),
    "mixture emissions": (sequences, HiddenMarkov(Mixture(Gaussian(), 2), 2)),
    "length": (sequences, HiddenMarkov(Gaussian(), 2, length=Poisson())),
    "mixture of lengths": (sequences, HiddenMarkov(Gaussian(), 2, length=Mixture(Poisson(), 2))),
    "missing steps in what is optional": (
        lambda: [[None if x < 0 else x for x in row] for row in sequences(30)],
        Optional(Sequence(Record({"x": Optional(Gaussian())}, columns={"x": ["0"]}), Poisson()))),
    "unlike states": (sequences, HiddenMarkov([Gaussian(), Mixture(Gaussian(), 2), Gaussian()])),
    "mixture of chains": (sequences, Mixture(HiddenMarkov(Gaussian(), 2), 2)),
    "sequence of mixtures": (sequences, Sequence(Mixture(Gaussian(), 3), Poisson())),
    "record emissions": (lambda: [row["visits"] for row in records()], HiddenMarkov(STEP, 2)),
    "record": (records, Mixture(Record(age=Gaussian(), visits=HiddenMarkov(STEP, 2, length=Poisson())), 2)),
    "letters": (lambda: ["banana", "", "cab", "abba" * 20, "a"], HiddenMarkov(Categorical(), 2)),
    "one sequence": (lambda: [np.concatenate(sequences())], HiddenMarkov(Gaussian(), 3)),
    "markov chain": (texts, MarkovChain(order=2, length=Poisson())),
    "mixture of markov chains": (texts, Mixture(MarkovChain(), 3)),
    "markov chains in a record": (
        paths, Mixture(Record(age=Optional(Gaussian()), path=Mixture(MarkovChain(length=Poisson()), 2)), 2)),
    "all that read labels": (
        texts, Mixture([MarkovChain(), HiddenMarkov(Categorical(), 2), MarkovChain(order=3), Sequence(Categorical()),
                        MarkovChain()])),
    "vectors": (lambda: [np.random.default_rng(i).normal(size=(5 * i % 17, 2)) for i in range(30)],
                HiddenMarkov(MultivariateGaussian(2), 2)),
}  # fmt: skip


CUTS = {
    "mixture emissions": ["", "state_*", "state_1"], "unlike states": ["", "state_1"],
    "mixture of lengths": ["", "length"],
    "mixture of chains": ["", "component_*", "component_1"], "record": ["", "component_*/visits", "component_0/visits"],
    "sequence of mixtures": ["element"], "mixture of markov chains": [""],
    "markov chains in a record": ["", "component_*/path", "component_1/path"],
    "all that read labels": ["", "component_1"],
}  # fmt: skip
