"""The settings and arms of docs/benchmarks/planting_protocol.md as configurations."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import yaml

from xmtc.config.load import load_config
from xmtc.files import replacing
from xmtc.mig.config import ChiSquaredConfig, ExchangedConfig, PointwiseConfig, SignalConfig, TfIdfConfig
from xmtc.run.config import RunConfig

CONFIGS = Path(__file__).parents[1] / "configs"
PUBLISHED = CONFIGS / "plant_published.yaml"
DEV_DOCUMENTS = 3000
"""Of EURLEX57K and of GND, in two halves."""

ORDER = ("random_long", "planted_attention", "prototypes", "planted", "shuffled")
"""The arms of the planned comparisons, which run first in every setting."""
PARTS = ("random_long", "planted_attention", "prototypes", "planted", "prototypes_long")
SIGNALS: dict[str, SignalConfig] = {"tfidf": TfIdfConfig(), "pmi": PointwiseConfig(), "chi2": ChiSquaredConfig()}
STAGE_1 = ("stage1_1", "stage1_10", "stage1_20")
FEW = (*PARTS, "published", "published_random", "random", "shuffled", "common_only", *STAGE_1)
SCORERS = [{"kind": "linear", "penalties": [0.1], "prune": 0.2}, {"kind": "word_neighbours"}]
GND_SCORERS = [
    {"kind": "linear", "penalties": [0.5], "prune": 0.3, "most_terms": 10_000},
    {"kind": "word_neighbours"},
]
TOP_TWO = [{"epochs": 5}, {"epochs": 5, "encoder_layers": 2, "learning_rate": 1e-3, "encoder_learning_rate": 2e-5}]
ALL_LAYERS = [{"epochs": 5}, {"epochs": 5, "encoder_layers": -1, "learning_rate": 1e-3, "encoder_learning_rate": 2e-5}]


@dataclass(frozen=True)
class Setting:
    """Data, encoder and number of training documents, and the arms that are compared there.

    Attributes:
        base: configuration file.
        data: folder of the data set.
        documents: training documents; None for all.
        arms: in the order in which they run.
        epochs: of stage 1.
        phases: of stage 2, where they differ from the base's.
    """

    base: str
    data: str
    documents: int | None
    arms: Sequence[str]
    epochs: int = 5
    phases: list[dict[str, float]] | None = None


def _eurlex(documents: int, arms: Sequence[str], phases: list[dict[str, float]] | None = None) -> Setting:
    return Setting("eurlex57k_attention.yaml", "eurlex57k", documents, arms, phases=phases)


def _bigru(documents: int, arms: Sequence[str]) -> Setting:
    return Setting("eurlex57k_bigru.yaml", "eurlex57k", documents, arms, epochs=3)


SETTINGS = {
    "b": _eurlex(2000, (*ORDER, "random", "prototypes_long")),
    "a1": _bigru(2000, (*ORDER, "random", *SIGNALS, "k10", "k100")),
    **{f"f{size}": _eurlex(size, ("random_long", "planted")) for size in (250, 500)},
    "g250": _eurlex(250, PARTS),
    "g500": _eurlex(500, FEW),
    "d": Setting("mimic4_layout_minilm.yaml", "mimic4_layout", None, PARTS, epochs=4),
    "e": Setting("eurlex57k_attention.yaml", "gnd_tib", 4000, ORDER),
    **{f"f{size}": _eurlex(size, ("random_long", "planted")) for size in (1000, 4000, 8000, 16000)},
    "a2": _bigru(8000, ("random_long", "prototypes", "planted_attention", "shuffled")),
    "c1": _eurlex(2000, ("random_long", "planted_attention", "planted", "shuffled"), TOP_TWO),
    "c2": _eurlex(2000, ("random_long", "planted"), ALL_LAYERS),
}
"""In the order in which they run; the protocol says which were not run."""


def setting_config(name: str, data: Path, work: Path) -> RunConfig:
    """The configuration that the arms of a setting share.

    Args:
        name: of the setting.
        data: folder with the data sets.
        work: where halves of dev, corpora and runs go.
    """
    setting = SETTINGS[name]
    scorers = GND_SCORERS if setting.data == "gnd_tib" else SCORERS
    overrides = {
        "name": name,
        "data.corpus": str(work / "corpora" / f"{setting.data}-{setting.documents}-{Path(setting.base).stem}"),
        "track.directory": str(work / "runs"),
        "model.scorers": scorers,
        "model.fusion.kind": "linear",
        "model.fusion.co_occurrence": False,
        "plant.epochs": setting.epochs,
        "plant.patience": 0,
        "plant.optimizer.learning_rate": 2e-3 if setting.data == "mimic4_layout" else 3e-3,
        "plant.loss": {"kind": "listnet"},
        "finetune.patience": 0,
        "distributed.threads": 1,
        "distributed.precision": "bf16",
    }
    if setting.phases:
        overrides["finetune.phases"] = setting.phases
    folder = data / setting.data
    if setting.data == "mimic4_layout":
        overrides["data.source.directory"] = str(folder)
    else:
        first, second = halves(folder / "dev.parquet", work / "dev" / setting.data)
        files = {"train": str(folder / "train.parquet"), "dev": str(first), "test": str(second)}
        overrides |= {"data.source.files": files, "data.source.labels.path": str(folder / "labels.parquet")}
        overrides |= {"data.limit.train": setting.documents, "data.limit.dev": None}
    return load_config(RunConfig, CONFIGS / setting.base, [f"{key}={json.dumps(v)}" for key, v in overrides.items()])


def halves(dev: Path, folder: Path) -> tuple[Path, Path]:
    """Files with two halves of `DEV_DOCUMENTS` documents of dev: to choose on, and to measure on."""
    paths = folder / "choose.parquet", folder / "measure.parquet"
    table = pq.read_table(dev)
    chosen = np.random.default_rng(7).permutation(table.num_rows)[:DEV_DOCUMENTS]
    for path, rows in zip(paths, np.array_split(chosen, 2), strict=True):
        if not path.exists():
            with replacing(path) as partial:
                pq.write_table(table.take(np.sort(rows)), partial)
    return paths


def arm_config(shared: RunConfig, setting: str, arm: str, seed: int) -> RunConfig:
    """The configuration of one run."""
    config = replace(shared, name=f"{setting}-{arm}-{seed}", seed=seed)
    if arm.startswith("published"):
        config = _published(config, SETTINGS[setting])
    signals = SIGNALS | {"shuffled": ExchangedConfig(seed=seed)}
    if arm in signals:
        config = replace(config, mig=replace(config.mig, signal=signals[arm]))
    elif arm.startswith("k"):
        config = replace(config, mig=replace(config.mig, top_k=int(arm[1:])))
    if arm.endswith("_long") or arm == "published_random":
        config = _longer(config)
    if arm.startswith("stage1_"):
        epochs = int(arm.removeprefix("stage1_"))
    else:
        epochs = 0 if arm.startswith("prototypes") else config.plant.epochs
    prototypes = arm.startswith("prototypes") or arm == "planted"
    plant = replace(config.plant, epochs=epochs, prototypes=prototypes, enabled="random" not in arm)
    return replace(config, plant=plant)


def _longer(config: RunConfig) -> RunConfig:
    """The epochs of stage 1 go to the first phase of stage 2."""
    first, *others = config.finetune.phases
    first = replace(first, epochs=first.epochs + config.plant.epochs)
    return replace(config, finetune=replace(config.finetune, phases=(first, *others)))


def _published(config: RunConfig, setting: Setting) -> RunConfig:
    """The sections that `plant_published.yaml` gives, over the setting's own."""
    tree = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    found = load_config(
        RunConfig,
        CONFIGS / setting.base,
        [f"{section}={json.dumps(tree[section])}" for section in ("mig", "plant", "finetune")],
    )
    plant, finetune = replace(found.plant, patience=0), replace(found.finetune, patience=0)
    return replace(config, mig=found.mig, plant=plant, finetune=finetune)
