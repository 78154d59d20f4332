"""Candidates and their fusion."""

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from scorer_cases import training, unseen

from xmtc.errors import DataError
from xmtc.scorers.base import DenseScored, SparseScored
from xmtc.scorers.calibrate import LogOdds
from xmtc.scorers.candidates import Pairs
from xmtc.scorers.config import FusionConfig, LinearConfig, WordNeighboursConfig
from xmtc.scorers.fusion import Fusion, fit_fusion
from xmtc.scorers.logistic import fit_logistic


def scored_twice(documents: int, seed: int = 0) -> tuple[list[DenseScored], sparse.csr_array]:
    rng = np.random.default_rng(seed)
    truth = rng.random((documents, 40)) < 0.1
    scores = [(truth + rng.normal(size=truth.shape)).astype(np.float32) for _ in range(2)]
    return [DenseScored(one) for one in scores], sparse.csr_array(truth)


def fusion_of(documents: int = 200) -> tuple[Fusion, Pairs]:
    scored, gold = scored_twice(documents)
    pairs = Pairs.of(scored, 8)
    counts = np.linspace(0, 60, 40).astype(np.int64)
    return fit_fusion(["a", "b"], pairs, gold, counts, FusionConfig()), pairs


def test_candidates_are_the_union_and_every_scorer_scores_them() -> None:
    dense = DenseScored(np.array([[0.9, 0.1, 0.5, 0.0]], np.float32))
    rare = SparseScored(sparse.csr_array(np.array([[0, 0, 0.3, 0.7]], np.float32)))
    pairs = Pairs.of([dense, rare], 2)
    assert pairs.label_ids_NK.tolist() == [[0, 2, 3]]
    np.testing.assert_allclose(pairs.scores_SNK[:, 0], [[0.9, 0.5, 0.0], [0.0, 0.3, 0.7]])


def test_both_kinds_of_scores_give_the_same_candidates() -> None:
    scores = np.random.default_rng(0).random((5, 30)).astype(np.float32)
    dense, rare = DenseScored(scores), SparseScored(sparse.csr_array(scores))
    np.testing.assert_array_equal(dense.top(7).label_ids_NK, rare.top(7).label_ids_NK)
    ids = np.array([[3, -1]] * 5, np.int32)
    np.testing.assert_array_equal(dense.at(ids), rare.at(ids))


def test_shares_sum_to_the_logit() -> None:
    fusion, pairs = fusion_of()
    shares, used = fusion.shares(pairs), pairs.used
    assert len(shares) == 4
    np.testing.assert_allclose(shares.sum(axis=0)[used], fusion.logits(pairs)[used], atol=1e-6)
    inputs, bins = fusion.inputs(pairs), fusion.bin_L[pairs.label_ids_NK]
    by_hand = np.einsum("xnk,nkx->nk", inputs, fusion.coefficients_GX[bins])
    np.testing.assert_allclose(by_hand[used], fusion.logits(pairs)[used], atol=1e-6)


def test_fused_scores_are_better_than_either_and_are_probabilities() -> None:
    fusion, _ = fusion_of(400)
    scored, gold = scored_twice(400, seed=1)
    pairs = Pairs.of(scored, 8)
    fused = fusion.fuse(pairs)

    def precision(ids: np.ndarray) -> float:
        return float(np.mean([gold[row, best] for row, best in enumerate(ids[:, 0])]))

    assert precision(fused.label_ids_NK) > max(precision(one.top(1).label_ids_NK) for one in scored)
    right = np.array([[gold[row, label] for label in ids] for row, ids in enumerate(fused.label_ids_NK[:, :8])])
    assert fused.scores_NK[:, :8].mean() == pytest.approx(right.mean(), abs=0.03)
    assert (np.diff(fused.scores_NK, axis=1) <= 0).all()


def test_a_whole_document_does_not_depend_on_the_others() -> None:
    fusion, pairs = fusion_of()
    whole, part = fusion.fuse(pairs), fusion.fuse(pairs.take(slice(3, 5)))
    np.testing.assert_array_equal(whole.label_ids_NK[3:5], part.label_ids_NK)
    np.testing.assert_array_equal(whole.scores_NK[3:5], part.scores_NK)


def test_maps_are_monotone_and_follow_the_frequencies() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(20_000)
    right = rng.random(20_000) < expit(6 * scores - 3)
    to_log_odds = LogOdds.fit(scores, right, 20)
    assert (np.diff(to_log_odds.log_odds_Q) >= 0).all()
    middle = np.linspace(0.1, 0.9, 9)
    np.testing.assert_allclose(to_log_odds(middle), 6 * middle - 3, atol=0.4)


def test_logistic_regression_finds_the_minimum() -> None:
    rng = np.random.default_rng(0)
    inputs = np.concatenate([rng.normal(size=(500, 3)), np.ones((500, 1))], axis=1)
    right = rng.random(500) < expit(inputs @ np.array([1.0, -2.0, 0.5, 0.3]))
    beta, spread = fit_logistic(inputs, right, 2.0), inputs.std(axis=0)
    gradient = inputs.T @ (expit(inputs @ beta) - right) + 2.0 * spread**2 * beta
    np.testing.assert_allclose(gradient[:3], 0, atol=1e-4)
    towards = fit_logistic(inputs, right, 1e9, beta + 1)
    np.testing.assert_allclose(towards, beta + 1, atol=1e-4)


def test_saved_and_loaded(tmp_path: Path) -> None:
    fusion, pairs = fusion_of()
    fusion.save(tmp_path)
    np.testing.assert_array_equal(Fusion.load(tmp_path).logits(pairs), fusion.logits(pairs))


def test_nothing_right_is_refused() -> None:
    scored, gold = scored_twice(10)
    nothing = sparse.csr_array(gold.shape, dtype=np.bool_)
    with pytest.raises(DataError, match="shares labels with train"):
        fit_fusion(["a", "b"], Pairs.of(scored, 5), nothing, np.ones(40, np.int64), FusionConfig())


def test_the_fused_scorers_of_a_corpus_find_its_labels() -> None:
    cases, vocabulary = training(120)
    scorers = [settings.fit(cases) for settings in (LinearConfig(), WordNeighboursConfig(neighbours=(10,)))]
    held_out, right = unseen(vocabulary, documents=100)
    pairs = Pairs.of([scorer.score(held_out) for scorer in scorers], 5)
    fusion = fit_fusion(["linear", "words"], pairs, right, cases.train_counts, FusionConfig())
    features, gold = unseen(vocabulary, documents=60)
    fused = fusion.fuse(Pairs.of([scorer.score(features) for scorer in scorers], 5))
    assert np.mean([gold[row, ids[0]] for row, ids in enumerate(fused.label_ids_NK)]) > 0.7
