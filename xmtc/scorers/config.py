"""Settings of the scorers. Reading them imports no implementation."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.config.members import Members

if TYPE_CHECKING:
    from pathlib import Path

    from xmtc.scorers.base import Scorer, Training

Feature = Literal["words", "states", "label_texts", "label_states"]
_Name = Annotated[str, Field(min_length=1)]
FieldNames = Annotated[tuple[_Name, ...], Field(min_length=1)]
FieldWeights = (
    FieldNames
    | Annotated[dict[_Name, Annotated[float, Field(gt=0)]], Field(min_length=1)]
    | None
)


class ScorerSettings(Protocol):
    """Settings of one scorer: what it reads, and which class fits it. It reads words unless it says otherwise."""

    @property
    def kind(self) -> str:
        """Name of the member."""
        ...

    summary: ClassVar[str]
    """What the scorer is, in a few words: `xmtc init` writes them beside it."""
    needs: ClassVar[frozenset[Feature]] = frozenset({"words"})
    """The parts of `Training` that it needs: words of whole texts, pooled states, texts of labels, states of these."""
    leaves_out_unjudged: ClassVar[bool] = False
    """Whether it leaves out pairs of a document and a label that nobody judged, and does not read them as absent."""
    shares_work: ClassVar[bool] = False
    """Whether all ranks call `fit` and share its work; otherwise only rank 0 calls it."""

    @property
    def scorer(self) -> "type[Scorer]":
        """The class that these settings fit. Import it here, not at the top of the module."""
        ...

    def fit(self, training: "Training") -> "Scorer":
        """Fit the scorer; see `Scorer.fit`."""
        return self.scorer.fit(training, self)

    def load(self, folder: "Path") -> "Scorer":
        """Read a fitted scorer; see `Scorer.load`."""
        return self.scorer.load(folder)


@config
class LinearConfig(ScorerSettings):
    """Ridge regression in closed form over TF-IDF of words: one factorisation for all labels."""

    summary: ClassVar[str] = "regression over words of whole texts"
    leaves_out_unjudged: ClassVar[bool] = True
    shares_work: ClassVar[bool] = True
    kind: Literal["linear"] = "linear"
    fields: FieldWeights = None
    """Fields to read, such as `[title]`, or their weights, such as `{title: 1, body: 2}`; null: all, with weight 1."""
    most_terms: Annotated[int, Field(ge=1)] = 14_000
    """Number of columns, the most frequent ones. Memory grows with the square of this number (or of the training
    documents, if fewer), time with the cube."""
    weighting: Literal["uniform", "log_odds"] = "uniform"
    """`log_odds` scales a term by its greatest log-odds over the labels (after Wang & Manning 2012), for few labels
    with many documents each."""
    penalty: Annotated[float, Field(gt=0)] = 0.1
    """Ridge penalty λ. Small ones suit rare labels."""
    prune: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """Drop a label's smallest weights while their norm is below this share of the norm of all its weights."""

    @property
    @override
    def scorer(self) -> "type[Scorer]":
        from xmtc.scorers.linear import Linear

        return Linear


@config
class RankedWordsConfig(ScorerSettings):
    """Ridge regression of each label on the words with the most mutual information on it."""

    summary: ClassVar[str] = (
        "regression of each label over the words that tell most about it"
    )
    shares_work: ClassVar[bool] = True
    kind: Literal["ranked_words"] = "ranked_words"
    fields: FieldWeights = None
    """Fields to read, as in `linear`."""
    words: Annotated[int, Field(ge=1)] = 200
    """Maximum number of words of a label."""
    penalty: Annotated[float, Field(gt=0)] = 0.1
    """Ridge penalty λ of a label's first word. Words that tell less have a larger one."""

    @property
    @override
    def scorer(self) -> "type[Scorer]":
        from xmtc.scorers.ranked_words import RankedWords

        return RankedWords


@config
class WordNeighboursConfig(ScorerSettings):
    """Votes of the training documents with the most similar words: weights cos⁴."""

    summary: ClassVar[str] = "votes of documents with similar words"
    kind: Literal["word_neighbours"] = "word_neighbours"
    fields: FieldWeights = None
    """Fields to compare, such as `[title]`, or their weights, such as `{title: 3, body: 1}`: an occurrence in the title
    then counts as three. null: all, with weight 1."""
    neighbours: Annotated[int, Field(ge=1)] = 50
    """Number of documents that vote."""

    @property
    @override
    def scorer(self) -> "type[Scorer]":
        from xmtc.scorers.word_neighbours import WordNeighbours

        return WordNeighbours


@config
class StateNeighboursConfig(ScorerSettings):
    """Votes of the training documents with the most similar pooled states: weights exp(20 · (cos − 1))."""

    summary: ClassVar[str] = "votes of documents with similar hidden states"
    needs: ClassVar[frozenset[Feature]] = frozenset({"states"})
    kind: Literal["state_neighbours"] = "state_neighbours"
    neighbours: Annotated[int, Field(ge=1)] = 50
    """Number of documents that vote."""

    @property
    @override
    def scorer(self) -> "type[Scorer]":
        from xmtc.scorers.state_neighbours import StateNeighbours

        return StateNeighbours


@config
class LabelTextConfig(ScorerSettings):
    """Similarity of a document and a label's name or description, the only information on labels without documents."""

    summary: ClassVar[str] = "names of labels in the text"
    needs: ClassVar[frozenset[Feature]] = frozenset({"words", "label_texts"})
    kind: Literal["label_text"] = "label_text"
    fields: FieldNames | None = None
    """Fields in which names are looked for, such as `[title]`; null: all."""

    @property
    @override
    def scorer(self) -> "type[Scorer]":
        from xmtc.scorers.label_text import LabelText

        return LabelText


@config
class LabelEmbeddingsConfig(ScorerSettings):
    """Similarity of a document and a label's names as the encoder sees them, for labels without documents too."""

    summary: ClassVar[str] = "names of labels that mean what the text is about"
    needs: ClassVar[frozenset[Feature]] = frozenset({"states", "label_states"})
    kind: Literal["label_embeddings"] = "label_embeddings"

    @property
    @override
    def scorer(self) -> "type[Scorer]":
        from xmtc.scorers.label_embeddings import LabelEmbeddings

        return LabelEmbeddings


@config
class TreeConfig(ScorerSettings):
    """A linear tree over words, by omikuji (`pip install 'xmtc[trees]'`). Its score does not decompose into words."""

    summary: ClassVar[str] = (
        "linear classifiers in a tree over labels; evidence does not look into them"
    )
    kind: Literal["tree"] = "tree"
    fields: FieldWeights = None
    """Fields to read, as in `linear`."""
    shape: Literal["bonsai", "parabel"] = "bonsai"
    """Wide and shallow (Khandagale et al. 2020), or balanced and binary (Prabhu et al. 2018), which fits faster."""
    trees: Annotated[int, Field(ge=1)] = 3
    """Number of trees whose scores are averaged. Time and size are proportional to it."""

    @property
    @override
    def scorer(self) -> "type[Scorer]":
        from xmtc.scorers.tree import Tree

        return Tree


ScorerConfig = Annotated[
    ScorerSettings,
    Members(
        "xmtc.scorers",
        LinearConfig,
        RankedWordsConfig,
        WordNeighboursConfig,
        StateNeighboursConfig,
        LabelTextConfig,
        LabelEmbeddingsConfig,
        TreeConfig,
    ),
]
