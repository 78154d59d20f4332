"""The whole job in this process: what it writes, what it skips, what it refuses."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

import tiny_runs
from tiny_runs import load, losses, metrics
from xmtc import pipeline
from xmtc.config.plain import changed_settings, to_plain
from xmtc.data.manifest import Manifest
from xmtc.data.pretrained import resolve_pretrained
from xmtc.data.tokenizer import load_pretrained
from xmtc.errors import ConfigError, DataError, StorageError
from xmtc.pipeline import train_run
from xmtc.preflight.configuration import check
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.run.state import read_run
from xmtc.stages import run_stage as stages
from xmtc.stages.worker import build_worker

HEADLINE = (
    "p@1 p@3 p@5 p@8 r@5 r@10 rp@5 ndcg@5 psp@1 psp@3 psp@5 "
    "micro_f1 macro_f1 macro_f1_all map micro_auc macro_auc"
)


def dev_scores(run: Path) -> list[float]:
    return [line["dev/ndcg@5"] for line in metrics(run) if "dev/ndcg@5" in line]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_run_directory_is_the_contracts(whole):
    run = whole.run
    contract = {
        "config.yaml",
        "run.json",
        "metrics.jsonl",
        "plant",
        "checkpoints",
        "model",
        "eval",
    }
    assert names(run) == contract | {"mig", ".lock"}
    assert names(run / "plant") == {"head.safetensors", "checkpoints"}
    assert names(run / "checkpoints") == {
        "step_00000015",
        "step_00000020",
        "best.safetensors",
    }
    assert names(run / "eval") == {"dev", "test"}
    assert names(run / "model") == {
        "config.json",
        "head.safetensors",
        "calibration.safetensors",
        "encoder",  # its weights are random: no name could stand for them
        "tokenizer",
        "labels.arrow",
        "labels.faiss",
        "index.json",
        "outcomes.safetensors",
        "profile.safetensors",
        "thresholds.json",
        "smoke.json",
        "README.md",
    }
    unfinished = [
        p
        for p in whole.folder.rglob("*")
        if p.name.endswith((".tmp", ".unfinished", ".partial"))
    ]
    assert unfinished == list(whole.folder.rglob("*.pkl")) == []


def test_what_evaluation_writes_is_the_contracts(whole):
    folder = whole.run / "eval" / "test"
    found = json.loads((folder / "metrics.json").read_text())
    assert set(HEADLINE.split()) <= found.keys()
    assert {"ci95", "bins", "threshold", "docs", "labels", "seconds"} <= found.keys()
    assert all(0 <= found[key] <= 1 for key in HEADLINE.split())
    low, high = found["ci95"]["ndcg@5"]
    assert low <= found["ndcg@5"] <= high
    per_label = pd.read_parquet(folder / "per_label.parquet")
    wanted = (
        "label name train_count support tp fp fn precision recall f1 average_precision"
    )
    assert set(wanted.split()) <= set(per_label.columns)
    predictions = pd.read_parquet(folder / "predictions.parquet")
    assert list(predictions.columns)[:3] == ["doc_id", "labels", "scores"]
    assert all((scores[:-1] >= scores[1:]).all() for scores in predictions["scores"])
    assert (folder / "report.html").stat().st_size > 10_000


def test_metrics_and_stages_are_written_down(whole):
    record = read_run(whole.run)
    assert record is not None
    wanted = ["prepare", "mig", "plant", "finetune", "evaluate", "report"]
    assert [(name, stage.state) for name, stage in record.stages.items()] == [
        (name, "done") for name in wanted
    ]
    assert list(losses(whole.run, "plant")) == list(range(1, 11))
    assert list(losses(whole.run, "finetune")) == list(range(1, 21))
    line = next(m for m in metrics(whole.run) if m["stage"] == "finetune")
    keys = "stage step time_s train/loss train/grad_norm perf/tokens_per_s perf/docs_per_s mem/peak_gib"
    assert set(keys.split()) | {"time/data_wait_frac"} <= line.keys()


def test_no_text_is_written_down(whole):
    """The corpus holds tokens and the tokenizer words; the run directory holds neither sentences nor words of them."""
    sentence = tiny_runs.documents(1)[0]["text"].encode()
    for path in (
        p for p in whole.run.rglob("*") if p.is_file() and "tokenizer" not in p.parts
    ):
        assert sentence not in path.read_bytes(), path


def test_a_second_run_skips_what_is_done_and_says_so(whole, monkeypatch, capsys):
    monkeypatch.setattr(pipeline, "run_workers", lambda *_: pytest.fail("trains again"))
    before = {p: p.stat().st_mtime_ns for p in (whole.run / "model").rglob("*")}
    train_run(load(whole.config))
    said = capsys.readouterr().err
    for stage in ("mig", "plant", "finetune", "evaluate"):
        assert f"{stage}: already done, skipped" in said
    assert {p: p.stat().st_mtime_ns for p in (whole.run / "model").rglob("*")} == before


def test_reuse_of_the_corpus_is_logged(whole, caplog):
    with caplog.at_level(logging.INFO, "xmtc"):
        pipeline.prepare_stage(load(whole.config))
    assert f"corpus {whole.folder / 'corpus'} is up to date: reused" in caplog.text


def test_the_corpus_of_another_run_is_not_replaced(whole):
    manifest = whole.folder / "corpus" / "manifest.json"
    before = manifest.read_bytes()
    other = load(whole.config, "name=shorter", "data.max_length=20")
    free = f"{whole.folder}/shorter"
    with pytest.raises(
        DataError, match=rf"corpus: the run .*/tiny .*data\.corpus={free}"
    ):
        pipeline.prepare_stage(other)
    assert manifest.read_bytes() == before


def test_only_what_changed_runs_again(whole, monkeypatch):
    ran: list[str] = []
    monkeypatch.setattr(pipeline, "run_workers", lambda stage, *_: ran.append(stage))
    train_run(load(whole.config, "evaluate.resamples=10"))
    assert ran == ["evaluate"]
    train_run(load(whole.config))  # as it was
    assert ran == ["evaluate", "evaluate"]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["track.resume=never"],
            r"track\.resume: never: .*tiny holds a run already; add name=OTHER, or track\.resume=auto",
        ),
        (
            ["track.resume=must", "name=absent"],
            r"track\.resume: must: .*absent holds no run",
        ),
        (
            ["finetune.batch_size=9"],
            r"another configuration.*\n +finetune\.batch_size: 12 -> 9",
        ),
        (
            ["name=flat", "model.head={kind: flat}"],
            r"plant\.method: .*model\.head\.kind is flat",
        ),
        (
            ["name=foreign", "model.encoder.from_config=null"],
            r"data\.tokenizer: trained wordpiece does not match .* model\.encoder\.name: packaged:"
            r".*; set data\.tokenizer=null",
        ),
        (
            [
                "name=foreign",
                "model.encoder={kind: maxpool, base: {}}",
                "plant.parts=[]",
            ],
            r"of model\.encoder\.base\.name: packaged:all-MiniLM-L6-v2; .* or model\.encoder\.base\.from_config",
        ),
        (["name=overlapping", "model.overlap=20"], r"model\.overlap: 20 .* at most 16"),
        (
            ["name=wide", "model.encoder.window=64"],
            r"model\.encoder\.window: 64 .* 32 positions",
        ),
        (
            ["name=adapted", "model.encoder.lora={target_modules: [nosuch]}"],
            r"target_modules \['nosuch'\]",
        ),
    ],
)
def test_refused(whole, overrides, words):
    before = (whole.run / "run.json").read_bytes()
    with pytest.raises(ConfigError, match=words):
        train_run(load(whole.config, *overrides))
    assert (whole.run / "run.json").read_bytes() == before
    assert names(whole.folder / "runs") <= {
        "tiny",
        "random",
        "uncached",
        "broken",
        "interrupted",
    }


def test_a_first_report_that_cannot_be_written_leaves_the_scorers_done(
    whole, tmp_path, monkeypatch
):
    def full(*_: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(pipeline, "report_runs", full)
    config = load(
        whole.config, "model.scorers=[{kind: linear}]", f"track.directory={tmp_path}"
    )
    with pytest.raises(StorageError, match="full"):
        train_run(config)
    record = read_run(tmp_path / "tiny")
    assert record is not None
    assert {
        str(stage): record.stages[stage].state for stage in (Stage.SCORERS, Stage.PLANT)
    } == {
        "scorers": "done",
        "plant": "pending",
    }


def test_a_sink_that_cannot_be_opened_is_refused_before_anything_is_computed(
    tmp_path, monkeypatch
):
    def away(*_: object) -> None:
        raise ConnectionError("away")

    monkeypatch.setattr("xmtc.track.sinks.TensorBoardSink.__init__", away)
    config = load(tiny_runs.write_config(tmp_path), "track.sinks=[{kind: tensorboard}]")
    with pytest.raises(
        ConfigError, match=r"track\.sinks: tensorboard: ConnectionError: away"
    ):
        train_run(config)
    assert not (tmp_path / "corpus").exists()


def test_too_few_token_ids_are_refused_before_tokens_are_ranked(whole):
    config = load(
        whole.config, "name=few_ids", "model.encoder.from_config.vocab_size=50"
    )
    with pytest.raises(ConfigError, match="only 50"):
        train_run(config)
    record = read_run(RunPaths.of(config).root)
    assert record is not None
    assert record.stages[Stage.MIG].state == "pending"
    shutil.rmtree(RunPaths.of(config).root)


def test_a_pretrained_backbone_takes_tokenizers_that_number_tokens_as_it_does(
    whole, tmp_path
):
    def tokenizer(name: object) -> RunConfig:
        chosen = f"data.tokenizer={{kind: pretrained, name: '{name}'}}"
        return load(whole.config, "model.encoder.from_config=null", chosen)

    own = load_pretrained("packaged:all-MiniLM-L6-v2")
    own.save_pretrained(tmp_path)
    check(load(whole.config, "model.encoder.from_config=null", "data.tokenizer=null"))
    for name in ("packaged:all-MiniLM-L6-v2", tmp_path):
        check(tokenizer(name))
    for command in (check, pipeline.prepare_stage):
        with pytest.raises(ConfigError, match=r"data\.tokenizer: .*corpus/tokenizer"):
            command(tokenizer(whole.folder / "corpus" / "tokenizer"))


def test_a_backbone_without_weights_is_refused_before_a_corpus_is_prepared(
    whole, tmp_path
):
    load_pretrained("packaged:all-MiniLM-L6-v2").save_pretrained(tmp_path)
    shape = Path(resolve_pretrained("packaged:all-MiniLM-L6-v2")) / "config.json"
    shutil.copy(shape, tmp_path)
    name = (
        "model.encoder.from_config=null",
        f"model.encoder.name={tmp_path}",
        "data.tokenizer=null",
    )
    with pytest.raises(
        ConfigError, match=r"model\.encoder\.name: .*no file named model\.safetensors"
    ):
        check(load(whole.config, *name))


def test_heads_without_label_attention_need_no_ranking(whole, monkeypatch, tmp_path):
    """Nothing reads it, so that labels without informative tokens are no obstacle."""

    def stop(stage: str, *_: object) -> None:
        raise ConfigError(f"reached {stage}")

    monkeypatch.setattr(pipeline, "run_workers", stop)
    flat = (
        "model.head={kind: flat}",
        "plant.parts=[]",
        "mig.min_documents=1000",
        f"track.directory={tmp_path}",
    )
    with pytest.raises(ConfigError, match="reached finetune"):
        train_run(load(whole.config, *flat))
    assert not (tmp_path / "tiny" / "mig").exists()
    record = read_run(tmp_path / "tiny")
    assert record is not None
    assert "mig" not in record.stages


def test_without_planting_everything_else_is_the_same(whole):
    config = load(whole.config, "name=random", *tiny_runs.RANDOM_START)
    assert list(changed_settings(to_plain(load(whole.config)), to_plain(config))) == [
        'name: "tiny" -> "random"',
        "plant.parts: null -> []",
    ]
    planted, random = (
        build_worker(load(whole.config), RunPaths.of(config)),
        build_worker(config, RunPaths.of(config)),
    )
    for (name, ours), theirs in zip(
        random.classifier.state_dict().items(),
        planted.classifier.state_dict().values(),
        strict=True,
    ):
        assert torch.equal(ours, theirs), name

    run = train_run(config)
    assert not (run / "plant").exists()
    lines = [m for m in metrics(run) if "train/lr" in m]
    same = [
        m for m in metrics(whole.run) if "train/lr" in m and m["stage"] == "finetune"
    ]
    assert [(m["step"], m["train/lr"], m["train/phase"]) for m in lines] == [
        (m["step"], m["train/lr"], m["train/phase"]) for m in same
    ]
    head = load_file(whole.run / "plant" / "head.safetensors")
    start = random.classifier.head.state_dict()
    changed = {
        name for name, tensor in head.items() if not torch.equal(tensor, start[name])
    }
    trained = {
        n for n, p in planted.classifier.head.named_parameters() if p.requires_grad
    }
    assert {"queries", "weights"} <= changed <= trained
    assert losses(run, "finetune")[1] != losses(whole.run, "finetune")[1]


def test_without_epochs_only_the_classifier_rows_are_planted(whole):
    config = load(
        whole.config,
        "name=prototypes",
        "plant.parts=[rows]",
        "finetune.phases=[{epochs: 1}]",
    )
    start = build_worker(config, RunPaths.of(config)).classifier.head.state_dict()
    run = train_run(config)
    head = load_file(run / "plant" / "head.safetensors")
    changed = {
        name for name, tensor in head.items() if not torch.equal(tensor, start[name])
    }
    assert changed == {"weights", "bias"}
    assert not (run / "mig").exists()


def test_denormal_numbers_count_as_zero_in_training_and_nowhere_else(
    whole, monkeypatch
):
    denormal, seen = torch.full((8,), 1e-39), []
    monkeypatch.setattr(
        "xmtc.stages.evaluate.evaluate",
        lambda worker: seen.append((denormal * 1).any()),
    )
    assert (denormal * 1).all()
    stages.run_stage("evaluate", load(whole.config), RunPaths.of(load(whole.config)))
    assert seen == [False]
    assert (denormal * 1).all()


def test_cached_hidden_states_change_nothing(whole):
    run = train_run(
        load(
            whole.config,
            "name=uncached",
            "plant.cache_hidden=false",
            "finetune.cache_hidden=false",
        )
    )
    for stage in ("plant", "finetune"):
        assert losses(run, stage) == pytest.approx(losses(whole.run, stage), rel=2e-4)


def test_a_head_that_reads_fixed_poolings_keeps_nothing_else(whole, tmp_path):
    def tuned(name: str, *overrides: str) -> Path:
        head = (
            "model.head={kind: flat, pooling: {kind: summary, width: 8}, dropout: 0.0}"
        )
        corpus = f"data.corpus={tmp_path}/{name}"
        phases = "finetune.phases=[{epochs: 2}]"
        return train_run(
            load(
                whole.config,
                f"name={name}",
                head,
                corpus,
                phases,
                "plant.parts=[]",
                *overrides,
            )
        )

    kept, encoded = tuned("kept"), tuned("encoded", "finetune.cache_hidden=false")
    assert losses(kept, "finetune") == pytest.approx(
        losses(encoded, "finetune"), rel=1e-4
    )
    assert dev_scores(kept) == pytest.approx(dev_scores(encoded), rel=1e-3)
    (states,) = (tmp_path / "kept" / "pooled").glob("*/train/hidden.bin")
    assert states.stat().st_size == 60 * 4 * 32 * 4  # documents, poolings, width, bytes
    assert not (tmp_path / "kept" / "hidden").exists()


def test_hidden_states_of_an_encoder_from_scratch_are_kept_by_seed(whole):
    def kept(*overrides: str) -> set[str]:
        worker = build_worker(
            config := load(whole.config, *overrides), RunPaths.of(config)
        )
        worker.batches.collator(worker.dev, cached=True)
        return names(RunPaths.of(config).corpus / "hidden")

    before = kept()
    bag = "model.encoder={kind: bag, embedding: {width: 2}}"
    first = kept(bag, "seed=1") - before
    assert kept(bag, "seed=1") == before | first
    second = kept(bag, "seed=2") - before - first
    assert len(first) == len(second) == 1


def test_checkpoints_hold_what_trains_and_nothing_else(whole):
    def held(path: Path) -> set[str]:
        return {name for file in path.glob("*.safetensors") for name in load_file(file)}

    model = build_worker(load(whole.config), RunPaths.of(load(whole.config))).classifier
    attention = {id(p) for p in model.head.attention_parameters()}
    planted = {n for n, p in model.named_parameters() if id(p) in attention}
    head = {n for n, _ in model.named_parameters() if n.startswith("head.")}
    top = {n for n, _ in model.named_parameters() if ".layer.1." in n}
    assert planted
    assert top
    for folder, parameters in (
        (whole.run / "plant" / "checkpoints" / "step_00000010", planted),
        (whole.run / "checkpoints" / "step_00000020", head | top),
    ):
        found = {name.split("classifier.", 1)[-1] for name in held(folder)}
        assert {n for n in found if n in dict(model.named_parameters())} == parameters
        others = set(dict(model.named_parameters())) - parameters
        assert not [n for n in found if any(other in n for other in others)]


def test_the_exported_model_is_the_best_epochs(whole):
    best = load_file(whole.run / "checkpoints" / "best.safetensors")
    head = load_file(whole.run / "model" / "head.safetensors")
    for name in (n for n in best if ".head." in n):
        assert torch.equal(best[name], head[name.removeprefix("classifier.head.")])


def test_the_resolved_configuration_starts_the_same_run(whole):
    assert load(whole.run / "config.yaml") == load(whole.config)
    assert isinstance(load(whole.run / "config.yaml"), RunConfig)


def test_a_stage_refuses_another_corpus_than_the_runs(whole, monkeypatch):
    """Another machine may replace a corpus in spite of the lock."""
    config = load(whole.config)
    monkeypatch.setattr(
        Manifest, "load", lambda _folder: replace(manifest, fingerprint="another")
    )
    manifest = Manifest.parse(
        (RunPaths.of(config).corpus / "manifest.json").read_bytes(), ""
    )
    with pytest.raises(DataError, match="no longer the corpus of the run"):
        build_worker(config, RunPaths.of(config))
