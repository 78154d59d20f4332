"""How the process that drives a run on Ray passes signals on, without Ray."""

import os
import signal
import threading

import pytest

from xmtc.cluster.attempt import Board
from xmtc.cluster.stopping import run_until_stopped
from xmtc.errors import Interrupted


class Asked:
    """Stands for an `Attempt`: workers that stop as soon as they are asked."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.told = threading.Event()
        self.at_worker: int | None = None

    def request_stop(self, number: int) -> None:
        self.number = number
        self.told.set()

    def state(self) -> tuple[int | None, set[str]]:
        return self.at_worker, set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_asks_the_workers_and_waits_for_them(number: int) -> None:
    attempt = Asked()
    before = signal.getsignal(number)

    def fit() -> None:
        os.kill(os.getpid(), number)
        assert attempt.told.wait(20)

    run_until_stopped(fit, attempt)  # pyright: ignore[reportArgumentType]
    assert attempt.number == number
    assert signal.getsignal(number) is before


def test_a_signal_that_comes_as_the_workers_end_is_left_in_the_attempt() -> None:
    attempt = Asked()
    run_until_stopped(lambda: os.kill(os.getpid(), signal.SIGHUP), attempt)  # pyright: ignore[reportArgumentType]
    assert attempt.number == signal.SIGHUP


def test_a_second_signal_does_not_wait() -> None:
    attempt = Asked()
    goes_on = threading.Event()

    def fit() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        assert attempt.told.wait(20)
        os.kill(os.getpid(), signal.SIGTERM)
        goes_on.wait(20)

    with pytest.raises(Interrupted, match="at once") as caught:
        run_until_stopped(fit, attempt)  # pyright: ignore[reportArgumentType]
    goes_on.set()
    assert caught.value.number == signal.SIGTERM


def test_errors_of_the_call_are_those_of_the_caller() -> None:
    def fit() -> None:
        raise ValueError("a worker failed")

    with pytest.raises(ValueError, match="a worker failed"):
        run_until_stopped(fit, Asked())  # pyright: ignore[reportArgumentType]


def test_a_signal_at_a_worker_asks_all_of_them() -> None:
    attempt = Asked()
    attempt.at_worker = signal.SIGHUP
    run_until_stopped(lambda: attempt.told.wait(20), attempt)  # pyright: ignore[reportArgumentType]
    assert attempt.number == signal.SIGHUP


def test_a_stage_without_checkpoints_ends_when_patience_does() -> None:
    attempt = Asked()
    goes_on = threading.Event()

    def fit() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        goes_on.wait(20)

    with pytest.raises(Interrupted, match="stopped between two results") as caught:
        run_until_stopped(fit, attempt, patience_s=0.5)  # pyright: ignore[reportArgumentType]
    goes_on.set()
    assert caught.value.number == signal.SIGTERM
    assert attempt.number == signal.SIGTERM


def test_the_signal_that_was_sent_counts_whatever_rank_0_knows_of_it() -> None:
    board = Board()
    assert board.stopped() is None
    board.request_stop(signal.SIGHUP)
    board.report_stopped(Interrupted("finetune stopped after step 3", signal.SIGTERM))
    stopped = board.stopped()
    assert stopped is not None
    assert str(stopped) == "finetune stopped after step 3"
    assert stopped.number == signal.SIGHUP
