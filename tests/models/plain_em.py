"""EM in plain Python on parameters in the user's units, one row and one node at a time.

Written from the formulas, not from the package: it shares no code with it. `plain(node)` copies the
structure and the parameters of a model; `step` is one iteration.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.optimize import brentq, minimize, root
from scipy.special import digamma

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

INF = float("inf")


def log(x):
    return math.log(x) if x > 0 else -INF


class PlainGaussian:
    def __init__(self, at, mean, variance):
        self.at, self.mean, self.variance = at, mean, variance

    def density(self, row):
        z = row[self.at] - self.mean
        return -z * z / (2 * self.variance) - 0.5 * math.log(2 * math.pi * self.variance)

    def clear(self):
        self.rows = []

    def add(self, row, weight):
        self.rows.append((weight, row[self.at]))

    def maximize(self):
        total = math.fsum(w for w, _ in self.rows)
        if total > 0:
            self.mean = math.fsum(w * x for w, x in self.rows) / total
            self.variance = math.fsum(w * (x - self.mean) ** 2 for w, x in self.rows) / total

    def parameters(self):
        return [self.mean, self.variance]


class PlainLogNormal(PlainGaussian):
    def density(self, row):
        x = row[self.at]
        return super().density({self.at: math.log(x)}) - math.log(x) if x > 0 else -INF

    def add(self, row, weight):
        self.rows.append((weight, math.log(row[self.at])))


class PlainRate:
    """Poisson, exponential, Bernoulli, geometric, binomial: one parameter, from the weighted mean."""

    def __init__(self, at, kind, value, trials=None):
        self.at, self.kind, self.value, self.trials = at, kind, value, trials

    def density(self, row):
        x, v = row[self.at], self.value
        if self.kind == "geometric":
            return log(v) + ((x - 1) * log(1 - v) if x > 1 else 0.0) if x >= 1 and x == int(x) else -INF
        if self.kind == "binomial":
            n = self.trials
            if not (0 <= x <= n and x == int(x)):
                return -INF
            ends = (x * log(v) if x else 0.0) + ((n - x) * log(1 - v) if n - x else 0.0)
            return ends + math.log(math.comb(n, int(x)))
        if self.kind == "exponential":
            return math.log(v) - v * x if x >= 0 else -INF
        if self.kind == "poisson":
            return x * math.log(v) - v - math.lgamma(x + 1) if x >= 0 and x == int(x) else -INF
        return log(v) if x == 1 else log(1 - v) if x == 0 else -INF

    clear = PlainGaussian.clear
    add = PlainGaussian.add

    def maximize(self):
        total = math.fsum(w for w, _ in self.rows)
        if total > 0:
            mean = math.fsum(w * x for w, x in self.rows if w > 0) / total
            inverse = self.kind in ("exponential", "geometric")
            self.value = 1 / mean if inverse else mean / self.trials if self.trials else mean

    def parameters(self):
        return [self.value]


class PlainGamma:
    def __init__(self, at, shape, rate):
        self.at, self.shape, self.rate = at, shape, rate

    def density(self, row):
        x, a, b = row[self.at], self.shape, self.rate
        return a * math.log(b) - math.lgamma(a) + (a - 1) * math.log(x) - b * x if x > 0 else -INF

    clear = PlainGaussian.clear
    add = PlainGaussian.add

    def maximize(self):
        total = math.fsum(w for w, _ in self.rows)
        if total > 0:
            mean = math.fsum(w * x for w, x in self.rows) / total
            gap = math.log(mean) - math.fsum(w * math.log(x) for w, x in self.rows) / total
            self.shape = math.exp(brentq(lambda t: t - digamma(math.exp(t)) - gap, -10, 13, xtol=1e-14))
            self.rate = self.shape / mean

    def parameters(self):
        return [self.shape, self.rate]


def lower_median(rows):
    """The smallest value with at least one half of the weight at or below it."""
    values = sorted({x for _, x in rows})
    half = 0.5 * math.fsum(w for w, _ in rows)
    return next(v for v in values if math.fsum(w for w, x in rows if x <= v) >= half)


class PlainLaplace:
    def __init__(self, at, loc, scale):
        self.at, self.loc, self.scale = at, loc, scale

    def density(self, row):
        return -abs(row[self.at] - self.loc) / self.scale - math.log(2 * self.scale)

    clear = PlainGaussian.clear
    add = PlainGaussian.add

    def maximize(self):
        total = math.fsum(w for w, _ in self.rows)
        if total > 0:
            self.loc = lower_median(self.rows)
            self.scale = math.fsum(w * abs(x - self.loc) for w, x in self.rows) / total

    def parameters(self):
        return [self.loc, self.scale]


class PlainStudent:
    """A Gaussian whose precision is gamma distributed: each row has an expected precision u."""

    def __init__(self, at, df, loc, scale):
        self.at, self.df, self.loc, self.scale = at, df, loc, scale

    def density(self, row):
        z, v = (row[self.at] - self.loc) / self.scale, self.df
        constant = math.lgamma((v + 1) / 2) - math.lgamma(v / 2) - 0.5 * math.log(math.pi * v) - math.log(self.scale)
        return constant - (v + 1) / 2 * math.log1p(z * z / v)

    def clear(self):
        self.rows = []
        self.old = self.df, self.loc, self.scale

    def add(self, row, weight):
        df, loc, scale = self.old
        x = row[self.at]
        u = (df + 1) / (df + ((x - loc) / scale) ** 2)
        log_u = digamma((df + 1) / 2) - math.log((df + ((x - loc) / scale) ** 2) / 2)
        self.rows.append((weight, x, u, log_u))

    def maximize(self):
        total = math.fsum(w for w, *_ in self.rows)
        if total > 0:
            self.loc = math.fsum(w * u * x for w, x, u, _ in self.rows) / math.fsum(w * u for w, _, u, _ in self.rows)
            self.scale = math.sqrt(math.fsum(w * u * (x - self.loc) ** 2 for w, x, u, _ in self.rows) / total)
            level = math.fsum(w * (log_u - u) for w, _, u, log_u in self.rows) / total
            slope = lambda t: math.log(math.exp(t) / 2) + 1 - digamma(math.exp(t) / 2) + level  # noqa: E731
            low, high = math.log(0.1), math.log(1e6)
            root = low if slope(low) < 0 else high if slope(high) > 0 else brentq(slope, low, high, xtol=1e-14)
            self.df = math.exp(root)

    def parameters(self):
        return [self.df, self.loc, self.scale]


class PlainUniform:
    def __init__(self, at, low, high):
        self.at, self.low, self.high = at, low, high

    def density(self, row):
        return -math.log(self.high - self.low) if self.low <= row[self.at] <= self.high else -INF

    clear = PlainGaussian.clear
    add = PlainGaussian.add

    def maximize(self):
        if self.rows:
            self.low, self.high = min(x for _, x in self.rows), max(x for _, x in self.rows)

    def parameters(self):
        return [self.low, self.high]


class PlainCategorical:
    def __init__(self, at, levels, p, pseudo):
        self.at, self.p, self.pseudo = at, dict(zip(levels, p)), pseudo

    def density(self, row):
        return log(self.p.get(row[self.at], 0.0))

    clear = PlainGaussian.clear
    add = PlainGaussian.add

    def maximize(self):
        counts = {v: self.pseudo + math.fsum(w for w, x in self.rows if x == v) for v in self.p}
        if sum(w for w, _ in self.rows) > 0:
            self.p = {v: c / sum(counts.values()) for v, c in counts.items()}

    def parameters(self):
        return list(self.p.values())


class PlainMarkovChain:
    """Probabilities by context, the labels before, of which there are at most `order`."""

    def __init__(self, at, levels, tables, order, length):
        self.at, self.levels, self.order, self.length = at, levels, order, length
        self.p = {}
        for k, table in enumerate(tables):
            for context in itertools.product(range(len(levels)), repeat=k):
                self.p[tuple(levels[i] for i in context)] = dict(zip(levels, table[context]))

    def steps(self, row):
        x = row[self.at]
        return [(tuple(x[max(t - self.order, 0) : t]), x[t]) for t in range(len(x))]

    def density(self, row):
        own = sum(log(self.p[context].get(label, 0.0)) for context, label in self.steps(row))
        return own + (0.0 if self.length is None else self.length.density({self.at: len(row[self.at])}))

    def clear(self):
        self.rows = []
        if self.length is not None:
            self.length.clear()

    def add(self, row, weight):
        self.rows += [(weight, step) for step in self.steps(row)]
        if self.length is not None:
            self.length.add({self.at: len(row[self.at])}, weight)

    def maximize(self):
        for context, old in self.p.items():
            own = {v: math.fsum(w for w, step in self.rows if step == (context, v)) for v in old}
            if sum(own.values()) > 0:
                self.p[context] = {v: c / sum(own.values()) for v, c in own.items()}
        if self.length is not None:
            self.length.maximize()

    def parameters(self):
        own = [v for shares in self.p.values() for v in shares.values()]
        return own + ([] if self.length is None else self.length.parameters())


class PlainVector:
    """`tied` is None, or the list of all vectors that have one covariance together."""

    def __init__(self, at, mean, covariance, structure, tied=None):
        self.at, self.mean, self.structure = at, mean, structure
        self.covariance = covariance if np.ndim(covariance) == 2 else np.diag(covariance * np.ones(len(at)))
        self.tied = tied
        if tied is not None:
            tied.append(self)

    def density(self, row):
        z = np.array([row[i] for i in self.at]) - self.mean
        _, log_det = np.linalg.slogdet(2 * np.pi * self.covariance)
        return float(-0.5 * (z @ np.linalg.solve(self.covariance, z) + log_det))

    def clear(self):
        self.rows = []

    def add(self, row, weight):
        self.rows.append((weight, np.array([row[i] for i in self.at], float)))

    def maximize(self):
        total = math.fsum(w for w, _ in self.rows)
        if total > 0:
            first = self.rows[0][1]  # differences keep their digits far from the origin
            self.mean = first + sum(w * (x - first) for w, x in self.rows) / total
            self.covariance = self.scatter() / total
            if self.structure == "diagonal":
                self.covariance = np.diag(np.diag(self.covariance))
            elif self.structure == "spherical":
                self.covariance = np.eye(len(self.at)) * np.diag(self.covariance).mean()
        if self.tied is not None and self.tied[-1] is self:  # the others were maximised before
            whole = math.fsum(w for v in self.tied for w, _ in v.rows)
            if whole > 0:
                covariance = sum(v.scatter() for v in self.tied if v.rows) / whole
                for v in self.tied:
                    v.covariance = covariance

    def scatter(self):
        return sum(w * np.outer(x - self.mean, x - self.mean) for w, x in self.rows)

    def parameters(self):
        diagonal = np.diag(self.covariance)
        own = {"diagonal": diagonal, "spherical": diagonal[:1]}.get(self.structure, self.covariance.ravel())
        return [*self.mean, *own]


class PlainProcess:
    """A vector of equal means whose covariance is a sum of kernels; `values` are by names such as rbf_variance."""

    def __init__(self, at, inputs, mean, values):
        self.at, self.mean, self.values = at, mean, dict(values)
        self.r = np.abs(np.subtract.outer(inputs, inputs))

    def covariance(self, logs):
        """That of the logarithms of the values, which may be complex: nothing here takes an absolute value."""
        value = dict(zip(self.values, np.exp(logs)))
        k = 0.0
        for name in self.values:
            kind = name.removesuffix("_variance")
            if kind == "white":
                k = k + value[name] * np.eye(len(self.at))
            elif kind != name:
                r = self.r / value[f"{kind}_length_scale"]
                of = {"rbf": lambda r: np.exp(-r * r / 2), "matern12": lambda r: np.exp(-r),
                      "matern32": lambda r: (1 + 3**0.5 * r) * np.exp(-(3**0.5) * r)}[kind]  # fmt: skip
                k = k + value[name] * of(r)
        return k

    def density(self, row):
        z = np.array([row[i] for i in self.at]) - self.mean
        k = self.covariance(np.log(list(self.values.values())))
        return float(-0.5 * (z @ np.linalg.solve(k, z) + np.linalg.slogdet(2 * np.pi * k)[1]))

    clear, add = PlainVector.clear, PlainVector.add

    def maximize(self):
        total = math.fsum(w for w, _ in self.rows)
        if total <= 0:
            return
        first = self.rows[0][1][0]
        rows = [(w / total, x - first) for w, x in self.rows]
        middle = sum(w * x for w, x in rows)
        scatter = sum(w * np.outer(x - middle, x - middle) for w, x in rows)
        ones = np.ones(len(self.at))

        def mean(k):
            return ones @ np.linalg.solve(k, middle) / (ones @ np.linalg.solve(k, ones))

        def expected(logs):
            k = self.covariance(logs)
            away = middle - mean(k)
            return -0.5 * (np.log(np.linalg.det(k)) + np.trace(np.linalg.solve(k, scatter + np.outer(away, away))))

        def slope(logs):  # by complex steps, without a difference
            return np.array([expected(logs + 1e-30j * e).imag / 1e-30 for e in np.eye(len(logs))])

        start = np.log(list(self.values.values()))
        near = minimize(lambda x: -expected(x), start, jac=lambda x: -slope(x), method="BFGS").x
        logs = root(slope, near, tol=1e-15).x
        self.values = dict(zip(self.values, np.exp(logs)))
        self.mean = first + mean(self.covariance(logs))

    def parameters(self):
        return [self.mean, *self.values.values()]


class PlainFactors:
    def __init__(self, factors):
        self.factors = factors

    def density(self, row):
        return sum(f.density(row) for f in self.factors)

    def clear(self):
        for f in self.factors:
            f.clear()

    def add(self, row, weight):
        for f in self.factors:
            f.add(row, weight)

    def maximize(self):
        for f in self.factors:
            f.maximize()

    def parameters(self):
        return [v for f in self.factors for v in f.parameters()]


class PlainMixture:
    def __init__(self, weights, components):
        self.weights, self.components = list(weights), components

    def terms(self, row):
        return [log(w) + c.density(row) if w > 0 else -INF for w, c in zip(self.weights, self.components)]

    def density(self, row):
        terms = self.terms(row)
        top = max(terms)
        return top + math.log(math.fsum(math.exp(t - top) for t in terms)) if top > -INF else -INF

    def posterior(self, row):
        whole = self.density(row)
        return [math.exp(t - whole) for t in self.terms(row)]

    def clear(self):
        self.counts = [0.0] * len(self.components)
        self.total = 0.0
        for c in self.components:
            c.clear()

    def add(self, row, weight):
        self.total += weight
        for k, share in enumerate(self.posterior(row)):
            self.counts[k] += weight * share
            if share > 0:
                self.components[k].add(row, weight * share)

    def maximize(self):
        if self.total > 0:
            self.weights = [c / self.total for c in self.counts]
        for c in self.components:
            c.maximize()

    def parameters(self):
        return [*self.weights, *(v for c in self.components for v in c.parameters())]


class PlainOptional:
    def __init__(self, at, of, p, estimate):
        self.at, self.of, self.p, self.estimate = at, of, p, estimate

    def is_missing(self, row):
        return row[self.at] is None or bool(row[self.at] != row[self.at])

    def density(self, row):
        if self.is_missing(row):
            return 0.0 if self.p is None else log(self.p)
        return self.of.density(row) + (0.0 if self.p is None else log(1 - self.p))

    def clear(self):
        self.seen = [0.0, 0.0]
        self.of.clear()

    def add(self, row, weight):
        missing = self.is_missing(row)
        self.seen[missing] += weight
        if not missing:
            self.of.add(row, weight)

    def maximize(self):
        if self.estimate and sum(self.seen) > 0:
            self.p = self.seen[1] / sum(self.seen)
        self.of.maximize()

    def parameters(self):
        return ([] if self.p is None else [self.p]) + self.of.parameters()


RATES = (Poisson, Exponential, Bernoulli, Geometric)


def plain(node, columns, shared=None, tied=None):
    """The plain copy of a model that reads the columns (numbers of cells, or names) in order.

    Nodes of one key are one object (they must read the same columns). `tied` are the vectors of one
    covariance below the innermost mixture, by their place in a component.
    """
    shared = {} if shared is None else shared
    tied = {} if tied is None else tied
    if node.key is None:
        return _plain(node, columns, shared, tied)
    if node.key not in shared:
        shared[node.key] = _plain(node, columns, shared, tied)
    return shared[node.key]


def _plain(node, columns, shared, tied):
    if isinstance(node, LogNormal):  # a Gaussian too
        return PlainLogNormal(columns[0], node.mean, node.variance)
    if isinstance(node, Gaussian):
        return PlainGaussian(columns[0], node.mean, node.variance)
    if isinstance(node, RATES):
        return PlainRate(columns[0], node.type_name(), next(iter(node.values.values())))
    if isinstance(node, Binomial):
        return PlainRate(columns[0], "binomial", node.p, node.trials)
    if isinstance(node, Gamma):
        return PlainGamma(columns[0], node.shape, node.rate)
    if isinstance(node, Laplace):
        return PlainLaplace(columns[0], node.loc, node.scale)
    if isinstance(node, StudentT):
        return PlainStudent(columns[0], node.df, node.loc, node.scale)
    if isinstance(node, Uniform):
        return PlainUniform(columns[0], node.low, node.high)
    if isinstance(node, Categorical):
        return PlainCategorical(columns[0], node.levels, node.probabilities, node.pseudo_count)
    if isinstance(node, MarkovChain):
        length = None if node.length is None else plain(node.length, columns, shared, tied)
        return PlainMarkovChain(columns[0], node.levels, node.parts, node.order, length)
    if isinstance(node, MultivariateGaussian):
        group = tied.setdefault(tuple(columns), []) if node.structure == "tied" else None
        return PlainVector(columns, node.mean, node.covariance, node.structure, group)
    if isinstance(node, GaussianProcess):
        values = {name: value for name, value in node.values.items() if name != "mean"}
        return PlainProcess(columns, node.inputs, node.mean, values)
    if isinstance(node, Mixture):
        below: dict = {}
        return PlainMixture(node.weights, [plain(c, columns, shared, below) for c in node.components])
    if isinstance(node, Optional):
        return PlainOptional(columns[0], plain(node.of, columns, shared, tied), node.p_missing, node.estimate_missing)
    if isinstance(node, Record):
        of = node.field_columns
        return PlainFactors([plain(f, list(of.get(name, (name,))), shared, tied) for name, f in node.fields.items()])
    assert isinstance(node, Composite)
    factors, at = [], 0
    for f in node.factors:
        factors.append(plain(f, columns[at : at + f.width], shared, tied))
        at += f.width
    return PlainFactors(factors)


def step(model, rows, weights):
    """One iteration in place; the log likelihood before it."""
    total = math.fsum(w * model.density(row) for w, row in zip(weights, rows) if w > 0)
    model.clear()
    for w, row in zip(weights, rows):
        if w > 0:
            model.add(row, w)
    model.maximize()
    return total
