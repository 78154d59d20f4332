"""Two Ray workers, with shares of the label rows or with replicas, give the run that one process gives."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

import tiny_runs
from xmtc.pipeline import train_run
from xmtc.run.directory import RunPaths
from xmtc.run.label_rows import shares_rows
from xmtc.stages.run_stage import run_stage

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SPLIT = ("name=split", "distributed.workers=2", "distributed.cpus_per_worker=1")


@pytest.mark.faults  # slow: a Ray cluster of its own; what its ranks do is tested under gloo
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "optimizer", ["null", "{kind: sgd, learning_rate: 0.1}"], ids=["replicas", "shares"]
)
def test_two_workers_train_and_measure_as_one_process(tmp_path, optimizer: str):
    """From the same planted head, because stage 1 samples labels on each worker by itself."""
    path = tiny_runs.write_config(tmp_path)
    loss = "finetune.loss.kind=binary_cross_entropy"  # the default also picks hard negatives, of each rank's labels
    settings = loss, f"finetune.label_optimizer={optimizer}"
    split = train_run(tiny_runs.load(path, *settings, *SPLIT))

    config = tiny_runs.load(path, *settings, "name=whole")
    assert shares_rows(config, labels=10, workers=2) == (optimizer != "null")
    paths = RunPaths.of(config)
    for part in ("plant", "mig"):
        shutil.copytree(split / part, paths.root / part)
    for stage in ("finetune", "evaluate"):
        run_stage(stage, config, paths)
    assert tiny_runs.losses(split, "finetune") == pytest.approx(
        tiny_runs.losses(paths.root, "finetune"), rel=1e-4
    )
    ours, theirs = (
        json.loads((r / "eval" / "test" / "metrics.json").read_text())
        for r in (split, paths.root)
    )
    for name in ("ndcg@5", "map", "micro_f1", "macro_f1"):
        assert ours[name] == pytest.approx(theirs[name], abs=1e-4)


@pytest.mark.faults  # slow: a Ray cluster of its own
@pytest.mark.timeout(600)
def test_two_workers_choose_and_plant_as_one_process(tmp_path):
    path = tiny_runs.write_config(tmp_path, plant={"tokens_per_micro_batch": 300})
    settings = (
        path,
        "finetune.loss.kind=binary_cross_entropy",
        "finetune.phases=[{epochs: 1}]",
    )
    split, whole = (
        train_run(tiny_runs.load(*settings, *more)) for more in (SPLIT, ("name=whole",))
    )
    planted, expected = (
        load_file(run / "plant/head.safetensors") for run in (split, whole)
    )
    assert planted.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            planted[name], tensor, rtol=1e-3, atol=1e-4
        )  # of 60 documents
