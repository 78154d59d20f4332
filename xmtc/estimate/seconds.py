"""Estimate the seconds of each stage of a run.

`figures.json` has seconds of one core for a unit of each part, measured on one machine. A unit such as
`terms * labels` is a product of sizes. `core_seconds` says how fast this machine is beside that one, and encoder and
head are measured here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from joblib import cpu_count

from xmtc.config.plain import to_plain
from xmtc.estimate.probe import HeadSpeed, gain
from xmtc.estimate.size import Size
from xmtc.files import read_json
from xmtc.fusion.boosted import MAX_PAIRS, TREES
from xmtc.fusion.cross_fit import MOST_AT_ONCE
from xmtc.fusion.fusion import LEAST_FOR_TREES
from xmtc.planting.config import PlantConfig
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.directory import Stage
from xmtc.scorers.config import ScorerSettings

_NAME_TOKENS = 8  # of a name, special ones included
_FIGURES: dict[str, Any] = read_json(Path(__file__).with_name("figures.json"))
_FORWARD = 1 / 3  # share of the forward pass in training; each of the two gradients takes as long
_USUAL_LAYERS = 6


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """What was measured on this machine for a run.

    Attributes:
        core_s: result of `core_seconds`.
        encode_s: by `data.max_length`, seconds to encode the mean document.
        train_s: the same for a forward and a backward pass through the whole encoder; empty if no run trains it.
        head: times of the head; None without a head.
    """

    core_s: float
    encode_s: Mapping[int, float]
    head: HeadSpeed | None
    train_s: Mapping[int, float] = field(default_factory=dict)


def stage_seconds(config: RunConfig, size: Size, speeds: Speeds, width: int) -> dict[str, float]:
    """Estimate the seconds of each stage on an idle machine.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        speeds: speeds of this machine.
        width: D, width of the encoder.
    """
    return _Stages(config, size, speeds, width).seconds()


def not_measured(config: RunConfig) -> list[str]:
    """List the scorers that take time which no figure tells: those of other packages."""
    return [scorer.kind for scorer in config.model.scorers if scorer.kind not in _FIGURES["scorers"]]


def scorer_bytes(config: RunConfig, size: Size, width: int) -> float:
    """Estimate the peak memory of fitting; scorers are fitted one after another."""
    sizes = (_sizes(to_plain(one), size, width, config.data.words.most_terms) for one in config.model.scorers)
    parts = (_of_scorer(one.kind, "bytes") for one in config.model.scorers)
    return max((_sum(part, given) for part, given in zip(parts, sizes, strict=True)), default=0.0)


def in_words(seconds: float) -> str:
    """Format a time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _of_scorer(kind: str, part: str) -> dict[str, float]:
    """Return the figures of a scorer; none for one that another package adds."""
    return _FIGURES["scorers"].get(kind, {}).get(part, {})


def _sum(figures: Mapping[str, float], sizes: Mapping[str, float]) -> float:
    """Add the units, each a product of sizes, times their figures."""
    return sum(each * math.prod(sizes[name] for name in unit.split(" * ")) for unit, each in figures.items())


def _sizes(settings: Mapping[str, Any], size: Size, width: int, most_terms: int) -> dict[str, float]:
    """Compute the sizes that units of scorers name.

    Args:
        settings: settings of the scorer.
        size: size of the corpus.
        width: D, width of the encoder.
        most_terms: number of terms that preparation keeps.
    """
    terms = max(1, min(size.terms(most_terms), settings.get("most_terms", most_terms)))
    smaller = min(terms, size.train)
    branches = min(100, size.labels)
    return {
        "documents": size.train,
        "searched": size.train if size.train <= 200_000 else 32 * size.train**0.5,  # beyond, in inverted lists
        "labels": size.labels,
        "labels_at_once": min(size.labels, 512),  # of the linear scorer
        "labels_per_document": size.labels_per_document,
        "words": size.words,
        "width": width,
        "terms": terms,
        "size": smaller,
        "size_per_term": smaller / terms,
        "kept_per_term": min(1.0, 400 * max(size.train * size.labels_per_document / max(size.labels, 1), 1) / terms),
        "dual": smaller < terms,
        "trees": settings.get("trees", 1),
        "branches": branches,
        "leaves": size.labels / branches if size.labels > branches else 0.0,
    }


@dataclass(frozen=True)
class _Stages:
    """The estimate of one run."""

    config: RunConfig
    size: Size
    speeds: Speeds
    width: int

    def seconds(self) -> dict[str, float]:
        """Estimate all stages."""
        config, size, head = self.config, self.size, self.speeds.head
        documents = {"documents": size.train + size.dev + size.test, "words": size.words}
        found = {str(Stage.PREPARE): _FIGURES["start"] + self._core("prepare", documents) / min(cpu_count(), 8)}
        encoding_s = (size.train + size.dev) * self._encode_s
        if config.model.scorers:
            encoded = encoding_s * config.scores_states + self._names_s
            fitted = self._scorers("fit") + size.dev * self._scorers("score") + self._fusion()
            found[str(Stage.SCORERS)] = _FIGURES["stage"] + encoded + fitted
            encoding_s = 0.0 if config.scores_states and config.caches_states else encoding_s
        if head is not None:
            found |= self._training(head, encoding_s * config.caches_states)
        if config.refits_scorers:
            states = [scorer for scorer in config.model.scorers if "states" in scorer.needs]
            found[str(Stage.REFIT)] = _FIGURES["stage"] + size.train * self._encode_s + self._names_s
            found[str(Stage.REFIT)] += self._scorers("fit", states)
        found[str(Stage.EVALUATE)] = self._evaluate(head)
        found[str(Stage.REPORT)] = _FIGURES["report"]
        return found

    @property
    def _encode_s(self) -> float:
        return self.speeds.encode_s.get(self.config.data.max_length, 0.0)

    @property
    def _names_s(self) -> float:
        """Seconds in which the names of labels are encoded, if a scorer needs that."""
        needed = any("label_states" in one.needs for one in self.config.model.scorers)
        return needed * self.size.labels * _NAME_TOKENS / self.config.data.max_length * self._encode_s

    def _core(self, part: str, sizes: Mapping[str, float]) -> float:
        """Estimate seconds of a part that runs on one core."""
        return _sum(_FIGURES[part], sizes) * self.speeds.core_s / _FIGURES["core_s"]

    def _scorers(self, part: str, scorers: Sequence[ScorerSettings] | None = None) -> float:
        """Estimate seconds in which scorers, by default all, are fitted, or score a document."""
        total, most = 0.0, self.config.data.words.most_terms
        for one in self.config.model.scorers if scorers is None else scorers:
            sizes = _sizes(to_plain(one), self.size, self.width, most)
            alone, products = (_sum(_of_scorer(one.kind, name), sizes) for name in (part, f"{part}_products"))
            total += products / gain(None) + alone / (gain(None) if part == "score" else 1)  # scoring has threads
        return total * self.speeds.core_s / _FIGURES["core_s"]

    def _fusion(self, *, boosted: bool = False) -> float:
        """Estimate seconds to fit the fusion and leave each scorer out once."""
        model, dev = self.config.model, self.size.dev
        if not model.scorers:
            return 0.0
        scorers = len(model.scorers) + model.head.scores
        pairs = dev * model.fusion.candidates * (1 + 0.5 * (scorers - 1))
        scorers += model.fusion.co_occurrence
        seconds = self._core("fusion", {"pairs": pairs, "scorers": scorers})
        kind, right = model.fusion.kind, dev * self.size.labels_per_document
        if boosted and (kind == "trees" or (kind == "auto" and right >= LEAST_FOR_TREES)):
            # of half of dev: to choose the kind, for the model, and on all cores for dev and without each scorer
            fits = 4 + 2 * (1 + scorers) / min(cpu_count(), MOST_AT_ONCE)
            sizes = {"pairs": pairs / 2, "sampled": min(pairs / 2, MAX_PAIRS), "trees": TREES, "fits": fits}
            seconds += self._core("boosting", sizes)
        return seconds

    def _training(self, head: HeadSpeed, encoding_s: float) -> dict[str, float]:
        """Estimate seconds of planting and fine-tuning; without cached states, each pass encodes."""
        found: dict[str, float] = {}
        size, tune = self.size, self.config.finetune
        if planting_plan(self.config.model, self.config.plant).parts:
            found[str(Stage.PLANT)] = _FIGURES["stage"] + encoding_s + self._planting(self.config.plant, head)
            encoding_s = 0.0
        epochs, dev = sum(phase.epochs for phase in tune.phases), min(size.dev, tune.dev_documents or size.dev)
        training = self._epochs(epochs, tune.batch_size, head) + epochs * dev * head.score_s * self._read
        read = self.config.trained_length
        for phase in tune.phases:
            if phase.encoder_layers != 0 or not tune.cache_hidden:
                share = 1.0 if phase.encoder_layers < 0 else min(1.0, phase.encoder_layers / _USUAL_LAYERS)
                forward_s, all_s = (seconds.get(read, 0.0) for seconds in (self.speeds.encode_s, self.speeds.train_s))
                train_s = forward_s + share * (all_s - forward_s)
                training += phase.epochs * (size.train * train_s + dev * self._encode_s)
        found[str(Stage.FINETUNE)] = _FIGURES["stage"] + encoding_s + training
        return found

    def _planting(self, plant: PlantConfig, head: HeadSpeed) -> float:
        """Estimate seconds of the epochs of stage 1 and the passes that collect sums."""
        planting = planting_plan(self.config.model, plant)
        documents = planting.documents(self.size.train)
        encoded = 0 if plant.cache_hidden else documents + planting.ranking_epochs * self.size.train
        passes = documents * head.train_s * self._read * _FORWARD + encoded * self._encode_s
        return self._epochs(planting.ranking_epochs, plant.batch_size, head) + passes

    def _epochs(self, epochs: int, batch_size: int, head: HeadSpeed) -> float:
        steps = math.ceil(self.size.train / batch_size)
        return epochs * (self.size.train * head.train_s * self._read + steps * head.step_s)

    @property
    def _read(self) -> float:
        """Tokens that the head reads of a document, or 1 if it reads poolings."""
        return 1.0 if self.config.model.head.reads_fixed else self.size.tokens

    def _evaluate(self, head: HeadSpeed | None) -> float:
        """Estimate seconds to score dev and test, fuse, measure and export."""
        size, evaluated = self.size, self.config.evaluate
        scored, encodes = size.dev + size.test, self.config.scores_states or head is not None
        # a frozen encoder's states of dev are on disk
        encoded = (size.test + size.dev * self.config.trains_encoder) * encodes
        seconds = _FIGURES["stage"] + encoded * self._encode_s + scored * self._scorers("score")
        seconds += 0.0 if head is None else scored * head.score_s * self._read
        again = self._scorers("fit") + self.config.trains_encoder * size.train * self._encode_s
        seconds += evaluated.fit_on_dev * again
        sizes = {"documents": scored, "kept": min(evaluated.top_k, 50), "resamples": evaluated.resamples}
        return seconds + self._fusion(boosted=True) + self._core("bootstrap", sizes)
