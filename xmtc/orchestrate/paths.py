"""Where the files of a run are."""

from dataclasses import dataclass, field
from pathlib import Path

from xmtc.config.schema import RunConfig
from xmtc.storage import Mirror, StorageConfig, is_remote


@dataclass(frozen=True)
class RunPaths:
    """Absolute, because workers run in directories of their own; local, whatever the configuration says.

    Attributes:
        root: the run directory.
        corpus: the corpus directory.
        root_uri, corpus_uri: what these are copies of, or None.
        storage: where copies are kept.
    """

    root: Path
    corpus: Path
    root_uri: str | None = None
    corpus_uri: str | None = None
    storage: StorageConfig = field(default_factory=StorageConfig)

    @classmethod
    def of(cls, config: RunConfig) -> "RunPaths":
        """The paths of a configuration, resolved against the working directory."""
        storage, runs, corpus = config.storage, config.track.directory, config.data.corpus
        root_uri = f"{runs.rstrip('/')}/{config.name}" if is_remote(runs) else None
        corpus_uri = corpus if is_remote(corpus) else None
        return cls(
            storage.path("runs", root_uri) if root_uri else (Path(runs) / config.name).absolute(),
            storage.path("corpora", corpus_uri) if corpus_uri else Path(corpus).absolute(),
            root_uri,
            corpus_uri,
            storage,
        )

    @property
    def mirror(self) -> Mirror:
        """Keeps the run directory and its URI the same, where it has one."""
        return Mirror(self.root, self.storage.remote(self.root_uri) if self.root_uri else None)

    @property
    def corpus_mirror(self) -> Mirror:
        """Likewise the corpus."""
        return Mirror(self.corpus, self.storage.remote(self.corpus_uri) if self.corpus_uri else None)

    @property
    def ranking(self) -> Path:
        """Tokens by information gain, per label."""
        return self.root / "mig" / "ranking.safetensors"

    @property
    def lexical(self) -> Path:
        """The lexical branch."""
        return self.root / "mig" / "lexical.safetensors"

    @property
    def planted(self) -> Path:
        """The head after stage 1."""
        return self.root / "plant" / "head.safetensors"

    def checkpoints_of(self, stage: str) -> Path:
        """Resumable state and best weights of a stage."""
        return self.root / "plant" / "checkpoints" if stage == "plant" else self.root / "checkpoints"

    @property
    def model(self) -> Path:
        """The exported model."""
        return self.root / "model"

    def evaluation(self, split: str) -> Path:
        """Metrics and predictions of a split."""
        return self.root / "eval" / split

    def evaluated(self) -> list[str]:
        """The splits that have been evaluated: dev, then test."""
        return [split for split in ("dev", "test") if (self.evaluation(split) / "metrics.json").exists()]
