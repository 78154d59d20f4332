"""Training that continues from an exported model: rows carry over by label, and the report compares the two."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from fsspec.implementations.memory import MemoryFileSystem
from safetensors.torch import load_file

from tiny_runs import documents, load, write_config, write_jsonl
from xmtc import pipeline
from xmtc.artefact.export import load_model
from xmtc.errors import ConfigError, DataError
from xmtc.pipeline import train_run
from xmtc.run.directory import Stage
from xmtc.scorers.predictions import SparsePredictions

OLD = ("fish", "heart", "law", "steel")


def _only(rows: list[dict[str, Any]], labels: tuple[str, ...]) -> list[dict[str, Any]]:
    return [row for row in rows if set(row["labels"]) <= set(labels)]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that knows four of the six labels, and has trained its encoder."""
    folder = tmp_path_factory.mktemp("old")
    path = write_config(folder)
    for split, first, n in (("train", 0, 60), ("dev", 60, 16), ("test", 76, 16)):
        write_jsonl(folder / f"{split}.jsonl", _only(documents(n, first=first), OLD))
    return train_run(load(path, "model.scorers=[{kind: linear}]"))


def _config(folder: Path, old: Path) -> Path:
    path = write_config(folder)
    tree = yaml.safe_load(path.read_text())
    tree["name"], tree["model"]["init_from"] = "new", str(old / "model")
    tree["model"]["scorers"] = [{"kind": "linear"}]
    tree["data"]["tokenizer"] = {
        "kind": "pretrained",
        "name": str(old / "model" / "tokenizer"),
    }
    tree["finetune"]["phases"] = [{"epochs": 1}]
    path.write_text(yaml.safe_dump(tree))
    return path


@pytest.fixture(scope="module")
def new(old: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that continues from the old run at a URI, with documents of all labels."""
    MemoryFileSystem().put(
        str(old / "model"), "/test_init_from/old/model", recursive=True
    )
    folder = tmp_path_factory.mktemp("new")
    place = "model.init_from=memory://test_init_from/old/model"
    return train_run(load(_config(folder, old), place, f"storage.cache={folder}/cache"))


def test_known_rows_carry_over_and_planting_is_for_new_labels(
    old: Path, new: Path
) -> None:
    before, planted = (
        load_model(old / "model"),
        load_file(new / "plant" / "head.safetensors"),
    )
    after = load_model(new / "model")
    known = [after.labels.index(label) for label in before.labels.labels]
    fresh = [i for i in range(len(after.labels)) if i not in known]
    assert [after.labels.labels[i] for i in fresh] == ["school", "trade"]
    tables = before.classifier.head.label_tables()
    for name, tensor in before.classifier.head.state_dict().items():
        torch.testing.assert_close(
            planted[name][known] if name in tables else planted[name],
            tensor,
            rtol=0,
            atol=0,
        )
        if name in tables:
            assert planted[name][fresh].isfinite().all()
            assert not (planted[name][fresh] == 0).all()


def test_the_encoder_carries_over_and_is_exported(old: Path, new: Path) -> None:
    before, after = (
        load_model(run / "model").classifier.encoder.state_dict() for run in (old, new)
    )
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=0)
    assert (
        json.loads((new / "model" / "config.json").read_text())["model"]["init_from"]
        is None
    )


def test_the_report_compares_both_on_the_same_documents_and_labels(new: Path) -> None:
    for split in ("dev", "test"):
        found = [
            json.loads(
                (new / "start" / which / "eval" / split / "metrics.json").read_text()
            )
            for which in ("before", "after")
        ]
        assert {one["docs"] for one in found} == {16}
        assert {one["labels_present"] for one in found} == {4}
    page = (new / "eval" / "test" / "report.html").read_text()
    assert "Against the model that training started from" in page
    assert "Decisions that flip, by training documents" in page


def test_another_tokenizer_or_head_is_refused(old: Path, tmp_path: Path) -> None:
    path = _config(tmp_path, old)
    with pytest.raises(ConfigError, match=r"model\.init_from: nowhere"):
        train_run(load(path, "model.init_from=nowhere"))
    packaged = "data.tokenizer={kind: pretrained, name: 'packaged:all-MiniLM-L6-v2'}"
    with pytest.raises(
        ConfigError, match=r"tokenizer assigns other token ids.*kind: pretrained"
    ):
        train_run(load(path, packaged))
    assert not (tmp_path / "corpus").exists()
    with pytest.raises(
        ConfigError, match=r"tokenizer assigns other token ids.*kind: pretrained"
    ):
        train_run(
            load(
                path,
                "data.tokenizer={kind: trained, vocab_size: 150}",
                "name=other",
                "plant.parts=[]",
            )
        )
    config = load(
        path, "model.head={kind: label_attention, width: 8, heads: 2}", "name=third"
    )
    with pytest.raises(ConfigError, match=r"model\.head: .*model\.init_from"):
        train_run(config)
    with pytest.raises(ConfigError, match=r"model\.head: .*model\.init_from"):
        train_run(
            load(path, "model.head={kind: flat}", "plant.parts=[]", "name=fourth")
        )


def stopped_before(stage: Stage, patch: pytest.MonkeyPatch) -> None:
    run_workers = pipeline.run_workers

    def stopped(one: Stage, copies: Any) -> None:
        if one is stage:
            raise KeyboardInterrupt
        run_workers(one, copies)

    patch.setattr(pipeline, "run_workers", stopped)


def test_a_model_that_is_replaced_before_a_resume_is_begun_from_anew(
    old: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, place = tmp_path / "start", f"model.init_from={tmp_path / 'start'}"
    shutil.copytree(old / "model", start)
    path = _config(tmp_path, old)
    with monkeypatch.context() as patch:
        stopped_before(Stage.EVALUATE, patch)
        with pytest.raises(KeyboardInterrupt):
            train_run(load(path, place))
    shutil.rmtree(start)
    shutil.copytree(new / "model", start)
    runs = [train_run(load(path, place, name)) for name in ("name=new", "name=fresh")]
    heads = [load_file(run / "model" / "head.safetensors") for run in runs]
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[1])
    shutil.rmtree(start)
    shutil.copytree(old / "model", start)
    with pytest.raises(
        ConfigError,
        match="this run is finished, and its initial model has changed since",
    ):
        train_run(load(path, place))


def test_models_are_compared_on_the_texts_that_were_evaluated(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids may repeat in other splits; and a source that changes during training has other texts under them."""
    path, measured = _config(tmp_path, old), []
    for name in ("new", "renumbered"):
        own = load(path, f"name={name}", f"data.corpus={tmp_path / name}")
        start = train_run(own) / "start" / "before" / "eval"
        found = [
            json.loads((start / split / "metrics.json").read_text())
            for split in ("dev", "test")
        ]
        measured.append(
            [
                [one[key] for key in ("docs", "micro_f1", "map", "ndcg@5")]
                for one in found
            ]
        )
        for split, first, n in (("train", 0, 60), ("dev", 60, 16), ("test", 76, 16)):
            rows = documents(n, first=first)
            write_jsonl(
                tmp_path / f"{split}.jsonl",
                [row | {"id": f"n{i}"} for i, row in enumerate(rows)],
            )
    assert measured[0] == measured[1]
    compare = pipeline.compare_with_initial_model

    def changed(*arguments: Any) -> None:
        rows = [
            row | {"text": f"{row['text']} {row['text']}"}
            for row in documents(16, first=60)
        ]
        write_jsonl(tmp_path / "dev.jsonl", rows)
        compare(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "compare_with_initial_model", changed)
        with pytest.raises(
            DataError,
            match=r"16 documents that were just evaluated .* have other texts",
        ):
            train_run(load(path, "name=changed"))
    assert (tmp_path / "runs" / "changed" / "eval" / "test" / "report.html").is_file()
    write_jsonl(
        tmp_path / "dev.jsonl",
        [row | {"id": f"n{i}"} for i, row in enumerate(documents(16, first=60))],
    )
    ran: list[Stage] = []
    monkeypatch.setattr(pipeline, "run_workers", lambda stage, *_: ran.append(stage))
    start = train_run(load(path, "name=changed")) / "start"
    assert ran == []  # only the comparison was left
    assert {path.parent.name for path in start.glob("after/eval/*/metrics.json")} == {
        "dev",
        "test",
    }


def test_predictions_without_unwanted_labels() -> None:
    found = SparsePredictions(
        np.array([[2, 0, 1], [1, -1, -1]], np.int32),
        np.array([[0.9, 0.5, 0.2], [0.3, 0, 0]], "f4"),
    )
    kept = found.only(np.array([True, False, True]))
    assert kept.label_ids_NK.tolist() == [[2, 0, -1], [-1, -1, -1]]
    assert kept.scores_NK[0, :2].tolist() == found.scores_NK[0, :2].tolist()
