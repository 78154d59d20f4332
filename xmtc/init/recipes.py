"""Recipes for a training run, from the best to the cheapest, and the one that fits a budget of time.

Each recipe is a few settings. Its cost is estimated from them by `xmtc.preflight.timing`, so that a recipe needs no
formula here.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xmtc.config.shape import adapter
from xmtc.preflight.label_memory import label_memory
from xmtc.preflight.timing import Corpus, disk_of_states, memory_of_scorers
from xmtc.run.config import RunConfig

Settings = dict[str, Any]
ENCODER = "packaged:all-MiniLM-L6-v2"
_WINDOW = 512
_MANY_LABELS = 1_024  # beyond these, a training step of label attention has the logits of a sample
_STEPS, _BATCH = 200, 128  # of the head, and documents in each
_EPOCHS = 9, 40  # the fewest and the most of the head
_FEW_LABELS = 50  # with so few, pairs of words tell more than single ones
_TREE_DOCUMENTS = 20_000  # from here on, and for few labels, trees add something; evidence cannot look into them
_DUAL = 12_000  # training documents up to which the linear scorer factorises documents, whatever the number of terms


@dataclass(frozen=True, kw_only=True)
class Task:
    """What recipes depend on.

    Attributes:
        source: the `data` section, without `max_length` and `words`.
        name: of the run.
        labels, documents: numbers of train.
        readable: whether the labels, or their names, are words.
        single: one label a document.
        gpu: whether the machine has one.
        trees: whether the package for trees is installed.
    """

    source: Settings
    name: str
    labels: int
    documents: int
    readable: bool
    single: bool
    gpu: bool = False
    trees: bool = False


@dataclass(frozen=True)
class Recipe:
    """A way to train.

    Attributes:
        name: for messages.
        encodes: whether documents go through the encoder.
        what: what it does, for the comment in the configuration.
        sections: its sections of the configuration.
        needs: what the machine must have: `gpu`, `trees`.
    """

    name: str
    encodes: bool
    what: str
    sections: Callable[[Task], Settings]
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Candidate:
    """A recipe with its length.

    Attributes:
        recipe: which.
        max_length: tokens at which documents are cut.
        tree: the configuration.
    """

    recipe: Recipe
    max_length: int
    tree: Settings

    def config(self) -> RunConfig:
        """The validated configuration."""
        return adapter(RunConfig).validate_json(json.dumps(self.tree))


def _words(task: Task) -> list[Settings]:
    linear: Settings = {"kind": "linear", "penalties": [0.1], "prune": 0.2}
    if task.labels <= _FEW_LABELS and task.documents <= _DUAL:
        linear |= {"penalties": [0.1, 1.0], "most_terms": 60_000}
    scorers = [linear, {"kind": "word_neighbours"}]
    return [*scorers, {"kind": "label_text"}] if task.readable else scorers


def _words_only(task: Task) -> Settings:
    return {"model": {"encoder": _encoder(), "head": {"kind": "none"}, "scorers": _words(task)}}


def _states(task: Task) -> Settings:
    scorers = [*_words(task), {"kind": "state_neighbours"}]
    return {"model": {"encoder": _encoder(), "head": {"kind": "none"}, "scorers": scorers}}


def _head(task: Task) -> Settings:
    sections = _states(task)
    sections["model"]["head"] = {"kind": "flat", "pooling": {"kind": "summary"}, "dropout": 0.4}
    finetune: Settings = {"loss": {"kind": "binary_cross_entropy"}, "batch_size": _BATCH, "dev_documents": 2_000}
    if task.single:
        finetune["loss"] = {"kind": "cross_entropy", "label_smoothing": 0.05}
        finetune["metric"] = "accuracy"
    fewest, most = _EPOCHS
    epochs = min(max(-(-_STEPS * _BATCH // max(task.documents, 1)), fewest), most)
    finetune |= {"optimizer": {"learning_rate": 2.0e-3}, "phases": [{"epochs": epochs}]}
    return {**sections, "plant": {"enabled": False}, "finetune": finetune}


def _trees(task: Task) -> Settings:
    sections = _head(task)
    sections["model"]["scorers"].append({"kind": "tree"})
    return sections


def _unfrozen(task: Task) -> Settings:
    sections = _states(task)
    sections["model"]["head"] = {"kind": "label_attention", "width": 192, "heads": 4}
    planted: Settings = {"epochs": 5, "optimizer": {"learning_rate": 3.0e-3}, "loss": {"kind": "listnet"}}
    finetune: Settings = {"loss": {"kind": "binary_cross_entropy"}, "dev_documents": 300}
    if task.single:
        planted = {"enabled": False}
        finetune["loss"] = {"kind": "cross_entropy", "label_smoothing": 0.05}
        finetune["metric"] = "accuracy"
    elif task.labels > _MANY_LABELS:
        finetune["sampled_labels"] = 512
    whole: Settings = {"epochs": 3, "encoder_layers": -1, "learning_rate": 5.0e-4, "encoder_learning_rate": 2.0e-5}
    finetune |= {"optimizer": {"learning_rate": 1.0e-3 if task.single else 4.0e-3}, "phases": [{"epochs": 4}, whole]}
    return {**sections, "plant": planted, "finetune": finetune}


def _encoder() -> Settings:
    return {"kind": "hugging_face", "name": ENCODER}


_LAYER = "scorers over words and frozen hidden states, and a trained layer over pooled states"
RECIPES = (
    Recipe(
        "unfrozen",
        True,
        "scorers, and a planted label-attention head whose encoder trains too",
        _unfrozen,
        needs=frozenset({"gpu"}),
    ),
    Recipe("trees", True, f"{_LAYER}, and linear trees", _trees, needs=frozenset({"trees"})),
    Recipe("head", True, _LAYER, _head),
    Recipe("states", True, "scorers over words and frozen hidden states; nothing trains by gradient", _states),
    Recipe("words", False, "scorers over words alone; nothing is encoded", _words_only),
)
"""From the best to the cheapest."""


def lengths_to_try(percentile: int) -> list[int]:
    """Values of `max_length` worth a measurement, longest first: the 95th percentile within a window, and less."""
    longest = min(max(-(-percentile // 32) * 32, 32), _WINDOW)
    return [longest, *(shorter for shorter in (256, 128) if shorter < longest)]


def candidates(task: Task, lengths: Sequence[int]) -> Iterator[Candidate]:
    """Recipes with lengths, the best first; a recipe that encodes nothing has one."""
    trees = task.trees and not task.single and (task.documents >= _TREE_DOCUMENTS or task.labels <= _FEW_LABELS)
    there = {name for name, has in (("gpu", task.gpu), ("trees", trees)) if has}
    for recipe in (one for one in RECIPES if one.needs <= there):
        for max_length in lengths if recipe.encodes else lengths[:1]:
            yield Candidate(recipe, max_length, _tree(task, recipe, max_length))
    yield from _smaller(task, lengths[0])


def _smaller(task: Task, max_length: int) -> Iterator[Candidate]:
    """The cheapest recipe with fewer terms, then with fewer documents."""
    cheapest = RECIPES[-1]
    for terms in (8_000, 4_000):
        tree = _tree(task, cheapest, max_length)
        tree["model"]["scorers"][0] |= {"most_terms": terms, "penalties": [0.1]}
        yield Candidate(cheapest, max_length, tree)
    documents = task.documents // 2
    while documents >= 1_000:
        tree = _tree(task, cheapest, max_length)
        tree["model"]["scorers"][0] |= {"most_terms": 4_000, "penalties": [0.1]}
        tree["data"]["limit"] = {"train": documents}
        yield Candidate(cheapest, max_length, tree)
        documents //= 2


def _tree(task: Task, recipe: Recipe, max_length: int) -> Settings:
    data = {**task.source, "max_length": max_length}
    if task.labels <= _FEW_LABELS:
        data["words"] = {"ngrams": 2}
    return json.loads(json.dumps({"name": task.name, "data": data, **recipe.sections(task)}))


@dataclass(frozen=True, kw_only=True)
class Room:
    """What the machine has to spare.

    Attributes:
        seconds: of the budget.
        memory, disk: bytes that are free.
    """

    seconds: float
    memory: float
    disk: float


@dataclass(frozen=True)
class Choice:
    """The chosen candidate.

    Attributes:
        candidate: it.
        stages: stage -> seconds.
        passed_over: better candidates and why they do not fit.
        fits: False where nothing does, and this is the cheapest.
    """

    candidate: Candidate
    stages: dict[str, float]
    passed_over: list[str]
    fits: bool

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return sum(self.stages.values())


def choose(
    options: Sequence[Candidate],
    timed: Callable[[RunConfig], dict[str, float]],
    corpus: Callable[[RunConfig], Corpus],
    tokens: Callable[[int], float],
    room: Room,
) -> Choice:
    """The best candidate that fits.

    Args:
        options: the best first.
        timed: stage -> seconds of a configuration.
        corpus: what the corpus of a configuration is like.
        tokens: mean tokens of a document cut at a length.
        room: budget and machine.
    """
    passed: list[str] = []
    last: Choice | None = None
    for candidate in options:
        config = candidate.config()
        needed = corpus(config)
        too_large = _head_problem(config, needed, room)
        last = Choice(candidate, {} if too_large else timed(config), passed, fits=True)
        problem = too_large or _problem(last, config, needed, tokens(candidate.max_length), room)
        if problem is None:
            return last
        passed = [*passed, f"{candidate.recipe.name} at {candidate.max_length} tokens {problem}"]
    assert last is not None, "there are candidates"
    return Choice(last.candidate, last.stages, last.passed_over, fits=False)


def _head_problem(config: RunConfig, corpus: Corpus, room: Room) -> str | None:
    """Why a head does not even fit the memory in which its speed would be measured."""
    if not config.model.head.scores:
        return None
    needed = label_memory(config, corpus.load.width, corpus.load.labels, config.finetune.batch_size).total
    return f"needs {needed / 2**30:.1f} GiB of memory" if needed > 0.7 * room.memory else None


def _problem(choice: Choice, config: RunConfig, corpus: Corpus, tokens: float, room: Room) -> str | None:
    """Why a candidate does not fit."""
    if choice.seconds > room.seconds:
        return f"would take {choice.seconds / 60:,.0f} min"
    if (needed := memory_of_scorers(config, corpus)) > 0.7 * room.memory:
        return f"needs {needed / 2**30:.1f} GiB of memory"
    if (needed := disk_of_states(config, corpus, tokens)) > 0.8 * room.disk:
        return f"needs {needed / 2**30:.1f} GiB of disk"
    return None
