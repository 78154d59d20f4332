"""Estimate the seconds of each stage of a run, which `xmtc.stages.table` adds up.

`core_seconds` says how fast this machine is beside the one of `figures.json`, and encoder and head are measured here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from joblib import cpu_count

from xmtc.estimate.probe import HeadSpeed, gain
from xmtc.estimate.scorer_costs import (
    FIGURES,
    figures_of_scorer,
    scorer_sizes,
    states_readers,
    total_of,
)
from xmtc.estimate.size import Size
from xmtc.fusion.boosted import MAX_PAIRS, TREES
from xmtc.fusion.cross_fit import LEAST_FOR_TREES
from xmtc.planting.plan import PlantingPlan, planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.encoder_use import EncoderUse, encoder_use
from xmtc.scorers.config import ScorerSettings
from xmtc.training.config import PhaseConfig

_NAME_TOKENS = 8
"""Tokens of a label's name, special ones included."""
_FORWARD = 1 / 3
"""Share of the forward pass in training; each of the two gradients takes as long."""
_USUAL_LAYERS = 6
"""Layers of an encoder, for the share of it that trains."""
_PREPARING_PROCESSES = 8
"""Processes that prepare a corpus at most."""
_KEPT_SCORES = 50
"""Scores of a document at most in an interval of a metric."""


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


def in_words(seconds: float) -> str:
    """Format a time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


class StageSeconds:
    """Estimates the seconds of each stage of one run on an idle machine, one method for each.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        speeds: speeds of this machine.
        width: D, width of the encoder.
    """

    def __init__(
        self, config: RunConfig, size: Size, speeds: Speeds, width: int
    ) -> None:
        self.config = config
        self.size = size
        self.speeds = speeds
        self.width = width
        self.use: EncoderUse = encoder_use(config)
        self.planting: PlantingPlan = planting_plan(config.model, config.plant)

    def prepare(self) -> float:
        """Read and tokenise the source."""
        documents = self.size.train + self.size.dev + self.size.test
        work_s = self._core(
            "prepare", {"documents": documents, "words": self.size.words}
        )
        return FIGURES["start"] + work_s / min(cpu_count(), _PREPARING_PROCESSES)

    def scorers(self) -> float:
        """Fit the scorers, and fuse them for the first result."""
        seconds = FIGURES["stage"] + self._names_s
        if self.use.scores_states:
            seconds += self._encoding_s
        fit_s = self._scorers("fit", self.config.model.scorers)
        score_s = self.size.dev * self._scorers("score", self.config.model.scorers)
        return seconds + fit_s + score_s + self._fusion()

    def plant(self) -> float:
        """Read the passes that collect sums, and the epochs of stage 1."""
        head = self._head
        plant = self.config.plant
        documents = self.planting.documents(self.size.train)
        seconds = FIGURES["stage"] + documents * head.train_s * self._read * _FORWARD
        if self._training_stores_states:
            seconds += self._encoding_s
        if not plant.cache_hidden:
            encoded = documents + self.planting.ranking_epochs * self.size.train
            seconds += encoded * self._encode_s
        return seconds + self._epochs(self.planting.ranking_epochs, plant.batch_size)

    def finetune(self) -> float:
        """Train every phase, and measure dev after each epoch."""
        finetune = self.config.finetune
        epochs = sum(phase.epochs for phase in finetune.phases)
        dev = min(self.size.dev, finetune.dev_documents or self.size.dev)
        seconds = FIGURES["stage"] + self._epochs(epochs, finetune.batch_size)
        seconds += epochs * dev * self._head.score_s * self._read
        if (
            self._training_stores_states and not self.planting.parts
        ):  # otherwise planting has stored them
            seconds += self._encoding_s
        for phase in finetune.phases:
            if phase.encoder_layers != 0 or not finetune.cache_hidden:
                per_epoch_s = (
                    self.size.train * self._encoder_step_s(phase) + dev * self._encode_s
                )
                seconds += phase.epochs * per_epoch_s
        return seconds

    def refit(self) -> float:
        """Fit the scorers that read states again."""
        seconds = FIGURES["stage"] + self.size.train * self._encode_s + self._names_s
        return seconds + self._scorers("fit", states_readers(self.config.model.scorers))

    def evaluate(self) -> float:
        """Score dev and test, fuse, measure and export."""
        size = self.size
        model = self.config.model
        evaluate = self.config.evaluate
        scored = size.dev + size.test
        seconds = FIGURES["stage"] + scored * self._scorers("score", model.scorers)
        if self.speeds.head is not None:
            seconds += scored * self.speeds.head.score_s * self._read
        if self.speeds.head is not None or self.use.scores_states:
            encoded = (
                scored if self.use.trains else size.test
            )  # a frozen encoder's states of dev are on disk
            seconds += encoded * self._encode_s
        if evaluate.fit_on_dev:
            seconds += self._scorers("fit", model.scorers)
            if self.use.trains:
                seconds += size.train * self._encode_s
        sizes = {
            "documents": scored,
            "kept": min(evaluate.top_k, _KEPT_SCORES),
            "resamples": evaluate.resamples,
        }
        return seconds + self._fusion(boosted=True) + self._core("bootstrap", sizes)

    def report(self) -> float:
        """Draw the pages."""
        return FIGURES["report"]

    @property
    def _head(self) -> HeadSpeed:
        assert self.speeds.head is not None, "a stage that trains has a head"
        return self.speeds.head

    @property
    def _encode_s(self) -> float:
        return self.speeds.encode_s.get(self.config.data.max_length, 0.0)

    @property
    def _encoding_s(self) -> float:
        """Seconds to encode train and dev once."""
        return (self.size.train + self.size.dev) * self._encode_s

    @property
    def _training_stores_states(self) -> bool:
        """Whether the first stage that trains encodes the corpus: scorers may have stored its states already."""
        return self.use.caches_states and not self.use.scores_states

    @property
    def _names_s(self) -> float:
        """Seconds in which the names of labels are encoded, if a scorer needs that."""
        if not any(
            "label_states" in scorer.needs for scorer in self.config.model.scorers
        ):
            return 0.0
        return (
            self.size.labels
            * _NAME_TOKENS
            / self.config.data.max_length
            * self._encode_s
        )

    @property
    def _read(self) -> float:
        """Tokens that the head reads of a document, or 1 if it reads poolings."""
        return 1.0 if self.config.model.head.reads_fixed else self.size.tokens

    @property
    def _slowness(self) -> float:
        """Time of one core of this machine, as a multiple of the time of the machine of the figures."""
        return self.speeds.core_s / FIGURES["core_s"]

    def _core(self, part: str, sizes: Mapping[str, float]) -> float:
        """Estimate seconds of a part that runs on one core."""
        return total_of(FIGURES[part], sizes) * self._slowness

    def _encoder_step_s(self, phase: PhaseConfig) -> float:
        """Seconds of the encoder for a training document in a phase: forward, and backward as deep as it trains."""
        longest = self.use.trained_length
        forward_s = self.speeds.encode_s.get(longest, 0.0)
        whole_s = self.speeds.train_s.get(longest, 0.0)
        trained_share = 1.0
        if phase.encoder_layers >= 0:
            trained_share = min(1.0, phase.encoder_layers / _USUAL_LAYERS)
        return forward_s + trained_share * (whole_s - forward_s)

    def _epochs(self, epochs: int, batch_size: int) -> float:
        """Seconds of the head in so many epochs."""
        steps = math.ceil(self.size.train / batch_size)
        passes_s = self.size.train * self._head.train_s * self._read
        steps_s = steps * self._head.step_s
        return epochs * (passes_s + steps_s)

    def _scorers(
        self, part: Literal["fit", "score"], scorers: Sequence[ScorerSettings]
    ) -> float:
        """Estimate seconds in which scorers are fitted on train, or score a document."""
        most_terms = self.config.data.words.most_terms
        total = 0.0
        for scorer in scorers:
            sizes = scorer_sizes(scorer, self.size, self.width, most_terms)
            alone = total_of(figures_of_scorer(scorer.kind, part), sizes)
            if part == "score":
                products = total_of(
                    figures_of_scorer(scorer.kind, "score_products"), sizes
                )
                alone /= gain(None)  # scoring has threads
            else:
                products = total_of(
                    figures_of_scorer(scorer.kind, "fit_products"), sizes
                )
            total += products / gain(None) + alone
        return total * self._slowness

    def _fusion(self, *, boosted: bool = False) -> float:
        """Estimate seconds to fit the fusion and leave each scorer out once; `boosted`: with trees, if they may win."""
        model = self.config.model
        dev = self.size.dev
        if not model.scorers:
            return 0.0
        scorers = len(model.scorers)
        if model.head.scores:
            scorers += 1
        pairs = dev * model.fusion.candidates * (1 + 0.5 * (scorers - 1))
        if model.fusion.co_occurrence:
            scorers += 1
        seconds = self._core("fusion", {"pairs": pairs, "scorers": scorers})
        right_labels = dev * self.size.labels_per_document
        tries_trees = model.fusion.kind == "auto" and right_labels >= LEAST_FOR_TREES
        if boosted and (model.fusion.kind == "trees" or tries_trees):
            # of half of dev: two for the model, and two on two cores for dev
            fits = 2 + 2 / min(cpu_count(), 2)
            sizes = {
                "pairs": pairs / 2,
                "sampled": min(pairs / 2, MAX_PAIRS),
                "trees": TREES,
                "fits": fits,
            }
            seconds += self._core("boosting", sizes)
        return seconds
