"""Where the files of a run are."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from xmtc.evaluate import layout
from xmtc.run.stage import Stage
from xmtc.storage.config import StorageConfig
from xmtc.storage.uri import is_remote
from xmtc.track.layout import METRICS_LOG

if TYPE_CHECKING:
    from xmtc.run.config import RunConfig
    from xmtc.storage.mirror import Mirror

_ORDER = {"dev": 0, "test": 1}


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
        return self.root / "plant" / "checkpoints" if stage is Stage.PLANT else self.root / "checkpoints"

    @property
    def model(self) -> Path:
        """The exported model."""
        return self.root / "model"

    def against_initial_model(self, which: Literal["before", "after"]) -> "RunDirectory":
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
        found = sorted(path.parent.name for path in self.root.glob(f"eval/*/{layout.METRICS}"))
        return sorted(found, key=lambda split: _ORDER.get(split, len(_ORDER)))


@dataclass(frozen=True)
class RunPaths(RunDirectory):
    """A run directory and its corpus: absolute, because workers run in other directories, and always local.

    Attributes:
        corpus: the corpus directory.
        root_uri, corpus_uri: the URIs that these are copies of, or None.
        storage: where copies are kept.
        init_from: the model that training continues from, as every node finds it, or None.
    """

    corpus: Path
    root_uri: str | None = None
    corpus_uri: str | None = None
    storage: StorageConfig = field(default_factory=StorageConfig)
    init_from: str | None = None

    @classmethod
    def of(cls, config: "RunConfig") -> "RunPaths":
        """Resolve the paths of a configuration against the working directory."""
        storage, runs, corpus = config.storage, config.track.directory, config.data.corpus
        root_uri = f"{runs.rstrip('/')}/{config.name}" if is_remote(runs) else None
        corpus_uri = corpus if is_remote(corpus) else None
        start = config.model.init_from
        return cls(
            storage.path("runs", root_uri) if root_uri else (Path(runs) / config.name).absolute(),
            storage.path("corpora", corpus_uri) if corpus_uri else Path(corpus).absolute(),
            root_uri,
            corpus_uri,
            storage,
            str(Path(start).absolute()) if start is not None and Path(start).exists() else start,
        )

    @property
    def mirror(self) -> "Mirror":
        """Keeps the run directory and its URI the same, if it has one."""
        from xmtc.storage.mirror import Mirror

        return Mirror(self.root, self.storage.remote(self.root_uri) if self.root_uri else None)

    @property
    def corpus_mirror(self) -> "Mirror":
        """Keeps the corpus and its URI the same, if it has one."""
        from xmtc.storage.mirror import Mirror

        return Mirror(self.corpus, self.storage.remote(self.corpus_uri) if self.corpus_uri else None)
