"""Models with all parameters given, and rows for them: what the tests of models run over."""

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
    LogNormal,
    MarkovChain,
    Mixture,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
    StudentT,
    Uniform,
)  # fmt: skip

N = 60
WORDS = [f"w{i:02d}" for i in range(17)]  # more levels than are scored in one product


def numbers(seed, shift=0.0):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(N) < 0.5, rng.normal(-2, 1, N), rng.normal(3, 0.7, N)) + shift


def positive(seed):
    return np.random.default_rng(seed).exponential(1.5, N)


def counts(seed):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(N) < 0.6, rng.poisson(2, N), rng.poisson(9, N)).astype(float)


def bits(seed):
    return (np.random.default_rng(seed).random(N) < 0.4).astype(float)


def words(seed, levels=("a", "b", "c")):
    return [levels[i] for i in np.random.default_rng(seed).integers(0, len(levels), N)]


def holes(values, seed, share=0.3):
    gone = np.random.default_rng(seed).random(N) < share
    return [None if g else v for v, g in zip(values, gone)]


def table(*columns):
    return list(zip(*(list(c) for c in columns)))


def vectors(seed, d=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(N, d)) @ rng.normal(size=(d, d)) + 4 * rng.integers(0, 2, (N, 1))


def letters(seed, length=6.0):
    """Texts of a, b and c; some are empty."""
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("abc"), n, p=rng.dirichlet([1, 2, 1]))) for n in rng.poisson(length, N)]


def chain(seed, order=1, **options):
    rng = np.random.default_rng(seed)
    tables = [rng.dirichlet(np.ones(3) * 3, size=(3,) * k) for k in range(order + 1)]
    return MarkovChain(["a", "b", "c"], tables[0] if order == 1 else tables[:-1], tables[-1], order=order,
                       length=Poisson(float(rng.uniform(3, 9))), **options)  # fmt: skip


def G(mean, variance=1.5):
    return Gaussian(mean, variance)


def abc(*p):
    return Categorical(["a", "b", "c"], list(p))


def long_table(seed):
    return Categorical(WORDS, np.random.default_rng(seed).dirichlet(np.ones(17) * 3))


def V(mean, structure="full"):
    covariance = {"diagonal": [2.0, 1.0], "spherical": 1.5}.get(structure, [[2.0, 0.3], [0.3, 1.0]])
    return MultivariateGaussian(2, mean, covariance, structure=structure)


TIMES = np.array([0.0, 0.5, 0.8, 1.5, 2.5])


def curves(seed):
    """Rough curves and smooth ones, at five times."""
    rng = np.random.default_rng(seed)
    rough, smooth = (v * np.exp(-(np.subtract.outer(TIMES, TIMES) ** 2) / 2 / scale**2) + 0.2 * np.eye(5)
                     for v, scale in ((1.0, 0.3), (2.0, 1.2)))  # fmt: skip
    z = rng.normal(size=(N, 5))
    factors = np.where(rng.random((N, 1, 1)) < 0.5, np.linalg.cholesky(rough), np.linalg.cholesky(smooth) + 0.1)
    return np.einsum("nij,nj->ni", factors, z)


def process(mean, scale, kernel="rbf", **options):
    text = f"{kernel}(variance=1.2, length_scale={scale}) + white(variance=0.3)"
    return GaussianProcess(TIMES, text, mean, **options)


def holey_rows(*columns, seed=0):
    """Rows whose cells are all there or all missing."""
    gone = np.random.default_rng(seed).random(N) < 0.3
    return [tuple(None for _ in row) if g else row for row, g in zip(table(*columns), gone)]


def with_holey(first, rows):
    return [(x, *row) for x, row in zip(first, rows)]


HALF = [0.4, 0.6]
THIRDS = [0.2, 0.5, 0.3]


def four(shift):
    return [
        Composite(G(shift + m), Poisson(r), abc(p, 0.5 - p / 2, 0.5 - p / 2))
        for m, r, p in ((-2, 2.0, 0.2), (0, 5.0, 0.4), (2, 8.0, 0.6), (4, 3.0, 0.1))
    ]


TREES = {
    "gaussian": (G(0.5), numbers(0)),
    "mixture of gaussians": (Mixture([G(-1), G(0), G(2)], weights=THIRDS), numbers(1)),
    "mixture far from the origin": (Mixture([G(1e6 - 1), G(1e6 + 2)], weights=HALF), numbers(2, 1e6)),
    "mixture of exponentials": (Mixture([Exponential(0.3), Exponential(2.0)], weights=HALF), positive(3)),
    "mixture of poissons": (Mixture([Poisson(1.0), Poisson(4.0), Poisson(8.0)], weights=THIRDS), counts(4)),
    "mixture of bernoullis": (
        Mixture([Composite(Bernoulli(0.2), Bernoulli(0.7)), Composite(Bernoulli(0.6), Bernoulli(0.4))], weights=HALF),
        table(bits(5), bits(6)),
    ),
    "mixture of short tables": (
        Mixture([Composite(abc(0.2, 0.3, 0.5), abc(0.6, 0.3, 0.1)), Composite(abc(0.5, 0.3, 0.2), abc(0.1, 0.1, 0.8))],
                weights=HALF),
        table(words(7), words(8)),
    ),
    "mixture of long tables": (
        Mixture([Composite(long_table(1), long_table(2)), Composite(long_table(3), long_table(4))], weights=HALF),
        table(words(9, WORDS), words(10, WORDS)),
    ),
    "long table alone": (long_table(5), words(11, WORDS)),
    "pseudo-counts": (
        Mixture([Categorical(["a", "b", "c"], [0.2, 0.3, 0.5], pseudo_count=1.5),
                 Categorical(["a", "b", "c"], [0.6, 0.3, 0.1], pseudo_count=1.5)], weights=HALF),
        words(12),
    ),
    "interleaved families": (
        Mixture([G(-2), Exponential(0.5), G(3)], weights=THIRDS), numbers(13)),
    "four families": (
        Mixture([G(-2), Poisson(3.0), Exponential(0.5), Poisson(8.0), G(3)], weights=[0.2] * 5),
        np.where(np.arange(N) % 3 == 0, counts(14), numbers(14)),
    ),
    "bernoulli beside gaussian": (
        Mixture([Bernoulli(0.3), G(0.5), Bernoulli(0.9)], weights=THIRDS),
        np.where(np.arange(N) % 2 == 0, bits(15), numbers(15)),
    ),
    "composite": (Composite(G(0), Poisson(2.0), abc(0.2, 0.3, 0.5)), table(numbers(16), counts(16), words(16))),
    "composite of mixtures": (
        Composite(Mixture([G(-1), G(1)], weights=HALF), Mixture([Poisson(2.0), Poisson(7.0)], weights=HALF)),
        table(numbers(17), counts(17)),
    ),
    "composite of composites": (
        Mixture([Composite(Composite(G(-1), G(0)), Poisson(2.0)), Composite(Composite(G(1), G(2)), Poisson(6.0))],
                weights=HALF),
        table(numbers(18), numbers(19), counts(18)),
    ),
    "four columns": (
        Mixture([Composite(G(-1), Poisson(2.0), abc(0.2, 0.3, 0.5), Exponential(1.0)),
                 Composite(G(2), Poisson(6.0), abc(0.5, 0.3, 0.2), Exponential(0.5))], weights=HALF),
        table(numbers(20), counts(20), words(20), positive(20)),
    ),
    "different composites": (
        Mixture([Composite(G(-1), Poisson(2.0)), Composite(Exponential(0.4), Exponential(0.3)),
                 Composite(G(2), Poisson(5.0))], weights=THIRDS),
        table(numbers(21), counts(21)),
    ),
    "record": (
        Record(x=G(0), n=Poisson(3.0), word=abc(0.2, 0.3, 0.5)),
        {"n": counts(22), "word": words(22), "other": words(23), "x": numbers(22)},
    ),
    "record of vector and optional": (
        Mixture([Record({"size": MultivariateGaussian(2, [m, 1.0], np.eye(2) * 2), "x": Optional(G(m))},
                        columns={"size": ["a", "b"]}) for m in (-1.0, 2.0)], weights=HALF),
        {"a": vectors(24)[:, 0], "b": vectors(24)[:, 1], "x": np.array(holes(numbers(24), 24), float)},
    ),
    "optional": (Optional(G(0)), holes(numbers(25), 25)),
    "optional in a mixture": (
        Mixture([Composite(Optional(G(-1)), Poisson(2.0)), Composite(Optional(G(2)), Poisson(6.0))], weights=HALF),
        table(holes(numbers(26), 26), counts(26)),
    ),
    "p_missing given": (
        Mixture([Composite(Optional(G(-1), 0.1), Poisson(2.0)), Composite(Optional(G(2), 0.5), Poisson(6.0))],
                weights=HALF),
        table(holes(numbers(27), 27), counts(27)),
    ),
    "p_missing estimated": (
        Mixture([Composite(Optional(G(-1), 0.1, estimate_missing=True), Poisson(2.0)),
                 Composite(Optional(G(2), 0.5, estimate_missing=True), Poisson(6.0))], weights=HALF),
        table(holes(numbers(28), 28), counts(28)),
    ),
    "p_missing and nothing missing": (
        Mixture([Composite(Optional(G(-1), 0.1), Poisson(2.0)), Composite(Optional(G(2), 0.5), Poisson(6.0))],
                weights=HALF),
        table(numbers(29), counts(29)),
    ),
    "optional tables": (
        Mixture([Composite(Optional(abc(0.2, 0.3, 0.5), 0.3, estimate_missing=True), Optional(long_table(6))),
                 Composite(Optional(abc(0.5, 0.3, 0.2), 0.3, estimate_missing=True), Optional(long_table(7)))],
                weights=HALF),
        table(holes(words(30), 30), holes(words(31, WORDS), 31)),
    ),
    "optional long table with p_missing": (
        Mixture([Composite(Optional(long_table(6), 0.2, estimate_missing=True), G(-1)),
                 Composite(Optional(long_table(7), 0.4, estimate_missing=True), G(2))], weights=HALF),
        table(holes(words(52, WORDS), 52), numbers(52)),
    ),
    "mixture of optionals": (
        Mixture([Optional(G(-1), 0.2, estimate_missing=True), Optional(Exponential(0.5), 0.4, estimate_missing=True),
                 Optional(G(2), 0.2, estimate_missing=True)], weights=THIRDS),
        holes(numbers(32), 32),
    ),
    "optional of a mixture": (
        Composite(Optional(Mixture([G(-1), G(2)], weights=HALF)), Poisson(2.0)),
        table(holes(numbers(33), 33), counts(33)),
    ),
    "optional of a mixture, in a mixture": (
        Mixture([Composite(Optional(Mixture([G(-1), G(2)], weights=HALF), 0.2, estimate_missing=True), Poisson(2.0)),
                 Composite(Optional(Mixture([G(0), G(3)], weights=HALF), 0.4, estimate_missing=True), Poisson(7.0))],
                weights=HALF),
        table(holes(numbers(34), 34), counts(34)),
    ),
    "optional of a composite": (
        Composite(G(0), Optional(Composite(Poisson(3.0), abc(0.2, 0.3, 0.5)), 0.3, estimate_missing=True)),
        with_holey(numbers(35), holey_rows(counts(35), words(35))),
    ),
    "optional of a composite, in a mixture": (
        Mixture([Composite(G(-1), Optional(Composite(Poisson(3.0), long_table(8)))),
                 Composite(G(1), Optional(Composite(Poisson(6.0), long_table(9))))], weights=HALF),
        with_holey(numbers(36), holey_rows(counts(36), words(36, WORDS))),
    ),
    "optional of an optional": (
        Composite(G(0), Optional(Optional(G(1), 0.25), 0.5)), table(numbers(53), holes(numbers(54), 54))),
    "mixture of mixtures": (
        Mixture([Mixture([G(-2), G(0)], weights=HALF), Mixture([G(1), G(4)], weights=[0.3, 0.7])], weights=HALF),
        numbers(37),
    ),
    "mixtures of different depth": (
        Mixture([G(-2), Mixture([G(0), Exponential(0.5)], weights=HALF), G(3)], weights=THIRDS), numbers(38)),
    "mixtures of different size": (
        Mixture([Mixture([G(-2), G(0), G(1)], weights=THIRDS), Mixture([G(1), G(4)], weights=HALF)], weights=HALF),
        numbers(39),
    ),
    "mixture of composites of mixtures": (
        Mixture([Composite(Mixture([G(-2), G(0)], weights=HALF), Mixture([Poisson(2.0), Poisson(5.0), Poisson(8.0)],
                                                                         weights=THIRDS)),
                 Composite(Mixture([G(1), G(3)], weights=[0.1, 0.9]),
                           Mixture([Poisson(1.0), Poisson(4.0), Poisson(9.0)], weights=THIRDS))], weights=HALF),
        table(numbers(40), counts(40)),
    ),
    "three levels of mixtures": (
        Mixture([Composite(Mixture([Composite(Mixture([G(m), G(m + 2)], weights=HALF), Poisson(r))
                                    for r in (2.0, 6.0)], weights=HALF), abc(p, 0.3, 0.7 - p))
                 for m, p in ((-2, 0.2), (1, 0.6))], weights=HALF),
        [(x, n, w) for x, n, w in table(numbers(41), counts(41), words(41))],
    ),
    "record of a mixture of composites and an optional mixture": (
        Record(
            {"left": Mixture(four(0), weights=[0.1, 0.2, 0.3, 0.4]),
             "right": Optional(Mixture([G(-1), Exponential(0.4)], weights=HALF), 0.3, estimate_missing=True)},
            columns={"left": ["x", "n", "w"]},
        ),
        {"x": numbers(42), "n": counts(42), "w": words(42), "right": holes(numbers(43), 43)},
    ),
    "full vectors": (
        Mixture([MultivariateGaussian(2, [m, 0.0], [[2.0, 0.3], [0.3, 1.0]]) for m in (-1.0, 0.5, 4.0)],
                weights=THIRDS),
        vectors(44),
    ),
    "diagonal vectors": (
        Mixture([MultivariateGaussian(3, [m, 0.0, 1.0], [2.0, 1.0, 3.0], structure="diagonal") for m in (-1.0, 4.0)],
                weights=HALF),
        vectors(45, 3),
    ),
    # (not farther: the plain means are stored with the digits that the offset leaves)
    "vectors far from the origin": (
        Mixture([MultivariateGaussian(2, [m + 1e6, -1e6], [[2.0, 0.3], [0.3, 1.0]]) for m in (-1.0, 4.0)],
                weights=HALF),
        np.stack([numbers(46, 1e6), numbers(47, -1e6)], axis=1),
    ),
    "full beside diagonal": (
        Mixture([MultivariateGaussian(2, [0.0, 0.0], [[2.0, 0.3], [0.3, 1.0]]),
                 MultivariateGaussian(2, [4.0, 3.0], [2.0, 1.0], structure="diagonal"),
                 Composite(G(1), G(2))], weights=THIRDS),
        vectors(47),
    ),
    "optional vector beside a table": (
        Mixture([Composite(Optional(MultivariateGaussian(2, [m, 0.0], [[2.0, 0.3], [0.3, 1.0]])), abc(*p))
                 for m, p in ((0.0, (0.2, 0.3, 0.5)), (4.0, (0.5, 0.3, 0.2)))], weights=HALF),
        [(*v, w) for v, w in zip(holey_rows(*vectors(48).T), words(48))],
    ),
    "curves": (Mixture([process(0.3, 0.4), process(0.0, 1.0)], weights=HALF), curves(100)),
    "curves far from the origin": (Mixture([process(1e6 + 0.3, 0.4), process(1e6, 1.0)], weights=HALF),
                                   curves(101) + 1e6),
    "curves beside vectors": (
        Mixture([process(0.2, 0.6, "matern32"),
                 MultivariateGaussian(5, [0.5, 0, 0, 0, 0.5], [2.0, 1, 1, 1, 2], structure="diagonal"),
                 MultivariateGaussian(5, np.zeros(5), 1.5, structure="spherical")], weights=THIRDS),
        curves(102),
    ),
    "optional curves beside a table": (
        Mixture([Composite(Optional(process(0.0, 0.5)), abc(*p)) for p in ((0.2, 0.3, 0.5), (0.5, 0.3, 0.2))],
                weights=HALF),
        [(*v, w) for v, w in zip(holey_rows(*curves(107).T), words(107))],
    ),
    "keyed curves": (
        Mixture([process(0.0, 0.5, key="c"), process(0.3, 1.5), process(0.0, 0.5, key="c")],
                weights=THIRDS),
        curves(112),
    ),
    "tight beside wide": (
        # one member in residual form, its neighbours in natural form
        Mixture([Gaussian(m, v, min_variance=1e-6) for m, v in ((0, 4.0), (3e5, 1.0), (-2, 2.0))], weights=THIRDS),
        np.where(np.arange(N) < 20, numbers(49), np.where(np.arange(N) < 40, numbers(50, 3e5), -numbers(51))),
    ),
    "gamma": (Mixture([Gamma(1.5, 2.0), Gamma(4.0, 1.5)], weights=HALF), positive(60)),
    "log-normal": (Mixture([LogNormal(-0.5, 1.0), LogNormal(0.8, 0.3)], weights=HALF), positive(59)),
    "log-normal beside gaussian": (
        Mixture([LogNormal(0.5, 1.0), G(-1), LogNormal(1.2, 0.1), Gamma(2.0, 1.0)], weights=[0.2, 0.5, 0.2, 0.1]),
        numbers(58),
    ),
    "geometric": (Mixture([Geometric(0.7), Geometric(0.2)], weights=HALF), counts(61) + 1),
    "binomial": (Mixture([Binomial(20, 0.1), Binomial(20, 0.4)], weights=HALF), counts(62)),
    "binomials of other trials": (Mixture([Binomial(20, 0.1), Binomial(25, 0.4)], weights=HALF), counts(62)),
    "student": (Mixture([StudentT(3.0, -1.0, 1.0), StudentT(8.0, 2.0, 2.0)], weights=HALF), numbers(63)),
    "laplace": (Mixture([Laplace(-1.0, 1.0), Laplace(2.0, 2.0)], weights=HALF), numbers(64)),
    "laplace alone": (Laplace(0.3, 1.0), np.round(numbers(65))),
    "laplace far from the origin": (Mixture([Laplace(1e6 - 1, 1.0), Laplace(1e6 + 2, 2.0)], weights=HALF),
                                    numbers(64, 1e6)),
    "uniform": (Mixture([Uniform(-9.0, 9.0), Uniform(-3.0, 3.0)], weights=HALF), numbers(66)),
    "numbers of all families": (
        Mixture([Laplace(-1.0, 1.0), StudentT(4.0, 1.0, 2.0), Uniform(-9.0, 9.0), G(3), Gamma(2.0, 0.5),
                 Laplace(2.0, 0.5), Exponential(0.5)], weights=[0.1, 0.2, 0.1, 0.2, 0.1, 0.2, 0.1]),
        numbers(67),
    ),
    "counts of all families": (
        Mixture([Poisson(3.0), Geometric(0.3), Binomial(20, 0.3), Poisson(9.0)], weights=[0.2, 0.3, 0.4, 0.1]),
        counts(68),
    ),
    "rows of all families": (
        Mixture([Composite(Optional(Laplace(m, 1.0)), Optional(StudentT(5.0, m, 1.5), 0.2, estimate_missing=True),
                           Optional(Uniform(-9.0, 9.0 + m)), Optional(Gamma(1.0 + abs(m), 1.0), 0.4),
                           Optional(Geometric(0.3 + m / 10)), Optional(Binomial(21, 0.2 - m / 20)))
                 for m in (-1.0, 2.0)], weights=HALF),
        table(holes(numbers(69), 69), holes(numbers(70), 70), holes(numbers(71), 71), holes(positive(72), 72),
              holes(counts(73) + 1, 73), holes(counts(74), 74)),
    ),
    "mixtures of laplaces below one": (
        Mixture([Composite(Mixture([Laplace(m, 1.0), Laplace(m + 3, 2.0)], weights=HALF), G(m)) for m in (-2.0, 1.0)],
                weights=HALF),
        table(numbers(75), numbers(76)),
    ),
    "spherical vectors": (
        Mixture([V([m, 0.0], "spherical") for m in (-1.0, 0.5, 4.0)], weights=THIRDS), vectors(77) * [1.0, 30.0]),
    "tied vectors": (Mixture([V([m, 0.0], "tied") for m in (-1.0, 0.5, 4.0)], weights=THIRDS), vectors(78)),
    "tied vectors far from the origin": (
        Mixture([V([m + 1e6, -1e6], "tied") for m in (-1.0, 4.0)], weights=HALF),
        np.stack([numbers(79, 1e6), numbers(80, -1e6)], axis=1),
    ),
    "a tied vector alone": (V([0.5, 1.0], "tied"), vectors(81)),
    "tied below composites": (
        Mixture([Composite(V([m, 0.0], "tied"), Poisson(r), Optional(V([0.0, m], "tied")))
                 for m, r in ((-1.0, 2.0), (4.0, 6.0))], weights=HALF),
        [(*v, n, *w) for v, n, w in zip(vectors(82), counts(82), holey_rows(*vectors(83).T))],
    ),
    "tied in the innermost mixture": (
        Mixture([Mixture([V([m, 0.0], "tied"), V([m + 2, 3.0], "tied")], weights=HALF) for m in (-1.0, 3.0)],
                weights=HALF),
        vectors(84),
    ),
    "tied beside others": (
        Mixture([V([0.0, 0.0], "tied"), V([4.0, 3.0], "spherical"), V([2.0, 1.0], "tied"), V([1.0, 3.0])],
                weights=[0.3, 0.2, 0.4, 0.1]),
        vectors(85),
    ),
    "mixture of markov chains": (Mixture([chain(1), chain(2), chain(3)], weights=THIRDS), letters(96)),
    "markov chains of different order": (
        Mixture([chain(4, 2), chain(5), chain(6, 2), chain(7, 3)], weights=[0.1, 0.2, 0.3, 0.4]), letters(97, 9.0)),
    "markov chains beside columns": (
        Mixture([Record(x=G(m), path=chain(8 + k), seen=Optional(G(m))) for k, m in enumerate((-1.0, 2.0))],
                weights=HALF),
        {"seen": np.array(holes(numbers(98), 98), float), "path": letters(98), "x": numbers(99)},
    ),
    "markov chains of one key": (
        Mixture([Composite(chain(10, key="path"), G(m)) for m in (-1.0, 2.0)], weights=HALF),
        table(letters(100), numbers(100)),
    ),
    "a key over two of three": (
        Mixture([Gaussian(-1, 1.5, key="a"), Gaussian(2, 1.0, key="b"), Gaussian(-1, 1.5, key="a")], weights=THIRDS),
        numbers(86),
    ),
    "a key over columns of components": (
        Mixture([Composite(G(-1), Poisson(4.0, key="n"), Laplace(m, 1.0)) for m in (-1.0, 2.0)], weights=HALF),
        table(numbers(87), counts(87), numbers(88)),
    ),
    "a keyed table": (
        Mixture([Composite(G(m), Categorical(["a", "b", "c"], [0.2, 0.3, 0.5], key="word"),
                           Categorical(WORDS, np.arange(1, 18) / 153, key="long")) for m in (-1.0, 2.0)], weights=HALF),
        table(numbers(89), words(89), words(90, WORDS)),
    ),
    "a keyed mixture": (
        Mixture([Composite(Mixture([G(-1), G(2)], weights=HALF, key="inner"), Poisson(r)) for r in (2.0, 7.0)],
                weights=HALF),
        table(numbers(91), counts(91)),
    ),
    "keyed vectors": (
        Mixture([MultivariateGaussian(2, [0.0, 1.0], [2.0, 1.0], structure="diagonal", key="v"), V([4.0, 0.0]),
                 MultivariateGaussian(2, [0.0, 1.0], [2.0, 1.0], structure="diagonal", key="v")], weights=THIRDS),
        vectors(92),
    ),
    "a keyed record": (
        Mixture([Composite(Composite(G(1), Optional(Poisson(3.0), 0.3, estimate_missing=True), key="shared"),
                           StudentT(5.0, m, 1.0)) for m in (-1.0, 2.0)], weights=HALF),
        table(numbers(93), holes(counts(93), 93), numbers(94)),
    ),
    "keyed searches": (
        Mixture([Laplace(-1, 1.5, key="a"), StudentT(5.0, 2.0, 1.0, key="b"), Laplace(-1, 1.5, key="a"),
                 Uniform(-9.0, 9.0, key="c"), StudentT(5.0, 2.0, 1.0, key="b"), Uniform(-9.0, 9.0, key="c")],
                weights=[0.1, 0.2, 0.3, 0.2, 0.1, 0.1]),
        numbers(95),
    ),
}  # fmt: skip


def rows_of(data):
    """The rows of a tree's data as tuples of cells, or dicts of them."""
    if isinstance(data, dict):
        return [dict(zip(data, row)) for row in zip(*data.values())]
    return [tuple(row) if np.ndim(row) == 1 or isinstance(row, tuple) else (row,) for row in data]
