"""One bad input at one entry point, and how it ends."""

import contextlib
import importlib
import io
import multiprocessing
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

from xmtc.cli import main as command_line
from xmtc.data.parallel import end_with
from xmtc.errors import XmtcError

LIMIT_S = 60
NOTES = ("warning", "bad rows in _rejected.parquet")
"""Words that say what was left out."""
MEMORY = 8 << 30  # bytes of address space of a case
OUTCOMES = ("answered", "accepted", "silent", "traceback", "hung", "crashed")
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Site:
    """What cases are made from: a finished run, its configuration and corpus, and a folder for bad things."""

    run: Path
    config: Path
    corpus: Path
    folder: Path

    @property
    def model(self) -> Path:
        """The exported model."""
        return self.run / "model"


@dataclass(frozen=True)
class Case:
    """One bad input at one entry point.

    Attributes:
        kind: class of the input.
        entry: the command or method.
        name: what is special about it.
        do: prepares it in a folder and runs it; returns the exit status and what was said.
        refuse: False where the input may be read after all.
    """

    kind: str
    entry: str
    name: str
    do: Callable[[Path], tuple[int, str]]
    refuse: bool = True


class ReadWronglyError(Exception):
    """A command ended well, with results that it would not have from sound input."""


class _Hung(BaseException):
    pass


@dataclass
class _Watched(contextlib.AbstractContextManager["_Watched"]):
    """Notes what ends the work within, under an alarm, and lets the tool continue."""

    error: BaseException | None = None

    def __enter__(self) -> "_Watched":
        self._before = signal.signal(signal.SIGALRM, self._ring)
        signal.alarm(LIMIT_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self._before)
        self.error = error
        return not isinstance(error, KeyboardInterrupt)

    def _ring(self, *_: Any) -> None:
        raise _Hung


def run_case(case: Case, folder: Path) -> tuple[str, str]:
    """How a case ends, and what was said."""
    folder.mkdir(parents=True)
    code, said = 0, ""
    with _Watched() as watched:
        code, said = case.do(folder)
    error = watched.error
    if isinstance(error, XmtcError):
        return "answered", str(error)
    if isinstance(error, ReadWronglyError):
        return "silent", str(error)
    if error is not None:
        lines = traceback.format_exception(error)
        return ("hung" if isinstance(error, _Hung) else "traceback"), "".join(lines)
    if code:
        return (
            "answered" if said.strip() and "Traceback" not in said else "silent"
        ), said
    return (
        "accepted"
        if not case.refuse or any(word in said for word in NOTES)
        else "silent"
    ), said


def in_child(
    work: Callable[..., Any], *arguments: object, limit_s: float = 2 * LIMIT_S
) -> tuple[Any, int | None]:
    """What a function returns in a fork of this process, and None; or None and the exit status of a lost fork.

    The fork has all imports of this process, so a case takes a fraction of a second. It may crash, hang or eat memory.
    """
    ours, theirs = _FORK.Pipe(duplex=False)
    child = _FORK.Process(target=_send, args=(os.getpid(), theirs, work, *arguments))
    child.start()
    theirs.close()
    try:
        answered = ours.poll(limit_s)
        found = ours.recv() if answered else None
    except EOFError:
        answered, found = False, None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid or 0, signal.SIGKILL)
    child.join()
    return found, None if answered else child.exitcode


def _send(
    parent: int, pipe: Connection, work: Callable[..., Any], *arguments: object
) -> None:
    os.setsid()
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    pipe.send(work(*arguments))
    signal.pause()  # until the parent ends the whole group


def run_apart(case: Case, folder: Path) -> tuple[str, str]:
    """How a case ends in a fork of this process, and what was said."""
    found, status = in_child(run_case, case, folder)
    if found is not None:
        return found
    hung = status == -signal.SIGKILL
    return ("hung", "") if hung else ("crashed", f"exit status {status}")


def import_all(modules: list[str]) -> None:
    """Import what commands import while they run, so that forks need not."""
    for module in modules:
        with contextlib.suppress(ImportError, AttributeError):
            importlib.import_module(module)


def command(*arguments: object) -> tuple[int, str]:
    """Run a command in this process: exit status and what it said on stderr."""
    code, _, said = spoken(*arguments)
    return code, said


def spoken(*arguments: object) -> tuple[int, str, str]:
    """Run a command in this process: exit status, results, and what it said on stderr."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["xmtc", *map(str, arguments)]
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command_line()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()
