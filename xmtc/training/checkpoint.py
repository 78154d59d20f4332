"""Resumable checkpoints: each is complete or absent, and damage is detected.

All ranks write `step_00001000/` under a temporary name; then it is hashed, read back and renamed. Its `manifest.json`
holds the training loop's state, the size and SHA-256 of every file, and the world size. No random state is saved: the
loop seeds every generator with (seed, step), so the position determines all random numbers that follow.

The directory must be on storage that all ranks share, unless it has a remote copy. With a remote copy, each node may
have a local directory with the files of its ranks; the remote directory has all files.
"""

import json
import logging
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from xmtc.distributed.collectives import (
    all_gather_object,
    broadcast_object,
    is_leader,
    rank_and_world_size,
    run_collectively,
)
from xmtc.distributed.state_files import FIX
from xmtc.errors import CheckpointError, XmtcError
from xmtc.files import (
    TEMPORARY,
    file_sha256,
    flush,
    publish_directory,
    read_json,
    reading,
)
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
        path: the checkpoint's directory, with the files that `write` made.
        step: optimizer steps done.
        state: state of the loop.
        world_size: number of ranks that saved it.
    """

    path: Path
    step: int
    state: dict[str, Any]
    world_size: int


class _Copy:
    """The copy of one checkpoint to the remote directory, in a thread that does not outlive the process.

    Attributes:
        step: of the checkpoint.
        began: time of its beginning.
    """

    def __init__(self, step: int, began: float) -> None:
        self.step = step
        self.began = began
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def is_running(self) -> bool:
        """Whether the thread is still at work."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def has_failed(self) -> bool:
        """Whether it has ended with an error."""
        return self._failure is not None

    def start(self, push: Callable[[], None]) -> None:
        """Begin."""

        def work() -> None:
            try:
                push()
            except BaseException as error:  # raised again by `wait`
                self._failure = error

        self._thread = threading.Thread(
            target=work, daemon=True, name="copy checkpoint"
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait for the end; raise what went wrong."""
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise self._failure


class CheckpointStore:
    """Checkpoints of one run. Every method is collective.

    Args:
        directory: `runs/<name>/checkpoints`; created if absent.
        keep_last: number of checkpoints to keep.
        mirror: remote copy of the run directory or of a parent; a checkpoint is saved once its remote copy is complete.
    """

    def __init__(
        self, directory: Path, keep_last: int = 2, mirror: Mirror | None = None
    ) -> None:
        self._directory = directory
        self._keep_last = keep_last
        self._mirror = mirror or Mirror(directory, None)
        self._is_first = rank_and_world_size()[0] == 0
        self._copy: _Copy | None = None

    @cached_property
    def _is_leader(self) -> bool:
        """Whether this rank cleans up the directory. The first call is collective."""
        return (
            self._is_first
            if self._mirror.remote is None
            else is_leader(self._directory)
        )

    @cached_property
    def _leaders(self) -> int:
        """Number of directories, each of which has the files of its ranks. The first call is collective."""
        return sum(all_gather_object(self._is_leader))

    def save(
        self,
        step: int,
        state: dict[str, Any],
        write: Callable[[Path], None],
        bytes_needed: int = 0,
        *,
        copy_later: bool = False,
    ) -> Path:
        """Save a checkpoint. Earlier checkpoints stay until it is complete.

        Args:
            step: optimizer steps done.
            state: state that JSON can hold.
            write: writes this rank's files into the given directory. It may be collective; it must then raise OSError
                only after its last exchange.
            bytes_needed: estimate of what all ranks will write; compared with the free space beforehand.
            copy_later: whether to return while the copy to the remote directory runs in another thread. The caller
                then calls `finish_copy` once no rank `is_copying`, and at the end. Until then, the earlier checkpoints
                are the newest ones that are there.

        Raises:
            CheckpointError: it could not be written; raised on every rank, with free and needed bytes. Earlier
                checkpoints are unchanged.
            StorageError: it is saved here, but could not be copied to the remote directory.
        """
        json.dumps(
            state
        )  # on every rank, so that a state that JSON cannot hold fails on all of them
        temporary = self._directory / f"{_TEMPORARY}{step:08d}"
        final = self._directory / f"step_{step:08d}"

        def explain(failures: list[str]) -> XmtcError:
            return CheckpointError(self._explain(failures, bytes_needed))

        run_collectively(
            lambda: self._start(temporary, bytes_needed), explain, here=self._is_leader
        )
        try:
            run_collectively(lambda: write(temporary), explain)
            self._publish(temporary, final, {"step": step, "state": state}, explain)
        except CheckpointError:
            run_collectively(self._clean, explain, here=self._is_leader)
            raise
        if self._mirror.remote is None:
            self._prune(step, explain)
            return final
        self._finish_copy(
            saved_since=final
        )  # raises what went wrong with the one before, now that this one is safe here
        self._copy = _Copy(step, time.monotonic())
        alone = self._leaders == 1
        if self._is_leader:
            self._copy.start(lambda: self._push(final, complete=alone))
        if not copy_later:
            self.finish_copy()
        return final

    @property
    def is_copying(self) -> bool:
        """Whether this rank is still copying its files of the last checkpoint, or could not.

        A copy that failed counts, so that nobody finishes it, which raises, before the next checkpoint is safe here.
        """
        return self._copy is not None and (
            self._copy.is_running or self._copy.has_failed
        )

    @property
    def has_open_copy(self) -> bool:
        """Whether the copy of the last checkpoint has to be finished; the same on every rank."""
        return self._copy is not None

    def finish_copy(self) -> float | None:
        """Wait until the last checkpoint is complete in the remote directory, and remove what is superseded.

        Returns:
            Seconds since the copy began; None if there was nothing to copy.

        Raises:
            StorageError: it could not be copied; raised on every rank.
        """
        return self._finish_copy(saved_since=None)

    def _finish_copy(self, saved_since: Path | None) -> float | None:
        """See `finish_copy`; a checkpoint that has been saved since the copied one stays."""
        copy = self._copy
        if copy is None:
            return None
        self._copy = None
        final = self._directory / f"step_{copy.step:08d}"
        run_collectively(copy.wait, here=self._is_leader)
        if self._leaders > 1:
            run_collectively(lambda: self._push_rest(final), here=self._is_first)
        self._prune(
            copy.step,
            lambda failures: CheckpointError(self._explain(failures, 0)),
            saved_since,
        )
        return time.monotonic() - copy.began

    def clear(self) -> None:
        """Remove all checkpoints."""
        self._prune(-1, lambda failures: CheckpointError("; ".join(failures)))

    def latest(self) -> Checkpoint | None:
        """Find the newest checkpoint whose files all match its manifest. The result is the same on all ranks.

        Reads every byte of the checkpoint, on rank 0 and on one rank of every node with a separate directory. Logs the
        newer checkpoints that do not match.

        Raises:
            StorageError: the remote directory cannot be read, or lacks local files and cannot be written.
        """
        searched: list[Checkpoint | None] = []
        run_collectively(lambda: searched.append(self._search()), here=self._is_first)
        found = broadcast_object(searched[0] if searched else None)
        if found is None or self._mirror.remote is None:
            return found
        path = self._directory / found.path.name
        run_collectively(lambda: self._verified(path), here=self._is_leader)
        return replace(found, path=path)

    def fetch(self, path: Path) -> None:
        """Update a file next to the checkpoints, which rank 0 may have written on another node.

        Raises:
            StorageError: the remote directory cannot be read.
        """
        name = self._name(path)
        self._mirror.pull(self._name(path.parent), lambda other: other == name)

    def discard(self, path: Path) -> None:
        """Delete a file next to the checkpoints, which is of another start.

        Raises:
            StorageError: the remote file cannot be deleted.
        """
        run_collectively(
            lambda: self._mirror.remove(self._name(path)), here=self._is_first
        )
        run_collectively(lambda: path.unlink(missing_ok=True), here=self._is_leader)

    def _publish(
        self,
        temporary: Path,
        final: Path,
        content: dict[str, Any],
        explain: Callable[[list[str]], XmtcError],
    ) -> None:
        """Describe, verify and rename the files that all ranks have written."""
        own: dict[str, Any] = {}
        run_collectively(
            lambda: own.update(_describe(temporary)), explain, here=self._is_leader
        )
        files = {
            name: info for part in all_gather_object(own) for name, info in part.items()
        }
        manifest = {
            "format": _FORMAT,
            "world_size": rank_and_world_size()[1],
            **content,
            "files": files,
        }
        run_collectively(
            lambda: _finish(temporary, final, manifest, own),
            explain,
            here=self._is_leader,
        )

    def _push(self, final: Path, *, complete: bool) -> None:
        """Copy this node's files of a checkpoint to the remote directory, if `complete` with all that makes it one."""
        self._mirror.push(
            self._name(final), lambda name: not name.endswith(f"/{_MANIFEST}")
        )
        if complete:
            self._push_rest(final)

    def _push_rest(self, final: Path) -> None:
        """Copy the rest of the run directory, then the manifest."""
        self._mirror.push(choose=lambda name: not of_a_checkpoint(name))
        self._mirror.push(self._name(final))

    def _search(self) -> Checkpoint | None:
        self._clean()
        for path in reversed(self._saved()):
            try:
                return self._verified(path)
            except CheckpointError as error:
                logger.warning("skipping checkpoint %s: %s", path, error)
        return None

    def _verified(self, path: Path) -> Checkpoint:
        """Verify a checkpoint of this directory. If it is damaged or absent here, verify its remote copy instead."""
        try:
            found = verify(path)
        except CheckpointError:
            if path.name not in self._mirror.folders(self._name(path.parent)):
                raise
        else:
            if self._is_first:  # the process that saved it may have lost its connection to the remote storage
                self._mirror.push(self._name(path))
            return found
        shutil.rmtree(path, ignore_errors=True)
        self._mirror.pull(self._name(path))
        return verify(path)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._mirror.local).as_posix()

    def _saved(self) -> list[Path]:
        """List the checkpoint directories, local or remote, oldest first."""
        local = (
            [path.name for path in self._directory.iterdir()]
            if self._directory.is_dir()
            else []
        )
        names = {*local, *self._mirror.folders(self._name(self._directory))}
        return [
            self._directory / name
            for name in sorted(names)
            if re.fullmatch(r"step_\d{8,}", name)
        ]

    def _start(self, temporary: Path, bytes_needed: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._clean()
        free = shutil.disk_usage(self._directory).free
        if free < bytes_needed:
            raise OSError("the disk is too full")
        temporary.mkdir()

    def _clean(self) -> None:
        """Remove the files of an interrupted save."""
        for pattern in (f"{_TEMPORARY}*", f".step_*{TEMPORARY}"):
            for path in self._directory.glob(pattern):
                shutil.rmtree(path)

    def _prune(
        self,
        step: int,
        explain: Callable[[list[str]], XmtcError],
        saved_since: Path | None = None,
    ) -> None:
        """Keep the newest `keep_last` checkpoints up to `step`, and one that has been saved since.

        Other later ones are damaged: the run resumed before them.
        """
        surplus: list[Path] = []

        def prune_remote() -> None:
            saved = self._saved()
            past = [p for p in saved if int(p.name.removeprefix("step_")) <= step]
            kept = {*past[-self._keep_last :], saved_since}
            surplus.extend(path for path in saved if path not in kept)
            for path in surplus:
                self._mirror.remove(self._name(path))

        def prune_here() -> None:
            for path in (self._directory / name for name in names):
                if path.exists():  # another node or the remote directory may have checkpoints that are not here
                    shutil.rmtree(path)
            self._clean()

        run_collectively(prune_remote, here=self._is_first)
        names = broadcast_object([path.name for path in surplus])
        run_collectively(prune_here, explain, here=self._is_leader)

    def _explain(self, failures: list[str], bytes_needed: int) -> str:
        existing = next(
            p
            for p in (self._directory, *self._directory.absolute().parents)
            if p.is_dir()
        )
        free = shutil.disk_usage(existing).free
        return (
            f"checkpoint in {self._directory} could not be written ({'; '.join(failures)}): {free:,} bytes are free, "
            f"about {bytes_needed:,} are needed. Earlier checkpoints are untouched; free disk space and resume."
        )


def verify(path: Path) -> Checkpoint:
    """Read a checkpoint's manifest and every file it names.

    Raises:
        CheckpointError: the manifest is missing or unreadable, or a file is missing or differs in size or hash.
    """
    if not (path / _MANIFEST).exists():
        raise CheckpointError(f"{path} has no {_MANIFEST}")
    with reading(path / _MANIFEST, CheckpointError, FIX):
        manifest = read_json(path / _MANIFEST)
        if manifest["format"] != _FORMAT:
            raise CheckpointError(
                f"{path}: format {manifest['format']}, but this version reads format {_FORMAT}"
            )
        for name, expected in manifest["files"].items():
            _verify_file(path / name, expected["bytes"], expected["sha256"])
        step, world_size = manifest["step"], manifest["world_size"]
        if path.name != f"step_{step:08d}" or world_size < 1:
            raise CheckpointError(f"{path}: its manifest is of another checkpoint")
        return Checkpoint(path, step, dict(manifest["state"]), world_size)


def _verify_file(path: Path, size: int, sha256: str) -> None:
    with reading(path, CheckpointError, FIX):
        found = path.stat().st_size
        if found != size:
            raise CheckpointError(f"{path} has {found:,} bytes instead of {size:,}")
        if file_sha256(path) != sha256:
            raise CheckpointError(
                f"{path} is damaged: its SHA-256 differs from the manifest's"
            )


def _describe(temporary: Path) -> dict[str, Any]:
    """Compute size and hash of every file, by name."""
    names = sorted(
        p.relative_to(temporary).as_posix() for p in temporary.rglob("*") if p.is_file()
    )
    for name in names:
        flush(temporary / name)
    return {
        n: {
            "bytes": (temporary / n).stat().st_size,
            "sha256": file_sha256(temporary / n),
        }
        for n in names
    }


def _finish(
    temporary: Path, final: Path, manifest: dict[str, Any], own: dict[str, Any]
) -> None:
    """Read back this node's files (`own`), then publish them with the manifest of all files."""
    (temporary / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    flush(temporary / _MANIFEST)
    flush(temporary)
    for name, expected in own.items():
        _verify_file(temporary / name, expected["bytes"], expected["sha256"])
    # This may replace a damaged checkpoint, or one beyond the step that this run resumed at.
    publish_directory(temporary, final)
