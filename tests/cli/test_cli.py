"""The command line as a user meets it: bad input of every kind ends with words that help, and with no traceback."""

import csv
import gzip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
import yaml

import tiny_runs
from xmtc import pipeline
from xmtc.config.load import load_config
from xmtc.predict.predictor import Model
from xmtc.run.config import RunConfig
from xmtc.run.state import RunState
from xmtc.stages.measuring import quick_metrics
from xmtc.stages.table import needed_stages
from xmtc.storage.remote import Remote

COMMANDS = (
    "prepare",
    "mig",
    "train",
    "evaluate",
    "report",
    "predict",
    "status",
    "doctor",
)


@pytest.fixture
def tiny(tmp_path) -> Path:
    torch.set_num_threads(1)
    return tiny_runs.write_config(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The configuration of a finished run."""
    config = tiny_runs.write_config(tmp_path_factory.mktemp("cli"))
    pipeline.train_run(tiny_runs.load(config))
    return config


def left_over(folder: Path) -> list[str]:
    """What looks unfinished anywhere beneath a folder."""
    return [
        p.name
        for p in folder.rglob("*")
        if re.search(r"\.tmp$|unfinished|\.partial$|\.writing", p.name)
    ]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(xmtc, command):
    outcome = xmtc(*command.split(), "--help")
    assert outcome.code == 0
    assert "Usage:" in outcome.out
    for name in COMMANDS if not command else ():
        assert name in outcome.out
    assert command != "evaluate" or "[default: tuned on these documents]" in re.sub(
        r"[│\s]+", " ", outcome.out
    )


def test_unknown_commands_and_options(xmtc):
    assert xmtc("trian").code == 2
    outcome = xmtc("train", "--fast", "x.yaml")
    assert outcome.code == 2
    assert "--fast" in outcome.err


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["finetune.bach_size=3"],
            r"finetune\.bach_size: unknown key; did you mean 'batch_size'\?",
        ),
        (["finetun.batch_size=3"], r"finetun: unknown key; did you mean 'finetune'\?"),
        (
            ["finetune.epochs=3"],
            r"unknown key; did you mean 'finetune\.phases\.0\.epochs'\?",
        ),
        (
            ["data.source.label_separator=;"],
            r"did you mean 'data\.source\.columns\.label_separator'\?",
        ),
        (
            ["finetune.batch_size=many"],
            r"finetune\.batch_size: 'many': must be a valid integer",
        ),
        (["finetune.batch_size=0"], r"finetune\.batch_size: 0: must be"),
        (
            ["finetune.batch_size"],
            r"'finetune\.batch_size': an override is written key=value",
        ),
        (
            ["data.source.kind=jsnol"],
            r"data\.source\.kind: 'jsnol': unknown kind; did you mean 'jsonl'\?",
        ),
        (["model.encoder.kind=hugging_fase"], r"did you mean 'hugging_face'\?"),
        (
            ["plant.loss.kind=listnet", "plant.cache_hidden=maybe"],
            r"plant\.cache_hidden: 'maybe': must be a valid boolean",
        ),
    ],
)
def test_wrong_configuration(xmtc, tiny, overrides, words):
    outcome = xmtc("train", tiny, *overrides)
    assert outcome.code == 1
    assert re.search(words, outcome.err), outcome.err
    assert outcome.err.startswith("ConfigError:")
    assert not (tiny.parent / "runs").exists()


def test_doctor_takes_overrides(xmtc, tiny, monkeypatch):
    checked = []
    monkeypatch.setattr(
        "xmtc.preflight.doctor.run_doctor", lambda config: bool(checked.append(config))
    )
    assert xmtc("doctor", "-c", tiny, "distributed.workers=64").code == 0
    assert checked[0].distributed.workers == 64
    outcome = xmtc("doctor", "distributed.workers=1")
    assert (outcome.code, outcome.err) == (
        1,
        "ConfigError: distributed.workers=1: this changes a configuration; name its file with --config\n",
    )


def test_wrong_keys_in_the_file_come_with_their_line(xmtc, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("name: bad\nfinetune:\n  bach_size: 3\n")
    outcome = xmtc("train", path)
    assert outcome.code == 1
    assert f"{path}:3: finetune.bach_size: unknown key" in outcome.err
    assert "data: missing" in outcome.err
    path.write_text("name: [bad\n")
    assert f"{path}" in xmtc("train", path).err
    assert "absent.yaml" in xmtc("train", tmp_path / "absent.yaml").err


def test_the_printed_configuration_loads_again(xmtc, tiny):
    outcome = xmtc("train", tiny, "finetune.batch_size=7", "--print-config")
    assert outcome.code == 0
    path = tiny.with_name("printed.yaml")
    path.write_text(outcome.out)
    assert load_config(RunConfig, path, []) == load_config(
        RunConfig, tiny, ["finetune.batch_size=7"]
    )
    assert not (tiny.parent / "runs").exists()


def bad_source(folder: Path, what: str) -> list[str]:
    """Break the training file of a tiny corpus; returns overrides."""
    path = folder / "train.jsonl"
    lines = path.read_text().splitlines()
    if what == "missing":
        path.unlink()
    elif what == "empty":
        path.write_text("")
    elif what == "truncated":
        whole = gzip.compress(path.read_bytes())
        (folder / "train.jsonl.gz").write_bytes(whole[: len(whole) // 2])
        return [f"data.source.files.train={folder / 'train.jsonl.gz'}"]
    elif what == "malformed":
        lines[6] = lines[6][:-5]
    elif what == "no text":
        lines[6] = json.dumps({"id": "x", "labels": ["law"]})
    elif what == "no labels":
        lines[6] = json.dumps({"id": "x", "text": "words", "labels": []})
        path.write_text("\n".join(lines) + "\n")
        return ["data.without_labels=error"]
    elif what == "unlabelled":
        lines = [json.dumps(json.loads(line) | {"labels": []}) for line in lines]
        path.write_text("\n".join(lines))
        return ["data.on_bad_row=skip"]
    elif what == "unknown label":
        (folder / "labels.jsonl").write_text(
            json.dumps({"label": "law", "name": "Law"}) + "\n"
        )
        return [f"data.source.labels={{path: {folder / 'labels.jsonl'}}}"]
    if what not in ("missing", "empty"):
        path.write_text("\n".join(lines) + "\n")
    return []


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("missing", r"train\.jsonl: no such file"),
        ("empty", r"train\.jsonl: the file is empty"),
        ("truncated", r"train\.jsonl\.gz: .*cut short"),
        (
            "malformed",
            r"train\.jsonl:7: malformed JSON: .*; correct the row, or set data\.on_bad_row: skip",
        ),
        ("no text", r"train\.jsonl:7: no column 'text'"),
        ("no labels", r"document 'x': no labels, but data\.without_labels is error"),
        ("unlabelled", r"no training documents|no label"),
        (
            "unknown label",
            r"label '\w+' is not in the label file \(closed: false admits it\)",
        ),
    ],
)
def test_wrong_sources(xmtc, tiny, what, words):
    overrides = bad_source(tiny.parent, what)
    outcome = xmtc("train", tiny, *overrides)
    assert outcome.code == 1
    assert outcome.err.splitlines()[-1].startswith("DataError:"), outcome.err
    assert re.search(words, outcome.err), outcome.err
    assert not (tiny.parent / "corpus").exists()
    assert left_over(tiny.parent) == []
    assert re.search(
        r"prepare +failed in 0:\d\d: DataError",
        xmtc("status", tiny.parent / "runs" / "tiny").out,
    )


def test_skipped_rows_are_counted_and_the_user_is_told(xmtc, tiny):
    bad_source(tiny.parent, "malformed")
    overrides = ["data.on_bad_row=skip", *bad_source(tiny.parent, "no labels")]
    lines = (tiny.parent / "train.jsonl").read_text().splitlines()
    lines[9] = "{"
    (tiny.parent / "train.jsonl").write_text("\n".join(lines) + "\n")
    outcome = xmtc("prepare", tiny, *overrides)
    assert outcome.code == 0
    assert (
        "corpus: train 58 documents, dev 16 documents, test 16 documents" in outcome.err
    )
    assert "corpus: rejected 2" in outcome.err
    again = xmtc("prepare", tiny, *overrides)
    assert "is up to date: reused" in again.err


def test_too_few_documents_for_any_token(xmtc, tiny):
    outcome = xmtc("train", tiny, "mig.min_documents=1000")
    assert outcome.code == 1
    assert "DataError: no token could be ranked for any label" in outcome.err
    assert not (tiny.parent / "runs" / "tiny" / "mig" / "ranking.safetensors").exists()


def stages_of(config):
    return [entry.stage for entry in needed_stages(load_config(RunConfig, config))]


def test_status(xmtc, tiny, trained, tmp_path):
    outcome = xmtc("status", trained.parent / "runs" / "tiny")
    assert outcome.code == 0
    for stage in stages_of(tiny):
        assert re.search(rf"{stage} +done in \d+:\d\d", outcome.out), outcome.out
    assert "last checkpoint:" in outcome.out
    assert re.search(
        r"step \d+, head alone, without the other scorers: ", outcome.out
    ), outcome.out
    assert re.search(
        r"the finished model on test: .*micro-F1 \d+\.\d %", outcome.out
    ), outcome.out
    outcome = xmtc("status", tmp_path)
    assert outcome.code == 1
    assert f"DataError: {tmp_path}: no run there" in outcome.err


def test_predict(xmtc, trained):
    model = trained.parent / "runs" / "tiny" / "model"
    outcome = xmtc(
        "predict", model, "--text", "lawery of lawing", "-t", "fishing", "--top-k", 2
    )
    rows = [json.loads(line) for line in outcome.out.splitlines()]
    assert [row["text"] for row in rows] == [0, 1]
    assert all(len(row["labels"]) == 2 for row in rows)
    for row in rows:
        has_labels = any(label["predicted"] for label in row["labels"])
        assert (row["expected"]["precision"] is not None) == has_labels
    outcome = xmtc("predict", model)
    assert outcome.code == 2
    assert "give --text or --input" in outcome.err
    outcome = xmtc("predict", model, "--text", "fishing", "--top-k", 6)
    assert {row["predicted"] for row in json.loads(outcome.out)["labels"]} == {
        True,
        False,
    }
    outcome = xmtc("predict", model, "--text", " ")
    assert outcome.code == 1
    assert "text 0 has no tokens" in outcome.err


def test_predict_reads_lines_and_says_which(xmtc, trained, tmp_path, monkeypatch):
    model, file = trained.parent / "runs" / "tiny" / "model", tmp_path / "in.txt"
    file.write_bytes("\ufefflawery\r\n\n \nfishing\n".encode())
    rows = [
        json.loads(line)
        for line in xmtc(
            "predict", model, "-t", "law", "--input", file
        ).out.splitlines()
    ]
    assert [(row["text"], row.get("line")) for row in rows] == [
        (0, None),
        (1, 1),
        (2, 4),
    ]
    alone = json.loads(xmtc("predict", model, "-t", "fishing").out)
    assert rows[2]["labels"] == alone["labels"]
    assert len(alone["labels"]) == 5
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    piped = [
        json.loads(line)
        for line in xmtc("predict", model, "--input", "-").out.splitlines()
    ]
    assert [row["line"] for row in piped] == [1, 4]
    file.write_text("lawery\n" * 2_100)  # more than are held in memory
    many = xmtc("predict", model, "--input", file, "--top-k", 1).out.splitlines()
    assert [json.loads(row)["text"] for row in many] == list(range(2_100))
    table = xmtc("predict", model, "--input", file, "--top-k", 1, "--csv", "-").out
    assert [row["doc_id"] for row in csv.DictReader(io.StringIO(table))] == [
        str(line) for line in range(1, 2_101)
    ]
    for content, words in {
        "café".encode("latin-1"): r"in\.txt:1: not UTF-8 text \(.*\); convert the file",
        b" \n": r"in\.txt: only blank lines",
        b"law\n\x01\n": "--input: line 2 has no tokens: leave it out",
    }.items():
        file.write_bytes(content)
        outcome = xmtc("predict", model, "--input", file)
        assert outcome.code == 1
        assert re.search(words, outcome.err), outcome.err
    assert (
        "absent.txt: no such file"
        in xmtc("predict", model, "--input", "absent.txt").err
    )


@pytest.mark.parametrize(
    ("file", "damage", "words"),
    [
        ("config.json", None, r"config\.json"),
        ("config.json", b"{", r"config\.json"),
        ("head.safetensors", None, r"head\.safetensors"),
        ("head.safetensors", b"short", r"head\.safetensors"),
        ("labels.arrow", b"short", r"labels\.arrow"),
        ("tokenizer/tokenizer.json", None, r"tokenizer\.json"),
        ("thresholds.json", b"[]", r"thresholds\.json"),
    ],
)
def test_damaged_models(xmtc, trained, tmp_path, file, damage, words):
    model = shutil.copytree(
        trained.parent / "runs" / "tiny" / "model", tmp_path / "model"
    )
    if damage is None:
        (model / file).unlink()
    else:
        (model / file).write_bytes(damage)
    outcome = xmtc("predict", model, "--text", "law")
    assert outcome.code == 1
    assert re.search(words, outcome.err), outcome.err
    assert str(model) in outcome.err


def test_a_model_directory_that_is_none(xmtc, tmp_path):
    for path in (tmp_path, tmp_path / "absent"):
        outcome = xmtc("predict", path, "--text", "law")
        assert outcome.code == 1
        assert str(path) in outcome.err


def test_evaluate_and_report_of_runs(xmtc, trained, tmp_path):
    run = trained.parent / "runs" / "tiny"
    assert xmtc("evaluate", run).code == 0
    output = tmp_path / "both.html"
    other = shutil.copytree(run, tmp_path / "other")
    assert xmtc("report", run, other, "-o", output).code == 0
    assert output.stat().st_size > 10_000
    assert xmtc("evaluate").code == 2
    assert (
        xmtc(
            "evaluate", "--predictions", run / "eval" / "test" / "predictions.parquet"
        ).code
        == 2
    )
    for command in ("evaluate", "report"):
        outcome = xmtc(command, tmp_path)
        assert outcome.code == 1
        assert str(tmp_path) in outcome.err


def test_mig_shows_labels(xmtc, trained):
    outcome = xmtc("mig", trained, "--show", "fish", "--top", 5)
    assert outcome.code == 0
    assert "fish" in outcome.out
    outcome = xmtc("mig", trained, "--show", "fihs")
    assert outcome.code == 1
    assert "fihs" in outcome.err


def test_a_damaged_corpus_stops_training(xmtc, tiny):
    assert xmtc("prepare", tiny).code == 0
    shard = tiny.parent / "corpus" / "train" / "00000.arrow"
    shard.write_bytes(shard.read_bytes()[:-100])
    outcome = xmtc("train", tiny)
    assert outcome.code == 1
    assert re.search(
        r"DataError: .*00000\.arrow: [\d,]+ bytes instead of [\d,]+; delete",
        outcome.err,
    ), outcome.err


INTERRUPTIONS = {
    "prepare": "xmtc.data.prepare.make_shard",
    "mig": "xmtc.planting.mig.ranking.rank_tokens",
    "plant": "xmtc.planting.planter.plant_prototypes",
    "evaluate": "xmtc.stages.exporting.export_model",
    "report": "xmtc.pipeline.report_runs",
}


def test_ctrl_c_in_every_stage_and_resume(xmtc, tiny, trained, monkeypatch):
    run = tiny.parent / "runs" / "tiny"
    stages = stages_of(tiny)
    for stage, place in INTERRUPTIONS.items():
        with monkeypatch.context() as patch:
            patch.setattr(place, lambda *_, **__: signal.raise_signal(signal.SIGINT))
            outcome = xmtc("train", tiny)
        assert outcome.code == 130, outcome.err
        assert (
            outcome.err.splitlines()[-1]
            == f"interrupted: continue with: xmtc train {tiny}"
        )
        assert left_over(tiny.parent) == []
        assert re.search(
            rf"{stage} +failed in \d:\d\d: interrupted", xmtc("status", run).out
        )
        done = [
            name
            for name in stages
            if re.search(rf"{name} +done", xmtc("status", run).out)
        ]
        assert done == stages[: stages.index(stage)]
    assert xmtc("train", tiny).code == 0
    expected = trained.parent / "runs" / "tiny"
    for stage in ("plant", "finetune"):
        assert tiny_runs.losses(run, stage) == tiny_runs.losses(expected, stage)
    ours, theirs = (
        json.loads((root / "eval/test/metrics.json").read_text())
        for root in (run, expected)
    )
    assert ours["ci95"]["ndcg@5"] == theirs["ci95"]["ndcg@5"]
    assert ours["bins"] == theirs["bins"]


def test_an_interrupted_run_finishes_with_its_best_epoch(xmtc, tiny, monkeypatch):
    tree = yaml.safe_load(tiny.read_text())
    tree["finetune"]["phases"] = [{"epochs": 50}]
    tiny.write_text(yaml.safe_dump(tree))
    run, epochs = tiny.parent / "runs" / "tiny", []
    outcome = xmtc("train", tiny, "--finish")
    assert outcome.code == 1
    assert f"--finish: {run}: no epoch of finetune" in outcome.err
    assert not run.exists()

    def measure(worker, predictions, gold):
        epochs.append(
            {
                name: table.clone()
                for name, table in worker.classifier.head.label_tables().items()
            }
        )
        if len(epochs) == 2:
            raise KeyboardInterrupt
        return quick_metrics(worker, predictions, gold)

    with monkeypatch.context() as patch:
        patch.setattr("xmtc.stages.finetune.quick_metrics", measure)
        assert xmtc("train", tiny).code == 130
    outcome = xmtc("train", tiny, "--finish")
    assert outcome.code == 0, outcome.err
    head = Model.from_pretrained(run / "model").scorer.classifier.head
    for name, table in head.label_tables().items():
        assert torch.equal(table, epochs[0][name])
    assert re.search(r"finetune +done in [\d:]+$", xmtc("status", run).out, re.M)
    assert "finetune: already done, skipped" in xmtc("train", tiny).err


def test_a_run_that_is_being_trained_is_refused_at_once(xmtc, tiny, monkeypatch):
    run = tiny.parent / "runs" / "tiny"
    monkeypatch.delattr(pipeline, "train_run")  # which takes long to import
    with RunState.open(run, tiny_runs.load(tiny), stages=("prepare",)):
        outcome = xmtc("train", tiny)
        assert f"process {os.getpid()} on " in xmtc("status", run).out
        refused = xmtc("predict", run, "-t", "a").err
        assert "no model yet: its stage prepare is pending" in refused
        assert "warning" not in refused.lower()
    assert "no process on this machine writes it now" in xmtc("status", run).out
    assert outcome.code == 1
    assert f"{run}: process {os.getpid()} on " in outcome.err


def test_nothing_of_a_finished_run_is_left_to_finish(xmtc, trained, monkeypatch):
    monkeypatch.delattr(pipeline, "fingerprint_of")  # which reads the data
    outcome = xmtc("train", trained, "--finish")
    assert outcome.code == 0, outcome.err
    assert "this run is finished, so that nothing is left to do" in outcome.err
    assert "report: " in outcome.out


def test_ctrl_c_from_outside(tiny):
    """A real signal to a real process in the middle of stage 1, and a run that then says where it stopped."""
    tree = yaml.safe_load(tiny.read_text())
    tree["plant"] |= {"epochs": 1000, "patience": 0}
    tiny.write_text(yaml.safe_dump(tree))
    process = subprocess.Popen(
        [sys.executable, "-c", "from xmtc.cli import main; main()", "train", str(tiny)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = tiny.parent / "runs" / "tiny" / "metrics.jsonl"
    try:
        while process.poll() is None and not (
            log.exists() and log.read_text().count("\n") > 6
        ):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 130, err
    goes_on = r"^interrupted: plant stopped after step (\d+), checkpoint written; .*xmtc train .*tiny\.yaml$"
    stopped = re.search(goes_on, err, re.MULTILINE)
    assert stopped, err
    assert "Traceback" not in err
    assert (
        log.parent / "plant" / "checkpoints" / f"step_{int(stopped[1]):08d}"
    ).is_dir()


def test_a_configurations_source_is_scored_and_explained(xmtc, trained, tmp_path):
    model = trained.parent / "runs" / "tiny" / "model"
    outcome = xmtc(
        "score",
        model,
        trained,
        trained.parent / "dev.jsonl",
        "--id",
        "id",
        "--output",
        tmp_path / "out",
    )
    assert outcome.code == 0, outcome.err
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert [part["rows"] for part in manifest["parts"]] == [16, 60 + 16 + 16]
    assert (
        xmtc("explain", model, "--input", trained, "--doc-id", "d90", "--top-k", 1).code
        == 0
    )
    tree = yaml.safe_load(trained.read_text())
    files = tree["data"]["source"]["files"]
    for split, path in files.items():
        Remote("memory://scored").upload(Path(path), f"{split}.jsonl")
    tree["data"]["source"]["files"] = {
        split: f"memory://scored/{split}.jsonl" for split in files
    }
    remote = tmp_path / "remote.yaml"
    remote.write_text(
        yaml.safe_dump(tree | {"storage": {"cache": str(tmp_path / "cache")}})
    )
    outcome = xmtc("score", model, remote, "--output", tmp_path / "remote")
    assert outcome.code == 0, outcome.err
    assert len(list((tmp_path / "cache").rglob("*.jsonl"))) == 3
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\n")
    assert (
        "data: missing" in xmtc("score", model, bad, "--output", tmp_path / "bad").err
    )
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("score MODEL CONFIG -o OUT --id id", "tiny.yaml says how its source is read"),
        (
            "drift MODEL CONFIG --text-column text",
            "tiny.yaml says how its source is read",
        ),
        ("predict MODEL -t law --text-column text", "no table is read"),
        ("predict MODEL --input OUT --id id", "no table is read"),
        ("predict MODEL -t law --longest-document 9", "no file is read"),
        ("explain MODEL -t law --id id", "no file is read"),
        (
            "explain MODEL -t law --input CONFIG",
            "either --text, or --input with --doc-id",
        ),
        (
            "explain MODEL -t law --doc-id d90",
            "either --text, or --input with --doc-id",
        ),
        ("annotations sample OUT --model MODEL --size 5 -o OUT --id id", "no --input"),
        ("mig CONFIG --top 0", "'--top'"),
        ("serve MODEL --models OUT", "either a model or --models DIR"),
        ("serve shortlist=5", "either a model or --models DIR"),
    ],
)
def test_options_without_effect_are_refused(xmtc, trained, tmp_path, command, words):
    places = {
        "MODEL": trained.parent / "runs" / "tiny" / "model",
        "CONFIG": trained,
        "OUT": tmp_path / "out",
    }
    outcome = xmtc(*(places.get(part, part) for part in command.split(" ")))
    assert outcome.code in (1, 2)
    assert words in outcome.err
    assert not places["OUT"].exists()


def test_another_rule_names_the_report_that_has_the_former_one(xmtc, trained, tmp_path):
    run = shutil.copytree(trained.parent / "runs" / "tiny", tmp_path / "tiny")
    assert (
        f"until 'xmtc evaluate {run}'"
        in xmtc("decide", run / "model", "--rule", "macro").out
    )
    moved = (run / "model").rename(tmp_path / "moved")
    assert "evaluate" not in xmtc("decide", moved, "--rule", "micro").out


def test_version_is_that_of_the_package(xmtc):
    outcome = xmtc("--version")
    assert (outcome.code, outcome.out) == (0, f"xmtc {version('xmtc')}\n")


@pytest.mark.parametrize(("given", "kept"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_that_wait_sleep_unless_the_environment_says_otherwise(given, kept):
    code = "\n".join(
        [
            "import atexit, os, sys, xmtc.cli",
            "assert 'torch' not in sys.modules, 'OpenMP has read its settings'",
            "atexit.register(lambda: print(os.environ['OMP_WAIT_POLICY']))",
            "xmtc.cli.main()",
        ]
    )
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    if given is not None:
        environment["OMP_WAIT_POLICY"] = given
    run = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.splitlines()[-1] == kept


@pytest.mark.parametrize(
    ("shell", "typed"),
    [
        ("bash", {"COMP_WORDS": "xmtc pre", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "xmtc pre"}),
        (
            "fish",
            {
                "_TYPER_COMPLETE_ARGS": "xmtc pre",
                "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            },
        ),
    ],
)
def test_shells_complete_commands(shell, typed):
    call = "import sys; sys.argv = ['xmtc']; from xmtc.cli import main; main()"
    environment = {**os.environ, "_XMTC_COMPLETE": f"complete_{shell}", **typed}
    done = subprocess.run(
        [sys.executable, "-c", call],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    words = set(re.findall(r"[a-z]+", done.stdout))
    assert {"prepare", "predict"} <= words
    assert not {"train", "score"} & words
