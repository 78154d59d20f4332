"""Small sources and corpora for the tests of data."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from xmtc.data.config import DataConfig
from xmtc.data.corpus import Corpus
from xmtc.data.prepare import prepare

MINILM = "packaged:all-MiniLM-L6-v2"
QUICK = {"kind": "trained", "model": "wordpiece", "vocab_size": 300}


def serial(function, items):
    """A mapper without processes."""
    return map(function, list(items))


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def data_config(corpus: Path, source: dict[str, Any], **settings: Any) -> DataConfig:
    content = {"source": source, "corpus": str(corpus), "tokenizer": QUICK} | settings
    return TypeAdapter(DataConfig).validate_json(json.dumps(content))


def jsonl_source(
    tmp_path: Path, rows: Iterable[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    path = write_jsonl(tmp_path / "train.jsonl", rows)
    return {
        "kind": "jsonl",
        "files": {"train": str(path)},
        "columns": {"id": "id"},
    } | more


def documents(n: int) -> list[dict[str, Any]]:
    """`n` different texts of very different lengths with 1 to 3 of 7 labels."""
    words = ["alpha", "beta", "gamma", "delta", "law", "note", "heart", "trade", "fish"]
    return [
        {
            "id": f"d{i}",
            "text": f"number {i} "
            + " ".join(words[(i * 7 + k) % 9] for k in range(1 + (i * 37) % 90)),
            "labels": [f"l{(i + k * 3) % 7}" for k in range(1 + i % 3)],
        }
        for i in range(n)
    ]


def small_corpus(tmp_path: Path, n: int = 200, **settings: Any) -> Corpus:
    config = data_config(
        tmp_path / "corpus", jsonl_source(tmp_path, documents(n)), **settings
    )
    return prepare(config, None, map_unordered=serial)
