"""Speed against what people use today, on one core: `python -m benchmarks.quick [--rounds N]`.

Gaussian mixtures against scikit-learn; a composite of four columns against dmx-learn and against mixle
under mpirun -n 1, where these are installed (`pip install '.[benchmarks]'`). Both run in turn with one
thread each, a fixed number of iterations after a warm-up, the Gaussians from the same start; what counts
is the ratio of the medians of the seconds per iteration.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
import warnings
from dataclasses import dataclass

import numpy as np

from benchmarks import peers
from mixle_mpi import Mixture, MultivariateGaussian, optimize


@dataclass(frozen=True)
class Case:
    """Gaussian mixture of `components` in `dim` dimensions over `n` rows."""

    name: str
    structure: str
    n: int
    dim: int
    components: int


CASES = [
    Case("full Gaussians", "full", 200_000, 16, 32),
    Case("diagonal Gaussians", "diagonal", 500_000, 16, 64),
    Case("full Gaussians, wide", "full", 50_000, 64, 16),
]
ITERATIONS = 10


def make(case: Case):
    """Data (n, dim), and weights, means and covariances to start from."""
    rng = np.random.default_rng(12)
    centres = rng.normal(scale=3.0, size=(case.components, case.dim))
    which = rng.integers(0, case.components, case.n)
    x = centres[which] + rng.normal(size=(case.n, case.dim))
    means = x[rng.choice(case.n, case.components, replace=False)]
    return x, np.full(case.components, 1.0 / case.components), means, np.var(x, axis=0)


def time_ours(case: Case, x, weights, means, variances) -> tuple[list[float], float]:
    """Seconds of each iteration, and the log likelihood per row after the last."""
    covariance = np.diag(variances) if case.structure == "full" else variances
    parts = [MultivariateGaussian(case.dim, m, covariance, structure=case.structure) for m in means]
    at: list[float] = []
    result = optimize(x, Mixture(parts, weights=weights), max_iter=ITERATIONS, tol=None,
                      callback=lambda _: at.append(time.perf_counter()))  # fmt: skip
    return list(np.diff(at)), result.log_likelihood / case.n


def time_sklearn(case: Case, x, weights, means, variances) -> tuple[list[float], float]:
    """The same of scikit-learn's GaussianMixture."""
    from sklearn.mixture import GaussianMixture

    full = case.structure == "full"
    precision = np.diag(1.0 / variances) if full else 1.0 / variances
    peer = GaussianMixture(
        case.components, covariance_type="full" if full else "diag", tol=0.0, max_iter=ITERATIONS, reg_covar=0.0,
        weights_init=weights, means_init=means, precisions_init=np.stack([precision] * case.components),
        init_params="random_from_data",
    )  # fmt: skip
    at = []
    step = peer._e_step

    def counted(X, **options):
        at.append(time.perf_counter())
        return step(X, **options)

    peer._e_step = counted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer.fit(x)
    return list(np.diff(at[: ITERATIONS + 1])), float(peer.score(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often the two take turns")
    options = parser.parse_args()
    print(f"{'case':24}{'n':>9}{'d':>5}{'K':>5}{'ours s':>10}{'sklearn s':>11}{'ratio':>8}   log likelihood per row")
    for case in CASES:
        data = make(case)
        time_ours(Case(case.name, case.structure, 1000, case.dim, case.components), data[0][:1000], *data[1:])
        ours: list[float] = []
        theirs: list[float] = []
        level = peer_level = 0.0
        for _ in range(options.rounds):
            seconds, level = time_ours(case, *data)
            ours += seconds
            seconds, peer_level = time_sklearn(case, *data)
            theirs += seconds
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"{case.name:24}{case.n:9}{case.dim:5}{case.components:5}{a:10.4f}{b:11.4f}{b / a:8.1f}"
              f"   {level:.9f} {peer_level:.9f}", flush=True)  # fmt: skip
    composite(options.rounds)


def composite(rounds: int) -> None:
    """Print the line of the four-column composite for each peer that is installed."""
    print(f"\n{'4 columns, one composite':24}{'n':>9}{'':5}{'K':>5}{'ours s':>10}{'peer s':>11}{'ratio':>8}")
    peers.time_ours(2)
    for name, module, run in (("dmx-learn", "dmx", peers.time_dmx), ("mixle, mpirun -n 1", "mixle", peers.run_mixle)):
        if importlib.util.find_spec(module) is None:
            print(f"{name}: not installed; pip install '.[benchmarks]'")
            continue
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(rounds):
            ours += peers.time_ours()
            theirs.append(run())
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"{'against ' + name:24}{peers.ROWS:9}{'':5}{peers.COMPONENTS:5}{a:10.4f}{b:11.4f}{b / a:8.1f}")


if __name__ == "__main__":
    main()
