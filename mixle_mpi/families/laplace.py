"""The Laplace distribution, whose location is a weighted median found by passes over the data."""

from __future__ import annotations

import numpy as np

from mixle_mpi.contract.family import Family, Search, Theta
from mixle_mpi.contract.fields import positive, real, total
from mixle_mpi.contract.work import Work
from mixle_mpi.families.gaussian import encoded_floor
from mixle_mpi.kernels.laplace import from_ordered, histogram, laplace_scores, laplace_sums, ordered

SUMS = ("weight", "below", "equal", "absolute", "total")
ABSOLUTE = SUMS.index("absolute")
TIE = 1e-12  # share of the weight that rounding may take: an even number of equal weights is a tie on every grid
BITS = 10  # a pass narrows the range of the median by this many bits


class Laplace(Family):
    """Two exponentials back to back: log p(x) = -|x - loc| / scale - log(2 scale).

    The location is the lower weighted median, a value of the data. When it moves, histograms over at most seven
    more passes find it in memory that does not grow with the rows.
    """

    params = {"loc": real(), "scale": positive()}
    stats = {name: total() for name in (*SUMS, "median")}
    kind = "own"
    slot = "centred"
    searches = True

    def __init__(self, loc=None, scale=None, *, key: str | None = None, fixed: bool = False):
        super().__init__({"loc": loc, "scale": scale}, key=key, fixed=fixed)

    def prepare(self, theta: Theta):
        constant = -np.log(2.0 * theta["scale"]) - np.log(self.encoding.scale[0])
        return tuple(np.ascontiguousarray(a) for a in (theta["loc"], 1.0 / theta["scale"], constant))

    def score(self, prepared, x, out):
        laplace_scores(np.ascontiguousarray(x[0]), *prepared, out)

    def accumulate(self, prepared, x, weights, stats: Theta):
        sums = np.zeros((len(weights), len(SUMS)))
        laplace_sums(np.ascontiguousarray(x[0]), prepared[0], weights, sums)
        for column, name in enumerate(SUMS):
            stats[name] += sums[:, column]

    def e_step(self, sizes, features):
        return Work(flop=4.0 + 14.0), Work()  # `laplace_scores` and `laplace_sums`

    def passes(self, assumed):
        # as long as the median moves: 64 bits in steps of BITS, and one for the distances
        return assumed.value("passes")

    def search(self, theta: Theta, stats: Theta):
        return MedianSearch(theta["loc"], stats, self.encoding)

    def search_values(self):
        return 1 << BITS

    def maximize(self, theta: Theta, stats: Theta, about):
        least = np.sqrt(encoded_floor(None, self.encoding)[0])
        return {"loc": stats["median"], "scale": np.maximum(stats["absolute"] / stats["weight"], least)}

    def start(self, theta: Theta, stats: Theta, about):
        # near enough to begin with, without a search: the mean
        loc = theta["loc"] + stats["total"] / stats["weight"]
        return self.maximize(theta, stats | {"median": loc}, about)

    def default(self):
        return {"loc": self.encoding.mean[0], "scale": np.sqrt(max(self.encoding.variance[0], 1e-12) / 2.0)}

    def soften(self, theta: Theta):
        return {"scale": np.maximum(theta["scale"], 0.03 * self.default()["scale"])}

    def encode_values(self, values):
        shift, scale = self.encoding.shift[0], self.encoding.scale[0]
        loc, width = values["loc"], values["scale"]
        return {
            "loc": None if loc is None else (loc - shift) / scale,
            "scale": None if width is None else width / scale,
        }

    def decode_values(self, values):
        shift, scale = self.encoding.shift[0], self.encoding.scale[0]
        return {"loc": values["loc"] * scale + shift, "scale": values["scale"] * scale}

    def sample_rows(self, rng, n):
        return [rng.laplace(self.values["loc"], self.values["scale"], n)]


class MedianSearch(Search):
    """Lower weighted medians of all members, by refinement of histograms over the ordered doubles.

    A member's median lies among the keys `low` to `low + (2^BITS << shift)`; `before` is the weight of
    the smaller ones. When all are found, one more pass sums the distances from them.
    """

    def __init__(self, loc: np.ndarray, stats: Theta, encoding):
        self.half = (0.5 - TIE) * stats["weight"]
        below, equal = stats["below"], stats["equal"]
        stats["median"][...] = loc
        left, right = below >= self.half, below + equal < self.half
        self.moved = (left | right) & (stats["weight"] > 0)
        here = ordered(np.array(loc))
        least, most = (int(ordered(np.atleast_1d(v))[0]) for v in (encoding.low[0], encoding.high[0]))
        self.low = np.where(left, least, here + 1)
        high = np.where(left, here - 1, most)
        span = [max(int(b) - int(a), 0).bit_length() for a, b in zip(self.low, high)]
        self.shift = np.maximum(np.array(span, np.int64) - BITS, 0)
        self.before = np.where(left, 0.0, below + equal)
        self.active = self.moved.copy()
        self.loc = np.array(loc)
        self.stage = "range" if self.moved.any() else "done"
        self.sums = np.zeros((len(loc), 1 << BITS))

    @property
    def wanted(self) -> bool:
        return self.stage != "done"

    def accumulate(self, x: np.ndarray, weights: np.ndarray) -> None:
        x = np.ascontiguousarray(x[0])
        if self.stage == "range":
            histogram(ordered(x), self.low, self.shift, self.active, weights, self.sums)
        elif self.stage == "distance":
            sums = np.zeros((len(self.loc), len(SUMS)))
            laplace_sums(x, self.loc, weights, sums)
            self.sums[:, : len(SUMS)] += sums

    def advance(self, stats: Theta) -> None:
        if self.stage == "distance":
            for name, values in (("median", self.loc), ("absolute", self.sums[:, ABSOLUTE])):
                stats[name][self.moved] = values[self.moved]
            self.stage = "done"
            return
        for m in np.flatnonzero(self.active):
            upto = self.before[m] + np.cumsum(self.sums[m])
            reached = np.flatnonzero(upto >= self.half[m])
            # rounding may leave the last sum below one half: then the last bin with weight holds the median
            at = int(reached[0]) if len(reached) else int(np.flatnonzero(self.sums[m])[-1])
            self.before[m] = upto[at] - self.sums[m, at]
            self.low[m] = int(self.low[m]) + (at << int(self.shift[m]))
        found = self.active & (self.shift == 0)
        self.loc[found] = from_ordered(self.low[found])
        self.active &= ~found
        self.shift = np.maximum(self.shift - BITS, 0)
        self.sums[:] = 0.0  # of one width in all stages: a shard that holds no member is in none of them
        if not self.active.any():
            self.stage = "distance"
