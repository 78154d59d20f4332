"""The interface by which long work reports its progress; `xmtc.track.progress.Progress` draws it."""

from types import TracebackType
from typing import Protocol

from typing_extensions import override


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


class Silent(Progress, ProgressTask):
    """A progress and a task that show nothing."""

    @override
    def task(self, description: str, total: int | None = None, unit: str = "documents") -> "Silent":
        return self

    @override
    def advance(self, amount: int = 1) -> None:
        pass

    def __enter__(self) -> "Silent":
        return self

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
