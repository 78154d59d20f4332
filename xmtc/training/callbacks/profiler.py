"""Trace some optimizer steps with PyTorch's profiler."""

from torch.profiler import profile
from typing_extensions import override

from xmtc.files import replacing_file, writing
from xmtc.track.console import print_line
from xmtc.training.callbacks.base import Callback, StageContext
from xmtc.training.objective import Position

RECORDED_STEPS = 3  # each takes tens of MB in the trace
SKIPPED_STEPS = 10  # after the stage starts or resumes: they are slower than the rest


class Profiler(Callback):
    """Writes `profile/<stage>_steps_<first>-<last>.json` to the run directory, from the first rank.

    The file is a Chrome trace: open it in chrome://tracing or ui.perfetto.dev. It names operations and contains no
    document text. If the stage ends while steps are recorded, the trace holds the steps up to there.

    Args:
        context: see `StageContext`.
    """

    def __init__(self, context: StageContext) -> None:
        self._context, self._profile = context, profile()
        self._seen = 0  # steps of this process
        self._recorded: list[int] = []

    @override
    def before_step(self, position: Position) -> None:
        self._seen += 1
        if (
            self._context.rank == 0
            and SKIPPED_STEPS < self._seen <= SKIPPED_STEPS + RECORDED_STEPS
        ):
            if not self._recorded:
                self._profile.start()
            self._recorded.append(position.step + 1)

    @override
    def after_step(self, position: Position) -> None:
        if len(self._recorded) == RECORDED_STEPS:
            self.end()

    @override
    def end(self) -> None:
        """Write the trace.

        Raises:
            StorageError: it could not be written.
        """
        if not self._recorded:
            return
        self._profile.stop()
        first, last, stage = self._recorded[0], self._recorded[-1], self._context.stage
        path = (
            self._context.directory / "profile" / f"{stage}_steps_{first}-{last}.json"
        )
        with writing(path), replacing_file(path) as partial:
            self._profile.export_chrome_trace(str(partial))
        print_line(f"{stage}: profile of steps {first} to {last} in {path}")
        self._recorded = []
