"""The smoke configuration: golden losses in one process, and on two Ray workers under DeepSpeed ZeRO-2.

`python tests/cluster/test_smoke_llama.py` computes the golden losses of one process anew.
"""

import json
import re
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import tiny_runs
from smoke_jobs import CONFIG, ROOT, Job, overrides
from xmtc.pipeline import train_run
from xmtc.run.directory import RunPaths
from xmtc.stages.run_stage import run_stage

GOLDEN = ROOT / "tests" / "golden" / "smoke_llama.json"
SOURCES = ("rich", "numpy")  # whose docstrings are the corpus
LAST = {"plant": 16, "finetune": 24}


def train_alone(folder: Path) -> Path:
    torch.set_num_threads(1)
    return train_run(
        tiny_runs.load(
            CONFIG, *overrides(folder, "name=alone", "distributed.workers=0")
        )
    )


def golden_of(run: Path) -> dict[str, list[float]]:
    return {
        stage: [round(loss, 6) for loss in tiny_runs.losses(run, stage).values()]
        for stage in LAST
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> Path:
    return train_alone(tmp_path_factory.mktemp("smoke"))


def test_golden_losses(alone):
    golden = json.loads(GOLDEN.read_text())
    if golden["sources"] != (ours := {name: version(name) for name in SOURCES}):
        pytest.skip(
            f"the corpus is the docstrings of {golden['sources']}, and these are {ours}"
        )
    found = golden_of(alone)
    for stage in LAST:
        assert found[stage] == pytest.approx(golden["losses"][stage], rel=1e-3)


@pytest.fixture(scope="module")
def on_ray(alone) -> Path:
    """An undisturbed run on two workers; its corpus is that of the run in one process."""
    job = Job(alone.parents[1], "two")
    code, log = job.finish()
    assert code == 0, log[-5000:]
    return job.run


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_two_workers_with_zero_2_finetune_to_the_losses_of_one_process(alone, on_ray):
    """From the same planted head, because stage 1 samples labels on each worker by itself."""
    config = tiny_runs.load(
        CONFIG, *overrides(alone.parents[1], "name=after_two", "distributed.workers=0")
    )
    paths = RunPaths.of(config)
    for part in ("plant", "mig"):
        shutil.copytree(on_ray / part, paths.root / part)
    run_stage("finetune", config, paths)
    assert tiny_runs.losses(paths.root, "finetune") == pytest.approx(
        tiny_runs.losses(on_ray, "finetune"), rel=1e-4
    )


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_planting_on_two_workers_learns_as_much(alone, on_ray):
    last = {
        run: [m["dev/ndcg@10"] for m in tiny_runs.metrics(run) if "dev/ndcg@10" in m][
            -1
        ]
        for run in (alone, on_ray)
    }
    assert last[on_ray] == pytest.approx(last[alone], abs=0.1)
    assert not (on_ray / ".ray").exists()


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_a_worker_killed_in_both_stages_changes_no_loss(alone, on_ray):
    job = Job(alone.parents[1], "killed")
    for stage in LAST:
        job.kill_a_worker_in(stage)
    code, log = job.finish(600)
    assert code == 0, log[-5000:]
    for stage, last in LAST.items():
        resumed = re.findall(rf"{stage}: resuming after step (\d+)/{last}", log)
        assert len(resumed) == 1, log[-5000:]
        assert 4 <= int(resumed[0]) < last
        assert tiny_runs.losses(job.run, stage) == pytest.approx(
            tiny_runs.losses(on_ray, stage), rel=1e-5
        )


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_a_users_mistake_comes_back_from_the_workers_once_and_without_traceback(alone):
    folder = alone.parents[1]
    job = Job(folder, "diverges", "plant.optimizer.learning_rate=1e30")
    code, log = job.finish()
    assert code == 1
    assert log.splitlines()[-1].startswith(
        "TrainingError: plant: loss or gradient was not finite for 10 steps"
    )
    assert log.count("not finite for 10 steps in a row") == 1
    parts = log.split("Started training worker group")
    assert len(parts) == 2, "Ray started the workers again"
    assert (
        "Traceback" not in parts[1]
    )  # before, Ray's autoscaler prints some where the machine is busy


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        losses = golden_of(train_alone(Path(scratch)))
    content = {
        "config": CONFIG.name,
        "sources": {name: version(name) for name in SOURCES},
        "losses": losses,
    }
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(content, indent=1) + "\n")
