"""Estimate the seconds of each stage of a run from the size of the corpus and the speed of this machine.

The constants here are rough and have not been calibrated on an idle machine yet (docs/benchmarks/own_data.md).
"""

import math
from dataclasses import dataclass

from xmtc.estimate.probe import HeadSpeed, Speeds
from xmtc.models.poolings.pooling import FixedPoolings
from xmtc.run.config import RunConfig
from xmtc.run.directory import Stage
from xmtc.scorers.config import MAX_PAIRS, Load, Work
from xmtc.training.config import PlantConfig

_START_S = 8.0  # imports, and the first look at the corpus
_STAGE_S = 2.0  # the model is built again
_REPORT_S = 4.0
_USUAL_LAYERS = 6
_FORWARD = 1 / 3  # share of the forward pass in training; each of the two gradients takes as long
_FUSE_ITEMS = 90.0  # per candidate of a dev document and scorer: maps, regressions, and leaving each scorer out
_TREE_ITEMS = 1.2  # per candidate of a dev document and boosted tree
_BOOTSTRAP_ITEMS = 0.25  # per kept prediction and resample


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The size of a corpus, as far as time depends on it.

    Attributes:
        train, dev, test: number of documents.
        load: size of the scorers' task.
    """

    train: int
    dev: int
    test: int
    load: Load

    @property
    def documents(self) -> int:
        """Number of documents of all splits."""
        return self.train + self.dev + self.test


def stage_seconds(config: RunConfig, corpus: Corpus, speeds: Speeds, head: HeadSpeed | None) -> dict[str, float]:
    """Estimate the seconds of each stage of this run.

    Args:
        config: configuration of the run.
        corpus: size of the corpus.
        speeds: speeds of this machine; `encode_s` has `data.max_length` if the run encodes.
        head: times of the head, if there is one.
    """
    encode_s = speeds.encode_s.get(config.data.max_length, 0.0)
    found = {str(Stage.PREPARE): _START_S + corpus.documents * speeds.prepare_s * 1.3 / min(speeds.cores, 8)}
    needs_states = config.scores_states
    encoded = 0
    if config.model.scorers:
        encoded = (corpus.train + corpus.dev) * needs_states
        found[str(Stage.SCORERS)] = _STAGE_S + encoded * encode_s + _scorers(config, corpus, speeds)
    if head is not None:
        caches = not encoded and (config.plants or config.finetune.phases[0].encoder_layers == 0)
        found |= _training(config, corpus, head, (corpus.train + corpus.dev) * encode_s * caches)
        if config.trains_encoder:
            found[str(Stage.FINETUNE)] += _unfrozen(config, corpus, encode_s)
    found[str(Stage.EVALUATE)] = _evaluate(config, corpus, speeds, encode_s * (needs_states or head is not None), head)
    found[str(Stage.REPORT)] = _REPORT_S
    return found


def memory_of_scorers(config: RunConfig, corpus: Corpus) -> float:
    """Estimate the peak memory of fitting, in bytes; scorers are fitted one after another."""
    return max((one.work(corpus.load).bytes for one in config.model.scorers), default=0.0)


def disk_of_states(config: RunConfig, documents: int, tokens: float, width: int) -> float:
    """Estimate bytes of cached hidden states, or of their poolings if nothing else is read.

    Args:
        config: configuration of the run.
        documents: number of documents of train and dev.
        tokens: mean tokens of a document, truncated to `data.max_length`.
        width: width of the encoder.
    """
    plant, finetune = config.plants and config.plant.cache_hidden, config.finetune
    trained = plant or (finetune.cache_hidden and finetune.phases[0].encoder_layers == 0)
    if not (trained if config.model.head.scores else config.scores_states):
        return 0.0
    vectors = tokens if config.reads_tokens else FixedPoolings.count
    return documents * vectors * width * (2 if config.distributed.precision == "bf16" else 4)


def in_words(seconds: float) -> str:
    """Format a time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _seconds(work: Work, documents: int, speeds: Speeds) -> tuple[float, float]:
    """Estimate seconds to fit, and to score this many documents."""
    fit = work.fit_products / speeds.products + work.fit_items / speeds.items
    return fit, documents * (work.score_products / speeds.products + work.score_items / speeds.items)


def _scorers(config: RunConfig, corpus: Corpus, speeds: Speeds) -> float:
    """Estimate seconds to fit all scorers, score dev with all, and fit the fusion several times."""
    parts = [_seconds(one.work(corpus.load), corpus.dev, speeds) for one in config.model.scorers]
    return (
        sum(fit + score for fit, score in parts)
        + _linear_fusion(config, corpus.dev, speeds)
        + _resampling(config, corpus.dev, speeds)
    )


def _pairs(config: RunConfig, documents: int) -> tuple[int, float]:
    """Return the number of fused scores of a candidate, and of candidates."""
    scorers = len(config.model.scorers) + config.model.head.scores
    candidates = documents * config.model.fusion.candidates * (1 + 0.5 * (scorers - 1))
    return scorers + config.model.fusion.co_occurrence, candidates


def _linear_fusion(config: RunConfig, documents: int, speeds: Speeds) -> float:
    if not config.model.scorers:
        return 0.0
    scorers, pairs = _pairs(config, documents)
    return _FUSE_ITEMS * pairs * scorers * (scorers + 1) / 4 / speeds.items


def _boosted_fusion(config: RunConfig, corpus: Corpus, speeds: Speeds) -> float:
    fusion = config.model.fusion
    if not config.model.scorers or not fusion.tries_trees(corpus.dev * corpus.load.labels_a_document):
        return 0.0
    scorers, pairs = _pairs(config, corpus.dev)
    fits = 3.5 + scorers  # to choose the kind, for dev, for the model, and without each scorer
    return _TREE_ITEMS * min(pairs, MAX_PAIRS) * fusion.trees * fits / speeds.items


def _resampling(config: RunConfig, documents: int, speeds: Speeds) -> float:
    kept = min(config.evaluate.top_k, 50)
    return _BOOTSTRAP_ITEMS * documents * kept * config.evaluate.resamples / speeds.items / 10


def _training(config: RunConfig, corpus: Corpus, head: HeadSpeed, encoding_s: float) -> dict[str, float]:
    """Estimate seconds of planting and fine-tuning on cached states, plus phases that train the encoder."""
    found: dict[str, float] = {}
    if config.plants:
        found[str(Stage.PLANT)] = _STAGE_S + encoding_s + _planting(config.plant, corpus.train, head)
        encoding_s = 0.0
    tune = config.finetune
    epochs = sum(phase.epochs for phase in tune.phases)
    scored = min(corpus.dev, tune.dev_documents or corpus.dev) * epochs * head.score_s
    training = _epochs(epochs, tune.batch_size, corpus.train, head)
    found[str(Stage.FINETUNE)] = _STAGE_S + encoding_s + training + scored
    return found


def _planting(plant: PlantConfig, documents: int, head: HeadSpeed) -> float:
    """Estimate seconds of the head: the epochs of stage 1, and a forward pass for prototypes."""
    prototypes = plant.prototypes * documents * head.train_s * _FORWARD
    return _epochs(plant.epochs, plant.batch_size, documents, head) + prototypes


def _unfrozen(config: RunConfig, corpus: Corpus, encode_s: float) -> float:
    """Estimate seconds of the encoder in phases that train it; a layer's two gradients each take as long as forward."""
    dev = min(corpus.dev, config.finetune.dev_documents or corpus.dev)
    encoded = 0.0
    for phase in config.finetune.phases:
        if phase.encoder_layers != 0:
            share = 1.0 if phase.encoder_layers < 0 else min(1.0, phase.encoder_layers / _USUAL_LAYERS)
            encoded += phase.epochs * ((1 + 2 * share) * corpus.train + dev)
    return encoded * encode_s


def _epochs(epochs: int, batch_size: int, documents: int, head: HeadSpeed) -> float:
    steps = math.ceil(documents / batch_size)
    return epochs * (documents * head.train_s + steps * head.step_s)


def _evaluate(config: RunConfig, corpus: Corpus, speeds: Speeds, encode_s: float, head: HeadSpeed | None) -> float:
    """Estimate seconds to score dev and test, fuse, measure and export."""
    scored = corpus.dev + corpus.test
    encoded = corpus.test + corpus.dev * config.trains_encoder  # a frozen encoder's states of dev are on disk
    seconds = _STAGE_S + encoded * encode_s + (0.0 if head is None else scored * head.score_s)
    for one in config.model.scorers:
        seconds += _seconds(one.work(corpus.load), scored, speeds)[1]
    seconds += _linear_fusion(config, corpus.dev, speeds) + _boosted_fusion(config, corpus, speeds)
    return seconds + _resampling(config, scored, speeds)
