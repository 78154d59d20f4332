"""Disk, steps and operations of a run, and what a dry run prints."""

from pathlib import Path

import pytest

import tiny_runs
from xmtc.config.load import load_config
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.errors import DataError
from xmtc.estimate import estimate as module
from xmtc.estimate.estimate import dry_run, estimate
from xmtc.estimate.probe import HeadSpeed
from xmtc.estimate.seconds import Speeds
from xmtc.estimate.size import Size, size_of
from xmtc.pipeline import prepare_stage
from xmtc.run.config import RunConfig

ROOT = Path(__file__).parents[2]
SIZE = Size(train=1000, dev=100, tokens=200, longest=600, labels=300, vocab_size=500)
HEAD = "finetune.phases=[{epochs: 2}]"


def config(name: str = "smoke_llama", *overrides: str) -> RunConfig:
    return load_config(RunConfig, ROOT / f"configs/{name}.yaml", overrides)


def test_planting_without_epochs_has_no_steps() -> None:
    steps = [
        estimate(config("smoke_llama", HEAD, *overrides), SIZE).steps
        for overrides in ((), ("plant.parts=[attention]",), ("plant.parts=[rows]",), ("plant.parts=[]",))
    ]
    assert [found.keys() for found in steps[:2]] == [{"plant", "finetune"}] * 2
    assert steps[2:] == [{"finetune": 2 * 63}] * 2


def test_hidden_states_on_disk() -> None:
    settings = config("smoke_llama", "plant.cache_hidden=true", "finetune.cache_hidden=false")
    found = estimate(settings, SIZE)
    assert found.disk["hidden states"] == 1100 * 200 * found.width * 4
    none = estimate(config("smoke_llama", "plant.cache_hidden=false", "finetune.cache_hidden=false"), SIZE)
    assert none.disk["hidden states"] == 0


def test_the_corpus_on_disk(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path)
    tiny_runs.write_jsonl(tmp_path / "train.jsonl", tiny_runs.documents(4000, first=100))
    settings = tiny_runs.load(path)
    corpus = prepare_stage(settings)
    written = sum(shard.file.bytes for split in corpus.manifest.splits.values() for shard in split.shards)
    assert estimate(settings).disk["corpus"] == pytest.approx(written, rel=0.2)


def test_an_assumed_corpus_says_so_and_respects_the_limits(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path)
    size = size_of(tiny_runs.load(path, "data.limit={train: 50}", "data.max_length=100"))
    assert (size.train, size.longest, size.tokens) == (50, 100, 100)
    assert size.origin.startswith("ASSUMED")


def test_a_corpus_of_other_settings_is_not_this_runs(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path)
    prepare_stage(tiny_runs.load(path))
    assert size_of(tiny_runs.load(path)).prepared
    assert size_of(tiny_runs.load(path, "data.limit={train: 10}")).train == 10
    (tmp_path / "test.jsonl").unlink()
    assert size_of(tiny_runs.load(path)).prepared, "nothing says otherwise"


@pytest.fixture
def pretrained(tmp_path, monkeypatch) -> Path:
    speeds = Speeds(core_s=0.1, encode_s={48: 0.5}, head=HeadSpeed(train_s=0.1, step_s=0.1, score_s=0.1))
    monkeypatch.setattr(module, "speeds_of", lambda *_: speeds)
    return tiny_runs.write_config(tmp_path, model={"encoder": {"kind": "hugging_face", "name": DEFAULT_BACKBONE}})


def test_a_dry_run_counts_the_source(pretrained, capsys) -> None:
    dry_run(tiny_runs.load(pretrained))
    printed = capsys.readouterr().out
    assert "counted in the source: 60 documents" in printed
    assert "6 labels" in printed
    assert "time, measured on this machine" in printed
    dry_run(tiny_runs.load(pretrained, "distributed.workers=2"))
    assert "time, measured on this machine" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "train.jsonl"),
        ("{\n", "no document with text"),
        ('{"text": "", "labels": ["a"]}\n', "no document with text"),
    ],
    ids=["missing", "damaged", "without text"],
)
def test_a_dry_run_assumes_no_source(tmp_path, content, words) -> None:
    path = tiny_runs.write_config(tmp_path)
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.jsonl").unlink()
        if content is not None:
            (tmp_path / f"{split}.jsonl").write_text(content)
    with pytest.raises(DataError, match=words):
        dry_run(tiny_runs.load(path))


def test_a_dry_run_with_a_price_gives_hours_and_costs_by_card(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    bag = {"kind": "bag", "embedding": {"width": 8}}
    dry_run(tiny_runs.load(tiny_runs.write_config(tmp_path, model={"encoder": bag})), 2.5)
    assert "the backbone has no products" in capsys.readouterr().out
    shape = {"model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    encoder = {"kind": "hugging_face", "name": "x", "from_config": shape | {"intermediate_size": 128}}
    dry_run(tiny_runs.load(tiny_runs.write_config(tmp_path, model={"encoder": encoder})), 2.5)
    printed = capsys.readouterr().out
    assert "H200" in printed
    assert "assumed" in printed
    assert "T4" not in printed, "it has no instructions for bfloat16"
