"""Progress in a log and on a terminal, and the throughput meter."""

import io
import re
import time
from collections.abc import Iterator

import pytest
import torch
from rich.console import Console

from xmtc.track.console import duration, print_line
from xmtc.track.progress import Progress
from xmtc.track.throughput import Throughput, memory_peaks


class Clock:
    """Seconds that pass when told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def log_console() -> Console:
    return Console(file=io.StringIO(), width=40)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_log_gets_a_line_every_ten_seconds_and_one_at_the_end() -> None:
    clock, console = Clock(), log_console()
    progress = Progress(console=console, clock=clock)
    with progress.task("encode train", total=4000) as task:
        for _ in range(4):
            clock.now += 6
            task.advance(1000)
    assert text(console).splitlines() == [
        "encode train: 2,000/4,000 documents (50%), 167/s, ETA 0:12",
        "encode train: 4,000/4,000 documents (100%), 167/s, ETA 0:00",
        "encode train: 4,000/4,000 documents (100%) in 0:24, 167/s",
    ]


def test_unknown_totals_slow_rates_and_resumed_work() -> None:
    clock, console = Clock(), log_console()
    progress = Progress(console=console, clock=clock)
    with progress.task("read", unit="rows") as task:
        clock.now += 60
        task.advance(3)
    with progress.task("train", total=100, unit="steps", done=50) as task:
        clock.now += 10
        task.advance(25)
    assert text(console).splitlines() == [
        "read: 3 rows, 0.05/s",
        "read: 3 rows in 1:00, 0.05/s",
        "train: 75/100 steps (75%), 2.5/s, ETA 0:10",
        "train: 75/100 steps (75%) in 0:10, 2.5/s",
    ]


def test_an_error_in_the_middle_gives_the_terminal_back() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)

    def stage() -> None:
        with Progress(console=console).task("prepare", 5) as task:
            task.advance()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage()
    assert text(console).rstrip("\n").endswith("\x1b[?25h")  # the cursor is back


def test_disabled_progress_and_tasks_with_other_lines_are_silent() -> None:
    console = log_console()
    with Progress(enabled=False, console=console).task("prepare", 2) as task:
        task.advance(2)
    with Progress(console=console).task("finetune", 5, "steps", lines=False) as task:
        task.advance(5)
    assert text(console) == ""


def test_a_terminal_gets_bars_with_eta_and_lines_above_them() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    progress = Progress(console=console)
    with progress.task("finetune", 20, "steps") as outer:
        with progress.task("evaluate dev", 4) as inner:
            inner.advance(4)
        outer.advance(20)
        print_line("finetune 20/20 | loss [0.1]", console)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text(console))
    assert "20/20 steps" in shown
    assert re.search(r"4/4 +documents", shown)
    assert "ETA 0:00:00" in shown
    assert "finetune 20/20 | loss [0.1]" in shown
    assert progress.bars is None
    assert "\x1b[?25h" in text(console)  # the cursor is back


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0:00"), (59.6, "1:00"), (3725, "1:02:05"), (float("inf"), "-:--")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_throughput_counts_since_the_last_read() -> None:
    clock = Clock()
    meter = Throughput(clock=clock)

    def slow() -> Iterator[None]:
        clock.now += 1
        yield

    for _ in meter.watch(slow()):
        clock.now += 3
    meter.add(documents=8, tokens=2000)
    first = meter.read()
    assert (
        first["perf/docs_per_s"],
        first["perf/tokens_per_s"],
        first["time/data_wait_frac"],
    ) == (2, 500, 0.25)
    assert 0.01 < first["mem/peak_gib"] < 1000
    clock.now += 2
    meter.add(documents=1, tokens=10)
    second = meter.read()
    assert (second["perf/docs_per_s"], second["time/data_wait_frac"]) == (0.5, 0)


def test_watch_counts_the_wait_for_each_batch() -> None:
    def slow():
        for number in range(3):
            time.sleep(0.02)
            yield number

    meter = Throughput()
    assert list(meter.watch(slow())) == [0, 1, 2]
    assert meter.read()["time/data_wait_frac"] > 0.9


@pytest.mark.gpu
def test_gpu_memory_peak() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    device = torch.device("cuda")
    torch.zeros(2**28, device=device)
    assert memory_peaks(device)["mem/cuda_peak_gib"] >= 1


def test_memory_peak_follows_a_large_block() -> None:
    before = memory_peaks()["mem/peak_gib"]
    block = bytearray(2**28)
    block[::4096] = b"x" * len(block[::4096])
    assert memory_peaks()["mem/peak_gib"] >= max(before, 0.25)
