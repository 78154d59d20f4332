"""run.json: how a run was started, and which stages are done. Resuming and `xmtc status` read it."""

import dataclasses
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from pydantic import AfterValidator, TypeAdapter
from typing_extensions import override

from xmtc.config import yaml_tree
from xmtc.config.plain import changed_settings, config_hash, redacted, to_plain
from xmtc.errors import ConfigError, DataError, StorageError, XmtcError
from xmtc.files import (
    open_lock,
    read_file,
    reading,
    take_lock,
    write_json,
    write_text,
    writing,
)
from xmtc.run.directory import RunDirectory, Stage
from xmtc.track.console import printable

_LOCK_FILE = ".lock"
_LONGEST_HOLDER = 300
"""Characters that say who holds the lock."""
_FORMAT = 1
_MAX_SHOWN_CHANGES = 8

MAY_CHANGE = ("track", "distributed", "evaluate", "storage")
"""Sections of the configuration that may differ from those of the run that is continued."""

State = Literal["pending", "running", "done", "failed"]
Resume = Literal["auto", "never", "must"]


@dataclass(frozen=True, kw_only=True)
class GitState:
    """The commit of the checkout that this package is imported from."""

    commit: str
    dirty: bool


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _checked_time(text: str) -> str:
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("a time without a zone")
    return text


Time = Annotated[str, AfterValidator(_checked_time)]
"""A time in ISO 8601, with its zone."""


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """How far a stage is. Times are UTC, ISO 8601."""

    state: State = "pending"
    fingerprint: str | None = None
    started_at: Time | None = None
    finished_at: Time | None = None
    error: str | None = None

    @property
    def seconds(self) -> float | None:
        """How long the stage took, once it ended."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (
            datetime.fromisoformat(self.finished_at)
            - datetime.fromisoformat(self.started_at)
        ).total_seconds()


@dataclass(frozen=True, kw_only=True)
class Session:
    """One start of the run: the first, or a resume."""

    started_at: Time
    command: list[str]
    world_size: int


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The contents of run.json."""

    format: int = _FORMAT
    config_hash: str
    created_at: Time
    updated_at: Time
    seeds: dict[str, int] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    git: GitState | None = None
    sessions: list[Session] = field(default_factory=list)
    stages: dict[str, StageRecord] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether every stage is done."""
        return bool(self.stages) and all(
            stage.state == "done" for stage in self.stages.values()
        )


def read_run(directory: Path) -> RunRecord | None:
    """Read the record of a run directory; None if there is none.

    Raises:
        ConfigError: run.json is damaged or of another format.
    """
    path = RunDirectory(directory).record
    if not os.path.lexists(path):
        return None
    with reading(path, ConfigError, f"move {directory} away to start again"):
        record = TypeAdapter(RunRecord).validate_json(read_file(path))
    if record.format != _FORMAT:
        raise ConfigError(
            f"{path}: format {record.format}, this version reads {_FORMAT}; use the one that wrote it"
        )
    return record


def check_unchanged(directory: Path, name: str, place: Path, now: str) -> None:
    """Make sure that something which a run reads is what it began with.

    Args:
        directory: the run directory; without a record there is nothing to compare with.
        name: see `RunState.set_fingerprint`.
        place: where it is, for the message.
        now: its fingerprint now.

    Raises:
        DataError: it has been replaced.
    """
    record = read_run(directory)
    if record is not None and record.fingerprints.get(name, now) != now:
        raise DataError(
            f"{place}: no longer the {name} of the run {directory}; restore it ('xmtc train' with the run's "
            "config.yaml makes its corpus and ranking), or start another run"
        )


class RunState(AbstractContextManager["RunState"]):
    """run.json of one run, held open by the process that drives the run: records which stages are done.

    Example:
        >>> with RunState.open(run_dir, config, resume="auto", stages=("mig", "plant")) as run:
        ...     if not run.is_done("mig", fingerprint):
        ...         with run.stage("mig", fingerprint):
        ...             ...
    """

    def __init__(self, directory: Path, record: RunRecord, lock: IO[str]):
        self.directory, self.record, self._lock = directory, record, lock

    @staticmethod
    def open(
        directory: Path,
        config: Any,
        *,
        resume: Resume = "auto",
        stages: Sequence[str] = (),
        seeds: Mapping[str, int] | None = None,
        world_size: int = 1,
    ) -> "RunState":
        """Begin a run in `directory`, or continue the existing one.

        Args:
            directory: the run directory; created if it does not exist.
            config: the resolved configuration.
            resume: `never` refuses a directory that holds a run, `must` one that does not.
            stages: names of all stages in order, so that run.json lists the pending ones.
            seeds: seeds by what they seed.
            world_size: number of ranks.

        Raises:
            ConfigError: `resume` does not allow it, the existing run has another configuration, another process
                is at work in the directory, or nothing can be written there.
        """
        check_resume(directory, config, resume)  # refuses before a directory is made
        lock = _lock(directory)
        try:
            old = check_resume(
                directory, config, resume
            )  # what the last holder of the lock left
        except ConfigError:
            lock.close()
            raise
        now = _now()
        session = Session(
            started_at=now, command=redacted(list(sys.argv)), world_size=world_size
        )
        record = RunRecord(
            config_hash=config_hash(config),
            created_at=old.created_at if old else now,
            updated_at=now,
            seeds=dict(seeds or {}),
            fingerprints=old.fingerprints if old else {},
            versions=versions(),
            git=git_state(),
            sessions=[*(old.sessions if old else []), session],
            stages={
                **{name: StageRecord() for name in stages},
                **(old.stages if old else {}),
            },
        )
        write_text(
            RunDirectory(directory).config, yaml_tree.dump(redacted(to_plain(config)))
        )
        state = RunState(directory, record, lock)
        state._write()
        return state

    def is_done(self, stage: str, fingerprint: str) -> bool:
        """Whether the stage finished with this fingerprint, so that it may be skipped."""
        record = self.record.stages.get(stage)
        return (
            record is not None
            and record.state == "done"
            and record.fingerprint == fingerprint
        )

    @contextmanager
    def stage(self, name: str, fingerprint: str) -> Iterator[None]:
        """Wrap the work of a stage: it is running inside the context, then done, or failed if it raises."""
        record = StageRecord(
            fingerprint=fingerprint, state="running", started_at=_now()
        )
        self.set_stage(name, record)
        try:
            yield
        except BaseException as error:
            failed = dataclasses.replace(
                record, state="failed", finished_at=_now(), error=_error_message(error)
            )
            self.set_stage(name, failed)
            raise
        self.set_stage(
            name, dataclasses.replace(record, state="done", finished_at=_now())
        )

    def set_stage(self, name: str, record: StageRecord) -> None:
        """Write down how far a stage is."""
        self._update(stages={**self.record.stages, name: record})

    def set_fingerprint(self, name: str, fingerprint: str) -> None:
        """Write down the identity of something the run read or made, such as its corpus."""
        self._update(fingerprints={**self.record.fingerprints, name: fingerprint})

    def _update(self, **changes: Any) -> None:
        self.record = dataclasses.replace(self.record, updated_at=_now(), **changes)
        self._write()

    def _write(self) -> None:
        lock = self.directory / _LOCK_FILE
        if not lock.exists() or not os.path.samestat(
            lock.stat(), os.fstat(self._lock.fileno())
        ):
            raise StorageError(
                f"{self.directory}: removed or replaced while this run worked in it; start it again"
            )
        plain = TypeAdapter(RunRecord).dump_python(self.record, mode="json")
        write_json(RunDirectory(self.directory).record, plain, indent=2)

    def close(self) -> None:
        """Release the lock: another process may work in the directory."""
        self._lock.close()

    @override
    def __exit__(self, *error: object) -> None:
        self.close()


def _error_message(error: BaseException) -> str:
    """Return the message of an XmtcError, and the type of any other error, whose message may quote document text."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return (
        redacted(f"{type(error).__name__}: {error}")
        if isinstance(error, XmtcError)
        else type(error).__name__
    )


def check_resume(directory: Path, config: Any, resume: Resume) -> RunRecord | None:
    """Find the existing run that may continue with this configuration; None if there is none.

    Args:
        directory: the run directory.
        config: the resolved configuration; an earlier start with another one that trained nothing counts as no run.
        resume: see `RunState.open`.

    Raises:
        ConfigError: `resume` does not allow it, or the existing run has another configuration.
    """
    old = read_run(directory)
    if old is None:
        if resume == "must":
            raise ConfigError(
                f"track.resume: must: {directory} holds no run; add track.resume=auto to start one"
            )
        return None
    if resume == "never":
        raise ConfigError(
            f"track.resume: never: {directory} holds a run already; add name=OTHER, or track.resume=auto"
        )
    before = yaml_tree.read(RunDirectory(directory).config, []).plain()
    after = redacted(to_plain(config))
    for section in MAY_CHANGE:
        before.pop(section, None)
        after.pop(section, None)
    changes = list(changed_settings(before, after))
    if changes and resume == "auto" and not has_results(directory, old):
        return None  # it trained nothing
    if changes:
        shown = "\n".join(f"  {change}" for change in changes[:_MAX_SHOWN_CHANGES])
        more = (
            f"\n  and {len(changes) - _MAX_SHOWN_CHANGES} more"
            if len(changes) > _MAX_SHOWN_CHANGES
            else ""
        )
        is_of_data = any(change.startswith("data.") for change in changes)
        corpus = " data.corpus=OTHER" if is_of_data else ""
        raise ConfigError(
            f"{directory}: holds a run of another configuration; add name=OTHER{corpus} to start another run, or move "
            "it away:"
            f"\n{shown}{more}"
        )
    return old


def has_results(directory: Path, record: RunRecord) -> bool:
    """Whether anything was trained: a stage after those that read the corpus is done, or left a checkpoint or model."""
    files, reading = RunDirectory(directory), (Stage.PREPARE, Stage.MIG)
    done = any(
        stage.state == "done"
        for name, stage in record.stages.items()
        if name not in reading
    )
    made = (
        files.model,
        files.scorers,
        files.planted,
        *map(files.checkpoints_of, (Stage.PLANT, Stage.FINETUNE)),
    )
    return done or any(
        path.is_file() or (path.is_dir() and any(path.iterdir())) for path in made
    )


def check_free(directory: Path) -> None:
    """Refuse a run directory that another process writes, from its lock alone.

    Raises:
        ConfigError: one does; says which.
    """
    writer = writer_of(directory)
    if writer is not None:
        raise _written_elsewhere(directory, writer)


def writer_of(directory: Path) -> str | None:
    """Say which process writes a run, such as `process 5 on host`; None if none does."""
    path = directory / _LOCK_FILE
    if not path.exists():
        return None
    with reading(path), path.open(encoding="utf-8") as file:
        return None if take_lock(file, alone=False) else _holder(file)


def _lock(directory: Path) -> IO[str]:
    """Take a lock that ends with the process, so that a killed run blocks nothing, and write down who holds it."""
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        file = open_lock(directory / _LOCK_FILE)
    if not take_lock(file, alone=True):
        error = _written_elsewhere(directory, _holder(file))
        file.close()
        raise error
    with writing(directory):
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
    return file


def _holder(lock: IO[str]) -> str:
    """Read who holds the lock of a run."""
    lock.seek(0)
    return printable(lock.read(_LONGEST_HOLDER)) or "another process"


def _written_elsewhere(directory: Path, writer: str) -> ConfigError:
    return ConfigError(
        f"{directory}: {writer} writes this run; wait for it (xmtc status {directory} says how far it is), or add "
        "name=OTHER to start another run"
    )


def versions() -> dict[str, str]:
    """List the versions of Python and of the packages that this one may need, if installed."""
    found = {
        "python": platform.python_version(),
        "xmtc": importlib.metadata.version("xmtc"),
    }
    needed = [
        one
        for one in importlib.metadata.requires("xmtc") or ()
        if 'extra == "dev"' not in one
    ]
    for package in (name for one in needed for name in re.findall(r"^[\w-]+", one)):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def git_state() -> GitState | None:
    """Read the state of the checkout this package runs from; None if it is installed, or git is absent."""
    package = Path(__file__).parents[1]
    known = shutil.which("git") is not None and _git(package, "ls-files", "errors.py")
    if not (commit := known and _git(package, "rev-parse", "HEAD")):
        return None
    return GitState(
        commit=commit,
        dirty=bool(_git(package, "status", "--porcelain", "--untracked-files=no")),
    )


def _git(folder: Path, *arguments: str) -> str:
    result = subprocess.run(
        ["git", "--no-optional-locks", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return result.stdout.strip() if result.returncode == 0 else ""
