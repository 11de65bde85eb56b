"""Tiles in flight: the same bits as one after another, in whatever order messages arrive."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from counting import MODELS, table

from mixle_mpi import Gaussian, HiddenMarkov, LatentDirichletAllocation, Mixture
from mixle_mpi.contract.decomposition import Partial, ReductionOp
from mixle_mpi.execution import executor as executor_module
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.pipeline import Job, Pipeline, Times
from mixle_mpi.execution.threads import run_on_threads

RNG = np.random.default_rng(5)
STEPS = [RNG.normal(size=n) for n in RNG.integers(1, 9, 60)]
DOCUMENTS = [{str(w): int(c) for w, c in zip(RNG.choice(list("abcdefgh"), 3, False), RNG.integers(1, 5, 3))}
             for _ in range(40)]  # fmt: skip
TREES = {
    "factors": (MODELS["factors"][0], table(900), ["", "component_*/x", "**"]),
    "states": (HiddenMarkov(Mixture(Gaussian(), 2), 3), STEPS, ["", "**"]),
    "topics": (Mixture(LatentDirichletAllocation(3), 2), DOCUMENTS, ["component_*", "**"]),
}


@pytest.fixture
def small_tiles(monkeypatch):
    """Many tiles, so that several are in flight."""
    monkeypatch.setattr(executor_module, "tile_borders", lambda source, *widths: [*range(0, source.n, 7), source.n])


@pytest.mark.parametrize("name", TREES)
def test_the_bits_do_not_depend_on_the_tiles_in_flight(name, small_tiles):
    model, data, cuts = TREES[name]
    for cut in cuts:
        found = {pipelined: run_on_threads(1, 3, lambda g, p=pipelined, c=cut: fit(
            data, model, g, cut=c, max_iter=3, tol=None, pipelined=p)) for pipelined in (False, True)}  # fmt: skip
        one, two = (found[p][0] for p in (False, True))
        assert one.history == two.history, cut
        assert one.model.state.theta.tobytes() == two.model.state.theta.tobytes(), cut
        assert one.payload["model"] == two.payload["model"], "and as many messages are sent"


def test_tiles_may_send_different_numbers_of_messages():
    """Rank 1 sends none for even tiles; ranks work at different speeds; results are in the order of the tiles."""
    def work(grid):
        rank, order = grid.model.rank, []
        pair = grid.model.part((0, 1), 0), grid.model.part((0, 1), 1)

        def score(k: int):
            for _ in range(k % 3 + 1):  # tiles differ in how often they ask
                value = yield Partial(ReductionOp.SUM, np.array([float(k)]), group=7)
                time.sleep(0.001 * rank)
                assert value.tolist() == [2.0 * k]
            return np.array([[float(k)]])

        def accumulate(value):
            order.append(value[0, 0])
            return None
            yield

        times = Times()
        Pipeline([{0: grid.model, 7: part} for part in pair], Alone()).run(
            (Job(score(k), accumulate) for k in range(20)), times)  # fmt: skip
        return order, times

    for order, times in run_on_threads(1, 2, work):
        assert order == [float(k) for k in range(20)]
        assert times.in_flight >= 0.0 and times.seconds["score"] > 0.0


def test_a_message_is_hidden_behind_the_scoring_of_the_next_tile():
    """Messages of a slow rank arrive while the other one scores: with two tiles in flight it waits less."""
    def work(grid, copies):
        parts = [{0: grid.model.part((0, 1), copy)} for copy in range(copies)]

        def score():
            time.sleep(0.01)
            yield Partial(ReductionOp.SUM, np.ones(1))
            return np.ones((1, 1))

        def accumulate(value):
            time.sleep(0.01 * (grid.model.rank == 1))  # one rank is late with its next tile
            return None
            yield

        times = Times()
        Pipeline(parts, Alone()).run((Job(score(), accumulate) for _ in range(6)), times)
        return times

    one = run_on_threads(1, 2, lambda g: work(g, 1))
    two = run_on_threads(1, 2, lambda g: work(g, 2))
    for times in one:  # alone in flight, a tile waits for all of its message
        assert times.in_flight <= times.seconds["model_axis"]
    assert any(times.in_flight > times.seconds["model_axis"] for times in two)


def test_an_error_in_one_tile_ends_all_ranks():
    def work(grid):
        def score(k: int):
            if grid.model.rank == 1 and k == 3:
                raise RuntimeError("tile 3")
            yield Partial(ReductionOp.SUM, np.ones(1))
            return np.ones((1, 1))

        def accumulate(value):
            return None
            yield

        parts = [{0: grid.model.part((0, 1), copy)} for copy in range(2)]
        Pipeline(parts, Alone()).run((Job(score(k), accumulate) for k in range(9)), Times())

    with pytest.raises(RuntimeError, match="tile 3"):
        run_on_threads(1, 2, work)
    assert threading.active_count() < 20
