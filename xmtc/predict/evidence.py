"""The words of a text that support a label, and their contributions.

A label-attention head's logit is a sum over tokens plus a bias, so contributions are exact, not an attribution
estimate.
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
        contribution: its contribution to the logit.
        start: position of its first character in the text.
        end: position after its last character.
    """

    text: str
    contribution: float
    start: int
    end: int


@dataclass(frozen=True)
class Explanation:
    """The parts of a logit: the contributions of words and documents, `special` and `bias` sum to `logit`.

    Attributes:
        label: the explained label.
        logit: the label's logit; its log-odds in a multi-label model.
        bias: the label's bias.
        special: contribution of everything that is not a word the model reads: tokens such as `[CLS]`, and words
            beyond the maximum length.
        words: contributions of words, in the order of the text.
        attention: share of the attention on each word: mean over heads, or for a flat head, the pooling. Together with
            the shares of special tokens, it sums to 1.
        received: the same for the encoder's top layer, by kind (`global`, `local`), if the encoder provides it.
        documents: training documents that vote for the label, and their contributions, greatest first; only if
            neighbours score.
        scorers: contribution of each scorer, if several are fused.
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
        """Return the words with the greatest contributions, greatest first."""
        positive = [word for word in self.words if word.contribution > 0]
        return tuple(sorted(positive, key=lambda word: -word.contribution)[:words])


def word_sums(text: str, offsets: Sequence[tuple[int, int]], values_T: NDArray[np.float32]) -> tuple[float, ...]:
    """Sum the values of each word's tokens; see `merge_words`."""
    return tuple(word.contribution for word in merge_words(text, offsets, values_T)[0])


def merge_words(
    text: str, offsets: Sequence[tuple[int, int]], contributions_T: NDArray[np.float32]
) -> tuple[tuple[Evidence, ...], float]:
    """Add up the contributions of the tokens of each word.

    Args:
        text: the document.
        offsets: character span of each content token, from the tokenizer.
        contributions_T: contributions of the same tokens.

    Returns:
        The words that have tokens, in order, and the sum over the tokens outside words.
    """
    spans = [match.span() for match in _WORD.finditer(text)]
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
    sums, counts, outside = np.zeros(len(spans)), np.zeros(len(spans), np.int64), 0.0
    for (start, end), contribution in zip(offsets, contributions_T, strict=True):
        # Byte-level tokens begin with the space before the word, and some end with the punctuation after it. A token
        # belongs to the word with which it shares most characters.
        met = range(int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(starts, end)))
        if met:
            word = max(met, key=lambda w: min(spans[w][1], end) - max(spans[w][0], start))
            sums[word] += contribution
            counts[word] += 1
        else:
            outside += float(contribution)
    words = (Evidence(text[a:b], float(sums[i]), a, b) for i, (a, b) in enumerate(spans) if counts[i])
    return tuple(words), outside
