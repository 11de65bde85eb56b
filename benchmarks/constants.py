"""What elementary work costs on one core: `python -m benchmarks.constants [--rounds N]`.

Each kind of work that nodes declare (`contract/work.py`) is timed with the kernel that does most of it, on a
tile of the executor's size, in ns a unit; the third column is what the planner reckons with.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import numpy as np

from mixle_mpi.contract.work import NANOSECONDS
from mixle_mpi.families.covariance import STRUCTURES
from mixle_mpi.kernels import gaussian, normalise, product, student, table

Case = tuple[str, str, float, Callable[[], object]]  # kind, what is timed, units of work in one call, the call


def cases(members: int = 32, rows: int = 2048) -> list[Case]:
    """The timed calls."""
    rng = np.random.default_rng(0)
    found: list[Case] = []
    for width in (32, 153, 561):
        n = max(262144 // (members + width), 128)
        eta, out, sums = rng.normal(size=(members, width)), np.empty((members, n)), np.zeros((members, width))
        tiles = itertools.cycle(rng.normal(size=(4, width, n)))
        flops = 4.0 * members * width * n

        def products(eta=eta, tiles=tiles, out=out, sums=sums):
            x = next(tiles)
            product.scores(eta, x, out)
            product.add_sums(out, x, sums)

        found.append(("gemm", f"scores and statistics, {members} members, {width} features, {n} rows", flops, products))
    scores = -np.abs(rng.normal(size=(members, rows)))
    weights, offsets = np.full(members, -3.0), np.array([0, members])
    top, whole = np.zeros((1, rows)), np.zeros((1, rows))
    counts, factor, values = np.zeros(members), np.ones((1, rows)), float(members * rows)
    found.append(("exp", "exponentials of a mixture", values,
                  lambda: normalise.add_exponentials(scores, weights, offsets, offsets[:-1], top, whole)))  # fmt: skip
    found.append(("flop", "largest score of a mixture (2 flops)", 2 * values,
                  lambda: normalise.raise_maximum(scores, weights, offsets, top)))  # fmt: skip
    found.append(("flop", "responsibilities (2 flops)", 2 * values,
                  lambda: normalise.weigh_exponentials(scores, offsets, factor, counts)))  # fmt: skip
    y, one, loc = rng.normal(size=rows), np.ones(members), np.zeros(members)
    found.append(("log", "log1p of Student's t", values, lambda: student.student_scores(y, loc, one, one, one, scores)))
    x = rng.normal(size=(16, rows))
    few, features = rng.normal(size=(16, 700)), np.empty((136, 700))
    found.append(("feature", "features of a full Gaussian, d = 16", 136.0 * 700,
                  lambda: gaussian.products(few, features)))  # fmt: skip
    long = rng.normal(size=(64, 128))
    wide, source, target = np.empty((2080, 128)), np.ones(1 << 21), np.empty(1 << 21)
    found.append(("feature", "features of a full Gaussian, d = 64", 2080.0 * 128,
                  lambda: gaussian.products(long, wide)))  # fmt: skip
    found.append(("byte", "copying memory, each byte read and written", 2.0 * source.nbytes,
                  lambda: np.copyto(target, source)))  # fmt: skip
    mean, whiten, resp = np.zeros((members, 16)), np.tile(np.eye(16), (members, 1, 1)), np.ones((members, rows))
    moments = np.zeros(members), np.zeros((members, 16)), np.zeros((members, 136))
    everyone, present = np.arange(members), np.ones(rows)
    found.append(("flop", "residual form, scores, d = 16 (d (d + 1) flops)", 272.0 * values,
                  lambda: gaussian.full_scores(x, everyone, mean, whiten, one, present, scores)))  # fmt: skip
    found.append(("flop", "residual form, moments, d = 16 (d (d + 1) flops)", 272.0 * values,
                  lambda: gaussian.full_moments(x, everyone, mean, resp, present, *moments)))  # fmt: skip
    for levels in (50, 10000):
        codes = rng.integers(0, levels, rows).astype(np.int32)
        log_table, sums = rng.normal(size=(members, levels)), np.zeros((members, levels))
        found.append(("lookup", f"look-ups, {levels} levels", values,
                      lambda t=log_table, c=codes: table.look_up(t, c, scores)))  # fmt: skip
        found.append(("scatter", f"scatters, {levels} levels", values,
                      lambda s=sums, c=codes: table.scatter(resp, c, s)))  # fmt: skip
    for d in (4, 16, 64):
        covariance = np.tile(np.eye(d) * 2.0, (members, 1, 1))
        found.append(("lapack", f"natural parameters of a full Gaussian, d = {d}", members * 13.0 / 3.0 * d**3,
                      lambda c=covariance, d=d: STRUCTURES["full"].precision(c, d)))  # fmt: skip
    from scipy.special import digamma

    many = rng.gamma(2.0, size=4096)
    found.append(("special", "digamma", 4096.0, lambda: digamma(many)))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=9)
    rounds = options.parse_args().rounds
    print(f"{'kind':8} {'measured':>9} {'planned':>9}  (ns a unit; 1 / ns is G/s)")
    for kind, text, units, call in cases():
        call()
        repeats = 1
        while True:
            began = time.perf_counter()
            for _ in range(repeats):
                call()
            if time.perf_counter() - began > 0.01:
                break
            repeats *= 2
        seconds = []
        for _ in range(rounds):
            began = time.perf_counter()
            for _ in range(repeats):
                call()
            seconds.append((time.perf_counter() - began) / repeats)
        print(f"{kind:8} {1e9 * statistics.median(seconds) / units:9.3f} {NANOSECONDS[kind]:9.3f}  {text}")


if __name__ == "__main__":
    main()
