"""The settings and arms of docs/benchmarks/planting.md as configurations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from signal_controls import ExchangedConfig
from xmtc.config.load import load_config
from xmtc.files import replacing_file
from xmtc.models.heads.config import PlantedPart
from xmtc.planting.mig.config import (
    ChiSquaredConfig,
    PointwiseConfig,
    SignalConfig,
    TfIdfConfig,
)
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig

CONFIGS = Path(__file__).parents[2] / "configs"
PUBLISHED = CONFIGS / "plant_published.yaml"
DEV_DOCUMENTS = 3000
"""Of EURLEX57K, in two halves."""

BINS = ("1-5", "6-10", "11-50", ">50")
SEEDS = 5
ORDER = ("random_long", "planted_attention", "prototypes", "planted", "shuffled")
"""The arms of the planned comparisons."""
PARTS = ("random_long", "planted_attention", "prototypes", "planted", "prototypes_long")
"""What the two parts of planting do, each by itself and together."""
SIGNALS: dict[str, SignalConfig] = {
    "tfidf": TfIdfConfig(),
    "pmi": PointwiseConfig(),
    "chi2": ChiSquaredConfig(),
}
STAGE_1 = ("stage1_1", "stage1_20")
RECIPES = ("published", "published_random")
CLOSED = (
    "prototypes",
    "planted",
    "closed",
    "closed_attention",
    "closed_values",
    "closed_half",
    "chosen",
)
"""The arms of the study of planting in closed form."""
QUESTIONS = ("random", "shuffled", "common_only", *STAGE_1)
SCORERS = [
    {"kind": "linear", "penalty": 0.1, "prune": 0.2},
    {"kind": "word_neighbours"},
]


@dataclass(frozen=True)
class Arm:
    """How a run differs from the others of its setting.

    Attributes:
        epochs: of stage 1; None for the setting's, 0 for none.
        closed: the parts that are planted in closed form, besides rows.
        chosen: whether dev chooses among these parts.
        prototypes: whether classifier rows start at prototypes.
        longer: whether stage 2 also has the epochs of stage 1.
        half: whether stage 2 has half the epochs.
        published: whether the sections of `plant_published.yaml` apply.
        signal: that ranks tokens, if it is not information gain.
    """

    epochs: int | None = None
    closed: frozenset[PlantedPart] = frozenset()
    chosen: bool = False
    prototypes: bool = False
    longer: bool = False
    half: bool = False
    published: bool = False
    signal: SignalConfig | None = None


ARMS = {
    "random": Arm(epochs=0),
    "random_long": Arm(epochs=0, longer=True),
    "prototypes": Arm(epochs=0, prototypes=True),
    "prototypes_long": Arm(epochs=0, prototypes=True, longer=True),
    "planted_attention": Arm(),
    "planted": Arm(prototypes=True),
    "shuffled": Arm(signal=ExchangedConfig()),
    **{name: Arm(signal=signal) for name, signal in SIGNALS.items()},
    "published": Arm(published=True),
    "published_random": Arm(epochs=0, longer=True, published=True),
    "closed": Arm(0, frozenset({"attention", "values"}), prototypes=True),
    "chosen": Arm(0, frozenset({"attention", "values"}), chosen=True, prototypes=True),
    "closed_attention": Arm(0, frozenset({"attention"}), prototypes=True),
    "closed_values": Arm(0, frozenset({"values"}), prototypes=True),
    "closed_half": Arm(
        0, frozenset({"attention", "values"}), prototypes=True, half=True
    ),
    "closed_shuffled": Arm(
        0, frozenset({"attention", "values"}), prototypes=True, signal=ExchangedConfig()
    ),
    "common_only": Arm(),  # the study takes rare labels out of the ranking
    **{name: Arm(epochs=int(name.removeprefix("stage1_"))) for name in STAGE_1},
}


@dataclass(frozen=True)
class Setting:
    """Data, encoder and number of training documents, and the arms that are compared there.

    Attributes:
        base: configuration file.
        data: folder of the data set.
        documents: training documents; None for all.
        arms: in the order in which they run.
        epochs: of stage 1.
        columns: of the data set's files, if they are not those of the base.
        max_length: of documents, if it is not that of the base.
    """

    base: str
    data: str
    documents: int | None
    arms: Sequence[str]
    epochs: int = 5
    columns: Mapping[str, Any] | None = None
    max_length: int | None = None


def _eurlex(documents: int | None, arms: Sequence[str]) -> Setting:
    return Setting("eurlex57k_attention.yaml", "eurlex57k", documents, arms)


def _trained(documents: int) -> Setting:
    """The encoder trains from the second epoch on."""
    return Setting(
        "eurlex57k_trained.yaml",
        "eurlex57k",
        documents,
        ("random", "prototypes", "chosen"),
    )


SETTINGS = {
    "q": Setting("quickstart.yaml", "quickstart", None, (*CLOSED, "closed_shuffled")),
    "c": Setting(
        "eurlex57k_attention.yaml",
        "codiesp",
        None,
        CLOSED,
        columns={"id": "doc_id", "text": "text"},
        max_length=510,
    ),
    "b": _eurlex(2000, (*ORDER, "random", "prototypes_long", *CLOSED[2:])),
    "a1": Setting(
        "eurlex57k_bigru.yaml",
        "eurlex57k",
        2000,
        (*ORDER, "random", *SIGNALS, *CLOSED[2:]),
        epochs=3,
    ),
    "g250": _eurlex(250, (*PARTS, *RECIPES, *CLOSED[2:])),
    "g500": _eurlex(500, (*PARTS, *QUESTIONS, *CLOSED[2:])),
    "l16000": _eurlex(16_000, ("prototypes", "chosen")),
    "l45000": _eurlex(None, ("random", "prototypes", "chosen")),
    "t2000": _trained(2000),
    "t16000": _trained(16_000),
    "l500": replace(_eurlex(500, ("prototypes", "chosen")), max_length=1024),
    "n": Setting(
        "eurlex57k_attention.yaml",
        "gnd_tib",
        4000,
        ("prototypes", "chosen"),
        max_length=64,
    ),
    "d": Setting("mimic4_layout_minilm.yaml", "mimic4_layout", None, PARTS, epochs=4),
}


def setting_config(name: str, data: Path, work: Path) -> RunConfig:
    """The configuration that the arms of a setting share.

    Args:
        name: of the setting.
        data: folder with the data sets.
        work: where halves of dev, corpora and runs go.
    """
    setting = SETTINGS[name]
    corpus = f"{setting.data}-{setting.documents}-{Path(setting.base).stem}-{setting.max_length}"
    overrides = {
        "name": name,
        "data.corpus": str(work / "corpora" / corpus),
        "track.directory": str(work / "runs"),
        "model.scorers": SCORERS,
        "model.fusion.kind": "linear",
        "model.fusion.co_occurrence": False,
        "plant.method": "ranking",
        "plant.epochs": setting.epochs,
        "plant.patience": 0,
        "plant.optimizer.learning_rate": 2e-3
        if setting.data == "mimic4_layout"
        else 3e-3,
        "plant.loss": {"kind": "listnet"},
        "finetune.patience": 0,
        "distributed.threads": 1,
        "distributed.precision": "bf16",
    }
    folder = data / setting.data
    if setting.data == "quickstart":
        overrides |= {"finetune.dev_documents": 300}
    elif setting.data == "mimic4_layout":
        overrides |= {"data.source.directory": str(folder), "plant.batch_size": 16}
    else:
        first, second = halves(folder / "dev.parquet", work / "dev" / setting.data)
        files = {
            "train": str(folder / "train.parquet"),
            "dev": str(first),
            "test": str(second),
        }
        overrides |= {
            "data.source.files": files,
            "data.source.labels.path": str(folder / "labels.parquet"),
        }
        overrides |= {"data.limit.train": setting.documents, "data.limit.dev": None}
        if setting.columns is not None:
            overrides |= {"data.source.columns": setting.columns}
        if setting.max_length is not None:
            overrides |= {"data.max_length": setting.max_length}
    return load_config(
        RunConfig,
        CONFIGS / setting.base,
        [f"{key}={json.dumps(v)}" for key, v in overrides.items()],
    )


def halves(dev: Path, folder: Path) -> tuple[Path, Path]:
    """Files with two halves of `DEV_DOCUMENTS` documents of dev: to choose on, and to measure on."""
    paths = folder / "choose.parquet", folder / "measure.parquet"
    table = pq.read_table(dev)
    chosen = np.random.default_rng(7).permutation(table.num_rows)[:DEV_DOCUMENTS]
    for path, rows in zip(paths, np.array_split(chosen, 2), strict=True):
        if not path.exists():
            with replacing_file(path) as partial:
                pq.write_table(table.take(np.sort(rows)), partial)
    return paths


def arm_config(shared: RunConfig, setting: str, name: str, seed: int) -> RunConfig:
    """The configuration of one run.

    Args:
        shared: of the setting.
        setting: its name.
        name: of the arm.
        seed: of the run.
    """
    arm, config = (
        ARMS[name],
        replace(shared, name=f"{setting}-{name}-{seed}", seed=seed),
    )
    if arm.published:
        config = _published(config, SETTINGS[setting])
    if arm.longer:
        config = _longer(config)
    signal = arm.signal or config.mig.signal
    if isinstance(signal, ExchangedConfig):
        signal = replace(signal, seed=seed)
    if arm.half:
        phases = tuple(
            replace(phase, epochs=-(-phase.epochs // 2))
            for phase in config.finetune.phases
        )
        config = replace(config, finetune=replace(config.finetune, phases=phases))
    epochs = arm.epochs
    if epochs is None:
        epochs = planting_plan(config.model, config.plant).ranking_epochs
    plant = replace(
        config.plant,
        method="ranking" if epochs else "closed_form",
        epochs=epochs or None,
        choose_documents=config.plant.choose_documents if arm.chosen else 0,
        parts=(
            *arm.closed,
            *(("attention",) if epochs else ()),
            *(("rows",) if arm.prototypes else ()),
        ),
    )
    return replace(config, plant=plant, mig=replace(config.mig, signal=signal))


def _longer(config: RunConfig) -> RunConfig:
    """The epochs of stage 1 go to the first phase of stage 2."""
    first, *others = config.finetune.phases
    stage_1 = planting_plan(config.model, config.plant).ranking_epochs
    first = replace(first, epochs=first.epochs + stage_1)
    return replace(config, finetune=replace(config.finetune, phases=(first, *others)))


def _published(config: RunConfig, setting: Setting) -> RunConfig:
    """The sections that `plant_published.yaml` gives, over the setting's own."""
    tree = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    found = load_config(
        RunConfig,
        CONFIGS / setting.base,
        [
            f"{section}={json.dumps(tree[section])}"
            for section in ("mig", "plant", "finetune")
        ],
    )
    plant, finetune = (
        replace(found.plant, patience=0),
        replace(found.finetune, patience=0),
    )
    return replace(config, mig=found.mig, plant=plant, finetune=finetune)
