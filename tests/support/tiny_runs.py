"""A corpus of a hundred short documents and a configuration that trains a tiny random BERT on it in seconds."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import AutoTokenizer, BertConfig, BertModel

from xmtc.config.load import load_config
from xmtc.data.pretrained import DEFAULT_BACKBONE, resolve_pretrained
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.stages.run_stage import run_stage

LABELS = ["law", "fish", "heart", "trade", "school", "steel"]
FILLER = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "that",
    "was",
    "for",
    "with",
    "as",
    "by",
    "on",
    "at",
    "from",
    "this",
    "which",
]


RANDOM_START = ("plant.parts=[]",)
"""Overrides with which nothing is planted."""


def documents(n: int, *, first: int = 0) -> list[dict[str, Any]]:
    """Documents whose labels can be read off two words each, among filler of very different lengths."""
    rows = []
    for i in range(first, first + n):
        labels = sorted({LABELS[i % 6], LABELS[(i * 5 + i // 6) % 6]})
        words = [FILLER[(i * 7 + k * 3) % len(FILLER)] for k in range(3 + i * 13 % 30)]
        for at, label in enumerate(labels):
            words.insert((i + 5 * at) % len(words), f"{label}ery")
            words.insert((3 * i + at) % len(words), f"{label}ing")
        rows.append({"id": f"d{i}", "text": f"{' '.join(words)} {i}", "labels": labels})
    return rows


def write_jsonl(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_config(folder: Path, **sections: Any) -> Path:
    """Data files and a configuration file in `folder`; `sections` replace whole top-level ones."""
    source = {"kind": "jsonl", "columns": {"id": "id"}, "files": {}}
    for split, first, n in (("train", 0, 60), ("dev", 60, 16), ("test", 76, 16)):
        source["files"][split] = str(
            write_jsonl(folder / f"{split}.jsonl", documents(n, first=first))
        )
    tree: dict[str, Any] = {
        "name": "tiny",
        "data": {
            "source": source,
            "corpus": str(folder / "corpus"),
            "tokenizer": {"kind": "trained", "vocab_size": 200},
            "max_length": 48,
        },
        "mig": {"min_documents": 2},
        "model": {
            "encoder": {
                "kind": "hugging_face",
                "from_config": {
                    "model_type": "bert",
                    "hidden_size": 32,
                    "intermediate_size": 32,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 2,
                    "max_position_embeddings": 32,
                },
                "dropout": 0.0,
            },
            "head": {
                "kind": "label_attention",
                "width": 16,
                "heads": 2,
                "dropout": 0.0,
            },
            "overlap": 4,
        },
        "plant": {
            "method": "ranking",
            "epochs": 2,
            "batch_size": 12,
            "tokens_per_micro_batch": 300,
            "sampled_labels": 4,
            "optimizer": {"learning_rate": 5e-3},
        },
        "finetune": {
            "batch_size": 12,
            "tokens_per_micro_batch": 300,
            "phases": [
                {"epochs": 2},
                {"epochs": 2, "encoder_layers": 1, "encoder_learning_rate": 1e-3},
            ],
            "optimizer": {"learning_rate": 5e-3},
            "patience": 0,
        },
        "evaluate": {"resamples": 20},
        "distributed": {"workers": 0, "threads": 1},
        "track": {"directory": str(folder / "runs"), "log_every_steps": 1},
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(tree | sections, sort_keys=False), encoding="utf-8")
    return path


def pretrained(folder: Path) -> tuple[str, str]:
    """Overrides: the encoder has the same shape, and its weights and tokenizer are in a folder."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(resolve_pretrained(DEFAULT_BACKBONE))
    shape = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    for part in (tokenizer, BertModel(shape)):
        part.save_pretrained(folder / "bert")
    return (
        f"model.encoder={{name: {folder / 'bert'}, from_config: null}}",
        "data.tokenizer=null",
    )


def load(path: Path, *overrides: str) -> RunConfig:
    return load_config(RunConfig, path, list(overrides))


def finetune(path: Path, *overrides: str) -> Path:
    """Stage 2 alone on this rank, on a corpus that is there already; the run directory."""
    config = load(path, *overrides)
    paths = RunPaths.of(config)
    paths.root.mkdir(parents=True, exist_ok=True)
    run_stage(Stage.FINETUNE, config, paths)
    return paths.root


def metrics(run: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def losses(run: Path, stage: str) -> dict[int, float]:
    """Training loss by step."""
    found = [m for m in metrics(run) if m["stage"] == stage and "train/loss" in m]
    steps = [m["step"] for m in found]
    assert steps == sorted(set(steps)), "a step is logged twice"
    return {m["step"]: m["train/loss"] for m in found}
