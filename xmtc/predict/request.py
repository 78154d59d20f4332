"""What is asked of a model, and what it answers: a typed request, and arrays with the best labels of each text.

Suffixes: N texts, K labels of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xmtc.predict.evidence import Explanation
from xmtc.predict.filters import Threshold


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which labels of texts are wanted.

    Attributes:
        top_k: maximum number of labels per text.
        threshold: leave out labels below this probability; `tuned`, those that the model's decision does not give, or a
            rule, those that the rule does not give; None keeps the `top_k` whatever their probability.
        least: keep this many labels per text whatever the threshold.
        evidence: whether to explain the labels that are kept.
        include: the only labels to predict, see `LabelFilter`; None: all.
        exclude: labels that are not predicted.
        shortlist: number of labels per text that an index finds and that get logits; None: all labels get them.
        candidates: labels that fused scorers score for every text, even if none proposes them.
    """

    top_k: int
    threshold: Threshold = None
    least: int = 0
    evidence: bool = False
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    shortlist: int | None = None
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """The best labels of texts, before a request's threshold is applied.

    A threshold, and what to expect of a text, are read from labels beyond `Request.top_k` too, so K may be greater.

    Attributes:
        label_ids_NK: int32 ids of each text's best labels, best first, padded with -1.
        scores_NK: float32 probabilities of these labels, padded with 0.
        explanations: by row, explanations of the labels that the request keeps; empty without evidence.
    """

    label_ids_NK: NDArray[np.int32]
    scores_NK: NDArray[np.float32]
    explanations: Mapping[int, Sequence[Explanation]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.label_ids_NK)

    def rows(self, start: int, stop: int) -> "Answer":
        """Return the answer for the texts from `start` to before `stop`."""
        explanations = {
            row - start: explanations
            for row, explanations in self.explanations.items()
            if start <= row < stop
        }
        return Answer(
            self.label_ids_NK[start:stop], self.scores_NK[start:stop], explanations
        )

    @classmethod
    def united(cls, parts: Sequence["Answer"]) -> "Answer":
        """Unite answers of the same texts, each of which answers for other rows and pads the rest."""
        label_ids_NK = np.maximum.reduce([part.label_ids_NK for part in parts])
        scores_NK = np.maximum.reduce([part.scores_NK for part in parts])
        explanations: dict[int, Sequence[Explanation]] = {}
        for part in parts:
            explanations.update(part.explanations)
        return cls(label_ids_NK, scores_NK, explanations)
