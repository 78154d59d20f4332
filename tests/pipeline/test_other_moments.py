"""What a run reads has changed when it continues, or its files are gone: nothing old is mixed in or shown as new."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, BertConfig

import tiny_runs
import xmtc
from xmtc import pipeline
from xmtc.data.pretrained import resolve_pretrained
from xmtc.errors import CheckpointError, ConfigError, DataError, Interrupted
from xmtc.pipeline import mig_stage, train_run
from xmtc.report.runs import evaluate_run
from xmtc.run.directory import Stage
from xmtc.training.loop import Loop

BRIEF = ("plant.epochs=1", "finetune.phases=[{epochs: 1}]")
OTHERS = dict(zip(tiny_runs.LABELS, reversed(tiny_runs.LABELS), strict=True))


def with_other_labels(folder: Path) -> None:
    for split in ("train", "dev", "test"):
        rows = [
            json.loads(line)
            for line in (folder / f"{split}.jsonl")
            .read_text(encoding="utf-8")
            .splitlines()
        ]
        rows = [
            row | {"labels": [OTHERS[label] for label in row["labels"]]} for row in rows
        ]
        tiny_runs.write_jsonl(folder / f"{split}.jsonl", rows)


def before_stage(
    stage: Stage, act: Callable[[], Any], patch: pytest.MonkeyPatch
) -> None:
    """Act when a run is about to begin a stage."""
    run_workers = pipeline.run_workers

    def acting(one: Stage, copies: Any) -> None:
        if one is stage:
            act()
        run_workers(one, copies)

    patch.setattr(pipeline, "run_workers", acting)


def test_a_signal_that_came_too_late_for_a_stage_stops_the_run_after_it(
    tmp_path, monkeypatch, capsys
):
    config = tiny_runs.load(tiny_runs.write_config(tmp_path), *BRIEF)
    run_workers = pipeline.run_workers

    def told_at_the_end_of_finetune(stage: Stage, copies: Any) -> int | None:
        run_workers(stage, copies)
        return signal.SIGTERM if stage is Stage.FINETUNE else None

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "run_workers", told_at_the_end_of_finetune)
        with pytest.raises(Interrupted, match="finetune has ended") as stopped:
            train_run(config)
    assert stopped.value.number == signal.SIGTERM
    capsys.readouterr()
    run = train_run(config)
    assert "finetune: already done, skipped" in capsys.readouterr().err
    assert (run / "model" / "config.json").is_file()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_the_best_weights_of_other_data_are_not_finished(tmp_path, monkeypatch):
    config = tiny_runs.load(tiny_runs.write_config(tmp_path), *BRIEF)
    with monkeypatch.context() as patch:
        before_stage(Stage.EVALUATE, interrupt, patch)
        with pytest.raises(KeyboardInterrupt):
            train_run(config)
    with_other_labels(tmp_path)
    run_epoch = Loop._run_epoch

    def stopped(loop: Loop, *rest: Any) -> None:
        if loop.settings.name == "finetune":
            interrupt()
        run_epoch(loop, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_run_epoch", stopped)
        with pytest.raises(KeyboardInterrupt):
            train_run(config)
    with pytest.raises(ConfigError, match="no epoch of finetune has been measured"):
        train_run(config, finish=True)


def test_results_that_are_gone_are_made_again_and_former_ones_removed(
    tmp_path, monkeypatch, capsys
):
    config = tiny_runs.load(tiny_runs.write_config(tmp_path), *BRIEF)
    run = train_run(config)
    for gone in ("eval", "eval/dev", "model"):
        shutil.rmtree(run / gone)
        train_run(config)
        assert (run / "model" / "config.json").is_file()
        assert {path.parent.name for path in run.glob("eval/*/metrics.json")} == {
            "dev",
            "test",
        }
        assert "finetune: already done, skipped" in capsys.readouterr().err
    shutil.copyfile(
        tmp_path / "train.jsonl", tmp_path / "test.jsonl"
    )  # repeats of training documents are dropped
    train_run(config, overwrite=True)
    assert "tiny: dev" in capsys.readouterr().out
    assert {path.parent.name for path in run.glob("eval/*/metrics.json")} == {"dev"}


def test_old_predictions_are_not_measured_against_new_data(tmp_path, monkeypatch):
    config = tiny_runs.load(tiny_runs.write_config(tmp_path), *BRIEF)
    run = train_run(config)
    evaluate_run(run)
    with_other_labels(tmp_path)
    with monkeypatch.context() as patch:
        before_stage(Stage.EVALUATE, interrupt, patch)
        with pytest.raises(KeyboardInterrupt):
            train_run(config, overwrite=True)
    before = (run / "eval" / "test" / "metrics.json").read_bytes()
    with pytest.raises(DataError, match="trained again, but not to the end"):
        evaluate_run(run)
    assert (run / "eval" / "test" / "metrics.json").read_bytes() == before


def test_planting_refuses_a_ranking_of_other_settings(tmp_path, monkeypatch):
    path = tiny_runs.write_config(tmp_path)
    with monkeypatch.context() as patch:
        before_stage(
            Stage.PLANT,
            lambda: mig_stage(tiny_runs.load(path, *BRIEF, "mig.top_k=3")),
            patch,
        )
        with pytest.raises(DataError, match="no longer the token ranking of the run"):
            train_run(tiny_runs.load(path, *BRIEF))


def write_encoder(folder: Path, seed: int) -> None:
    torch.manual_seed(seed)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    AutoModel.from_config(
        BertConfig(vocab_size=30522, initializer_range=0.5, **sizes)
    ).save_pretrained(folder)
    AutoTokenizer.from_pretrained(
        resolve_pretrained("packaged:all-MiniLM-L6-v2")
    ).save_pretrained(folder)


def test_an_encoder_whose_folder_has_other_weights_is_another_one(tmp_path):
    write_encoder(tmp_path / "encoder", 1)
    path, encoder = (
        tiny_runs.write_config(tmp_path),
        f"model.encoder.name={tmp_path / 'encoder'}",
    )
    settings = (
        *BRIEF,
        encoder,
        "model.encoder.from_config=null",
        "data.tokenizer=null",
    )
    first = train_run(tiny_runs.load(path, *settings))
    write_encoder(tmp_path / "encoder", 2)
    with pytest.raises(
        ConfigError, match="this run is finished, and its encoder has changed since"
    ):
        train_run(tiny_runs.load(path, *settings))
    with pytest.raises(
        CheckpointError, match="its encoder, in another folder, has changed"
    ):
        xmtc.Model.from_pretrained(first / "model", device="cpu")
    beside = train_run(tiny_runs.load(path, *settings, "name=beside"))
    alone = train_run(
        tiny_runs.load(
            path, *settings, "name=alone", f"data.corpus={tmp_path / 'other'}"
        )
    )
    heads = [load_file(run / "model" / "head.safetensors") for run in (beside, alone)]
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[1])
