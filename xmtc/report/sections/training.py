"""Loss and dev metrics of every stage by step."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.evaluate.metrics import all_metrics
from xmtc.report.charts import Axis, Series, line_chart
from xmtc.report.run_results import RunResults
from xmtc.report.section import Chart, Figures, Page, Part, Section, union
from xmtc.run.directory import Stage

_STAGE_TITLES = {
    str(Stage.PLANT): "Stage 1, planting",
    str(Stage.FINETUNE): "Stage 2, fine-tuning",
}
_MEASURED_ON_THE_WAY = {
    str(
        Stage.PLANT
    ): "How well the attention ranks each label's informative tokens, on dev.",
    str(
        Stage.FINETUNE
    ): "The head alone on a sample of dev, before calibration and fusion: the headline differs.",
}
_DEV_METRICS = (
    "dev/ndcg@5",
    "dev/ndcg@10",
    "dev/ndcg",
    "dev/micro_f1",
    "dev/macro_f1",
    "dev/accuracy",
    "dev/loss",
)
_DEV_METRICS_ONE_LABEL = ("dev/accuracy", "dev/macro_f1", "dev/loss")
_MOST_POINTS = 300
"""Points of a curve of training; more would make the page large and look the same."""
_MOST_MARKED = 40
"""Points of a curve that are each marked."""


class TrainingSection(Section):
    """Curves of what training logged."""

    name, heading, link = "training", "Training", "Training"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        charts = []
        for stage in union(
            [record["stage"] for record in run.history] for run in page.runs
        ):
            charts += _charts_of_stage(page, stage)
        return [Figures(charts)] if charts else []


def _charts_of_stage(page: Page, stage: str) -> list[Chart]:
    """Draw the loss and each dev metric that a stage logged, by step."""
    logged = union(
        record.keys()
        for run in page.runs
        for record in run.history
        if record["stage"] == stage
    )
    dev_metrics = (
        _DEV_METRICS_ONE_LABEL
        if stage == Stage.FINETUNE and page.one_label
        else _DEV_METRICS
    )
    charts = []
    for key in ("train/loss", *sorted(dev_metrics)):
        lines = [
            _history(run, stage, key, index) for index, run in enumerate(page.runs)
        ]
        lines = [line for line in lines if line.x]
        if key in logged and lines:
            charts.append(_chart(stage, key, lines))
    return charts


def _chart(stage: str, key: str, lines: Sequence[Series]) -> Chart:
    """Draw what runs logged under a key in a stage."""
    of_dev = key.startswith("dev/")
    name = key.split("/")[1]
    titles = {metric.name: metric.title for metric in all_metrics() if metric.title}
    title = titles.get(name, name)
    is_share = of_dev and name != "loss"
    svg = line_chart(
        lines,
        Axis("step"),
        Axis(f"{title}, %" if is_share else title, percent=is_share),
        f"{title} of stage {stage} by step",
    )
    note = _MEASURED_ON_THE_WAY.get(stage, "") if of_dev else ""
    place = " on dev" if of_dev else " of training"
    return Chart(f"{_STAGE_TITLES.get(stage, stage)}: {title}{place}", note, svg)


def _history(run: RunResults, stage: str, key: str, index: int) -> Series:
    """Make the curve of what a run logged under a key in a stage."""
    records = [
        record
        for record in run.history
        if record["stage"] == stage and isinstance(record.get(key), int | float)
    ]
    of_dev = key.startswith("dev/")
    if not of_dev and len(records) > _MOST_POINTS:
        records = records[:: len(records) // _MOST_POINTS + 1]
    steps = [record["step"] for record in records]
    values = [record[key] for record in records]
    return Series(
        run.name, steps, values, index, marked=of_dev and len(records) < _MOST_MARKED
    )
