"""The best and the worst labels, which classes are confused, and a table of every label that the reader can search."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from typing_extensions import override

from xmtc.evaluate.summary import percent
from xmtc.report.run_results import RunResults
from xmtc.report.section import Page, Part, Section, Table, label_title

_EXTREMES, _MIN_SUPPORT = 10, 5  # labels of highest and of lowest F1, and documents that each must have
MAX_LABELS, _NAME_LENGTH = 60_000, 80  # of the table of every label


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
        explorer = _Explorer(len(columns["labels"]), columns["total"], bins, embed(columns))
        return [*_extremes(page.first), _confusion(page.first), explorer]


def _extremes(run: RunResults) -> list[Table]:
    """Find the labels of highest and lowest F1 among those with enough documents."""
    table = run.per_label.to_pandas()
    least = min(_MIN_SUPPORT, int(table["support"].max()))
    known = table[table["support"] >= least]
    columns = ["label", "train", "documents", "precision", "recall", "F1"]
    found = []
    for name, which, ascending in (("best_labels", "Highest", False), ("worst_labels", "Lowest", True)):
        ranked = known.sort_values(["f1", "support"], ascending=[ascending, False], kind="stable")[:_EXTREMES]
        rows = [
            [
                label_title(x.label, x.name_),
                f"{x.train_count:,}",
                f"{x.support:,}",
                *(percent(None if np.isnan(share) else share) for share in (x.precision, x.recall, x.f1)),
            ]
            for x in ranked.rename(columns={"name": "name_"}).itertuples()
        ]
        found.append(Table(name, columns, rows, caption=f"{which} F1, of labels with {least} or more documents"))
    return found


def _confusion(run: RunResults) -> Table | None:
    """Tabulate gold by predicted class of a single-label task, if there are not too many."""
    matrix, names = run.details.get("confusion"), run.per_label["label"].to_pylist()
    if not matrix:
        return None
    rows = [[name, *(f"{value:,}" for value in row)] for name, row in zip(names, matrix, strict=True)]
    return Table("confusion", ["gold ↓ predicted →", *names], rows, caption="Confusion matrix")


def label_columns(runs: Sequence[RunResults]) -> dict[str, Any]:
    """Columns over the labels of all runs: label, name, training and evaluated documents, and per run tp, fp, AP and
    the most confused labels. Precision, recall and F1 follow from these and are left to the page.

    Beyond 60,000 labels those with most documents in the split are kept, then those most frequent in training.

    Returns:
        JSON-able columns; `total` is the number of labels there are.
    """
    frames = [run.per_label.to_pandas().set_index("label") for run in runs]
    index = frames[0].index
    for frame in frames[1:]:
        index = index.union(frame.index, sort=False)
    first = frames[0].reindex(index)
    for frame in frames[1:]:
        first = first.combine_first(frame).reindex(index)
    total = len(index)
    if total > MAX_LABELS:
        order = first.sort_values(["support", "train_count"], ascending=False, kind="stable").index[:MAX_LABELS]
        index = index[index.isin(order)]
        first = first.loc[index]
    place = {label: i for i, label in enumerate(index)}
    names = first["name"].fillna("").tolist()
    return {
        "total": total,
        "labels": index.tolist(),
        "names": [0 if name == label else _short(name) for name, label in zip(names, index, strict=True)],
        "train": _integers(first, "train_count"),
        "support": _integers(first, "support"),
        "runs": [_run(run.name, frame.reindex(index), place, first) for run, frame in zip(runs, frames, strict=True)],
    }


def _short(name: str) -> str:
    return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"


def _integers(frame: pd.DataFrame, name: str) -> list[int]:
    return frame[name].fillna(0).astype(np.int64).tolist()


def _run(name: str, frame: pd.DataFrame, place: dict[str, int], first: pd.DataFrame) -> dict[str, Any]:
    """Make a run's columns; `support` is 0 if it is the same as that of all runs."""
    support = _integers(frame, "support")
    precision = (frame["average_precision"] * 1000).round().fillna(-1).astype(int)
    confused = [
        [place[x] for x in row if x in place] if isinstance(row, list | np.ndarray) else []
        for row in frame["confused_with"]
    ]
    return {
        "name": name,
        "tp": _integers(frame, "tp"),
        "fp": _integers(frame, "fp"),
        "support": 0 if support == _integers(first, "support") else support,
        "ap": precision.tolist(),
        "confused": [row or 0 for row in confused],
    }


def embed(value: Any) -> Markup:
    """Write JSON for a script element: no `<` of it can end the element."""
    return Markup(json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c"))
