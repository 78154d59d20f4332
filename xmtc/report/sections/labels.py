"""The best and the worst labels, which classes are confused, and a table of every label that the reader can search."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from typing_extensions import override

from xmtc.evaluate.summary import percent
from xmtc.report.run_results import RunResults
from xmtc.report.section import Page, Paragraph, Part, Section, Table, label_title

_EXTREMES = 10
"""Labels of highest, and of lowest, F1."""
_MIN_SUPPORT = 5
"""Documents that a label needs to be ranked by its F1."""
MAX_LABELS = 60_000
"""Labels in the table of every label."""
_NAME_LENGTH = 80


@dataclass(frozen=True)
class _Explorer(Part):
    """The table of every label, which the page's script fills.

    Attributes:
        shown: labels in it.
        total: labels there are.
        bins: groups of labels to choose from.
        data: JSON for the script.
    """

    template = "parts/explorer.html"
    shown: int
    total: int
    bins: Sequence[str]
    data: Markup


class LabelsSection(Section):
    """Labels of the first run by F1, its confusions, then all labels of all runs."""

    name, link = "labels", "Labels"

    @override
    def title(self, page: Page) -> str:
        return f"Labels of {page.first.name}" if page.several else "Labels"

    @override
    def render(self, page: Page) -> Sequence[Part | None]:
        columns = label_columns(page.runs)
        bins = list(page.first.metrics["bins"])
        explorer = _Explorer(
            len(columns["labels"]), columns["total"], bins, embed(columns)
        )
        return [*_best_and_worst(page.first), _confusion(page.first), explorer]


def _best_and_worst(run: RunResults) -> list[Part]:
    """Tabulate the labels of highest and of lowest F1 among those with enough documents; no label is in both.

    Labels without training documents are left out: the table of groups says how they fare.
    """
    labels = run.per_label.to_pandas()
    has_enough = labels["support"] >= _MIN_SUPPORT
    ranked = labels.loc[has_enough & (labels["train_count"] > 0)]
    count = min(_EXTREMES, len(ranked) // 2)
    if count == 0:
        text = (
            f"Fewer than two labels of training have {_MIN_SUPPORT} or more documents here: too few to say which fare "
            "best and worst."
        )
        return [Paragraph(text, "note")]
    best = ranked.sort_values(
        ["f1", "support"], ascending=[False, False], kind="stable"
    )[:count]
    rest = ranked.drop(best.index)
    worst = rest.sort_values(["f1", "support"], ascending=[True, False], kind="stable")[
        :count
    ]
    which = f"F1, of the {len(ranked):,} labels of training with {_MIN_SUPPORT} or more documents here"
    labels_of = "label of" if count == 1 else f"{count} labels of"
    return [
        _label_table("best_labels", best, f"The {labels_of} highest {which}"),
        _label_table("worst_labels", worst, f"The {labels_of} lowest {which}"),
    ]


def _label_table(name: str, labels: pd.DataFrame, caption: str) -> Table:
    """Tabulate labels with their counts and shares."""
    rows = []
    for label in labels.to_dict("records"):
        shares = [
            percent(None if np.isnan(label[key]) else label[key])
            for key in ("precision", "recall", "f1")
        ]
        counts = [f"{label['train_count']:,}", f"{label['support']:,}"]
        rows.append([label_title(label["label"], label["name"]), *counts, *shares])
    return Table(
        name,
        ["label", "train", "documents", "precision", "recall", "F1"],
        rows,
        caption=caption,
    )


def _confusion(run: RunResults) -> Table | None:
    """Tabulate gold by predicted class of a single-label task, if there are not too many."""
    matrix = run.details.get("confusion")
    if not matrix:
        return None
    labels = run.per_label["label"].to_pylist()
    rows = [
        [label, *(f"{value:,}" for value in row)]
        for label, row in zip(labels, matrix, strict=True)
    ]
    return Table(
        "confusion", ["gold ↓ predicted →", *labels], rows, caption="Confusion matrix"
    )


def label_columns(runs: Sequence[RunResults]) -> dict[str, Any]:
    """Columns over the labels of all runs: label, name, training and evaluated documents, and per run tp, fp, AP and
    the most confused labels. Precision, recall and F1 follow from these and are left to the page.

    Beyond 60,000 labels those with most documents in the split are kept, then those most frequent in training.

    Returns:
        JSON-able columns; `total` is the number of labels there are.
    """
    frames = [run.per_label.to_pandas().set_index("label") for run in runs]
    all_labels = _join(frames)
    total = len(all_labels)
    if total > MAX_LABELS:
        by_frequency = all_labels.sort_values(
            ["support", "train_count"], ascending=False, kind="stable"
        )
        all_labels = all_labels.loc[
            all_labels.index.isin(by_frequency.index[:MAX_LABELS])
        ]
    labels = all_labels.index
    place_by_label = {label: place for place, label in enumerate(labels)}
    names = []
    for label, name in zip(labels, all_labels["name"].fillna(""), strict=True):
        names.append(0 if name == label else _short(name))
    columns_by_run = []
    for run, frame in zip(runs, frames, strict=True):
        columns_by_run.append(
            _columns_of_run(run.name, frame.reindex(labels), place_by_label, all_labels)
        )
    return {
        "total": total,
        "labels": labels.tolist(),
        "names": names,
        "train": _integers(all_labels, "train_count"),
        "support": _integers(all_labels, "support"),
        "runs": columns_by_run,
    }


def _join(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join the labels of runs, in the order in which they first occur; the first run that has a label describes it."""
    labels = frames[0].index
    for frame in frames[1:]:
        labels = labels.union(frame.index, sort=False)
    joined = frames[0].reindex(labels)
    for frame in frames[1:]:
        joined = joined.combine_first(frame).reindex(labels)
    return joined


def _short(name: str) -> str:
    """Cut a long name."""
    return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"


def _integers(frame: pd.DataFrame, name: str) -> list[int]:
    """List a column of counts; a label that a run does not have counts 0."""
    return frame[name].fillna(0).astype(np.int64).tolist()


def _columns_of_run(
    name: str,
    frame: pd.DataFrame,
    place_by_label: Mapping[str, int],
    all_labels: pd.DataFrame,
) -> dict[str, Any]:
    """Make a run's columns; `support` is 0 if it is the same as that of all runs."""
    support = _integers(frame, "support")
    average_precision = (
        (frame["average_precision"] * 1000).round().fillna(-1).astype(int)
    )
    confused: list[list[int] | int] = []
    for labels in frame["confused_with"]:
        is_list = isinstance(
            labels, list | np.ndarray
        )  # of a label that the run does not have, it is NaN
        places = (
            [place_by_label[label] for label in labels if label in place_by_label]
            if is_list
            else []
        )
        confused.append(places or 0)
    return {
        "name": name,
        "tp": _integers(frame, "tp"),
        "fp": _integers(frame, "fp"),
        "support": 0 if support == _integers(all_labels, "support") else support,
        "ap": average_precision.tolist(),
        "confused": confused,
    }


def embed(value: Any) -> Markup:
    """Write JSON for a script element: no `<` of it can end the element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))
