"""Statistics of single documents by which texts and answers of different times are compared.

Suffixes: N documents, K labels of a document, best first, V token ids.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerFast

from xmtc.artefact.profile import Profile
from xmtc.data.analyzer import script_of
from xmtc.data.words import Words
from xmtc.fusion.decision import EXPECTED, Decision
from xmtc.fusion.ensemble import Ensemble

STATISTICS = {
    "tokens": "tokens that the model reads",
    "bits": "bits per token",
    "new_tokens": "share of tokens new since training",
    "frequent_tokens": "share of tokens frequent in training",
    "known_words": "known words per token",
    "nearest": "cosine of the nearest training document",
    "predicted": "labels predicted",
    "best": "probability of the best label",
    **{f"expected_{name}": f"expected {name}" for name in EXPECTED},
}
"""What each statistic is."""
_LOOKED_AT = 100
"""Tokens in which the script of a document is looked for."""
_BLOCK = 256
"""Documents whose neighbours are searched at once."""

Statistics = dict[str, NDArray[np.floating]]
"""Values of N documents by the name of the statistic."""


def token_bits(counts_V: NDArray[np.integer]) -> NDArray[np.float16]:
    """Compute −log₂ of each token's share in training, with one more occurrence of each."""
    shares_V = (counts_V + 1) / (counts_V.sum() + len(counts_V))
    return -np.log2(shares_V).astype(np.float16)


def of_tokens(profile: Profile, ids_N: Sequence[NDArray[np.integer]]) -> Statistics:
    """Measure the tokens of documents, each of which has some."""
    lengths_N = np.array([len(ids) for ids in ids_N])
    starts_N = np.cumsum(lengths_N) - lengths_N
    bits = profile.bits_V[np.concatenate(ids_N)].astype(np.float32)
    bits_of_frequent, bits_of_new = profile.most_bits
    values_of_tokens = {
        "bits": bits,
        "new_tokens": bits == bits_of_new,
        "frequent_tokens": bits <= bits_of_frequent,
    }
    statistics: Statistics = {"tokens": lengths_N.astype(np.float32)}
    for name, values in values_of_tokens.items():
        statistics[name] = (
            np.add.reduceat(values, starts_N, dtype=np.float64) / lengths_N
        )
    return statistics


def of_words(
    ensemble: Ensemble, words: Words, lengths_N: NDArray[np.floating]
) -> Statistics:
    """Measure the words of documents, and how near the nearest training document is if a scorer finds it by words.

    Args:
        ensemble: the model's scorers.
        words: words of the N documents.
        lengths_N: their numbers of tokens.
    """
    columns_of_text = len(words.vocabulary.fields) * len(
        words.vocabulary
    )  # those of categories come after them
    known_words_N = np.asarray(words.counts_NC[:, :columns_of_text].sum(axis=1)).ravel()
    statistics: Statistics = {"known_words": known_words_N / lengths_N}
    blocks = [
        words.take(slice(start, start + _BLOCK))
        for start in range(0, len(words), _BLOCK)
    ]
    for scorer in ensemble.scorers.values():
        cosines = [
            cosines_B
            for block in blocks
            if (cosines_B := scorer.closeness(block)) is not None
        ]
        if cosines:
            statistics["nearest"] = np.concatenate(cosines)
            break
    return statistics


def of_answers(
    decision: Decision, ids_NK: NDArray[np.integer], scores_NK: NDArray[np.float32]
) -> Statistics:
    """Measure what a model answers."""
    statistics: Statistics = {
        "predicted": decision.chosen(ids_NK, scores_NK).sum(axis=1),
        "best": np.where(ids_NK[:, 0] >= 0, scores_NK[:, 0], 0),
    }
    for name, values_N in zip(
        EXPECTED, decision.expected(ids_NK, scores_NK).T, strict=True
    ):
        statistics[f"expected_{name}"] = values_N
    return statistics


def kinds_of(
    tokenizer: PreTrainedTokenizerFast,
    ids_N: Sequence[NDArray[np.integer]],
    words: Words | None,
) -> dict[str, Counter[str]]:
    """Count documents by script, as their tokens show it, and by the values of each category.

    Of characters without a token, there are no letters. A document without a value that the vocabulary has is
    `unknown`.
    """
    scripts: Counter[str] = Counter()
    for ids in ids_N:
        text = tokenizer.decode(ids[:_LOOKED_AT].tolist(), skip_special_tokens=True)
        scripts[script_of(str(text))] += 1
    kinds = {"scripts": scripts}
    if words is not None:
        for place, name in enumerate(
            words.vocabulary.categories, start=len(words.vocabulary.fields)
        ):
            kinds[f"category {name}"] = _values_of_category(words, place)
    return kinds


def _values_of_category(words: Words, place: int) -> Counter[str]:
    """Count documents by the values of the category in this place among fields and categories."""
    vocabulary = words.vocabulary
    counts_NV = words.counts_NC[
        :, place * len(vocabulary) : (place + 1) * len(vocabulary)
    ]
    documents_V = counts_NV.sum(axis=0)
    without_value = int((counts_NV.sum(axis=1) == 0).sum())
    values = Counter(unknown=without_value)
    for term_id in np.flatnonzero(documents_V):
        _, _, value = vocabulary.terms[term_id].partition("=")
        values[value] += int(documents_V[term_id])
    return values
