"""Counted is planned for topic models: what ranks send, on threads."""

from __future__ import annotations

import pytest
from counting_topics import GRIDS, MODELS, TREES, mismatches

from mixle_mpi.execution.em import fit
from mixle_mpi.execution.threads import run_on_threads


@pytest.mark.parametrize("shape", GRIDS, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("name", MODELS)
def test_what_is_counted_is_what_was_planned(name, shape):
    make, model = TREES[name]
    cut = MODELS[name] if shape[1] > 1 else None
    found = run_on_threads(*shape, lambda g: (g.coords, fit(make(), model, g, max_iter=2, tol=None, cut=cut)))
    assert not mismatches(name, shape, found)
