"""Trees that mix sequences, documents, curves and missing cells: from any source, on any grid, part by part."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w
from mixed import TIMES, TREES, beside, patients, topics, visits
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm, poisson

from mixle_mpi import (
    Composite,
    DataError,
    Gaussian,
    GaussianProcess,
    Mixture,
    ModelError,
    MultivariateGaussian,
    ProbabilisticLatentSemanticIndexing,
    Record,
    Resources,
    load,
    optimize,
)
from mixle_mpi.commands import fit as fit_command
from mixle_mpi.commands import plan, score, show
from mixle_mpi.execution.axis import Alone
from mixle_mpi.execution.choose import observed
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.load import read
from mixle_mpi.execution.shard import cut_paths
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.models.specification import describe
from mixle_mpi.planning.balance import plan_on
from mixle_mpi.planning.payload import in_run

EVERYTHING = "everything"


def far(result, expected) -> float:
    """The largest difference of two histories, relative to max(|L|, N)."""
    return np.abs(np.array(result.history) - expected.history).max() / max(abs(expected.history[-1]), expected.n_rows)


@pytest.mark.parametrize("name", TREES)
def test_grids_equal_serial(name):
    make, model = TREES[name]
    data, paths = make(24), cut_paths(model)
    serial = fit(data, model, serial_grid(), max_iter=3, tol=None)
    assert len(paths) >= 5 and np.diff(serial.history).min() > -1e-9
    tried = [((3, 1), None), *(((1, 2) if k % 2 else (2, 2), cut) for k, cut in enumerate(paths[:: len(paths) // 5]))]
    for shape, cut in tried:
        for result in run_on_threads(*shape, lambda g, c=cut: fit(data, model, g, max_iter=3, tol=None, cut=c)):
            assert far(result, serial) < 1e-12, (shape, cut)
            theta, expected = result.model.state.theta, serial.model.state.theta
            assert (np.abs(theta - expected) <= 1e-8 * np.maximum(1.0, np.abs(expected))).all(), (shape, cut)


def test_the_source_of_the_data_does_not_matter(tmp_path):
    rows, model = patients(), TREES["unlike records"][1]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    bags = [row | {"notes": dict(Counter(row["notes"]))} for row in rows]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=10)
    for name, lines in (("rows", rows), ("bags", bags)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    files = [tmp_path / name for name in ("rows.parquet", "rows.jsonl", "bags.jsonl")]
    same = {"max_iter": 2, "tol": None}
    for tree in (model, TREES[EVERYTHING][1]):
        expected = optimize(rows, tree, **same)
        for source in (columns, bags, table, pd.DataFrame(columns), *files):
            assert optimize(source, tree, **same).history == expected.history


def test_bags_by_position_take_the_parts_of_their_columns():
    """A composite of documents: lists of tokens, pairs, and a mixture of topic models beside a number."""
    rows = patients()
    pairs = [list(Counter(row["drugs"]).items()) for row in rows]
    data = [(row["notes"], own, float(k)) for k, (row, own) in enumerate(zip(rows, pairs))]
    drugs = Mixture(ProbabilisticLatentSemanticIndexing(2, 6), 2)
    named = [dict(zip("abc", row)) for row in data]
    model = optimize(named, Record(a=topics(), b=drugs, c=Gaussian()), max_iter=2, tol=None).model
    result = optimize(data, Composite(*model.fields.values()), max_iter=2, tol=None)
    assert result.history == optimize(named, model, max_iter=2, tol=None).history
    np.testing.assert_array_equal(Composite(*model.fields.values()).log_density(data), model.log_density(named))
    with pytest.raises(ModelError, match="more than one factor of unknown width; give dim"):
        optimize([(1.0, 2.0)] * 5, Composite(MultivariateGaussian(), MultivariateGaussian()))


def test_columns_of_nobody_may_be_anything():
    """Lists of several lengths, dicts of other keys; they are refused where they are wanted."""
    rows = [{"x": 1.0, "l": [1, 2], "d": {"a": 1}}, {"x": 2.0, "l": [3], "d": {"b": 1}}, {"x": 4.0, "l": [], "d": 3}]
    assert optimize(rows, Record(x=Gaussian()), max_iter=1, tol=None).n_iter == 1
    with pytest.raises(DataError, match="row 1, column 'l' has 1 values, others 2"):
        optimize(rows, Record(l=MultivariateGaussian(2)))
    with pytest.raises(DataError, match="row 2, column 'd': 3 is not a dict, as others are"):
        optimize(rows, Record(d=Gaussian()))


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 2), (1, 3)])
def test_what_is_counted_is_what_was_planned(shape):
    """Messages and bytes on every axis, densities and owners; how many rounds documents took is the run's own count."""
    (make, model), (d, m) = TREES[EVERYTHING], shape
    data = make()
    bound = read(data, model, Alone()).model
    given = observed(bound, len(data)) | {"rounds": {"": 0.0}}
    for cut in cut_paths(model) if m > 1 else [None]:
        found = run_on_threads(*shape, lambda g, c=cut: (g.coords, fit(data, model, g, max_iter=2, tol=None, cut=c)))
        plan = plan_on(bound, Resources.local(d * m), n_data=len(data), shape=shape, cut=cut, given=given)
        passes, steps = found[0][1].counts.passes, found[0][1].n_iter
        sent = in_run(plan.extra["payload"], passes, steps)
        if cut is not None and cut.endswith("notes"):
            sent["model"]["bytes"] += 8 * sum(r.counts.token_rounds + r.counts.document_rounds for _, r in found)
            sent["model"]["messages"] += sum(r.counts.round_messages for _, r in found) - passes * d * m
        for axis, sums in sent.items():
            assert sum(r.payload[axis].bytes for _, r in found) == sums["bytes"], (cut, axis)
            assert sum(r.payload[axis].messages for _, r in found) == sums["messages"], (cut, axis)
            assert sum(r.payload[axis].objects for _, r in found) == 0
        assert sum(r.counts.rows for at, r in found if at[1] == 0) == passes * len(data)
        assert max(r.counts.maximized for _, r in found) == steps * plan.extra["kernels"]["maximized"], cut


def test_the_example_finds_its_clusters(monkeypatch, capsys):
    path = Path(__file__).parents[2] / "examples" / "everything.py"
    spec = importlib.util.spec_from_file_location("everything", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "PATIENTS", 90)
    monkeypatch.setattr(example, "launch", lambda: None)
    example.main()
    share = re.search(r"([0-9.]+)% are in the cluster of their kind", capsys.readouterr().out)
    assert float(share[1]) > 60  # a third by chance


# -- against parts ---------------------------------------------------------------------------------


def numbers(of) -> np.ndarray:
    """All numbers of a model, in the order in which it is written."""
    if isinstance(of, dict):
        return np.concatenate([numbers(of[key]) for key in sorted(of)] or [[]])
    if isinstance(of, (list, tuple)):
        return np.concatenate([numbers(part) for part in of] or [[]])
    return np.array([float(of)] if isinstance(of, (int, float)) else [])


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
def test_an_iteration_is_that_of_every_part_with_the_posteriors_as_weights(weighted):
    """EM of a mixture of records maximises each field of each component by itself."""
    rows, model = patients(), TREES[EVERYTHING][1]
    weights = np.random.default_rng(3).choice([0.5, 1.0, 2.0], len(rows)) if weighted else np.ones(len(rows))
    current = optimize(rows, model, max_iter=2, tol=None, weights=weights).model
    after = optimize(rows, current, max_iter=1, tol=None, weights=weights).model
    posterior = current.posterior(rows) * weights[:, None]
    np.testing.assert_allclose(after.weights, posterior.sum(axis=0) / weights.sum(), rtol=1e-12)
    for k, component in enumerate(current.components):
        for name, part in component.fields.items():
            own = [row[name] for row in rows]
            alone = optimize(own, part, max_iter=1, tol=None, weights=posterior[:, k]).model
            np.testing.assert_allclose(numbers(describe(after.components[k].fields[name])), numbers(describe(alone)),
                                       rtol=1e-6, atol=1e-9, err_msg=f"{k} {name}")  # fmt: skip


def chain_density(model, steps) -> float:
    """log p of a sequence of steps, by all paths of states; a missing pulse says nothing."""
    def emitted(state, step):
        emission = model.emissions[state]
        pulse, note = emission.fields["pulse"].of, emission.fields["note"]
        told = np.log(note.probabilities[list(note.levels).index(step["note"])])
        return told + (0.0 if step["pulse"] is None else norm.logpdf(step["pulse"], pulse.mean, pulse.variance**0.5))

    with np.errstate(divide="ignore"):
        first, then = np.log(model.initial), np.log(model.transition)
    length = poisson.logpmf(len(steps), model.length.rate)
    paths = itertools.product(range(model.num_states), repeat=len(steps))
    return length + logsumexp([
        sum([first[p[0]], *(then[a, b] for a, b in itertools.pairwise(p)), *map(emitted, p, steps)]) if p else 0.0
        for p in paths
    ])  # fmt: skip


def test_densities_are_those_of_the_parts():
    """Sequences by all paths, curves by their covariance; topics, whose bound is not a density, by themselves."""
    rows = patients(30)
    rows = [row | {"visits": row["visits"][:5]} for row in rows]
    tree = Mixture(beside(visits=visits(), notes=topics(), curve=GaussianProcess(TIMES)), 2)
    model = optimize(rows, tree, max_iter=2, tol=None).model
    parts = np.zeros((len(rows), 2))
    inputs = np.subtract.outer(TIMES, TIMES)
    for k, component in enumerate(model.components):
        fields = component.fields
        bounds = fields["notes"].log_density([row["notes"] for row in rows])
        value = fields["curve"].values
        cover = value["rbf_variance"] * np.exp(-0.5 * (inputs / value["rbf_length_scale"]) ** 2)
        cover += value["white_variance"] * np.eye(5)
        age, sex = fields["age"], fields["sex"].of
        for i, row in enumerate(rows):
            there = row["age"] is not None
            parts[i, k] = np.log(model.weights[k]) + bounds[i] + chain_density(fields["visits"], row["visits"])
            parts[i, k] += multivariate_normal.logpdf(row["curve"], [value["mean"]] * 5, cover)
            parts[i, k] += np.log(1 - age.p_missing if there else age.p_missing)
            parts[i, k] += norm.logpdf(row["age"], age.of.mean, age.of.variance**0.5) if there else 0.0
            if row["sex"] is not None:
                parts[i, k] += np.log(sex.probabilities[list(sex.levels).index(row["sex"])])
    np.testing.assert_allclose(model.log_density(rows), logsumexp(parts, axis=1), rtol=1e-10)
    shares = np.exp(parts - logsumexp(parts, axis=1, keepdims=True))
    np.testing.assert_allclose(model.posterior(rows), shares, rtol=1e-9, atol=1e-250)


# -- commands --------------------------------------------------------------------------------------


def test_commands_take_everything(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = patients()
    pq.write_table(pa.Table.from_pylist(rows), "rows.parquet")
    run = {"data": {"path": "rows.parquet"}, "model": describe(TREES[EVERYTHING][1], parameters=False),
           "fit": {"max_iter": 3, "tol": "none"}}  # fmt: skip
    (tmp_path / "run.toml").write_text(tomli_w.dumps(run))
    assert fit_command.main(["run.toml", "--quiet", "--out", "out"]) == 0
    expected = optimize(rows, TREES[EVERYTHING][1], max_iter=3, tol=None)
    assert json.loads((tmp_path / "out" / "result.json").read_text())["history"] == expected.history
    for words, count in ([], 36), (["--path", "component_1/visits", "--steps"], sum(len(r["visits"]) for r in rows)), (
        ["--path", "component_0/notes"], 36
    ), (["--path", "component_0/visits", "--forecast"], 36):  # fmt: skip
        assert score.main(["out", "rows.parquet", "--out", "scores.csv", "--overwrite", *words]) == 0
        assert len((tmp_path / "scores.csv").read_text().splitlines()) == count + 1
    capsys.readouterr()
    assert show.main(["out"]) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("hidden Markov model of 2 states", "latent dirichlet allocation of 3 topics",
                                          "kernel rbf(", "age p_missing", "sex: "))  # fmt: skip
    assert plan.main(["run.toml", "--ranks", "4", "--rows", "1000"]) == 0
    planned = capsys.readouterr().out
    assert all(f"{name}: {kind}" in planned for name, kind in (
        ("visits", "hidden_markov"), ("notes", "latent_dirichlet_allocation"), ("curve", "gaussian_process"),
        ("age", "optional")))  # fmt: skip
    with pytest.raises(ModelError, match="latent_dirichlet_allocation cannot be sampled"):
        load("out").sample(3)
