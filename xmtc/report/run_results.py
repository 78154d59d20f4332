"""What a run directory holds for the report; optional parts may be absent."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from xmtc.config import yaml_tree
from xmtc.config.plain import redacted
from xmtc.errors import ConfigError, DataError
from xmtc.evaluate import layout
from xmtc.evaluate.bootstrap import Replicates
from xmtc.evaluate.store import read_replicates, read_table
from xmtc.files import read_json, reading, resolve_links
from xmtc.run.directory import RunDirectory, Stage
from xmtc.track.tracker import read_metrics

_NEEDED_METRICS = ("docs", "docs_with_labels", "labels", "labels_present", "bins")


@dataclass(frozen=True)
class RunResults:
    """A run as the report sees it.

    Attributes:
        name: name of the run.
        split: evaluated split.
        metrics: metrics.json.
        per_label: per_label.parquet.
        details: details.json; empty if absent.
        replicates: for intervals of differences; None if absent.
        history: records of metrics.jsonl, in order.
        config: config.yaml; empty if absent.
        record: run.json; empty if absent.
        scorers: scorers.json of dev, None if absent.
        start: where training continued from a model, that model's results and this run's, on the same documents and
            labels.
    """

    name: str
    split: str
    metrics: Mapping[str, Any]
    per_label: pa.Table
    details: Mapping[str, Any]
    replicates: Replicates | None
    history: list[dict[str, Any]]
    config: Mapping[str, Any]
    record: Mapping[str, Any]
    scorers: Mapping[str, Any] | None = None
    start: "tuple[RunResults, RunResults] | None" = None

    def interval(self, metric: str) -> list[float] | None:
        """Return the interval of a metric, if it has one."""
        return self.metrics.get("ci95", {}).get(metric)

    @property
    def is_final(self) -> bool:
        """Whether the model that was evaluated is the one that training ends with."""
        return (
            self.record.get("stages", {}).get(Stage.EVALUATE, {}).get("state", "done")
            == "done"
        )

    @classmethod
    def load(
        cls, run: Path, split: str | None = None, name: str | None = None
    ) -> "RunResults":
        """Read a run directory, or the output folder of `xmtc evaluate --predictions`.

        Args:
            run: the directory.
            split: which evaluated split; by default test, or else dev, or else the only one.
            name: replaces the directory's name.

        Raises:
            DataError: no evaluation there, or a damaged file.
        """
        files = RunDirectory(run)
        folder = evaluation_folder_of(run, split)
        metrics = _json(folder / layout.METRICS)
        for key in _NEEDED_METRICS:
            if key not in metrics:
                raise DataError(
                    f"{folder / layout.METRICS}: no {key!r}; evaluate the run again"
                )
        replicates = folder / layout.REPLICATES
        split_name = split or folder.name
        return cls(
            name=name or resolve_links(run).name,
            split="predictions" if folder == run else split_name,
            metrics=metrics,
            per_label=read_table(folder / layout.PER_LABEL),
            details=_json(folder / layout.DETAILS),
            replicates=read_replicates(replicates) if replicates.exists() else None,
            history=read_metrics(files.metrics_log),
            config=_yaml(files.config),
            record=redacted(_json(files.record)),
            scorers=_json(files.evaluation("dev") / layout.SCORERS) or None,
            start=_start(files, split_name),
        )


def _start(files: RunDirectory, split: str) -> tuple[RunResults, RunResults] | None:
    """Read the results of the model that training started from and of this one, if both were compared on the split."""
    before = files.against_initial_model("before")
    after = files.against_initial_model("after")
    if split not in before.evaluated() or split not in after.evaluated():
        return None
    return RunResults.load(before.root, split, "the model before"), RunResults.load(
        after.root, split, files.root.name
    )


def evaluation_folder_of(run: Path, split: str | None) -> Path:
    """Find the folder of a split; without one, of test, or else of dev, or else of whatever was evaluated.

    Raises:
        DataError: that split, or any, has not been evaluated.
    """
    if split is None and (run / layout.METRICS).exists():
        return run
    directory = RunDirectory(run)
    evaluated = directory.evaluated()
    if split is None:
        for candidate in ("test", "dev", *evaluated):
            if candidate in evaluated:
                return directory.evaluation(candidate)
    elif split in evaluated:
        return directory.evaluation(split)
    if evaluated:
        there = f"it has {', '.join(evaluated)}"
    else:
        there = "it has none" if run.is_dir() else "no such folder"
    of_split = f" of split {split!r}" if split else ""
    raise DataError(
        f"{run}: no evaluation{of_split} ({there}); give a finished run, or run 'xmtc evaluate' first"
    )


def _yaml(path: Path) -> dict[str, Any]:
    """Read the mapping in a YAML file; empty without a file."""
    if not path.exists():
        return {}
    try:
        return redacted(yaml_tree.read(path, []).plain())
    except ConfigError as error:
        raise DataError(
            f"{path}: damaged: not the YAML of a run; copy it again"
        ) from error


def _json(path: Path) -> dict[str, Any]:
    """Read the object in a JSON file; empty without a file."""
    if not os.path.lexists(path):
        return {}
    with reading(path, fix="evaluate the run again"):
        content = read_json(path)
    if not isinstance(content, dict):
        raise DataError(f"{path}: not a JSON object; evaluate the run again")
    return content
