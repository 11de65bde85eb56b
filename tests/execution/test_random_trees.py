"""Random trees of all families and nodes, on rows drawn from them: what must hold for any model.

`python tests/execution/test_random_trees.py N [SEED]` tries N trees and prints what fails.
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mixle_mpi import (
    Bernoulli,
    Binomial,
    Categorical,
    Composite,
    Exponential,
    Gamma,
    Gaussian,
    Geometric,
    Laplace,
    LogNormal,
    MarkovChain,
    Mixture,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    StudentT,
    Uniform,
    load,
)  # fmt: skip
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.shard import cut_paths
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.models.specification import build, describe

ITERATIONS = 3
# A vector that has fewer rows than columns is flat, and its density multiplies roundings by 1 / floor: of flat ones
# no two grids would agree to 1e-12.
FLOOR = 0.05
WORDS = [f"w{i}" for i in range(14)]


class Forest:
    """Models over columns whose kinds are fixed first, so that all components of a mixture read the same rows."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.keys = 0

    def pick(self, *options):
        return options[self.rng.integers(len(options))]

    def leaf(self, kind: str, key=None):
        """A leaf of one kind of column, with parameters."""
        r = self.rng
        if kind == "number":
            return self.pick(
                lambda: Gaussian(r.normal() * 3, r.uniform(0.5, 4), min_variance=FLOOR, key=key),
                lambda: Laplace(r.normal() * 3, r.uniform(0.5, 2), key=key),
                lambda: StudentT(r.uniform(1, 9), r.normal(), r.uniform(0.5, 2), min_variance=FLOOR, key=key),
                lambda: Uniform(-60.0 - r.random(), 60.0 + r.random(), key=key),
            )()
        if kind == "positive":
            return self.pick(
                lambda: Exponential(r.uniform(0.3, 3), key=key),
                lambda: Gamma(r.uniform(0.5, 6), r.uniform(0.3, 3), key=key),
                lambda: LogNormal(r.normal(), r.uniform(0.2, 1), min_variance=FLOOR, key=key),
            )()
        if kind == "count":
            return self.pick(
                lambda: Poisson(r.uniform(0.5, 9), key=key), lambda: Geometric(r.uniform(0.1, 0.8), key=key),
                lambda: Binomial(40, r.uniform(0.05, 0.4), key=key),
            )()  # fmt: skip
        if kind == "bit":
            return Bernoulli(r.uniform(0.1, 0.9), key=key)
        if kind in ("word", "long"):
            levels = WORDS[:3] if kind == "word" else WORDS
            return Categorical(levels, r.dirichlet(np.ones(len(levels)) * 3), pseudo_count=self.pick(0.0, 1.0), key=key)
        if kind == "path":
            tables = [r.dirichlet(np.ones(3) * 2, size=(3,) * k) for k in range(self.pick(2, 3, 4))]
            first = tables[0] if len(tables) == 2 else tables[:-1]
            return MarkovChain(WORDS[:3], first, tables[-1], order=len(tables) - 1, length=Poisson(r.uniform(0.5, 8)),
                               pseudo_count=self.pick(0.0, 1.0), key=key)  # fmt: skip
        d = int(kind[-1])
        structure = self.pick("full", "diagonal", "spherical", "tied")
        a = r.normal(size=(d, d))
        simple = {"diagonal": r.uniform(0.5, 2, d), "spherical": r.uniform(0.5, 2)}
        covariance = simple.get(structure, a @ a.T + np.eye(d))
        if structure == "tied":
            covariance = np.eye(d) * 1.5  # one for all components
        options = {"structure": structure, "min_variance": FLOOR, "key": key}
        return MultivariateGaussian(d, r.normal(size=d) * 3, covariance, **options)

    def of(self, shape, depth: int):
        """A model of a shape: the kind of one column, a list of shapes, or ("missing", shape)."""
        r = self.rng
        if depth > 0 and r.random() < 0.45:
            return self.mixture(shape, depth)
        if isinstance(shape, str):
            return self.leaf(shape)
        if isinstance(shape, tuple):
            p = r.uniform(0.1, 0.5)
            return Optional(self.of(shape[1], depth - 1), p, estimate_missing=bool(r.random() < 0.5))
        return Composite(*(self.of(s, depth - 1) for s in shape))

    def mixture(self, shape, depth: int):
        r, k = self.rng, int(self.rng.integers(2, 4))
        weights = r.dirichlet(np.ones(k) * 5)
        if r.random() < 0.5:  # components alike
            first = self.of(shape, depth - 1)
            parts = [first, *(self.like(first) for _ in range(k - 1))]
        else:
            parts = [self.of(shape, depth - 1) for _ in range(k)]
        if isinstance(shape, str) and r.random() < 0.25:  # the first and the last are one
            self.keys += 1
            parts[0] = self.leaf(shape, f"key{self.keys}")
            parts[-1] = parts[0]
        return Mixture(parts, weights=weights)

    def like(self, node):
        """The same structure with other parameters."""
        spec = describe(node)

        def changed(part):
            if isinstance(part, list):
                return [changed(p) if isinstance(p, (dict, list)) else p for p in part]
            below = {k for k, v in part.items() if isinstance(v, (dict, list)) and k not in ("levels", "covariance")}
            part = {k: changed(v) if k in below else v for k, v in part.items()}
            if part["type"] in ("gaussian", "multivariate_gaussian"):
                part["mean"] = (np.asarray(part["mean"]) + self.rng.normal(size=np.shape(part["mean"]))).tolist()
            elif part["type"] in ("laplace", "student_t"):
                part["loc"] += self.rng.normal()
            elif part["type"] in ("exponential", "gamma", "poisson"):
                part["rate"] *= self.rng.uniform(0.5, 2)
            elif part["type"] in ("bernoulli", "geometric", "binomial"):
                part["p"] *= self.rng.uniform(0.5, 1)
            return {k: v for k, v in part.items() if k != "key"}

        return build(changed(spec))

    def shape(self, depth: int, inside: int = 0):
        kinds = ["number", "number", "positive", "count", "bit", "word", "long", "vector2", "vector3", "path"]
        kinds = kinds[: len(kinds) - (inside > 1)]  # tuples in tuples hold no sequences
        if depth == 0 or self.rng.random() < 0.3:
            kind = kinds[self.rng.integers(len(kinds))]
            return ("missing", kind) if self.rng.random() < 0.25 and kind != "path" else kind
        return [self.shape(depth - 1, inside + 1) for _ in range(self.rng.integers(1, 4))]

    def tree(self):
        """A model with parameters, by position or, where the root has factors, by name."""
        model = self.of(self.shape(self.pick(0, 1, 1, 2)), 3)
        if isinstance(model, Composite) and all(f.width == 1 for f in model.factors) and self.rng.random() < 0.5:
            flat = not any(isinstance(n, Composite) for f in model.factors for n in f.walk())
            if flat:
                return Record({f"c{i}": f for i, f in enumerate(model.factors)})
        return model


def problem_of(seed: int, n: int, shape: tuple[int, int], given: bool) -> str | None:
    """What does not hold for one random tree; None when all does."""
    forest = Forest(seed)
    model = forest.tree()
    data = model.sample(n, seed=seed)
    if not np.isfinite(model.log_density(data)).all():
        return "a row drawn from the model is impossible"
    estimator = model if given else build(describe(model, parameters=False))
    cuts = [None] if shape[1] == 1 else cut_paths(model)
    if not cuts:
        shape, cuts = (shape[0] * shape[1], 1), [None]
    cut = cuts[forest.rng.integers(len(cuts))]
    if cut is not None and forest.rng.random() < 0.3:
        cut = re.sub(r"component_\*", "component_0", cut)
    options = {"max_iter": ITERATIONS, "tol": None, "seed": seed}
    serial = fit(data, estimator, serial_grid(), **options)
    scale = max(abs(serial.log_likelihood), n)
    if serial.status != "max_iter":
        return f"status {serial.status}: {serial.history}"
    for result in run_on_threads(*shape, lambda g: fit(data, estimator, g, cut=cut, **options)):
        away = np.abs(np.array(result.history) - serial.history).max() / scale
        if not away <= 1e-12:
            return f"grid {shape} cut {cut!r}: log likelihoods differ by {away:.1e}"
        a, b = result.model.state.theta, serial.model.state.theta
        away = np.abs(a - b).max() if len(a) else 0.0
        if not (np.abs(a - b) <= 1e-8 * np.maximum(1, np.abs(b))).all():
            return f"grid {shape} cut {cut!r}: parameters differ by {away:.1e}"
        if result.n_parameters != serial.n_parameters:
            return f"grid {shape} cut {cut!r}: {result.n_parameters} and {serial.n_parameters} free parameters"
    fitted = serial.model
    level = fitted.log_density(data)
    if not abs(level.sum() - serial.log_likelihood) <= 1e-12 * scale:
        return f"the densities add up to {level.sum()}, not {serial.log_likelihood}"
    with tempfile.TemporaryDirectory() as directory:
        fitted.save(directory)
        again = load(directory)
    if again.log_density(data).tobytes() != level.tobytes():
        return "the saved model gives other densities"
    if again.num_parameters != serial.n_parameters:
        return f"the saved model has {again.num_parameters} free parameters, not {serial.n_parameters}"
    for path in [p for p in ("", "factor_0", "component_0", "component_1/factor_0") if is_mixture(fitted, p)]:
        sums = fitted.posterior(data, path=path).sum(axis=1)
        if path:  # rows that are impossible in this part of the model have none
            sums = sums[~np.isnan(sums)]
        if not np.abs(sums - 1).max(initial=0.0) <= 1e-12:
            return f"the posterior of {path!r} sums to {sums.min()} .. {sums.max()}"
    copied = build(describe(fitted)).log_density(data)
    if not np.abs(copied - level).max() <= 1e-7 * max(np.abs(level).max(), 1):
        return "the model written again by hand gives other densities"
    return None


def is_mixture(node, path: str) -> bool:
    for name in path.split("/") if path else []:
        word, number = name.split("_")
        parts = node.components if isinstance(node, Mixture) else node.factors if isinstance(node, Composite) else ()
        if (word == "component") != isinstance(node, Mixture) or int(number) >= len(parts):
            return False
        node = parts[int(number)]
    return isinstance(node, Mixture)


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(40, 160),
    shape=st.sampled_from([(2, 1), (1, 2), (3, 1), (2, 2), (1, 3), (1, 5)]),
    given=st.booleans(),
)
def test_what_holds_for_any_tree(seed, n, shape, given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = problem_of(seed, n, shape, given)
    assert problem is None, f"{problem}\n{Forest(seed).tree()!r}"


def main(number: int, first: int = 0) -> int:
    failed = 0
    warnings.simplefilter("ignore")
    for seed in range(first, first + number):
        rng = np.random.default_rng([seed, 1])
        n, given = int(rng.integers(40, 160)), bool(rng.random() < 0.5)
        shape = [(2, 1), (1, 2), (3, 1), (2, 2), (1, 3), (1, 5)][rng.integers(6)]
        try:
            problem = problem_of(seed, n, shape, given)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            failed += 1
            print(f"seed={seed}, n={n}, shape={shape}, given={given}: {problem}", flush=True)
    print(f"{failed} of {number} trees fail")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
