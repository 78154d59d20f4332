"""Resumable checkpoints that are whole or absent, and say when they are damaged.

`step_00001000/` is written under a temporary name by all ranks, hashed, read back and renamed. Its `manifest.json`
holds the training loop's state, the size and SHA-256 of every file, and the world size. No random state is saved: the
loop draws every random number from a generator seeded by (seed, step), so that position alone determines what follows.
The directory must be on storage that all ranks share.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmtc.distributed.collectives import all_gather_object, broadcast_object, rank_and_world_size
from xmtc.errors import CheckpointError

logger = logging.getLogger(__name__)

_FORMAT = 1
_MANIFEST = "manifest.json"
_TEMPORARY = ".writing_"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint.

    Attributes:
        path: its directory, with the files that `write` made.
        step: optimizer steps done.
        state: what the loop saved.
        world_size: ranks that saved it.
    """

    path: Path
    step: int
    state: dict[str, Any]
    world_size: int


@dataclass(frozen=True)
class Latest:
    """The newest checkpoint that verifies, if any, and which newer ones do not: (directory, reason)."""

    checkpoint: Checkpoint | None
    skipped: tuple[tuple[Path, str], ...]


class CheckpointStore:
    """Checkpoints of one run. Every method is collective.

    Args:
        directory: `runs/<name>/checkpoints`; made when absent.
        keep_last: how many checkpoints stay.
    """

    def __init__(self, directory: Path, keep_last: int = 2) -> None:
        self._directory = directory
        self._keep_last = keep_last

    def save(self, step: int, state: dict[str, Any], write: Callable[[Path], None], bytes_needed: int = 0) -> Path:
        """Save a checkpoint; the earlier ones stay until it is whole.

        Args:
            step: optimizer steps done.
            state: what JSON can hold.
            write: writes this rank's files into the directory it is given; may be collective, and must then raise
                OSError only after its last exchange.
            bytes_needed: about what all ranks will write; checked against the free space beforehand.

        Raises:
            CheckpointError: it could not be written, on every rank; names free and needed bytes. What was there
                before is as it was.
        """
        json.dumps(state)  # on every rank, so that what JSON cannot hold fails on all of them
        temporary = self._directory / f"{_TEMPORARY}{step:08d}"
        final = self._directory / f"step_{step:08d}"
        self._together(lambda: self._start(temporary, bytes_needed), bytes_needed, only_first=True)
        try:
            self._together(lambda: write(temporary), bytes_needed)
            self._together(lambda: _publish(temporary, final, step, state), bytes_needed, only_first=True)
        except CheckpointError:
            self._together(self._clean, bytes_needed, only_first=True)
            raise
        self._together(lambda: self._prune(step), bytes_needed, only_first=True)
        return final

    def latest(self) -> Latest:
        """The newest checkpoint whose files all have the size and hash that its manifest says; the same on all ranks.

        Reads every byte of the checkpoint, on rank 0.
        """
        rank, _ = rank_and_world_size()
        found = broadcast_object(self._search() if rank == 0 else None)
        assert found is not None  # rank 0 searched
        for path, reason in found.skipped if rank == 0 else ():
            logger.warning("checkpoint %s is skipped: %s", path, reason)
        return found

    def _search(self) -> Latest:
        self._clean()
        skipped = []
        for path in reversed(self._saved()):
            try:
                return Latest(verify(path), tuple(skipped))
            except CheckpointError as error:
                skipped.append((path, str(error)))
        return Latest(None, tuple(skipped))

    def _saved(self) -> list[Path]:
        """Checkpoint directories, oldest first."""
        if not self._directory.is_dir():
            return []
        return sorted(p for p in self._directory.iterdir() if re.fullmatch(r"step_\d{8,}", p.name))

    def _start(self, temporary: Path, bytes_needed: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._clean()
        free = shutil.disk_usage(self._directory).free
        if free < bytes_needed:
            raise OSError("the disk is too full")
        temporary.mkdir()

    def _clean(self) -> None:
        """Remove what an interrupted save left behind."""
        for path in self._directory.glob(f"{_TEMPORARY}*"):
            shutil.rmtree(path)

    def _prune(self, step: int) -> None:
        """Keep the newest `keep_last` up to `step`; later ones are damaged, or the run would be beyond `step`."""
        saved = self._saved()
        past = [p for p in saved if _step_of(p) <= step]
        keep = set(past[-self._keep_last :])
        for path in saved:
            if path not in keep:
                shutil.rmtree(path)
        self._clean()

    def _together(self, action: Callable[[], None], bytes_needed: int, *, only_first: bool = False) -> None:
        """Run `action` on every rank (or on rank 0), then raise on all ranks what went wrong on any."""
        rank, _ = rank_and_world_size()
        failure: str | None = None
        if rank == 0 or not only_first:
            try:
                action()
            except (OSError, CheckpointError) as error:
                failure = f"rank {rank}: {error}"
        failures = [f for f in all_gather_object(failure) if f]
        if failures:
            # One rank's words: free space changes while they look.
            raise CheckpointError(broadcast_object(self._explain(failures, bytes_needed)))

    def _explain(self, failures: list[str], bytes_needed: int) -> str:
        existing = next(p for p in (self._directory, *self._directory.absolute().parents) if p.is_dir())
        free = shutil.disk_usage(existing).free
        return (
            f"checkpoint in {self._directory} could not be written ({'; '.join(failures)}): {free:,} bytes are free, "
            f"about {bytes_needed:,} are needed. Earlier checkpoints are untouched; make room and resume."
        )


def verify(path: Path) -> Checkpoint:
    """Read a checkpoint's manifest and every file it names.

    Raises:
        CheckpointError: manifest missing or unreadable, a file missing, of another size or another hash.
    """
    try:
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
        files, step, state, world_size = (manifest[key] for key in ("files", "step", "state", "world_size"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} has no {_MANIFEST}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path / _MANIFEST} cannot be read: {error}") from error
    if manifest.get("format") != _FORMAT:
        raise CheckpointError(f"{path}: format {manifest.get('format')}, but this version reads format {_FORMAT}")
    for name, expected in files.items():
        _verify_file(path / name, expected)
    return Checkpoint(path, step, state, world_size)


def _verify_file(path: Path, expected: dict[str, Any]) -> None:
    try:
        size = path.stat().st_size
        if size != expected["bytes"]:
            raise CheckpointError(f"{path} has {size:,} bytes instead of {expected['bytes']:,}")
        if _sha256(path) != expected["sha256"]:
            raise CheckpointError(f"{path} is damaged: its SHA-256 is not the manifest's")
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _publish(temporary: Path, final: Path, step: int, state: dict[str, Any]) -> None:
    """Describe, verify and rename what all ranks have written."""
    names = sorted(p.relative_to(temporary).as_posix() for p in temporary.rglob("*") if p.is_file())
    for name in names:
        _sync(temporary / name)
    manifest = {
        "format": _FORMAT,
        "step": step,
        "world_size": rank_and_world_size()[1],
        "state": state,
        "files": {n: {"bytes": (temporary / n).stat().st_size, "sha256": _sha256(temporary / n)} for n in names},
    }
    (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    _sync(temporary / _MANIFEST)
    _sync(temporary)
    verify(temporary)
    if final.exists():  # damaged, or saved by a run that this one resumed behind
        final.rename(temporary.with_name(f"{_TEMPORARY}old_{step:08d}"))
    temporary.rename(final)
    _sync(final.parent)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step_"))
