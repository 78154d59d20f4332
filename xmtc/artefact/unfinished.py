"""What is so where a model is not there, or is not a run's last one: mistyped names, and runs that are not finished."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from xmtc.config.problems import suggestion
from xmtc.files import parse_json, read_file

logger = logging.getLogger(__name__)

_RECORD = "run.json"
CONFIG = "config.json"
_MODEL = "model"
_LAST = "evaluate"
"""The stage that writes a run's last model."""
_FIRST = "scorers"
"""The stage that writes its first model."""
_WHAT = "give a run or a model, such as runs/quickstart"
_MOST_ERROR = 200
"""Characters of a stage's error that are quoted."""


def why_no_model(folder: Path) -> str:
    """Say why a folder holds no model, and what to do.

    Args:
        folder: what the user gave, or the folder `model` in it.
    """
    run = _run_of(folder)
    if run is not None:
        return _why_not_yet(run)
    if folder.is_file():
        return f"{folder}: is a file; {_WHAT}"
    if folder.is_dir():
        return f"{folder / CONFIG}: missing, so no model is there, and no run either; {_WHAT}"
    return f"{folder}: no such folder; {similar_run(folder)}{_WHAT}"


def warn_if_not_last(model: Path) -> None:
    """Warn if the run to which a model belongs has not written its last model yet.

    Args:
        model: folder of the model.
    """
    run = _run_of(model)
    stages = {} if run is None else _stages(run)
    state = _state(stages, _LAST)
    if run is None or state in (None, "done"):
        return
    if _state(stages, _FIRST) == "done":
        which = "the run's first model, of its scorers without the trained head"
    else:
        which = "of an earlier start of the run"
    _warn_once(
        f"{run}: its stage {_LAST} is {state}: this model is {which}; the last one replaces it when {_LAST} is done"
    )


@cache
def _warn_once(message: str) -> None:
    logger.warning("%s", message)


def _run_of(folder: Path) -> Path | None:
    """Return the run that a folder is, or whose model it is; None if it is neither."""
    runs = [folder, *([folder.parent] if folder.name == _MODEL else [])]
    return next((run for run in runs if (run / _RECORD).is_file()), None)


def _why_not_yet(run: Path) -> str:
    """Say which stage keeps a run from having a model."""
    stages = _stages(run)
    begun = [name for name in stages if _state(stages, name) in ("running", "failed")]
    pending = [name for name in stages if _state(stages, name) == "pending"]
    stage = next(iter([*begun, *pending]), None)
    what = f"{run}: this run has no model yet"
    if stage is None:
        return f"{run}: this run has no model any more: start it again to write it"
    state = _state(stages, stage)
    if state == "failed":
        error = stages[stage].get("error") or "unknown"
        return f"{what}: its stage {stage} has failed ({str(error)[:_MOST_ERROR]}); start it again to continue"
    return f"{what}: its stage {stage} is {state}; xmtc status {run} says how far the run is"


def _stages(run: Path) -> Mapping[str, Any]:
    """Read the stages of a run's record; empty if the record is damaged, of which `xmtc status` tells."""
    with suppress(OSError, ValueError, AttributeError):
        stages = parse_json(read_file(run / _RECORD)).get("stages")
        if isinstance(stages, dict):
            return stages
    return {}


def _state(stages: Mapping[str, Any], name: str) -> str | None:
    """Return the state of a stage; None if the record does not have it."""
    stage = stages.get(name)
    return stage.get("state") if isinstance(stage, dict) else None


def similar_run(folder: Path) -> str:
    """Ask whether a run of a similar name is meant, in the same folder or in `runs`; empty if there is none."""
    found = [*folder.parent.glob(f"*/{_RECORD}"), *Path("runs").glob(f"*/{_RECORD}")]
    return suggestion(str(folder), sorted({str(record.parent) for record in found}))
