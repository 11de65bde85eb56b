"""Counted is planned: what ranks send, and the rows, units and shapes that kernels see, exactly, on threads."""

from __future__ import annotations

import pytest
from counting import GRIDS, MODELS, mismatches, table

from mixle_mpi.execution.em import fit
from mixle_mpi.execution.threads import run_on_threads


@pytest.mark.parametrize("shape", GRIDS)
@pytest.mark.parametrize("name", MODELS)
def test_what_is_counted_is_what_was_planned(name, shape):
    model, cuts = MODELS[name]
    for cut in cuts if shape[1] > 1 else [None]:
        found = run_on_threads(
            *shape, lambda g, c=cut: (g.coords, fit(table(), model, g, max_iter=2, tol=None, cut=c))
        )
        assert not mismatches(model, shape, cut, found), cut
