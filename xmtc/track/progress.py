"""Progress of long work: a bar with ETA on a terminal and in Jupyter; in a log, and in a notebook without ipywidgets, a
plain line every few seconds and one at the end.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from typing_extensions import override

from xmtc.track.console import duration, print_line, shared_console

_INTERVAL_S = 10.0  # at least, between the lines of a task in a log


class ConsoleTask(AbstractContextManager["ConsoleTask"]):
    """One piece of work. Use it as a context manager, or call `close` at the end."""

    def __init__(
        self,
        owner: "Progress",
        description: str,
        total: int | None,
        unit: str,
        done: int,
        lines: bool,
    ):
        self.description = description
        self.total = total
        self.unit = unit
        self.first = done
        self.done = done
        self._owner = owner
        self._lines = lines and owner.enabled
        self._closed = False
        self.started_s = owner.clock()
        self.printed_s = self.started_s
        self.bar = (
            owner.bars.add_task(description, total=total, completed=done, unit=unit)
            if owner.bars
            else None
        )

    def advance(self, amount: int = 1) -> None:
        """Count `amount` more units as done."""
        self.reach(self.done + amount)

    def reach(self, done: int) -> None:
        """Say how many units are done by now."""
        self.done = done
        if self._owner.bars and self.bar is not None:
            self._owner.bars.update(self.bar, completed=done)
        elif self._owner.clock() - self.printed_s >= _INTERVAL_S:
            self._print()

    def _print(self, *, final: bool = False) -> None:
        now = self._owner.clock()
        self.printed_s = now
        if self._lines:
            print_line(
                progress_line(self, now - self.started_s, final=final),
                self._owner.console,
            )

    def close(self) -> None:
        """End the task, whether it is complete or not; in a log, print the closing line."""
        if self._closed:
            return
        self._closed = True
        if self._owner.bars and self.bar is not None:
            self._owner.bars.stop_task(self.bar)
        else:
            self._print(final=True)
        self._owner.closed()

    @override
    def __exit__(self, *error: object) -> None:
        self.close()


class Progress:
    """Makes tasks. Safe to create anywhere: nothing is drawn before the first task, nothing stays live after the last.

    Args:
        enabled: False on every rank but the first: the same calls, no output.
        console: where to draw; the shared console on stderr by default.
        clock: seconds, monotonic; for tests.
    """

    def __init__(
        self,
        *,
        enabled: bool = True,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.enabled = enabled
        self.clock = clock
        self.console = console or shared_console()
        self.bars: RichProgress | None = None
        self._open = 0

    def task(
        self,
        description: str,
        total: int | None = None,
        unit: str = "documents",
        *,
        done: int = 0,
        lines: bool = True,
    ) -> ConsoleTask:
        """Start a task.

        Args:
            description: the work in progress, such as `encode train`.
            total: how many units there are; None: unknown.
            unit: what is counted.
            done: units finished before, as after a resume.
            lines: False if other lines tell of the progress in a log, as the step lines of training do.
        """
        # bars need a terminal, or a notebook where there are widgets
        drawn = self.console.is_terminal or (
            self.console.is_jupyter and find_spec("ipywidgets") is not None
        )
        if self._open == 0 and self.enabled and drawn:
            self.bars = _bars(self.console)
            self.bars.start()
        self._open += 1
        return ConsoleTask(self, description, total, unit, done, lines)

    def closed(self) -> None:
        """Count an ended task; the last one also removes the live display."""
        self._open -= 1
        if self._open == 0 and self.bars:
            self.bars.stop()
            self.bars = None


def progress_line(task: ConsoleTask, elapsed_s: float, *, final: bool) -> str:
    """Write `prepare train: 1,200/45,000 documents (3 %), 350/s, ETA 2:05`, or with `final` the time taken."""
    rate = (task.done - task.first) / elapsed_s if elapsed_s > 0 else 0.0
    unit = task.unit.removesuffix("s") if task.done == 1 else task.unit
    count = f"{task.done:,} {unit}"
    if task.total is not None:
        count = f"{task.done:,}/{task.total:,} {task.unit} ({task.done / max(task.total, 1):.0%})"
    speed = f", {_rate_in_words(rate)}" if rate > 0 else ""
    if final:
        return f"{task.description}: {count} in {duration(elapsed_s)}{speed}"
    eta = ""
    if task.total is not None and rate > 0:
        eta = f", ETA {duration((task.total - task.done) / rate)}"
    return f"{task.description}: {count}{speed}{eta}"


def _rate_in_words(rate: float) -> str:
    """Format units a second: whole ones if they are many, two digits otherwise."""
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def _bars(console: Console) -> RichProgress:
    return RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}", markup=False),
        TaskProgressColumn(show_speed=True),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=console,
    )
