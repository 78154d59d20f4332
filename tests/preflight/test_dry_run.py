"""What a dry run prints."""

import shlex
from pathlib import Path

import pytest
import torch

import tiny_runs
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.estimate.probe import HeadSpeed
from xmtc.estimate.seconds import Speeds
from xmtc.preflight import dry_run as module
from xmtc.preflight.dry_run import dry_run


@pytest.fixture
def pretrained(tmp_path, monkeypatch) -> Path:
    speeds = Speeds(
        core_s=0.1,
        encode_s={48: 0.5},
        head=HeadSpeed(train_s=0.1, step_s=0.1, score_s=0.1),
    )
    monkeypatch.setattr(module, "speeds_of", lambda *_: speeds)
    return tiny_runs.write_config(
        tmp_path, model={"encoder": {"kind": "hugging_face", "name": DEFAULT_BACKBONE}}
    )


def test_a_dry_run_counts_the_source(pretrained, capsys) -> None:
    dry_run(tiny_runs.load(pretrained))
    printed = capsys.readouterr().out
    assert "counted in the source: 60 documents" in printed
    assert "6 labels" in printed
    assert "time, measured on this machine" in printed
    dry_run(tiny_runs.load(pretrained, "distributed.workers=2"))
    assert "time, measured on this machine" not in capsys.readouterr().out


def test_a_dry_run_asks_no_hub(pretrained, capsys, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("asks the network")

    monkeypatch.setattr("socket.socket.connect", refuse)
    other = ("model.encoder.name=meta-llama/Llama-3.2-1B", "distributed.workers=2")
    dry_run(tiny_runs.load(pretrained, *other))
    said = capsys.readouterr()
    assert "meta-llama/Llama-3.2-1B is not on this machine" in said.err
    assert "counted in the source: 60 documents" in said.out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "train.jsonl"),
        ("{\n", "train.jsonl: the file ends before its value does"),
        ('{"text": "", "labels": ["a"]}\n', "no document with text"),
    ],
    ids=["missing", "damaged", "without text"],
)
def test_a_dry_run_assumes_no_source(tmp_path, xmtc, content, words) -> None:
    path = tiny_runs.write_config(tmp_path)
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.jsonl").unlink()
        if content is not None:
            (tmp_path / f"{split}.jsonl").write_text(content)
    outcome = xmtc("train", path, "--dry-run")
    assert outcome.code == 1
    assert "DataError" in outcome.err
    assert words in outcome.err
    assert "documents" not in outcome.out, "an estimate of a source that nobody read"


def test_a_dry_run_with_a_price_gives_hours_and_costs_by_card(
    tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    bag = {"kind": "bag", "embedding": {"width": 8}}
    dry_run(
        tiny_runs.load(tiny_runs.write_config(tmp_path, model={"encoder": bag})), 2.5
    )
    assert "the backbone has no products" in capsys.readouterr().out
    shape = {
        "model_type": "bert",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    encoder = {
        "kind": "hugging_face",
        "name": "x",
        "from_config": shape | {"intermediate_size": 128},
    }
    dry_run(
        tiny_runs.load(tiny_runs.write_config(tmp_path, model={"encoder": encoder})),
        2.5,
    )
    printed = capsys.readouterr().out
    assert "H200" in printed
    assert "assumed" in printed
    assert "T4" not in printed, "it has no instructions for bfloat16"


def test_what_it_says_of_an_unknown_card_can_be_pasted(
    tmp_path, monkeypatch, xmtc
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = tiny_runs.write_config(tmp_path)
    command = [
        "train",
        path,
        "--dry-run",
        "distributed.workers=1",
        "distributed.gpus_per_worker=1",
    ]
    advised = xmtc(*command)
    assert advised.code == 0, advised.err
    advice = next(
        line for line in advised.out.splitlines() if "the card is unknown" in line
    )
    (override,) = (
        word.rstrip(",")
        for word in shlex.split(advice)
        if word.startswith("distributed.")
    )
    pasted = xmtc(*command, override)
    assert pasted.code == 0, pasted.err
    assert "the card is unknown" not in pasted.out
    config = tiny_runs.load(path, override)
    assert config.distributed.resources_per_worker == {"accelerator_type:A100": 0.001}
