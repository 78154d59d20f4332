"""Fuse each half of some documents with a fusion that is fitted on the other half, for unbiased metrics.

Suffixes: N documents, K candidates, L labels, P pairs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray

from xmtc.data.arrays import Matrix
from xmtc.data.loader import in_threads
from xmtc.fusion.config import FusionConfig
from xmtc.fusion.fusion import fit_fusion
from xmtc.fusion.occurrences import Occurrences
from xmtc.fusion.pairs import Pairs
from xmtc.track.console import print_line

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
        config: settings of the fusion.
    """

    names: Sequence[str]
    places: Sequence[int]
    config: FusionConfig


@dataclass(frozen=True)
class CrossFit:
    """Fits fusions of several sets of scorers on the same documents, on all cores.

    Attributes:
        pairs: pairs of N documents; the halves are the even and the odd rows.
        gold_NL: boolean labels of the same documents.
        occurrences: training documents of labels and of pairs of labels.
    """

    pairs: Pairs
    gold_NL: Matrix
    occurrences: Occurrences

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
    def _halves(self) -> list[tuple[Pairs, Matrix, Pairs]]:
        """Pairs to fit on, their labels, and pairs to fuse; with what all fusions read of co-occurrence."""
        pairs = self.pairs
        if self.occurrences.any_together:
            pairs = replace(
                pairs, given_PP=self.occurrences.between(pairs.label_ids_NK)
            )
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
        k = arm.config.candidates
        learned = learned.only(arm.places, k)
        fused = fused.only(arm.places, k)
        fusion = fit_fusion(arm.names, learned, gold_NL, self.occurrences, arm.config)
        return np.where(fused.used, fusion.logits(fused), -np.inf)
