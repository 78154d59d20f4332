"""The settings, starts and order of runs of docs/benchmarks/few_epochs.md."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planting_settings import CONFIGS, SCORERS, halves
from xmtc.config.load import load_config
from xmtc.models.heads.config import PlantedPart
from xmtc.run.config import RunConfig
from xmtc.training.config import PhaseConfig

START_PARTS: Mapping[str, tuple[PlantedPart, ...]] = {
    "random": (),
    "rows": ("rows",),
    "attention": ("attention", "rows"),
    "values": ("values", "rows"),
    "everything": ("attention", "values", "rows"),
}
"""What of the head is planted, by start. The start `chosen` is the one of the last four that dev chooses."""
FORMER_STARTS = ("diagonal", "everything_diagonal")
"""Rows, and everything, as they were planted until 2026-11-29: with a variance for each dimension instead of one
covariance. Their lines name the commit that made them; this one cannot."""
CHOSEN = "chosen"
EPOCHS = (1, 2, 4)
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Backbone:
    """A pretrained model, and how it trains.

    Attributes:
        name: for `model.encoder.name`; a name without a colon is a folder of the weights.
        learning_rate: peak rate of its topmost layer.
        tokens_per_micro_batch: padded tokens of one forward pass.
        dev_documents: documents of dev that an epoch is measured on.
        lora: settings of adapters; None if all weights train.
        dtype: of the stored weights.
    """

    name: str
    learning_rate: float
    tokens_per_micro_batch: int = 4096
    dev_documents: int = 300
    lora: Mapping[str, Any] | None = None
    dtype: str = "float32"

    def encoder(self, weights: Path) -> dict[str, Any]:
        """The section `model.encoder`.

        Args:
            weights: folder with the weights that tools/fetch wrote.
        """
        name = self.name if ":" in self.name else str(weights / self.name)
        return {
            "kind": "hugging_face",
            "name": name,
            "dtype": self.dtype,
            "lora": self.lora,
        }


LORA = {"r": 16, "alpha": 32, "dropout": 0.05, "target_modules": "all_linear"}
BACKBONES = {
    "minilm": Backbone("packaged:all-MiniLM-L6-v2", 2e-4),
    "mpnet": Backbone("encoder", 1e-4),
    "decoder": Backbone("decoder", 1e-3, 2048, 150, LORA, "bfloat16"),
}


@dataclass(frozen=True)
class Corpus:
    """Documents and the head that reads them.

    Attributes:
        base: configuration file with the source and the scorers' fields.
        head: width, heads and dropout of the label attention.
    """

    base: str
    head: Mapping[str, Any]


CORPORA = {
    "laws": Corpus(
        "eurlex57k_trained.yaml", {"width": 384, "heads": 6, "dropout": 0.2}
    ),
    "docstrings": Corpus("quickstart.yaml", {"width": 192, "heads": 4, "dropout": 0.1}),
}


@dataclass(frozen=True)
class Setting:
    """A backbone on a corpus.

    Attributes:
        backbone: key of `BACKBONES`.
        corpus: key of `CORPORA`.
        documents: training documents.
        dev: documents to calibrate, to choose a threshold and to choose parts on.
        test: documents to measure on.
        random_rate: peak learning rate of a head that starts at random.
        planted_rate: peak learning rate of a planted head.
    """

    backbone: str
    corpus: str
    documents: int
    dev: int
    test: int
    random_rate: float
    planted_rate: float


SETTINGS = {
    "minilm-laws": Setting("minilm", "laws", 2000, 1000, 1000, 1.5e-2, 6e-3),
    "minilm-docstrings": Setting("minilm", "docstrings", 2000, 500, 800, 1.5e-2, 4e-3),
    "decoder-docstrings": Setting("decoder", "docstrings", 600, 300, 500, 4e-3, 4e-3),
    "mpnet-laws": Setting("mpnet", "laws", 2000, 1000, 1000, 1.5e-2, 6e-3),
    "mpnet-docstrings": Setting("mpnet", "docstrings", 2000, 500, 800, 1.5e-2, 4e-3),
}


@dataclass(frozen=True)
class Cell:
    """One start with its own schedule.

    Attributes:
        setting: key of `SETTINGS`.
        start: key of `START_PARTS`, or `CHOSEN`.
        epochs: of its schedule.
    """

    setting: str
    start: str
    epochs: int


def _cells(
    settings: Sequence[str], starts: Sequence[str], epochs: Sequence[int]
) -> list[Cell]:
    cells = []
    for setting in settings:
        for count in epochs:
            cells += [Cell(setting, start, count) for start in starts]
    return cells


MINILM = ("minilm-laws", "minilm-docstrings")
MPNET = ("mpnet-laws", "mpnet-docstrings")
BLOCKS: Mapping[str, Sequence[Cell]] = {
    "a": _cells(MINILM[:1], ("random", "rows"), (1,)),
    "a1": [Cell("minilm-laws", "random", 2)],
    "b": _cells(("decoder-docstrings",), ("random", "rows"), (1,)),
    "a2": [Cell("minilm-laws", "rows", 2)],
    "b2": [
        Cell("decoder-docstrings", "everything", 1),
        Cell("decoder-docstrings", "random", 2),
    ],
    "c": [
        *_cells(MINILM[1:], ("random", "rows"), (1,)),
        Cell("minilm-docstrings", "random", 2),
    ],
    "c2": [Cell("minilm-docstrings", "rows", 2)],
    "d": [
        *_cells(MINILM, ("everything", CHOSEN), (1, 2)),
        Cell("decoder-docstrings", CHOSEN, 1),
    ],
    "e": _cells(MINILM, ("random", "rows", "everything", CHOSEN), (4,)),
    "b3": [
        *_cells(("decoder-docstrings",), ("rows", "everything", CHOSEN), (2,)),
        *_cells(
            ("decoder-docstrings",), ("random", "rows", "everything", CHOSEN), (4,)
        ),
    ],
    "f": [*_cells(MPNET, ("random", "rows"), (1,)), *_cells(MPNET, ("random",), (2,))],
    "f2": [
        *_cells(MPNET, ("rows",), (2,)),
        *_cells(MPNET, ("everything", CHOSEN), (1, 2)),
        *_cells(MPNET, ("random", "rows", "everything", CHOSEN), (4,)),
    ],
}
"""Cells in the order of their priority; within a block, seed by seed."""


def runs_of(blocks: Sequence[str]) -> Iterator[tuple[Cell, int]]:
    """Every cell of these blocks with every seed, in the order of the protocol."""
    for block in blocks:
        for seed in SEEDS:
            for cell in BLOCKS[block]:
                yield cell, seed


def setting_config(name: str, data: Path, weights: Path, work: Path) -> RunConfig:
    """The configuration that the cells of a setting share.

    Args:
        name: of the setting.
        data: folder with the data sets.
        weights: folder with what tools/fetch wrote.
        work: where halves of dev, corpora and runs go.
    """
    setting = SETTINGS[name]
    backbone = BACKBONES[setting.backbone]
    corpus = CORPORA[setting.corpus]
    overrides: dict[str, Any] = {
        "name": name,
        "data.corpus": str(work / "corpora" / name),
        "data.max_length": 128,
        "data.limit": {
            "train": setting.documents,
            "dev": setting.dev,
            "test": setting.test,
        },
        "track.directory": str(work / "runs"),
        "model.encoder": backbone.encoder(weights),
        "model.head": {"kind": "label_attention", **corpus.head},
        "model.scorers": SCORERS,
        "model.fusion.kind": "linear",
        "model.fusion.co_occurrence": False,
        "plant.cache_hidden": False,
        "finetune.loss": {"kind": "binary_cross_entropy"},
        "finetune.batch_size": 32,
        "finetune.tokens_per_micro_batch": backbone.tokens_per_micro_batch,
        "finetune.sampled_labels": None,
        "finetune.cache_hidden": False,
        "finetune.patience": 0,
        "finetune.dev_documents": backbone.dev_documents,
        "finetune.phases": [
            {
                "epochs": 1,
                "encoder_layers": -1,
                "encoder_learning_rate": backbone.learning_rate,
            }
        ],
        "distributed.threads": 1,
        "distributed.precision": "bf16",
    }
    if setting.corpus == "laws":
        folder = data / "eurlex57k"
        first, second = halves(folder / "dev.parquet", work / "dev" / "eurlex57k")
        overrides["data.source.files"] = {
            "train": str(folder / "train.parquet"),
            "dev": str(first),
            "test": str(second),
        }
        overrides["data.source.labels.path"] = str(folder / "labels.parquet")
    assignments = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    return load_config(RunConfig, CONFIGS / corpus.base, assignments)


def run_config(shared: RunConfig, start: str, epochs: int, seed: int) -> RunConfig:
    """The configuration of one run.

    Args:
        shared: of the setting, whose name it has.
        start: key of `START_PARTS`, or `CHOSEN`, with which dev chooses.
        epochs: of its complete schedule.
        seed: of the run.
    """
    (phase,) = shared.finetune.phases
    longer: PhaseConfig = replace(phase, epochs=epochs)
    parts = START_PARTS["everything" if start == CHOSEN else start]
    choose_documents = shared.plant.choose_documents if start == CHOSEN else 0
    setting = SETTINGS[shared.name]
    rate = setting.random_rate if start == "random" else setting.planted_rate
    return replace(
        shared,
        name=f"{shared.name}-{start}-{epochs}-{seed}",
        seed=seed,
        plant=replace(shared.plant, parts=parts, choose_documents=choose_documents),
        finetune=replace(
            shared.finetune,
            phases=(longer,),
            optimizer=replace(shared.finetune.optimizer, learning_rate=rate),
        ),
    )
