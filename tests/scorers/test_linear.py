"""The linear scorer against formulas in float64, and its leave-one-out scores against refits."""

from pathlib import Path

import numpy as np
import pytest

from scorer_cases import training, unseen
from xmtc.errors import DataError
from xmtc.scorers.base import Training
from xmtc.scorers.config import LinearConfig
from xmtc.scorers.factor import factorise, leave_one_out
from xmtc.scorers.gram import gram, kernel
from xmtc.scorers.linear import Linear, pruned


def without(cases: Training, row: int) -> Training:
    kept = np.delete(np.arange(len(cases)), row)
    return Training(cases.features.take(kept), cases.labels_NL[kept], cases.texts_N[kept], cases.names)


def dense_weights(columns_NP: np.ndarray, labels_NL: np.ndarray, penalty: float) -> np.ndarray:
    gram_PP = columns_NP.T @ columns_NP + penalty * np.eye(columns_NP.shape[1])
    return np.linalg.solve(gram_PP, columns_NP.T @ labels_NL)


def test_products_are_those_of_dense_matrices() -> None:
    cases, _ = training()
    words = cases.features.words.together()
    whole = words.toarray()
    np.testing.assert_allclose(gram(words), whole.T @ whole, atol=1e-4)
    np.testing.assert_allclose(kernel(words), whole @ whole.T, atol=1e-4)
    halves = [words[:30], words[30:]]
    np.testing.assert_allclose(sum(gram(half) for half in halves), whole.T @ whole, atol=1e-4)


@pytest.mark.parametrize("documents", [20, 80])
def test_scores_are_those_of_the_closed_form(documents: int) -> None:
    """20 documents have fewer rows than columns, 80 have more: the dual form and the primal one."""
    cases, vocabulary = training(documents)
    scorer = Linear.fit(cases, LinearConfig(prune=0, penalties=(0.1,)))
    columns = cases.features.words.together().toarray().astype(np.float64)
    weights = dense_weights(columns, cases.labels_NL.toarray(), 0.1)
    np.testing.assert_allclose(scorer.weights_WL.toarray(), weights, atol=2e-4)
    features, _ = unseen(vocabulary)
    ids = np.tile(np.arange(cases.labels_NL.shape[1], dtype=np.int32), (len(features), 1))
    expected = features.words.together().toarray() @ weights
    np.testing.assert_allclose(scorer.score(features).at(ids), expected, atol=1e-3)


@pytest.mark.parametrize("documents", [20, 60])
def test_leave_one_out_is_a_refit_without_the_document(documents: int) -> None:
    cases, _ = training(documents)
    config = LinearConfig(prune=0, penalties=(0.3,))
    rows = np.array([0, 3, 11])
    scorer = Linear.fit(cases, config)
    (factor,) = factorise(cases.features.words.together(), config.penalties)
    ids = np.tile(np.arange(cases.labels_NL.shape[1], dtype=np.int32), (len(rows), 1))
    fitted = scorer.score(cases.features.take(rows)).at(ids)
    found = leave_one_out(fitted, cases.labels_NL[rows].toarray(), factor.leverages(rows)[:, None])
    for place, row in enumerate(rows):
        refit = Linear.fit(without(cases, int(row)), config)
        expected = refit.score(cases.features.take(np.array([row]))).at(ids[:1])
        np.testing.assert_allclose(found[place], expected[0], atol=1e-3)


def test_pruning_keeps_its_bound() -> None:
    weights = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    kept = pruned(weights, 0.3).toarray()
    lost = np.linalg.norm(kept.T - weights, axis=0)
    assert (lost <= 0.3 * np.linalg.norm(weights, axis=0)).all()
    assert 0.2 < (kept != 0).mean() < 0.9


def test_each_bin_takes_the_penalty_that_ranks_best(monkeypatch) -> None:
    monkeypatch.setattr("xmtc.scorers.linear._BINS", ("1-1000",))
    cases, _ = training(80)
    both = Linear.fit(cases, LinearConfig(penalties=(0.05, 1e6)))
    alone = Linear.fit(cases, LinearConfig(penalties=(0.05,)))
    np.testing.assert_allclose(both.weights_WL.toarray(), alone.weights_WL.toarray(), atol=1e-6)


def test_two_penalties_in_use_give_each_label_its_own() -> None:
    cases, _ = training(80)
    single = [Linear.fit(cases, LinearConfig(prune=0, penalties=(p,))) for p in (0.05, 5.0)]
    factors = factorise(cases.features.words.together(), (0.05, 5.0))
    from xmtc.scorers.linear import solve_labels

    which = np.array([0, 1, 0, 0, 1, 1, 0], np.int8)
    ((_, weights),) = solve_labels(cases.labels_NL, factors, which, 0.0)
    for label, index in enumerate(which):
        expected = single[index].weights_WL[:, [label]].toarray().ravel()
        np.testing.assert_allclose(weights.toarray()[label], expected, atol=1e-5)


def test_contributions_sum_to_the_score() -> None:
    cases, vocabulary = training()
    scorer = Linear.fit(cases, LinearConfig())
    features, _ = unseen(vocabulary, documents=1)
    (reasons,) = scorer.contributions(features, [2])
    score = scorer.score(features).at(np.array([[2]], np.int32))[0, 0]
    assert sum(reason.value for reason in reasons) == pytest.approx(score, abs=1e-5)
    assert {reason.source for reason in reasons} == {"term"}


def test_saved_and_loaded(tmp_path: Path) -> None:
    cases, vocabulary = training()
    scorer = Linear.fit(cases, LinearConfig())
    scorer.save(tmp_path)
    features, _ = unseen(vocabulary)
    before, after = scorer.score(features).top(3), Linear.load(tmp_path).score(features).top(3)
    np.testing.assert_array_equal(before.label_ids_NK, after.label_ids_NK)
    np.testing.assert_array_equal(before.scores_NK, after.scores_NK)


def test_a_fit_is_the_same_twice() -> None:
    cases, _ = training()
    first, second = (Linear.fit(cases, LinearConfig(penalties=(0.1, 1.0))) for _ in range(2))
    np.testing.assert_array_equal(first.weights_WL.toarray(), second.weights_WL.toarray())


def test_log_odds_are_a_change_of_units_of_the_columns() -> None:
    """Ridge over scaled columns, expressed in the unscaled ones; the log-odds by their plain formula."""
    cases, _ = training(80)
    scorer = Linear.fit(cases, LinearConfig(prune=0, penalties=(0.1,), weighting="log_odds"))
    words, labels = cases.features.words.together().toarray().astype(np.float64), cases.labels_NL.toarray()
    scale = np.zeros(words.shape[1])
    for term in range(words.shape[1]):
        for label in range(labels.shape[1]):
            has, of = words[:, term] > 0, labels[:, label]
            inside, outside = (has[of].sum() + 1) / (of.sum() + 2), (has[~of].sum() + 1) / ((~of).sum() + 2)
            scale[term] = max(scale[term], abs(np.log(inside / outside)))
    scale /= np.sqrt(np.square(words * scale).sum() / len(words))
    expected = scale[:, None] * dense_weights(words * scale, labels, 0.1)
    np.testing.assert_allclose(scorer.weights_WL.toarray(), expected, atol=5e-4)


def test_too_large_a_matrix_is_refused_before_it_is_made(monkeypatch) -> None:
    monkeypatch.setattr("xmtc.scorers.factor._LARGEST", 10)
    with pytest.raises(DataError, match="most_terms"):
        Linear.fit(training(80)[0], LinearConfig())
