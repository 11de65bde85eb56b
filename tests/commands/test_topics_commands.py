"""The commands on documents: a run file, a sparse matrix or a table, then score and show."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))

from bags import VOCABULARY, documents

from mixle_mpi import coherence, load, log_perplexity
from mixle_mpi.commands import fit, score, show

DOCUMENTS = documents(120)
RUN = """
[data]
path = "{path}"
{more}
[model]
type = "{type}"
topics = 3
{vocabulary}
[fit]
max_iter = 15
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A directory with the documents as a sparse matrix and as a table, and run files for both."""
    at = tmp_path_factory.mktemp("documents")
    counts = [np.bincount(words, minlength=VOCABULARY) for words in DOCUMENTS]
    sp.save_npz(at / "docs.npz", sp.csr_array(np.array(counts)))
    with open(at / "docs.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["document", "word", "count"])
        for i, words in enumerate(DOCUMENTS):
            rows.writerows([i, f"w{w:02}", count] for w, count in sorted(Counter(words).items()))
    prior = f'vocabulary = {VOCABULARY}\ntopic_prior = 0.1\nlearn_alpha = "asymmetric"'
    of_matrix = {"path": "docs.npz", "more": "", "type": "latent_dirichlet_allocation", "vocabulary": prior}
    of_table = {"path": "docs.csv", "more": 'sequence = "document"', "type": "probabilistic_latent_semantic_indexing",
                "vocabulary": ""}  # fmt: skip
    for name, keys in (("matrix", of_matrix), ("table", of_table)):
        (at / f"{name}.toml").write_text(RUN.format(**keys))
        assert fit.main([str(at / f"{name}.toml"), "--out", str(at / name), "--quiet"]) == 0
    return at


def rows_of(path) -> tuple[list[str], np.ndarray]:
    with open(path, newline="") as file:
        names, *rows = list(csv.reader(file))
    return names, np.array(rows, float)


def test_what_is_printed_is_scored(places, tmp_path, capsys):
    """The likelihood of result.json is the sum of the log densities that score writes, beside the mixes."""
    out = tmp_path / "s.csv"
    assert score.main([str(places / "matrix"), str(places / "docs.npz"), "--out", str(out), "--coherence"]) == 0
    names, numbers = rows_of(out)
    assert names == ["row", "log_density", "topic", "p_0", "p_1", "p_2"] and len(numbers) == len(DOCUMENTS)
    printed = json.loads((places / "matrix" / "result.json").read_text())["log_likelihood"]
    assert numbers[:, 1].sum() == pytest.approx(printed, rel=1e-12)
    model, text = load(places / "matrix"), capsys.readouterr().out
    np.testing.assert_array_equal(numbers[:, 3:], model.posterior(DOCUMENTS))
    found = coherence(model, DOCUMENTS)
    assert f"UMass coherence, mean {found.mean():.4f}" in text and f"topic_2 {found[2]:9.3f}" in text


def test_words_are_held_out(places, tmp_path, capsys):
    out = tmp_path / "c.csv"
    assert score.main([str(places / "matrix"), str(places / "docs.npz"), "--out", str(out), "--completion"]) == 0
    names, numbers = rows_of(out)
    assert names == ["row", "words", "log_density", "topic", "p_0", "p_1", "p_2"]
    expected = log_perplexity(load(places / "matrix"), DOCUMENTS)
    assert -numbers[:, 2].sum() / numbers[:, 1].sum() == pytest.approx(expected, rel=1e-12)
    assert f"log-perplexity {expected:.10f} nats a word" in capsys.readouterr().out


def test_a_table_and_what_is_shown(places, tmp_path, capsys):
    data = [str(places / "table"), str(places / "docs.csv"), "--sequence", "document"]
    assert score.main([*data, "--out", str(tmp_path / "t.csv")]) == 0
    assert len(rows_of(tmp_path / "t.csv")[1]) == sum(map(bool, DOCUMENTS))
    assert show.main([str(places / "table"), "--top", "4"]) == 0
    text = capsys.readouterr().out
    model = load(places / "table")
    assert f"topic_0: {', '.join(model.top_words(4)[0])}" in text
    assert f"words occur, of a vocabulary of {model.words.num_words}" in text
    assert show.main([str(places / "matrix"), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)["model"]
    np.testing.assert_array_equal(described["topic_word"], load(places / "matrix").topic_word)


@pytest.mark.parametrize(("options", "text"), [
    (["--path", "x"], "there is no mixture at 'x'"),
    (["--completion", "--path", "x"], "there is no topic model at path 'x'; there is one at ''"),
    (["--steps"], "there is no hidden Markov model at path ''"),
])  # fmt: skip
def test_refusals(places, tmp_path, capsys, options, text):
    code = score.main([str(places / "matrix"), str(places / "docs.npz"), "--out", str(tmp_path / "x.csv"), *options])
    assert code == 2
    assert text in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()
