"""The linear scorer against formulas in float64."""

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from scorer_cases import training, unseen
from xmtc.errors import DataError
from xmtc.scorers.config import LinearConfig
from xmtc.scorers.gram import gram, kernel
from xmtc.scorers.linear import Linear, factorise, pruned


def dense_weights(
    columns_NP: np.ndarray, labels_NL: np.ndarray, penalty: float
) -> np.ndarray:
    gram_PP = columns_NP.T @ columns_NP + penalty * np.eye(columns_NP.shape[1])
    return np.linalg.solve(gram_PP, columns_NP.T @ labels_NL)


def test_products_are_those_of_dense_matrices() -> None:
    cases, _ = training()
    words = cases.features.words.together()
    whole = words.toarray()
    np.testing.assert_allclose(gram(words), whole.T @ whole, atol=1e-4)
    np.testing.assert_allclose(kernel(words), whole @ whole.T, atol=1e-4)
    halves = [words[:30], words[30:]]
    np.testing.assert_allclose(
        sum(gram(half) for half in halves), whole.T @ whole, atol=1e-4
    )


@pytest.mark.parametrize("documents", [20, 80])
def test_scores_are_those_of_the_closed_form(documents: int) -> None:
    """20 documents have fewer rows than columns, 80 have more: the dual form and the primal one."""
    cases, vocabulary = training(documents)
    scorer = Linear.fit(cases, LinearConfig(prune=0, penalty=0.1))
    columns = cases.features.words.together().toarray().astype(np.float64)
    weights = dense_weights(columns, cases.labels_NL.toarray(), 0.1)
    np.testing.assert_allclose(scorer.weights_WL.toarray(), weights, atol=2e-4)
    features, _ = unseen(vocabulary)
    ids = np.tile(
        np.arange(cases.labels_NL.shape[1], dtype=np.int32), (len(features), 1)
    )
    expected = features.words.together().toarray() @ weights
    np.testing.assert_allclose(scorer.score(features).at(ids), expected, atol=1e-3)


@pytest.mark.parametrize("documents", [60, 400])
def test_pairs_that_nobody_judged_are_left_out(documents: int) -> None:
    rng = np.random.default_rng(0)
    words_NV = rng.random((documents, 100)).astype(np.float32)
    words_NV /= 5 * np.linalg.norm(words_NV, axis=1, keepdims=True)
    labels_NL = rng.random((documents, 3)) < 0.3
    unjudged_NL = rng.random((documents, 3)) < 0.5
    factor = factorise(sparse.csr_array(words_NV), 0.5)
    weights_VL = factor.weights(
        sparse.csc_array(labels_NL & ~unjudged_NL), sparse.csc_array(unjudged_NL)
    )
    for label in range(3):
        judged_N = ~unjudged_NL[:, label]
        own_JV = words_NV[judged_N]
        exact_V = np.linalg.solve(
            own_JV.T @ own_JV + 0.5 * np.eye(100), own_JV.T @ labels_NL[judged_N, label]
        )
        np.testing.assert_allclose(weights_VL[:, label], exact_V, atol=2e-3)


def test_pruning_keeps_its_bound() -> None:
    weights = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    kept = pruned(weights, 0.3).toarray()
    lost = np.linalg.norm(kept.T - weights, axis=0)
    assert (lost <= 0.3 * np.linalg.norm(weights, axis=0)).all()
    assert 0.2 < (kept != 0).mean() < 0.9


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
    before, after = (
        scorer.score(features).top(3),
        Linear.load(tmp_path).score(features).top(3),
    )
    np.testing.assert_array_equal(before.label_ids_NK, after.label_ids_NK)
    np.testing.assert_array_equal(before.scores_NK, after.scores_NK)


def test_a_fit_is_the_same_twice() -> None:
    cases, _ = training()
    first, second = (Linear.fit(cases, LinearConfig()) for _ in range(2))
    np.testing.assert_array_equal(
        first.weights_WL.toarray(), second.weights_WL.toarray()
    )


def test_log_odds_are_a_change_of_units_of_the_columns() -> None:
    """Ridge over scaled columns, expressed in the unscaled ones; the log-odds by their plain formula."""
    cases, _ = training(80)
    scorer = Linear.fit(cases, LinearConfig(prune=0, penalty=0.1, weighting="log_odds"))
    words, labels = (
        cases.features.words.together().toarray().astype(np.float64),
        cases.labels_NL.toarray(),
    )
    scale = np.zeros(words.shape[1])
    for term in range(words.shape[1]):
        for label in range(labels.shape[1]):
            has, of = words[:, term] > 0, labels[:, label]
            inside, outside = (
                (has[of].sum() + 1) / (of.sum() + 2),
                (has[~of].sum() + 1) / ((~of).sum() + 2),
            )
            scale[term] = max(scale[term], abs(np.log(inside / outside)))
    scale /= np.sqrt(np.square(words * scale).sum() / len(words))
    expected = scale[:, None] * dense_weights(words * scale, labels, 0.1)
    np.testing.assert_allclose(scorer.weights_WL.toarray(), expected, atol=5e-4)


def test_too_large_a_matrix_is_refused_before_it_is_made(monkeypatch) -> None:
    monkeypatch.setattr("xmtc.scorers.linear._LARGEST", 10)
    with pytest.raises(DataError, match="most_terms"):
        Linear.fit(training(80)[0], LinearConfig())
