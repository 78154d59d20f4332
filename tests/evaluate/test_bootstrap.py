"""Resampled metrics are the metrics of resampled documents."""

import tracemalloc
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import binomtest
from sklearn.metrics import f1_score

from evaluation_cases import gold_and_scores, label_table, whole
from xmtc.data.bins import bin_mask
from xmtc.evaluate.bootstrap import (
    bootstrap,
    paired_difference,
    ratio_interval,
    resample_weights,
)
from xmtc.evaluate.classification import LabelSums, Outcome, label_scores
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.evaluation import Evaluation, evaluate
from xmtc.evaluate.metrics import Ratio
from xmtc.fusion.decision import Decision
from xmtc.scorers.predictions import match


def measured(scores, gold, resamples: int) -> Evaluation:
    return evaluate(
        whole(scores),
        gold,
        label_table(),
        1000,
        config=EvaluateConfig(resamples=resamples, bins=("1-5",)),
        decision=Decision(0.35),
    )


@pytest.mark.parametrize(
    ("share", "documents"), [(0, 7), (1, 7), (1 / 3, 12), (0.5, 2), (0.5, 1)]
)
def test_equal_ratios_of_documents_are_no_certainty(share, documents):
    whole_N = np.arange(documents) * 6.0 + 6
    found = ratio_interval(Ratio.of(share * whole_N, whole_N))
    if documents > 1:
        assert found == pytest.approx(
            tuple(
                binomtest(round(share * documents), documents).proportion_ci(
                    0.95, method="wilson"
                )
            ),
            abs=1e-6,
        )
    assert found[1] - found[0] > 0.3


def test_every_replicate_is_the_metric_of_the_weighted_documents():
    gold, scores = gold_and_scores(documents=60)
    evaluation = measured(scores, gold, resamples=4)
    truth, predicted = gold.toarray(), scores >= 0.35
    present = np.flatnonzero(truth.any(axis=0))
    rare = np.intersect1d(
        present, np.flatnonzero(bin_mask("1-5", label_table().train_counts))
    )
    first = truth[np.arange(60), scores.argmax(axis=1)]
    expected: dict[str, list[float]] = {}
    for weights in next(resample_weights(60, 4, 13)).T:
        f1 = partial(f1_score, truth, predicted, sample_weight=weights, zero_division=0)
        values = {"micro_f1": f1(average="micro"), "samples_f1": f1(average="samples")}
        for name, labels in (("macro_f1", present), ("1-5/macro_f1", rare)):
            of_documents = weights @ truth[:, labels] / truth[:, labels].sum(axis=0)
            values[name] = np.average(
                f1(average=None, labels=labels), weights=of_documents
            )
        values["p@1"] = np.average(first, weights=weights)
        for name, value in values.items():
            expected.setdefault(name, []).append(value)
    for name, values in expected.items():
        found = evaluation.replicates.values[name]
        assert found - found.mean() == pytest.approx(
            np.array(values) - np.mean(values), abs=1e-5
        )
    assert evaluation.replicates.values["macro_f1"].mean() == pytest.approx(
        evaluation.metrics["macro_f1"]
    )


def test_resamples_have_the_size_of_the_sample():
    """Otherwise the mean over all labels, whose number is fixed, would vary with it."""
    gold = sparse.csr_array(np.eye(2, dtype=bool)[np.arange(60) % 2])
    best = whole(np.random.default_rng(0).random((60, 2)))
    outcome = Outcome.of(
        best, best.scores_NK > 0.5, match(best.label_ids_NK, gold), gold
    )
    found = bootstrap({}, outcome, {"": np.ones(2, bool)}, 50, 0)
    assert found["macro_f1_all"] == pytest.approx(found["macro_f1"], abs=1e-6)


def test_intervals_stay_within_0_and_1_and_hold_the_estimate_of_rare_labels():
    gold, scores = gold_and_scores(documents=40)
    metrics = measured(scores, gold, resamples=200).metrics
    row = metrics["bins"]["1-5"]
    low, high = row["ci95"]["macro_f1"]
    assert 0 <= low < row["macro_f1"] < high <= 1


def test_whole_weights_are_repeated_documents():
    gold, scores = gold_and_scores(documents=60)
    drawn = np.repeat(np.arange(60), np.random.default_rng(0).integers(1, 4, 60))
    outcome = Outcome.of(
        whole(scores),
        whole(scores).scores_NK > 0.35,
        match(whole(scores).label_ids_NK, gold),
        gold,
    )
    counts = [
        sparse.csr_array(m.T) for m in (outcome.right, outcome.predicted, outcome.gold)
    ]
    weights = np.bincount(drawn, minlength=60)[:, None].astype(np.float32)
    found = label_scores(LabelSums(*(m @ weights for m in counts), np.ones((1, 40))))
    expected = measured(scores[drawn], gold[drawn], resamples=0).metrics
    for name, value in found.items():
        assert value[0, 0] == pytest.approx(expected[name], abs=1e-5)


def test_chunks_add_up(monkeypatch):
    monkeypatch.setattr("xmtc.evaluate.bootstrap._CHUNK_WEIGHTS", 150)
    chunks = list(resample_weights(20, 17, 0))
    assert [c.shape for c in chunks] == [(20, 7), (20, 7), (20, 3)]
    assert np.concatenate(chunks, axis=1).mean() == pytest.approx(1, abs=0.2)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(60):
        right = rng.random(200) < 0.4
        ratio = np.concatenate(
            [w.T @ right / w.sum(axis=0) for w in resample_weights(200, 200, seed)]
        )
        low, high = np.percentile(ratio, [2.5, 97.5])
        covered += low <= 0.4 <= high
    assert covered >= 50


@pytest.mark.parametrize("labels", [60, 600, 60_000])
def test_intervals_of_macro_f1_cover_the_truth_however_few_documents_labels_have(
    labels,
):
    """Samples of 150 documents with one label each; a label is predicted for all of its documents or for none."""
    rng = np.random.default_rng(labels)
    found_L = rng.random(labels) < 0.4
    everything, covered, estimates, widths = {"": np.ones(labels, np.bool_)}, 0, [], []
    for seed in range(60):
        gold = _one_label_per_document(rng.integers(labels, size=150), labels)
        right = sparse.csr_array(gold @ sparse.diags_array(found_L.astype(np.float32)))
        right.eliminate_zeros()
        values = bootstrap(
            {}, Outcome(right, right, gold), everything, resamples=200, seed=seed
        )["macro_f1"]
        estimates.append(found_L[np.unique(gold.indices)].mean())
        low, high = np.percentile(values + estimates[-1] - values.mean(), [2.5, 97.5])
        covered += low <= found_L.mean() <= high
        widths.append((high - low) / 3.92)
    assert covered >= 51
    assert np.mean(widths) > 0.8 * np.std(estimates)


def _one_label_per_document(label_N, labels: int) -> sparse.csr_array:
    rows = np.arange(len(label_N))
    return sparse.csr_array(
        (np.ones(len(rows), np.float32), (rows, label_N)), shape=(len(rows), labels)
    )


def test_ranking_and_f1_intervals_hold_the_value():
    gold, scores = gold_and_scores()
    metrics = measured(scores, gold, resamples=200).metrics
    for name in ("p@1", "ndcg@5", "psp@5", "micro_f1", "macro_f1"):
        low, high = metrics["ci95"][name]
        assert low < metrics[name] < high


def test_paired_differences_see_a_small_steady_gain():
    gold, scores = gold_and_scores()
    worse = scores.copy()
    worse[::10] = np.roll(worse[::10], 1, axis=1)
    a, b = (measured(s, gold, resamples=300).replicates for s in (scores, worse))
    difference = paired_difference(a, b, "p@1")
    assert 0 < difference.low < difference.high
    assert difference.p_value < 0.05
    itself = paired_difference(a, a, "p@1")
    assert (itself.low, itself.high, itself.p_value) == (0, 0, 1)


def test_replicates_of_other_documents_do_not_pair():
    gold, scores = gold_and_scores()
    a = measured(scores, gold, resamples=10).replicates
    b = measured(scores[:100], gold[:100], resamples=10).replicates
    with pytest.raises(ValueError, match="do not pair"):
        paired_difference(a, b, "p@1")


def test_labels_without_a_document_take_no_memory():
    gold, scores = gold_and_scores(documents=30)
    wide = sparse.csr_array((gold.data, gold.indices, gold.indptr), shape=(30, 300_000))
    predictions = whole(scores)
    hits = match(predictions.label_ids_NK, gold)
    found = []
    for truth in (gold, wide):
        outcome = Outcome.of(predictions, predictions.scores_NK > 0.35, hits, truth)
        everything = {"": np.ones(truth.shape[1], np.bool_)}
        tracemalloc.start()
        found.append(bootstrap({}, outcome, everything, resamples=40, seed=13))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 20e6  # one array of counts of all labels would be 48 MB
    np.testing.assert_allclose(found[1]["macro_f1"], found[0]["macro_f1"], rtol=1e-6)
    np.testing.assert_allclose(
        found[1]["macro_f1_all"], found[0]["macro_f1_all"] * 40 / 300_000, rtol=1e-5
    )


def test_label_counts_held_in_pieces_change_nothing(monkeypatch):
    gold, scores = gold_and_scores(documents=30)
    expected = measured(scores, gold, resamples=20).replicates
    monkeypatch.setattr("xmtc.evaluate.bootstrap._CHUNK_COUNTS", 150)
    found = measured(scores, gold, resamples=20).replicates
    for name, values in expected.values.items():
        np.testing.assert_allclose(found.values[name], values, rtol=1e-6, err_msg=name)
