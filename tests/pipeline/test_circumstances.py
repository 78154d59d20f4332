"""Unusual folds and texts, data that change, and models in unusual places: all train, and answer as before."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModel, GPT2Config, PreTrainedTokenizerFast

import tiny_runs
import xmtc
from xmtc import pipeline
from xmtc.errors import ConfigError, DataError
from xmtc.pipeline import train_run
from xmtc.run.directory import Stage

WORDS = "[{kind: linear, penalty: 0.3}, {kind: word_neighbours, neighbours: 5}]"
BRIEF = ("plant.epochs=1", "finetune.phases=[{epochs: 1}]")


def rewrite(
    folder: Path, change: Callable[[str, list[dict[str, Any]]], list[dict[str, Any]]]
) -> None:
    """Change the rows of each split of a tiny run."""
    for split in ("train", "dev", "test"):
        path = folder / f"{split}.jsonl"
        rows = [
            json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()
        ]
        tiny_runs.write_jsonl(path, change(split, rows))


def labelled(rows: list[dict[str, Any]], labels: list[str]) -> list[dict[str, Any]]:
    return [row | {"labels": labels} for row in rows]


FOLDS = {
    "one label everywhere": lambda split, rows: labelled(rows, ["law"]),
    "one training document has it": lambda split, rows: [
        row | {"labels": ["law"] * (row["id"] in ("d7", "d60", "d76"))} for row in rows
    ],
    "dev of one document": lambda split, rows: rows[:1] if split == "dev" else rows,
}
BARE = {
    "dev and test have none of it": lambda split, rows: labelled(
        rows, ["law"] if split == "train" else []
    ),
    "dev of one document without labels": lambda split, rows: (
        labelled(rows[:1], []) if split == "dev" else rows
    ),
}
MODELS = {
    "scorers": (f"model.scorers={WORDS}", "model.head={kind: none}", "plant.parts=[]"),
    "head and scorers": (f"model.scorers={WORDS}", "plant.parts=[]", BRIEF[1]),
}


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("model", MODELS)
def test_unusual_folds_train_and_answer(tmp_path, fold, model):
    path = tiny_runs.write_config(tmp_path)
    rewrite(tmp_path, FOLDS[fold])
    run = train_run(tiny_runs.load(path, *MODELS[model]))
    assert (run / "eval" / "test" / "report.html").exists()
    metrics = json.loads((run / "eval" / "dev" / "metrics.json").read_text())
    assert all(
        np.isfinite(value)
        for value in metrics.values()
        if isinstance(value, int | float)
    )
    (found,) = xmtc.Model.from_pretrained(run / "model", device="cpu").predict(
        ["lawery lawing of the"], top_k=1
    )
    assert 0 < found[0].score < 1
    if fold == "one label everywhere":
        assert metrics["p@1"] == 1
        assert found[0].score > 0.9
        assert found[0].predicted


@pytest.mark.parametrize("fold", BARE)
@pytest.mark.parametrize("model", MODELS)
def test_a_dev_split_that_measures_nothing_is_refused_before_a_head_is_trained(
    tmp_path, fold, model
):
    path = tiny_runs.write_config(tmp_path)
    rewrite(tmp_path, BARE[fold])
    with pytest.raises(
        DataError, match="give a dev split that shares labels with train"
    ):
        train_run(tiny_runs.load(path, *MODELS[model]))
    assert not (tmp_path / "runs" / "tiny" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            BRIEF,
            "no token could be ranked for any label: .* or all have the same labels",
        ),
        (
            ("data.task=single_label", "finetune.loss={kind: cross_entropy}"),
            "there is nothing to tell apart",
        ),
    ],
    ids=["planting", "one label each"],
)
def test_what_needs_two_classes_refuses_one_in_one_line(tmp_path, settings, words):
    path = tiny_runs.write_config(tmp_path)
    rewrite(tmp_path, FOLDS["one label everywhere"])
    with pytest.raises(DataError, match=words) as caught:
        train_run(tiny_runs.load(path, *settings))
    assert "\n" not in str(caught.value)


def test_an_unfinished_run_continues_on_changed_data_as_one_that_begins_with_them(
    tmp_path, monkeypatch
):
    path = tiny_runs.write_config(tmp_path)
    run_workers = pipeline.run_workers

    def stopped(stage, copies):
        if stage is Stage.EVALUATE:
            raise KeyboardInterrupt
        run_workers(stage, copies)

    config = tiny_runs.load(path, *BRIEF)
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "run_workers", stopped)
        with pytest.raises(KeyboardInterrupt):
            train_run(config)
    rewrite(tmp_path, lambda split, rows: rows[4:])
    resumed, fresh = (
        train_run(config),
        train_run(tiny_runs.load(path, *BRIEF, "name=fresh")),
    )
    heads = [load_file(run / "model" / "head.safetensors") for run in (resumed, fresh)]
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[1])
    rewrite(tmp_path, lambda split, rows: rows[:-4])
    with pytest.raises(ConfigError, match="finished, and its corpus has changed since"):
        train_run(config)
    assert all(
        torch.equal(
            load_file(resumed / "model" / "head.safetensors")[name], heads[0][name]
        )
        for name in heads[0]
    )


def write_gpt2(folder: Path) -> Path:
    """A decoder whose tokenizer has no padding token, as GPT-2 has none."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(
        (row["text"] for row in tiny_runs.documents(60)), trainer
    )
    end = {f"{name}_token": "<|endoftext|>" for name in ("bos", "eos", "unk")}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **end)
    assert fast.pad_token is None
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(fast), n_embd=32, n_layer=2, n_head=2, n_positions=32
    )
    AutoModel.from_config(config).save_pretrained(folder)
    return folder


TEXTS = [row["text"] for row in tiny_runs.documents(7, first=40)]
COMMANDS = """
import os, sys
from pathlib import Path
import xmtc
from xmtc.cli import main
model = sys.argv[1]
try:
    Path(model, "new").touch()
except PermissionError:
    pass
else:
    raise SystemExit(f"{model} can be written")
text = Path("in.jsonl").read_text().split('"text": "')[1].split('"')[0]
for arguments in (
    ["predict", model, "--text", text, "--evidence"],
    ["explain", model, "--text", text, "--output", "page.html"],
    ["score", model, "in.jsonl", "--output", "scored", "--evidence"],
):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


def obeying_rights() -> list[str]:
    """What makes a command obey the rights of files, as root does not."""
    return (
        []
        if os.geteuid()
        else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    )


@pytest.mark.faults
@pytest.mark.parametrize(
    "backbone", ["packaged, with adapters", "without a token for padding"]
)
def test_a_model_answers_where_it_is_moved_and_cannot_be_written(tmp_path, backbone):
    encoder = {"kind": "hugging_face", "window": 30, "lora": {"r": 2}}
    if backbone != "packaged, with adapters":
        encoder["name"] = str(write_gpt2(tmp_path / "gpt2"))
    (tmp_path / "here").mkdir()
    path = tiny_runs.write_config(tmp_path / "here")
    settings = (
        f"model.encoder={json.dumps(encoder)}",
        "data.tokenizer=null",
        f"model.scorers={WORDS}",
    )
    phases = "finetune.phases=[{epochs: 1, encoder_layers: -1, encoder_learning_rate: 1.0e-3}]"
    few = "data.limit={train: 24, dev: 8, test: 4}"
    run = train_run(tiny_runs.load(path, *settings, "plant.epochs=1", phases, few))
    before = xmtc.Model.from_pretrained(run / "model", device="cpu").predict(
        TEXTS, top_k=3
    )
    alone = [
        xmtc.Model.from_pretrained(run / "model", device="cpu").predict(
            [text], top_k=3
        )[0]
        for text in TEXTS
    ]
    assert [[one.label for one in found] for found in alone] == [
        [one.label for one in found] for found in before
    ]
    scores = [[one.score for one in found] for found in before]
    np.testing.assert_allclose(
        [[one.score for one in found] for found in alone], scores, atol=1e-5
    )

    moved, work = tmp_path / "elsewhere" / "m", tmp_path / "work"
    work.mkdir()
    shutil.copytree(run / "model", moved)
    shutil.rmtree(tmp_path / "here")
    tiny_runs.write_jsonl(
        work / "in.jsonl",
        [{"id": str(i), "text": text} for i, text in enumerate(TEXTS)],
    )
    there = {p: p.stat().st_mtime_ns for p in (moved, *moved.rglob("*"))}
    for place in there:
        place.chmod(0o555 if place.is_dir() else 0o444)
    command = [*obeying_rights(), sys.executable, "-c", COMMANDS, str(moved)]
    done = subprocess.run(
        command,
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == 0, done.stderr
    assert {p: p.stat().st_mtime_ns for p in (moved, *moved.rglob("*"))} == there
    assert (work / "page.html").exists()
    printed = json.loads(done.stdout.splitlines()[0])
    assert printed["labels"][0]["score"] == pytest.approx(before[0][0].score, abs=1e-4)
    assert list((work / "scored").glob("part-*.parquet"))


@pytest.mark.faults
def test_long_documents_are_prepared_scored_and_explained(tmp_path, xmtc, monkeypatch):
    """Texts of 1 and 9 MB among short ones; their beginnings say what they are about."""
    monkeypatch.chdir(tmp_path)
    path = tiny_runs.write_config(tmp_path)
    draw = random.Random(0)
    filler = " ".join(draw.choices(tiny_runs.FILLER, k=50_000)) + " "

    def lengthen(split: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row, size in zip(
            rows,
            (1_000_000, 9_000_000 if split == "train" else 1_000_000),
            strict=False,
        ):
            row["text"] = f"{row['text']} {filler * 120}"[:size]
        return [
            *rows,
            {"id": f"{split} Thai", "text": "กฎหมาย" * 50_000, "labels": ["law"]},
        ]

    rewrite(tmp_path, lengthen)
    tokenizer = "data.tokenizer={kind: pretrained, name: 'packaged:all-MiniLM-L6-v2'}"
    made = xmtc(
        "train",
        path,
        tokenizer,
        f"model.scorers={WORDS}",
        "model.head={kind: none}",
        "plant.parts=[]",
    )
    assert made.code == 0, made.err
    model = tmp_path / "runs" / "tiny" / "model"
    text = json.loads((tmp_path / "train.jsonl").read_text().splitlines()[1])["text"]
    (tmp_path / "long.txt").write_text(text)
    assert len(text) == 9_000_000
    found = xmtc("predict", model, "--input", "long.txt", "--evidence")
    assert found.code == 0, found.err
    assert json.loads(found.out)["labels"][0]["evidence"]
    assert (
        xmtc("score", model, "train.jsonl", "--output", "scored", "--evidence").code
        == 0
    )
    explained = xmtc(
        "explain",
        model,
        "--input",
        "train.jsonl",
        "--doc-id",
        "d1",
        "--output",
        "page.html",
    )
    assert explained.code == 0, explained.err
    assert (tmp_path / "page.html").stat().st_size < 200e6
