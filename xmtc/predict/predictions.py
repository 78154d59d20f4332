"""Predictions as users get them: the labels of a text, best first, and what to expect of them."""

from collections.abc import Iterable
from typing import NamedTuple

from xmtc.predict.evidence import Evidence


class Prediction(NamedTuple):
    """A label of a text.

    Attributes:
        label: label, as in the training data.
        score: probability.
        name: readable name of the label; the label itself if it has none.
        evidence: words with the greatest contributions to the label's logit, greatest first; empty unless requested.
        predicted: whether the model's decision gives it to the text.
    """

    label: str
    score: float
    name: str
    evidence: tuple[Evidence, ...] = ()
    predicted: bool = False


class Expected(NamedTuple):
    """What to expect of the labels that a text gets; 0 if it gets none.

    Attributes:
        precision: share of them that are right.
        recall: share of the right labels that are among them.
        f1: harmonic mean of both.
    """

    precision: float
    recall: float
    f1: float


class Predictions(list[Prediction]):
    """The labels of a text, best first.

    Attributes:
        expected: what to expect of those that the model's decision, or the requested one, gives to the text.
    """

    def __init__(self, labels: Iterable[Prediction], expected: Expected) -> None:
        super().__init__(labels)
        self.expected = expected
