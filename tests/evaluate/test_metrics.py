"""The list of metrics, and the page that it writes."""

import subprocess
import sys
from pathlib import Path

import pytest

from xmtc.evaluate.metrics import (
    EVERY_TASK,
    all_metrics,
    bin_metrics,
    goals,
    summary_metrics,
)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
_CHECK = "import sys; import xmtc.evaluate.metrics as m; m.goals('multi_label'); sys.exit('numpy' in sys.modules)"


def table() -> str:
    """One row for each definition, with the metrics that share it."""
    keys: dict[str, list[str]] = {}
    for metric in all_metrics():
        keys.setdefault(metric.definition.replace("|", r"\|"), []).append(
            f"`{metric.name}`"
        )
    rows = [
        f"| {', '.join(names)} | {definition} |" for definition, names in keys.items()
    ]
    return "\n".join(["| key | definition |", "|---|---|", *rows])


def test_the_page_has_every_definition() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), (
        f"put this table into {PAGE.name}:\n{table()}"
    )


def test_every_metric_is_named_once_and_defined() -> None:
    names = [metric.name for metric in all_metrics()]
    assert len(set(names)) == len(names)
    assert all(metric.definition for metric in all_metrics())


@pytest.mark.parametrize("task", EVERY_TASK)
def test_a_task_has_goals_a_summary_and_bins(task: str) -> None:
    assert {"macro_f1", "micro_f1"} <= set(goals(task))
    assert "macro_f1" in [metric.name for metric in summary_metrics(task)]
    assert bin_metrics(task)[0].name == "macro_f1"


def test_checking_a_configuration_needs_no_numpy() -> None:
    assert subprocess.run([sys.executable, "-c", _CHECK], check=False).returncode == 0
