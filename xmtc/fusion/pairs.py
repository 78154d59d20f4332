"""The union of the labels that several scorers propose, with every scorer's scores.

Suffixes: S scorers, N documents, K labels of the union (padded), L labels, P pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xmtc.data.arrays import Matrix
from xmtc.fusion.log_odds import LogOdds, ranks_along_rows
from xmtc.scorers.base import Scored
from xmtc.scorers.predictions import match


@dataclass(frozen=True)
class Pairs:
    """(document, candidate) pairs as rectangular arrays.

    Attributes:
        label_ids_NK: int32, ascending along a row; -1 where there is no pair.
        scores_SNK: float32; 0 if a scorer does not know the label.
        given_PP: see `Occurrences.between`; None if fusions have to find it themselves.
        read: of the first scorers, the map to log-odds and what it gives, (4, N, K). Fusions compute what is missing.
    """

    label_ids_NK: NDArray[np.int32]
    scores_SNK: NDArray[np.float32]
    given_PP: Matrix | None = None
    read: tuple[tuple[LogOdds, NDArray[np.float64]], ...] = ()

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which places are pairs."""
        return self.label_ids_NK >= 0

    @classmethod
    def of(
        cls, scored: Sequence[Scored], k: int, also: NDArray[np.integer] | None = None
    ) -> "Pairs":
        """Unite each scorer's k best labels, and take all scorers' scores of them.

        Args:
            scored: scores of S scorers for the same N documents.
            k: number of labels that each scorer proposes.
            also: labels that are always candidates, of every document.
        """
        proposed = [scores.top(k).label_ids_NK for scores in scored]
        if also is not None:
            documents = len(proposed[0])
            proposed.append(
                np.broadcast_to(also.astype(np.int32), (documents, len(also)))
            )
        ids_NK = _distinct(np.concatenate(proposed, axis=1))
        return cls(ids_NK, np.stack([scores.at(ids_NK) for scores in scored]))

    @classmethod
    def concatenate(cls, parts: Sequence["Pairs"]) -> "Pairs":
        """Concatenate the documents of the parts, padded to the widest."""
        width = max(part.label_ids_NK.shape[1] for part in parts)
        label_ids = []
        scores = []
        for part in parts:
            missing = width - part.label_ids_NK.shape[1]
            label_ids.append(
                np.pad(part.label_ids_NK, ((0, 0), (0, missing)), constant_values=-1)
            )
            scores.append(np.pad(part.scores_SNK, ((0, 0), (0, 0), (0, missing))))
        return cls(np.concatenate(label_ids), np.concatenate(scores, axis=1))

    def take(self, rows: NDArray[np.integer] | slice) -> "Pairs":
        """Select the pairs of some documents, ascending."""
        given_PP = self.given_PP
        if given_PP is not None:
            selected_NK = np.zeros_like(self.used)
            selected_NK[rows] = True
            selected_pairs = np.flatnonzero(selected_NK[self.used])
            given_PP = given_PP[selected_pairs][:, selected_pairs]
        return Pairs(self.label_ids_NK[rows], self.scores_SNK[:, rows], given_PP)

    def right(self, gold_NL: Matrix) -> NDArray[np.bool_]:
        """Mark the candidates that are the document's labels, (N, K); padding is False."""
        return match(self.label_ids_NK, gold_NL)

    def without(self, unjudged: Matrix | None) -> "Pairs":
        """Drop the pairs that nobody judged, so that a fusion is fitted on them neither as right nor as wrong.

        The arrays keep their places: the id of such a candidate becomes -1.

        Args:
            unjudged: boolean (N, L); None if every label was judged.
        """
        if unjudged is None:
            return self
        kept_NK = self.used & ~match(self.label_ids_NK, unjudged)
        label_ids_NK = np.where(kept_NK, self.label_ids_NK, -1)
        return Pairs(label_ids_NK, np.where(kept_NK, self.scores_SNK, 0))

    def only(self, scorers: Sequence[int], k: int) -> "Pairs":
        """Keep what some of the scorers propose and say, as if the others did not exist.

        The arrays keep their places: the id of a candidate that only others propose becomes -1.

        Args:
            scorers: numbers of the scorers.
            k: number of labels that each scorer proposes. Which these are follows from the scores, except for labels
                that tie with the last of them and those that an approximate index missed.
        """
        if list(scorers) == list(range(len(self.scores_SNK))):
            return self
        scores_SNK = self.scores_SNK[list(scorers)]
        proposed_NK = np.zeros(self.label_ids_NK.shape, np.bool_)
        for scores_NK in scores_SNK:
            knows_label_NK = (scores_NK != 0) & self.used
            ranks_NK = ranks_along_rows(np.where(knows_label_NK, -scores_NK, np.inf))
            proposed_NK |= knows_label_NK & (ranks_NK < k)
        given_PP = self.given_PP
        if given_PP is not None:
            proposed_pairs = np.flatnonzero(proposed_NK[self.used])
            given_PP = given_PP[proposed_pairs][:, proposed_pairs]
        label_ids_NK = np.where(proposed_NK, self.label_ids_NK, -1)
        scores_SNK = np.where(proposed_NK, scores_SNK, 0)
        return Pairs(label_ids_NK, scores_SNK, given_PP)

    def maps(self, right_NK: NDArray[np.bool_]) -> tuple[LogOdds, ...]:
        """Fit the map of each scorer whose scores are not read already; return all."""
        maps = [log_odds_map for log_odds_map, _ in self.read]
        right_P = right_NK[self.used]
        for scores_NK in self.scores_SNK[len(maps) :]:
            scores_P = scores_NK[self.used]
            knows_label_P = scores_P != 0
            maps.append(LogOdds.fit(scores_P[knows_label_P], right_P[knows_label_P]))
        return tuple(maps)

    def read_by(self, maps: Sequence[LogOdds]) -> "Pairs":
        """Read the scores by each scorer's map, unless they are read already."""
        read = list(self.read)
        missing = slice(len(read), None)
        for log_odds_map, scores_NK in zip(
            maps[missing], self.scores_SNK[missing], strict=True
        ):
            read.append((log_odds_map, log_odds_map.inputs(scores_NK, self.used)))
        return replace(self, read=tuple(read))

    def inputs(
        self, maps: Sequence[LogOdds], counts_L: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Compute the inputs of the regression, (4 · S + 2, N, K): four per scorer, the label's count, and 1."""
        counts_NK = np.log1p(counts_L[self.label_ids_NK])
        intercepts_NK = np.ones(counts_NK.shape)
        parts = [inputs_4NK for _, inputs_4NK in self.read_by(maps).read]
        parts.append(np.stack([counts_NK, intercepts_NK]))
        return np.concatenate(parts)


def _distinct(ids_NK: NDArray[np.int32]) -> NDArray[np.int32]:
    """Find each row's distinct ids, ascending, padded with -1."""
    behind_all = np.iinfo(np.int32).max
    ids_NK = np.sort(np.where(ids_NK < 0, behind_all, ids_NK), axis=1)
    repeats_NK = ids_NK[:, 1:] == ids_NK[:, :-1]
    ids_NK[:, 1:][repeats_NK] = behind_all
    ids_NK.sort(axis=1)
    counts_N = (ids_NK != behind_all).sum(axis=1)
    width = max(1, int(counts_N.max(initial=0)))
    ids_NK = ids_NK[:, :width]
    return np.where(ids_NK == behind_all, -1, ids_NK).astype(np.int32)
