"""How a run on Ray is told to stop: signals at the driver or a worker, and nodes that are being drained.

Every notice ends at `STOP` in the workers, which stop together after their step and write a checkpoint.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import ray
from ray.exceptions import RayError
from ray.train.backend import Backend
from ray.train.torch import TorchConfig
from typing_extensions import override

from xmtc.cluster import flight_recorder
from xmtc.cluster.attempt import Attempt
from xmtc.errors import Interrupted
from xmtc.track.console import print_line
from xmtc.training.interruption import STOP

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_S = 0.5
_HEAD_RESOURCE = "node:__internal_head__"  # what Ray gives a head, and no other node
_BOARD_POLLS = 2  # polls of signals for each look at workers and nodes


@dataclass
class WorkerConfig(TorchConfig):
    """PyTorch's process group, workers that take signals as requests to stop, and a record of their exchanges.

    Ray's own handlers end the worker at once, and only the main thread may replace them. Training runs in another
    thread; what a backend executes on the workers runs in the main one.

    Attributes:
        traces: folder of the records, see `flight_recorder`.
    """

    traces: Path = field(kw_only=True)

    @property
    @override
    def backend_cls(self) -> type[Backend]:
        """The backend that also sets the handlers."""
        return _backend_with_handlers(super().backend_cls)


def _backend_with_handlers(torch_backend: type[Any]) -> type[Any]:
    class BackendWithHandlers(torch_backend):
        def on_start(self, worker_group: Any, backend_config: WorkerConfig) -> None:
            # before the process group, which reads the environment
            worker_group.execute(flight_recorder.switch_on, backend_config.traces)
            super().on_start(worker_group, backend_config)
            worker_group.execute(_handle_signals)

    return BackendWithHandlers


def _handle_signals() -> None:
    """Ask this worker to stop at a signal; end it at a second one.

    A request of the driver does not count as the first: both may get the same signal, as from a closed terminal.
    """
    numbers: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)
        if len(numbers) > 1:
            os._exit(128 + number)
        STOP.request(number)

    for number in _SIGNALS:
        signal.signal(number, note)
    # Ray starts its processes with SIGINT blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


@contextmanager
def stopping_with(attempt: Attempt) -> Iterator[None]:
    """Set `STOP` in this worker as soon as the attempt shall stop, and the other way round."""
    ended = threading.Event()

    def look() -> None:
        told = False
        while not ended.wait(_POLL_S):
            with suppress(RayError):  # the driver is gone; the loop saves as usual
                number = attempt.requested_stop()
                if number is not None and not STOP.requested:
                    STOP.request(number)
                elif number is None and STOP.requested and not told:
                    told = True
                    attempt.request_stop(STOP.number)

    attempt.join(ray.get_runtime_context().get_node_id())
    thread = threading.Thread(
        target=look, daemon=True, name="look for a request to stop"
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if STOP.requested:  # perhaps since the last look
            with suppress(RayError):
                attempt.request_stop(STOP.number)
                attempt.requested_stop()  # the answer says that the request is there


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


def run_until_stopped(
    call: Callable[[], object], attempt: Attempt, *, patience_s: float | None = None
) -> None:
    """Run `call` in a thread, and meanwhile ask the workers to stop at a signal, or when a node of theirs is drained.

    Ray's own handlers end this process without waiting for a checkpoint. A signal that comes when `call` is about to
    end is left in `attempt`.

    Args:
        call: starts the workers, and waits for them.
        attempt: what the workers look at.
        patience_s: how long to wait for workers that shall stop; None: until they have.

    Raises:
        Interrupted: a second signal came, or patience is at its end.
        BaseException: what `call` raised.
    """
    numbers: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)

    fit = _Fit(call)
    thread = threading.Thread(target=fit, daemon=True, name="ray train")
    asked_at: float | None = None
    polls = 0
    with _handled_by(note):
        thread.start()
        while thread.is_alive():
            thread.join(_POLL_S)
            polls += 1
            if len(numbers) > 1:
                raise Interrupted("stopped at once, without a checkpoint", numbers[-1])
            if asked_at is None:
                number = numbers[0] if numbers else _notice(attempt, polls)
                if number is not None:
                    asked_at = time.monotonic()
                    asked_for = number
                    attempt.request_stop(number)
                    print_line(
                        f"{signal.Signals(number).name}: the workers are told to stop after their step"
                    )
            elif patience_s is not None and time.monotonic() - asked_at > patience_s:
                raise Interrupted("stopped between two results", asked_for)
    if numbers:
        attempt.request_stop(numbers[0])
    if fit.error is not None:
        raise fit.error


def _notice(attempt: Attempt, polls: int) -> int | None:
    """Find out whether a worker has got a signal, or its node is being taken away; return the signal."""
    if polls % _BOARD_POLLS:
        return None
    with suppress(RayError, TimeoutError):
        number, nodes = attempt.state()
        if number is not None:
            print_line("a worker has been told to stop")
            return number
        if _draining_nodes() & (nodes | _own_and_head_node()):
            print_line("a node of the run is about to be taken away")
            return signal.SIGTERM
    return None


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


def _own_and_head_node() -> set[str]:
    """Identify the nodes without which a run ends, whether workers are on them or not."""
    head = {
        node["NodeID"] for node in ray.nodes() if _HEAD_RESOURCE in node["Resources"]
    }
    return head | {ray.get_runtime_context().get_node_id()}


def _draining_nodes() -> set[str]:
    """List the nodes that the cluster has announced to take away.

    What Ray offers for this, `ray.train.get_preemption_info`, is a barrier of all workers, once a step.
    """
    worker = ray._private.worker.global_worker  # pyright: ignore  # Ray shows draining nodes in no other place
    return set(worker.gcs_client.get_draining_nodes(timeout=_POLL_S))
