"""Versions, commit, times, world size, and the whole configuration."""

from collections.abc import Mapping, Sequence
from typing import Any

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
        configurations = []
        for run in page.runs:
            if run.config:
                text = yaml.safe_dump(
                    dict(run.config), sort_keys=False, allow_unicode=True
                )
                configurations.append(Fold(f"Configuration of {run.name}", text))
        return [_provenance(page.runs), *configurations]


def _provenance(runs: Sequence[RunResults]) -> Table:
    """Describe versions, commit, times, world size: a row for each fact, a column for each run."""
    values_by_fact: dict[str, list[str]] = {}
    for index, run in enumerate(runs):
        for fact, value in _facts(run).items():
            values = values_by_fact.setdefault(fact, ["–"] * len(runs))
            values[index] = value
    return Table(
        "provenance",
        ["fact", *(run.name for run in runs)],
        [[fact, *values] for fact, values in values_by_fact.items()],
        words=1 + len(runs),
        caption="Data, versions and provenance",
    )


def _facts(run: RunResults) -> dict[str, str]:
    """Collect what was evaluated, and what run.json says of how the run came about."""
    return _facts_of_evaluation(run) | _facts_of_record(run)


def _facts_of_evaluation(run: RunResults) -> dict[str, str]:
    metrics = run.metrics
    facts = {
        "split": run.split,
        "documents": f"{metrics['docs']:,}",
        "labels (with documents here)": f"{metrics['labels']:,} ({metrics['labels_present']:,})",
        "training documents": f"{metrics['train_docs']:,}",
        "gold labels per document": f"{metrics['labels_per_doc']:.2f}",
        "predicted labels per document": f"{metrics['predicted_per_doc']:.2f}",
        "decision": _decision(run),
        "predictions kept per document": f"{metrics['top_k']}",
    }
    if metrics.get("truncated_docs"):
        facts["documents predicted beyond those kept"] = (
            f"{metrics['truncated_docs']:,}"
        )
    return facts


def _decision(run: RunResults) -> str:
    """Describe which labels are predicted."""
    decision = run.metrics.get("decision") or "best label"
    if decision == "micro":
        decision += f", score ≥ {run.metrics['threshold']:.4f}"
    if run.metrics.get("threshold_tuned_here"):
        decision += ", tuned on these very documents"
    return decision


def _facts_of_record(run: RunResults) -> dict[str, str]:
    record = run.record
    facts = {}
    for key in ("created_at", "updated_at", "config_hash"):
        if key in record:
            facts[key.replace("_", " ")] = str(record[key])
    if record.get("git"):
        facts["git"] = ", ".join(
            f"{key} {value}" for key, value in record["git"].items()
        )
    sessions = record.get("sessions") or []
    if sessions:
        trained = _session_that_trained(record, sessions)
        facts["command"] = " ".join(trained["command"])
        facts["workers"] = str(trained["world_size"])
    for name, stage in record.get("stages", {}).items():
        if name != Stage.REPORT:  # the stage that writes this page is not over yet
            facts[f"stage {name}"] = stage["state"]
    for package, version in record.get("versions", {}).items():
        facts[f"version of {package}"] = str(version)
    return facts


def _session_that_trained(
    record: Mapping[str, Any], sessions: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Find the call in which training last began: a later one may have skipped all that was finished."""
    stages = record.get("stages", {})
    began = max(
        (
            stages[name]["started_at"]
            for name in (Stage.SCORERS, Stage.PLANT, Stage.FINETUNE)
            if stages.get(name, {}).get("started_at")
        ),
        default="",
    )
    before = [session for session in sessions if session["started_at"] <= began]
    return before[-1] if before else sessions[-1]
