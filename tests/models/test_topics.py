"""Topic models against plain NumPy, scikit-learn, and what is known of them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from bags import TREES, VOCABULARY, documents
from scipy.special import digamma, gammaln

from mixle_mpi import (
    DataError,
    Gaussian,
    LatentDirichletAllocation,
    Mixture,
    ModelError,
    ProbabilisticLatentSemanticIndexing,
    Record,
    coherence,
    load,
    log_perplexity,
    optimize,
)
from mixle_mpi.execution.em import fit
from mixle_mpi.execution.threads import run_on_threads
from mixle_mpi.models.dirichlet import asymmetric, objective, symmetric
from mixle_mpi.models.specification import build, describe
from mixle_mpi.models.topic_rounds import MOST_ROUNDS, TOLERANCE

D09 = [[0, 0, 1], [], [1, 1, 1]]
COUNTS = np.array([np.bincount(words, minlength=VOCABULARY) for words in documents()], float)


def topics_like(k: int, seed: int = 0, words: int = VOCABULARY) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(words), k)


def plain_rounds(x, alpha, table, tolerance=TOLERANCE, most=MOST_ROUNDS) -> tuple[np.ndarray, np.ndarray]:
    """gamma, and the shares of topics (documents, topics, words), of counts x (documents, words): a document ends one
    round after its gamma changed by less than `tolerance` of its words and alpha, or after `most` rounds."""
    gamma = alpha + x.sum(axis=1, keepdims=True) / len(alpha) * np.ones(len(alpha))
    phi = np.zeros((len(x), *table.shape))
    for i, words in enumerate(x):
        settled, total = words.sum() == 0, words.sum() + alpha.sum()
        for _ in range(most):
            weight = np.exp(digamma(gamma[i]))[:, None] * table
            phi[i] = weight / weight.sum(axis=0)
            new = alpha + phi[i] @ words
            change, gamma[i] = np.abs(new - gamma[i]).sum(), new
            if settled:
                break
            settled = change < tolerance * total
    return gamma, phi


def plain_bounds(x, alpha, gamma, phi, log_table) -> np.ndarray:
    """The variational bounds (documents,), term by term as in Blei, Ng and Jordan (2003)."""
    mean_log = digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))
    prior = gammaln(alpha.sum()) - gammaln(alpha).sum() + ((alpha - 1) * mean_log).sum(axis=1)
    words = (x[:, None] * phi * (mean_log[:, :, None] + log_table - np.log(np.maximum(phi, 1e-300)))).sum(axis=(1, 2))
    entropy = gammaln(gamma).sum(axis=1) - gammaln(gamma.sum(axis=1)) - ((gamma - 1) * mean_log).sum(axis=1)
    return prior + words + entropy


@pytest.mark.parametrize("kind", [LatentDirichletAllocation, ProbabilisticLatentSemanticIndexing])
def test_d09_one_topic_is_one_distribution_of_words(kind):
    result = optimize(D09, kind(1, 2), tol=None, max_iter=3)
    assert result.log_likelihood == pytest.approx(-3.819085010, abs=1e-9)
    assert np.exp(-result.log_likelihood / result.effective_rows) == pytest.approx(1.889881575, abs=1e-9)
    assert result.effective_rows == 6
    np.testing.assert_allclose(result.model.topic_word, [[1 / 3, 2 / 3]], rtol=1e-14)
    assert result.model.posterior(D09).tolist() == [[1.0]] * 3
    assert result.model.log_density(D09)[1] == 0.0


@pytest.mark.parametrize("prior", [0.0, 0.3])
@pytest.mark.parametrize("alpha", [0.05, 0.7, (0.1, 0.5, 2.0, 0.02)])
def test_bounds_are_those_of_the_plain_recursion(alpha, prior):
    """Log densities, mixes and the M-step, from the formulas with an axis for each of documents, topics and words."""
    given = topics_like(4) if not prior else 3.0 * topics_like(4) + prior
    whole = np.broadcast_to(np.asarray(alpha, float), (4,)).copy()
    model = LatentDirichletAllocation(4, VOCABULARY, alpha=alpha, topic_prior=prior, topic_word=given)
    log_table = np.log(given) if not prior else digamma(given) - digamma(given.sum(axis=1, keepdims=True))
    gamma, phi = plain_rounds(COUNTS, whole, np.exp(log_table))
    expected = plain_bounds(COUNTS, whole, gamma, phi, log_table)
    found = model.log_density(documents())
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(model.posterior(documents()), gamma / gamma.sum(axis=1, keepdims=True), atol=1e-11)
    moved = optimize(documents(), model, max_iter=1, tol=None).model
    sums = (COUNTS[:, None] * phi).sum(axis=0)
    expected = sums + prior if prior else sums / sums.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(moved.topic_word, expected, atol=1e-11)


def test_topics_with_a_prior_have_the_bound_of_their_posterior():
    """What the objective has beside the documents: expected log prior of the topics less that of their posterior."""
    prior, given = 0.3, 3.0 * topics_like(4) + 0.3
    model = LatentDirichletAllocation(4, VOCABULARY, topic_prior=prior, topic_word=given)
    (executor,) = run_on_threads(1, 1, lambda grid: executor_of(model, grid))
    log_table = digamma(given) - digamma(given.sum(axis=1, keepdims=True))
    expected = 4 * (gammaln(VOCABULARY * prior) - VOCABULARY * gammaln(prior)) + (prior - 1) * log_table.sum()
    expected -= (gammaln(given.sum(axis=1)) - gammaln(given).sum(axis=1) + ((given - 1) * log_table).sum(axis=1)).sum()
    assert executor.log_prior() == pytest.approx(expected, rel=1e-12)


def executor_of(model, grid):
    from mixle_mpi.execution.evaluate import executor_for

    return executor_for(model, documents(), grid)[0]


@pytest.mark.parametrize("name", TREES)
def test_a_bound_rises_but_for_documents_that_restart_elsewhere(name):
    """Where documents start anew in each pass a bound may fall a little, which is no failure; else it never does."""
    make, model = TREES[name]
    result = optimize(make(), model, max_iter=40, tol=None)
    assert result.status in ("max_iter", "converged") and len(result.history) > 10
    falls = np.diff(result.history) / abs(result.history[-1])
    assert falls.min() > (-1e-12 if "mixes" in name else -2e-3)
    assert result.history[-1] > result.history[0] + 0.02 * abs(result.history[0])


def test_plain_em_of_mixes():
    """Twenty iterations against the two updates written with arrays."""
    given = topics_like(5, 1)
    result = optimize(documents(), ProbabilisticLatentSemanticIndexing(5, VOCABULARY, topic_word=given), max_iter=20,
                      tol=None)  # fmt: skip
    mixes, topics, history = np.full((len(COUNTS), 5), 0.2), given.copy(), []
    total = np.maximum(COUNTS.sum(axis=1, keepdims=True), 1)
    for _ in range(21):
        p = mixes @ topics
        history.append((COUNTS * np.log(np.where(COUNTS > 0, p, 1.0))).sum())
        ratio = np.divide(COUNTS, p, out=np.zeros_like(p), where=COUNTS > 0)
        last = topics
        mixes, topics = mixes * (ratio @ topics.T) / total, topics * (mixes.T @ ratio)
        topics = topics / topics.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(result.history, history, rtol=1e-12)
    np.testing.assert_allclose(result.model.topic_word, last, atol=1e-10)


def test_a_document_is_folded_in_where_its_likelihood_is_greatest():
    given = topics_like(4, 2)
    model = ProbabilisticLatentSemanticIndexing(4, VOCABULARY, topic_word=given)
    mixes, densities = model.posterior(documents()), model.log_density(documents())
    np.testing.assert_allclose((COUNTS * np.log(mixes @ given)).sum(axis=1), densities, atol=1e-7)
    rng = np.random.default_rng(0)
    for _ in range(50):  # the likelihood is concave in the mix: no other one is better
        other = 0.99 * mixes + 0.01 * rng.dirichlet(np.ones(4), len(mixes))
        assert ((COUNTS * np.log(other @ given)).sum(axis=1) <= densities + 1e-7).all()


def test_scikit_learn():
    """From the same topics after as many iterations, under one and the same bound."""
    decomposition = pytest.importorskip("sklearn.decomposition")
    rng = np.random.default_rng(4)
    start, alpha, prior, iterations = rng.gamma(100.0, 0.01, (6, VOCABULARY)), 1 / 6, 0.1, 12
    peer = decomposition.LatentDirichletAllocation(6, doc_topic_prior=alpha, topic_word_prior=prior, random_state=0)
    peer.partial_fit(COUNTS[:1])  # sets it up
    peer.components_ = start.copy()
    peer.exp_dirichlet_component_ = np.exp(digamma(start) - digamma(start.sum(axis=1, keepdims=True)))
    for _ in range(iterations):
        peer._em_step(COUNTS, total_samples=len(COUNTS), batch_update=True)
    model = LatentDirichletAllocation(6, VOCABULARY, alpha=alpha, topic_prior=prior, topic_word=start)
    ours = optimize(documents(), model, max_iter=iterations, tol=None).model

    def bound(given) -> float:
        table = digamma(given) - digamma(given.sum(axis=1, keepdims=True))
        whole = np.full(6, alpha)
        found = plain_bounds(COUNTS, whole, *plain_rounds(COUNTS, whole, np.exp(table), 1e-9, 500), table).sum()
        found += 6 * (gammaln(VOCABULARY * prior) - VOCABULARY * gammaln(prior)) + ((prior - given) * table).sum()
        return found + (gammaln(given).sum() - gammaln(given.sum(axis=1)).sum())

    assert bound(ours.topic_word) >= bound(peer.components_)
    assert bound(ours.topic_word) > bound(start)


@pytest.mark.parametrize("learn", ["symmetric", "asymmetric"])
def test_alpha_is_where_the_bound_is_greatest(learn):
    rng = np.random.default_rng(6)
    rows = rng.dirichlet([0.1, 0.5, 3.0, 1.0], 300)
    logs = np.log(np.maximum(rows, 1e-300)).sum(axis=0)
    how = symmetric if learn == "symmetric" else asymmetric
    for start in (0.01, 1.0, 50.0):
        found = how(np.full(4, start), 300.0, logs)
        best = objective(found, 300.0, logs)
        for scale in (0.999, 1.001):
            assert objective(found * scale, 300.0, logs) <= best
        if learn == "asymmetric":
            np.testing.assert_allclose(found, how(np.full(4, 1.0), 300.0, logs), rtol=1e-12)
            np.testing.assert_allclose(found, [0.1, 0.5, 3.0, 1.0], rtol=0.2)


@pytest.mark.parametrize("kind", ["learned alpha", "mixes"])
def test_weights_are_rows(kind):
    """Weight 2 is the document twice, weight 0 none."""
    models = {"learned alpha": LatentDirichletAllocation(3, VOCABULARY, topic_prior=0.1, learn_alpha="asymmetric",
                                                        topic_word=1 + topics_like(3)),
              "mixes": ProbabilisticLatentSemanticIndexing(3, VOCABULARY, topic_word=topics_like(3))}  # fmt: skip
    docs, weights = documents(30), np.random.default_rng(1).integers(0, 3, 30)
    twice = [words for words, w in zip(docs, weights) for _ in range(w)]
    a = optimize(docs, models[kind], weights=weights, max_iter=8, tol=None)
    b = optimize(twice, models[kind], max_iter=8, tol=None)
    np.testing.assert_allclose(a.history, b.history, rtol=1e-12)
    np.testing.assert_allclose(a.model.topic_word, b.model.topic_word, atol=1e-10)
    assert a.effective_rows == b.effective_rows == sum(map(len, twice))


def test_the_printed_value_is_that_of_the_saved_model(tmp_path):
    """D10, and the words of texts keep their places."""
    names = [f"w{k:02}" for k in range(VOCABULARY)]
    texts = [[names[w] for w in words] for words in documents()]
    for model in (LatentDirichletAllocation(4), LatentDirichletAllocation(4, names[::-1], topic_prior=0.1),
                  LatentDirichletAllocation(4, topic_prior=0.2, learn_alpha="asymmetric")):  # fmt: skip
        result = optimize(texts, model, max_iter=10, tol=None)
        result.model.save(tmp_path / "m")
        again = load(tmp_path / "m")
        assert again.log_density(texts).sum() == pytest.approx(result.log_likelihood, rel=1e-12)
        np.testing.assert_array_equal(again.topic_word, result.model.topic_word)
        np.testing.assert_array_equal(again.alpha, result.model.alpha)
        assert again.top_words(3) == result.model.top_words(3)
        order = np.argsort(-again.word_probabilities[0], kind="stable")[:3]
        vocabulary = names[::-1] if model.words.vocabulary else sorted({w for words in texts for w in words})
        assert again.top_words(3)[0] == [vocabulary[w] for w in order]
        np.testing.assert_allclose(again.word_probabilities.sum(axis=1), 1.0)
        assert again.num_parameters == result.n_parameters
        np.testing.assert_array_equal(again.posterior(texts), result.model.posterior(texts))
        rebuilt = build(describe(again))
        np.testing.assert_allclose(rebuilt.log_density(texts), again.log_density(texts), rtol=1e-12)


def test_document_completion_and_coherence_by_hand():
    given, docs = topics_like(3, 5), documents(40, 3)
    model = LatentDirichletAllocation(3, VOCABULARY, alpha=0.5, topic_word=given)
    one = log_perplexity(model, docs, seed=1)
    assert one == log_perplexity(model, docs, seed=1) != log_perplexity(model, docs, seed=2)
    assert abs(one - log_perplexity(model, docs, seed=2)) < 0.2
    # words twice each: the halves are alike, whatever the seed
    even = [[w for w in sorted(set(words)) for _ in range(2)] for words in docs]
    halves = [sorted(set(words)) for words in docs]
    mixes = model.posterior(halves)
    logs = [np.log(mixes[i] @ given[:, words]).sum() for i, words in enumerate(halves) if words]
    assert log_perplexity(model, even) == pytest.approx(-sum(logs) / sum(map(len, halves)), rel=1e-12)
    top, sets = model.top_words(4), [set(words) for words in docs]
    expected = [sum(np.log((sum(a in s and b in s for s in sets) + 1) / max(sum(a in s for s in sets), 1))
                    for i, a in enumerate(words) for b in words[i + 1 :]) for words in top]  # fmt: skip
    np.testing.assert_allclose(coherence(model, docs, words=4), expected, rtol=1e-12)


def test_more_topics_say_more_of_held_out_words():
    docs = documents(400, 2, topics=4)
    found = [log_perplexity(optimize(docs[:300], LatentDirichletAllocation(k, VOCABULARY, topic_prior=0.1)).model,
                            docs[300:]) for k in (1, 4)]  # fmt: skip
    assert found[1] < found[0] - 0.3


def test_words_that_do_not_occur():
    """They have the prior's share, or none; a document with one of none has probability zero."""
    docs = [[0, 2, 2], [2, 5], [0, 0]]
    smoothed = optimize(docs, LatentDirichletAllocation(2, 1000, topic_prior=0.5), max_iter=5, tol=None).model
    assert smoothed.topic_word.shape == (2, 1000)
    assert (smoothed.topic_word[:, [1, 3, 999]] == 0.5).all()
    assert np.isfinite(smoothed.log_density([[1, 999], [0]])).all()
    plain = optimize(docs, LatentDirichletAllocation(2, 1000), max_iter=5, tol=None).model
    assert plain.log_density([[1], [0], []])[[0, 2]].tolist() == [-np.inf, 0.0]
    assert np.isnan(plain.posterior([[1, 0], [0]])[0]).all()
    folded = optimize(docs, ProbabilisticLatentSemanticIndexing(2, 1000), max_iter=5, tol=None).model
    assert folded.log_density([[1, 0], [0]])[0] == -np.inf
    for shape in ((1, 2), (2, 2)):
        for result in run_on_threads(*shape, lambda g: fit([*docs, []], LatentDirichletAllocation(2, 1000), g,
                                                           max_iter=3, tol=None)):  # fmt: skip
            assert np.isfinite(result.history).all()


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("prior", [0.0, 1e-3, 1e3])
def test_extremes(alpha, prior):
    """Huge counts, hardly any prior, more topics than documents: finite, and the same on a grid."""
    data = [[(0, 1e6), (1, 1)], [(2, 0.25)], [], [(k, k + 1) for k in range(12)]]
    model = LatentDirichletAllocation(9, 12, alpha=alpha, topic_prior=prior)
    alone = optimize(data, model, max_iter=5, tol=None)
    assert np.isfinite(alone.history).all()
    for result in run_on_threads(1, 3, lambda g: fit(data, model, g, max_iter=5, tol=None)):
        np.testing.assert_allclose(result.history, alone.history, rtol=1e-12, atol=1e-12 * alone.effective_rows)
    assert np.isfinite(alone.model.log_density(data)).all()


@pytest.mark.parametrize("prior", [1e-5, 1e-3, 0.01])
def test_a_word_that_never_occurred_has_what_the_prior_gives(prior):
    """However small: exp(digamma(prior)) may be no number. Topics that die are no exception either."""
    model = optimize([[0, 1], [1]], LatentDirichletAllocation(1, 5, topic_prior=prior), max_iter=3, tol=None).model
    expected = digamma(prior) - digamma(model.topic_word.sum())
    np.testing.assert_allclose(model.log_density([[3], [0, 3, 3], []])[[0, 2]], [expected, 0.0], rtol=1e-12)
    grids = run_on_threads(1, 3, lambda g: fit(D09, LatentDirichletAllocation(7, 3, topic_prior=prior), g, max_iter=4,
                                               tol=None))  # fmt: skip
    alone = optimize(D09, LatentDirichletAllocation(7, 3, topic_prior=prior), max_iter=4, tol=None)
    np.testing.assert_allclose(grids[0].history, alone.history, rtol=1e-12, atol=1e-11)


def test_an_empty_document_comes_first():
    """What kernels keep of the document before is nothing to it."""
    model = LatentDirichletAllocation(3, VOCABULARY, topic_word=topics_like(3))
    for _ in range(20):
        model.log_density(documents(5))
        found = model.log_density([[], [], [1, 2]])
        assert found[:2].tolist() == [0.0, 0.0] and np.isfinite(found[2])
        assert (model.posterior([[], [3]])[0] == 1 / 3).all()


@pytest.mark.parametrize("learn", ["symmetric", "asymmetric", "none"])
def test_keyed_topics_on_every_cut(learn):
    one = LatentDirichletAllocation(3, VOCABULARY, key="a", learn_alpha=learn, topic_prior=0.1)
    for model, cuts in ((Mixture([one] * 2), ["component_0", "component_*", ""]),
                        (Record(a=one, b=one), ["a", "b", ""])):  # fmt: skip
        rows = documents(40)
        data = rows if isinstance(model, Mixture) else [{"a": a, "b": b} for a, b in zip(rows, documents(40, 3))]
        alone = optimize(data, model, max_iter=4, tol=None)
        for shape, cut in [(shape, cut) for cut in cuts for shape in ((1, 2), (2, 3))]:
            options = {"max_iter": 4, "tol": None, "cut": cut}
            found = run_on_threads(*shape, lambda g, d=data, m=model, o=options: fit(d, m, g, **o))[0]
            np.testing.assert_allclose(found.history, alone.history, rtol=1e-12)


def test_mixtures_of_topics_tell_documents_apart():
    make, model = TREES["mixture of topics"]
    rows = make()
    result = optimize(rows, model, max_iter=30)
    kind = result.model.posterior(rows).argmax(axis=1)
    assert len(set(zip(kind, [i % 2 for i in range(len(rows))]))) == 2
    mixes = result.model.posterior(rows, path="component_1/words")
    assert mixes.shape == (len(rows), 4)
    np.testing.assert_allclose(mixes.sum(axis=1), 1.0)


def test_a_fit_goes_on_with_the_mixes_that_it_had(tmp_path):
    """Kept rows are in the checkpoint, by global row: resumed on another grid, as undisturbed."""
    make, model = TREES["mixture of mixes"]
    whole = optimize(make(), model, max_iter=12, tol=None)
    first = copy.deepcopy(model)
    optimize(make(), first, max_iter=5, tol=None, checkpoint=tmp_path, checkpoint_every=0)

    def go_on(grid):
        from mixle_mpi.execution.asked import watch_of

        watch = watch_of(tmp_path, 0, True, None)
        return fit(make(), model, grid, max_iter=12, tol=None, cut="component_*/words" if grid.shape[1] > 1 else None,
                   watch=watch)  # fmt: skip

    for result in run_on_threads(2, 2, go_on):
        assert result.n_iter == 12
        np.testing.assert_allclose(result.history, whole.history, rtol=1e-12)


def test_the_printed_value_of_mixes_is_that_of_the_checkpoint(tmp_path):
    """D10: the likelihood of a fit with mixes is that of the topics and of the mixes that its checkpoint keeps."""
    model = ProbabilisticLatentSemanticIndexing(3, VOCABULARY, topic_word=topics_like(3))
    result = optimize(documents(), model, max_iter=7, tol=None, checkpoint=tmp_path)
    with np.load(tmp_path / "state.npz") as found:
        mixes, topics = found["rows_0"], found["theta_0"]
    np.testing.assert_array_equal(topics, result.model.topic_word)
    p = mixes @ topics
    value = (COUNTS * np.log(np.where(COUNTS > 0, p, 1.0))).sum()
    assert value == pytest.approx(result.log_likelihood, rel=1e-12)
    assert result.model.log_density(documents()).sum() >= value  # folded in, each to its likeliest mix


def test_a_large_model_is_whole_on_the_first_rank(monkeypatch, tmp_path):
    monkeypatch.setattr("mixle_mpi.execution.whole.LARGE_MODEL", 0)
    model = LatentDirichletAllocation(5, VOCABULARY, topic_prior=0.1)
    serial = optimize(documents(), model, max_iter=4, tol=None)
    for shape in ((1, 3), (2, 2)):
        first, *others = run_on_threads(*shape, lambda g: fit(documents(), model, g, max_iter=4, tol=None))
        np.testing.assert_allclose(first.model.topic_word, serial.model.topic_word, rtol=1e-10)
        assert all(result.model is None for result in others)
        assert all(result.history == first.history for result in others)
        idle = run_on_threads(2, 1, lambda g, of=first: shared_by(g, of if g.world.rank == 0 else None))
        assert idle[0].model is first.model and idle[1].model is None and idle[1].history == first.history
        first.model.save(tmp_path / str(shape))
        assert load(tmp_path / str(shape)).log_density(documents()).sum() == pytest.approx(first.log_likelihood)


@pytest.mark.parametrize("name", ["topics", "asymmetric alpha", "mixture of topics"])
def test_a_fit_goes_on_from_a_fitted_model(name, tmp_path):
    make, model = TREES[name]
    first = optimize(make(), model, max_iter=3, tol=None)
    first.model.save(tmp_path / "m")
    whole = optimize(make(), model, max_iter=5, tol=None)
    for start in (first.model, load(tmp_path / "m")):
        on = optimize(make(), start, max_iter=2, tol=None)
        np.testing.assert_allclose(on.history, whole.history[3:], rtol=1e-12)
    if name == "mixture of topics":  # a part of a model is a model
        part = first.model.components[1].fields["words"]
        docs = [row["words"] for row in make()]
        np.testing.assert_allclose(part.posterior(docs), first.model.posterior(make(), path="component_1/words"),
                                   atol=1e-12)  # fmt: skip


def shared_by(grid, result):
    """What a rank has of a result that an idle one is told of."""
    from mixle_mpi.execution.clock import Clock
    from mixle_mpi.execution.em import shared
    from mixle_mpi.execution.load import load as load_rows

    model = LatentDirichletAllocation(5, VOCABULARY, topic_prior=0.1)
    return shared(grid.world, result, load_rows(documents(), model, grid), Clock())


def test_fixed_topics_stay():
    given = topics_like(3)
    model = LatentDirichletAllocation(3, VOCABULARY, topic_word=given, learn_alpha="asymmetric", fixed=True)
    result = optimize(documents(), model, max_iter=3, tol=None)
    np.testing.assert_array_equal(result.model.topic_word, given)
    assert result.n_parameters == 0
    np.testing.assert_allclose(result.history, result.history[0], rtol=1e-15)


@pytest.mark.parametrize(("make", "text"), [
    (lambda: LatentDirichletAllocation(0), "topics = 0"),
    (lambda: LatentDirichletAllocation(2, 0), "vocabulary = 0"),
    (lambda: LatentDirichletAllocation(2, 5, alpha=0), "alpha = 0"),
    (lambda: LatentDirichletAllocation(2, 5, alpha=[1, 2, 3]), "one for each of 2 topics"),
    (lambda: LatentDirichletAllocation(2, 5, alpha="x"), "alpha = 'x'"),
    (lambda: LatentDirichletAllocation(2, 5, learn_alpha="yes"), "learn_alpha = 'yes'"),
    (lambda: LatentDirichletAllocation(2, 5, alpha=[1, 2], learn_alpha="symmetric"), "different numbers"),
    (lambda: LatentDirichletAllocation(2, 5, topic_prior=-1), "topic_prior = -1"),
    (lambda: LatentDirichletAllocation(2, 5, topic_word=np.ones((2, 5))), "topic_word[0] is not a set of prob"),
    (lambda: LatentDirichletAllocation(2, 5, topic_word=np.ones((2, 4)) / 4), "shape (2, 4), not (2, 5)"),
    (lambda: LatentDirichletAllocation(2, 5, topic_prior=1, topic_word=np.zeros((2, 5))), "topic_word[0, 0] = 0"),
    (lambda: LatentDirichletAllocation(2, topic_word=np.ones((2, 5)) / 5), "needs a vocabulary"),
    (lambda: ProbabilisticLatentSemanticIndexing(2, 5, fixed=True), "fixed=True needs topic_word"),
    (lambda: log_perplexity(Gaussian(0.0, 1.0), [1.0]), "no topic model"),
    (lambda: log_perplexity(LatentDirichletAllocation(1, 2, topic_word=[[0.5, 0.5]]), [[]]), "no document has two"),
    (lambda: coherence(LatentDirichletAllocation(1, 2, topic_word=[[0.5, 0.5]]), [[0]], words=1), "words = 1"),
    (lambda: LatentDirichletAllocation(2, 5).word_probabilities, "fit the model first"),
    (lambda: LatentDirichletAllocation(2, 5).log_density([[0]]), "absent"),
    (lambda: LatentDirichletAllocation(1, 2, topic_word=[[0.5, 0.5]]).sample(3), "cannot be sampled"),
    (lambda: optimize([[]], LatentDirichletAllocation(1, 2)), "nothing to fit"),
    (lambda: build({"type": "latent_dirichlet_allocation"}), "needs the key 'topics'"),
    (lambda: optimize([1.0], Mixture(Record(x=LatentDirichletAllocation(1, 2)), 2)), "row 0 is 1.0"),
])  # fmt: skip
def test_refusals(make, text):
    with pytest.raises((ModelError, DataError)) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize("kind", [LatentDirichletAllocation, ProbabilisticLatentSemanticIndexing])
@pytest.mark.parametrize("tiny", [1e-290, 1e-310, 5e-324, 0.0])
def test_a_word_that_all_topics_nearly_lost_is_impossible(kind, tiny):
    """In one of two components, say: counts over its normaliser would overflow, and take the other with them."""
    words = [0, 1, 2, 0, 1]
    usual = kind(2, 4, topic_word=[[0.5, 0.25, 0.25, 0.0], [0.25, 0.25, 0.25, 0.25]])
    lost = kind(2, 4, topic_word=[[0.0, 0.0, 0.0, 1.0], [tiny, 0.5, 0.5, 0.0]])
    both, docs = Mixture([usual, lost], weights=[0.5, 0.5]), [words, [0], [3]]
    np.testing.assert_array_equal(np.isfinite(lost.log_density(docs)), [False, False, True])
    assert (lost.log_density(docs)[:2] == -np.inf).all()
    np.testing.assert_allclose(both.log_density(docs)[:2], usual.log_density(docs)[:2] + np.log(0.5), rtol=1e-14)
    if kind is LatentDirichletAllocation:  # whose topics may be divided here: words are reduced one by one
        cut = run_on_threads(1, 2, lambda g: fit(docs, both, g, max_iter=1, tol=None, cut="component_*"))
        assert np.isfinite(cut[0].history).all()
