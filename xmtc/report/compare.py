"""Several runs side by side: paired differences, labels won and lost and by how much, settings that differ."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from xmtc.config.plain import flattened
from xmtc.data.bins import bin_mask
from xmtc.evaluate.bootstrap import Difference, paired_difference
from xmtc.evaluate.metrics import summary_metrics
from xmtc.evaluate.summary import percent
from xmtc.report.run_results import RunResults
from xmtc.report.section import Table, label_title, task_of_all, union

_METRICS_OF_BINS = {"macro_f1": "macro-F1", "micro_recall": "micro-recall"}
_EXTREMES = 8
"""Labels at either end of the changes."""
_MIN_SUPPORT = 5
"""Documents that each of them must have."""


@dataclass(frozen=True)
class MetricChange:
    """How a metric of a run differs from that of the run that it is compared with.

    Attributes:
        title: the metric in words.
        change: run minus base, as a fraction.
        difference: the interval of the change, on paired resamples.
        resamples: number of these.
    """

    title: str
    change: float
    difference: Difference
    resamples: int

    @property
    def is_better(self) -> bool:
        """Whether the interval lies above 0."""
        return self.difference.low > 0

    @property
    def is_worse(self) -> bool:
        """Whether the interval lies below 0."""
        return self.difference.high < 0

    @property
    def interval(self) -> str:
        """The interval in points."""
        return f"[{100 * self.difference.low:+.2f}, {100 * self.difference.high:+.2f}]"

    def cells(self, run: str) -> list[str]:
        """Write the row of the table of differences."""
        mark = ""
        if self.is_better:
            mark = " ▲"
        elif self.is_worse:
            mark = " ▼"
        least_p = 1 / self.resamples
        p_value = self.difference.p_value
        p_cell = f"≤ {least_p:.3f}" if p_value <= least_p else f"{p_value:.3f}"
        return [
            self.title,
            run,
            f"{100 * self.change:+.2f}{mark}",
            self.interval,
            p_cell,
        ]


def paired_differences(runs: Sequence[RunResults]) -> tuple[Table, list[str]]:
    """Subtract the first run from each later one, on paired resamples of the same documents.

    Returns:
        The table, and for every run that cannot be paired a sentence why.
    """
    base = runs[0]
    rows = []
    unpaired = []
    for index, run in enumerate(runs[1:], 1):
        reason = _why_not_paired(base, run)
        if reason is not None:
            unpaired.append(reason)
        else:
            rows += [
                (index, change.cells(run.name)) for change in _metric_changes(base, run)
            ]
    columns = ["metric", "run", "difference, points", "95 % interval", "p"]
    table = Table.by_run(
        "differences",
        columns,
        rows,
        f"Run minus {base.name}",
        in_summary=True,
        unfolded=True,
    )
    return table, unpaired


def worse_metrics(before: RunResults, after: RunResults) -> list[str]:
    """Describe the metrics that became worse by more than chance explains: the difference's interval is below 0."""
    if _why_not_paired(before, after) is not None:
        return []
    changes = [change for change in _metric_changes(before, after) if change.is_worse]
    return [
        f"{change.title} {100 * change.change:+.2f} {change.interval}"
        for change in changes
    ]


def _why_not_paired(base: RunResults, run: RunResults) -> str | None:
    """Say why two runs cannot be paired; None if they can."""
    if base.replicates is None or run.replicates is None:
        return f"{run.name}: a run without bootstrap has no intervals to compare"
    if base.replicates.identity != run.replicates.identity:
        return f"{run.name}: its documents, their order, or the bootstrap's settings are not {base.name}'s"
    return None


def other_documents(runs: Sequence[RunResults]) -> list[str]:
    """List the later runs that are not known to have the first's documents: their figures may not be comparable."""
    return [run.name for run in runs[1:] if _documents(run) != _documents(runs[0])]


def _documents(run: RunResults) -> tuple[object, ...]:
    """Return what identifies the documents that a run was evaluated on."""
    identity = None if run.replicates is None else run.replicates.identity
    return run.split, run.metrics["docs"], identity


def caveats(runs: Sequence[RunResults]) -> list[str]:
    """Write a sentence for every later run with other labels than the first: their metrics are not comparable."""
    first = runs[0]
    labels_of_first = set(_train_counts_of_present(first).index)
    sentences = []
    for run in runs[1:]:
        labels = set(_train_counts_of_present(run).index)
        if labels_of_first != labels:
            sentences.append(
                f"{run.name}: of the labels with documents here, {len(labels_of_first - labels):,} are only in "
                f"{first.name} and {len(labels - labels_of_first):,} only in {run.name}, so that metrics and "
                "differences are not of the same labels"
            )
        if len(_same_bins(first, run)) < len(first.metrics["bins"]):
            sentences.append(
                f"{run.name}: labels have other numbers of training documents than in {first.name}; groups that "
                "therefore hold other labels are not compared, and the counts of labels below go by the first run's"
            )
    return sentences


def _train_counts_of_present(run: RunResults) -> pd.Series:
    """Count the training documents of each label that has documents in the split."""
    table = (
        run.per_label.select(["label", "train_count", "support"])
        .to_pandas()
        .set_index("label")
    )
    return table.loc[table["support"] > 0, "train_count"]


def _same_bins(base: RunResults, run: RunResults) -> list[str]:
    """List the bins of the first run in which both runs have the same labels, of those that have documents in both."""
    counts = [_train_counts_of_present(base), _train_counts_of_present(run)]
    both = pd.concat(counts, axis=1, join="inner").to_numpy()
    same = []
    for name in base.metrics["bins"]:
        in_base = bin_mask(name, both[:, 0])
        in_run = bin_mask(name, both[:, 1])
        if (in_base == in_run).all():
            same.append(name)
    return same


def _metric_changes(base: RunResults, run: RunResults) -> list[MetricChange]:
    """Compare the metrics of summaries, and those of bins with the same labels in both runs."""
    changes = []
    for metric in summary_metrics(task_of_all([base, run])):
        change = run.metrics[metric.name] - base.metrics[metric.name]
        changes.append(_metric_change(base, run, metric.title, metric.name, change))
    for name in _same_bins(base, run):
        in_base = base.metrics["bins"][name]
        in_run = run.metrics["bins"].get(name, {})
        for key, title in _METRICS_OF_BINS.items():
            if in_base.get(key) is not None and in_run.get(key) is not None:
                title_of_bin = f"{title} of labels with {name} training documents"
                changes.append(
                    _metric_change(
                        base,
                        run,
                        title_of_bin,
                        f"{name}/{key}",
                        in_run[key] - in_base[key],
                    )
                )
    return changes


def _metric_change(
    base: RunResults, run: RunResults, title: str, key: str, change: float
) -> MetricChange:
    """Find the interval of a change."""
    assert base.replicates is not None, "runs without bootstrap are not paired"
    assert run.replicates is not None, "runs without bootstrap are not paired"
    difference = paired_difference(run.replicates, base.replicates, key)
    return MetricChange(title, change, difference, len(run.replicates.values[key]))


def most_changed_labels(runs: Sequence[RunResults]) -> Table | None:
    """Find the labels whose F1 each later run changes most against the first."""
    rows = []
    for index, run in enumerate(runs[1:], 1):
        labels = _f1_of_both(runs[0], run, _MIN_SUPPORT)
        changed = labels.loc[labels["change"] != 0].sort_values(
            ["change", "support"], ascending=False, kind="stable"
        )
        if len(changed) >= 2 * _EXTREMES:
            changed = pd.concat([changed.head(_EXTREMES), changed.tail(_EXTREMES)])
        for label, row in changed.iterrows():
            counts = [f"{row['train_count']:,}", f"{row['support']:,}"]
            values = [
                f"{100 * row['f1']:.1f}",
                f"{100 * row['f1_of_run']:.1f}",
                f"{100 * row['change']:+.1f}",
            ]
            rows.append(
                (
                    index,
                    [
                        label_title(str(label), str(row["name"])),
                        run.name,
                        *counts,
                        *values,
                    ],
                )
            )
    columns = [
        "label",
        "run",
        "train",
        "documents",
        f"F1 of {runs[0].name}",
        "F1 of the run",
        "change, points",
    ]
    caption = (
        f"Labels whose F1 changed most, of those with {_MIN_SUPPORT} or more documents: "
        "extremes, so partly chance"
    )
    return Table.by_run("changes", columns, rows, caption) if rows else None


def _f1_of_both(base: RunResults, run: RunResults, least: int) -> pd.DataFrame:
    """Join the labels of two runs that have at least this many documents: `f1`, `f1_of_run` and their `change`."""
    of_base = base.per_label.to_pandas().set_index("label")
    of_run = run.per_label.to_pandas().set_index("label")
    both = of_base[of_base["support"] >= least].join(
        of_run["f1"].rename("f1_of_run"), how="inner"
    )
    both = both.fillna({"f1": 0, "f1_of_run": 0})
    return both.assign(change=both["f1_of_run"] - both["f1"])


def flip_tables(flips: Mapping[str, Any]) -> list[Table]:
    """Show which decisions flip, see `xmtc.evaluate.flips`; the columns on people are left out if nobody judged."""
    columns = ["before", "lost", "gained"]
    if flips["judged"] > 0:
        columns += [
            "lost: people gave it",
            "did not",
            "gained: people gave it",
            "did not ",
        ]

    def counts(row: Sequence[int]) -> list[str]:
        return [f"{count:,}" for count in row[: len(columns)]]

    tables = []
    groups = (
        ("bins", "training documents", [flips["all"], *flips["bins"]]),
        ("branches", "branch", flips["branches"]),
    )
    for name, title, rows in groups:
        cells = []
        for group, *counts_of_group, (share, *interval) in rows:
            cells.append([group, *counts(counts_of_group), percent(share, interval)])
        heads = [title, *columns, "flipped, %"]
        tables.append(
            Table(
                f"flips_{name}",
                heads,
                cells,
                caption=f"Decisions that flip, by {title}",
            )
        )
    cells_by_label = []
    for label, name, train_count, *counts_of_label in flips["labels"]:
        cells_by_label.append(
            [label_title(label, name), f"{train_count:,}", *counts(counts_of_label)]
        )
    caption = f"Labels that flip most; {flips['flipped']:,} of {flips['documents']:,} documents have a flip"
    heads = ["label", "training documents", *columns]
    return [*tables, Table("flips_labels", heads, cells_by_label, caption=caption)]


def differing_settings(runs: Sequence[RunResults]) -> Table | None:
    """List configuration keys whose values differ."""
    settings_by_run = []
    for run in runs:
        settings_by_run.append(
            {
                key: json.dumps(value, default=str)
                for key, value in flattened(run.config)
            }
        )
    rows = []
    for key in union(settings_by_run):
        values = [settings.get(key, "–") for settings in settings_by_run]
        if len(set(values)) > 1:
            rows.append([key, *values])
    columns = ["setting", *(run.name for run in runs)]
    return (
        Table(
            "settings",
            columns,
            rows,
            words=1 + len(runs),
            caption="Settings that differ",
        )
        if rows
        else None
    )
