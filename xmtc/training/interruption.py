"""Signals and other notices as a request to stop; whatever works in steps stops after its step.

SIGINT, SIGTERM and SIGHUP reach the main thread of one process. On a cluster the notice may come to any worker, to the
process that drives the run, or from the cluster, so `STOP` can be set by anybody in this process, and the workers ask
each other with `stop_anywhere`.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.errors import Interrupted


class StopRequest:
    """Whether this process has been asked to stop, and by which signal."""

    def __init__(self) -> None:
        self._number: int | None = None

    @property
    def requested(self) -> bool:
        """Whether somebody has asked."""
        return self._number is not None

    @property
    def number(self) -> int:
        """The signal; SIGTERM if another worker has got it."""
        return signal.SIGTERM if self._number is None else self._number

    def request(self, number: int) -> None:
        """Ask this process to stop because of a signal, or of what counts as one."""
        self._number = number

    def clear(self) -> None:
        """Forget the request, before the work of another attempt."""
        self._number = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Treat the first signal as a request to stop; a second ends the work at once, as `Interrupted`.

        Has an effect in the main thread only, because Python handles signals only there.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        watched = [
            number
            for number in numbers
            if signal.getsignal(number) is not signal.SIG_IGN
        ]  # as by `nohup`
        previous = {number: signal.signal(number, self._note) for number in watched}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            self.clear()

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise Interrupted("stopped at once, without a checkpoint", number)
        self.request(number)


STOP = StopRequest()
"""The request to this process."""


def stop_anywhere() -> bool:
    """Whether any rank has been asked to stop. Collective."""
    return all_reduce_sum_floats([float(STOP.requested)])[0] > 0
