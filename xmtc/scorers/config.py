"""Settings of the scorers and their fusion. Reading them imports no implementation."""

from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.config.members import Members

if TYPE_CHECKING:
    from pathlib import Path

    from xmtc.scorers.base import Scorer, Training

Feature = Literal["words", "states", "label_texts"]
CombinationKind = Literal["linear", "trees"]
LEAST_FOR_TREES = 2_000
"""A fusion does not try trees with fewer right pairs."""
MAX_PAIRS = 500_000
"""Number of pairs that trees are fitted on at most; more take longer and help little."""
BinName = Annotated[str, Field(pattern=r"^(\d+|\d+-\d+|>\d+)$")]


class ScorerSettings(Protocol):
    """Settings of one scorer: what it reads, and how it is fitted."""

    @property
    def kind(self) -> str:
        """Name of the member."""
        ...

    @property
    def needs(self) -> frozenset[Feature]:
        """The parts of `Training` that it needs: words of whole texts, pooled states, texts of labels."""
        ...

    @property
    def shares_work(self) -> bool:
        """Whether all ranks call `fit` and share its work (`Training.ranks`); otherwise only rank 0 calls it."""
        ...

    def fit(self, training: "Training") -> "Scorer":
        """Fit the scorer.

        Raises:
            DataError: the scorer cannot be fitted on these documents; the message says why.
        """
        ...

    def load(self, folder: "Path") -> "Scorer":
        """Read a fitted scorer.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        ...


class FittedByOneRank:
    """Settings of a scorer that one rank fits, on words unless they say otherwise."""

    @property
    def needs(self) -> frozenset[Feature]:
        """Words."""
        return frozenset({"words"})

    @property
    def shares_work(self) -> bool:
        """No."""
        return False


@config
class LinearConfig(ScorerSettings):
    """Ridge regression in closed form over TF-IDF of words: one factorisation for all labels."""

    kind: Literal["linear"] = "linear"
    most_terms: Annotated[int, Field(ge=1)] = 14_000
    """Number of terms to use, the most frequent ones. Memory grows with the square of this number, or of the number of
    training documents if that is smaller; time grows with the cube."""
    weighting: Literal["uniform", "log_odds"] = "uniform"
    """`log_odds` scales a term by its greatest log-odds over the labels, so terms that do not separate labels have
    little weight (after NB-SVM, Wang & Manning 2012). For few labels with many documents each, such as sentiment."""
    penalties: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (0.1,)
    """Ridge penalties λ > 0 to choose from by leave-one-out, separately for each frequency bin of labels. Small
    penalties suit rare labels, large ones frequent labels. Each costs a factorisation."""
    states: Annotated[float, Field(ge=0)] = 0.0
    """Scale of the pooled states that become columns next to the words; 0 leaves them out."""
    sample: Annotated[int, Field(ge=1)] = 4_000
    """Number of training documents whose leave-one-out scores choose the penalty."""
    prune: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """xmtc drops a label's smallest weights while their norm is below this share of the norm of all its weights. A
    score changes by at most the norm of the dropped weights."""
    bins: tuple[BinName, ...] = ("1-5", "6-10", "11-50", ">50")
    """Frequency bins of labels that choose separate penalties."""

    @property
    def needs(self) -> frozenset[Feature]:
        """Words, and pooled states if their scale is not 0."""
        return frozenset({"words", "states"}) if self.states else frozenset({"words"})

    @property
    def shares_work(self) -> bool:
        """Yes: ranks share Gram matrix and labels."""
        return True

    def fit(self, training: "Training") -> "Scorer":
        """Fit one row of weights per label."""
        from xmtc.scorers.linear import fit_linear

        return fit_linear(training, self)

    @override
    def load(self, folder: "Path") -> "Scorer":
        from xmtc.scorers.linear import Linear

        return Linear.load(folder)


@config
class WordNeighboursConfig(FittedByOneRank, ScorerSettings):
    """Votes of the training documents with the most similar words: s = Σ cos^p · y / Σ cos^p."""

    kind: Literal["word_neighbours"] = "word_neighbours"
    neighbours: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (50,)
    """Numbers of neighbours to choose from by leave-one-out."""
    power: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (4.0,)
    """Exponents p of the cosine to choose from by leave-one-out."""
    sample: Annotated[int, Field(ge=1)] = 2_000
    """Number of training documents whose leave-one-out scores decide."""

    def fit(self, training: "Training") -> "Scorer":
        """Keep the training rows."""
        from xmtc.scorers.neighbours import fit_word_neighbours

        return fit_word_neighbours(training, self)

    @override
    def load(self, folder: "Path") -> "Scorer":
        from xmtc.scorers.neighbours import Neighbours

        return Neighbours.load(folder)


@config
class StateNeighboursConfig(FittedByOneRank, ScorerSettings):
    """Votes of the training documents with the most similar pooled states: weights exp(t · (cos − 1))."""

    kind: Literal["state_neighbours"] = "state_neighbours"
    neighbours: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (50,)
    """Numbers of neighbours to choose from by leave-one-out."""
    sharpness: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (20.0,)
    """Values of t to choose from by leave-one-out."""
    index: Literal["auto", "flat", "ivf", "hnsw"] = "auto"
    """FAISS index: `flat` is exact, `ivf` uses inverted lists, `hnsw` a graph. `auto`: flat up to 200,000 documents,
    then ivf."""
    probes: Annotated[int, Field(ge=1)] = 32
    """Number of inverted lists that one search visits; in a graph, 4 times this many nodes."""
    sample: Annotated[int, Field(ge=1)] = 2_000
    """Number of training documents whose leave-one-out scores decide."""

    @property
    def needs(self) -> frozenset[Feature]:
        """Pooled states."""
        return frozenset({"states"})

    def fit(self, training: "Training") -> "Scorer":
        """Centre and index the states."""
        from xmtc.scorers.neighbours import fit_state_neighbours

        return fit_state_neighbours(training, self)

    @override
    def load(self, folder: "Path") -> "Scorer":
        from xmtc.scorers.neighbours import Neighbours

        return Neighbours.load(folder)


@config
class LabelTextConfig(FittedByOneRank, ScorerSettings):
    """Similarity of a document and a label's name or description, the only information on labels without documents."""

    kind: Literal["label_text"] = "label_text"

    @property
    def needs(self) -> frozenset[Feature]:
        """Words and texts of labels."""
        return frozenset({"words", "label_texts"})

    def fit(self, training: "Training") -> "Scorer":
        """Compute weights of the words of the label texts."""
        from xmtc.scorers.label_text import fit_label_text

        return fit_label_text(training, self)

    @override
    def load(self, folder: "Path") -> "Scorer":
        from xmtc.scorers.label_text import LabelText

        return LabelText.load(folder)


@config
class TreeConfig(FittedByOneRank, ScorerSettings):
    """A linear tree over words, by omikuji (`pip install 'xmtc[trees]'`). Its score does not decompose into words."""

    kind: Literal["tree"] = "tree"
    shape: Literal["bonsai", "parabel"] = "bonsai"
    """Wide and shallow (Khandagale et al. 2020), or balanced and binary (Prabhu et al. 2018), which fits faster."""
    trees: Annotated[int, Field(ge=1)] = 3
    """Number of trees whose scores are averaged. Time and size are proportional to it."""
    beam: Annotated[int, Field(ge=1)] = 30
    """Number of nodes that a search keeps on each level."""
    top: Annotated[int, Field(ge=1)] = 100
    """Number of labels that a search returns."""

    def fit(self, training: "Training") -> "Scorer":
        """Train the trees."""
        from xmtc.scorers.tree import fit_tree

        return fit_tree(training, self)

    @override
    def load(self, folder: "Path") -> "Scorer":
        from xmtc.scorers.tree import Tree

        return Tree.load(folder)


ScorerConfig = Annotated[
    ScorerSettings,
    Members("xmtc.scorers", LinearConfig, WordNeighboursConfig, StateNeighboursConfig, LabelTextConfig, TreeConfig),
]


@config
class FusionConfig:
    """Fuses the scores of several scorers into one probability, by a model of (document, label) pairs."""

    kind: Literal["auto", "linear", "trees"] = "auto"
    """`linear`: logistic regression with coefficients per frequency bin. `trees`: boosted trees, which need many dev
    documents. `auto`: whichever predicts a quarter of the dev documents better when fitted on the rest. The logit is an
    exact sum over scorers with both."""
    co_occurrence: bool = True
    """Whether labels that often occur together in training documents support each other, as one more scorer."""
    candidates: Annotated[int, Field(ge=1)] = 50
    """Number of labels that each scorer proposes per document. The fusion scores their union."""
    bins: tuple[BinName, ...] = ("0-5", "6-10", "11-50", ">50")
    """Frequency bins of labels with separate coefficients, shrunk towards those of all labels."""
    bin_penalty: Annotated[float, Field(gt=0)] = 30.0
    """Strength of the shrinkage of a bin's coefficients towards the common ones, in pseudo-observations."""
    penalty: Annotated[float, Field(gt=0)] = 1.0
    """Ridge penalty of the common coefficients."""
    knots: Annotated[int, Field(ge=2)] = 20
    """Number of points of the monotone map from a scorer's score to log-odds."""
    trees: Annotated[int, Field(ge=1)] = 250
    """Number of boosted trees."""
    leaves: Annotated[int, Field(ge=2)] = 15
    """Maximum number of leaves per tree."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 0.05
    """Factor of each tree's contribution."""

    def tries_trees(self, right: float) -> bool:
        """Whether trees are fitted, given the number of right pairs."""
        return self.kind == "trees" or (self.kind == "auto" and right >= LEAST_FOR_TREES)
