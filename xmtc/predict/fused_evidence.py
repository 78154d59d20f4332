"""Explain a fused logit: exact shares by scorer, divided among words and training documents.

The fused logit is a sum of one share per scorer, a term for the label's count, and an intercept. A scorer's share
consists of a base, which it adds even if it does not know the label, and a gain. The base does not depend on words. The
gain is divided among the words, or the training documents, in proportion to their contributions to the scorer's score.
Negative contributions lower the gain but are not shown. The gain of the co-occurrence of labels belongs to the rest.
Words, documents, the rest and the bias sum to the logit.

Suffixes: S scorers, K labels.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xmtc.data.words import term_spans
from xmtc.fusion.ensemble import Ensemble
from xmtc.fusion.occurrences import CO_OCCURRENCE
from xmtc.fusion.pairs import Pairs
from xmtc.predict.evidence import Evidence, Explanation
from xmtc.scorers.base import Contribution, Features


@dataclass(frozen=True)
class FusedShares:
    """The shares of the fused logits of some labels of one document.

    Attributes:
        names: S scorers; the co-occurrence of labels is one of them if the fusion has it.
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
        copies = ensemble.fusion.complete(pairs).take(
            np.zeros(1 + len(columns), np.int64)
        )  # in copy 1 + k, no scorer knows label k
        scores_SNK = copies.scores_SNK.copy()
        scores_SNK[:, np.arange(1, 1 + len(columns)), columns] = 0
        shares = ensemble.fusion.shares(replace(copies, scores_SNK=scores_SNK))
        count, known = len(ensemble.fusion.names), shares[:, 0, columns]
        without = shares[:count, np.arange(1, 1 + len(columns)), columns]
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
    return [
        _fused_explanation(one, fused, place, ensemble, {name: found[place] for name, found in reasons.items()}, text)
        for place, one in enumerate(plain)
    ]


def _fused_explanation(
    plain: Explanation,
    fused: FusedShares,
    place: int,
    ensemble: Ensemble,
    reasons: Mapping[str, Sequence[Contribution]],
    text: str,
) -> Explanation:
    gains = dict(zip(fused.names, fused.shares_SK[:, place] - fused.without_SK[:, place], strict=True))
    adds, documents, rest = np.zeros(len(plain.words)), defaultdict(float), 0.0
    for name, gain in gains.items():
        if name == CO_OCCURRENCE:
            rest += gain
            continue
        parts, by_document, left = _parts(reasons.get(name), plain, ensemble, text)
        total = sum(parts.values()) + sum(by_document.values())
        if total <= 0:
            rest += gain
            continue
        rest += gain * left / (total + left) if left > 0 else 0.0
        scale = gain / (total + max(left, 0.0))
        for word, value in parts.items():
            adds[word] += scale * value
        for row, value in by_document.items():
            documents[ensemble.doc_ids[row]] += scale * value
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
    )


def _parts(
    reasons: Sequence[Contribution] | None, plain: Explanation, ensemble: Ensemble, text: str
) -> tuple[Mapping[int, float], Mapping[int, float], float]:
    """Split the positive part of a score (without `reasons`, the head's) into words, training documents and rest."""
    if reasons is None:
        words = {place: word.contribution for place, word in enumerate(plain.words) if word.contribution > 0}
        return words, {}, max(plain.special, 0.0)
    found = [one for one in reasons if one.value > 0]
    documents = {one.number: one.value for one in found if one.source == "document"}
    terms = {ensemble.vocabulary.terms[one.number]: one.value for one in found if one.source == "term"}
    words, left = _by_word(terms, plain.words, text, ensemble.vocabulary.ngrams)
    return words, documents, left


def _by_word(
    terms: Mapping[str, float], words: Sequence[Evidence], text: str, ngrams: int
) -> tuple[dict[int, float], float]:
    """Divide each term's value evenly among its occurrences, and assign it to the words where they start."""
    places: dict[str, list[int]] = {term: [] for term in terms}
    starts, ends = np.array([word.start for word in words]), np.array([word.end for word in words])
    for term, start, _ in term_spans(text, ngrams):
        if term in places and len(starts):
            word = int(np.searchsorted(starts, start, side="right")) - 1
            if word >= 0 and start < ends[word]:
                places[term].append(word)
    values: dict[int, float] = defaultdict(float)
    left = 0.0
    for term, value in terms.items():
        for word in places[term]:
            values[word] += value / len(places[term])
        left += 0.0 if places[term] else value
    return values, left
