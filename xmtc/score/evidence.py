"""Which words of a text speak for a label, and how much.

A label-attention head's logit is a sum over tokens plus a bias, so the shares are exact, not an attribution estimate.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]+")


@dataclass(frozen=True)
class Evidence:
    """A word's share of a logit.

    Attributes:
        text: the word.
        contribution: what it adds to the logit.
        start: of the word in the text, in characters.
        end: behind its last character.
    """

    text: str
    contribution: float
    start: int
    end: int


@dataclass(frozen=True)
class Explanation:
    """A logit taken apart: the contributions of words and documents, `special` and `bias` sum to `logit`.

    Attributes:
        label: the label explained.
        logit: log-odds (multi_label) of the label.
        bias: the label's bias.
        special: what no word of the text that the model reads adds: tokens such as `[CLS]`, words beyond its length.
        words: in the order of the text.
        attention: share of the attention (mean over heads; of a flat head, of the pooling) on each word; with the
            special tokens' it sums to 1.
        received: the same of the encoder's top layer, by kind (`global`, `local`), where the encoder says.
        documents: training documents that vote for the label and what each adds, most first; where neighbours score.
        scorers: what each scorer adds to the logit, where several are fused.
    """

    label: str
    logit: float
    bias: float
    special: float
    words: tuple[Evidence, ...]
    attention: tuple[float, ...]
    received: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    documents: tuple[tuple[str, float], ...] = ()
    scorers: Mapping[str, float] = field(default_factory=dict)

    def top(self, words: int) -> tuple[Evidence, ...]:
        """The words that add most, most first."""
        positive = [word for word in self.words if word.contribution > 0]
        return tuple(sorted(positive, key=lambda word: -word.contribution)[:words])


def word_sums(text: str, offsets: Sequence[tuple[int, int]], values_T: NDArray[np.float32]) -> tuple[float, ...]:
    """The values of each word's tokens, added up; see `merge_words`."""
    return tuple(word.contribution for word in merge_words(text, offsets, values_T)[0])


def merge_words(
    text: str, offsets: Sequence[tuple[int, int]], contributions_T: NDArray[np.float32]
) -> tuple[tuple[Evidence, ...], float]:
    """Add up the contributions of the tokens of each word.

    Args:
        text: the document.
        offsets: character span of each content token, as the tokenizer gives them.
        contributions_T: of the same tokens.

    Returns:
        The words that have a token, in order, and the sum over the tokens that lie in no word.
    """
    spans = [match.span() for match in _WORD.finditer(text)]
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
    sums, counts, outside = np.zeros(len(spans)), np.zeros(len(spans), np.int64), 0.0
    for (start, end), contribution in zip(offsets, contributions_T, strict=True):
        # Byte-level tokens begin with the space before the word, and some end with the punctuation behind it: a token
        # is of the word of which it has most characters.
        met = range(int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(starts, end)))
        if met:
            word = max(met, key=lambda w: min(spans[w][1], end) - max(spans[w][0], start))
            sums[word] += contribution
            counts[word] += 1
        else:
            outside += float(contribution)
    words = (Evidence(text[a:b], float(sums[i]), a, b) for i, (a, b) in enumerate(spans) if counts[i])
    return tuple(words), outside
