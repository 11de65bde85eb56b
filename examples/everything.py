"""Simulated patients, whose visits, notes, growth and laboratory values are of different kinds, clustered together.

python examples/everything.py, or on ranks: mpirun -n 4 python examples/everything.py
"""

from __future__ import annotations

import itertools

import numpy as np

import mixle_mpi as mm
from mixle_mpi.commands.launch import launch

AGES = np.arange(0.0, 3.0, 0.5)  # years at which children are measured
WORDS = ["fever", "cough", "rash", "itch", "pain", "fall", "sleep", "diet", "check", "vaccine"]
KINDS, PATIENTS = 3, 240


def patients(seed: int = 0) -> tuple[list[dict], np.ndarray]:
    """Rows, and of which kind each is, (PATIENTS,). A fifth of the cells is missing, and some never came or wrote."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, KINDS, PATIENTS)
    topics = rng.dirichlet(np.full(len(WORDS), 0.4), (KINDS, 2))
    smooth = 0.5 * np.exp(-0.5 * np.subtract.outer(AGES, AGES) ** 2) + 0.05 * np.eye(len(AGES))
    rows = []
    for kind in kinds:
        ill, visits = bool(rng.random() < 0.5), []
        for _ in range(rng.poisson(4)):
            ill = ill if rng.random() < 0.8 else not ill
            pulse, ward = rng.normal(80.0 + 8.0 * kind + 25.0 * ill, 6.0), "AB"[int(rng.random() < 0.2 + 0.6 * ill)]
            visits.append({"pulse": None if rng.random() < 0.2 else pulse, "ward": ward})
        mix = rng.dirichlet([0.3, 0.3]) @ topics[kind]
        rows.append({
            "visits": visits, "notes": rng.choice(WORDS, rng.poisson(7), p=mix).tolist(),
            "growth": tuple(0.5 * kind + rng.multivariate_normal(np.zeros(len(AGES)), smooth)),
            "iron": None if rng.random() < 0.2 else rng.normal(90.0 - 8.0 * kind, 12.0),
            "blood": None if rng.random() < 0.2 else rng.choice(["0", "A", "B"], p=np.roll([0.6, 0.3, 0.1], kind)),
        })  # fmt: skip
    return rows, kinds


def patient() -> mm.Record:
    """One kind of patient."""
    visit = mm.Record(pulse=mm.Optional(mm.Gaussian()), ward=mm.Categorical(pseudo_count=1))
    return mm.Record(
        visits=mm.HiddenMarkov(visit, 2, length=mm.Poisson()),
        notes=mm.LatentDirichletAllocation(2, WORDS, topic_prior=0.2),
        growth=mm.GaussianProcess(AGES),
        iron=mm.Optional(mm.Gaussian()),
        blood=mm.Optional(mm.Categorical(pseudo_count=1)),
    )


def matched(found: np.ndarray, kinds: np.ndarray) -> float:
    """The share of patients in the cluster of their kind, clusters being named as suits best."""
    return max(float(np.mean(np.array(names)[found] == kinds)) for names in itertools.permutations(range(KINDS)))


def main() -> None:
    launched = launch()
    rows, kinds = patients()
    result = mm.optimize(rows, mm.Mixture(patient(), KINDS), starts=4, backend="local" if launched is None else "mpi")
    if launched is not None and launched.rank:
        return
    best = result.model
    print(f"{result.status} after {result.n_iter} iterations: log likelihood {result.log_likelihood:.3f}")
    for weight, kind in zip(best.weights, best.components):
        fields = kind.fields
        pulses = sorted(state.fields["pulse"].of.mean for state in fields["visits"].emissions)
        blood, words = fields["blood"].of, fields["notes"].top_words(3)[0]
        print(f"{weight:.2f} of the patients: pulse {pulses[0]:.0f} or {pulses[1]:.0f}, growth "
              f"{fields['growth'].mean:+.2f}, iron {fields['iron'].of.mean:.0f}, blood mostly "
              f"{blood.levels[int(np.argmax(blood.probabilities))]}; notes of {', '.join(words)}")  # fmt: skip
    print(f"{matched(best.posterior(rows).argmax(axis=1), kinds):.1%} are in the cluster of their kind")


if __name__ == "__main__":
    main()
