"""Check the free disk space for runs, corpora, cached hidden states, and tensors that the strategy offloads."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from xmtc.data.corpus import Corpus
from xmtc.data.pretrained import resolve_pretrained
from xmtc.distributed.strategies.settings import Tool
from xmtc.errors import ConfigError
from xmtc.estimate.estimate import Estimate
from xmtc.files import reading
from xmtc.preflight.finding import Check
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths

GIB = 2**30
_MIN_FREE_GIB = 5
_SWAP_TIMEOUT_S = 120
# Runs in a separate process: DeepSpeed takes seconds to import, and prints. It only links one line.
_SWAP_SCRIPT = """
import sys
from xmtc.distributed.strategies.deepspeed_support import can_swap
sys.exit(0 if can_swap() else 3)
"""


def check_disks(config: RunConfig | None) -> Iterator[Check]:
    """Check the disks of runs and corpora, or of their copies if they are at a URI."""
    paths = RunPaths.of(config) if config else None
    places = {"runs": paths.root.parent if paths else Path("runs")}
    places["corpus"] = paths.corpus if paths else Path("corpora")
    for name, path in places.items():
        yield _room(f"disk: {name}", path, _MIN_FREE_GIB * GIB, "free disk space, or choose another folder")


def _room(name: str, path: Path, wanted: float, fix: str) -> Check:
    folder, free = _existing(path), free_bytes(path)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check(name, "missing", f"{folder} is not writable", "choose another folder")
    low = free < wanted
    return Check(name, "note" if low else "ok", f"{free / GIB:,.1f} GiB free at {path}", fix if low else "")


def _existing(path: Path) -> Path:
    """Return the folder, or the nearest existing parent."""
    return next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.is_dir())


def free_bytes(path: Path) -> int:
    """Free bytes on the disk where a folder is, or would be created."""
    return shutil.disk_usage(_existing(path)).free


def check_offload(config: RunConfig | None, found: Estimate | None) -> Iterator[Check]:
    """Check the library and the folder for tensors that the strategy offloads to a disk."""
    strategy = config.distributed.chosen_strategy() if config else None
    if strategy is None or strategy.offload_folder is None:
        return
    if Tool.LIBAIO in strategy.tools:
        yield _swap_library()
    path, size = Path(strategy.offload_folder), found.offloaded if found else 0.0
    check = _room("disk: nvme_path", path, size, "free disk space, or choose another disk")
    needed = f"; all workers together need about {size / GIB:,.1f} GiB" if found else ""
    missing = check.status != "ok"  # training would fail during the first step
    yield Check(check.name, "missing" if missing else "ok", check.detail + needed, check.fix)


def _swap_library() -> Check:
    command = [sys.executable, "-c", _SWAP_SCRIPT]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_SWAP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return Check("libaio", "note", f"unknown: importing DeepSpeed took more than {_SWAP_TIMEOUT_S} s")
    if result.returncode == 0:
        return Check("libaio", "ok", "links; DeepSpeed writes to disks with it")
    if result.returncode == 3:
        detail, fix = "not found, or no compiler", "install libaio and its headers (Debian: apt-get install libaio-dev)"
        return Check("libaio", "missing", f"{detail}; DeepSpeed writes to disks with it", f"{fix} on every node")
    lines = result.stderr.strip().splitlines() or ["no message"]
    return Check("libaio", "missing", f"DeepSpeed cannot be imported: {lines[-1]}", "pip install 'xmtc[train]'")


def check_hidden_states(config: RunConfig) -> Iterator[Check]:
    """Check the disk space for cached hidden states, from the prepared corpus or from its limits."""
    if not config.reads_tokens or not ((config.plants and config.plant.cache_hidden) or config.finetune.cache_hidden):
        return
    width, tokens = _encoder_width(config), _train_tokens(config)
    if width is None or tokens is None:
        yield Check("hidden states", "note", "cached on disk; their size is printed before they are written")
        return
    size = tokens * width * (2 if config.distributed.precision == "bf16" else 4)
    fits = size < free_bytes(RunPaths.of(config).corpus)
    fix = "" if fits else "free disk space, or set plant.cache_hidden=false finetune.cache_hidden=false"
    detail = f"cached on disk: about {size / GIB:,.2f} GiB ({tokens:,} tokens of train, width {width})"
    yield Check("hidden states", "ok" if fits else "missing", detail, fix)


def _train_tokens(config: RunConfig) -> int | None:
    """Count the train split's content tokens. Before preparation: an upper bound, or None without a limit."""
    corpus = RunPaths.of(config).corpus
    if (corpus / "manifest.json").is_file():
        return int(Corpus.open(corpus).split("train").lengths.sum())
    documents = config.data.limit.train
    return None if documents is None else documents * config.data.max_length


def _encoder_width(config: RunConfig) -> int | None:
    encoder = config.model.encoder.backbone
    if encoder is None:
        return None
    settings = encoder.from_config
    if settings is None:
        path = Path(resolve_pretrained(encoder.name)) / "config.json"
        with reading(path, ConfigError, "download the model again"):
            settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    width = settings.get("hidden_size")
    return width if isinstance(width, int) else None
