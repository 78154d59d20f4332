from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

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
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tiny")
    config = tiny_runs.write_config(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xmtc.data.parallel.cpu_count", lambda: 1)  # no pool of processes for 92 documents
        run = train_run(tiny_runs.load(config))
    return WholeRun(config, folder, run, "")
