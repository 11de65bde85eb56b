"""Bags of words: every form of documents gives the same arrays, on ranks that are threads."""

from __future__ import annotations

import itertools
import json
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp
from documents import bag_of, csv_of, encoded, expected, jsonl, long_table, matrix_of, parquet
from hypothesis import given, settings
from hypothesis import strategies as st
from unigram import Unigram

from mixle_mpi import Categorical, Composite, Gaussian, HiddenMarkov, Mixture, Record, load, optimize
from mixle_mpi.commands import fit as fit_command
from mixle_mpi.commands.score import main as score_command
from mixle_mpi.contract.errors import DataError, ModelError
from mixle_mpi.data import bags
from mixle_mpi.execution import load as loading
from mixle_mpi.execution.choose import observed
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.grid import serial_grid
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.models.registry import BY_NAME

NUMBERED = [[(3, 1), (0, 1), (3, 1)], [], [(4, 1)] * 3, [(0, 1), (4, 1)], [], [(2, 1), (0, 1)], [(4, 1)]]
LETTERS = "abcde"
LETTERED = [[(LETTERS[word], count) for word, count in document] for document in NUMBERED]
AGES = [float(i) for i in range(len(NUMBERED))]
FEW = settings(max_examples=25, deadline=None)


def tokens(documents):
    return [[word for word, _ in document] for document in documents]


def folder_of(path, parts):
    path.mkdir()
    for i, part in enumerate(parts):
        sp.save_npz(path / f"part{i}.npz", part.tocsr(), compressed=bool(i % 2))
    return path


MATRIX = matrix_of(NUMBERED, 5)
IN_MEMORY = {
    "tokens": lambda d: tokens(d),
    "pairs": lambda d: d,
    "arrays": lambda d: [np.array(t) for t in tokens(d)],
    "arrays of pairs": lambda d: [np.array(x, object).reshape(-1, 2) for x in d],
    "dicts": lambda d: [{word: [w for w, _ in x].count(word) for word, _ in x} for x in d],
    "objects": lambda d: [[{"count": c, "word": w} for w, c in x] for x in d],
    "named": lambda d: {"text": tokens(d)},
    "two columns": lambda d: {"word": tokens(d), "count": [[c for _, c in x] for x in d]},
    "pandas": lambda d: pd.DataFrame({"text": tokens(d)}),
    "arrow": lambda d: pa.table({"text": tokens(d)}),
}
FILES = {
    "json tokens": lambda p, d: jsonl(p / "t.jsonl", tokens(d)),
    "json pairs": lambda p, d: jsonl(p / "t.jsonl", d),
    "json objects": lambda p, d: jsonl(p / "t.jsonl", [[{"count": c, "word": w} for w, c in x] for x in d]),
    "parquet tokens": lambda p, d: parquet(p / "t.parquet", {"text": tokens(d)}),
    "parquet structs": lambda p, d: parquet(
        p / "t.parquet", {"text": [[{"word": w, "count": c} for w, c in x] for x in d]}),
}  # fmt: skip
MATRICES = {
    **{kind: lambda p, kind=kind: getattr(MATRIX, f"to{kind}")() for kind in ("csr", "csc", "bsr", "lil", "dok")},
    "coo": lambda p: MATRIX,
    "int32": lambda p: MATRIX.astype(np.int32).tocsr(),
    "float32": lambda p: MATRIX.astype(np.float32).tocsr(),
    "spmatrix": lambda p: sp.csr_matrix(MATRIX),
    "npz": lambda p: folder_of(p / "one", [MATRIX]) / "part0.npz",
    "npz folder": lambda p: folder_of(p / "some", [MATRIX.tocsr()[:2], MATRIX.tocsr()[2:2], MATRIX.tocsr()[2:]]),
    "npz pattern": lambda p: str(folder_of(p / "some", [MATRIX.tocsr()[:4], MATRIX.tocsr()[4:]]) / "*.npz"),
}
for _kind in ("csc", "coo", "bsr", "dia"):
    MATRICES[f"npz {_kind}"] = lambda p, kind=_kind: (
        sp.save_npz(p / "m.npz", getattr(MATRIX, f"to{kind}")()), p / "m.npz")[1]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("form", IN_MEMORY)
def test_forms_in_memory(form, size):
    make = IN_MEMORY[form]
    assert encoded(make(NUMBERED), Unigram(6), size) == expected(NUMBERED, 6)
    assert encoded(make(LETTERED), Unigram(), size) == expected(LETTERED, "abcd"[:1] + "cde")
    order = ["e", "z", "d", "c", "a"]
    assert encoded(make(LETTERED), Unigram(order), size) == expected(LETTERED, order)


@pytest.mark.parametrize("form", FILES)
def test_files_of_lists(form, tmp_path):
    for documents, vocabulary in ((NUMBERED, 6), (LETTERED, ["e", "z", "d", "c", "a"])):
        path = FILES[form](tmp_path, documents)
        for size in (1, 3):
            assert encoded(path, Unigram(vocabulary), size) == expected(documents, vocabulary)
    assert encoded(path, Unigram(), 2)["levels"] == ("a", "c", "d", "e")


@pytest.mark.parametrize("form", MATRICES)
def test_matrices(form, tmp_path):
    data = MATRICES[form](tmp_path)
    for size in (1, 3):
        assert encoded(data, Unigram(5), size) == expected(NUMBERED, 5)
    assert encoded(data, Unigram(9), 2) == expected(NUMBERED, 9)
    # without a vocabulary the numbers of columns are labels; one of texts names the columns
    assert encoded(data, Unigram(), 2) == expected(NUMBERED, [0, 2, 3, 4])
    assert encoded(data, Unigram(list(LETTERS)), 2) == expected(LETTERED, LETTERS)
    assert encoded(data, Unigram([4, 3, 2, 1, 0]), 2) == expected(NUMBERED, [4, 3, 2, 1, 0])
    with pytest.raises(DataError, match="column 4 of the matrix has counts, but the vocabulary has 4 words"):
        encoded(data, Unigram(list("abcd")))


@pytest.mark.parametrize("write", [None, csv_of, parquet])
def test_one_row_an_entry(write, tmp_path):
    documents = [[(word, 1.5 * count) for word, count in x] for x in NUMBERED if x]
    lettered = [[(LETTERS[word], count) for word, count in x] for x in documents]
    for own, vocabulary in ((documents, 5), (lettered, ["c", "a", "d", "e", "b"]), (lettered, None)):
        columns = long_table(own)
        ages = {name: float(name[1:]) for name in columns["document"]}
        columns["age"] = [ages[name] for name in columns["document"]]
        suffix = {None: "", csv_of: ".csv", parquet: ".parquet"}[write]
        data = columns if write is None else write(tmp_path / f"t{suffix}", columns)
        model = Record({"text": Unigram(vocabulary), "age": Gaussian()}, columns={"text": ["word", "count"]})
        want = expected(own, ["a", "c", "d", "e"] if vocabulary is None else vocabulary)
        for size in (1, 3):
            assert encoded(data, model, size, sequence="document") == want
    columns["word"][4] = 1.5
    with pytest.raises(DataError, match=r"row 4 \(the first is 0; step 1 of 'd1'\), column 'word': 1.5 is not in the "
                       r"support of words \(whole numbers from 0 to 4\)"):  # fmt: skip
        numbers = long_table(documents)
        numbers["word"][4] = 1.5
        encoded(numbers, Unigram(5), sequence="document")


def test_beside_other_columns():
    model = Record(text=Unigram(5), age=Gaussian())
    want = expected(NUMBERED, 5)
    dicts = IN_MEMORY["dicts"](NUMBERED)
    for data in (
        {"text": MATRIX, "age": np.array(AGES)},
        {"text": MATRIX.tocsr(), "age": AGES},
        {"age": AGES, "text": tokens(NUMBERED)},
        {"text": dicts, "age": AGES},
        [{"text": x, "age": age} for x, age in zip(NUMBERED, AGES)],
        [{"text": x, "age": age} for x, age in zip(dicts, AGES)],
    ):
        assert encoded(data, model, 2) == want
    assert encoded(list(zip(tokens(NUMBERED), AGES)), Composite(Unigram(5), Gaussian()), 2) == want
    assert encoded({"text": MATRIX, "age": AGES}, Mixture(model, 2), 2) == want


def test_given_documents():
    documents = [[0, 0, 1], [], [1, 1, 1]]
    found = encoded(documents, Unigram(2))
    assert found == {"lengths": [2, 0, 1], "codes": [0, 1, 1], "counts": [2.0, 1.0, 3.0], "effective": 6.0,
                     "words": [0, 1], "levels": (), "observed": 3}  # fmt: skip
    assert encoded([[], []], Unigram(2))["lengths"] == [0, 0] and encoded([], Unigram(2))["lengths"] == []
    assert encoded([], Unigram(2))["effective"] == 0.0


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_that_bring_their_own(size):
    for documents in (NUMBERED, [[], *NUMBERED, [], []]):
        cuts = list(itertools.pairwise(np.linspace(0, len(documents), size + 1).astype(int)))
        for form in ("tokens", "pairs", "dicts"):
            data = [IN_MEMORY[form](documents[a:b]) for a, b in cuts]
            assert encoded(data, Unigram(5), size, local=True) == expected(documents, 5)
        matrix = matrix_of(documents, 5).tocsr()
        data = [{"text": matrix[a:b], "age": [1.0] * (b - a)} for a, b in cuts]
        model = Record(text=Unigram(5), age=Gaussian())
        assert encoded(data, model, size, local=True) == expected(documents, 5)
        texts = [[[(LETTERS[w], c) for w, c in x] for x in documents[a:b]] for a, b in cuts]
        assert encoded(texts, Unigram(), size, local=True)["levels"] == ("a", "c", "d", "e")


documents_of = st.lists(st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0, 0.25, 1, 2, 1e-3])), max_size=8),
                        max_size=9)  # fmt: skip


@FEW
@given(documents_of, st.integers(1, 3), st.integers(1, 20))
def test_merging_is_what_dicts_say(documents, size, block):
    before, bags.BLOCK = bags.BLOCK, block
    try:
        want, found = expected(documents, 7), encoded(documents, Unigram(7), size)
        effective = want.pop("effective")  # added up in another order
        assert found.pop("effective") == pytest.approx(effective, rel=1e-14) and found == want
        labels = [[(f"w{word}", count) for word, count in x if count] for x in documents]
        occurring = [f"w{word}" for word in want["words"]]
        zeros = [[*x, ("none", 0)] for x in labels]
        found = encoded(zeros, Unigram(), size)
        assert found == expected(labels, occurring) | {"effective": found["effective"]}
    finally:
        bags.BLOCK = before


@FEW
@given(documents_of)
def test_what_is_merged_stays(documents):
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in documents])]).astype(np.int64)
    pairs = [pair for x in documents for pair in x]
    words, counts = np.array([w for w, _ in pairs], np.int64), np.array([c for _, c in pairs], float)
    once = bags.merged(words, counts, offsets, 7)
    again = bags.merged(*once, 7)
    assert all(a is b for a, b in zip(once, again)) or not len(words)
    assert [a.tolist() for a in once] == [a.tolist() for a in again]
    assert np.isclose(once[1].sum(), counts.sum())


def test_large_vocabularies_are_never_walked_through():
    tracemalloc.start()
    found = encoded([np.array([999_999, 5, 5]), np.array([7])], Unigram(10**6), 2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found["words"] == [5, 7, 999_999] and found["codes"] == [0, 2, 1] and found["counts"] == [2.0, 1.0, 1.0]
    assert peak < 10_000_000  # a million numbers as objects, or labels, are 30 MB and more


def test_rows_are_dealt_by_distinct_words():
    documents = [[0] * 50, [1, 2, 3], [0], []]
    found = loading.read(documents, Unigram(5), serial_grid().world)
    assert found.slots.steps.tolist() == [1, 3, 1, 0]
    assert observed(found.model, found.total)["length"] == {"": 1.25}
    assert loading.default_borders(found, 2) == [0, 2, 4]


def test_observed_rows_are_tokens():
    documents = [[(0, 2.5), (1, 1)], [], [(1, 4)]]
    assert loading.load(documents, Unigram(2), serial_grid()).effective == 7.5
    assert loading.load(documents, Unigram(2), serial_grid(), weights=[2, 1, 0.5]).effective == 9.0
    data = [{"t": x, "s": s, "a": 1.0} for x, s in zip(documents, [[1.0] * 5, [], [2.0]])]
    model = Record(t=Unigram(2), s=HiddenMarkov(Gaussian(), 2), a=Gaussian())
    assert loading.load(data, model, serial_grid()).effective == 5 + 0 + 4


REFUSALS = {
    "number": ([[0, 0, 1], [], [1, 5, 1]], 5, "row 2 (the first is 0), step 1, column '0': 5 is not in the support of "
               "words (whole numbers from 0 to 4); rows refused by column: 0: 1"),
    "negative": ([[0], [-1, -1]], 5, "row 1 (the first is 0), step 0, column '0': -1 is not in the support of words "
                 "(whole numbers from 0 to 4); rows refused by column: 0: 2"),
    "fraction": ([[0.5]], 5, "row 0 (the first is 0), step 0, column '0': 0.5 is not in the support of words "
                 "(whole numbers from 0 to 4); rows refused by column: 0: 1"),
    "large": ([[12345678]], 10**6, "row 0 (the first is 0), step 0, column '0': 12345678 is not in the support of "
              "words (whole numbers from 0 to 999999); rows refused by column: 0: 1"),
    "missing": ([[0, None]], 5, "row 0 (the first is 0), step 1, column '0': the value is missing; a bag has a word in "
                "each step; rows refused by column: 0: 1"),
    "missing label": ([["a", None]], None, "row 0 (the first is 0), step 1, column '0': the value is missing; a bag "
                      "has a word in each step; rows refused by column: 0: 1"),
    "infinite": ([[0, np.inf]], 5, "row 0 (the first is 0), step 1, column '0': inf is not finite; rows refused by "
                 "column: 0: 1"),
    "count": ([[(0, 1)], [(3, 2), (1, -0.5)]], 5, "row 1 (the first is 0), step 1, column '1': -0.5 is not in the "
              "support of counts (numbers >= 0); rows refused by column: 1: 1"),
    "missing count": ([[(0, None)]], 5, "row 0 (the first is 0), step 0, column '1': the value is missing; a bag "
                      "has a count for each word; write 0 for none; rows refused by column: 1: 1"),
    "infinite count": ([[(0, np.inf)]], 5, "row 0 (the first is 0), step 0, column '1': inf is not finite; rows "
                       "refused by column: 1: 1"),
    "dense": (np.zeros((3, 4)), 4, "the data are a dense array of shape (3, 4): of counts, documents x words, give "
              "scipy.sparse.csr_array(x)"),
    "dense column": ({"t": np.zeros((3, 4))}, 4, "column 't' is a dense array of shape (3, 4): of counts, documents x "
                     "words, give scipy.sparse.csr_array(x)"),
    "matrix word": (sp.csr_array(np.eye(3)), 2, "row 2 (the first is 0), step 0, column 'word': 2 is not in the "
                    "support of words (whole numbers from 0 to 1); rows refused by column: word: 1"),
    "complex": (sp.csr_array(np.eye(2) * 1j), 2, "a sparse matrix of complex128 holds no counts"),
    "no sequence": ([0, 1], 2, "row 0: 0 is not a sequence; for one sequence give a list with it"),
    "lengths": ({"word": [[0, 1]], "count": [[1]]}, 2, "row 0: 1 steps in column 'count', 2 in 'word'"),
}  # fmt: skip


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", REFUSALS)
def test_documents_that_are_refused(name, strict):
    data, vocabulary, message = REFUSALS[name]
    for size in (1, 3):
        with pytest.raises(DataError) as caught:
            encoded(data, Unigram(vocabulary), size, strict=strict)
        assert str(caught.value) == message


@pytest.mark.parametrize("vocabulary, message", [
    (0, "unigram: vocabulary = 0 is not from 1 to 2147483646 words"),
    (2**31, "unigram: vocabulary = 2147483648 is not from 1 to 2147483646 words"),
    (True, "unigram: vocabulary = True is neither a number of words nor a list of them"),
    ("abc", "unigram: vocabulary = 'abc' is neither a number of words nor a list of them"),
    ([], "unigram: vocabulary: there are no words in it"),
    (["a", "b", "a"], "unigram: vocabulary: 'a' comes twice"),
    (["a", None], "unigram: vocabulary: None is not a text, an integer or a number"),
])  # fmt: skip
def test_vocabularies_that_are_refused(vocabulary, message):
    with pytest.raises(ModelError) as caught:
        Unigram(vocabulary)
    assert str(caught.value) == message
    assert Unigram(["a", 1, "1", True]).words.num_words == 4 and Unigram(np.int32(4)).words.num_words == 4


def test_places_that_are_refused():
    rows = {"t": [[0]], "u": [[1]], "v": [[1]]}
    with pytest.raises(ModelError, match="the model: unigram reads a column of words, or one of words and one of "
                       r"counts, but there are 3 \(t, u, v\)"):  # fmt: skip
        encoded(rows, Unigram(3))
    with pytest.raises(ModelError, match="a unigram inside a sequence"):
        encoded([[[0]]], HiddenMarkov(Unigram(3), 2))
    both = {"a": Unigram(3), "b": Unigram(3)}
    with pytest.raises(ModelError, match="column 't': one bag of words reads it with counts, another one without"):
        encoded(rows, Record(both, columns={"a": ["t", "u"], "b": ["t"]}))
    with pytest.raises(ModelError, match="column 't': bags of words read it with different counts, 'u' and 'v'"):
        encoded(rows, Record(both, columns={"a": ["t", "u"], "b": ["t", "v"]}))
    sizes = {"a": Unigram(3), "b": Unigram(4)}
    with pytest.raises(ModelError, match="column 't': its models declare vocabularies of 3 and of 4 words"):
        encoded(rows, Record(sizes, columns={"a": ["t"], "b": ["t"]}))


def test_a_bag_and_a_chain_of_one_column():
    model = Record({"a": Unigram(), "b": HiddenMarkov(Categorical(), 2)}, columns={"a": ["t"], "b": ["t"]})
    loaded = loading.load({"t": ["abca", "", "cc"]}, model, serial_grid())
    bag, chain = loaded.rows.sequences["t#bag"], loaded.rows.sequences["t"]
    assert bag.offsets.tolist() == [0, 3, 3, 4] and chain.offsets.tolist() == [0, 4, 4, 6]


def test_words_outside_the_vocabulary_are_left_out():
    documents = [["b"], ["a", "x", "b"], ["y" * 80, "x"], []]
    want = ("column '0': 3 words are not in the vocabulary and are left out; the first is 'x', row 1 (the first is 0), "
            "step 1")  # fmt: skip
    for size in (1, 3):
        with pytest.warns(UserWarning) as caught:
            found = encoded(documents, Unigram(["b", "a"]), size)
        assert [str(w.message) for w in caught] == [want]
        assert found["lengths"] == [1, 2, 0, 0] and found["codes"] == [0, 0, 1] and found["observed"] == 3
        assert found["effective"] == 3.0


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setitem(BY_NAME, "unigram", Unigram)


def saved(model, path):
    model.save(path)
    return load(path)


def test_a_fitted_model_keeps_its_words(known, tmp_path):
    result = optimize([[7, 7, 2], [999_999], []], Unigram(10**6))
    again = saved(result.model, tmp_path / "m")
    assert len((tmp_path / "m" / "model.json").read_text()) < 2000
    with np.load(tmp_path / "m" / "model.npz") as arrays:
        assert arrays["|words|0"].dtype == np.int32
    for model in (result.model, again):
        words = bag_of(model).words
        assert words.encoding.words.tolist() == [2, 7, 999_999] and words.num_words == 10**6
        found = encoded([[2, 500, 7, 3], [7]], model, strict=False)
        assert found["codes"] == [0, 1, 3, 3, 1] and found["lengths"] == [4, 1] and found["words"] == [2, 7, 999_999]
        assert model.log_density([[2], [500], []]).tolist() == [np.log(words_p(model)[0]), -np.inf, 0.0]
        assert encoded(sp.csr_array(([2.0], ([0], [7])), shape=(1, 8)), model, strict=False)["codes"] == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert again.log_density([[2], [500]]).tolist() == result.model.log_density([[2], [500]]).tolist()


def words_p(model):
    return bag_of(model).p


@pytest.mark.parametrize("vocabulary", [None, ["c", "q", "b", "a"], [3, 1, 2]])
def test_a_fitted_model_keeps_its_labels(vocabulary, known, tmp_path):
    documents = [[3, 1], [1, 1]] if vocabulary == [3, 1, 2] else [["b", "a"], ["c", "a"]]
    result = optimize(documents, Unigram(vocabulary))
    again = saved(result.model, tmp_path / "m")
    own, other = bag_of(result.model).words, bag_of(again).words
    assert other.encoding.levels == own.encoding.levels and other.num_words == own.num_words
    assert np.array_equal(other.encoding.words, own.encoding.words)
    assert again.log_density(documents).tolist() == result.model.log_density(documents).tolist()
    with pytest.warns(UserWarning, match="1 word is not in the vocabulary and is left out; the first is 'zz', row 0"):
        assert again.log_density([["zz"]]).tolist() == [0.0]


def test_changed_words_are_refused_on_resume(known, tmp_path):
    first = [[0, 1], [2], [2, 0]]
    optimize(first, Unigram(9), max_iter=2, tol=None, checkpoint=tmp_path / "c")
    with pytest.raises(ValueError, match="words"):
        optimize([[0, 1], [3], [3, 0]], Unigram(9), max_iter=3, tol=None, checkpoint=tmp_path / "c", resume=True)


def test_fits_are_the_same_on_every_grid():
    model = Mixture(Record(text=Unigram(5), age=Gaussian()), 2)
    data = {"text": matrix_of(NUMBERED * 3, 5), "age": AGES * 3}
    alone = optimize(data, model, seed=3, max_iter=5, tol=None)
    for shape in ((2, 1), (3, 1), (1, 2)):
        results = run_on_threads(*shape, lambda grid: fit(data, model, grid, seed=3, max_iter=5, tol=None))
        assert {r.log_likelihood for r in results} == {results[0].log_likelihood}
        assert np.isclose(results[0].log_likelihood, alone.log_likelihood, rtol=1e-12)
    assert alone.bic == pytest.approx(-2 * alone.log_likelihood + 5 * np.log(3 * 11))  # N is 33 tokens


def test_words_are_no_features():
    with pytest.raises(ModelError, match="the mixture at the root has no numeric column"):
        optimize(tokens(NUMBERED), Mixture(Unigram(5), 2), init="kmeans++")
    mixed = {"text": tokens(NUMBERED), "age": [0.0, 0.1, 9.0, 9.1, 0.2, 9.2, 0.3]}
    result = optimize(mixed, Mixture(Record(text=Unigram(5), age=Gaussian()), 2), max_iter=1, tol=None)
    assert (result.model.posterior(mixed).argmax(axis=1) == result.model.posterior(mixed)[0].argmax()).tolist() == [
        age < 5 for age in mixed["age"]
    ]


def test_keyed_bags_share_their_words():
    a, b = Unigram(), Unigram()
    a.key = b.key = "words"
    loaded = loading.load({"x": ["ab", "a"], "y": ["bz", "q"]}, Record(x=a, y=b), serial_grid())
    (one, two) = (field.words.encoding for field in loaded.model.fields.values())
    assert one.levels == two.levels == ("a", "b", "q", "z") and (one.observed, two.observed) == (3, 3)
    a, b = Unigram(5), Unigram(5)
    a.key = b.key = "words"
    loaded = loading.load({"x": [[4, 1]], "y": [[2, 1]]}, Record(x=a, y=b), serial_grid())
    assert [f.words.encoding.words.tolist() for f in loaded.model.fields.values()] == [[1, 2, 4]] * 2


def test_commands(known, tmp_path):
    sp.save_npz(tmp_path / "m.npz", MATRIX.tocsr())
    csv_of(tmp_path / "m.csv", long_table([x for x in NUMBERED if x]))
    run = {"csr": ["m.npz", ""], "long": ["m.csv", '"document"']}
    scores = {}
    for name, (path, sequence) in run.items():
        text = f'[data]\npath = "{path}"\n' + (f"sequence = {sequence}\n" if sequence else "")
        text += '[model]\ntype = "unigram"\nvocabulary = 5\n[output]\nquiet = true\n'
        (tmp_path / f"{name}.toml").write_text(text)
        assert fit_command.main([str(tmp_path / f"{name}.toml"), "--out", str(tmp_path / name)]) == 0
        options = ["--sequence", "document"] if sequence else []
        out = tmp_path / f"{name}.scores"
        assert score_command([str(tmp_path / name), str(tmp_path / path), "--out", str(out), *options]) == 0
        scores[name] = [float(line.split(",")[1]) for line in out.read_text().splitlines()[1:]]
        record = json.loads((tmp_path / name / "result.json").read_text())
        assert record["status"] == "converged" and record["n_rows"] == len(scores[name])
    assert [s for s, x in zip(scores["csr"], NUMBERED) if x] == pytest.approx(scores["long"], rel=1e-12)
