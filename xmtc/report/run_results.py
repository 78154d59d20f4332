"""What a run directory holds for the report; optional parts may be absent."""

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
from xmtc.evaluate.evaluation import Evaluation
from xmtc.evaluate.store import read_replicates, read_table
from xmtc.files import read_json, real
from xmtc.run.directory import RunDirectory
from xmtc.track.tracker import read_metrics


@dataclass(frozen=True)
class RunResults:
    """A run as the report sees it.

    Attributes:
        name: of the run.
        split: evaluated split.
        metrics: metrics.json.
        per_label: per_label.parquet.
        details: details.json; empty where absent.
        replicates: for intervals of differences; None where absent.
        history: records of metrics.jsonl, in order.
        config: config.yaml; empty where absent.
        record: run.json; empty where absent.
        attention: attention_overlap.json, None where absent.
        scorers: scorers.json of dev, None where absent.
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
    attention: Mapping[str, Any] | None
    scorers: Mapping[str, Any] | None = None

    @classmethod
    def load(cls, run: Path, split: str | None = None, name: str | None = None) -> "RunResults":
        """Read a run directory, or the output folder of `xmtc evaluate --predictions`.

        Args:
            run: the directory.
            split: which evaluated split; by default test, or else dev, or else the only one.
            name: replaces the directory's name.

        Raises:
            DataError: no evaluation there, or a damaged file.
        """
        files, folder = RunDirectory(run), _evaluation_folder(run, split)
        attention = _json(folder / layout.ATTENTION_OVERLAP) or _json(
            files.evaluation("dev") / layout.ATTENTION_OVERLAP
        )
        replicates = folder / layout.REPLICATES
        metrics = _json(folder / layout.METRICS)
        if absent := [
            key for key in ("docs", "docs_with_labels", "labels", "labels_present", "bins") if key not in metrics
        ]:
            raise DataError(f"{folder / layout.METRICS}: no {absent[0]!r}; evaluate the run again")
        return cls(
            name or real(run).name,
            split or folder.name if folder != run else "predictions",
            metrics,
            read_table(folder / layout.PER_LABEL),
            _json(folder / layout.DETAILS),
            read_replicates(replicates) if replicates.exists() else None,
            read_metrics(files.metrics_log),
            _yaml(files.config),
            redacted(_json(files.record)),
            attention or None,
            _json(files.evaluation("dev") / layout.SCORERS) or None,
        )

    @classmethod
    def of(cls, evaluation: Evaluation, name: str, split: str) -> "RunResults":
        """From an evaluation in memory, without training history."""
        return cls(
            name,
            split,
            evaluation.metrics,
            evaluation.per_label,
            evaluation.details,
            evaluation.replicates,
            [],
            {},
            {},
            None,
        )


def _evaluation_folder(run: Path, split: str | None) -> Path:
    if split is None and (run / layout.METRICS).exists():
        return run
    directory = RunDirectory(run)
    found = directory.evaluated()
    wanted = [split] if split else [*(name for name in ("test", "dev") if name in found), *found]
    if not wanted or wanted[0] not in found:
        there = f"it has {', '.join(found)}" if found else "it has none"
        what = f" of split {split!r}" if split else ""
        raise DataError(f"{run}: no evaluation{what} ({there}); run 'xmtc evaluate' first")
    return directory.evaluation(wanted[0])


def _yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; empty without a file."""
    if not path.exists():
        return {}
    try:
        return redacted(yaml_tree.read(path, []).plain())
    except ConfigError as error:
        raise DataError(f"{path}: damaged: not the YAML of a run; copy it again") from error


def _json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty without a file."""
    if not path.exists():
        return {}
    try:
        found = read_json(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: damaged ({error}); evaluate the run again") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}: not a JSON object; evaluate the run again")
    return found
