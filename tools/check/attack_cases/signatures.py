"""Checksums that fit again after a change: whoever changes a file can change them too."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa


def sign_model(folder: Path) -> None:
    """Correct the checksums in the `config.json` of a model."""
    path = folder / "config.json"
    settings = json.loads(path.read_text())
    settings["sha256"] = {
        name: _sha256(folder / name) if (folder / name).is_file() else digest
        for name, digest in settings["sha256"].items()
    }
    path.write_text(json.dumps(settings))


def sign_corpus(folder: Path) -> None:
    """Correct the checksums, bytes, rows and tokens in the `manifest.json` of a corpus."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for entry in (manifest["labels"], *manifest["words"]):
        entry |= _file(folder / entry["path"])
    for split in manifest["splits"].values():
        for shard in split["shards"]:
            shard["file"] |= _file(folder / shard["file"]["path"])
            shard |= _counts(folder / shard["file"]["path"], shard)
        for name in ("rows", "tokens"):
            split[name] = sum(shard[name] for shard in split["shards"])
    path.write_text(json.dumps(manifest))


def sign_checkpoint(folder: Path) -> None:
    """Correct the checksums in the `manifest.json` of a checkpoint."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for name, entry in manifest["files"].items():
        entry |= _file(folder / name)
    path.write_text(json.dumps(manifest))


def _file(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": _sha256(path)}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _counts(path: Path, before: dict[str, Any]) -> dict[str, int]:
    """Rows and tokens of a shard; those before where it cannot be read or lacks the tokens."""
    try:
        table = pa.ipc.open_file(path.read_bytes()).read_all()
        table.validate(full=True)
        tokens = sum(len(row or ()) for row in table["input_ids"].to_pylist())
    except (pa.ArrowException, KeyError, TypeError, UnicodeDecodeError):
        return {"rows": before["rows"], "tokens": before["tokens"]}
    return {"rows": len(table), "tokens": tokens}
