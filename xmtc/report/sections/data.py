"""The data behind the figures: label counts, drift, confusions."""

from collections.abc import Sequence

import numpy as np
from typing_extensions import override

from xmtc.report.charts import Axis, Bars, bar_chart
from xmtc.report.run_results import RunResults
from xmtc.report.section import Chart, Figures, Page, Paragraph, Part, Section, Table, label_title

_DRIFTED = 5  # labels whose share rose most, and as many whose share fell most


class DataSection(Section):
    """How labels are distributed here and in training, and which classes are confused."""

    name, heading, link = "data", "Data", "Data"

    @override
    def render(self, page: Page) -> Sequence[Part | None]:
        return [Figures([_histogram(page.first)]), *_drift(page.first), _confusion(page.first)]


def _histogram(run: RunResults) -> Chart:
    """Count labels by their number of training documents."""
    edges = [0, 1, 2, 3, 6, 11, 21, 51, 101, 501, 1001]
    names = ["0", "1", "2", "≤5", "≤10", "≤20", "≤50", "≤100", "≤500", "≤1k", ">1k"]
    counts = run.per_label["train_count"].to_numpy()
    place = np.searchsorted(edges, counts, "right") - 1
    values = np.bincount(place, minlength=len(names)).tolist()
    last = max(i for i, v in enumerate(values) if v) + 1
    svg = bar_chart(names[:last], [Bars("labels", values[:last])], "training documents", Axis("labels"), "label counts")
    return Chart("Labels by number of training documents", f"{len(counts):,} labels.", svg, legend=False)


def _drift(run: RunResults) -> tuple[Paragraph, Table]:
    """Compare the evaluated split's label mix with training's: a sentence, and the labels that changed most."""
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
    chosen = (order if len(order) < 2 * _DRIFTED else np.append(order[:_DRIFTED], order[-_DRIFTED:]))[::-1]
    rows = [
        [
            label_title(table["label"][i], table["name"][i]),
            f"{100 * train[i]:.2f}",
            f"{100 * here[i]:.2f}",
            f"{100 * change[i]:+.2f}",
        ]
        for i in chosen
    ]
    columns = ["label", "train, %", run.split + ", %", "change, points"]
    return Paragraph(text), Table("drift", columns, rows, caption="Labels whose share changed most from training")


def _confusion(run: RunResults) -> Table | None:
    """Tabulate gold by predicted class of a single-label task, if there are not too many."""
    matrix, names = run.details.get("confusion"), run.per_label["label"].to_pylist()
    if not matrix:
        return None
    rows = [[name, *(f"{value:,}" for value in row)] for name, row in zip(names, matrix, strict=True)]
    return Table("confusion", ["gold ↓ predicted →", *names], rows, caption="Confusion matrix")
