"""Decisions are the best there are for what their rule names."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.metrics import f1_score

from evaluation_cases import gold_and_scores, label_table, whole
from xmtc.artefact.decide import tuned_decision
from xmtc.errors import CheckpointError, ConfigError
from xmtc.evaluate.decisions import HalfOutcomes, compare_rules, outcomes_of
from xmtc.fusion.config import RULE
from xmtc.fusion.decision import BEST, Decision, Outcomes
from xmtc.scorers.predictions import SparsePredictions
from xmtc.scorers.regrouping import Regrouping


def decided(
    predictions: SparsePredictions,
    gold,
    rule="micro",
    *,
    calibrated=False,
    counts_L=None,
) -> Decision:
    return outcomes_of(predictions, gold, calibrated=calibrated).tuned(rule, counts_L)


@pytest.mark.parametrize("digits", [1, 2, 7])
def test_the_threshold_of_micro_has_the_greatest_micro_f1(digits):
    gold, scores = gold_and_scores(documents=80, labels=10)
    scores = np.round(scores, digits)
    found = decided(whole(scores), gold).threshold
    truth = gold.toarray()
    best = max(f1_score(truth, scores >= t, average="micro") for t in np.unique(scores))
    assert f1_score(
        truth, scores >= np.float32(found), average="micro"
    ) == pytest.approx(best)


def test_thresholds_of_labels_choose_by_label():
    ids_NK, scores_NK = (
        np.array([[1, 0, -1]], np.int32),
        np.array([[0.6, 0.5, 0.0]], np.float32),
    )
    chosen = Decision(0.5, np.array([0.4, 0.7], np.float32)).chosen(ids_NK, scores_NK)
    assert chosen.tolist() == [[False, True, False]]


def test_without_any_right_prediction_the_threshold_is_a_half():
    predictions = SparsePredictions(
        np.array([[1]], np.int32), np.array([[0.6]], np.float32)
    )
    gold = (gold_and_scores(documents=1, labels=2)[0] * 0).astype(bool)
    for calibrated in (False, True):
        assert decided(
            predictions, gold, calibrated=calibrated
        ).threshold == pytest.approx(0.6 if calibrated else 0.5)
    assert decided(predictions, gold, "macro").limit([0, 1]).tolist() == [0.5, 0.5]


def calibrated_documents(
    documents: int, seed: int
) -> tuple[SparsePredictions, sparse.csr_array]:
    """Ten labels a document whose scores are the probabilities of their being right."""
    generator = np.random.default_rng(seed)
    scores_NK = -np.sort(-generator.beta(0.3, 1.0, (documents, 10)).astype(np.float32))
    gold_NL = sparse.csr_array(generator.random((documents, 10)) < scores_NK)
    return SparsePredictions(
        np.tile(np.arange(10, dtype=np.int32), (documents, 1)), scores_NK
    ), gold_NL


def test_with_probabilities_a_prediction_counts_by_the_mean_of_label_and_score():
    predictions, gold_NL = calibrated_documents(20, seed=1)
    scores, hits = predictions.scores_NK.ravel(), gold_NL.toarray().ravel()
    right, all_right = (hits + scores) / 2, (hits.sum() + scores.sum()) / 2
    f1 = [
        2 * right[scores >= t].sum() / ((scores >= t).sum() + all_right) for t in scores
    ]
    assert decided(predictions, gold_NL, calibrated=True).threshold == pytest.approx(
        scores[np.argmax(f1)]
    )


def test_with_probabilities_small_samples_agree_better():
    samples = [calibrated_documents(40, seed=seed) for seed in range(60)]
    varying = [
        np.std([decided(*one, calibrated=on).threshold for one in samples])
        for on in (False, True)
    ]
    assert varying[1] < 0.7 * varying[0]
    large = calibrated_documents(20_000, seed=99)
    both = [decided(*large, calibrated=on).threshold for on in (False, True)]
    assert both[0] == pytest.approx(both[1], abs=0.03)


def test_with_probabilities_labels_without_a_prediction_count_as_missed():
    predictions, gold_NL = calibrated_documents(20_000, seed=99)
    missed_NL = sparse.csr_array(np.ones((20_000, 5), bool))
    gold_NL = sparse.csr_array(sparse.hstack([gold_NL, missed_NL]))
    both = [
        decided(predictions, gold_NL, calibrated=on).threshold for on in (False, True)
    ]
    assert both[0] == pytest.approx(both[1], abs=0.03)


def test_macro_is_better_where_labels_differ_and_leans_on_the_bin_where_a_label_is_rare():
    generator = np.random.default_rng(5)
    rates_L = np.repeat([0.5, 0.02], [10, 40])
    truth_NL = generator.random((400, 50)) < rates_L
    scores_NL = 1 / (
        1
        + np.exp(
            -(3 * truth_NL - 2 + generator.normal(size=(400, 50)) + np.log(rates_L))
        )
    )
    gold, predictions = sparse.csr_array(truth_NL), whole(scores_NL.astype(np.float32))
    counts_L = (rates_L * 400).astype(np.int64)
    micro, macro = (
        decided(predictions, gold, rule, counts_L=counts_L)
        for rule in ("micro", "macro")
    )
    values = [
        f1_score(truth_NL, scores_NL >= one.limit(np.arange(50)), average="macro")
        for one in (micro, macro)
    ]
    assert values[1] > values[0] + 0.05
    rare_L = macro.limit(np.arange(10, 50))
    own_L = [
        max(
            scores[truth],
            key=lambda t, s=scores, y=truth: (
                2 * y[s >= t].sum() / ((s >= t).sum() + y.sum())
            ),
            default=1,
        )
        for scores, truth in zip(scores_NL[:, 10:].T, truth_NL[:, 10:].T, strict=True)
    ]
    assert np.std(rare_L) < 0.7 * np.std(own_L)


@pytest.mark.parametrize("precision", [0.6, 0.8, 0.95])
def test_every_bin_has_the_precision_asked_for_and_no_lower_threshold_has_it(precision):
    predictions, gold_NL = calibrated_documents(3_000, seed=3)
    counts_L = np.repeat([3, 100], 5)
    decision = decided(
        predictions, gold_NL, f"precision={precision}", counts_L=counts_L
    )
    chosen_NK, hits_NK = (
        decision.chosen(predictions.label_ids_NK, predictions.scores_NK),
        gold_NL.toarray(),
    )
    for half in (slice(5), slice(5, 10)):
        made, right, scores = (
            chosen_NK[:, half],
            hits_NK[:, half],
            predictions.scores_NK[:, half],
        )
        assert right[made].mean() >= precision
        lower = np.sort(scores[~made])[::-1][:200]
        assert all(right[scores >= t].mean() < precision for t in lower)


def test_a_budget_is_kept_and_top_k_is_a_number_of_labels():
    predictions, gold_NL = calibrated_documents(500, seed=4)
    for budget in (0.5, 2, 7.5):
        decision = decided(predictions, gold_NL, f"budget={budget}")
        assert decision.chosen(
            predictions.label_ids_NK, predictions.scores_NK
        ).sum() == round(budget * 500)
    assert decided(predictions, gold_NL, "budget=11").threshold == 0
    assert decided(predictions, gold_NL, "budget=0").threshold == 1
    chosen_NK = decided(predictions, gold_NL, "top_k=3").chosen(
        predictions.label_ids_NK, predictions.scores_NK
    )
    assert (chosen_NK == (np.arange(10) < 3)).all()


def test_a_model_refuses_a_budget_beyond_the_outcomes_that_it_keeps():
    predictions, gold_NL = calibrated_documents(500, seed=4)
    kept = outcomes_of(predictions, gold_NL, calibrated=True).stored()
    most = int(len(kept.scores_P) / 5) / 100
    decision = tuned_decision(kept, f"budget={most}", label_table(10), "m")
    assert decision.threshold >= 0.01
    with pytest.raises(
        ConfigError,
        match=rf"m: budget=9\.5: the model keeps only the {most} best labels per document",
    ):
        tuned_decision(kept, "budget=9.5", label_table(10), "m")


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=7))
def test_samples_takes_the_set_of_greatest_expected_f1(probabilities):
    """Against every set of labels, by the ratio of expectations."""
    scores_K = -np.sort(-np.array(probabilities))
    chosen_K = Decision(0, None, "samples").chosen(np.arange(len(scores_K)), scores_K)
    sets = [
        np.array(one, bool)
        for one in itertools.product([0, 1], repeat=len(scores_K))
        if any(one)
    ]

    def expected(made_K):
        return 2 * scores_K[made_K].sum() / (made_K.sum() + scores_K.sum())

    assert expected(chosen_K) == pytest.approx(max(map(expected, sets)))


def test_what_is_expected_of_documents_comes_true():
    predictions, gold_NL = calibrated_documents(30_000, seed=7)
    decision = Decision(0.4)
    expected_N3 = decision.expected(predictions.label_ids_NK, predictions.scores_NK)
    made_NK, gold_NK = (
        decision.chosen(predictions.label_ids_NK, predictions.scores_NK),
        gold_NL.toarray(),
    )
    right_N, made_N, gold_N = (made_NK & gold_NK).sum(1), made_NK.sum(1), gold_NK.sum(1)
    for column, whole_N in enumerate((made_N, gold_N, (made_N + gold_N) / 2)):
        true_N = right_N / np.maximum(whole_N, 0.5)
        sure_N = expected_N3[:, column] > np.median(expected_N3[:, column])
        for part_N in (sure_N, ~sure_N):
            assert true_N[part_N].mean() == pytest.approx(
                expected_N3[part_N, column].mean(), abs=0.06
            )
        assert true_N[sure_N].mean() > true_N[~sure_N].mean()
    assert Decision(1.0).expected(np.array([0, -1]), np.array([0.9, 0.0])).tolist() == [
        0,
        0,
        0,
    ]
    assert BEST.expected(np.array([4, 1]), np.array([0.75, 0.25])).tolist() == [
        0.75,
        0.75,
        0.75,
    ]


def test_rules_are_compared_on_halves_and_each_is_best_at_its_own():
    predictions, gold_NL = calibrated_documents(4_000, seed=8)
    halves = HalfOutcomes.of(predictions, gold_NL, calibrated=True)
    in_use = halves.tuned("budget=2", label_table(10).train_counts)
    rows = {
        row["rule"]: row
        for row in compare_rules(predictions, gold_NL, label_table(10), in_use, halves)
    }
    assert list(rows) == ["budget=2", "micro", "macro", "samples", "precision=0.9"]
    assert rows["budget=2"]["predicted_per_doc"] == pytest.approx(2, abs=0.1)
    assert rows["precision=0.9"]["micro_precision"] == pytest.approx(0.9, abs=0.02)
    for rule, key in (("micro", "micro_f1"), ("samples", "samples_f1")):
        assert rows[rule][key] >= max(row[key] for row in rows.values()) - 0.003


def test_outcomes_come_back_and_follow_a_change_of_labels(tmp_path: Path):
    predictions, gold_NL = calibrated_documents(200, seed=9)
    saved = outcomes_of(predictions, gold_NL, calibrated=True)
    saved.save(tmp_path / "o.safetensors")
    loaded = Outcomes.load(tmp_path / "o.safetensors")
    assert loaded.scores_P.min() >= 0.01
    for rule in ("micro", "macro", "precision=0.8", "budget=3"):
        np.testing.assert_array_equal(
            loaded.tuned(rule).limit(np.arange(10)),
            saved.tuned(rule).limit(np.arange(10)),
        )
    fewer = saved.regrouped(Regrouping.without(10, [0, 4])).extended(1)
    assert len(fewer.gold_L) == 9
    assert fewer.gold_L[3] == saved.gold_L[5]
    assert (fewer.label_ids_P == 3).sum() == (saved.label_ids_P == 5).sum()
    (tmp_path / "o.safetensors").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"o\.safetensors"):
        Outcomes.load(tmp_path / "o.safetensors")


@pytest.mark.parametrize(
    "rule",
    [
        "micro",
        "precision=.9",
        "precision=0.95",
        "precision=1",
        "budget=2.5",
        "top_k=12",
    ],
)
def test_rules_have_one_spelling(rule):
    assert re.match(RULE, rule)


@pytest.mark.parametrize(
    "rule",
    ["best", "precision", "precision=1.5", "precision=90", "top_k=0", "budget=-1"],
)
def test_others_are_no_rules(rule):
    assert not re.match(RULE, rule)
