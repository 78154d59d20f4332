"""SIGINT, SIGTERM and SIGHUP as a request to stop; the training loop stops after the current step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Whether a signal has asked this process to stop.

    Attributes:
        requested: whether a signal has arrived since `watching` began.
    """

    def __init__(self) -> None:
        self.requested = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Treat the first signal as a request to stop; the second raises KeyboardInterrupt immediately.

        Has an effect in the main thread only, because Python handles signals only there.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        watched = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # as by `nohup`
        previous = {number: signal.signal(number, self._note) for number in watched}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
