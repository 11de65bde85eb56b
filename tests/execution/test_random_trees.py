"""Random trees of all families and nodes, on rows drawn from them: what must hold for any model.

`python tests/execution/test_random_trees.py N [SEED]` tries N trees of both kinds and prints what fails.
"""

from __future__ import annotations

import re
import sys
import tempfile
import warnings
from collections.abc import Callable

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
    GaussianProcess,
    Geometric,
    HiddenMarkov,
    Laplace,
    LatentDirichletAllocation,
    LogNormal,
    MarkovChain,
    Mixture,
    MultivariateGaussian,
    Optional,
    Poisson,
    ProbabilisticLatentSemanticIndexing,
    Record,
    Sequence,
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


TIMES = (0.0, 0.4, 1.0, 1.3, 2.0)
FLAT = 1e-3  # of parameters of curves, of which a component with few has some that its likelihood hardly knows
LETTERS = list("abc")
COLUMNS = {"x": "number", "n": "count", "w": "word", "visits": "steps", "notes": "bag", "path": "letters",
           "curve": "curve"}  # fmt: skip
MISSING = ("number", "count", "word", "curve")  # kinds of columns that may be missing


class Thicket(Forest):
    """Trees without parameters over columns of every kind: numbers, labels, sequences, documents and curves.

    `held` are the columns, `missing` those of them with missing cells.
    """

    def __init__(self, seed: int):
        super().__init__(seed)
        some = self.rng.permutation(list(COLUMNS))[: self.rng.integers(2, len(COLUMNS) + 1)]
        self.held = {name: kind for name, kind in COLUMNS.items() if name in some}
        self.missing = {name for name, kind in self.held.items() if kind in MISSING and self.rng.random() < 0.4}
        self.keyed = self.rng.random() < 0.3
        self.floor = {"min_variance": FLOOR}

    def number(self):
        return self.pick(
            lambda: Gaussian(**self.floor), Laplace, lambda: StudentT(**self.floor),
            lambda: Gaussian(0.5, 9.0, fixed=True), lambda: Mixture(Gaussian(**self.floor), 2),
        )()  # fmt: skip

    def word(self):
        return Categorical(LETTERS, pseudo_count=1)

    def one(self, kind: str):
        """A model of one column."""
        states, many = self.pick(2, 3), self.pick(None, lambda: Poisson())
        length = None if many is None else many()
        if kind == "number":
            return self.number()
        if kind == "count":
            return self.pick(Poisson, lambda: Mixture(Poisson(), 2), lambda: Poisson(3.0, fixed=True),
                             lambda: Binomial(60))()  # fmt: skip
        if kind == "word":
            return self.word()
        if kind == "steps":
            def step():
                pulse = Optional(self.number(), estimate_missing=bool(self.rng.random() < 0.5))
                return Record(pulse=pulse, note=self.word())

            return self.pick(
                lambda: HiddenMarkov(step(), states, length=length), lambda: Sequence(step(), length),
                lambda: HiddenMarkov([step() for _ in range(states)], length=length),
                lambda: Sequence(Mixture(step(), 2), length), lambda: Optional(HiddenMarkov(step(), 2)),
            )()  # fmt: skip
        if kind == "bag":
            return self.pick(
                lambda: LatentDirichletAllocation(states, WORDS, topic_prior=0.2, learn_alpha="symmetric"),
                lambda: LatentDirichletAllocation(states, WORDS, topic_prior=0.2, learn_alpha="asymmetric"),
                lambda: LatentDirichletAllocation(4, WORDS), lambda: ProbabilisticLatentSemanticIndexing(states, WORDS),
            )()  # fmt: skip
        if kind == "letters":
            return self.pick(
                lambda: MarkovChain(LETTERS, pseudo_count=1, length=length), lambda: Sequence(self.word()),
                lambda: MarkovChain(LETTERS, order=2, pseudo_count=1),
                lambda: HiddenMarkov(self.word(), states, length=length),
            )()  # fmt: skip
        return self.pick(
            lambda: GaussianProcess(TIMES), lambda: MultivariateGaussian(5, **self.floor),
            lambda: MultivariateGaussian(5, structure="diagonal", **self.floor),
        )()  # fmt: skip

    def field(self, name: str):
        """A model of one column, in a mixture now and then, optional where cells are missing."""
        kind = self.held[name]
        made = self.one(kind)
        # few curves for each of many processes leave no noise: their covariances are all but singular, and multiply
        # roundings as flat vectors do, see FLOOR
        if self.rng.random() < 0.35 and kind != "curve":
            made = self.pick(lambda: Mixture(made, 2), lambda: Mixture([made, self.one(kind), self.one(kind)]))()
        return Optional(made, estimate_missing=bool(self.rng.random() < 0.5)) if name in self.missing else made

    def record(self):
        return Record({name: self.field(name) for name in self.held})

    def tree(self):
        if self.keyed and "x" in self.held:
            shared = Gaussian(key="x", **self.floor)
            parts = [self.record() for _ in range(2)]
            for part in parts:
                part.fields["x"] = Optional(shared) if "x" in self.missing else shared
            return Mixture([Record(part.fields) for part in parts])
        return self.pick(self.record, lambda: Mixture(self.record(), 2), lambda: Mixture(self.record(), 3),
                         lambda: Mixture([self.record() for _ in range(self.pick(2, 3))]))()  # fmt: skip

    def rows(self, n: int) -> list[dict]:
        """Rows of two kinds."""
        r, found = self.rng, []
        for kind in r.integers(0, 2, n):
            row = {
                "x": r.normal(4.0 * kind), "n": int(r.poisson(3 + 4 * kind)), "w": LETTERS[r.integers(0, 2) + kind],
                "visits": [{"pulse": None if r.random() < 0.2 else r.normal(3.0 * kind, 1.5),
                            "note": LETTERS[r.integers(0, 3)]} for _ in range(r.poisson(4))],
                "notes": r.choice(WORDS[5 * kind :][:9], r.poisson(6)).tolist(),
                "path": r.choice(LETTERS, r.poisson(5)).tolist(), "curve": tuple(r.normal(kind, 1.0, 5)),
            }  # fmt: skip
            found.append({name: None if name in self.missing and r.random() < 0.2 else row[name] for name in self.held})
        return found


def problem_of_mixed(seed: int, n: int, shape: tuple[int, int]) -> str | None:
    """What does not hold for one random tree over columns of every kind; None when all does."""
    forest = Thicket(seed)
    model, data = forest.tree(), forest.rows(n)
    cuts = [None] if shape[1] == 1 else cut_paths(model)
    cut = cuts[forest.rng.integers(len(cuts))]
    if cut is not None and forest.rng.random() < 0.3:
        cut = re.sub(r"component_\*", "component_0", cut)
    options = {"max_iter": ITERATIONS, "tol": None, "seed": seed}
    serial = fit(data, model, serial_grid(), **options)
    scale = max(abs(serial.log_likelihood), n)
    if not np.isfinite(serial.history).all() or serial.status not in ("max_iter", "converged"):
        return f"status {serial.status}: {serial.history}"
    numeric = any(isinstance(node, GaussianProcess) for node in model.walk())
    for result in run_on_threads(*shape, lambda g: fit(data, model, g, cut=cut, **options)):
        away = np.abs(np.array(result.history) - serial.history).max() / scale
        if not away <= (1e-10 if numeric else 1e-12):
            return f"grid {shape} cut {cut!r}: log likelihoods differ by {away:.1e}"
        a, b = result.model.state.theta, serial.model.state.theta
        if not (np.abs(a - b) <= (FLAT if numeric else 1e-8) * np.maximum(1, np.abs(b))).all():
            return f"grid {shape} cut {cut!r}: parameters differ by {np.abs(a - b).max():.1e}"
        if result.n_parameters != serial.n_parameters:
            return f"grid {shape} cut {cut!r}: {result.n_parameters} and {serial.n_parameters} free parameters"
    level = serial.model.log_density(data)
    folded = any(isinstance(node, ProbabilisticLatentSemanticIndexing) for node in model.walk())
    if not folded and not abs(level.sum() - serial.log_likelihood) <= 1e-12 * scale:
        return f"the densities add up to {level.sum()}, not {serial.log_likelihood}"
    with tempfile.TemporaryDirectory() as directory:
        serial.model.save(directory)
        if load(directory).log_density(data).tobytes() != level.tobytes():
            return "the saved model gives other densities"
    if isinstance(serial.model, Mixture) and np.abs(serial.model.posterior(data).sum(axis=1) - 1).max() > 1e-12:
        return "posteriors do not sum to one"
    return None


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


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6), n=st.integers(20, 50),
       shape=st.sampled_from([(2, 1), (1, 2), (4, 1), (2, 2), (1, 3), (1, 4), (3, 2), (4, 4)]))  # fmt: skip
def test_what_holds_for_any_mixed_tree(seed, n, shape):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem = problem_of_mixed(seed, n, shape)
    assert problem is None, f"{problem}\n{Thicket(seed).tree()!r}"


def try_all(name: str, one: Callable[[int], str | None], number: int, first: int = 0) -> int:
    """Try so many trees, print what fails; 1 when one does."""
    failed = 0
    warnings.simplefilter("ignore")
    for seed in range(first, first + number):
        try:
            problem = one(seed)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if problem:
            failed += 1
            print(f"{name} {seed}: {problem}", flush=True)
    print(f"{failed} of {number} fail: {name}")
    return int(failed > 0)


def one_mixed(seed: int) -> str | None:
    """One tree over columns of every kind."""
    rng = np.random.default_rng([seed, 2])
    n, shape = int(rng.integers(20, 60)), (int(rng.integers(1, 5)), int(rng.integers(1, 5)))
    return problem_of_mixed(seed, n, shape)


def one(seed: int) -> str | None:
    """One tree over a table."""
    rng = np.random.default_rng([seed, 1])
    n, given = int(rng.integers(40, 160)), bool(rng.random() < 0.5)
    return problem_of(seed, n, [(2, 1), (1, 2), (3, 1), (2, 2), (1, 3), (1, 5)][rng.integers(6)], given)


if __name__ == "__main__":
    numbers = list(map(int, sys.argv[1:]))
    sys.exit(try_all("tree", one, *numbers) | try_all("mixed tree", one_mixed, *numbers))
