"""What the page shows, as plain tables and charts for the template."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml
from markupsafe import Markup

from xmtc.evaluate.summary import percent
from xmtc.report.run_results import RunResults
from xmtc.report.svg import Axis, Bars, Series, bar_chart, line_chart
from xmtc.run.stage import Stage

HEADLINE = {
    "p@1": "P@1",
    "p@3": "P@3",
    "p@5": "P@5",
    "p@8": "P@8",
    "r@5": "R@5",
    "r@10": "R@10",
    "rp@5": "RP@5",
    "ndcg@5": "nDCG@5",
    "psp@1": "PSP@1",
    "psp@3": "PSP@3",
    "psp@5": "PSP@5",
    "psndcg@5": "PSnDCG@5",
    "micro_f1": "micro-F1",
    "micro_precision": "micro-precision",
    "micro_recall": "micro-recall",
    "macro_precision": "macro-precision",
    "macro_recall": "macro-recall",
    "macro_f1": "macro-F1 (labels present)",
    "macro_f1_all": "macro-F1 (all labels)",
    "macro_f1_harmonic": "harmonic mean of macro-P and macro-R",
    "samples_f1": "samples-F1",
    "exact_match": "exact match",
    "accuracy": "accuracy = micro-F1",
    "map": "mean average precision",
    "micro_auc": "micro-AUC",
    "macro_auc": "macro-AUC",
    "coverage": "coverage (labels ever predicted)",
    "shortlist_recall@5": "share of the best five labels that the shortlist holds",
    "ece": "expected calibration error",
    "ece_uncalibrated": "expected calibration error before calibration",
}
# of labels that exclude each other: the others are the accuracy by another name, or a constant
_ONE_LABEL = (
    "accuracy",
    "macro_f1",
    "macro_f1_all",
    "macro_precision",
    "macro_recall",
    "macro_auc",
    "coverage",
    "ece",
)
BIN_COLUMNS = {
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "recall": "recall",
    "rp@5": "RP@5",
    "ndcg@5": "nDCG@5",
}
_BIN_COLUMNS_ONE_LABEL = {key: BIN_COLUMNS[key] for key in ("macro_f1", "micro_f1", "recall")}


@dataclass(frozen=True)
class Chart:
    """A figure of the page.

    Attributes:
        title: what it shows.
        note: a sentence more.
        svg: the chart.
        legend: whether it tells runs apart.
    """

    title: str
    note: str
    svg: Markup
    legend: bool = True


@dataclass(frozen=True)
class Table:
    """A table of the page, also written as CSV and Parquet.

    Attributes:
        name: of its file.
        columns: heads.
        rows: cells as they are shown.
        runs: index of the run of each row, where rows belong to runs.
        words: how many columns, from the first, hold words; the others hold numbers.
    """

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    runs: Sequence[int] | None = None
    words: int = 1


def one_label(runs: Sequence[RunResults]) -> bool:
    """Whether labels exclude each other: then rankings and thresholds mean nothing."""
    return all(run.metrics.get("accuracy") is not None for run in runs)


def headline(runs: Sequence[RunResults]) -> Table:
    """One row a metric, one column a run: percent with 95 % intervals."""
    keys = _ONE_LABEL if one_label(runs) else HEADLINE
    shown = [key for key in keys if any(run.metrics.get(key) is not None for run in runs)]
    rows = [
        [HEADLINE[key], *(percent(run.metrics.get(key), run.metrics.get("ci95", {}).get(key)) for run in runs)]
        for key in shown
    ]
    return Table("headline", ["metric", *(run.name for run in runs)], rows)


def frequency(runs: Sequence[RunResults]) -> Table:
    """Metrics by the labels' number of training documents: a row for each bin and run."""
    shown = _BIN_COLUMNS_ONE_LABEL if one_label(runs) else BIN_COLUMNS
    columns = ["train documents", "run", "labels", "documents", *shown.values()]
    rows, owners = [], []
    for name in _union(run.metrics["bins"] for run in runs):
        for r, run in enumerate(runs):
            row = run.metrics["bins"].get(name)
            if row is None:
                continue
            values = [percent(row[key], row.get("ci95", {}).get(key)) for key in shown]
            rows.append([name, run.name, f"{row['labels']:,}", f"{row['docs']:,}", *values])
            owners.append(r)
    return Table("frequency", columns, rows, owners, words=2)


def frequency_charts(runs: Sequence[RunResults]) -> list[Chart]:
    """Macro-F1 and recall by bin."""
    names = _union(run.metrics["bins"] for run in runs)
    charts = []
    for key, title in (("macro_f1", "Macro-F1"), ("recall", "Recall")):
        bars = []
        for r, run in enumerate(runs):
            found = [run.metrics["bins"].get(name, {}) for name in names]
            intervals = [row.get("ci95", {}).get(key) for row in found]
            bars.append(Bars(run.name, [row.get(key) for row in found], r, intervals))
        svg = bar_chart(names, bars, "train documents of the label", Axis(f"{title}, %", percent=True), title)
        charts.append(Chart(f"{title} by label frequency", "95 % bootstrap intervals over documents.", svg))
    return charts


def _union(names: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for group in names for name in group))


def ranking_charts(runs: Sequence[RunResults]) -> list[Chart]:
    """P@k, R@k and nDCG@k by k; of labels that exclude each other, R@k alone, which is their accuracy@k."""
    charts, shown = [], (("p", "P@k"), ("ndcg", "nDCG@k"), ("r", "R@k"))
    for key, title in (("r", "Accuracy@k"),) if one_label(runs) else shown:
        lines = [
            Series(run.name, run.details["cutoffs"]["k"], run.details["cutoffs"][key], r, marked=True)
            for r, run in enumerate(runs)
            if "cutoffs" in run.details
        ]
        if lines:
            svg = line_chart(lines, Axis("k"), Axis(f"{title}, %", percent=True, low=0), f"{title} by k")
            over = "Mean over all documents." if key == "p" else "Mean over documents that have gold labels."
            charts.append(Chart(f"{title} by k", over, svg))
    return charts


def _calibration_error(run: RunResults) -> str:
    before = run.metrics.get("ece_uncalibrated")
    found = f"{run.name} {100 * run.details['reliability']['ece']:.2f} %"
    return found if before is None else f"{found} ({100 * before:.2f} % before calibration)"


def score_charts(runs: Sequence[RunResults]) -> list[Chart]:
    """Reliability, and where labels are predicted by threshold, precision–recall and F1 by threshold."""
    with_scores = [(r, run) for r, run in enumerate(runs) if "threshold_curve" in run.details]
    if not with_scores:
        return []
    right = [
        Series(run.name, run.details["reliability"]["score"], run.details["reliability"]["right"], r, marked=True)
        for r, run in with_scores
    ]
    errors = ", ".join(_calibration_error(run) for _, run in with_scores)
    diagonal = Series("calibrated", [0, 1], [0, 1], faint=True)
    reliability = Chart(
        "Reliability",
        f"Share right by score, kept predictions only. Expected calibration error: {errors}.",
        line_chart(
            [diagonal, *right],
            Axis("mean score, %", percent=True, low=0, high=1),
            Axis("right, %", percent=True, low=0, high=1),
            "share right by score",
        ),
    )
    return [reliability] if one_label(runs) else [*_threshold_charts(with_scores), reliability]


def _threshold_charts(runs: Sequence[tuple[int, RunResults]]) -> list[Chart]:
    curves = [(r, run, run.details["threshold_curve"]) for r, run in runs]
    pairs = [Series(run.name, c["recall"], c["precision"], r) for r, run, c in curves]
    f1 = [Series(run.name, c["threshold"], c["f1"], r) for r, run, c in curves]
    tuned = [f"{run.name} {run.metrics['threshold']:.3f}" for _, run in runs if run.metrics.get("threshold")]
    percent_y = Axis("precision, %", percent=True, low=0, high=1)
    return [
        Chart(
            "Precision and recall",
            "Micro-averaged over the kept predictions, by threshold.",
            line_chart(pairs, Axis("recall, %", percent=True, low=0, high=1), percent_y, "precision by recall"),
        ),
        Chart(
            "F1 by threshold",
            f"Micro-F1. Thresholds in use: {', '.join(tuned)}." if tuned else "Micro-F1.",
            line_chart(f1, Axis("threshold", low=0, high=1), Axis("micro-F1, %", percent=True, low=0), "F1 curve"),
        ),
    ]


def training_charts(runs: Sequence[RunResults]) -> list[Chart]:
    """Loss and dev metrics of every stage by step."""
    stages = _union([record["stage"] for record in run.history] for run in runs)
    titles = {str(Stage.PLANT): "Stage 1, planting", str(Stage.FINETUNE): "Stage 2, fine-tuning"}
    charts = []
    for stage in stages:
        keys = _union(record.keys() for run in runs for record in run.history if record["stage"] == stage)
        drawn = _DEV_METRICS_ONE_LABEL if stage == Stage.FINETUNE and one_label(runs) else _DEV_METRICS
        wanted = ["train/loss", *sorted(key for key in keys if key in drawn)]
        for key in (k for k in wanted if k in keys):
            lines = [_history(run, stage, key, r) for r, run in enumerate(runs)]
            lines = [line for line in lines if line.x]
            if lines:
                y = Axis(key.split("/")[1] + (", %" if key.startswith("dev/") else ""), percent=key.startswith("dev/"))
                svg = line_chart(lines, Axis("step"), y, f"{key} of stage {stage} by step")
                note = _MEASURED_ON_THE_WAY.get(stage, "") if key.startswith("dev/") else ""
                charts.append(Chart(f"{titles.get(stage, stage)}: {key}", note, svg))
    return charts


_MEASURED_ON_THE_WAY = {
    str(Stage.PLANT): "How well the attention ranks each label's informative tokens, on dev.",
    str(Stage.FINETUNE): "On a sample of dev, before calibration and without a lexical branch: the headline differs.",
}
_DEV_METRICS = ("dev/ndcg@5", "dev/ndcg@10", "dev/ndcg", "dev/micro_f1", "dev/macro_f1", "dev/accuracy", "dev/loss")
_DEV_METRICS_ONE_LABEL = ("dev/accuracy", "dev/macro_f1", "dev/loss")


def _history(run: RunResults, stage: str, key: str, r: int) -> Series:
    records = [x for x in run.history if x["stage"] == stage and isinstance(x.get(key), int | float)]
    if not key.startswith("dev/") and len(records) > 300:
        records = records[:: len(records) // 300 + 1]
    marked = key.startswith("dev/") and len(records) < 40
    return Series(run.name, [x["step"] for x in records], [x[key] for x in records], r, marked)


def histogram_chart(runs: Sequence[RunResults]) -> Chart:
    """How many labels have how many training documents."""
    edges = [0, 1, 2, 3, 6, 11, 21, 51, 101, 501, 1001]
    names = ["0", "1", "2", "≤5", "≤10", "≤20", "≤50", "≤100", "≤500", "≤1k", ">1k"]
    counts = runs[0].per_label["train_count"].to_numpy()
    place = np.searchsorted(edges, counts, "right") - 1
    values = np.bincount(place, minlength=len(names)).tolist()
    last = max(i for i, v in enumerate(values) if v) + 1
    svg = bar_chart(names[:last], [Bars("labels", values[:last])], "train documents", Axis("labels"), "label counts")
    return Chart("Labels by number of training documents", f"{len(counts):,} labels.", svg, legend=False)


def lengths(runs: Sequence[RunResults]) -> Table | None:
    """Metrics by document length."""
    several = {"p@5": "P@5", "ndcg@5": "nDCG@5", "micro_f1": "micro-F1"}
    shown = {"micro_f1": HEADLINE["accuracy"]} if one_label(runs) else several
    rows = []
    for r, run in enumerate(runs):
        for row in run.details.get("lengths", []):
            values = [percent(row[key]) for key in shown]
            rows.append((row["low"], r, [f"{row['low']:,}–{row['high']:,}", run.name, f"{row['docs']:,}", *values]))
    return _side_by_side("lengths", ["tokens", "run", "documents", *shown.values()], rows)


def levels(runs: Sequence[RunResults]) -> Table | None:
    """Metrics by level of the label hierarchy."""
    keys = {"micro_precision": "micro-P", "micro_recall": "micro-R", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}
    rows = []
    for r, run in enumerate(runs):
        for row in run.details.get("levels", []):
            values = [percent(row[key]) for key in keys]
            rows.append((row["level"], r, [str(row["level"]), run.name, f"{row['labels']:,}", *values]))
    return _side_by_side("levels", ["level", "run", "nodes", *keys.values()], rows)


def _side_by_side(name: str, columns: Sequence[str], rows: Iterable[tuple[int, int, list[str]]]) -> Table | None:
    """Rows with their group and run, sorted so that the runs' rows of one group are neighbours."""
    ordered = sorted(rows, key=lambda row: row[:2])
    owners = [r for _, r, _ in ordered]
    return Table(name, columns, [cells for *_, cells in ordered], owners, words=2) if ordered else None


def attention(runs: Sequence[RunResults]) -> Table | None:
    """How much attention lies on the labels' most informative tokens."""
    rows, owners = [], []
    for r, run in enumerate(runs):
        found = run.attention
        if found:
            start = "planted" if found["planted"] else "random"
            values = [percent(found["attention"]), percent(found["chance"])]
            gain = f"{found['attention'] / found['chance']:.1f}×" if found["chance"] else "–"
            rows.append([run.name, start, *values, gain, f"{found['top_tokens']}", f"{found['pairs']:,}"])
            owners.append(r)
    columns = ["run", "start", "attention on top tokens, %", "by chance, %", "times chance", "top tokens", "pairs"]
    return Table("attention", columns, rows, owners, words=2) if rows else None


def drift(run: RunResults, count: int = 5) -> tuple[str, Table]:
    """How the evaluated split's label mix differs from training's: a sentence, and the labels that changed most."""
    table = run.per_label.select(["label", "name", "train_count", "support"]).to_pandas()
    train = table["train_count"] / max(table["train_count"].sum(), 1)
    here = table["support"] / max(table["support"].sum(), 1)
    change = (here - train).to_numpy()
    unseen = table.loc[table["train_count"] == 0, "support"].sum() / max(table["support"].sum(), 1)
    text = (
        f"{50 * np.abs(change).sum():.1f} % of label assignments would have to move to turn the training mix into this "
        f"split's (total variation). {100 * unseen:.2f} % of this split's assignments are of labels never seen in "
        "training."
    )
    order = np.argsort(change)
    chosen = (order if len(order) < 2 * count else np.append(order[:count], order[-count:]))[::-1]
    rows = [
        [
            title(table["label"][i], table["name"][i]),
            f"{100 * train[i]:.2f}",
            f"{100 * here[i]:.2f}",
            f"{100 * change[i]:+.2f}",
        ]
        for i in chosen
    ]
    return text, Table("drift", ["label", "train, %", run.split + ", %", "change, points"], rows)


def extremes(run: RunResults, count: int = 10, least: int = 5) -> tuple[Table, Table]:
    """The labels of highest and lowest F1 among those with at least `least` documents."""
    table = run.per_label.to_pandas()
    known = table[table["support"] >= min(least, table["support"].max())]
    columns = ["label", "train", "documents", "precision", "recall", "F1"]
    found = []
    for name, ascending in (("best_labels", False), ("worst_labels", True)):
        ranked = known.sort_values(["f1", "support"], ascending=[ascending, False], kind="stable")[:count]
        rows = [
            [
                title(x.label, x.name_),
                f"{x.train_count:,}",
                f"{x.support:,}",
                *map(_cell, (x.precision, x.recall, x.f1)),
            ]
            for x in ranked.rename(columns={"name": "name_"}).itertuples()
        ]
        found.append(Table(name, columns, rows))
    return found[0], found[1]


def title(label: str, name: str) -> str:
    """A label with its name, where it has one."""
    return label if name == label else f"{label} ({name})"


def _cell(value: float) -> str:
    return percent(None if np.isnan(value) else value)


def confusion(run: RunResults) -> Table | None:
    """Gold by predicted class of a single-label task, or its most frequent mistakes where there are many classes."""
    names = run.per_label["label"].to_pylist()
    if matrix := run.details.get("confusion"):
        rows = [[name, *(f"{value:,}" for value in row)] for name, row in zip(names, matrix, strict=True)]
        return Table("confusion", ["gold ↓ predicted →", *names], rows)
    support, mistakes = run.per_label["support"].to_pylist(), run.details.get("confusions")
    if not mistakes:
        return None
    rows = [[names[i], names[j], f"{count:,}", percent(count / support[i])] for i, j, count in mistakes]
    return Table("confusions", ["gold", "predicted", "documents", "of the gold label's, %"], rows, words=2)


def configuration(run: RunResults) -> str:
    """The resolved configuration as YAML."""
    return yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True) if run.config else ""


def provenance(runs: Sequence[RunResults]) -> Table:
    """Versions, commit, times, world size."""
    facts: dict[str, list[str]] = {}
    for r, run in enumerate(runs):
        for key, value in _facts(run).items():
            facts.setdefault(key, ["–"] * len(runs))[r] = value
    return Table(
        "provenance",
        ["", *(run.name for run in runs)],
        [[key, *values] for key, values in facts.items()],
        words=1 + len(runs),
    )


def _facts(run: RunResults) -> dict[str, str]:
    metrics, record = run.metrics, run.record
    threshold = metrics.get("threshold")
    decision = "best label" if threshold is None else f"score ≥ {threshold:.4f}"
    if metrics.get("labels_with_own_threshold"):
        decision += f", and {metrics['labels_with_own_threshold']:,} labels' own thresholds"
    facts = {
        "split": run.split,
        "documents": f"{metrics['docs']:,}",
        "labels (with documents here)": f"{metrics['labels']:,} ({metrics['labels_present']:,})",
        "training documents": f"{metrics['train_docs']:,}",
        "gold labels per document": f"{metrics['labels_per_doc']:.2f}",
        "predicted labels per document": f"{metrics['predicted_per_doc']:.2f}",
        "decision": decision + (", tuned on these very documents" if metrics.get("threshold_tuned_here") else ""),
        "predictions kept per document": f"{metrics['top_k']}",
    }
    if metrics.get("truncated_docs"):
        facts["documents predicted beyond those kept"] = f"{metrics['truncated_docs']:,}"
    for key in ("created_at", "updated_at", "config_hash"):
        if key in record:
            facts[key.replace("_", " ")] = str(record[key])
    if record.get("git"):
        facts["git"] = ", ".join(f"{k} {v}" for k, v in record["git"].items())
    sessions = record.get("sessions") or []
    if sessions:
        facts["command"] = " ".join(sessions[-1]["command"])
        facts["workers"] = str(sessions[-1]["world_size"])
    for stage, state in record.get("stages", {}).items():
        facts[f"stage {stage}"] = state["state"]
    return facts | {f"version of {k}": str(v) for k, v in record.get("versions", {}).items()}


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as dotted keys and JSON values."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        path = f"{prefix}{key}"
        found |= flat(value, path + ".") if isinstance(value, Mapping) else {path: json.dumps(value, default=str)}
    return found
