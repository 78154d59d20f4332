"""Resumable checkpoints that are whole or absent, and say when they are damaged.

`step_00001000/` is written under a temporary name by all ranks, hashed, read back and renamed. Its `manifest.json`
holds the training loop's state, the size and SHA-256 of every file, and the world size. No random state is saved: the
loop draws every random number from a generator seeded by (seed, step), so that position alone determines what follows.
The directory must be on storage that all ranks share, unless it has a remote double: then every node may have its own,
with what its ranks wrote, and the remote side has all of it.
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from xmtc.distributed.collectives import all_gather_object, broadcast_object, leads, rank_and_world_size
from xmtc.distributed.state import FIX
from xmtc.errors import CheckpointError, StorageError, XmtcError
from xmtc.files import TEMPORARY, file_sha256, publish_directory, read_json, reading
from xmtc.storage.mirror import Mirror
from xmtc.training.layout import of_a_checkpoint

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
        mirror: of the run directory or one above it; a checkpoint counts as saved when its remote double is whole.
    """

    def __init__(self, directory: Path, keep_last: int = 2, mirror: Mirror | None = None) -> None:
        self._directory = directory
        self._keep_last = keep_last
        self._mirror = mirror or Mirror(directory, None)
        self._is_first = rank_and_world_size()[0] == 0

    @cached_property
    def _leads(self) -> bool:
        """Whether this rank keeps the directory in order. Collective at first."""
        return self._is_first if self._mirror.remote is None else leads(self._directory)

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
            StorageError: it is saved here, but could not be copied to the remote side.
        """
        json.dumps(state)  # on every rank, so that what JSON cannot hold fails on all of them
        temporary = self._directory / f"{_TEMPORARY}{step:08d}"
        final = self._directory / f"step_{step:08d}"

        def explain(failures: list[str]) -> XmtcError:
            return CheckpointError(self._explain(failures, bytes_needed))

        together(lambda: self._start(temporary, bytes_needed), explain, here=self._leads)
        try:
            together(lambda: write(temporary), explain)
            self._publish(temporary, final, {"step": step, "state": state}, explain)
        except CheckpointError:
            together(self._clean, explain, here=self._leads)
            raise
        self._push(final)
        self._prune(step, explain)
        return final

    def latest(self) -> Latest:
        """The newest checkpoint whose files all have the size and hash that its manifest says; the same on all ranks.

        Reads every byte of the checkpoint, on rank 0 and on one rank of every node that has a directory of its own.

        Raises:
            StorageError: the remote side cannot be read, or lacks what is here and cannot be written.
        """
        searched = []
        together(lambda: searched.append(self._search()), here=self._is_first)
        found = broadcast_object(searched[0] if searched else None)
        assert found is not None  # rank 0 searched
        for path, reason in found.skipped if self._is_first else ():
            logger.warning("checkpoint %s is skipped: %s", path, reason)
        if found.checkpoint is None or self._mirror.remote is None:
            return found
        path = self._directory / found.checkpoint.path.name
        together(lambda: self._verified(path), here=self._leads)
        return replace(found, checkpoint=replace(found.checkpoint, path=path))

    def _publish(
        self, temporary: Path, final: Path, content: dict[str, Any], explain: Callable[[list[str]], XmtcError]
    ) -> None:
        """Describe, verify and rename what all ranks have written."""
        own: dict[str, Any] = {}
        together(lambda: own.update(_describe(temporary)), explain, here=self._leads)
        files = {name: info for part in all_gather_object(own) for name, info in part.items()}
        manifest = {"format": _FORMAT, "world_size": rank_and_world_size()[1], **content, "files": files}
        together(lambda: _finish(temporary, final, manifest, own), explain, here=self._leads)

    def _push(self, final: Path) -> None:
        """Every node's files first, then all else that changed in the run directory, then the manifest."""
        if self._mirror.remote is None:
            return

        def push_payload() -> None:
            self._mirror.push(self._name(final), lambda name: not name.endswith(f"/{_MANIFEST}"))

        def push_rest() -> None:
            self._mirror.push(choose=lambda name: not of_a_checkpoint(name))
            self._mirror.push(self._name(final))

        together(push_payload, here=self._leads)
        together(push_rest, here=self._is_first)

    def _search(self) -> Latest:
        self._clean()
        skipped = []
        for path in reversed(self._saved()):
            try:
                return Latest(self._verified(path), tuple(skipped))
            except CheckpointError as error:
                skipped.append((path, str(error)))
        return Latest(None, tuple(skipped))

    def _verified(self, path: Path) -> Checkpoint:
        """A checkpoint of this directory; its remote double, where it is damaged here or only there."""
        try:
            found = verify(path)
        except CheckpointError:
            if path.name not in self._mirror.folders(self._name(path.parent)):
                raise
        else:
            if self._is_first:  # the attempt that saved it may have lost the server
                self._mirror.push(self._name(path))
            return found
        shutil.rmtree(path, ignore_errors=True)
        self._mirror.pull(self._name(path))
        return verify(path)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._mirror.local).as_posix()

    def _saved(self) -> list[Path]:
        """Checkpoint directories, here or remote, oldest first."""
        local = [path.name for path in self._directory.iterdir()] if self._directory.is_dir() else []
        names = {*local, *self._mirror.folders(self._name(self._directory))}
        return [self._directory / name for name in sorted(names) if re.fullmatch(r"step_\d{8,}", name)]

    def _start(self, temporary: Path, bytes_needed: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._clean()
        free = shutil.disk_usage(self._directory).free
        if free < bytes_needed:
            raise OSError("the disk is too full")
        temporary.mkdir()

    def _clean(self) -> None:
        """Remove what an interrupted save left behind."""
        for pattern in (f"{_TEMPORARY}*", f".step_*{TEMPORARY}"):
            for path in self._directory.glob(pattern):
                shutil.rmtree(path)

    def _prune(self, step: int, explain: Callable[[list[str]], XmtcError]) -> None:
        """Keep the newest `keep_last` up to `step`; later ones are damaged, or the run would be beyond `step`."""
        surplus: list[Path] = []

        def prune_remote() -> None:
            saved = self._saved()
            past = [p for p in saved if _step_of(p) <= step]
            surplus.extend(p for p in saved if p not in past[-self._keep_last :])
            for path in surplus:
                self._mirror.remove(self._name(path))

        def prune_here() -> None:
            for path in (self._directory / name for name in names):
                if path.exists():  # another node, or the remote side, may have some that are not here
                    shutil.rmtree(path)
            self._clean()

        together(prune_remote, here=self._is_first)
        names = broadcast_object([path.name for path in surplus])
        together(prune_here, explain, here=self._leads)

    def _explain(self, failures: list[str], bytes_needed: int) -> str:
        existing = next(p for p in (self._directory, *self._directory.absolute().parents) if p.is_dir())
        free = shutil.disk_usage(existing).free
        return (
            f"checkpoint in {self._directory} could not be written ({'; '.join(failures)}): {free:,} bytes are free, "
            f"about {bytes_needed:,} are needed. Earlier checkpoints are untouched; make room and resume."
        )


def _not_exchanged(failures: list[str]) -> XmtcError:
    return StorageError("; ".join(failures))


def together(
    action: Callable[[], object],
    explain: Callable[[list[str]], XmtcError] = _not_exchanged,
    *,
    here: bool = True,
) -> None:
    """Run `action` on every rank where `here` is True, then raise on all ranks what went wrong on any. Collective."""
    rank, _ = rank_and_world_size()
    failure: str | None = None
    if here:
        try:
            action()
        except (OSError, CheckpointError, StorageError) as error:
            failure = f"rank {rank}: {error}"
    failures = [f for f in all_gather_object(failure) if f]
    if failures:
        raise broadcast_object(explain(failures))  # one rank's words: free space changes while they look


def verify(path: Path) -> Checkpoint:
    """Read a checkpoint's manifest and every file it names.

    Raises:
        CheckpointError: manifest missing or unreadable, a file missing, of another size or another hash.
    """
    if not (path / _MANIFEST).exists():
        raise CheckpointError(f"{path} has no {_MANIFEST}")
    with reading(path / _MANIFEST, CheckpointError, FIX):
        manifest = read_json(path / _MANIFEST)
        if manifest["format"] != _FORMAT:
            raise CheckpointError(f"{path}: format {manifest['format']}, but this version reads format {_FORMAT}")
        for name, expected in manifest["files"].items():
            _verify_file(path / name, expected["bytes"], expected["sha256"])
        return Checkpoint(path, int(manifest["step"]), dict(manifest["state"]), int(manifest["world_size"]))


def _verify_file(path: Path, size: int, sha256: str) -> None:
    with reading(path, CheckpointError, FIX):
        found = path.stat().st_size
        if found != size:
            raise CheckpointError(f"{path} has {found:,} bytes instead of {size:,}")
        if file_sha256(path) != sha256:
            raise CheckpointError(f"{path} is damaged: its SHA-256 is not the manifest's")


def _describe(temporary: Path) -> dict[str, Any]:
    """Size and hash of every file, by its name."""
    names = sorted(p.relative_to(temporary).as_posix() for p in temporary.rglob("*") if p.is_file())
    for name in names:
        _sync(temporary / name)
    return {n: {"bytes": (temporary / n).stat().st_size, "sha256": file_sha256(temporary / n)} for n in names}


def _finish(temporary: Path, final: Path, manifest: dict[str, Any], own: dict[str, Any]) -> None:
    """Read back the files that are here, `own`, and publish them with the manifest of all."""
    (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    _sync(temporary / _MANIFEST)
    _sync(temporary)
    for name, expected in own.items():
        _verify_file(temporary / name, expected["bytes"], expected["sha256"])
    publish_directory(temporary, final)  # over one that is damaged, or that a run saved beyond where this one resumed


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step_"))
