"""A model's scorers and their fusion: from the features of a document to fused probabilities.

    <folder>/words.json, words.safetensors       the vocabulary
    <folder>/<number>-<kind>/…                   each scorer
    <folder>/fusion.json, …                      the fusion, once it is fitted: see `Fusion.save`
    <folder>/documents.arrow                     ids of the training documents, which neighbours name as evidence

Suffixes: N documents, K candidates, L labels, S scorers.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.data.arrow_files import read_arrow, write_arrow
from xmtc.data.words import Vocabulary
from xmtc.errors import CheckpointError
from xmtc.files import reading, replacing_file
from xmtc.fusion.config import FusionConfig
from xmtc.fusion.fusion import Fusion
from xmtc.fusion.pairs import Pairs
from xmtc.scorers.base import Features, LabelNames, Scored, Scorer
from xmtc.scorers.config import ScorerSettings
from xmtc.scorers.label_text import Embed, label_words
from xmtc.scorers.regrouping import Regrouping

HEAD = "head"
"""Name of the head on the backbone in the fusion."""
DOCUMENTS = "documents.arrow"
"""File with the ids of the training documents."""


@dataclass(frozen=True)
class Ensemble:
    """Fitted scorers, and their fusion.

    Attributes:
        vocabulary: vocabulary of the word features.
        scorers: scorers by name, in the order of the configuration.
        doc_ids: ids of the training documents, by row.
        config: settings of the fusion.
        has_head: whether the head takes part, as the last scorer.
        fusion: fitted fusion; None before it is fitted.
    """

    vocabulary: Vocabulary
    scorers: dict[str, Scorer]
    doc_ids: Sequence[str]
    config: FusionConfig
    has_head: bool
    fusion: Fusion | None = None

    @property
    def needs_states(self) -> bool:
        """Whether a scorer reads pooled states of the encoder."""
        return any(scorer.reads_states for scorer in self.scorers.values())

    @property
    def names(self) -> list[str]:
        """Names of all scorers, including the head, in the order of `Pairs.scores_SNK`."""
        return [*self.scorers, HEAD] if self.has_head else list(self.scorers)

    def pairs(
        self,
        features: Features,
        head: Scored | None = None,
        also: NDArray[np.integer] | None = None,
    ) -> Pairs:
        """Unite the labels that all scorers propose for some documents, with every scorer's scores.

        Args:
            features: features of N documents.
            head: the head's scores of the same documents, if it takes part.
            also: labels that are always candidates, of every document.
        """
        scored = [scorer.score(features) for scorer in self.scorers.values()]
        if self.has_head:
            assert head is not None, "the head takes part in this fusion"
            scored.append(head)
        return Pairs.of(scored, self.config.candidates, also)

    def extended(self, texts: Sequence[str], embed: Embed) -> "Ensemble":
        """Return the ensemble with more labels, known only by their texts; the fusion gives them 0 training documents.

        Args:
            texts: names or descriptions of the new labels.
            embed: gives their pooled states, if a scorer reads states.
        """
        states_WD = embed(texts) if self.needs_states else None
        new = LabelNames(
            texts, np.arange(len(texts)), label_words(texts, self.vocabulary), states_WD
        )
        scorers = {name: scorer.extended(new) for name, scorer in self.scorers.items()}
        fusion = None if self.fusion is None else self.fusion.extended(len(texts))
        return replace(self, scorers=scorers, fusion=fusion)

    def regrouped(self, regrouping: Regrouping) -> "Ensemble":
        """Return the ensemble with fewer labels.

        The scorers' scores of labels that are not merged stay the same. Fused scores may change: when labels are no
        longer candidates, the ranks of others rise.

        Raises:
            ConfigError: a scorer cannot merge labels.
        """
        scorers = {
            name: scorer.regrouped(regrouping) for name, scorer in self.scorers.items()
        }
        changed = replace(self, scorers=scorers)
        if self.fusion is None:
            return changed
        counts_M = regrouping.summed(self.fusion.counts_L)
        exact_counts_M = changed.train_counts
        for label in regrouping.merged:
            if exact_counts_M is None:
                counts_M[label] = min(counts_M[label], len(self.doc_ids))
            else:
                counts_M[label] = exact_counts_M[label]
        return replace(changed, fusion=self.fusion.regrouped(regrouping, counts_M))

    @property
    def train_counts(self) -> NDArray[np.int64] | None:
        """Number of training documents of each label, (L,), if a scorer still has them."""
        for scorer in self.scorers.values():
            if scorer.train_counts is not None:
                return scorer.train_counts
        return None

    def save(self, folder: Path) -> None:
        """Write everything into a folder, which is created."""
        folder.mkdir(parents=True, exist_ok=True)
        self.vocabulary.save(folder)
        for number, (name, scorer) in enumerate(self.scorers.items()):
            place = folder_of_scorer(folder, number, name)
            place.mkdir(exist_ok=True)
            scorer.save(place)
        if self.fusion is not None:
            self.fusion.save(folder)
        table = pa.table({"doc_id": pa.array(self.doc_ids, pa.string())})
        with replacing_file(folder / DOCUMENTS) as partial:
            write_arrow(partial, table.schema, table.to_batches())

    @classmethod
    def load(
        cls,
        folder: Path,
        settings: Sequence[ScorerSettings],
        config: FusionConfig,
        *,
        has_head: bool,
    ) -> "Ensemble":
        """Read saved files.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        scorers: dict[str, Scorer] = {}
        for number, (name, scorer_settings) in enumerate(
            zip(names_of(settings), settings, strict=True)
        ):
            scorers[name] = scorer_settings.load(folder_of_scorer(folder, number, name))
        fusion = Fusion.load(folder) if (folder / "fusion.json").exists() else None
        path = folder / DOCUMENTS
        with reading(path, CheckpointError, "copy it again"):
            doc_ids = read_arrow(path).column("doc_id").to_pylist()
        return cls(Vocabulary.load(folder), scorers, doc_ids, config, has_head, fusion)


def names_of(settings: Sequence[ScorerSettings]) -> list[str]:
    """Name each scorer by its kind and its fields if it has some; later scorers of the same name get a number."""
    names: list[str] = []
    occurrences: Counter[str] = Counter()
    for scorer_settings in settings:
        fields = getattr(scorer_settings, "fields", None) or ()
        name = " ".join((scorer_settings.kind, *fields))
        occurrences[name] += 1
        names.append(name if occurrences[name] == 1 else f"{name} {occurrences[name]}")
    return names


def folder_of_scorer(folder: Path, number: int, name: str) -> Path:
    """Return the folder of a scorer, given its number and its name among all."""
    return folder / f"{number}-{name.partition(' ')[0]}"
