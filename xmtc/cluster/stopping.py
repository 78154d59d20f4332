"""How a run on Ray is told to stop: signals at the driver or a worker, and nodes that are being drained.

Every notice ends at `STOP` in the workers, which stop together after their step and write a checkpoint.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

import ray
from ray.exceptions import RayError
from ray.train.backend import Backend
from ray.train.torch import TorchConfig
from typing_extensions import override

from xmtc.cluster.attempt import Attempt
from xmtc.errors import Interrupted
from xmtc.track.console import print_line
from xmtc.training.interruption import STOP

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_S = 0.5
_DRAIN_POLLS = 4  # polls of signals for each look at the nodes


class SignalHandlingConfig(TorchConfig):
    """PyTorch's process group, and workers that take SIGTERM as a request to stop.

    Ray's own handler ends the worker at once, and only the main thread may replace it. Training runs in another thread;
    what a backend executes on the workers runs in the main one.
    """

    @property
    @override
    def backend_cls(self) -> type[Backend]:
        """The backend that also sets the handler."""
        return _backend_with_handler(super().backend_cls)


def _backend_with_handler(torch_backend: type[Any]) -> type[Any]:
    class SignalHandlingBackend(torch_backend):
        def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
            super().on_start(worker_group, backend_config)
            worker_group.execute(_handle_sigterm)

    return SignalHandlingBackend


def _handle_sigterm() -> None:
    """Ask this worker to stop at SIGTERM; end it at a second one."""

    def note(number: int, _frame: FrameType | None) -> None:
        if STOP.requested:
            os._exit(128 + number)
        STOP.request(number)

    signal.signal(signal.SIGTERM, note)


@contextmanager
def stopping_with(attempt: Attempt) -> Iterator[None]:
    """Set `STOP` in this worker as soon as the attempt shall stop."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_POLL_S):
            with suppress(RayError):  # the driver is gone; the loop saves as usual
                number = attempt.requested_stop()
                if number is not None and not STOP.requested:
                    STOP.request(number)

    thread = threading.Thread(
        target=look, daemon=True, name="look for a request to stop"
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass
class _Fit:
    """A call in another thread, and what it raised."""

    call: Callable[[], object]
    error: BaseException | None = None

    def __call__(self) -> None:
        try:
            self.call()
        except BaseException as error:  # raised again by `run_until_stopped`
            self.error = error


def run_until_stopped(call: Callable[[], object], attempt: Attempt) -> None:
    """Run `call` in a thread, and meanwhile ask the attempt to stop at a signal, or when a node is drained.

    Ray's own handlers end this process without waiting for a checkpoint.

    Raises:
        Interrupted: a second signal came.
        BaseException: what `call` raised.
    """
    numbers: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)

    fit = _Fit(call)
    thread = threading.Thread(target=fit, daemon=True, name="ray train")
    with _handled_by(note):
        thread.start()
        polls = 0
        asked = False
        while thread.is_alive():
            thread.join(_POLL_S)
            polls += 1
            if len(numbers) > 1:
                raise Interrupted("stopped at once, without a checkpoint", numbers[-1])
            number = numbers[0] if numbers else None
            if number is None and polls % _DRAIN_POLLS == 0 and _draining_nodes():
                print_line("a node of the cluster is about to be taken away")
                number = signal.SIGTERM
            if number is not None and not asked:
                asked = True
                print_line(
                    f"{signal.Signals(number).name}: the workers stop after their step and write a checkpoint"
                )
                attempt.request_stop(number)
    if fit.error is not None:
        raise fit.error


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals that are not ignored, in the main thread; elsewhere, nothing is handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = [
        number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN
    ]  # as by `nohup`
    previous = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, earlier in previous.items():
            signal.signal(number, earlier)


def _draining_nodes() -> bool:
    """Whether the cluster has announced that it takes a node away."""
    with suppress(RayError):
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        worker = ray._private.worker.global_worker  # pyright: ignore  # Ray shows draining nodes in no public place
        client = worker.gcs_client
        return bool(alive & set(client.get_draining_nodes(timeout=_POLL_S)))
    return False
