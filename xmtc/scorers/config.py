"""Settings of the scorers and their fusion. Reading them imports no implementation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

from pydantic import Field

from xmtc.config.base import config
from xmtc.config.members import Members

if TYPE_CHECKING:
    from pathlib import Path

    from xmtc.scorers.base import Scorer, Training

Feature = Literal["words", "states", "label_texts"]
_BRANCHES = 100  # of a tree's top
BinName = Annotated[str, Field(pattern=r"^(\d+|\d+-\d+|>\d+)$")]


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a scorer has to work through, for estimates.

    Attributes:
        documents: N, of training.
        labels: L.
        terms: V, of the vocabulary.
        words: different words of a document.
        labels_a_document: mean number of labels.
        width: D, of pooled states.
    """

    documents: int
    labels: int
    terms: int
    words: float
    labels_a_document: float
    width: int


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a scorer takes, roughly.

    Attributes:
        fit_products, score_products: floating-point operations of dense products, to fit and to score a document.
        fit_items, score_items: elements that are sorted or multiplied one by one.
        bytes: of memory at the fullest moment.
    """

    fit_products: float = 0.0
    fit_items: float = 0.0
    score_products: float = 0.0
    score_items: float = 0.0
    bytes: float = 0.0


class ScorerSettings(Protocol):
    """Settings of one scorer: what it reads, and how it is fitted."""

    @property
    def kind(self) -> str:
        """Name of the member."""
        ...

    @property
    def needs(self) -> frozenset[Feature]:
        """What `Training` must hold: words of whole texts, pooled states of the backbone, texts of labels."""
        ...

    @property
    def shares_work(self) -> bool:
        """Whether all ranks call `fit` and share its work (`Training.ranks`); otherwise rank 0 alone calls it."""
        ...

    def work(self, load: Load) -> Work:
        """What fitting and scoring take."""
        ...

    def fit(self, training: "Training") -> "Scorer":
        """Fit the scorer.

        Raises:
            DataError: the training documents do not allow it; the message says why.
        """
        ...

    def load(self, folder: "Path") -> "Scorer":
        """Read a fitted scorer.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        ...


@config
class LinearConfig:
    """Ridge regression in closed form over TF-IDF of words: one factorisation for all labels."""

    kind: Literal["linear"] = "linear"
    most_terms: Annotated[int, Field(ge=1)] = 14_000
    """Terms that it reads, the most frequent ones. Memory grows with the square of it, or of the training documents if
    they are fewer; time with the cube."""
    weighting: Literal["uniform", "log_odds"] = "uniform"
    """`log_odds` scales a term by the greatest log-odds that it has for a label, so that terms which tell no labels
    apart weigh little (after NB-SVM, Wang & Manning 2012). For few labels with many documents each: sentiment."""
    penalties: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (0.1,)
    """Ridge penalties λ > 0 to choose from by leave-one-out, separately for each frequency bin of labels. A small one
    serves rare labels, a large one frequent labels. Each costs a factorisation."""
    states: Annotated[float, Field(ge=0)] = 0.0
    """Scale of the pooled states that are read as columns next to the words; 0 leaves them out."""
    sample: Annotated[int, Field(ge=1)] = 4_000
    """Training documents whose leave-one-out scores decide between penalties."""
    prune: Annotated[float, Field(ge=0, lt=1)] = 0.05
    """The smallest weights of a label are dropped while their norm stays under this share of the norm of all. A score
    changes by no more than that norm."""
    bins: tuple[BinName, ...] = ("1-5", "6-10", "11-50", ">50")
    """Frequency bins of labels that choose separate penalties."""

    @property
    def needs(self) -> frozenset[Feature]:
        """Words, and pooled states where they have a scale."""
        return frozenset({"words", "states"}) if self.states else frozenset({"words"})

    @property
    def shares_work(self) -> bool:
        """Yes: ranks share Gram matrix and labels."""
        return True

    def work(self, load: Load) -> Work:
        """A factorisation over terms or over documents, whichever are fewer, for each penalty; then all labels."""
        terms = min(self.most_terms, load.terms)
        size = min(terms, load.documents)
        products = size**3 / 3 * len(self.penalties) + 2 * size**2 * load.labels
        products += load.documents * size * min(2_000, terms)  # of frequent terms
        rare = load.words / 2
        pairs = load.documents * rare * (rare if size == terms else load.documents * rare / terms)
        cells = terms * load.labels
        kept = min(terms, 400 * max(load.documents * load.labels_a_document / max(load.labels, 1), 1))
        return Work(
            fit_products=products,
            fit_items=0.1 * pairs + 1.5 * cells + 0.2 * load.documents * load.words * load.labels * (size < terms),
            score_items=0.1 * load.words * load.labels * kept / terms + 0.3 * load.labels,
            bytes=4 * (2 + len(self.penalties)) * size**2 + 8.0 * 4_096 * terms,
        )

    def fit(self, training: "Training") -> "Scorer":
        """Fit one row of weights a label."""
        from xmtc.scorers.linear import fit_linear

        return fit_linear(training, self)

    def load(self, folder: "Path") -> "Scorer":
        """See `ScorerSettings.load`."""
        from xmtc.scorers.linear import Linear

        return Linear.load(folder)


@config
class WordNeighboursConfig:
    """Votes of the training documents whose words are most alike: s = Σ cos^p · y / Σ cos^p."""

    kind: Literal["word_neighbours"] = "word_neighbours"
    neighbours: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (50,)
    """Numbers of neighbours to choose from by leave-one-out."""
    power: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (4.0,)
    """Exponents p of the cosine to choose from by leave-one-out."""
    sample: Annotated[int, Field(ge=1)] = 2_000
    """Training documents whose leave-one-out scores decide."""

    @property
    def needs(self) -> frozenset[Feature]:
        """Words."""
        return frozenset({"words"})

    @property
    def shares_work(self) -> bool:
        """No."""
        return False

    def work(self, load: Load) -> Work:
        """A product with all training documents, and a look for the best of them."""
        rare = load.words / 2
        items = 0.3 * load.documents + 0.1 * rare * rare * load.documents / max(load.terms, 1)
        score = Work(score_products=2.0 * 1_000 * load.documents, score_items=items)
        options = len(self.neighbours) * len(self.power) > 1
        sampled = min(self.sample, load.documents) * options
        return Work(
            fit_products=sampled * score.score_products,
            fit_items=sampled * score.score_items,
            score_products=score.score_products,
            score_items=score.score_items,
            bytes=3 * 512 * 4.0 * load.documents + 4_000.0 * load.documents,
        )

    def fit(self, training: "Training") -> "Scorer":
        """Keep the training rows."""
        from xmtc.scorers.neighbours import fit_word_neighbours

        return fit_word_neighbours(training, self)

    def load(self, folder: "Path") -> "Scorer":
        """See `ScorerSettings.load`."""
        from xmtc.scorers.neighbours import Neighbours

        return Neighbours.load(folder)


@config
class StateNeighboursConfig:
    """Votes of the training documents whose pooled states are most alike: weights exp(t · (cos − 1))."""

    kind: Literal["state_neighbours"] = "state_neighbours"
    neighbours: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] = (50,)
    """Numbers of neighbours to choose from by leave-one-out."""
    sharpness: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (20.0,)
    """Values of t to choose from by leave-one-out."""
    index: Literal["auto", "flat", "ivf", "hnsw"] = "auto"
    """FAISS index: exact; inverted lists; a graph. `auto` is exact up to 200,000 documents, then inverted lists."""
    probes: Annotated[int, Field(ge=1)] = 32
    """Inverted lists, or nodes of the graph times 4, that one search visits."""
    sample: Annotated[int, Field(ge=1)] = 2_000
    """Training documents whose leave-one-out scores decide."""

    @property
    def needs(self) -> frozenset[Feature]:
        """Pooled states."""
        return frozenset({"states"})

    @property
    def shares_work(self) -> bool:
        """No."""
        return False

    def work(self, load: Load) -> Work:
        """A product with the states of all training documents; inverted lists read a part of them."""
        read = load.documents if load.documents <= 200_000 else load.documents**0.5 * self.probes
        return Work(
            score_products=2.0 * load.width * read, score_items=0.05 * read, bytes=8.0 * load.width * load.documents
        )

    def fit(self, training: "Training") -> "Scorer":
        """Centre and index the states."""
        from xmtc.scorers.neighbours import fit_state_neighbours

        return fit_state_neighbours(training, self)

    def load(self, folder: "Path") -> "Scorer":
        """See `ScorerSettings.load`."""
        from xmtc.scorers.neighbours import Neighbours

        return Neighbours.load(folder)


@config
class LabelTextConfig:
    """Similarity of a document and a label's name or description: all that a label without documents has."""

    kind: Literal["label_text"] = "label_text"

    @property
    def needs(self) -> frozenset[Feature]:
        """Words and texts of labels."""
        return frozenset({"words", "label_texts"})

    @property
    def shares_work(self) -> bool:
        """No."""
        return False

    def work(self, load: Load) -> Work:
        """A sparse product of the words of a document with those of label names."""
        return Work(fit_items=3.0 * load.labels, score_items=0.3 * load.labels)

    def fit(self, training: "Training") -> "Scorer":
        """Weigh the words of the label texts."""
        from xmtc.scorers.label_text import fit_label_text

        return fit_label_text(training, self)

    def load(self, folder: "Path") -> "Scorer":
        """See `ScorerSettings.load`."""
        from xmtc.scorers.label_text import LabelText

        return LabelText.load(folder)


@config
class TreeConfig:
    """A linear tree over words, by omikuji (`pip install 'xmtc[trees]'`). Its score does not decompose into words."""

    kind: Literal["tree"] = "tree"
    shape: Literal["bonsai", "parabel"] = "bonsai"
    """Wide and shallow (Khandagale et al. 2020), or balanced and binary (Prabhu et al. 2018), which fits faster."""
    trees: Annotated[int, Field(ge=1)] = 3
    """Trees whose scores are averaged. Time and size grow in proportion."""
    beam: Annotated[int, Field(ge=1)] = 30
    """Nodes that a search keeps on each level."""
    top: Annotated[int, Field(ge=1)] = 100
    """Labels that a search returns."""

    @property
    def needs(self) -> frozenset[Feature]:
        """Words."""
        return frozenset({"words"})

    @property
    def shares_work(self) -> bool:
        """No."""
        return False

    def work(self, load: Load) -> Work:
        """Classifiers of the top branches see all documents, those of a branch's labels the documents of the branch."""
        top = min(_BRANCHES, load.labels)
        below = load.labels / top if load.labels > top else 0.0  # labels of a branch
        cells = self.trees * load.documents * load.words
        return Work(
            fit_items=0.5 * cells * (top + load.labels_a_document * below),
            score_items=0.05 * self.trees * load.words * (top + min(self.beam, top) * below),
            bytes=24.0 * cells * (2 + load.labels_a_document / 2),
        )

    def fit(self, training: "Training") -> "Scorer":
        """Train the trees."""
        from xmtc.scorers.tree import fit_tree

        return fit_tree(training, self)

    def load(self, folder: "Path") -> "Scorer":
        """See `ScorerSettings.load`."""
        from xmtc.scorers.tree import Tree

        return Tree.load(folder)


ScorerConfig = Annotated[
    ScorerSettings,
    Members("xmtc.scorers", LinearConfig, WordNeighboursConfig, StateNeighboursConfig, LabelTextConfig, TreeConfig),
]


@config
class FusionConfig:
    """How the scores of several scorers become one probability: logistic regression over (document, label) pairs."""

    candidates: Annotated[int, Field(ge=1)] = 50
    """Labels that each scorer proposes for a document; their union is what is fused."""
    bins: tuple[BinName, ...] = ("0-5", "6-10", "11-50", ">50")
    """Frequency bins of labels that have separate coefficients, drawn towards those of all labels."""
    bin_penalty: Annotated[float, Field(gt=0)] = 30.0
    """How strongly a bin's coefficients are drawn towards the common ones, in pseudo-observations."""
    penalty: Annotated[float, Field(gt=0)] = 1.0
    """Ridge penalty of the common coefficients."""
    knots: Annotated[int, Field(ge=2)] = 20
    """Points of the monotone map from a scorer's score to log-odds."""
