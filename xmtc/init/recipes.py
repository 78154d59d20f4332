"""Recipes for a training run, from the best to the cheapest, and the choice of one that fits a time budget.

Each recipe consists of a few settings. `xmtc.estimate.seconds` estimates its cost from them.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from xmtc.config.shape import adapter
from xmtc.data.fields import ONE_FIELD
from xmtc.data.pretrained import DEFAULT_BACKBONE
from xmtc.estimate.estimate import hidden_states_bytes
from xmtc.estimate.memory import label_memory, meta_classifier, worker_memory
from xmtc.estimate.scorer_costs import scorer_bytes
from xmtc.estimate.size import Size
from xmtc.run.config import RunConfig
from xmtc.run.encoder_use import encoder_use
from xmtc.scorers.base import CATEGORY

Settings = dict[str, Any]
WIDTH = 384
"""Width of the packaged encoders."""
_POOLED = 256  # with several labels per document, pooled states of more tokens take longer and are no better
_MANY_LABELS = 1_024  # with more labels, a training step of label attention only computes the logits of a sample
_SEVERAL_LABELS_LENGTH = (
    128  # tokens that an encoder reads to train where documents have several labels
)
_WHOLE = 192  # tokens; an encoder trains on whole documents up to this length, and on random spans of longer ones
_CROP = 128  # tokens of a span
_FEW_LABELS = 50  # with at most this many labels, pairs of words add information, and an encoder is worth training
_ONE_OF = 300  # of which each document has one: pairs of words add information, too
_MANY_DOCUMENTS = 100  # of a label on average, which are worth training an encoder with any number of labels
_ATTENTION_DOCUMENTS = 1_000  # with more, a layer over pooled states trains in less time and is about as good
_TREE_DOCUMENTS = 20_000  # with fewer, and more than a few labels, trees add too little for losing their evidence
_FIT_ON_DEV = (
    20_000  # up to this many documents, a ninth more is worth fitting scorers twice
)
_TERMS = 300_000  # words and pairs, where labels are few


@dataclass(frozen=True, kw_only=True)
class Task:
    """The properties of a task that recipes depend on.

    Attributes:
        source: the `data` section, without `max_length` and `words`.
        name: name of the run.
        labels, documents: numbers of labels and documents in train.
        per_label: documents of a label on average.
        readable: whether the labels, or their names, are words.
        single: whether each document has exactly one label.
        most_factorised: up to this many documents, the linear scorer may factorise them instead of terms.
        gpu: whether the machine has a GPU.
        trees: whether the package for trees is installed.
        encoder: name of the packaged encoder.
        fields: names of the fields of documents, from the first.
        categories: names of their categories.
        own_dev: whether the data say which documents are dev.
    """

    source: Settings
    name: str
    labels: int
    documents: int
    readable: bool
    single: bool
    per_label: float = 0.0
    most_factorised: int = 25_000
    gpu: bool = False
    trees: bool = False
    encoder: str = DEFAULT_BACKBONE
    fields: tuple[str, ...] = ONE_FIELD
    categories: tuple[str, ...] = ()
    own_dev: bool = False

    @property
    def wide(self) -> bool:
        """Whether pairs of words take part."""
        return self.labels <= (
            _ONE_OF
            if self.single and self.documents <= self.most_factorised
            else _FEW_LABELS
        )


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A way to train; recipes.yaml says what the attributes mean."""

    name: str
    what: str
    reads: Literal["tokens", "poolings", "nothing"]
    scorers: Sequence[str]
    why: Mapping[str, str]
    needs: Sequence[str] = ()
    head: Settings = field(default_factory=lambda: {"kind": "none"})
    plant: Mapping[str, Settings] = field(default_factory=dict)
    finetune: Settings = field(default_factory=dict)
    several: Settings = field(default_factory=dict)
    single: Settings = field(default_factory=dict)
    steps: int | None = None
    epochs: Sequence[int] = ()

    @property
    def encodes(self) -> bool:
        """Whether documents go through the encoder."""
        return self.reads != "nothing"

    def sections(self, task: Task) -> Settings:
        """Make the sections `model`, `plant` and `finetune` of the configuration."""
        scorers = [s for kind in self.scorers for s in _scorers(kind, task)]
        encoder = {"kind": "hugging_face", "name": task.encoder}
        sections: Settings = {
            "model": {"encoder": encoder, "head": self.head, "scorers": scorers}
        }
        if (
            plant := self.plant.get("single" if task.single else "several")
        ) is not None:
            sections["plant"] = plant
        finetune = {**(self.single if task.single else self.several), **self.finetune}
        if self.steps is not None:
            epochs = math.ceil(
                self.steps * finetune["batch_size"] / max(task.documents, 1)
            )
            (phase,), (least, most) = finetune["phases"], self.epochs
            finetune["phases"] = [{"epochs": min(max(epochs, least), most), **phase}]
        if self.reads == "tokens" and not task.single and task.labels > _MANY_LABELS:
            finetune["sampled_labels"] = 512
        return sections | ({"finetune": finetune} if finetune else {})


@dataclass(frozen=True)
class Candidate:
    """A recipe with a maximum length.

    Attributes:
        recipe: the recipe.
        max_length: maximum number of tokens of a document.
        tree: the configuration.
    """

    recipe: Recipe
    max_length: int
    tree: Settings

    def config(self) -> RunConfig:
        """Validate the settings, and return the configuration."""
        return adapter(RunConfig).validate_json(json.dumps(self.tree))


def _scorers(kind: str, task: Task) -> list[Settings]:
    """Make the scorers of a kind of `Recipe.scorers`; hidden states also tell what names mean."""
    if kind == "words":
        return _words(task)
    names = (
        [{"kind": "label_embeddings"}]
        if kind == "state_neighbours" and task.readable
        else []
    )
    return [{"kind": kind}, *names]


def _words(task: Task) -> list[Settings]:
    linear: Settings = {"kind": "linear", "penalty": 0.1, "prune": 0.2}
    if task.wide and task.documents <= task.most_factorised:
        linear |= {
            "weighting": "log_odds",
            "most_terms": _TERMS,
            "penalty": 4 if task.single else 1,
            "prune": 0.1,
        }
    ranked: Settings = {"kind": "ranked_words"}
    useless = task.single or (task.trees and task.documents >= _TREE_DOCUMENTS)
    scorers = [linear, *([] if useless else [ranked]), {"kind": "word_neighbours"}]
    *titles, body = task.fields
    if titles:  # a title says in ten words what a document is about
        ranked["fields"] = {
            **dict.fromkeys(titles, 1),
            body: 2,
            **dict.fromkeys(task.categories, CATEGORY),
        }
        linear["fields"] = ranked["fields"]
        scorers += [{"kind": "word_neighbours", "fields": titles}]
    if task.readable:
        scorers += [
            {"kind": "label_text"},
            *([{"kind": "label_text", "fields": titles}] if titles else []),
        ]
    return scorers


RECIPES = tuple(
    Recipe(**recipe)
    for recipe in yaml.safe_load(
        Path(__file__).with_name("recipes.yaml").read_text(encoding="utf-8")
    )
)
"""All recipes, from the best to the cheapest."""


def lengths_to_try(percentile: int, window: int) -> list[int]:
    """Choose values of `max_length` to measure, longest first: the 95th percentile, at most a window, and shorter."""
    longest = min(max(-(-percentile // 32) * 32, 32), window)
    return [longest, *(shorter for shorter in (256, 128) if shorter < longest)]


def candidates(task: Task, lengths: Sequence[int]) -> Iterator[Candidate]:
    """Yield recipes with lengths, best first; a recipe that encodes nothing has only one length."""
    trees = (
        task.trees
        and not task.single
        and (task.documents >= _TREE_DOCUMENTS or task.labels <= _FEW_LABELS)
    )
    few = (
        not task.single
        and task.labels > _FEW_LABELS
        and task.documents <= _ATTENTION_DOCUMENTS
    )
    few_labels = task.single or task.labels <= _FEW_LABELS
    worth = few_labels or task.per_label >= _MANY_DOCUMENTS
    there = {
        "gpu": task.gpu and not few_labels,
        "trees": trees,
        "few documents": few,
        "encoder": worth,
    }
    for recipe in (one for one in RECIPES if all(there[need] for need in one.needs)):
        for max_length in _useful(lengths, recipe, task):
            yield Candidate(recipe, max_length, _tree(task, recipe, max_length))
    yield from _smaller(task, lengths[0])


def _useful(lengths: Sequence[int], recipe: Recipe, task: Task) -> Sequence[int]:
    if not recipe.encodes:
        return lengths[:1]
    if "encoder" in recipe.needs:
        return lengths[:1] if task.single else [min(lengths[0], _SEVERAL_LABELS_LENGTH)]
    return [
        length
        for length in lengths
        if recipe.reads == "tokens" or task.single or length <= _POOLED
    ]


def _smaller(task: Task, max_length: int) -> Iterator[Candidate]:
    """Yield the cheapest recipe with fewer terms, then with fewer documents."""
    cheapest = RECIPES[-1]
    halves = (
        task.documents >> times for times in range(1, task.documents.bit_length())
    )
    for terms, documents in [
        (8_000, None),
        (4_000, None),
        *((4_000, half) for half in halves if half >= 1_000),
    ]:
        tree = _tree(task, cheapest, max_length)
        tree["model"]["scorers"][0]["most_terms"] = terms
        if documents is not None:
            tree["data"]["limit"] = {"train": documents}
        yield Candidate(cheapest, max_length, tree)


def _tree(task: Task, recipe: Recipe, max_length: int) -> Settings:
    data = {**task.source, "max_length": max_length}
    stems = {} if task.labels <= _FEW_LABELS else {"stems": 6}
    data["words"] = ({"ngrams": 2, "most_terms": _TERMS} if task.wide else {}) | stems
    tree = {"name": task.name, "data": data, **recipe.sections(task)}
    if "encoder" in recipe.needs:
        if not task.gpu:
            tree["model"]["encoder"]["attention"] = (
                "eager"  # for so few tokens, faster than a fused kernel on a CPU
            )
        if max_length > _WHOLE:
            tree["finetune"]["crop"], tree["model"]["overlap"] = _CROP, 0
            tree["model"]["encoder"]["window"] = _CROP + 2  # special tokens
    if task.documents <= _FIT_ON_DEV and not task.own_dev:
        tree["evaluate"] = {"fit_on_dev": True}
    if recipe.encodes:
        tree["distributed"] = {"precision": "auto"}
    return json.loads(json.dumps(tree))


@dataclass(frozen=True, kw_only=True)
class Room:
    """The available resources.

    Attributes:
        seconds: time budget.
        memory, disk: free bytes.
    """

    seconds: float
    memory: float
    disk: float


@dataclass(frozen=True)
class Choice:
    """The chosen candidate.

    Attributes:
        candidate: the candidate.
        stages: seconds of each stage.
        passed_over: better candidates, with the reasons why they do not fit.
        fits: False if nothing fits and this is the cheapest.
    """

    candidate: Candidate
    stages: dict[str, float]
    passed_over: list[str]
    fits: bool

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return sum(self.stages.values())


def choose(
    options: Sequence[Candidate],
    measured: Callable[[RunConfig], Size],
    timed: Callable[[RunConfig, Size], dict[str, float]],
    room: Room,
) -> Choice:
    """Choose the best candidate that fits.

    Args:
        options: candidates, best first.
        measured: estimates the size of a configuration's corpus.
        timed: estimates the seconds of each stage of a configuration.
        room: available resources.
    """
    passed: list[str] = []
    last: Choice | None = None
    for candidate in options:
        config = candidate.config()
        size = measured(config)
        too_large = _training_problem(config, size, room)
        last = Choice(
            candidate, {} if too_large else timed(config, size), passed, fits=True
        )
        problem = too_large or _problem(last, config, size, room)
        if problem is None:
            return last
        passed = [
            *passed,
            f"{candidate.recipe.name} at {candidate.max_length} tokens {problem}",
        ]
    assert last is not None, "there are candidates"
    return Choice(last.candidate, last.stages, last.passed_over, fits=False)


def _training_problem(config: RunConfig, size: Size, room: Room) -> str | None:
    """Say why there is too little memory to train, or even to measure a head's speed; None if there is enough."""
    if not config.model.head.scores:
        return None
    classifier = meta_classifier(config, size)
    needed = sum(label_memory(config, classifier, size).values())
    if encoder_use(config).trains:
        needed = sum(worker_memory(config, classifier, size, world=1).values())
    return (
        f"needs {needed / 2**30:.1f} GiB of memory"
        if needed > 0.7 * room.memory
        else None
    )


def _problem(choice: Choice, config: RunConfig, size: Size, room: Room) -> str | None:
    """Say why a candidate does not fit; None if it does."""
    if choice.seconds > room.seconds:
        return f"would take {choice.seconds / 60:,.0f} min"
    if (needed := scorer_bytes(config, size, WIDTH)) > 0.7 * room.memory:
        return f"needs {needed / 2**30:.1f} GiB of memory"
    if (needed := hidden_states_bytes(config, size, WIDTH)) > 0.8 * room.disk:
        return f"needs {needed / 2**30:.1f} GiB of disk"
    return None
