"""Training on all cores while another program takes one of them: how threads that wait should wait.

Threads that finish their part of an operation first wait for the others. OpenMP lets them spin, which is quickest while
every thread has a core of its own. If another program takes one, they spin on the core that the last thread needs.
`xmtc` therefore lets them sleep (`OMP_WAIT_POLICY=PASSIVE`), unless the environment says otherwise.

Trains the three layers of a flat head in processes of their own, turn by turn, and prints JSON lines. Bars: with a
program beside it, sleeping is at least 1.5 times as fast as spinning; without one, at least 0.9 times.

    python tools/bench/busy_cores.py [--rounds 3] [--seconds 10]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from bars import held

DOCUMENTS, WIDTH, HIDDEN, LABELS = 128, 1152, 512, 4197
POLICIES = {"spinning": None, "sleeping": "PASSIVE"}
BARS = {"busy": 1.5, "idle": 0.9}


def steps_per_second(seconds: float, threads: int) -> float:
    """Train for some seconds in this process."""
    import torch  # reads OMP_WAIT_POLICY
    from torch.nn import functional

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, HIDDEN),
        torch.nn.GELU(),
        torch.nn.LayerNorm(HIDDEN),
        torch.nn.Linear(HIDDEN, LABELS),
    )
    optimizer = torch.optim.AdamW(layers.parameters())
    documents = torch.randn(DOCUMENTS, WIDTH)
    targets = (torch.rand(DOCUMENTS, LABELS) < 5 / LABELS).float()

    def step() -> None:
        logits = layers(documents)
        functional.binary_cross_entropy_with_logits(logits, targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        step()
        steps += 1
    return steps / (time.perf_counter() - began)


@contextmanager
def another_program() -> Iterator[None]:
    """Let another process compute without a break."""
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def measured(policy: str | None, seconds: float, threads: int) -> float:
    """Steps per second of a new process with a policy; None leaves it to OpenMP."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")}
    if policy is not None:
        environment["OMP_WAIT_POLICY"] = policy
    command = [sys.executable, __file__, "--steps", f"--seconds={seconds}"]
    command.append(f"--threads={threads}")
    run = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(run.stdout)


def bench(rounds: int, seconds: float, threads: int) -> bool:
    """Measure all four cases turn by turn; whether the bars hold."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for name, policy in POLICIES.items():
            idle = measured(policy, seconds, threads)
            found.setdefault((name, "idle"), []).append(idle)
            with another_program():
                busy = measured(policy, seconds, threads)
            found.setdefault((name, "busy"), []).append(busy)
    middle = {case: median(rates) for case, rates in found.items()}
    for (name, beside), rate in middle.items():
        line = {"threads": name, "machine": beside, "steps_per_s": round(rate, 2)}
        print(json.dumps(line))
    ratios = {
        beside: middle["sleeping", beside] / middle["spinning", beside]
        for beside in BARS
    }
    return held(
        "busy_cores",
        [
            (f"spinning over sleeping, {beside} machine", 1 / ratios[beside], 1 / bar)
            for beside, bar in BARS.items()
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--steps", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.steps:
        print(steps_per_second(given.seconds, given.threads))
    elif not bench(given.rounds, given.seconds, given.threads):
        sys.exit(1)


if __name__ == "__main__":
    main()
