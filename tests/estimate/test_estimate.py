"""Disk, steps and operations of a run, and what a dry run prints."""

from pathlib import Path

import pytest

import tiny_runs
from xmtc.config.load import load_config
from xmtc.estimate.estimate import estimate
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
        for overrides in (
            (),
            ("plant.parts=[attention]",),
            ("plant.parts=[rows]",),
            ("plant.parts=[]",),
        )
    ]
    assert [found.keys() for found in steps[:2]] == [{"plant", "finetune"}] * 2
    assert steps[2:] == [{"finetune": 2 * 63}] * 2


def test_hidden_states_on_disk() -> None:
    settings = config(
        "smoke_llama", "plant.cache_hidden=true", "finetune.cache_hidden=false"
    )
    found = estimate(settings, SIZE)
    assert found.disk["hidden states"] == 1100 * 200 * found.width * 4
    none = estimate(
        config(
            "smoke_llama", "plant.cache_hidden=false", "finetune.cache_hidden=false"
        ),
        SIZE,
    )
    assert none.disk["hidden states"] == 0


def test_the_corpus_on_disk(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path)
    tiny_runs.write_jsonl(
        tmp_path / "train.jsonl", tiny_runs.documents(4000, first=100)
    )
    settings = tiny_runs.load(path)
    corpus = prepare_stage(settings)
    written = sum(
        shard.file.bytes
        for split in corpus.manifest.splits.values()
        for shard in split.shards
    )
    assert estimate(settings).disk["corpus"] == pytest.approx(written, rel=0.2)


def test_an_assumed_corpus_says_so_and_respects_the_limits(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path)
    size = size_of(
        tiny_runs.load(path, "data.limit={train: 50}", "data.max_length=100")
    )
    assert (size.train, size.longest, size.tokens) == (50, 100, 100)
    assert size.origin.startswith("ASSUMED")


def test_a_corpus_of_other_settings_is_not_this_runs(tmp_path) -> None:
    path = tiny_runs.write_config(tmp_path)
    prepare_stage(tiny_runs.load(path))
    assert size_of(tiny_runs.load(path)).prepared
    assert size_of(tiny_runs.load(path, "data.limit={train: 10}")).train == 10
    (tmp_path / "test.jsonl").unlink()
    assert size_of(tiny_runs.load(path)).prepared, "nothing says otherwise"
