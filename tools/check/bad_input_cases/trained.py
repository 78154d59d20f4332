"""A tiny run, from which cases are made."""

import json
import sys
from pathlib import Path

import yaml

from bad_input_cases.case import Site, command

WORDS = ["law", "fish", "heart", "trade", "school", "steel"]


def make_site(folder: Path) -> Site:
    """Train a tiny model, and keep one scored file."""
    rows = [
        {
            "text": f"{word}ery of {word}ing {i}",
            "labels": [word, f"{word} {i % 4}"],
        }  # `labels add` needs 20 labels
        for i in range(12)
        for word in WORDS
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "name": "tiny",
        "data": {
            "source": {
                "kind": "jsonl",
                "files": {"train": str(folder / "train.jsonl")},
            },
            "corpus": str(folder / "corpus"),
            "tokenizer": {"kind": "trained", "vocab_size": 200},
            "max_length": 32,
        },
        "model": {
            "encoder": {
                "kind": "multilevel",
                "embedding": {"width": 16},
                "width": 16,
                "window": 24,
            },
            "overlap": 4,
            "head": {"kind": "flat", "pooling": {"kind": "mean"}},
        },
        "finetune": {"batch_size": 16, "phases": [{"epochs": 1}]},
        "evaluate": {"resamples": 10},
        "distributed": {"workers": 0, "threads": 1},
        "track": {"directory": str(folder / "runs")},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config))
    code, said = command("train", folder / "tiny.yaml")
    if code:
        sys.exit(f"the tiny run failed: {said}")
    return add_extras(
        Site(folder / "runs" / "tiny", folder / "tiny.yaml", folder / "corpus", folder)
    )


def add_extras(site: Site) -> Site:
    """A file of documents, one of labels, and a scored folder, in the folder of a site."""
    (site.folder / "one.jsonl").write_text(
        json.dumps({"text": "lawery and fishing"}) + "\n"
    )
    (site.folder / "labels.jsonl").write_text(
        json.dumps({"label": "new", "name": "steel and law"}) + "\n"
    )
    code, said = command(
        "score", site.model, site.folder / "one.jsonl", "-o", site.folder / "scores"
    )
    if code:
        sys.exit(f"scoring failed: {said}")
    return site
