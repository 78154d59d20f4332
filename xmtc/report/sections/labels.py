"""The best and the worst labels, and a table of every label that the reader can search."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from typing_extensions import override

from xmtc.evaluate.summary import percent
from xmtc.report.label_data import embed, label_columns
from xmtc.report.parts import Part, Table, TablePair
from xmtc.report.run_results import RunResults
from xmtc.report.section import Page, Section, label_title

_EXTREMES, _MIN_SUPPORT = 10, 5  # labels of highest and of lowest F1, and documents that each must have


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
    """Labels of the first run by F1, then all labels of all runs."""

    name, link = "labels", "Labels"

    @override
    def title(self, page: Page) -> str:
        return f"Labels of {page.first.name}" if page.several else "Labels"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        columns = label_columns(page.runs)
        bins = list(page.first.metrics["bins"])
        return [_extremes(page.first), _Explorer(len(columns["labels"]), columns["total"], bins, embed(columns))]


def _extremes(run: RunResults) -> TablePair:
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
                *map(_cell, (x.precision, x.recall, x.f1)),
            ]
            for x in ranked.rename(columns={"name": "name_"}).itertuples()
        ]
        found.append(Table(name, columns, rows, caption=f"{which} F1, of labels with {least} or more documents"))
    return TablePair(*found)


def _cell(value: float) -> str:
    return percent(None if np.isnan(value) else value)
