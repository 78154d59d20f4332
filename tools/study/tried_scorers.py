"""Scorers and relations of labels that the study of hypotheses tries: docs/benchmarks/hypotheses.md says why.

Suffixes: N documents, B queries, X things that are compared with them, K candidates, L labels, R relatives of a label,
W names, D width of states, F Fourier features, V terms.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from typing_extensions import override

from xmtc.data.arrays import Floats, Matrix
from xmtc.data.labels import LabelTable
from xmtc.planting.mig.counts import Presence
from xmtc.planting.mig.measures import MutualInformation
from xmtc.planting.mig.ranking import rank_presence
from xmtc.scorers.base import DenseScored, Features, Scorer, SparseScored, Training
from xmtc.scorers.config import LabelEmbeddingsConfig
from xmtc.scorers.label_embeddings import NEAREST, LabelEmbeddings, nearness
from xmtc.scorers.label_text import Embed
from xmtc.scorers.state_neighbours import StateNeighbours
from xmtc.scorers.vectors import index_of, nearest, unit_rows, vectors_at

FEATURES = 2_000
PENALTIES = (0.01, 0.1, 1.0, 10.0)
"""In mean eigenvalues."""
WORDS_OF_A_NAME = 5
WORDS_OF_A_LABEL = 100
_COMPARED = 1_000
"""Training documents whose distances give the bandwidth."""
_LABELS_AT_ONCE = 2_000


def without_hubs(cosines_BX: Floats, hubs_X: Floats) -> Floats:
    """Compute half of CSLS (Conneau et al. 2018): cosines minus half of the mean cosines of both sides' nearest.

    Args:
        cosines_BX: cosines with at least ten things.
        hubs_X: mean cosine of each thing's ten nearest of the other side.
    """
    own_B = np.partition(cosines_BX, -NEAREST, axis=1)[:, -NEAREST:].mean(axis=1)
    return cosines_BX - (own_B[:, None] + hubs_X) / 2


@dataclass(frozen=True)
class NeighboursWithoutHubs(StateNeighbours):
    """Votes of the documents that are nearest by CSLS.

    Attributes:
        hubs_N: mean cosine of each training document's ten nearest others.
    """

    hubs_N: Floats

    @classmethod
    def of(cls, plain: StateNeighbours) -> Self:
        """Correct a fitted scorer."""
        known_ND = vectors_at(plain.index, np.arange(plain.index.ntotal))
        _, cosines_NK = nearest(plain.index, known_ND, NEAREST + 1)
        hubs_N = cosines_NK[:, 1:].mean(axis=1)  # the first one is the document itself
        return cls(plain.labels_NL, plain.k, plain.index, plain.mean_D, hubs_N)

    @cached_property
    def _known_ND(self) -> Floats:
        return vectors_at(self.index, np.arange(self.index.ntotal))

    @override
    def nearest(self, features: Features) -> tuple[NDArray[np.int64], Floats]:
        states_BD = features.states("state_neighbours", len(self.mean_D))
        cosines_BN = unit_rows(states_BD, self.mean_D) @ self._known_ND.T
        corrected_BN = without_hubs(cosines_BN, self.hubs_N)
        rows_BK = np.argsort(-corrected_BN, axis=1, kind="stable")[:, : self.k]
        return rows_BK, np.take_along_axis(corrected_BN, rows_BK, axis=1)


def names_with_hubs(names: LabelEmbeddings) -> LabelEmbeddings:
    """Return the scorer as it was before hubs were taken into account: plain cosines."""
    vectors_WE = vectors_at(names.index, np.arange(names.index.ntotal))
    vectors_WE[:, -1] = 0
    return replace(names, index=index_of(vectors_WE))


@dataclass(frozen=True)
class NamesWithoutHubs(Scorer):
    """Similarity of a document and a label's names by CSLS, with the halves of both sides.

    Attributes:
        plain: the scorer that is corrected.
        names_WD: vectors of the names.
        hubs_W: mean cosine of each name's ten nearest training documents.
    """

    reads_states: ClassVar[bool] = True
    plain: LabelEmbeddings
    names_WD: Floats
    hubs_W: Floats

    @classmethod
    def of(cls, plain: LabelEmbeddings, states_ND: Floats) -> Self:
        """Correct a fitted scorer by the states of its training documents."""
        names_WD = vectors_at(plain.index, np.arange(plain.index.ntotal))[:, :-1]
        documents = index_of(unit_rows(states_ND, plain.documents_D))
        return cls(plain, names_WD, nearness(documents, names_WD.copy()))

    @property
    @override
    def labels(self) -> int:
        return self.plain.labels

    @override
    def score(self, features: Features) -> DenseScored:
        states_BD = features.states("label_embeddings", len(self.plain.documents_D))
        cosines_BW = unit_rows(states_BD, self.plain.documents_D) @ self.names_WD.T
        _, starts_L = self.plain.names_of(np.arange(self.labels))
        corrected_BW = without_hubs(cosines_BW, self.hubs_W)
        return DenseScored(np.maximum.reduceat(corrected_BW, starts_L, axis=1))


@dataclass(frozen=True)
class Fourier(Scorer):
    """Ridge regression over random Fourier features of states.

    Attributes:
        mean_D: mean of the training documents' states.
        directions_DF, phases_F: a feature is the cosine of a phase plus the product with a direction.
        centre_F: mean of the training documents' features.
        weights_FL: weights.
        share_L: share of the training documents that have a label.
    """

    reads_states: ClassVar[bool] = True
    mean_D: Floats
    directions_DF: Floats
    phases_F: Floats
    centre_F: Floats
    weights_FL: Floats
    share_L: Floats

    @classmethod
    @override
    def fit(cls, training: Training, settings: Any = None) -> Self:
        del settings
        states_ND = training.features.states_ND
        assert states_ND is not None, "states are read"
        rng = np.random.default_rng(0)
        mean_D = states_ND.mean(axis=0, dtype=np.float64).astype(np.float32)
        shape = (len(mean_D), FEATURES)
        directions_DF = rng.standard_normal(shape) / median_distance(states_ND, rng)
        phases_F = rng.uniform(0, 2 * np.pi, FEATURES)
        blank = cls(
            mean_D,
            directions_DF.astype(np.float32),
            phases_F.astype(np.float32),
            np.zeros(FEATURES, np.float32),
            np.zeros((FEATURES, 0), np.float32),
            training.labels_NL.mean(axis=0).astype(np.float32),
        )
        features_NF = blank.features(states_ND)
        centre_F = features_NF.mean(axis=0)
        weights_FL = ridge(features_NF - centre_F, training.labels_NL)
        return replace(blank, centre_F=centre_F, weights_FL=weights_FL)

    @property
    @override
    def labels(self) -> int:
        return len(self.share_L)

    def features(self, states_ND: NDArray[np.floating]) -> Floats:
        """Compute the features (N, F), centred once the scorer is fitted."""
        phases_NF = (states_ND - self.mean_D) @ self.directions_DF + self.phases_F
        return np.cos(phases_NF).astype(np.float32) - self.centre_F

    @override
    def score(self, features: Features) -> DenseScored:
        states_ND = features.states("fourier", len(self.mean_D))
        return DenseScored(self.features(states_ND) @ self.weights_FL + self.share_L)


def median_distance(
    states_ND: NDArray[np.floating], rng: np.random.Generator
) -> np.floating:
    """Compute the median distance of two training documents, of a thousand at most."""
    chosen = rng.permutation(len(states_ND))[:_COMPARED]
    states_ND = states_ND[chosen].astype(np.float64)
    squares_N = np.square(states_ND).sum(axis=1)
    squares_NN = squares_N[:, None] + squares_N - 2 * states_ND @ states_ND.T
    pairs = np.triu_indices(len(states_ND), k=1)
    return np.median(np.sqrt(np.maximum(squares_NN[pairs], 0)))


def ridge(features_NF: Floats, labels_NL: Matrix) -> Floats:
    """Regress labels on centred features, with the penalty of least squared error when each document is left out.

    Returns:
        Weights (F, L).
    """
    documents = len(features_NF)
    gram_FF = features_NF.T.astype(np.float64) @ features_NF
    values_F, directions_FF = np.linalg.eigh(gram_FF)
    values_F = np.maximum(values_F, 0)
    rotated_NF = features_NF @ directions_FF.astype(np.float32)
    targets_FL = (labels_NL.T.astype(np.float32) @ rotated_NF).T
    errors = []
    shrinking = [1 / (values_F + share * values_F.mean()) for share in PENALTIES]
    for shrinking_F in shrinking:
        weights_FL = (shrinking_F[:, None] * targets_FL).astype(np.float32)
        leverage_N = np.square(rotated_NF) @ shrinking_F + 1 / documents
        error = 0.0
        for start in range(0, targets_FL.shape[1], _LABELS_AT_ONCE):
            block = slice(start, start + _LABELS_AT_ONCE)
            labels_NB = labels_NL[:, block].toarray().astype(np.float32)
            labels_NB -= labels_NB.mean(axis=0)
            missing_NB = labels_NB - rotated_NF @ weights_FL[:, block]
            left_out_N = np.square(missing_NB).sum(axis=1) / (1 - leverage_N) ** 2
            error += float(left_out_N.sum())
        errors.append(error)
    best_F = shrinking[int(np.argmin(errors))]
    return (directions_FF @ (best_F[:, None] * targets_FL)).astype(np.float32)


def names_with_words(training: Training, embed: Embed) -> LabelEmbeddings:
    """Fit `label_embeddings` to names that are followed by the words with most mutual information on their label."""
    names = training.names
    assert names is not None, "labels have names"
    words = training.features.words
    ranking = rank_presence(
        Presence.of(words.together()),
        training.labels_NL,
        MutualInformation(),
        WORDS_OF_A_NAME,
    )
    texts = []
    for name, label in zip(names.texts, names.owners_W, strict=True):
        ranked = ranking.top(int(label), WORDS_OF_A_NAME)
        terms = [words.vocabulary.terms[token.token_id] for token in ranked]
        texts.append(", ".join([name, *terms]))
    extended = replace(names, texts=texts, states_WD=embed(texts))
    return LabelEmbeddings.fit(
        replace(training, names=extended), LabelEmbeddingsConfig()
    )


@dataclass(frozen=True)
class Relation:
    """The relatives of labels.

    Attributes:
        relatives_LR: relatives of each label; -1 pads rows.
        nearness_LR: by how much the probability of a relative counts.
    """

    relatives_LR: NDArray[np.integer]
    nearness_LR: Floats

    @classmethod
    def nearest(cls, vectors_LX: Matrix) -> Self:
        """Relate labels to the ten others whose vectors are nearest by cosine, and not at right angles.

        Args:
            vectors_LX: sparse, at least 0.
        """
        norms_L = np.sqrt(np.asarray(vectors_LX.multiply(vectors_LX).sum(axis=1)))
        scale_L = 1 / np.maximum(norms_L, np.finfo(np.float32).tiny)
        units_LX = sparse.csr_array(vectors_LX.multiply(scale_L[:, None]))
        others = units_LX.T.tocsr()
        blocks = []
        for start in range(0, len(units_LX.indptr) - 1, _LABELS_AT_ONCE):
            cosines_BL = sparse.csr_array(
                units_LX[start : start + _LABELS_AT_ONCE] @ others
            )
            cosines_BL.setdiag(0, k=start)
            cosines_BL.eliminate_zeros()
            blocks.append(SparseScored(cosines_BL.astype(np.float32)).top(NEAREST))
        return cls(
            np.concatenate([block.label_ids_NK for block in blocks]),
            np.concatenate([block.scores_NK for block in blocks]),
        )

    @classmethod
    def listed(cls, relatives: Sequence[Sequence[int]]) -> Self:
        """Relate labels to lists of others, all equally near."""
        width = max(1, *map(len, relatives))
        relatives_LR = np.full((len(relatives), width), -1, np.int64)
        for label, own in enumerate(relatives):
            relatives_LR[label, : len(own)] = own
        return cls(relatives_LR, (relatives_LR >= 0).astype(np.float32))

    def scores(
        self,
        label_ids_NK: NDArray[np.int32],
        chances_NK: NDArray[np.floating],
        pooling: Literal["mean", "maximum"],
    ) -> Floats:
        """Pool what the relatives of each candidate have, (N, K); 0 if they have nothing.

        Args:
            label_ids_NK: candidates; -1 pads rows.
            chances_NK: their probabilities; those of other labels are 0.
            pooling: whether to take the mean over all relatives or the greatest.
        """
        sizes_L = np.maximum((self.relatives_LR >= 0).sum(axis=1), 1)
        scores_NK = np.zeros(label_ids_NK.shape, np.float32)
        chances_L = np.zeros(len(sizes_L) + 1)  # the last one is that of padding
        for row, ids_K in enumerate(label_ids_NK):
            is_label_K = ids_K >= 0
            candidates = ids_K[is_label_K]
            chances_L[candidates] = chances_NK[row, is_label_K]
            shares_KR = (
                chances_L[self.relatives_LR[candidates]] * self.nearness_LR[candidates]
            )
            scores_NK[row, is_label_K] = (
                shares_KR.max(axis=1)
                if pooling == "maximum"
                else shares_KR.sum(axis=1) / sizes_L[candidates]
            )
            chances_L[candidates] = 0
        return scores_NK


def heaviest_words(words_NV: Matrix, labels_NL: Matrix) -> Matrix:
    """Sum the TF-IDF rows of each label's documents, and keep the heaviest words: sparse (L, V)."""
    sums_LV = sparse.csr_array(labels_NL.T.astype(np.float32) @ words_NV)
    best = SparseScored(sums_LV).top(WORDS_OF_A_LABEL)
    rows, places = np.nonzero(best.label_ids_NK >= 0)
    at = rows, best.label_ids_NK[rows, places]
    return sparse.csr_array((best.scores_NK[rows, places], at), shape=sums_LV.shape)


def hierarchy(labels: LabelTable) -> dict[str, Relation]:
    """Relate labels to their parents, children and siblings; nothing without a hierarchy."""
    if labels.parents is None:
        return {}
    id_of = {label: label_id for label_id, label in enumerate(labels.labels)}
    children: dict[str, list[int]] = defaultdict(list)
    for label_id, parents in enumerate(labels.parents):
        for parent in parents:
            children[parent].append(label_id)
    siblings = []
    for label_id, parents in enumerate(labels.parents):
        family = {child for parent in parents for child in children[parent]}
        siblings.append(sorted(family - {label_id}))
    return {
        "parents": Relation.listed(
            [
                [id_of[parent] for parent in parents if parent in id_of]
                for parents in labels.parents
            ]
        ),
        "children": Relation.listed(
            [children.get(label, []) for label in labels.labels]
        ),
        "siblings": Relation.listed(siblings),
    }
