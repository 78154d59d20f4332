"""Metrics against napkinXC, scikit-learn and the plain formulas."""

import napkinxc.metrics as napkin
import numpy as np
import pytest
from scipy import sparse
from sklearn import metrics as sklearn_metrics

from evaluation_cases import best, gold_and_scores, label_table, whole
from xmtc.data.bins import bin_mask
from xmtc.data.labels import LabelTable
from xmtc.errors import DataError
from xmtc.evaluate.config import EvaluateConfig
from xmtc.evaluate.evaluation import Evaluation, evaluate
from xmtc.evaluate.metrics import all_metrics, goals
from xmtc.evaluate.summary import markdown_summary, summary_rows
from xmtc.fusion.decision import Decision
from xmtc.scorers.predictions import SparsePredictions, match

TRAIN = 1000
THRESHOLD = 0.35


def measured(**changes) -> tuple[Evaluation, np.ndarray, np.ndarray]:
    gold, scores = gold_and_scores()
    settings = EvaluateConfig(**{"resamples": 0, **changes})
    evaluation = evaluate(
        whole(scores),
        gold,
        label_table(),
        TRAIN,
        config=settings,
        decision=Decision(THRESHOLD),
    )
    return evaluation, gold.toarray(), scores


def rankings(scores: np.ndarray) -> list[list[int]]:
    return np.argsort(-scores, axis=1, kind="stable").tolist()


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("p", napkin.precision_at_k),
        ("r", napkin.recall_at_k),
        ("ndcg", napkin.ndcg_at_k),
    ],
)
def test_rankings_equal_napkinxc(name, oracle):
    evaluation, gold, scores = measured()
    expected = oracle(
        [np.flatnonzero(row).tolist() for row in gold], rankings(scores), k=10
    )
    found = {k: v for k, v in evaluation.metrics.items() if k.startswith(f"{name}@")}
    assert found == pytest.approx(
        {key: expected[int(key.split("@")[1]) - 1] for key in found}, abs=1e-6
    )
    assert found


def test_propensity_scored_precision_equals_napkinxc():
    evaluation, gold, scores = measured()
    weights = 1 / label_table().propensities(TRAIN, 0.55, 1.5)
    truth = [np.flatnonzero(row).tolist() for row in gold]
    expected = napkin.psprecision_at_k(truth, rankings(scores), weights, k=5)
    assert [evaluation.metrics[f"psp@{k}"] for k in (1, 3, 5)] == pytest.approx(
        expected[[0, 2, 4]], abs=1e-6
    )


def test_propensity_scored_ndcg_follows_xclib():
    evaluation, gold, scores = measured()
    weights = 1 / label_table().propensities(TRAIN, 0.55, 1.5)
    discount = 1 / np.log2(np.arange(2, 7))
    attained = best = 0.0
    for truth, row in zip(gold, scores, strict=True):
        order = np.argsort(-row, kind="stable")[:5]
        ideal = np.sort(weights[truth])[::-1][:5]
        norm = discount[: min(5, truth.sum())].sum()
        attained += (weights[order] * truth[order] * discount).sum() / norm
        best += (ideal * discount[: len(ideal)]).sum() / norm
    assert evaluation.metrics["psndcg@5"] == pytest.approx(attained / best, abs=1e-6)


def test_r_precision_divides_by_the_lesser_of_k_and_gold_labels():
    evaluation, gold, scores = measured()
    top = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    expected = np.mean(
        [row[t].sum() / min(5, row.sum()) for row, t in zip(gold, top, strict=True)]
    )
    assert evaluation.metrics["rp@5"] == pytest.approx(expected, abs=1e-6)


def test_recall_of_a_bin_counts_its_labels_among_the_best_ten_of_all():
    evaluation, gold, scores = measured()
    inside = bin_mask("1-5", label_table().train_counts)
    top = np.argsort(-scores, axis=1, kind="stable")[:, :10]
    rows = [
        (row & inside)[t].sum() / (row & inside).sum()
        for row, t in zip(gold, top, strict=True)
        if (row & inside).any()
    ]
    assert 0 < np.mean(rows) < 1
    assert evaluation.metrics["bins"]["1-5"]["r@10"] == pytest.approx(
        np.mean(rows), abs=1e-6
    )


@pytest.mark.parametrize("average", ["micro", "macro", "samples"])
def test_f1_equals_scikit_learn(average):
    evaluation, gold, scores = measured()
    present = np.flatnonzero(gold.any(axis=0))
    labels = present if average == "macro" else None
    expected = sklearn_metrics.f1_score(
        gold, scores >= THRESHOLD, labels=labels, average=average, zero_division=0
    )
    assert evaluation.metrics[f"{average}_f1"] == pytest.approx(expected, abs=1e-6)


def test_the_four_macro_f1s_are_what_they_say():
    evaluation, gold, scores = measured()
    precision, recall, f1, _ = sklearn_metrics.precision_recall_fscore_support(
        gold, scores >= THRESHOLD, average=None, zero_division=0
    )
    present = gold.any(axis=0)
    either = present | (scores >= THRESHOLD).any(axis=0)
    assert evaluation.metrics["macro_f1_predicted"] == pytest.approx(f1[either].mean())
    assert evaluation.metrics["macro_f1_all"] == pytest.approx(
        f1[present].sum() / len(f1)
    )
    p, r = precision[present].mean(), recall[present].mean()
    assert evaluation.metrics["macro_f1_harmonic"] == pytest.approx(2 * p * r / (p + r))


def test_exact_match_equals_scikit_learn():
    gold, scores = gold_and_scores(labels=6)
    found = evaluate(
        whole(scores),
        gold,
        label_table(6),
        TRAIN,
        config=EvaluateConfig(),
        decision=Decision(0.5),
    ).metrics["exact_match"]
    assert found == pytest.approx(
        sklearn_metrics.accuracy_score(gold.toarray(), scores >= 0.5), abs=1e-6
    )


def test_average_precision_equals_scikit_learn_with_ties():
    gold, scores = gold_and_scores()
    scores = np.round(scores, 1)
    table = evaluate(
        whole(scores),
        gold,
        label_table(),
        TRAIN,
        config=EvaluateConfig(resamples=0),
        decision=Decision(0.5),
    ).per_label
    dense = gold.toarray()
    expected = [
        sklearn_metrics.average_precision_score(dense[:, i], scores[:, i])
        if dense[:, i].any()
        else None
        for i in range(40)
    ]
    assert table["average_precision"].to_pylist() == pytest.approx(expected, abs=1e-9)


def test_per_label_counts_equal_the_confusion_counts():
    evaluation, gold, scores = measured()
    (_, fp), (fn, tp) = sklearn_metrics.multilabel_confusion_matrix(
        gold, scores >= THRESHOLD
    ).transpose(1, 2, 0)
    columns = evaluation.per_label.to_pydict()
    assert (columns["tp"], columns["fp"], columns["fn"]) == (
        tp.tolist(),
        fp.tolist(),
        fn.tolist(),
    )
    assert columns["support"] == gold.sum(axis=0).tolist()


def test_bins_restrict_labels_and_documents():
    evaluation, gold, scores = measured(bins=("1-5", ">50"))
    counts = label_table().train_counts
    for name, inside in {
        "1-5": (counts >= 1) & (counts <= 5),
        ">50": counts > 50,
    }.items():
        part, row = gold[:, inside], evaluation.metrics["bins"][name]
        some = part.any(axis=1)
        assert (row["labels"], row["docs"]) == (part.any(axis=0).sum(), some.sum())
        predicted = scores[:, inside] >= THRESHOLD
        assert row["micro_f1"] == pytest.approx(
            sklearn_metrics.f1_score(part, predicted, average="micro"), abs=1e-6
        )
        truth = [np.flatnonzero(r).tolist() for r in part[some]]
        expected = napkin.ndcg_at_k(truth, rankings(scores[some][:, inside]), k=5)[4]
        assert row["ndcg@5"] == pytest.approx(expected, abs=1e-6)


def test_a_bin_without_gold_labels_is_null():
    evaluation, _, _ = measured(bins=("7-9",))
    assert evaluation.metrics["bins"]["7-9"]["macro_f1"] is None


def test_coverage_counts_labels_ever_predicted():
    evaluation, gold, scores = measured()
    present = gold.any(axis=0)
    assert evaluation.metrics["coverage"] == pytest.approx(
        ((scores >= THRESHOLD).any(axis=0) & present).sum() / present.sum()
    )


def test_most_confused_is_the_label_predicted_in_place():
    gold = sparse.csr_array(
        np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]], bool)
    )
    scores = np.array(
        [[0.1, 0.9, 0.2], [0.1, 0.9, 0.2], [0.1, 0.9, 0.2], [0.1, 0.2, 0.9]], np.float32
    )
    evaluation = evaluate(
        whole(scores),
        gold,
        label_table(3),
        TRAIN,
        config=EvaluateConfig(resamples=0),
        decision=Decision(0.5),
    )
    assert evaluation.per_label["confused_with"].to_pylist() == [
        ["L001", "L002"],
        [],
        [],
    ]


def test_single_label_decides_for_the_best_label():
    rng = np.random.default_rng(0)
    truth = rng.integers(4, size=200)
    scores = rng.dirichlet(np.ones(4), 200).astype(np.float32)
    gold = sparse.csr_array(np.eye(4, dtype=bool)[truth])
    evaluation = evaluate(
        whole(scores),
        gold,
        label_table(4),
        TRAIN,
        config=EvaluateConfig(),
        decision=None,
    )
    predicted = scores.argmax(axis=1)
    assert evaluation.metrics["accuracy"] == pytest.approx(np.mean(predicted == truth))
    assert (
        evaluation.details["confusion"]
        == sklearn_metrics.confusion_matrix(truth, predicted).tolist()
    )
    assert evaluation.metrics["macro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(truth, predicted, average="macro")
    )
    low, high = evaluation.metrics["ci95"]["accuracy"]
    assert low < evaluation.metrics["accuracy"] < high
    of_bins = {
        f"macro-F1 of labels with {name} train docs"
        for name in evaluation.metrics["bins"]
    }
    names = [row[0] for row in summary_rows(evaluation.metrics)]
    assert names[:3] == ["accuracy = micro-F1", "macro-recall", "macro-F1"]
    assert len(names[3:]) != 1
    assert of_bins.issuperset(names[3:])
    assert "P@5" not in markdown_summary(evaluation.metrics, "x")


@pytest.mark.parametrize("task", ["multi_label", "single_label"])
def test_goals_are_the_metrics_of_every_evaluation(task):
    rng = np.random.default_rng(0)
    gold = sparse.csr_array(np.eye(4, dtype=bool)[rng.integers(4, size=50)])
    scores = rng.dirichlet(np.ones(4), 50).astype(np.float32)
    decision = Decision(0.3) if task == "multi_label" else None
    config = EvaluateConfig(resamples=0)
    metrics = evaluate(
        whole(scores), gold, label_table(4), TRAIN, config=config, decision=decision
    ).metrics
    facts = {
        "decision",
        "threshold",
        "docs",
        "labels",
        "labels_present",
        "train_docs",
        "top_k",
    }
    facts |= {
        "docs_with_labels",
        "labels_per_doc",
        "predicted_per_doc",
        "truncated_docs",
        "seconds",
        "bins",
    }
    no_goals = {
        metric.name
        for metric in all_metrics()
        if not (metric.higher_is_better and metric.each_epoch)
    }
    assert no_goals >= {"micro_auc", "shortlist_recall@5", "ece"}
    assert set(goals(task)) == metrics.keys() - facts - no_goals


@pytest.mark.parametrize("bare", [7, 60])
def test_documents_without_gold_labels_count_as_in_scikit_learn(bare):
    """Their predictions are wrong; metrics that need a gold label are over the others, and say over how many."""
    gold, scores = gold_and_scores()
    dense = gold.toarray()
    bare = min(bare, len(dense))
    dense[:bare] = False
    decision = Decision(THRESHOLD)
    found = evaluate(
        whole(scores),
        sparse.csr_array(dense),
        label_table(),
        TRAIN,
        config=EvaluateConfig(resamples=9),
        decision=decision,
    ).metrics
    chosen = scores >= THRESHOLD
    assert found["micro_f1"] == pytest.approx(
        sklearn_metrics.f1_score(dense, chosen, average="micro", zero_division=0)
    )
    samples = sklearn_metrics.f1_score(
        dense, chosen, average="samples", zero_division=1
    )
    assert found["samples_f1"] == pytest.approx(samples, abs=1e-6)
    top = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    assert found["p@5"] == pytest.approx(
        np.take_along_axis(dense, top, axis=1).mean(), abs=1e-6
    )
    kept = dense[bare:]
    ranked = (
        napkin.ndcg_at_k(
            [np.flatnonzero(row).tolist() for row in kept], rankings(scores[bare:]), k=5
        )[4]
        if len(kept)
        else 0
    )
    assert found["ndcg@5"] == pytest.approx(ranked, abs=1e-6)
    assert (found["docs"], found["docs_with_labels"]) == (len(dense), len(kept))
    behind = {title: words for title, _, words in summary_rows(found)}
    assert f"{len(kept):,} docs" in behind["nDCG@5"]
    assert f"{len(dense):,} docs" in behind["P@5"]


@pytest.mark.parametrize(
    ("given", "top_k", "rule", "cut"),
    [
        (40, 3, "micro", True),
        (40, 1, "micro", True),
        (3, 100, "micro", False),
        (40, 3, "top_k=3", False),
    ],
)
def test_documents_are_truncated_where_top_k_cuts_predicted_labels(
    given, top_k, rule, cut
):
    gold, scores = gold_and_scores()
    found = evaluate(
        best(scores, given),
        gold,
        label_table(),
        TRAIN,
        config=EvaluateConfig(resamples=0, top_k=top_k),
        decision=Decision(0.2, rule=rule),
    ).metrics
    predicted_N = (scores >= np.float32(0.2)).sum(axis=1)
    assert (predicted_N >= 3).any()
    assert found["truncated_docs"] == (predicted_N >= top_k).sum() * cut


def test_padding_counts_as_no_prediction():
    gold, scores = gold_and_scores()
    full = whole(scores)
    ids, values = full.label_ids_NK.copy(), full.scores_NK.copy()
    ids[:, 3:], values[:, 3:] = -1, 0
    few = SparsePredictions(ids, values)
    dense = gold.toarray()
    found = match(few.label_ids_NK, gold)
    assert (found[:, :3] == np.take_along_axis(dense, ids[:, :3], axis=1)).all()
    assert not found[:, 3:].any()
    config = EvaluateConfig(resamples=0)
    metrics = evaluate(
        few, gold, label_table(), TRAIN, config=config, decision=Decision(0.0)
    ).metrics
    assert metrics["predicted_per_doc"] == 3
    assert metrics["p@5"] == pytest.approx(found.sum() / len(dense) / 5)


def test_documents_without_gold_labels_leave_recall_alone():
    gold = sparse.csr_array(np.array([[1, 0], [0, 0]], bool))
    scores = np.array([[0.9, 0.1], [0.9, 0.1]], np.float32)
    metrics = evaluate(
        whole(scores),
        gold,
        label_table(2),
        TRAIN,
        config=EvaluateConfig(resamples=0),
        decision=Decision(0.5),
    ).metrics
    assert (metrics["p@1"], metrics["r@5"], metrics["rp@5"], metrics["ndcg@5"]) == (
        0.5,
        1.0,
        1.0,
        1.0,
    )


def test_curves_go_through_the_metrics():
    gold, scores = gold_and_scores(documents=50)
    some = sparse.csr_array(gold.toarray() & (np.arange(50) % 5 > 0)[:, None])
    config = EvaluateConfig(resamples=0)
    found = evaluate(
        whole(scores),
        some,
        label_table(),
        TRAIN,
        config=config,
        decision=Decision(THRESHOLD),
    )
    curves = found.details["cutoffs"]
    for name, key, k in (
        ("p", "p@1", 1),
        ("p", "p@8", 8),
        ("r", "r@10", 10),
        ("ndcg", "ndcg@5", 5),
    ):
        assert curves[name][k - 1] == pytest.approx(found.metrics[key], abs=1e-6)
    none = sparse.csr_array((50, 40), dtype=bool)
    curves = evaluate(
        whole(scores),
        none,
        label_table(),
        TRAIN,
        config=config,
        decision=Decision(THRESHOLD),
    ).details["cutoffs"]
    assert curves["r"] == curves["ndcg"] == [0.0] * 20


def test_ranks_beyond_32767():
    labels = 33_000
    scores = np.linspace(1, 0, labels, dtype=np.float32)[None]
    gold = sparse.csr_array(([True], ([0], [labels - 1])), shape=(1, labels))
    config = EvaluateConfig(resamples=0, top_k=labels, bins=(">0",))
    table = LabelTable(
        [str(i) for i in range(labels)],
        ["" for _ in range(labels)],
        np.ones(labels, np.int64),
    )
    found = evaluate(
        whole(scores), gold, table, TRAIN, config=config, decision=Decision(0.0)
    )
    assert found.metrics["bins"][">0"]["rp@5"] == 0


@pytest.mark.parametrize(
    ("ids", "scores", "message"),
    [
        ([[0, 5]], [[0.9, 0.1]], "label id outside 0…1"),
        ([[0, 1]], [[0.1, 0.9]], "not best first"),
        ([[0, 0]], [[0.9, 0.1]], "same label twice"),
        ([[0, 1]], [[1.5, 0.1]], "score outside 0…1"),
        ([[0, 1]], [[float("nan"), 0.1]], "score outside 0…1"),
        ([[-1, 1]], [[0.9, 0.1]], "behind padding"),
    ],
)
def test_bad_predictions_are_refused(ids, scores, message):
    predictions = SparsePredictions(
        np.array(ids, np.int32), np.array(scores, np.float32)
    )
    gold = sparse.csr_array(np.array([[1, 0]], bool))
    with pytest.raises(DataError, match=f"row 0 has .*{message}"):
        evaluate(
            predictions,
            gold,
            label_table(2),
            TRAIN,
            config=EvaluateConfig(),
            decision=Decision(0.5),
        )


def test_predictions_of_other_documents_are_refused():
    gold, scores = gold_and_scores()
    with pytest.raises(DataError, match=r"300 .* 299"):
        evaluate(
            whole(scores),
            gold[:299],
            label_table(),
            TRAIN,
            config=EvaluateConfig(),
            decision=Decision(0.5),
        )
