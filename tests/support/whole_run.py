from dataclasses import dataclass
from pathlib import Path

import pytest

import tiny_runs
from xmtc.pipeline import train_run


@dataclass(frozen=True)
class WholeRun:
    config: Path
    folder: Path
    run: Path
    said: str


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> WholeRun:
    """A finished, undisturbed run; others beside it reuse its corpus."""
    folder = tmp_path_factory.mktemp("tiny")
    config = tiny_runs.write_config(folder)
    return WholeRun(config, folder, train_run(tiny_runs.load(config)), "")
