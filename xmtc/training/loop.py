"""The training loop of both stages, for every strategy.

A stage is a list of phases. Each phase trains one set of parameters with a new optimizer. The loop does not know what
the model learns: an `Objective` computes the summed loss of a batch and evaluates itself on dev. Callbacks observe the
loop.
"""

import math
import time
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.data.loader import prefetch
from xmtc.data.sampler import Sampler, Step
from xmtc.distributed.cards import rate_of_device
from xmtc.distributed.collectives import all_reduce_sum_floats
from xmtc.distributed.state_files import FIX
from xmtc.distributed.strategy import Strategy
from xmtc.errors import CheckpointError, Interrupted, TrainingError
from xmtc.evaluate.summary import in_words
from xmtc.files import reading
from xmtc.models.operations import training_operations
from xmtc.track.console import print_line
from xmtc.track.throughput import Throughput, Work
from xmtc.track.tracker import Tracker
from xmtc.training.callbacks.base import Callback
from xmtc.training.checkpoint import Checkpoint, CheckpointStore
from xmtc.training.interruption import STOP, stop_anywhere
from xmtc.training.objective import Objective, Phase, Position, StageSettings
from xmtc.training.weights import BestWeights

# Dev metrics on the console; metrics.jsonl has all. With one label per document, P@1 and micro-F1 equal the accuracy.
SHOWN_METRICS = ("p@1", "micro_f1", "macro_f1")
SHOWN_SINGLE_LABEL = ("accuracy", "macro_f1")
MAX_GRAD_NORM = 1.0  # larger gradients are scaled down to this global L2 norm
FIRST_CHECKPOINT_MINUTES = 1.0  # so that no run that is taken away has none
MAX_SKIPPED_STEPS = (
    10  # consecutive steps with a non-finite loss or gradient before training stops
)


@dataclass(frozen=True)
class LoopServices:
    """The services that the loop uses.

    Attributes:
        strategy: distributes the work among ranks.
        store: this stage's checkpoints.
        tracker: metrics and console.
        best: weights of the best epoch.
        callbacks: callbacks, in the order they are called.
    """

    strategy: Strategy
    store: CheckpointStore
    tracker: Tracker
    best: BestWeights
    callbacks: Sequence[Callback] = ()


@dataclass(frozen=True)
class _StepResult:
    """The result of an optimizer step, the same on every rank.

    Attributes:
        loss: mean over the documents of all ranks.
        norm: gradient norm over all ranks.
        save: whether a rank wants a checkpoint after the step.
        stop: whether a signal has asked a rank to stop.
        copying: whether a rank is still copying its part of the last checkpoint.
    """

    loss: float
    norm: float
    save: bool
    stop: bool
    copying: bool


class Loop:
    """Runs one stage to its end, starting from the newest checkpoint if there is one.

    Args:
        objective: computes loss and dev metrics.
        sampler: order of the training documents.
        phases: phases, in order.
        settings: see `StageSettings`.
        services: see `LoopServices`.
    """

    def __init__(
        self,
        objective: Objective,
        sampler: Sampler,
        phases: Sequence[Phase],
        settings: StageSettings,
        services: LoopServices,
    ) -> None:
        self.objective, self.sampler, self.phases, self.settings = (
            objective,
            sampler,
            list(phases),
            settings,
        )
        self.strategy, self.store, self.tracker = (
            services.strategy,
            services.store,
            services.tracker,
        )
        self.best, self.callbacks = services.best, services.callbacks
        self.total_steps = (
            sum(phase.epochs for phase in phases) * sampler.steps_per_epoch
        )
        self.peak_rates: list[float] = []
        self.has_checkpoint = False
        self.work = Work()
        self.last_save = time.monotonic()

    def run(self) -> Position:
        """Train. On return, the objective holds the unpartitioned weights of the best epoch on every rank.

        Raises:
            CheckpointError: the newest checkpoint says an impossible position.
            TrainingError: loss or gradient was not finite for `MAX_SKIPPED_STEPS` consecutive steps.
            Interrupted: on SIGINT, SIGTERM or SIGHUP, or a notice to another rank, after a checkpoint.
        """
        checkpoint = self._newest()
        self.has_checkpoint = checkpoint is not None
        position = Position(inputs=self.settings.inputs)
        if checkpoint is not None:
            with reading(checkpoint.path, CheckpointError, FIX):
                position = TypeAdapter(Position).validate_python(checkpoint.state)
        if position.best is None:
            self.store.discard(self.best.path)
        self.tracker.start_stage(self.settings.name, self.total_steps, position.step)
        with STOP.watching():
            for index in range(position.phase, len(self.phases)):
                if index > position.phase:
                    (
                        position.phase,
                        position.epoch,
                        position.consumed,
                        position.phase_step,
                    ) = index, 0, 0, 0
                if not self._finished(position):
                    self._run_phase(position, checkpoint)
                checkpoint = None
        self._finish_copy()
        for callback in self.callbacks:
            callback.end()
        planned, settings = sum(phase.epochs for phase in self.phases), self.settings
        if position.epochs_done < planned:
            self._print(
                f"stopping after epoch {position.epochs_done} of {planned}: {settings.metric} has not improved for "
                f"{settings.patience} epochs ({settings.name}.patience)"
            )
        self.store.fetch(self.best.path)
        self.best.restore()
        return position

    def _newest(self) -> Checkpoint | None:
        checkpoint = self.store.latest()
        if checkpoint is None:
            return None
        if checkpoint.state.get("inputs") != self.settings.inputs:
            self._print(
                f"starting from scratch: {checkpoint.path} was made from other data or weights"
            )
            return None
        self._print(
            f"resuming after step {checkpoint.step}/{self.total_steps} from {checkpoint.path}"
        )
        return checkpoint

    def _run_phase(self, position: Position, checkpoint: Checkpoint | None) -> None:
        phase = self.phases[position.phase]
        groups = phase.groups()
        names = ", ".join(group.name for group in groups)
        count = sum(p.numel() for group in groups for p in group.parameters)
        self._print(
            f"phase {position.phase + 1}/{len(self.phases)} trains {count:,} parameters: {names}"
        )
        self.peak_rates = [group.learning_rate for group in groups]
        wanted = {id(parameter) for group in groups for parameter in group.parameters}
        trained = {
            name: p for name, p in self.objective.named_parameters() if id(p) in wanted
        }
        self.work = self._work(phase, wanted)
        module = self.strategy.prepare(self.objective, groups)
        for callback in self.callbacks:
            callback.begin_phase(trained)
        if checkpoint is not None:
            for part in (self.strategy, *self.callbacks):
                part.load(checkpoint.path)
        while position.epoch < phase.epochs and not self._finished(position):
            self._run_epoch(phase, module, position)
            self._end_epoch(position)
        self.strategy.close()

    def _work(self, phase: Phase, trained: Collection[int]) -> Work:
        """Find out what a token of the phase costs; without the encoder, its cost is not counted."""
        if not phase.encodes:
            return Work()
        return Work(
            operations_per_token=training_operations(
                self.objective.classifier.encoder, trained
            ),
            workers=self.strategy.world_size,
            tflop_per_s=rate_of_device(self.strategy.device),
        )

    def _run_epoch(self, phase: Phase, module: nn.Module, position: Position) -> None:
        meter = Throughput(self.strategy.device, work=self.work)
        self.objective.train()
        for step, batches in self._batches(phase, position):
            for callback in self.callbacks:
                callback.before_step(position)
            result = self._step(module, step, batches, position, meter)
            position.step += 1
            position.phase_step += 1
            position.consumed = step.consumed
            self._guard(result.loss, result.norm, position)
            for callback in self.callbacks:
                callback.after_step(position)
            if self.tracker.due(position.step):
                self._log(result, position, meter)
            ended = position.phase_step % self.sampler.steps_per_epoch == 0
            if result.stop or (
                result.save and not ended
            ):  # the end of an epoch saves after the evaluation on dev
                self._save(position)
            elif not result.copying:
                self._finish_copy()
            if result.stop:
                raise self._interrupt(position)

    def _batches(
        self, phase: Phase, position: Position
    ) -> Iterator[tuple[Step, Iterator[Batch]]]:
        """Yield the remaining steps of the epoch with their micro-batches, which a background thread collates ahead."""
        steps = list(self.sampler.epoch(position.epochs_done, position.consumed))
        places = (
            ((at, i), one)
            for at, s in enumerate(steps, position.step)
            for i, one in enumerate(s.micro_batches)
        )
        collated = prefetch(
            (partial(phase.collate, one, self._seed(*place)) for place, one in places),
            depth=4,
        )
        for step in steps:
            yield step, (next(collated) for _ in step.micro_batches)

    def _step(
        self,
        module: nn.Module,
        step: Step,
        batches: Iterator[Batch],
        position: Position,
        meter: Throughput,
    ) -> _StepResult:
        """Run one optimizer step."""
        self.objective.before_step(position.step)
        factor = self._factor(position)
        self.strategy.set_learning_rates([rate * factor for rate in self.peak_rates])
        torch.manual_seed(self._seed(position.step))
        own_tokens = 0
        outputs: list[
            Tensor
        ] = []  # on the device: reading a number would synchronise in every micro-batch
        last = len(step.micro_batches) - 1
        for index, batch in enumerate(meter.watch(batches)):
            own_tokens += int((batch.mask_BT.sum(1) * batch.weight_B).sum())
            batch = batch.to(self.strategy.device)
            with self.strategy.micro_batch(last=index == last):
                with self.strategy.autocast():
                    output = module(batch, self._seed(position.step, index))
                self.strategy.backward(output.sum / step.documents)
            outputs.append(
                torch.stack([output.sum.detach(), output.count.to(output.sum.dtype)])
            )
        own_loss, own_documents = (
            sum(values) for values in zip(*torch.stack(outputs).tolist(), strict=True)
        )
        norm = self.strategy.step(MAX_GRAD_NORM)
        # One rank's wish to save or stop is that of all ranks, so that none waits for a rank that has stopped.
        wishes = (
            float(self._wants_save(position.step + 1)),
            float(STOP.requested),
            float(self.store.is_copying),
        )
        loss, documents, tokens, save, stop, copying = all_reduce_sum_floats(
            [own_loss, own_documents, own_tokens, *wishes]
        )
        meter.add(documents=int(documents), tokens=int(tokens))
        return _StepResult(
            loss / documents, norm, save=save > 0, stop=stop > 0, copying=copying > 0
        )

    def _factor(self, position: Position, steps_ago: int = 0) -> float:
        total = self.phases[position.phase].epochs * self.sampler.steps_per_epoch
        return self.settings.optimizer.factor(position.phase_step - steps_ago, total)

    def _seed(self, *place: int) -> int:
        """Derive a seed from a position in the run. The position then determines every random choice."""
        words = (self.settings.seed, self.settings.name, self.strategy.rank, *place)
        return zlib.crc32(repr(words).encode())

    def _guard(self, loss: float, norm: float, position: Position) -> None:
        if math.isfinite(loss) and math.isfinite(norm):
            position.skipped = 0
            return
        position.skipped += 1
        self._print(
            f"step {position.step}: loss {loss}, gradient norm {norm}: update skipped ({position.skipped} in a row)"
        )
        if position.skipped >= MAX_SKIPPED_STEPS:
            raise TrainingError(
                f"{self.settings.name}: loss or gradient was not finite for {position.skipped} steps in a row, up to "
                f"step {position.step}. Use another name and a lower {self.settings.name}.optimizer.learning_rate; or, "
                "unless it is fp32, change distributed.precision to fp32 and resume from the checkpoint before."
            )

    def _end_epoch(self, position: Position) -> None:
        position.epoch, position.consumed = position.epoch + 1, 0
        position.epochs_done += 1
        metrics = self._evaluate(position)
        self.tracker.log(
            self.settings.name,
            position.step,
            {f"dev/{k}": v for k, v in metrics.items()},
            line=False,
        )
        usual = SHOWN_SINGLE_LABEL if "accuracy" in metrics else SHOWN_METRICS
        shown = [
            key
            for key in dict.fromkeys((self.settings.metric, *usual))
            if key in metrics
        ]
        mark = " (best)" if position.best_epoch == position.epochs_done else ""
        self._print(
            f"epoch {position.epochs_done}, {self.objective.measured}, dev: "
            + ", ".join(in_words(key, metrics[key]) for key in shown)
            + mark
        )
        self._save(position)
        if stop_anywhere():
            raise self._interrupt(position)

    def _evaluate(self, position: Position) -> dict[str, float]:
        """Compute dev metrics after an epoch. Keep the weights if they are the best so far."""
        with self.strategy.whole(), self.strategy.autocast():
            metrics = self.objective.evaluate()
        value = metrics[self.settings.metric]
        if position.best is None or value > position.best:
            position.best, position.best_epoch = value, position.epochs_done
            self.best.save(self.strategy)
        return metrics

    def _finish_copy(self) -> None:
        """Complete the copy of the last checkpoint to the run's URI, if there is one. Collective."""
        seconds = self.store.finish_copy()
        if seconds is not None:
            self._print(
                f"the checkpoint is at the run's URI, after {seconds:.1f} s beside the steps"
            )

    def _interrupt(self, position: Position) -> Interrupted:
        self._finish_copy()
        return Interrupted(
            f"{self.settings.name} stopped after step {position.step}, checkpoint written",
            STOP.number,
        )

    def _finished(self, position: Position) -> bool:
        return 0 < self.settings.patience <= position.epochs_done - position.best_epoch

    def _log(self, result: _StepResult, position: Position, meter: Throughput) -> None:
        training = {
            "train/loss": result.loss,
            "train/grad_norm": result.norm,
            "train/lr": max(self.peak_rates) * self._factor(position, steps_ago=1),
            "train/phase": position.phase,
        }
        self.tracker.log(
            self.settings.name,
            position.step,
            training | meter.read() | self.objective.read_metrics(),
        )

    def _wants_save(self, step: int) -> bool:
        track = self.settings.track
        if (
            track.checkpoint_every_steps is not None
            and step % track.checkpoint_every_steps == 0
        ):
            return True
        interval = track.checkpoint_every_minutes
        if not self.has_checkpoint:
            interval = min(interval, FIRST_CHECKPOINT_MINUTES)
        return (time.monotonic() - self.last_save) / 60 >= interval

    def _save(self, position: Position) -> None:
        """Save a checkpoint, whose copy to the run's URI runs beside the next steps; say how long they wait for it."""
        began = time.monotonic()
        needed = self.strategy.checkpoint_bytes()
        self.store.save(
            position.step, asdict(position), self._write, needed, copy_later=True
        )
        self.last_save = time.monotonic()
        if self.store.has_open_copy:
            self._print(
                f"checkpoint after step {position.step}: steps waited {self.last_save - began:.1f} s"
            )
        self.has_checkpoint = True

    def _write(self, directory: Path) -> None:
        """Write this rank's part of a checkpoint. A failed write is raised after the last exchange between ranks."""
        failures: list[OSError] = []
        for part in (self.strategy, *self.callbacks):
            try:
                part.save(directory)
            except OSError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _print(self, text: str) -> None:
        if self.strategy.rank == 0:
            print_line(f"{self.settings.name}: {text}")
