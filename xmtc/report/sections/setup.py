"""Versions, commit, times, world size, and the whole configuration."""

from collections.abc import Sequence

import yaml
from typing_extensions import override

from xmtc.report.run_results import RunResults
from xmtc.report.section import Fold, Page, Part, Section, Table
from xmtc.run.directory import Stage


class SetupSection(Section):
    """What each run was made from."""

    name, heading, link = "setup", "Setup", "Setup"

    @override
    def render(self, page: Page) -> Sequence[Part]:
        configurations = [
            Fold(f"Configuration of {run.name}", yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True))
            for run in page.runs
            if run.config
        ]
        return [_provenance(page.runs), *configurations]


def _provenance(runs: Sequence[RunResults]) -> Table:
    """Describe versions, commit, times, world size."""
    facts: dict[str, list[str]] = {}
    for r, run in enumerate(runs):
        for key, value in _facts(run).items():
            facts.setdefault(key, ["–"] * len(runs))[r] = value
    return Table(
        "provenance",
        ["", *(run.name for run in runs)],
        [[key, *values] for key, values in facts.items()],
        words=1 + len(runs),
        caption="Data, versions and provenance",
    )


def _facts(run: RunResults) -> dict[str, str]:
    metrics, record = run.metrics, run.record
    decision = metrics.get("decision") or "best label"
    if decision == "micro":
        decision += f", score ≥ {metrics['threshold']:.4f}"
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
    stages = record.get("stages", {}).items()  # the last one writes this page
    facts |= {f"stage {name}": stage["state"] for name, stage in stages if name != Stage.REPORT}
    return facts | {f"version of {k}": str(v) for k, v in record.get("versions", {}).items()}
