"""Growth curves clustered by how they vary: python examples/curves.py [curves], by default 300.

Simulated heights of plants at twelve days: some grow smoothly, some in spurts, and some hardly vary but are measured
badly. Each component of the mixture is a Gaussian process of its own; what tells the clusters apart is the kernel, not
the mean.
"""

from __future__ import annotations

import sys

import numpy as np

from mixle_mpi import GaussianProcess, Mixture, optimize

DAYS = np.array([0.0, 1, 2, 4, 6, 8, 11, 14, 17, 21, 25, 30])
TRUTH = {  # variances in square centimetres, length scales in days
    "smooth": "rbf(variance=9, length_scale=12) + white(variance=0.05)",
    "in spurts": "rbf(variance=4, length_scale=3) + white(variance=0.05)",
    "measured badly": "rbf(variance=0.5, length_scale=15) + white(variance=1)",
}
GUESSES = [  # where EM starts: k-means++ would start from clusters of level, of which there are none here
    "rbf(variance=4, length_scale=10) + white(variance=0.1)",
    "rbf(variance=4, length_scale=2) + white(variance=0.1)",
    "rbf(variance=1, length_scale=10) + white(variance=2)",
]


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    kinds = np.arange(number) % len(TRUTH)
    curves = np.empty((number, len(DAYS)))
    for kind, kernel in enumerate(TRUTH.values()):
        own = kinds == kind
        curves[own] = GaussianProcess(DAYS, kernel, 20.0).sample(int(own.sum()), seed=kind)
    components = [GaussianProcess(DAYS, kernel, 20.0) for kernel in GUESSES]
    result = optimize(curves, Mixture(components, weights=[1 / 3] * 3), max_iter=300)
    cluster = result.model.posterior(curves).argmax(axis=1)
    print(f"{result.status} after {result.n_iter} iterations, log likelihood {result.log_likelihood:.3f}")
    for k, process in enumerate(result.model.components):
        names = [f"{int(np.sum((cluster == k) & (kinds == j)))} {name}" for j, name in enumerate(TRUTH)]
        print(f"  cluster {k}: {', '.join(names)}")
        print("    " + ", ".join(f"{name} {value:.3g}" for name, value in process.values.items()))


if __name__ == "__main__":
    main()
