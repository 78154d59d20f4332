"""Words of texts in every script, equal for equal texts: after NFKC and case folding, with their combining marks.

A word is a run of letters, digits and underscores. Scripts that write no spaces between words (Han, Kana, Thai, Lao,
Khmer, Myanmar) give overlapping pairs of characters, as search engines index them; so does a run of more than
32 characters of another script with marks, which has lost its spaces.
"""

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any

ANALYZER = "unicode"
"""The name of this way to find words, which vocabularies record."""
_PLAIN = re.compile(r"\w+")
_SIMPLE = (
    r"\x00-\xac\xae-\u02ff\u0370-\u0482\u048a-\u0530\u1e00-\u200a\u2010-\u2027\u2030-\u205f\u2070-\u20cf\u2100-\u2bff"
)
"""Characters without marks, of scripts with spaces."""
_OTHER = re.compile(f"[^{_SIMPLE}]")
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_LOOKED_AT, _LONGEST = 300, 32  # characters
_IGNORED = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff]")


def words_of(text: str) -> list[str]:
    """Split a text into words, in order."""
    if text.isascii():
        return _PLAIN.findall(text.lower())
    text = _normal(text)
    if _OTHER.search(text) is None:
        return _PLAIN.findall(text)
    return [word for word, _, _ in _found(_IGNORED.sub("", text))]


def word_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each word with its first and last-plus-one character in `text`."""
    if text.isascii():
        yield from ((match.group(), *match.span()) for match in _PLAIN.finditer(text.lower()))
        return
    parts, places = [], []
    for cluster in _patterns()[1].finditer(text):  # composition joins no two of these
        part = _IGNORED.sub("", _normal(cluster.group()))
        parts.append(part)
        places += [cluster.span()] * len(part)
    for word, start, end in _found("".join(parts)):
        yield word, places[start][0], places[end - 1][1]


def script_of(text: str) -> str:
    """Return the most frequent script of the first letters of a text, such as `Latin`, `Cjk` or `Devanagari`."""
    letters = [letter for letter in unicodedata.normalize("NFKC", text[:_LOOKED_AT]) if letter.isalpha()]
    scripts = Counter(unicodedata.name(letter, "unknown").split()[0].capitalize() for letter in letters)
    return scripts.most_common(1)[0][0] if scripts else "no letters"


def _normal(text: str) -> str:
    """Normalise to NFKC before and after case folding, which may decompose letters."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _found(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a normalised text with their places in it."""
    words, _, characters = _patterns()
    for match in words.finditer(text):
        word = match.group()
        if match.group(1) is None and (len(word) <= _LONGEST or _OTHER.search(word) is None):
            yield word, *match.span()
            continue
        places = [one.span() for one in characters.finditer(text, *match.span())]
        for (start, end), (_, after) in zip(places, places[1:] or [places[0]], strict=False):
            yield text[start : max(end, after)], start, max(end, after)


@functools.cache
def _patterns() -> tuple[Any, Any, Any]:
    """Compile patterns of a word (group 1: without spaces), of what is composed at once, and of a letter with marks."""
    import regex

    letters = r"[\p{L}\p{N}_]"
    spaced, unspaced = rf"[{letters}--{_UNSPACED}]\p{{M}}*", rf"[{letters}&&{_UNSPACED}]\p{{M}}*"
    word = regex.compile(rf"(?V1)(?:{spaced})+|((?:{unspaced})+)")
    return word, regex.compile(r"\X"), regex.compile(rf"{letters}\p{{M}}*")
