"""The language of a text, which py3langid recognises."""

import functools
from collections import Counter
from collections.abc import Iterable

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from xmtc.data.pretrained import UNKNOWN_LANGUAGE

_LOOKED_AT = 1_000
"""Characters of a text by which its language is recognised."""
_SURE = 0.5
"""Probability from which on a language counts as recognised."""


def languages_of(texts: Iterable[str]) -> Counter[str]:
    """Count texts by language (ISO 639-1, such as `de`), or `unknown`, from their first thousand characters."""
    return Counter(map(_language_of, texts))


def language_probabilities(text: str) -> dict[str, float]:
    """Return the probability of each language that is known, by its code (ISO 639-1), the most probable first."""
    ranked = _identifier().rank(text[:_LOOKED_AT])
    return {language: float(probability) for language, probability in ranked}


def _language_of(text: str) -> str:
    language, probability = _identifier().classify(text[:_LOOKED_AT])
    return language if probability >= _SURE else UNKNOWN_LANGUAGE


@functools.cache
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
