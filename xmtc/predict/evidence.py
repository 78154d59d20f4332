"""The words of a text that support a label, and their contributions.

A label-attention head's logit is a sum over tokens plus a bias, so contributions are exact, not an attribution
estimate.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np
import regex
from numpy.typing import NDArray

from xmtc.data.fields import ONE_FIELD, field_ends
from xmtc.data.words import Vocabulary
from xmtc.fusion.ensemble import Ensemble
from xmtc.fusion.occurrences import CO_OCCURRENCE
from xmtc.fusion.pairs import Pairs
from xmtc.scorers.base import Contribution, Features

_LETTERS = r"[\p{L}\p{N}_][\p{L}\p{N}\p{M}_]*"
_WORD = regex.compile(rf"{_LETTERS}(?:[-'’.\u00ad\u200c\u200d]{_LETTERS})*|[^\p{{L}}\p{{N}}_\s]+")
"""A word with its vowel signs and accents, and unseen marks between its parts; or other characters."""


@dataclass(frozen=True)
class Evidence:
    """A word's share of a logit.

    Attributes:
        text: the word, or the value of a category, such as `type=Directive`.
        contribution: its contribution to the logit.
        start: position of its first character in the text.
        end: position after its last character; a value of a category has no characters, and is after the text.
        field: name of the field that it stands in; empty if documents have only one. A category's name.
    """

    text: str
    contribution: float
    start: int
    end: int
    field: str = ""


@dataclass(frozen=True)
class Explanation:
    """The parts of a logit: contributions of words, documents and names, `special` and `bias` sum to `logit`.

    Attributes:
        label: the explained label.
        logit: the label's logit; its log-odds in a multi-label model.
        bias: the label's bias.
        special: contribution of everything that is not a word the model reads: tokens such as `[CLS]`, those of values
            of categories, and words beyond the maximum length.
        words: contributions of words, in the order of the text, and of values of categories.
        attention: share of the attention on each word: mean over heads, or for a flat head, the pooling. Together with
            the shares of special tokens, it sums to 1.
        documents: training documents that vote for the label, and their contributions, greatest first; only if
            neighbours score.
        names: the label's name that means what the document is about, and its contribution; only if names score so.
        scorers: contribution of each scorer, if several are fused.
    """

    label: str
    logit: float
    bias: float
    special: float
    words: tuple[Evidence, ...]
    attention: tuple[float, ...]
    documents: tuple[tuple[str, float], ...] = ()
    names: tuple[tuple[str, float], ...] = ()
    scorers: Mapping[str, float] = field(default_factory=dict)

    def top(self, words: int) -> tuple[Evidence, ...]:
        """Return the words with the greatest contributions, greatest first."""
        positive = [word for word in self.words if word.contribution > 0]
        return tuple(sorted(positive, key=lambda word: -word.contribution)[:words])


def word_sums(text: str, offsets: Sequence[tuple[int, int]], values_T: NDArray[np.float32]) -> tuple[float, ...]:
    """Sum the values of each word's tokens; see `merge_words`."""
    return tuple(word.contribution for word in merge_words(text, offsets, values_T)[0])


def merge_words(
    text: str,
    offsets: Sequence[tuple[int, int]],
    contributions_T: NDArray[np.float32],
    fields: Sequence[str] = ONE_FIELD,
) -> tuple[tuple[Evidence, ...], float]:
    """Add up the contributions of the tokens of each word.

    Args:
        text: the document.
        offsets: character span of each content token, from the tokenizer.
        contributions_T: contributions of the same tokens.
        fields: names of the document's fields.

    Returns:
        The words that have tokens, in order, and the sum over the tokens outside words.
    """
    read = max((end for _, end in offsets), default=0)  # a long text is read in part
    spans = [match.span() for match in takewhile(lambda match: match.start() < read, _WORD.finditer(text))]
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
    inner_ends = field_ends(text, len(fields))[:-1] if len(fields) > 1 else ()
    names = fields if inner_ends else ("",)
    words = (
        Evidence(text[a:b], float(sums[i]), a, b, names[bisect_right(inner_ends, a)])
        for i, (a, b) in enumerate(spans)
        if counts[i]
    )
    return tuple(words), outside


@dataclass(frozen=True)
class FusedShares:
    """The shares of the fused logits of some labels of one document.

    Attributes:
        names: S scorers; the co-occurrence of labels is among them if the fusion has it.
        shares_SK: each scorer's share of the logit.
        without_SK: each scorer's base: its share if it did not know the label.
        constant_K: share of the label's count and the intercept.
    """

    names: Sequence[str]
    shares_SK: NDArray[np.float64]
    without_SK: NDArray[np.float64]
    constant_K: NDArray[np.float64]

    @classmethod
    def of(cls, ensemble: Ensemble, pairs: Pairs, labels: Sequence[int]) -> "FusedShares":
        """Compute the shares of labels among the candidates of the single document in `pairs`."""
        assert ensemble.fusion is not None, "the fusion is not fitted"
        columns = np.searchsorted(np.where(pairs.used[0], pairs.label_ids_NK[0], np.iinfo(np.int32).max), labels)
        rows = np.arange(1, 1 + len(columns))  # in copy 1 + k of the document, no scorer knows label k
        copies = ensemble.fusion.complete(pairs).take(np.zeros(1 + len(columns), np.int64))
        copies.scores_SNK[:, rows, columns] = 0
        shares = ensemble.fusion.shares(copies)
        count, known = len(ensemble.fusion.names), shares[:, 0, columns]
        without = shares[:count, rows, columns]
        return cls(ensemble.fusion.names, known[:count], without, known[count:].sum(axis=0))


def fused_explanations(
    plain: Sequence[Explanation], ensemble: Ensemble, features: Features, pairs: Pairs, labels: Sequence[int], text: str
) -> list[Explanation]:
    """Explain the fused logits of K labels of one document.

    Args:
        plain: explanations of the head's logits, with the words of the text, the head's share, and the attention.
        ensemble: the scorers.
        features: features of the document.
        pairs: pairs of the document; the labels are among its candidates.
        labels: ids of the labels.
        text: the document.
    """
    fused = FusedShares.of(ensemble, pairs, labels)
    reasons = {name: scorer.contributions(features, labels) for name, scorer in ensemble.scorers.items()}
    places = _places(plain[0].words, text, ensemble.vocabulary)
    for column, term in ensemble.vocabulary.known_values(text):
        places[column] = [len(plain[0].words)]
        value = Evidence(term, 0.0, len(text), len(text), term.split("=")[0])
        plain = [
            replace(one, words=(*one.words, value), attention=one.attention and (*one.attention, 0.0)) for one in plain
        ]
    return [
        _fused_explanation(one, fused, place, ensemble, {name: found[place] for name, found in reasons.items()}, places)
        for place, one in enumerate(plain)
    ]


def _fused_explanation(
    plain: Explanation,
    fused: FusedShares,
    place: int,
    ensemble: Ensemble,
    reasons: Mapping[str, Sequence[Contribution]],
    places: Mapping[int, Sequence[int]],
) -> Explanation:
    gains = dict(zip(fused.names, fused.shares_SK[:, place] - fused.without_SK[:, place], strict=True))
    adds, documents, names, rest = np.zeros(len(plain.words)), defaultdict(float), defaultdict(float), 0.0
    for name, gain in gains.items():
        if name == CO_OCCURRENCE:
            rest += gain
            continue
        parts, by_document, by_name, left = _parts(reasons.get(name), plain, places)
        total = sum(parts.values()) + sum(by_document.values()) + sum(by_name.values())
        if total <= 0:
            rest += gain
            continue
        rest += gain * left / (total + left) if left > 0 else 0.0
        scale = gain / (total + max(left, 0.0))
        for word, value in parts.items():
            adds[word] += scale * value
        for row, value in by_document.items():
            documents[ensemble.doc_ids[row]] += scale * value
        for label_name, value in by_name.items():
            names[label_name] += scale * value
    words = tuple(replace(word, contribution=float(value)) for word, value in zip(plain.words, adds, strict=True))
    bias = float(fused.without_SK[:, place].sum() + fused.constant_K[place])
    logit = float(fused.shares_SK[:, place].sum() + fused.constant_K[place])
    return replace(
        plain,
        logit=logit,
        bias=bias,
        special=rest,
        words=words,
        scorers=dict(zip(fused.names, map(float, fused.shares_SK[:, place]), strict=True)),
        documents=tuple(sorted(documents.items(), key=lambda item: -item[1])),
        names=tuple(sorted(names.items(), key=lambda item: -item[1])),
    )


def _parts(
    reasons: Sequence[Contribution] | None, plain: Explanation, places: Mapping[int, Sequence[int]]
) -> tuple[Mapping[int, float], Mapping[int, float], Mapping[str, float], float]:
    """Split the positive part of a score (without `reasons`, the head's) into words, documents, names and rest."""
    if reasons is None:
        words = {place: word.contribution for place, word in enumerate(plain.words) if word.contribution > 0}
        return words, {}, {}, max(plain.special, 0.0)
    found = [one for one in reasons if one.value > 0]
    documents = {one.number: one.value for one in found if one.source == "document"}
    terms = {one.number: one.value for one in found if one.source == "term"}
    words, left = _by_word(terms, places)
    return words, documents, {one.name: one.value for one in found if one.source == "name"}, left


def _places(words: Sequence[Evidence], text: str, vocabulary: Vocabulary) -> dict[int, list[int]]:
    """Map each term of the vocabulary to the words at which it starts in its field."""
    starts, found = [word.start for word in words], defaultdict[int, list[int]](list)
    for term, start in vocabulary.places(text, words[-1].end if words else 0):
        word = bisect_right(starts, start) - 1
        if word >= 0 and start < words[word].end:
            found[term].append(word)
    return found


def _by_word(terms: Mapping[int, float], places: Mapping[int, Sequence[int]]) -> tuple[dict[int, float], float]:
    """Divide each term's value evenly among the words at which it starts; return the words' values and the rest."""
    values: dict[int, float] = defaultdict(float)
    for term, value in terms.items():
        for word in places.get(term, ()):
            values[word] += value / len(places[term])
    return values, sum(value for term, value in terms.items() if term not in places)
