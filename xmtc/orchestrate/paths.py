"""Where the files of a run are."""

from dataclasses import dataclass
from pathlib import Path

from xmtc.config.schema import RunConfig


@dataclass(frozen=True)
class RunPaths:
    """Absolute, because workers run in directories of their own."""

    root: Path
    corpus: Path

    @classmethod
    def of(cls, config: RunConfig) -> "RunPaths":
        """The paths of a configuration, resolved against the working directory."""
        root = (Path(config.track.directory) / config.name).absolute()
        return cls(root, Path(config.data.corpus).absolute())

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
