"""The stages of a run, and where its files are."""

import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from xmtc.evaluate import layout
from xmtc.storage.config import is_remote
from xmtc.track.config import METRICS_LOG

if TYPE_CHECKING:
    from xmtc.run.config import RunConfig
    from xmtc.storage.mirror import Mirror

_ORDER = {"dev": 0, "test": 1}


class Stage(StrEnum):
    """The stages of a run, in the order in which they run, as in `run.json` and `metrics.jsonl`."""

    PREPARE = "prepare"
    MIG = "mig"
    SCORERS = "scorers"
    PLANT = "plant"
    FINETUNE = "finetune"
    REFIT = "refit"
    EVALUATE = "evaluate"
    REPORT = "report"


@dataclass(frozen=True)
class RunDirectory:
    """The files inside one run directory.

    Attributes:
        root: the run directory.
    """

    root: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.root / "config.yaml"

    @property
    def record(self) -> Path:
        """Versions, seeds, fingerprints and the states of the stages; see `xmtc.run.state`."""
        return self.root / "run.json"

    @property
    def metrics_log(self) -> Path:
        """What training logged."""
        return self.root / METRICS_LOG

    @property
    def ranking(self) -> Path:
        """Tokens by information gain, per label."""
        return self.root / "mig" / "ranking.safetensors"

    @property
    def scorers(self) -> Path:
        """The scorers that are fused with the head."""
        return self.root / "scorers"

    @property
    def planted(self) -> Path:
        """The planted head, from which stage 2 starts."""
        return self.root / "plant" / "head.safetensors"

    def checkpoints_of(self, stage: Stage) -> Path:
        """Return the folder with resumable state and best weights of a stage."""
        return (
            self.root / "plant" / "checkpoints"
            if stage is Stage.PLANT
            else self.root / "checkpoints"
        )

    def best_of(self, stage: Stage) -> Path:
        """Return the file with the weights of a stage's best epoch so far."""
        return self.checkpoints_of(stage) / "best.safetensors"

    @property
    def flight_recorder(self) -> Path:
        """What each rank had exchanged with others when an exchange failed."""
        return self.root / "flight_recorder"

    @property
    def model(self) -> Path:
        """The exported model."""
        return self.root / "model"

    def against_initial_model(
        self, which: Literal["before", "after"]
    ) -> "RunDirectory":
        """Return the folder with evaluations of the initial model or this run's, on the same documents and labels."""
        return RunDirectory(self.root / "start" / which)

    def evaluation(self, split: str) -> Path:
        """Return the folder with metrics, predictions and report of a split."""
        return self.root / "eval" / split

    def metrics(self, split: str) -> Path:
        """Return the path of a split's metrics."""
        return self.evaluation(split) / layout.METRICS

    def predictions(self, split: str) -> Path:
        """Return the path of a split's predictions."""
        return self.evaluation(split) / layout.PREDICTIONS

    def report(self, split: str) -> Path:
        """Return the path of a split's report."""
        return self.evaluation(split) / layout.REPORT

    def evaluated(self) -> list[str]:
        """List the splits that have been evaluated: dev, then test, then others by name."""
        found = sorted(
            path.parent.name for path in self.root.glob(f"eval/*/{layout.METRICS}")
        )
        return sorted(found, key=lambda split: _ORDER.get(split, len(_ORDER)))


@dataclass(frozen=True)
class RunPaths(RunDirectory):
    """A run directory and what its stages read: absolute, because workers run in other directories, and always local.

    Attributes:
        corpus: the corpus directory.
        initial_model: folder of the model that training continues from, or None.
        mirror: copies checkpoints of the run directory to its URI; None if it has none.
    """

    corpus: Path
    initial_model: Path | None = None
    mirror: "Mirror | None" = None

    def remove(self, folder: Path) -> None:
        """Delete a folder of the run directory, here and at its URI."""
        if self.mirror is not None:
            self.mirror.remove(folder.relative_to(self.root).as_posix())
        shutil.rmtree(folder, ignore_errors=True)

    @classmethod
    def of(cls, config: "RunConfig") -> "RunPaths":
        """Resolve the paths of a configuration against the working directory; those of URIs are their copies'."""
        storage, runs, corpus = (
            config.storage,
            config.track.directory,
            config.data.corpus,
        )
        return cls(
            storage.path("runs", f"{runs.rstrip('/')}/{config.name}")
            if is_remote(runs)
            else (Path(runs) / config.name).absolute(),
            storage.path("corpora", corpus)
            if is_remote(corpus)
            else Path(corpus).absolute(),
        )
