"""The interface by which long work reports its progress; `xmtc.track.progress.Progress` draws it."""

from types import TracebackType
from typing import Protocol


class ProgressTask(Protocol):
    """A piece of work whose units are counted as it runs."""

    def advance(self, amount: int = 1) -> None:
        """Count `amount` more units as done."""
        ...

    def __enter__(self) -> "ProgressTask":
        """Start the task."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the task, whether it is complete or not."""
        ...


class Progress(Protocol):
    """Makes tasks."""

    def task(self, description: str, total: int | None = None, unit: str = "documents") -> ProgressTask:
        """Start a piece of work of `total` units, None if unknown."""
        ...


class Silent:
    """A progress and a task that show nothing."""

    def task(self, description: str, total: int | None = None, unit: str = "documents") -> "Silent":
        """See `Progress`."""
        return self

    def advance(self, amount: int = 1) -> None:
        """See `ProgressTask`."""

    def __enter__(self) -> "Silent":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See `ProgressTask`."""
