"""Counted is planned for models of sequences: what ranks send, and the recursions that each runs, on threads."""

from __future__ import annotations

import pytest
from counting_chains import MODELS, mismatches

from mixle_mpi.execution.em import fit
from mixle_mpi.execution.threads import run_on_threads


@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, found in MODELS.items() for shape in found[-1]])
def test_what_is_counted_is_what_was_planned(name, shape):
    data, model, cut, _, _ = MODELS[name]
    cut = cut if shape[1] > 1 else None
    found = run_on_threads(*shape, lambda g: (g.coords, fit(data, model, g, max_iter=2, tol=None, cut=cut)))
    assert not mismatches(name, shape, found)
