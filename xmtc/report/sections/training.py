"""Loss and dev metrics of every stage by step."""

from collections.abc import Sequence

from typing_extensions import override

from xmtc.report.charts import Axis, Series, line_chart
from xmtc.report.run_results import RunResults
from xmtc.report.section import Chart, Figures, Page, Part, Section, union
from xmtc.run.directory import Stage

_MEASURED_ON_THE_WAY = {
    str(Stage.PLANT): "How well the attention ranks each label's informative tokens, on dev.",
    str(Stage.FINETUNE): "The head alone on a sample of dev, before calibration and fusion: the headline differs.",
}
_DEV_METRICS = ("dev/ndcg@5", "dev/ndcg@10", "dev/ndcg", "dev/micro_f1", "dev/macro_f1", "dev/accuracy", "dev/loss")
_DEV_METRICS_ONE_LABEL = ("dev/accuracy", "dev/macro_f1", "dev/loss")


class TrainingSection(Section):
    """Curves of what training logged."""

    name, heading, link = "training", "Training", "Training"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        charts = _charts(page)
        return [Figures(charts)] if charts else []


def _charts(page: Page) -> list[Chart]:
    """Draw loss and dev metrics of every stage by step."""
    stages = union([record["stage"] for record in run.history] for run in page.runs)
    titles = {str(Stage.PLANT): "Stage 1, planting", str(Stage.FINETUNE): "Stage 2, fine-tuning"}
    charts = []
    for stage in stages:
        keys = union(record.keys() for run in page.runs for record in run.history if record["stage"] == stage)
        drawn = _DEV_METRICS_ONE_LABEL if stage == Stage.FINETUNE and page.one_label else _DEV_METRICS
        wanted = ["train/loss", *sorted(key for key in keys if key in drawn)]
        for key in (k for k in wanted if k in keys):
            lines = [_history(run, stage, key, r) for r, run in enumerate(page.runs)]
            lines = [line for line in lines if line.x]
            if lines:
                y = Axis(key.split("/")[1] + (", %" if key.startswith("dev/") else ""), percent=key.startswith("dev/"))
                svg = line_chart(lines, Axis("step"), y, f"{key} of stage {stage} by step")
                note = _MEASURED_ON_THE_WAY.get(stage, "") if key.startswith("dev/") else ""
                charts.append(Chart(f"{titles.get(stage, stage)}: {key}", note, svg))
    return charts


def _history(run: RunResults, stage: str, key: str, r: int) -> Series:
    records = [x for x in run.history if x["stage"] == stage and isinstance(x.get(key), int | float)]
    if not key.startswith("dev/") and len(records) > 300:
        records = records[:: len(records) // 300 + 1]
    marked = key.startswith("dev/") and len(records) < 40
    return Series(run.name, [x["step"] for x in records], [x[key] for x in records], r, marked)
