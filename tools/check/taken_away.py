"""Take the machines of runs away, and see that nothing is lost: `python tools/check/taken_away.py FOLDER`.

For each number of workers and strategy, the smoke configuration trains on Ray and gets a signal at random steps, at the
driver or at a worker; after each, the same command goes on, until all signals have been sent and the run ends. Each
signal must end the run within 30 seconds with exit code 143 (130 for SIGINT, 129 for SIGHUP), with one line that holds
the command that goes on, without a traceback, and with a checkpoint; at most one step may be trained twice. The losses
of every step must be those of an undisturbed run to the last bit.

A second signal, half a second after the first, must end the run within ten seconds; it may cost steps. In a stage that
has no checkpoints, such as `evaluate`, a signal must end the run in the same way, and the stage begins again.

One line of JSON a signal, and exit code 1 if one failed. With `--record`, runs that the file has are not repeated.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "smoke_llama.yaml"
EPOCHS = (3, 6)  # of the head, and of everything; a signal needs a second to reach all
STEPS = 8 * sum(EPOCHS)
END_S = 30.0
SECOND_END_S = 10.0
LAST_STAGE = STEPS + 1
STRATEGIES = {
    "ddp": "{kind: ddp}",
    "zero2": "{kind: deepspeed, stage: 2}",
    "zero3": "{kind: deepspeed, stage: 3}",
}


@dataclass(frozen=True)
class Trial:
    """One signal, or two.

    Attributes:
        workers: number of Ray workers.
        strategy: name in `STRATEGIES`.
        step: the signal is sent once this step has been logged, and one since the start; `LAST_STAGE` for while the run
            is evaluated.
        signal: its name.
        target: `driver` or `worker`.
        twice: whether the driver gets a second one, soon after.
    """

    workers: int
    strategy: str
    step: int
    signal: str
    target: str
    twice: bool = False


@dataclass(frozen=True)
class Ending:
    """How the run ended after a signal.

    Attributes:
        code: exit code.
        seconds: from the signal to the exit.
        stopped_after: step of the newest checkpoint; 0 without one.
        repeated: number of steps that were trained before the signal and are trained again.
        advice: whether exactly one line says which command goes on.
        traceback: whether one was printed, by Python or C++.
    """

    code: int
    seconds: float
    stopped_after: int
    repeated: int
    advice: bool
    traceback: bool

    def holds(self, trial: Trial) -> bool:
        """Whether it is what the pages promise."""
        clean = self.advice and not self.traceback
        if self.code != 128 + signal.Signals[trial.signal] or not clean:
            return False
        if trial.twice:
            return self.seconds <= SECOND_END_S
        kept = self.stopped_after > 0 and self.repeated <= 1
        return self.seconds <= END_S and kept


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
        f"finetune.phases.0.epochs={EPOCHS[0]}",
        f"finetune.phases.1.epochs={EPOCHS[1]}",
        "finetune.patience=0",
        "evaluate.resamples=3000",
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
    while True:
        workers = [
            child
            for child in driver.children(recursive=True)
            if "RayTrainWorker" in " ".join(child.cmdline())
        ]
        if workers:
            return random.choice(workers)
        time.sleep(0.1)  # the next stage's are about to start


def last_step(run: Path) -> int:
    """The last step that was logged; 0 if there is none."""
    return max((step for step, _ in losses(run)), default=0)


def has_come_to(run: Path, step: int) -> bool:
    """Whether the run has logged a step, or evaluates."""
    if step == LAST_STAGE:
        record = run / "run.json"
        stages = json.loads(record.read_text())["stages"] if record.exists() else {}
        return stages.get("evaluate", {}).get("state") == "running"
    return last_step(run) >= step


def wait_until(process: subprocess.Popen[bytes], run: Path, step: int) -> None:
    """Wait until the run has come to a step."""
    while not has_come_to(run, step):
        if process.poll() is not None:
            raise SystemExit(f"{run}: ended with {process.returncode} before {step}")
        time.sleep(0.01)
    if step == LAST_STAGE:
        time.sleep(random.uniform(0, 3))  # the workers' start is part of it


def disturb(folder: Path, name: str, trial: Trial) -> Ending:
    """Start or continue the run, and send the signal."""
    run = folder / "runs" / name
    log = folder / f"{name}-{trial.step}.log"
    # The last signal's stop may have come later than this one is due: then it comes after the first step.
    step = max(trial.step, min(last_step(run) + 1, STEPS))
    number = signal.Signals[trial.signal]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(folder, name, trial.workers, trial.strategy),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            wait_until(process, run, step)
            before = log.stat().st_size  # Ray may have started workers twice
            target_of(process, trial.target).send_signal(number)
            if trial.twice:
                time.sleep(0.5)
                process.send_signal(number)
            began = time.monotonic()
            code = process.wait(10 * END_S)
        finally:
            process.kill()
    seconds = time.monotonic() - began
    printed = log.read_bytes()[before:].decode(errors="replace")
    advice = [line for line in printed.splitlines() if "; continue with: xmtc" in line]
    checkpoints = sorted(run.glob("checkpoints/step_*"))
    stopped_after = (
        int(checkpoints[-1].name.removeprefix("step_")) if checkpoints else 0
    )
    trained = last_step(run)
    return Ending(
        code=code,
        seconds=round(seconds, 1),
        stopped_after=stopped_after,
        repeated=trained - stopped_after,
        advice=len(advice) == 1,
        traceback="Traceback" in printed or "*** SIG" in printed,
    )


def take_away(folder: Path, trials: Sequence[Trial]) -> list[dict[str, object]]:
    """Send the signals of trials that are alike in workers and strategy to one run, and let it end."""
    workers, strategy = trials[0].workers, trials[0].strategy
    expected = undisturbed(folder, workers, strategy)
    name = f"taken-{workers}-{strategy}-{time.time_ns()}"
    endings = [disturb(folder, name, trial) for trial in trials]
    subprocess.run(
        command(folder, name, workers, strategy), check=True, capture_output=True
    )
    logged = losses(folder / "runs" / name)
    same = len(dict(logged)) == STEPS and all(
        expected[step] == loss for step, loss in logged
    )
    return [
        {
            **asdict(trial),
            **asdict(ending),
            "same_losses": same,
            "holds": same and ending.holds(trial),
        }
        for trial, ending in zip(trials, endings, strict=True)
    ]


def draw(seed: int, count: int, workers: Sequence[int]) -> list[list[Trial]]:
    """Draw signals, for every number of workers and strategy in turn, in the order in which a run gets them.

    One run also gets a signal while it is evaluated, and one gets two signals in a row.
    """
    generator = random.Random(seed)
    kinds = [(number, strategy) for strategy in STRATEGIES for number in workers]
    generator.shuffle(kinds)
    groups: list[list[Trial]] = []
    for index, (number, strategy) in enumerate(kinds):
        own = count // len(kinds) + (index < count % len(kinds))
        steps = sorted(generator.sample(range(1, STEPS - 1), own))
        group = []
        for step in steps:
            name = generator.choice(["SIGTERM", "SIGINT", "SIGHUP"])
            target = generator.choice(["driver", "worker"])
            group.append(Trial(number, strategy, step, name, target))
        if index == 0:
            group.append(Trial(number, strategy, LAST_STAGE, "SIGTERM", "driver"))
        if index == 1 and group:
            twice = replace(group[-1], target="driver", twice=True)
            group[-1] = twice
        groups.append(group)
    return groups


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder",
        type=Path,
        help="of corpus and runs; undisturbed runs in it are used again",
    )
    parser.add_argument("--signals", type=int, default=20, help="at random steps")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--record", type=Path, help="file to add the lines to")
    arguments = parser.parse_args()
    # A shell in the background ignores SIGINT, `nohup` ignores SIGHUP, and every command started here would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    record: Path | None = arguments.record
    known = (
        [json.loads(line) for line in record.read_text().splitlines()]
        if record is not None and record.exists()
        else []
    )
    failed = sum(not line["holds"] for line in known)
    for trials in draw(arguments.seed, arguments.signals, arguments.workers):
        names = asdict(trials[0]).keys() if trials else []
        have = [{name: line[name] for name in names} for line in known]
        if all(asdict(trial) in have for trial in trials):
            continue
        for line in take_away(arguments.folder.absolute(), trials):
            failed += not line["holds"]
            print(json.dumps(line), flush=True)
            if record is not None:
                with record.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
