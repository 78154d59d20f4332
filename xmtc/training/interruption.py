"""SIGINT and SIGTERM as a request, which the training loop grants after a step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Whether a signal has asked this process to stop.

    Attributes:
        requested: since `watching` began.
    """

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within, a first signal is a request and a second one raises KeyboardInterrupt at once.

        Does nothing outside the main thread, where Python handles no signals.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
