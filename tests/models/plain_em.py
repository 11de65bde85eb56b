"""EM in plain Python on parameters in the user's units, one row and one node at a time.

Written from the formulas, not from the package: it shares no code with it. `plain(node)` copies the
structure and the parameters of a model; `step` is one iteration.
"""

from __future__ import annotations

import math

import numpy as np

from mixle_mpi import (
    Bernoulli,
    Categorical,
    Composite,
    Exponential,
    Gaussian,
    Mixture,
    MultivariateGaussian,
    Optional,
    Poisson,
    Record,
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


class PlainRate:
    """Poisson, exponential and Bernoulli: one parameter, from the weighted mean."""

    def __init__(self, at, kind, value):
        self.at, self.kind, self.value = at, kind, value

    def density(self, row):
        x, v = row[self.at], self.value
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
            self.value = 1 / mean if self.kind == "exponential" else mean

    def parameters(self):
        return [self.value]


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


class PlainVector:
    def __init__(self, at, mean, covariance, diagonal):
        self.at, self.mean, self.covariance, self.diagonal = at, mean, covariance, diagonal

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
            self.covariance = sum(w * np.outer(x - self.mean, x - self.mean) for w, x in self.rows) / total
            if self.diagonal:
                self.covariance = np.diag(np.diag(self.covariance))

    def parameters(self):
        return [*self.mean, *(np.diag(self.covariance) if self.diagonal else self.covariance.ravel())]


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


def plain(node, columns):
    """The plain copy of a model that reads the columns (numbers of cells, or names) in order."""
    if isinstance(node, Gaussian):
        return PlainGaussian(columns[0], node.mean, node.variance)
    if isinstance(node, (Poisson, Exponential, Bernoulli)):
        return PlainRate(columns[0], node.type_name(), next(iter(node.values.values())))
    if isinstance(node, Categorical):
        return PlainCategorical(columns[0], node.levels, node.probabilities, node.pseudo_count)
    if isinstance(node, MultivariateGaussian):
        diagonal = node.structure == "diagonal"
        return PlainVector(columns, node.mean, np.diag(node.covariance) if diagonal else node.covariance, diagonal)
    if isinstance(node, Mixture):
        return PlainMixture(node.weights, [plain(c, columns) for c in node.components])
    if isinstance(node, Optional):
        return PlainOptional(columns[0], plain(node.of, columns), node.p_missing, node.estimate_missing)
    if isinstance(node, Record):
        of = node.field_columns
        return PlainFactors([plain(f, list(of.get(name, (name,)))) for name, f in node.fields.items()])
    assert isinstance(node, Composite)
    factors, at = [], 0
    for f in node.factors:
        factors.append(plain(f, columns[at : at + f.width]))
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
