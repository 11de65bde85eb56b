"""Rows and trees on which grids are compared, and the comparison itself."""

from __future__ import annotations

import numpy as np

from mixle_mpi import (
    Bernoulli,
    Binomial,
    Categorical,
    Composite,
    Exponential,
    Gamma,
    Gaussian,
    GaussianProcess,
    Geometric,
    Laplace,
    MarkovChain,
    Mixture,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    StudentT,
    Uniform,
)  # fmt: skip

TIMES = (0.0, 0.4, 1.0, 1.3, 2.0)


def rows(n: int = 203, seed: int = 0) -> list[dict]:
    """Rows with numbers, counts, labels, vectors and missing cells."""
    rng = np.random.default_rng(seed)
    made = []
    for g in rng.integers(0, 3, n):
        e = rng.exponential(1 + g) if rng.random() > 0.3 else rng.normal(5, 0.5)
        made.append({
            "a": None if rng.random() < 0.1 else rng.normal(3.0 * g, 1),
            "b": int(rng.poisson(2 + g)),
            "c": "abc"[rng.integers(0, 3)],
            "d": bool(rng.random() < 0.2 + 0.3 * g),
            "e": None if rng.random() < 0.2 else e,
            "v": (rng.normal(), rng.normal(g, 2)),
            "w": f"word{rng.integers(0, 40)}",
        })  # fmt: skip
    more = np.random.default_rng(seed + 1000)
    for g, row in zip(more.integers(0, 3, n), made):
        row |= {
            "g": float(more.gamma(1.5 + 2 * g)),
            "l": float(more.laplace(4 * g)),
            "s": None if more.random() < 0.15 else int(more.binomial(12, 0.2 + 0.3 * g)),
            "t": int(more.geometric(0.6 - 0.2 * g)),
            "p": "".join(more.choice(list("xyz"), more.poisson(4), p=[0.6 - 0.2 * g, 0.2, 0.2 + 0.2 * g])),
        }
    functions = np.random.default_rng(seed + 2000)
    for g, row in zip(functions.integers(0, 3, n), made):
        rough = np.exp(-np.square(np.subtract.outer(TIMES, TIMES) * (1 + g)))
        row["f"] = tuple(g + functions.multivariate_normal(np.zeros(5), rough + 0.1 * np.eye(5), method="cholesky"))
    return made


def trees() -> dict[str, tuple]:
    """Name -> (model, paths to cut); a path of None is the default."""
    record = Record(a=Optional(Gaussian()), b=Poisson(), c=Categorical(pseudo_count=1), v=MultivariateGaussian(2),
                    w=Categorical())  # fmt: skip
    nested = Record(
        v=Mixture(Composite(Gaussian(), Gaussian()), 4),
        e=Optional(Mixture([Gaussian(), Exponential()])),
        b=Mixture(Poisson(), 2),
        d=Bernoulli(),
    )
    deep = Mixture(
        Record(
            v=Mixture(Composite(Gaussian(), Gaussian()), 2),
            e=Optional(Mixture([Gaussian(), Exponential(), Gaussian()])),
            a=Optional(Gaussian(), estimate_missing=True),
        ),
        3,
    )
    several = Mixture([
        Record(a=Optional(Gaussian()), v=MultivariateGaussian(2)),
        Record(a=Optional(Gaussian()), v=MultivariateGaussian(2, structure="diagonal")),
        Record(a=Optional(Gaussian()), v=MultivariateGaussian(2)),
    ])  # fmt: skip
    def tied():
        return MultivariateGaussian(2, structure="tied")

    leaves = Record(a=Optional(Laplace()), e=Optional(Uniform()), g=Gamma(), s=Optional(Binomial()), t=Geometric(),
                    l=StudentT(), v=tied())  # fmt: skip
    numbers = Record(
        l=Mixture([Laplace(), StudentT(), Uniform(), Gaussian(), Laplace()]),
        v=Mixture([Mixture(tied(), 2), MultivariateGaussian(2, structure="spherical"), tied(), tied()]),
    )
    keyed = Mixture(
        Record(
            a=Optional(Gaussian(key="a"), estimate_missing=True),
            c=Categorical(key="c"),
            e=Optional(Mixture([Gaussian(), Exponential()], key="e")),
            l=Laplace(key="l"),
            v=Mixture(tied(), 2),
        ),
        3,
    )
    chains = Mixture(
        Record(b=Poisson(), p=Mixture([MarkovChain(), MarkovChain(order=2, length=Poisson()), MarkovChain()])), 3
    )
    process = GaussianProcess(TIMES)
    processes = Mixture([
        Record(f=Mixture(process, 2), b=Poisson()),
        Record(f=MultivariateGaussian(5, structure="spherical"), b=Poisson()),
        Record(f=Mixture([GaussianProcess(TIMES, "matern32 + white", key="k"), process, process,
                          GaussianProcess(TIMES, "matern32 + white", key="k")]), b=Poisson()),
    ])  # fmt: skip
    of_one_key = Record(
        l=Mixture([Laplace(key="x"), StudentT(key="y"), Laplace(key="x"), Uniform(), Gaussian(), StudentT(key="y")])
    )
    return {
        "mixture of records": (Mixture(record, 3), [None, "", "component_*", "component_1"]),
        "nested": (nested, [None, "v", "v/component_*", "v/component_2", "e/of", "b"]),
        "deep": (deep, ["", "component_*", "component_*/v", "component_0/v", "component_2/e/of",
                        "component_*/v/component_*", "component_1/v/component_1"]),
        "several families": (several, [None, "component_0", "component_2"]),
        "new leaves": (Mixture(leaves, 3), [None, "component_*"]),
        "numbers": (numbers, ["l", "v", "v/component_0"]),
        "keyed": (keyed, ["", "component_*/e/of", "component_*/v"]),
        "components of one key": (of_one_key, ["l"]),
        "chains": (chains, ["", "component_*/p", "component_1/p"]),
        "processes": (processes, ["", "component_2/f"]),
        "atomic": (Record(a=Optional(Gaussian())), [None]),
    }  # fmt: skip


def difference(result, reference) -> tuple[float, float]:
    """Largest difference of the histories, relative to max(|L|, N), and of the parameters in encoded units.

    Both infinite when one fit ended before the other.
    """
    if len(result.history) != len(reference.history):
        return np.inf, np.inf
    scale = max(abs(reference.history[-1]), reference.n_rows)
    levels = np.max(np.abs(np.array(result.history) - reference.history)) / scale
    theta, expected = result.model.state.theta, reference.model.state.theta
    assert theta.shape == expected.shape and not np.isnan(theta).any()
    return float(levels), float(np.max(np.abs(theta - expected) / np.maximum(1.0, np.abs(expected))))


def assert_same(result, reference) -> None:
    """The log likelihood of each iteration to 1e-12 of max(|L|, N), parameters to 1e-8."""
    levels, parameters = difference(result, reference)
    assert levels < 1e-12, f"log likelihoods differ by {levels}"
    assert parameters < 1e-8, f"parameters differ by {parameters}"
