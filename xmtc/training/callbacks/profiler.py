"""Trace some optimizer steps with PyTorch's profiler."""

from pathlib import Path

from torch.profiler import ProfilerActivity, profile
from typing_extensions import override

from xmtc.files import replacing, writing
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
        self._context = context
        self._seen = 0  # steps of this process
        self._first = self._last = 0
        self._profile: profile | None = None

    @override
    def before_step(self, position: Position) -> None:
        self._seen += 1
        if self._context.rank == 0 and self._seen == SKIPPED_STEPS + 1:
            self._first = position.step + 1
            activities = [ProfilerActivity.CPU]
            if self._context.device.type == "cuda":
                activities.append(ProfilerActivity.CUDA)
            self._profile = profile(activities=activities)
            self._profile.start()

    @override
    def after_step(self, position: Position) -> None:
        self._last = position.step
        if self._seen == SKIPPED_STEPS + RECORDED_STEPS:
            self._write()

    @override
    def end(self) -> None:
        self._write()

    def _write(self) -> None:
        """Stop recording and write the trace.

        Raises:
            StorageError: the trace could not be written.
        """
        recorded, self._profile = self._profile, None
        if recorded is None:
            return
        recorded.stop()
        path = self._path()
        with writing(path), replacing(path) as partial:
            recorded.export_chrome_trace(str(partial))
        print_line(f"{self._context.stage}: profile of steps {self._first} to {self._last} in {path}")

    def _path(self) -> Path:
        name = f"{self._context.stage}_steps_{self._first}-{self._last}.json"
        return self._context.directory / "profile" / name
