"""Take the machines of runs away, and see that nothing is lost: `python tools/check/taken_away.py FOLDER`.

Each trial trains the smoke configuration on Ray, sends a signal to the driver or to a worker at a random step, and runs
the same command again. It must end within 30 seconds with exit code 143 (130 for SIGINT, 129 for SIGHUP), without a
traceback, with a checkpoint; the losses of every step must be those of an undisturbed run to the last bit; and at most
one step may be trained twice. One line of JSON a trial, and exit code 1 if one failed.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "smoke_llama.yaml"
STEPS = 24
END_S = 30.0
STRATEGIES = {
    "ddp": "{kind: ddp}",
    "zero2": "{kind: deepspeed, stage: 2}",
    "zero3": "{kind: deepspeed, stage: 3}",
}


@dataclass(frozen=True)
class Trial:
    """One run that is disturbed.

    Attributes:
        workers: number of Ray workers.
        strategy: name in `STRATEGIES`.
        step: the signal is sent once this step has been logged.
        signal: its name.
        target: `driver` or `worker`.
    """

    workers: int
    strategy: str
    step: int
    signal: str
    target: str


@dataclass(frozen=True)
class Outcome:
    """What a trial showed.

    Attributes:
        code: exit code after the signal.
        seconds: from the signal to the exit.
        stopped_after: step of the checkpoint.
        repeated: number of steps that were trained twice.
        same_losses: whether all losses are those of the undisturbed run, to the last bit.
        traceback: whether one was printed.
    """

    code: int
    seconds: float
    stopped_after: int
    repeated: int
    same_losses: bool
    traceback: bool

    def holds(self, trial: Trial) -> bool:
        """Whether it is what the pages promise."""
        expected = 128 + signal.Signals[trial.signal]
        in_time = self.seconds <= END_S
        return (
            self.code == expected
            and in_time
            and self.repeated <= 1
            and self.same_losses
            and not self.traceback
        )


def command(folder: Path, name: str, workers: int, strategy: str) -> list[str]:
    """The command of a run."""
    overrides = [
        f"name={name}",
        f"track.directory={folder / 'runs'}",
        f"data.corpus={folder / 'corpus'}",
        f"distributed.workers={workers}",
        "distributed.cpus_per_worker=0.5",
        f"distributed.strategy={STRATEGIES[strategy]}",
        "track.checkpoint_every_steps=null",
        "plant.parts=[]",
    ]
    return [
        sys.executable,
        "-c",
        "from xmtc.cli import main; main()",
        "train",
        str(CONFIG),
        *overrides,
    ]


def losses(run: Path) -> list[tuple[int, float]]:
    """Steps and losses of fine-tuning, in the order in which they were logged."""
    log = run / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    entries = [json.loads(line) for line in lines if line.endswith("}")]
    return [
        (e["step"], e["train/loss"])
        for e in entries
        if e["stage"] == "finetune" and "train/loss" in e
    ]


def undisturbed(folder: Path, workers: int, strategy: str) -> dict[int, float]:
    """The losses of a run that nobody disturbs."""
    name = f"whole-{workers}-{strategy}"
    if len(losses(folder / "runs" / name)) < STEPS:
        subprocess.run(
            command(folder, name, workers, strategy), check=True, capture_output=True
        )
    return dict(losses(folder / "runs" / name))


def target_of(process: subprocess.Popen[bytes], target: str) -> psutil.Process:
    """The process that gets the signal."""
    driver = psutil.Process(process.pid)
    if target == "driver":
        return driver
    children = driver.children(recursive=True)
    return next(
        child for child in children if "RayTrainWorker" in " ".join(child.cmdline())
    )


def disturb(folder: Path, name: str, trial: Trial) -> tuple[int, float, str]:
    """Start the run and send the signal. Return the exit code, the seconds until then, and what was printed."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(folder, name, trial.workers, trial.strategy),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        while process.poll() is None:
            logged = losses(folder / "runs" / name)
            if logged and logged[-1][0] >= trial.step:
                break
            time.sleep(0.01)
        target_of(process, trial.target).send_signal(signal.Signals[trial.signal])
        began = time.monotonic()
        try:
            code = process.wait(10 * END_S)
        finally:
            process.kill()
    return code, time.monotonic() - began, log.read_text(errors="replace")


def attempt(folder: Path, number: int, trial: Trial) -> Outcome:
    """Run one trial."""
    expected = undisturbed(folder, trial.workers, trial.strategy)
    name = f"taken-{number}-{time.time_ns()}"
    run = folder / "runs" / name
    code, seconds, printed = disturb(folder, name, trial)
    checkpoints = sorted(run.glob("checkpoints/step_*"))
    stopped_after = (
        int(checkpoints[-1].name.removeprefix("step_")) if checkpoints else 0
    )
    trained = max((step for step, _ in losses(run)), default=0)
    subprocess.run(
        command(folder, name, trial.workers, trial.strategy),
        check=True,
        capture_output=True,
    )
    logged = losses(run)
    return Outcome(
        code=code,
        seconds=round(seconds, 1),
        stopped_after=stopped_after,
        repeated=trained - stopped_after,
        same_losses=len(dict(logged)) == STEPS
        and all(expected[step] == loss for step, loss in logged),
        traceback="Traceback" in printed or "*** SIG" in printed,
    )


def draw(seed: int, count: int, workers: Sequence[int]) -> list[Trial]:
    """Draw trials: every number of workers and strategy in turn, the rest at random."""
    generator = random.Random(seed)
    kinds = [(number, strategy) for number in workers for strategy in STRATEGIES]
    generator.shuffle(kinds)
    trials = []
    for index in range(count):
        number, strategy = kinds[index % len(kinds)]
        target = generator.choice(["driver", "worker"])
        name = (
            "SIGTERM"
            if target == "worker"
            else generator.choice(["SIGTERM", "SIGINT", "SIGHUP"])
        )
        trials.append(
            Trial(number, strategy, generator.randint(1, STEPS - 2), name, target)
        )
    return trials


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        type=Path,
        help="of corpus and runs; undisturbed runs in it are used again",
    )
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for number, trial in enumerate(
        draw(arguments.seed, arguments.trials, arguments.workers)
    ):
        outcome = attempt(arguments.folder.absolute(), number, trial)
        holds = outcome.holds(trial)
        failed += not holds
        print(
            json.dumps({**asdict(trial), **asdict(outcome), "holds": holds}), flush=True
        )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
