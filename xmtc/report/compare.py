"""Several runs side by side: paired differences, labels won and lost and by how much, settings that differ."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from xmtc.config.plain import flattened
from xmtc.data.bins import bin_mask
from xmtc.evaluate.bootstrap import paired_difference
from xmtc.evaluate.metrics import summary_metrics
from xmtc.evaluate.summary import percent
from xmtc.report.run_results import RunResults
from xmtc.report.section import Table, label_title, task_of_all

_OF_BINS = {"macro_f1": "macro-F1", "micro_recall": "micro-recall"}
_CHANGES, _MIN_SUPPORT = 8, 5  # labels at either end of the changes, and documents that each must have


def differences(runs: Sequence[RunResults]) -> tuple[Table, list[str]]:
    """Subtract the first run from each later one, on paired resamples of the same documents.

    Returns:
        The table, and for every run that cannot be paired a sentence why.
    """
    base, rows, owners, unpaired = runs[0], [], [], []
    for r, run in enumerate(runs[1:], 1):
        problem = _unpaired(base, run)
        if problem is not None:
            unpaired.append(problem)
        else:
            found = _pair(base, run)
            rows += found
            owners += [r] * len(found)
    columns = ["metric", "run", "difference, points", "95 % interval", "p"]
    caption = f"Run minus {base.name}"
    return Table("differences", columns, rows, owners, words=2, caption=caption, in_summary=True), unpaired


def worse(before: RunResults, after: RunResults) -> list[str]:
    """Describe the metrics that became worse by more than chance explains: the difference's interval is below 0."""
    rows = _pair(before, after) if _unpaired(before, after) is None else ()
    return [f"{words} {change.rstrip(' ▼')} {interval}" for words, _, change, interval, _ in rows if "▼" in change]


def _unpaired(base: RunResults, run: RunResults) -> str | None:
    """Say why two runs cannot be paired."""
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
    return run.split, run.metrics["docs"], run.replicates and run.replicates.identity


def caveats(runs: Sequence[RunResults]) -> list[str]:
    """Write a sentence for every later run with other labels than the first: their metrics are not comparable."""
    sentences = []
    for run in runs[1:]:
        here, there = (set(_present(one).index) for one in (runs[0], run))
        if here != there:
            sentences.append(
                f"{run.name}: of the labels with documents here, {len(here - there):,} are only in {runs[0].name} and "
                f"{len(there - here):,} only in {run.name}, so that metrics and differences are not of the same labels"
            )
        if len(_same_bins(runs[0], run)) < len(runs[0].metrics["bins"]):
            sentences.append(
                f"{run.name}: labels have other numbers of training documents than in {runs[0].name}; groups that "
                "therefore hold other labels are not compared, and the counts of labels below go by the first run's"
            )
    return sentences


def _present(run: RunResults) -> pd.Series:
    """Count the training documents of each label that has documents in the split."""
    table = run.per_label.select(["label", "train_count", "support"]).to_pandas().set_index("label")
    return table.loc[table["support"] > 0, "train_count"]


def _same_bins(a: RunResults, b: RunResults) -> list[str]:
    """List the bins of `a` that have documents in both runs and the same labels."""
    both = pd.concat([_present(a), _present(b)], axis=1, join="inner").to_numpy()
    return [name for name in a.metrics["bins"] if (bin_mask(name, both[:, 0]) == bin_mask(name, both[:, 1])).all()]


def _pair(base: RunResults, run: RunResults) -> list[list[str]]:
    assert base.replicates is not None
    assert run.replicates is not None
    rows = [
        (metric.title, metric.name, base.metrics[metric.name], run.metrics[metric.name])
        for metric in summary_metrics(task_of_all([base, run]))
    ]
    for name in _same_bins(base, run):
        a, b = base.metrics["bins"][name], run.metrics["bins"].get(name, {})
        for key, title in _OF_BINS.items():
            if a.get(key) is not None and b.get(key) is not None:
                rows.append((f"{title} of labels with {name} training documents", f"{name}/{key}", a[key], b[key]))
    cells, least = [], 1 / len(next(iter(run.replicates.values.values())))
    for words, key, a, b in rows:
        d = paired_difference(run.replicates, base.replicates, key)
        interval = f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}]"
        verdict = "" if d.low <= 0 <= d.high else (" ▲" if d.low > 0 else " ▼")
        p = f"≤ {least:.3f}" if d.p_value <= least else f"{d.p_value:.3f}"
        cells.append([words, run.name, f"{100 * (b - a):+.2f}{verdict}", interval, p])
    return cells


def changes(runs: Sequence[RunResults]) -> Table | None:
    """Find the labels whose F1 each later run changes most against the first."""
    rows = []
    for r, run in enumerate(runs[1:], 1):
        both = _f1_of_both(runs[0], run, _MIN_SUPPORT)
        both = both.query("change != 0").sort_values(["change", "support"], ascending=False, kind="stable")
        extremes = both if len(both) < 2 * _CHANGES else pd.concat([both.head(_CHANGES), both.tail(_CHANGES)])
        for label, x in extremes.iterrows():
            counts = (f"{x['train_count']:,}", f"{x['support']:,}")
            values = (f"{100 * x['f1']:.1f}", f"{100 * x['other']:.1f}", f"{100 * x['change']:+.1f}")
            rows.append((r, [label_title(str(label), str(x["name"])), run.name, *counts, *values]))
    columns = ["label", "run", "train", "documents", f"F1 of {runs[0].name}", "F1 of the run", "change, points"]
    caption = (
        f"Labels whose F1 changed most, of those with {_MIN_SUPPORT} or more documents: extremes, so partly chance"
    )
    return Table.by_run("changes", columns, rows, caption) if rows else None


def _f1_of_both(base: RunResults, run: RunResults, least: int) -> pd.DataFrame:
    """Join the labels of two runs that have at least this many documents: `f1`, `other` and its `change`."""
    first, other = (one.per_label.to_pandas().set_index("label") for one in (base, run))
    both = first[first["support"] >= least].join(other["f1"].rename("other"), how="inner")
    both = both.fillna({"f1": 0, "other": 0})
    return both.assign(change=both["other"] - both["f1"])


def flip_tables(found: Mapping[str, Any]) -> list[Table]:
    """Show which decisions flip, see `xmtc.evaluate.flips`; the columns on people are left out if nobody judged."""
    judged = found["judged"] > 0
    counts = ["before", "lost", "gained"]
    if judged:
        counts += ["lost: people gave it", "did not", "gained: people gave it", "did not "]

    def cells(row: Sequence[int]) -> list[str]:
        return [f"{count:,}" for count in row[: len(counts)]]

    tables = []
    for name, title, rows in (
        ("bins", "training documents", [found["all"], *found["bins"]]),
        ("branches", "branch", found["branches"]),
    ):
        shown = [[row[0], *cells(row[1:-1]), percent(row[-1][0], row[-1][1:])] for row in rows]
        tables.append(
            Table(f"flips_{name}", [title, *counts, "flipped, %"], shown, caption=f"Decisions that flip, by {title}")
        )
    rows = [[label_title(row[0], row[1]), f"{row[2]:,}", *cells(row[3:])] for row in found["labels"]]
    caption = f"Labels that flip most; {found['flipped']:,} of {found['documents']:,} documents have a flip"
    return [*tables, Table("flips_labels", ["label", "training documents", *counts], rows, caption=caption)]


def settings(runs: Sequence[RunResults]) -> Table | None:
    """List configuration keys whose values differ."""
    found = [{key: json.dumps(value, default=str) for key, value in flattened(run.config)} for run in runs]
    keys = list(dict.fromkeys(key for settings in found for key in settings))
    rows = [
        [key, *(settings.get(key, "–") for settings in found)]
        for key in keys
        if len({settings.get(key) for settings in found}) > 1
    ]
    columns = ["setting", *(run.name for run in runs)]
    return Table("settings", columns, rows, words=1 + len(runs), caption="Settings that differ") if rows else None
