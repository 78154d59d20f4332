"""Fuse each half of some documents with a fusion that is fitted on the other half, for unbiased metrics.

Suffixes: N documents, K candidates, L labels, P pairs.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import get_args

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray

from xmtc.data.arrays import Matrix
from xmtc.data.loader import in_threads
from xmtc.fusion.config import CombinationKind, FusionConfig
from xmtc.fusion.fusion import Fusion, fit_fusion
from xmtc.fusion.occurrences import Occurrences
from xmtc.fusion.pairs import Pairs
from xmtc.track.console import print_line

logger = logging.getLogger(__name__)
LEAST_FOR_TREES = 2_000
"""Trees are not tried with fewer right pairs."""
MOST_AT_ONCE = 16
"""Fusions fitted at the same time, each on its copy of the pairs."""
_EVEN = slice(None, None, 2)
_ODD = slice(1, None, 2)


@dataclass(frozen=True)
class Arm:
    """Which scorers to fuse, and how.

    Attributes:
        names: names of the scorers.
        places: their numbers among all scorers.
        kind: the combination.
        co_occurrence: whether the co-occurrence of labels is one more scorer.
    """

    names: Sequence[str]
    places: Sequence[int]
    kind: CombinationKind
    co_occurrence: bool = True


@dataclass(frozen=True)
class CrossFit:
    """Fits fusions of several sets of scorers on the same documents, on all cores.

    Attributes:
        pairs: pairs of N documents; the halves are the even and the odd rows.
        gold_NL: boolean labels of the same documents.
        occurrences: training documents of labels and of pairs of labels.
        candidates: number of labels that each scorer proposes per document.
    """

    pairs: Pairs
    gold_NL: Matrix
    occurrences: Occurrences
    candidates: int

    def everything(
        self, names: Sequence[str], config: FusionConfig
    ) -> tuple[Fusion, NDArray[np.float64]]:
        """Fuse all scorers by the configured kind; `auto` is the kind with the lower log loss on the halves.

        Args:
            names: names of all scorers.
            config: settings of the fusion.

        Returns:
            A fusion that is fitted on all documents, and the logits (N, K) of the halves, by others of its kind.
        """
        right_NK = self.pairs.right(self.gold_NL)
        kinds: tuple[CombinationKind, ...] = get_args(CombinationKind)
        if config.kind != "auto":
            kinds = (config.kind,)
        elif right_NK.sum() < LEAST_FOR_TREES:
            kinds = ("linear",)
        places = range(len(names))
        arms = [Arm(names, places, kind, config.co_occurrence) for kind in kinds]
        logits = dict(zip(kinds, self.logits(arms), strict=True))
        used_NK = self.pairs.used
        losses: dict[CombinationKind, float] = {
            kind: _log_loss(logits_NK[used_NK], right_NK[used_NK])
            for kind, logits_NK in logits.items()
        }
        logger.debug("log loss of the fusion by kind: %s", losses)
        kind = min(losses, key=losses.__getitem__)
        occurrences = self._occurrences_of(config.co_occurrence)
        fusion = fit_fusion(
            names, self._pairs_together, self.gold_NL, occurrences, kind
        )
        return fusion, logits[kind]

    def logits(self, arms: Sequence[Arm]) -> Iterator[NDArray[np.float64]]:
        """Compute the logits (N, K) of the pairs by each arm; one thread fits and applies a fusion.

        A pair that none of an arm's scorers proposes has the logit -∞: without the others it is no candidate.
        """
        work = (
            partial(self._half, arm, *half) for arm in arms for half in self._halves
        )
        results = in_threads(work, min(cpu_count(), MOST_AT_ONCE))
        for even_logits, odd_logits in zip(results, results, strict=True):
            logits_NK = np.empty(self.pairs.label_ids_NK.shape)
            logits_NK[::2] = even_logits
            logits_NK[1::2] = odd_logits
            yield logits_NK

    @cached_property
    def _pairs_together(self) -> Pairs:
        """The pairs, with what all fusions read of co-occurrence."""
        if not self.occurrences.any_together:
            return self.pairs
        given_PP = self.occurrences.between(self.pairs.label_ids_NK)
        return replace(self.pairs, given_PP=given_PP)

    @cached_property
    def _halves(self) -> list[tuple[Pairs, Matrix, Pairs]]:
        """Pairs to fit on, their labels, and pairs to fuse."""
        pairs = self._pairs_together
        halves = []
        for half_to_fit, half_to_fuse in ((_ODD, _EVEN), (_EVEN, _ODD)):
            learned, gold_NL = self._learned(pairs, half_to_fit)
            halves.append((learned, gold_NL, pairs.take(half_to_fuse)))
        return halves

    def _learned(self, pairs: Pairs, half: slice) -> tuple[Pairs, Matrix]:
        """Return the half to fit on, or everything if no candidate of the half is right, or all are."""
        part = pairs.take(half)
        gold_NL = self.gold_NL[half]
        outcomes = np.unique(part.right(gold_NL)[part.used])
        if len(outcomes) == 2:
            return part, gold_NL
        print_line(
            "warning: dev is too small to halve: metrics of fused scorers are those of documents they were fitted on"
        )
        return pairs, self.gold_NL

    def _half(
        self, arm: Arm, learned: Pairs, gold_NL: Matrix, fused: Pairs
    ) -> NDArray[np.float64]:
        learned = learned.only(arm.places, self.candidates)
        fused = fused.only(arm.places, self.candidates)
        occurrences = self._occurrences_of(arm.co_occurrence)
        fusion = fit_fusion(arm.names, learned, gold_NL, occurrences, arm.kind)
        return np.where(fused.used, fusion.logits(fused), -np.inf)

    def _occurrences_of(self, co_occurrence: bool) -> Occurrences:
        if co_occurrence:
            return self.occurrences
        return Occurrences.without_pairs(self.occurrences.counts_L)


def _log_loss(logits_P: NDArray[np.float64], right_P: NDArray[np.bool_]) -> float:
    """Return the mean over pairs."""
    return float(np.logaddexp(0, np.where(right_P, -logits_P, logits_P)).mean())
