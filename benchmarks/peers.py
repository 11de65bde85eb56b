"""The four-column composite on this package, dmx-learn and mixle; the peers are imported when asked for.

`python -m benchmarks.peers mixle` prints seconds per iteration of mixle's MPI backend; run it under
`mpirun -n 1`, as `benchmarks.quick` does. The peers report no times of single iterations, so theirs are
differences: a fit of many iterations less one of few, over the same encoded data where they allow it.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

ROWS, COMPONENTS, LEVELS = 200_000, 10, "abcde"
FEW, MANY = 2, 8


def columns() -> dict[str, np.ndarray]:
    """A Gaussian, a Poisson, a categorical and an exponential column, (ROWS,) each."""
    rng = np.random.default_rng(0)
    g = rng.integers(0, COMPONENTS, ROWS)
    letters = np.array(list(LEVELS))[rng.integers(0, len(LEVELS), ROWS)]
    return {"x": rng.normal(g, 1), "k": rng.poisson(g + 1.0), "c": letters, "t": rng.exponential(1.0 + g)}


def rows() -> list[tuple]:
    """The same as tuples, as the peers take them."""
    return list(zip(*(c.tolist() for c in columns().values())))


def time_ours(iterations: int = 10) -> list[float]:
    """Seconds of each iteration of this package."""
    from mixle_mpi import Categorical, Exponential, Gaussian, Mixture, Poisson, Record, optimize

    model = Mixture(Record(x=Gaussian(), k=Poisson(), c=Categorical(), t=Exponential()), COMPONENTS)
    at: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optimize(columns(), model, max_iter=iterations, tol=None, callback=lambda _: at.append(time.perf_counter()))
    return list(np.diff(at))


def time_dmx() -> float:
    """Seconds per iteration of dmx-learn, encoding apart."""
    from dmx.stats import seq_encode, seq_initialize
    from dmx.stats.categorical import CategoricalEstimator
    from dmx.stats.composite import CompositeEstimator
    from dmx.stats.exponential import ExponentialEstimator
    from dmx.stats.gaussian import GaussianEstimator
    from dmx.stats.mixture import MixtureEstimator
    from dmx.stats.poisson import PoissonEstimator
    from dmx.utils.estimation import optimize

    def part():
        return CompositeEstimator(
            (GaussianEstimator(), PoissonEstimator(), CategoricalEstimator(), ExponentialEstimator())
        )

    estimator = MixtureEstimator([part() for _ in range(COMPONENTS)])
    encoded = seq_encode(rows(), estimator.accumulator_factory().make().acc_to_encoder())
    model = seq_initialize(enc_data=encoded, estimator=estimator, rng=np.random.RandomState(1), p=0.1)

    def fit(iterations: int) -> None:
        optimize(None, estimator, max_its=iterations, delta=None, enc_data=encoded, prev_estimate=model,
                 out=io.StringIO())  # fmt: skip

    return _per_iteration(fit)


def time_mixle() -> float:
    """Seconds per iteration of mixle's MPI backend; under mpirun."""
    from mixle.inference import optimize
    from mixle.stats import (
        CategoricalEstimator,
        CompositeEstimator,
        ExponentialEstimator,
        GaussianEstimator,
        MixtureEstimator,
        PoissonEstimator,
    )  # fmt: skip

    warnings.simplefilter("ignore")
    def part():
        return CompositeEstimator(
            (GaussianEstimator(), PoissonEstimator(), CategoricalEstimator(), ExponentialEstimator())
        )

    estimator = MixtureEstimator([part() for _ in range(COMPONENTS)])
    data = rows()
    model = optimize(data, estimator, max_its=1, delta=None, rng=np.random.RandomState(1), backend="mpi")

    def fit(iterations: int) -> None:
        optimize(data, estimator, max_its=iterations, delta=None, prev_estimate=model, backend="mpi")

    return _per_iteration(fit)


def _per_iteration(fit) -> float:
    fit(FEW)
    began = time.perf_counter()
    fit(FEW)
    middle = time.perf_counter()
    fit(MANY)
    return (time.perf_counter() - middle - (middle - began)) / (MANY - FEW)


def run_mixle() -> float:
    """`time_mixle` in a process of its own, under mpirun -n 1."""
    beside = Path(sys.executable).parent / "mpirun"
    launcher = str(beside) if beside.exists() else shutil.which("mpirun")
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [launcher, "-n", "1", sys.executable, "-m", "benchmarks.peers", "mixle"], env=environment, timeout=300,
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return float(done.stdout.split()[-1])


if __name__ == "__main__":
    print({"mixle": time_mixle, "dmx": time_dmx}[sys.argv[1]]())
