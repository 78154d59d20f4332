"""What supports a label: words of the text, the label's name, training documents; and their contributions.

A label-attention head's logit is a sum over tokens plus a bias, so contributions are exact, not an attribution
estimate.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

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
_WORD = regex.compile(
    rf"{_LETTERS}(?:[-'’.\u00ad\u200c\u200d]{_LETTERS})*|[^\p{{L}}\p{{N}}_\s]+"
)
"""A word with its vowel signs and accents, and unseen marks between its parts; or other characters."""
_SIGNS = regex.compile(r"[\p{P}\p{Sm}\p{Sc}\p{Sk}_\p{M}]+")
"""Punctuation and signs of mathematics and money, which say nothing to a reader; pictures do."""

Kind = Literal["word", "category", "name", "documents"]
LEAST_SHARE = 0.08
"""Reasons below this share of the strongest one are not shown as such: they hardly move the logit."""
DOCUMENTS = "similar training documents"
"""Text of the evidence that all training documents give together."""


@dataclass(frozen=True)
class Evidence:
    """The share that a word, or another reason, has of a logit.

    Attributes:
        text: the word; the value of a category, such as `type=Directive`; the label's name; or `DOCUMENTS`.
        contribution: its contribution to the logit.
        start: position of its first character in the text.
        end: position after its last character; what is not a word has no characters.
        field: name of the field that it stands in; empty if documents have only one. A category's name.
        kind: `word`, `category`, `name`: the label's name means what the document is about, or `documents`: training
            documents that are like this one have the label.
    """

    text: str
    contribution: float
    start: int
    end: int
    field: str = ""
    kind: Kind = "word"


@dataclass(frozen=True)
class Explanation:
    """The parts of a logit: contributions of words, documents and names, `other` and `bias` sum to `logit`.

    Attributes:
        label: the explained label.
        logit: the label's logit; its log-odds in a multi-label model.
        bias: the label's bias.
        other: contribution of everything else: punctuation, tokens such as `[CLS]`, those of values of categories,
            words beyond the maximum length, and the other labels of the document.
        words: contributions of words, in the order of the text, and of values of categories.
        attention: share of the attention on each word: mean over heads, or for a flat head, the pooling. Together with
            the shares of punctuation and special tokens, it sums to 1.
        documents: training documents that vote for the label, and their contributions, greatest first; only if
            neighbours score.
        names: the label's name that means what the document is about, and its contribution; only if names score so.
        scorers: contribution of each scorer, if several are fused.
    """

    label: str
    logit: float
    bias: float
    other: float
    words: tuple[Evidence, ...]
    attention: tuple[float, ...]
    documents: tuple[tuple[str, float], ...] = ()
    names: tuple[tuple[str, float], ...] = ()
    scorers: Mapping[str, float] = field(default_factory=dict)

    def top(self, number: int) -> tuple[Evidence, ...]:
        """Return the words, names and documents that support the label most, greatest contribution first.

        Those that add little beside the strongest one are left out, such as most articles and conjunctions.
        """
        reasons = [
            *self.words,
            *(Evidence(name, value, 0, 0, kind="name") for name, value in self.names),
        ]
        if self.documents:
            votes = sum(value for _, value in self.documents)
            reasons.append(Evidence(DOCUMENTS, votes, 0, 0, kind="documents"))
        strongest = max((reason.contribution for reason in reasons), default=0.0)
        notable = [
            reason
            for reason in reasons
            if reason.contribution > 0
            and reason.contribution >= LEAST_SHARE * strongest
        ]
        return tuple(sorted(notable, key=lambda reason: -reason.contribution)[:number])


def word_sums(
    text: str, offsets: Sequence[tuple[int, int]], values_T: NDArray[np.float32]
) -> tuple[float, ...]:
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
        The words that have tokens, in order, and the sum over the tokens of punctuation and outside words.
    """
    spans = _word_spans(text, offsets)
    starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
    sums = np.zeros(len(spans))
    has_tokens = np.zeros(len(spans), np.bool_)
    outside = 0.0
    for (start, end), contribution in zip(offsets, contributions_T, strict=True):
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(starts, end))
        if first >= last:
            outside += float(contribution)
            continue
        # Byte-level tokens begin with the space before the word, and some end with the punctuation after it. A token
        # belongs to the word with which it shares most characters.
        shared = [
            min(spans[word][1], end) - max(spans[word][0], start)
            for word in range(first, last)
        ]
        word = first + shared.index(max(shared))
        sums[word] += contribution
        has_tokens[word] = True
    inner_ends = field_ends(text, len(fields))[:-1] if len(fields) > 1 else ()
    names = fields if inner_ends else ("",)
    words = []
    for word in np.flatnonzero(has_tokens):
        start, end = spans[word]
        if _SIGNS.fullmatch(text, start, end):
            outside += float(sums[word])
            continue
        field_name = names[bisect_right(inner_ends, start)]
        words.append(
            Evidence(text[start:end], float(sums[word]), start, end, field_name)
        )
    return tuple(words), outside


def _word_spans(text: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Find the words of the part of a text that has tokens, because a long text is read in part."""
    read = max((end for _, end in offsets), default=0)
    spans = []
    for match in _WORD.finditer(text):
        if match.start() >= read:
            break
        spans.append(match.span())
    return spans


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
    def of(
        cls, ensemble: Ensemble, pairs: Pairs, labels: Sequence[int]
    ) -> "FusedShares":
        """Compute the shares of labels among the candidates of the single document in `pairs`."""
        assert ensemble.fusion is not None, "the fusion is not fitted"
        last = np.iinfo(np.int32).max
        candidates_K = np.where(
            pairs.used[0], pairs.label_ids_NK[0], last
        )  # ascending, with the padding at the end
        columns = np.searchsorted(candidates_K, labels)
        rows = np.arange(
            1, 1 + len(columns)
        )  # in copy 1 + k of the document, no scorer knows label k
        copies = ensemble.fusion.complete(pairs).take(
            np.zeros(1 + len(columns), np.int64)
        )
        copies.scores_SNK[:, rows, columns] = 0
        shares = ensemble.fusion.shares(copies)
        names = ensemble.fusion.names
        with_all = shares[:, 0, columns]
        without_SK = shares[: len(names), rows, columns]
        return cls(
            names,
            with_all[: len(names)],
            without_SK,
            with_all[len(names) :].sum(axis=0),
        )


def fused_explanations(
    plain: Sequence[Explanation],
    ensemble: Ensemble,
    features: Features,
    pairs: Pairs,
    labels: Sequence[int],
    text: str,
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
    shares = FusedShares.of(ensemble, pairs, labels)
    reasons = {
        name: scorer.contributions(features, labels)
        for name, scorer in ensemble.scorers.items()
    }
    words_of_term = _words_of_terms(plain[0].words, text, ensemble.vocabulary)
    explanations = list(plain)
    for term_id, term in ensemble.vocabulary.known_values(text):
        words_of_term[term_id] = [len(explanations[0].words)]
        name = term.split("=")[0]
        value = Evidence(term, 0.0, len(text), len(text), name, "category")
        explanations = [_with_value(explanation, value) for explanation in explanations]
    fused = []
    for place, explanation in enumerate(explanations):
        reasons_of_label = {name: by_label[place] for name, by_label in reasons.items()}
        fused.append(
            _fused_explanation(
                explanation, shares, place, ensemble, reasons_of_label, words_of_term
            )
        )
    return fused


def _with_value(explanation: Explanation, value: Evidence) -> Explanation:
    """Add the value of a category behind the words; the head pays no attention to it."""
    attention = (*explanation.attention, 0.0) if explanation.attention else ()
    return replace(explanation, words=(*explanation.words, value), attention=attention)


@dataclass(frozen=True)
class _Parts:
    """The positive part of a scorer's score of a label.

    Attributes:
        words: by number of the word.
        documents: by row of the training document.
        names: by name of the label.
        rest: what none of these gives.
    """

    words: Mapping[int, float]
    documents: Mapping[int, float] = field(default_factory=dict)
    names: Mapping[str, float] = field(default_factory=dict)
    rest: float = 0.0

    @property
    def total(self) -> float:
        """Sum of what is shown."""
        return (
            sum(self.words.values())
            + sum(self.documents.values())
            + sum(self.names.values())
        )


def _fused_explanation(
    plain: Explanation,
    shares: FusedShares,
    place: int,
    ensemble: Ensemble,
    reasons: Mapping[str, Sequence[Contribution]],
    words_of_term: Mapping[int, Sequence[int]],
) -> Explanation:
    """Divide what each scorer adds to the logit of a label among the reasons for its score, in proportion to them."""
    contributions = np.zeros(len(plain.words))
    documents: dict[str, float] = defaultdict(float)
    names: dict[str, float] = defaultdict(float)
    other = 0.0
    gains_S = shares.shares_SK[:, place] - shares.without_SK[:, place]
    for scorer, gain in zip(shares.names, gains_S.tolist(), strict=True):
        parts = (
            _Parts({})
            if scorer == CO_OCCURRENCE
            else _parts(reasons.get(scorer), plain, words_of_term)
        )
        if parts.total <= 0:
            other += gain
            continue
        rest = max(parts.rest, 0.0)
        scale = gain / (parts.total + rest)
        other += scale * rest
        for word, value in parts.words.items():
            contributions[word] += scale * value
        for row, value in parts.documents.items():
            documents[ensemble.doc_ids[row]] += scale * value
        for name, value in parts.names.items():
            names[name] += scale * value
    words = []
    for word, contribution in zip(plain.words, contributions.tolist(), strict=True):
        words.append(replace(word, contribution=contribution))
    constant = float(shares.constant_K[place])
    return replace(
        plain,
        logit=float(shares.shares_SK[:, place].sum()) + constant,
        bias=float(shares.without_SK[:, place].sum()) + constant,
        other=other,
        words=tuple(words),
        scorers=dict(
            zip(shares.names, shares.shares_SK[:, place].tolist(), strict=True)
        ),
        documents=_greatest_first(documents),
        names=_greatest_first(names),
    )


def _greatest_first(values: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(values.items(), key=lambda item: -item[1]))


def _parts(
    reasons: Sequence[Contribution] | None,
    plain: Explanation,
    words_of_term: Mapping[int, Sequence[int]],
) -> _Parts:
    """Split the positive part of a score into words, documents, names and rest; without `reasons`, the head's."""
    if reasons is None:
        words = {
            place: word.contribution
            for place, word in enumerate(plain.words)
            if word.contribution > 0
        }
        return _Parts(words, rest=max(plain.other, 0.0))
    values_of_terms: dict[int, float] = {}
    documents: dict[int, float] = {}
    names: dict[str, float] = {}
    for reason in reasons:
        if reason.value <= 0:
            continue
        if reason.source == "term":
            values_of_terms[reason.number] = reason.value
        elif reason.source == "document":
            documents[reason.number] = reason.value
        else:
            names[reason.name] = reason.value
    words, rest = _by_word(values_of_terms, words_of_term)
    return _Parts(words, documents, names, rest)


def _words_of_terms(
    words: Sequence[Evidence], text: str, vocabulary: Vocabulary
) -> dict[int, list[int]]:
    """Map each term of the vocabulary to the words at which it starts in its field."""
    starts = [word.start for word in words]
    words_of_term: dict[int, list[int]] = defaultdict(list)
    for term_id, start in vocabulary.places(text, words[-1].end if words else 0):
        place = bisect_right(starts, start) - 1
        if place >= 0 and start < words[place].end:
            words_of_term[term_id].append(place)
    return words_of_term


def _by_word(
    values_of_terms: Mapping[int, float], words_of_term: Mapping[int, Sequence[int]]
) -> tuple[dict[int, float], float]:
    """Divide each term's value evenly among the words at which it starts; return the words' values and the rest."""
    values: dict[int, float] = defaultdict(float)
    rest = 0.0
    for term_id, value in values_of_terms.items():
        places = words_of_term.get(term_id)
        if places is None:
            rest += value
            continue
        for place in places:
            values[place] += value / len(places)
    return values, rest
