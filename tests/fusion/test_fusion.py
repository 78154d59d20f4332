"""Candidates and their fusion."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier

from scorer_cases import training, unseen
from xmtc.errors import CheckpointError, ConfigError
from xmtc.fusion import boosted
from xmtc.fusion.boosted import BoostedTrees
from xmtc.fusion.config import CombinationKind, FusionConfig
from xmtc.fusion.cross_fit import Arm, CrossFit
from xmtc.fusion.fusion import Fusion, candidates_of, fit_fusion
from xmtc.fusion.log_odds import LogOdds
from xmtc.fusion.logistic import Logistic, fit_logistic
from xmtc.fusion.occurrences import CO_OCCURRENCE, Occurrences
from xmtc.fusion.pairs import Pairs
from xmtc.scorers.base import DenseScored, Scored, SparseScored
from xmtc.scorers.config import LinearConfig, WordNeighboursConfig
from xmtc.scorers.predictions import SparsePredictions
from xmtc.scorers.regrouping import Regrouping


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(boosted._BOOSTING, "max_iter", 40)
    monkeypatch.setitem(boosted._BOOSTING, "learning_rate", 0.2)


def scored_twice(
    documents: int, seed: int = 0
) -> tuple[list[DenseScored], sparse.csr_array]:
    rng = np.random.default_rng(seed)
    truth = rng.random((documents, 40)) < 0.1
    scores = [
        (truth + rng.normal(size=truth.shape)).astype(np.float32) for _ in range(2)
    ]
    return [DenseScored(one) for one in scores], sparse.csr_array(truth)


COUNTS = np.linspace(0, 60, 40).astype(np.int64)
KINDS: tuple[CombinationKind, ...] = ("linear", "trees")
OCCURRENCES = Occurrences.without_pairs(COUNTS)
both_kinds = pytest.mark.parametrize("kind", KINDS)


def fusion_of(
    documents: int = 200, kind: CombinationKind = KINDS[0]
) -> tuple[Fusion, Pairs]:
    scored, gold = scored_twice(documents)
    pairs = Pairs.of(scored, 8)
    return fit_fusion(["a", "b"], pairs, gold, OCCURRENCES, kind), pairs


def test_candidates_are_the_union_and_every_scorer_scores_them() -> None:
    dense = DenseScored(np.array([[0.9, 0.1, 0.5, 0.0]], np.float32))
    rare = SparseScored(sparse.csr_array(np.array([[0, 0, 0.3, 0.7]], np.float32)))
    pairs = Pairs.of([dense, rare], 2)
    assert pairs.label_ids_NK.tolist() == [[0, 2, 3]]
    np.testing.assert_allclose(
        pairs.scores_SNK[:, 0], [[0.9, 0.5, 0.0], [0.0, 0.3, 0.7]]
    )


def test_both_kinds_of_scores_give_the_same_candidates() -> None:
    scores = np.random.default_rng(0).random((5, 30)).astype(np.float32)
    dense, rare = DenseScored(scores), SparseScored(sparse.csr_array(scores))
    np.testing.assert_array_equal(dense.top(7).label_ids_NK, rare.top(7).label_ids_NK)
    ids = np.array([[3, -1]] * 5, np.int32)
    np.testing.assert_array_equal(dense.at(ids), rare.at(ids))


@both_kinds
def test_shares_sum_to_the_logit(kind: CombinationKind) -> None:
    fusion, pairs = fusion_of(kind=kind)
    shares, used = fusion.shares(pairs), pairs.used
    assert len(shares) == 4
    np.testing.assert_allclose(
        shares.sum(axis=0)[used], fusion.logits(pairs)[used], atol=1e-6
    )
    assert (np.abs(shares[:2]).max(axis=(1, 2)) > 0.1).all()


def test_the_linear_logit_by_hand() -> None:
    fusion, pairs = fusion_of()
    assert isinstance(fusion.combination, Logistic)
    inputs, bins = fusion.inputs(pairs), fusion.combination.bin_L[pairs.label_ids_NK]
    by_hand = np.einsum("xnk,nkx->nk", inputs, fusion.combination.coefficients_GX[bins])
    np.testing.assert_allclose(
        by_hand[pairs.used], fusion.logits(pairs)[pairs.used], atol=1e-6
    )


def test_trees_are_those_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    fit = HistGradientBoostingClassifier.fit
    monkeypatch.setattr(
        HistGradientBoostingClassifier,
        "fit",
        lambda self, *data, **more: made.append(fit(self, *data, **more)) or made[-1],
    )
    fusion, pairs = fusion_of(400, "trees")
    inputs_PX = fusion.inputs(pairs)[:-1, pairs.used].T
    np.testing.assert_allclose(
        fusion.logits(pairs)[pairs.used],
        made[0].decision_function(inputs_PX),
        atol=1e-9,
    )


def test_trees_that_are_read_wrongly_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = BoostedTrees._of
    monkeypatch.setattr(
        BoostedTrees, "_of", lambda booster: replace(read(booster), start_1=np.ones(1))
    )
    with pytest.raises(ConfigError, match=r"model\.fusion\.kind"):
        fusion_of(kind="trees")


@pytest.mark.parametrize("agreement", [False, True])
def test_the_better_kind_is_chosen(agreement: bool) -> None:
    """Trees win where a label is right only if both scorers agree, and logistic regression where they simply add up."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 400, 40)).astype(np.float32)
    chance = (
        expit(8 * (scores > 0).all(axis=0) - 4)
        if agreement
        else expit(2 * scores.sum(axis=0) - 2)
    )
    gold = sparse.csr_array(rng.random(chance.shape) < chance)
    pairs = Pairs(np.tile(np.arange(40, dtype=np.int32), (400, 1)), scores)
    cross_fit = CrossFit(pairs, gold, OCCURRENCES, candidates=40)
    fusion, _ = cross_fit.everything(["a", "b"], FusionConfig())
    assert fusion.combination.kind == ("trees" if agreement else "linear")


@both_kinds
def test_fused_scores_are_better_than_either_and_are_probabilities(
    kind: CombinationKind,
) -> None:
    fusion, _ = fusion_of(800, kind)
    scored, gold = scored_twice(400, seed=1)
    pairs = Pairs.of(scored, 8)
    fused = fusion.fuse(pairs)

    def precision(ids: np.ndarray) -> float:
        return float(np.mean([gold[row, best] for row, best in enumerate(ids[:, 0])]))

    assert precision(fused.label_ids_NK) > max(
        precision(one.top(1).label_ids_NK) for one in scored
    )
    right = np.array(
        [
            [gold[row, label] for label in ids]
            for row, ids in enumerate(fused.label_ids_NK[:, :8])
        ]
    )
    assert fused.scores_NK[:, :8].mean() == pytest.approx(right.mean(), abs=0.03)
    assert (np.diff(fused.scores_NK, axis=1) <= 0).all()


def labels_in_couples(documents: int, seed: int) -> tuple[Pairs, sparse.csr_array]:
    """One noisy scorer of 40 labels; 2 · i and 2 · i + 1 are always together, and only the even one can be seen."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(rng.random((documents, 20)) < 0.1, 2, axis=1)
    scores = rng.normal(size=truth.shape)
    scores[:, ::2] += 3 * truth[:, ::2]
    ids = np.tile(np.arange(40, dtype=np.int32), (documents, 1))
    return Pairs(ids, scores.astype(np.float32)[None]), sparse.csr_array(truth)


def fusion_of_couples(
    kind: CombinationKind, *, co_occurrence: bool = True
) -> tuple[Fusion, Pairs, sparse.csr_array]:
    pairs, gold = labels_in_couples(600, seed=0)
    cross_fit = CrossFit(pairs, gold, Occurrences.of(gold), candidates=40)
    config = FusionConfig(kind=kind, co_occurrence=co_occurrence)
    fusion, _ = cross_fit.everything(["a"], config)
    return fusion, *labels_in_couples(300, seed=1)


def loss(fusion: Fusion, pairs: Pairs, gold: sparse.csr_array) -> float:
    logits = fusion.logits(pairs)
    return float(np.logaddexp(0, np.where(gold.toarray(), -logits, logits)).mean())


@both_kinds
def test_labels_that_occur_together_support_each_other(kind: CombinationKind) -> None:
    fusion, pairs, gold = fusion_of_couples(kind)
    plain, *_ = fusion_of_couples(kind, co_occurrence=False)
    assert fusion.names == ("a", CO_OCCURRENCE)
    assert plain.names == ("a",)
    assert loss(fusion, pairs, gold) < 0.7 * loss(plain, pairs, gold)
    shares = fusion.shares(pairs)
    np.testing.assert_allclose(shares.sum(axis=0), fusion.logits(pairs), atol=1e-6)
    assert np.abs(shares[1]).max() > 1


@both_kinds
def test_a_fusion_with_co_occurrence_is_saved_extended_and_regrouped(
    tmp_path: Path, kind: CombinationKind
) -> None:
    fusion, pairs, _ = fusion_of_couples(kind)
    fusion.save(tmp_path)
    loaded = Fusion.load(tmp_path)
    np.testing.assert_array_equal(loaded.logits(pairs), fusion.logits(pairs))
    np.testing.assert_allclose(
        loaded.extended(3).logits(pairs), fusion.logits(pairs), atol=1e-6
    )
    same = loaded.regrouped(Regrouping.without(40, []), fusion.counts_L)
    np.testing.assert_allclose(same.logits(pairs), fusion.logits(pairs), atol=1e-6)
    shutil.rmtree(tmp_path / "first")
    with pytest.raises(CheckpointError, match=r"first/fusion\.json"):
        Fusion.load(tmp_path)


@both_kinds
def test_of_two_exclusive_labels_the_better_one_is_right_as_often_as_its_probability_says(
    kind: CombinationKind,
) -> None:
    rng = np.random.default_rng(0)
    truth_N = rng.random(4000) < 0.5
    sides_NL = np.stack([truth_N, ~truth_N], axis=1)
    scored = [
        DenseScored(
            (sides_NL + 0.8 * rng.normal(size=sides_NL.shape)).astype(np.float32)
        )
        for _ in range(2)
    ]
    pairs, gold = Pairs.of(scored, 2), sparse.csr_array(sides_NL)
    occurrences = Occurrences.without_pairs(np.array([2000, 2000]))
    found = fused(
        CrossFit(pairs, gold, occurrences, candidates=2),
        Arm(["a", "b"], [0, 1], kind),
        exclusive=True,
    )
    np.testing.assert_allclose(found.scores_NK.sum(1), 1, atol=1e-5)
    right_N = sides_NL[np.arange(4000), found.label_ids_NK[:, 0]]
    assert 0.8 < right_N.mean() < 0.95
    assert found.scores_NK[:, 0].mean() == pytest.approx(right_N.mean(), abs=0.02)


def fused(
    cross_fit: CrossFit, arm: Arm, *, exclusive: bool = False
) -> SparsePredictions:
    (logits_NK,) = cross_fit.logits([arm])
    return candidates_of(cross_fit.pairs, logits_NK, exclusive=exclusive)


def test_fusions_of_several_scorers_are_those_that_each_half_gives_alone() -> None:
    scored, gold = scored_twice(300)
    pairs, occurrences = Pairs.of(scored, 8), Occurrences.of(gold)
    arms = [Arm(["a", "b"], [0, 1], "trees"), Arm(["b"], [1], "linear")]
    cross_fit = CrossFit(pairs, gold, occurrences, candidates=8)
    for arm in arms:
        found = fused(cross_fit, arm)
        used = Pairs.of([scored[place] for place in arm.places], 8)
        for half in (0, 1):
            learned, judged = np.arange(1 - half, 300, 2), np.arange(half, 300, 2)
            wanted = fit_fusion(
                arm.names, used.take(learned), gold[learned], occurrences, arm.kind
            )
            alone = wanted.fuse(used.take(judged))
            width = alone.label_ids_NK.shape[1]
            of_half = found.take(judged)
            assert (of_half.label_ids_NK[:, width:] == -1).all()
            of_half = of_half.top(width)
            np.testing.assert_array_equal(of_half.label_ids_NK, alone.label_ids_NK)
            np.testing.assert_array_equal(of_half.scores_NK, alone.scores_NK)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_some_scorers_propose_is_what_they_propose_without_the_others(
    data: st.DataObject,
) -> None:
    """Sparse scorers that do not know every label, and dense ones."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    labels = data.draw(st.integers(3, 30))
    k = data.draw(st.integers(1, 6))
    scored: list[Scored] = []
    for is_dense in data.draw(st.lists(st.booleans(), min_size=2, max_size=4)):
        scores_NL = rng.random((7, labels), np.float32) + 0.1
        if is_dense:
            scored.append(DenseScored(scores_NL))
        else:
            scores_NL *= rng.random((7, labels)) < 0.4
            scored.append(SparseScored(sparse.csr_array(scores_NL)))
    numbers = st.integers(0, len(scored) - 1)
    chosen = data.draw(st.lists(numbers, min_size=1, unique=True))
    part = Pairs.of(scored, k).only(chosen, k)
    alone = Pairs.of([scored[place] for place in chosen], k)
    for row in range(7):
        np.testing.assert_array_equal(
            part.label_ids_NK[row, part.used[row]],
            alone.label_ids_NK[row, alone.used[row]],
        )
        np.testing.assert_array_equal(
            part.scores_SNK[:, row, part.used[row]],
            alone.scores_SNK[:, row, alone.used[row]],
        )


def test_trees_of_a_sample_of_the_pairs_are_as_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    inputs = np.concatenate(
        [rng.normal(size=(20_000, 3)), np.ones((20_000, 1))], axis=1
    )
    chance = expit(3 * inputs[:, 0] + 2 * (inputs[:, 1] > 0) - 5)
    right = rng.random(20_000) < chance
    whole = BoostedTrees.fit(inputs, right, chance)
    fits: list[int] = []
    fit = HistGradientBoostingClassifier.fit
    monkeypatch.setattr(boosted, "MAX_PAIRS", 4_000)
    monkeypatch.setattr(
        HistGradientBoostingClassifier,
        "fit",
        lambda self, x, y, **more: fits.append(len(x)) or fit(self, x, y, **more),
    )
    sampled = BoostedTrees.fit(inputs, right, chance)
    assert fits[0] < 4_000 + right.sum()

    def error(trees: BoostedTrees) -> float:
        logits = trees.logits(inputs.T[:, None], np.zeros((1, 20_000), np.int32))[0]
        return float((np.logaddexp(0, logits) - chance * logits).mean())

    assert error(sampled) < error(whole) + 0.005
    assert expit(
        sampled.logits(inputs.T[:, None], np.zeros((1, 20_000), np.int32))
    ).mean() == pytest.approx(chance.mean(), rel=0.05)


@pytest.mark.parametrize("exclusive", [False, True])
def test_labels_are_ordered_by_logits_also_where_their_scores_are_equal(
    monkeypatch, exclusive
) -> None:
    logits_NK = np.array(
        [[20.0, 30.0, 40.0], [9.0, 50.0, 99.0], [7.0, 8.0, 9.0], [99.0] * 3]
    )
    monkeypatch.setattr(Fusion, "logits", lambda self, pairs: logits_NK)
    ids_NK = np.array([[4, 5, 6], [4, 5, -1], [4, 5, 6], [-1, -1, -1]], np.int32)
    found = fusion_of()[0].fuse(
        Pairs(ids_NK, np.zeros((2, 4, 3), np.float32)), exclusive=exclusive
    )
    assert found.label_ids_NK.tolist() == [
        [6, 5, 4],
        [5, 4, -1],
        [6, 5, 4],
        [-1, -1, -1],
    ]
    assert len(set(found.scores_NK[0])) == 1, (
        "float32 does not distinguish these probabilities"
    )
    probabilities_K = expit(logits_NK[2])
    wanted_K = probabilities_K / probabilities_K.sum() if exclusive else probabilities_K
    np.testing.assert_allclose(found.scores_NK[2], wanted_K[::-1], rtol=1e-6)
    assert found.scores_NK[3].tolist() == [0, 0, 0]
    if exclusive:
        np.testing.assert_allclose(found.scores_NK.sum(1), [1, 1, 1, 0], atol=1e-6)


def test_a_whole_document_does_not_depend_on_the_others() -> None:
    fusion, pairs = fusion_of()
    whole, part = fusion.fuse(pairs), fusion.fuse(pairs.take(slice(3, 5)))
    np.testing.assert_array_equal(whole.label_ids_NK[3:5], part.label_ids_NK)
    np.testing.assert_array_equal(whole.scores_NK[3:5], part.scores_NK)


def test_maps_are_monotone_and_follow_the_frequencies() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random(20_000)
    right = rng.random(20_000) < expit(6 * scores - 3)
    to_log_odds = LogOdds.fit(scores, right)
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


@both_kinds
def test_saved_and_loaded(tmp_path: Path, kind: CombinationKind) -> None:
    fusion, pairs = fusion_of(kind=kind)
    fusion.save(tmp_path)
    np.testing.assert_array_equal(
        Fusion.load(tmp_path).logits(pairs), fusion.logits(pairs)
    )


def test_many_scorers_that_are_fused_by_a_dozen_documents_are_no_worse_than_one() -> (
    None
):
    rng = np.random.default_rng(3)
    gold = rng.random((312, 40)) < 0.1
    common = gold + rng.normal(size=gold.shape)  # what all of them read
    scored = [
        DenseScored((common + rng.normal(size=gold.shape) / 2).astype(np.float32))
        for _ in range(9)
    ]
    pairs, losses = Pairs.of(scored, 20), []
    for some in ([0], list(range(9))):
        of_some = replace(pairs, scores_SNK=pairs.scores_SNK[some])
        few, rest = of_some.take(slice(12)), of_some.take(slice(12, None))
        fusion = fit_fusion(
            [str(n) for n in some],
            few,
            sparse.csr_array(gold[:12]),
            OCCURRENCES,
            KINDS[0],
        )
        signs = np.where(rest.right(sparse.csr_array(gold[12:])), -1, 1)[rest.used]
        losses.append(np.logaddexp(0, signs * fusion.logits(rest)[rest.used]).mean())
    assert losses[1] < losses[0]


@both_kinds
@pytest.mark.parametrize("right", [False, True])
def test_equal_outcomes_give_one_cautious_probability(
    kind: CombinationKind, *, right: bool
) -> None:
    scored, gold = scored_twice(10)
    pairs = Pairs.of(scored, 5)
    everything = sparse.csr_array(np.full(gold.shape, right))
    fusion = fit_fusion(["a", "b"], pairs, everything, OCCURRENCES, kind)
    wrong = 0.5 / (pairs.used.sum() + 1)  # half a pseudo-observation of each outcome
    np.testing.assert_allclose(
        expit(fusion.logits(pairs))[pairs.used],
        1 - wrong if right else wrong,
        rtol=1e-3,
    )


@pytest.mark.parametrize("documents", [1, 2, 3])
def test_a_dev_split_that_is_too_small_to_halve_is_fused_as_a_whole(
    documents: int,
) -> None:
    scored, gold = scored_twice(10)
    pairs, few = Pairs.of(scored, 5).take(np.arange(documents)), gold[:documents]
    arm = Arm(["a", "b"], [0, 1], "linear")
    found = fused(CrossFit(pairs, few, OCCURRENCES, candidates=5), arm)
    assert len(found.label_ids_NK) == documents
    assert np.isfinite(found.scores_NK).all()


def test_the_fused_scorers_of_a_corpus_find_its_labels() -> None:
    cases, vocabulary = training(120)
    scorers = [
        settings.fit(cases)
        for settings in (LinearConfig(), WordNeighboursConfig(neighbours=10))
    ]
    held_out, right = unseen(vocabulary, documents=100)
    pairs = Pairs.of([scorer.score(held_out) for scorer in scorers], 5)
    fusion = fit_fusion(
        ["linear", "words"],
        pairs,
        right,
        Occurrences.of(cases.labels_NL),
        "linear",
    )
    features, gold = unseen(vocabulary, documents=60)
    fused = fusion.fuse(Pairs.of([scorer.score(features) for scorer in scorers], 5))
    assert (
        np.mean([gold[row, ids[0]] for row, ids in enumerate(fused.label_ids_NK)]) > 0.7
    )
