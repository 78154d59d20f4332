"""A pretrained decoder goes the whole way: planted, trained with LoRA, interrupted, resumed, exported, scored.

Takes a few minutes on two cores, and 4 GB of memory. Skips without the weights (`python tools/fetch/decoder.py`).
"""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from peft import PeftModel
from transformers import AutoModel

import tiny_runs
from real_weights import real_weights
from score_jobs import read_output
from xmtc import Model
from xmtc.artefact.export import load_model
from xmtc.data.corpus import Corpus
from xmtc.planting.mig.ranking import TokenRanking

pytestmark = [
    pytest.mark.weights,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings(
        "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
    ),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WINDOW = 48
TRAIN_DOCUMENTS = 24
BATCH = 6
STEPS = TRAIN_DOCUMENTS // BATCH
STOPPED_AFTER = 2


def write_config(folder: Path, decoder: Path) -> Path:
    """A configuration that trains adapters of the decoder on docstrings, most of them longer than its window."""
    tree = {
        "name": "decoder",
        "data": {
            "source": {
                "kind": "pydocs",
                "packages": ["rich", "numpy"],
                "min_words": 60,
            },
            "corpus": str(folder / "corpus"),
            "max_length": 128,
            "limit": {"train": TRAIN_DOCUMENTS, "dev": 8, "test": 8},
        },
        "mig": {"min_documents": 2},
        "model": {
            "encoder": {
                "kind": "hugging_face",
                "name": str(decoder),
                "window": WINDOW,
                "lora": {
                    "r": 4,
                    "alpha": 8,
                    "dropout": 0.0,
                    "target_modules": "all_linear",
                },
            },
            "head": {
                "kind": "label_attention",
                "width": 64,
                "heads": 2,
                "dropout": 0.0,
            },
            "overlap": 8,
        },
        "plant": {
            "parts": ["attention", "rows"],
            "choose_documents": 0,
            "cache_hidden": False,
        },
        "finetune": {
            "batch_size": BATCH,
            "tokens_per_micro_batch": 1536,
            "sampled_labels": 16,
            "cache_hidden": False,
            "loss": {"kind": "binary_cross_entropy"},
            "phases": [
                {"epochs": 1, "encoder_layers": -1, "encoder_learning_rate": 1e-3}
            ],
        },
        "evaluate": {"resamples": 20},
        "distributed": {"workers": 0},
        "track": {"directory": str(folder / "runs"), "log_every_steps": 1},
    }
    path = folder / "decoder.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path


def train_until_terminated(config: Path) -> int:
    """Send SIGTERM to a training process after a step of stage 2; its exit status."""
    program = "from xmtc.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "train", str(config)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"finetune {STOPPED_AFTER}/{STEPS}"):
            process.send_signal(signal.SIGTERM)
    return process.wait()


@pytest.fixture(scope="module")
def decoder() -> Path:
    return real_weights("decoder")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, decoder) -> Path:
    """The folder of a run that was stopped in the middle of stage 2."""
    folder = tmp_path_factory.mktemp("decoder")
    status = train_until_terminated(write_config(folder, decoder))
    assert status not in (0, -signal.SIGTERM), (
        "it ended before the signal, or without a checkpoint"
    )
    assert not (folder / "runs" / "decoder" / "model").exists()
    return folder


@pytest.fixture(scope="module")
def run(stopped) -> Path:
    """The finished run."""
    program = "from xmtc.cli import main; main()"
    finished = subprocess.run(
        [sys.executable, "-c", program, "train", str(stopped / "decoder.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    resumed = re.search(r"resuming after step (\d+)", finished.stderr)
    assert resumed is not None, finished.stderr
    assert STOPPED_AFTER <= int(resumed[1]) < STEPS
    return stopped / "runs" / "decoder"


def test_an_interrupted_run_goes_on_at_its_step(run):
    assert list(tiny_runs.losses(run, "finetune")) == list(range(1, STEPS + 1))


def test_documents_are_longer_than_a_window(run):
    train = Corpus.open(run.parents[1] / "corpus").split("train")
    lengths = [len(train.tokens(row)) for row in range(len(train))]
    assert max(lengths) > WINDOW


def test_planted_attention_ranks_tokens_of_the_decoder(run):
    ranking = TokenRanking.load(run / "mig" / "ranking.safetensors")
    assert (ranking.token_ids_LK >= 0).any()
    assert (run / "plant" / "head.safetensors").is_file()


def test_peft_alone_loads_the_exported_adapter(run, decoder):
    parts = load_model(run / "model")
    encoder = parts.classifier.encoder
    adapted = PeftModel.from_pretrained(
        AutoModel.from_pretrained(decoder), str(run / "model" / "adapter")
    ).eval()
    generator = torch.Generator().manual_seed(0)
    input_ids_WU = torch.randint(10, 20_000, (2, WINDOW), generator=generator)
    mask_WU = torch.ones_like(input_ids_WU, dtype=torch.bool)
    with torch.inference_mode():
        expected_WUD = encoder(input_ids_WU, mask_WU)
        hidden_WUD = adapted(
            input_ids=input_ids_WU, attention_mask=mask_WU.long()
        ).last_hidden_state
        with adapted.disable_adapter():
            untrained_WUD = adapted(
                input_ids=input_ids_WU, attention_mask=mask_WU.long()
            ).last_hidden_state
    torch.testing.assert_close(hidden_WUD, expected_WUD, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(hidden_WUD, untrained_WUD, atol=1e-2), (
        "the adapters have been trained"
    )


def test_two_processes_score_as_one_does(run, tmp_path, xmtc):
    texts = [
        f"Return the array number {number} along an axis, broadcast to the shape." * 4
        for number in range(8)
    ]
    source = tmp_path / "documents.jsonl"
    rows = [
        json.dumps({"id": f"d{number}", "text": text})
        for number, text in enumerate(texts)
    ]
    source.write_text("\n".join(rows) + "\n", encoding="utf-8")
    options = [
        "--engine",
        "ray",
        "--workers",
        2,
        "--precision",
        "fp32",
        "--block-rows",
        2,  # else one process would get them all
        "--top-k",
        5,
        "--id",
        "id",
        "--text-column",
        "text",
    ]

    outcome = xmtc(
        "score", run / "model", source, "--output", tmp_path / "scores", *options
    )

    assert outcome.code == 0, outcome.err
    rows_scored = read_output(tmp_path / "scores").to_pylist()
    scored = {row["doc_id"]: row for row in rows_scored}
    predictions = Model.from_pretrained(run / "model").predict(texts, top_k=5)
    for number, prediction in enumerate(predictions):
        row = scored[f"d{number}"]
        assert row["labels"] == [found.label for found in prediction]
        assert row["scores"] == pytest.approx(
            [found.score for found in prediction], abs=1e-4
        )


def test_merged_backbone_is_an_ordinary_one(run, tmp_path, xmtc):
    outcome = xmtc("model", "merge", run / "model", "--output", tmp_path / "merged")

    assert outcome.code == 0, outcome.err
    merged = load_model(tmp_path / "merged")
    assert merged.classifier.encoder.backbone is not None
    plain = AutoModel.from_pretrained(tmp_path / "merged" / "encoder").eval()
    adapted = load_model(run / "model").classifier.encoder
    input_ids_WU = torch.arange(100, 100 + WINDOW)[None]
    mask_WU = torch.ones_like(input_ids_WU, dtype=torch.bool)
    with torch.inference_mode():
        expected_WUD = adapted(input_ids_WU, mask_WU)
        scale = float(expected_WUD.abs().max())
        ours_WUD = merged.classifier.encoder(input_ids_WU, mask_WU)
        theirs_WUD = plain(
            input_ids=input_ids_WU, attention_mask=mask_WU.long()
        ).last_hidden_state
    torch.testing.assert_close(
        ours_WUD / scale, expected_WUD / scale, rtol=0, atol=1e-5
    )
    torch.testing.assert_close(
        theirs_WUD / scale, expected_WUD / scale, rtol=0, atol=1e-5
    )
