"""Hidden Markov models against hmmlearn, on one core: `python -m benchmarks.sequences [--rounds N]`.

Gaussian emissions with diagonal covariances, from the same start, hmmlearn with implementation="scaling"
(`pip install '.[benchmarks]'`). Both run in turn with one thread each, a fixed number of iterations after a
warm-up; what counts is the ratio of the medians of the nanoseconds a step and iteration.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from dataclasses import dataclass

import numpy as np

from mixle_mpi import HiddenMarkov, MultivariateGaussian, optimize


@dataclass(frozen=True)
class Case:
    """`count` sequences of `length` steps in `dim` dimensions, and a model of so many states."""

    states: int
    dim: int
    count: int
    length: int


CASES = [Case(16, 4, 1000, 200), Case(64, 4, 250, 200), Case(4, 2, 2500, 200)]
ITERATIONS = 8


def make(case: Case):
    """Steps (n, dim) of all sequences, their lengths, and a start."""
    rng = np.random.default_rng(5)
    centres = rng.normal(scale=3.0, size=(case.states, case.dim))
    transition = 0.8 * np.eye(case.states) + 0.2 / case.states
    states = np.empty(case.count * case.length, np.int64)
    for t in range(len(states)):
        stay = t % case.length and rng.random() < 0.8
        states[t] = states[t - 1] if stay else rng.integers(case.states)
    x = centres[states] + rng.normal(size=(len(states), case.dim))
    means = centres + 0.3 * rng.normal(size=centres.shape)
    return x, np.full(case.count, case.length), np.full(case.states, 1.0 / case.states), transition, means


def ours(case: Case, x, lengths, initial, transition, means) -> tuple[list[float], float]:
    """Seconds of each iteration, and the log likelihood after the last M-step."""
    emissions = [MultivariateGaussian(case.dim, m, np.ones(case.dim), structure="diagonal") for m in means]
    model = HiddenMarkov(emissions, initial=initial, transition=transition)
    times: list[float] = []
    data = np.split(x, np.cumsum(lengths)[:-1])
    result = optimize(data, model, max_iter=ITERATIONS, tol=None, callback=lambda *_: times.append(time.perf_counter()))
    return np.diff(times).tolist(), result.log_likelihood


def theirs(case: Case, x, lengths, initial, transition, means) -> tuple[list[float], float]:
    """The same of hmmlearn."""
    from hmmlearn.hmm import GaussianHMM

    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    model = GaussianHMM(case.states, "diag", n_iter=1, tol=-np.inf, init_params="", implementation="scaling",
                        covars_prior=0.0, covars_weight=0.0, means_weight=0.0, min_covar=1e-9)  # fmt: skip
    model.startprob_, model.transmat_, model.means_ = initial, transition, means
    model.covars_ = np.ones((case.states, case.dim))
    times = []
    for _ in range(ITERATIONS):
        began = time.perf_counter()
        model.fit(x, lengths)
        times.append(time.perf_counter() - began)
    return times[1:], model.score(x, lengths)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=3)
    rounds = options.parse_args().rounds
    print(f"{'states':>6} {'dim':>4} {'sequences':>9} {'steps':>6}  {'ours ns/step':>12} {'hmmlearn':>9} {'ratio':>6}"
          f"   log likelihood: ours, hmmlearn")  # fmt: skip
    for case in CASES:
        data = make(case)
        ours(case, *data)
        mine: list[float] = []
        other: list[float] = []
        for _ in range(rounds):
            seconds, own = ours(case, *data)
            mine += seconds
            seconds, found = theirs(case, *data)
            other += seconds
        each = [1e9 * statistics.median(s) / (case.count * case.length) for s in (mine, other)]
        print(f"{case.states:6} {case.dim:4} {case.count:9} {case.length:6}  {each[0]:12.0f} {each[1]:9.0f} "
              f"{each[1] / each[0]:6.1f}   {own:.6f}, {found:.6f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
