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
_LOOKED_AT = 100  # tokens in which the script is looked for
_BLOCK = 256

Statistics = dict[str, NDArray[np.floating]]


def token_bits(counts_V: NDArray[np.integer]) -> NDArray[np.float16]:
    """Compute −log₂ of each token's share in training, with one more occurrence of each."""
    return -np.log2((counts_V + 1) / (counts_V.sum() + len(counts_V))).astype(np.float16)


def of_tokens(profile: Profile, ids_N: Sequence[NDArray[np.integer]]) -> Statistics:
    """Measure the tokens of documents, each of which has some."""
    lengths_N = np.array([len(ids) for ids in ids_N])
    bits = profile.bits_V[np.concatenate(ids_N)].astype(np.float32)
    starts = np.cumsum(lengths_N) - lengths_N
    frequent, new = profile.most_bits
    sums = {"bits": bits, "new_tokens": bits == new, "frequent_tokens": bits <= frequent}
    means = {name: np.add.reduceat(values, starts, dtype=np.float64) / lengths_N for name, values in sums.items()}
    return {"tokens": lengths_N.astype(np.float32), **means}


def of_words(ensemble: Ensemble, words: Words, lengths_N: NDArray[np.floating]) -> Statistics:
    """Measure the words of documents, and how near the nearest training document is if a scorer knows by words."""
    counts_NC = words.counts_NC[:, : len(words.vocabulary.fields) * len(words.vocabulary)]  # without categories
    found: Statistics = {"known_words": np.asarray(counts_NC.sum(axis=1)).ravel() / lengths_N}
    blocks = [words.take(slice(start, start + _BLOCK)) for start in range(0, len(words), _BLOCK)]
    for scorer in ensemble.scorers.values():
        near = [] if "nearest" in found else [scorer.closeness(block) for block in blocks]
        if cosines := [block for block in near if block is not None]:
            found["nearest"] = np.concatenate(cosines)
    return found


def of_answers(decision: Decision, ids_NK: NDArray[np.integer], scores_NK: NDArray[np.float32]) -> Statistics:
    """Measure what a model answers."""
    expected = dict(zip(EXPECTED, decision.expected(ids_NK, scores_NK).T, strict=True))
    best_N = np.where(ids_NK[:, 0] >= 0, scores_NK[:, 0], 0)
    counts = {"predicted": decision.chosen(ids_NK, scores_NK).sum(axis=1), "best": best_N}
    return counts | {f"expected_{name}": values for name, values in expected.items()}


def kinds_of(
    tokenizer: PreTrainedTokenizerFast, ids_N: Sequence[NDArray[np.integer]], words: Words | None
) -> dict[str, Counter[str]]:
    """Count documents by script, as their tokens show it, and by the values of each category.

    Of characters without a token, there are no letters. A document without a value that the vocabulary has is
    `unknown`.
    """
    texts = (tokenizer.decode(ids[:_LOOKED_AT].tolist(), skip_special_tokens=True) for ids in ids_N)
    found = {"scripts": Counter(script_of(str(text)) for text in texts)}
    if words is None:
        return found
    vocabulary = words.vocabulary
    for place, name in enumerate(vocabulary.categories, start=len(vocabulary.fields)):
        counts_NV = words.counts_NC[:, place * len(vocabulary) : (place + 1) * len(vocabulary)]
        sums_V, known_N = counts_NV.sum(axis=0), counts_NV.sum(axis=1) > 0
        values = {vocabulary.terms[at].partition("=")[2]: int(sums_V[at]) for at in np.flatnonzero(sums_V)}
        found[f"category {name}"] = Counter(values) + Counter(unknown=int((~known_N).sum()))
    return found
