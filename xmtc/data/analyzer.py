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
from dataclasses import dataclass
from typing import Any

ANALYZER = "unicode"
"""The name of this way to find words, which vocabularies record."""
_PLAIN = re.compile(r"\w+")
_SIMPLE = (
    r"\x00-\xac\xae-\u02ff"  # Latin, without the soft hyphen
    r"\u0370-\u0482\u048a-\u0530"  # Greek and Cyrillic, without combining marks
    r"\u1e00-\u200a"  # more Latin and Greek; spaces
    r"\u2010-\u2027\u2030-\u205f"  # punctuation, without what changes the direction
    r"\u2070-\u20cf\u2100-\u2bff"  # numbers above and below the line, currencies, symbols
)
"""Characters without marks, of scripts with spaces."""
_NOT_SIMPLE = re.compile(f"[^{_SIMPLE}]")
_UNSPACED = (
    r"[\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
)
_LOOKED_AT = 300
"""Characters of a text by which its script is recognised."""
_LONGEST = 32
"""Characters of a word with marks; a longer run has lost its spaces."""
_IGNORED = re.compile(
    "["
    "\u00ad"  # soft hyphen
    "\u200b-\u200f\u2060-\u2064"  # joiners, and marks of the direction
    "\ufe00-\ufe0f"  # variants of a character
    "\ufeff"  # byte order mark
    "]"
)


def words_of(text: str) -> list[str]:
    """Split a text into words, in order."""
    if text.isascii():
        return _PLAIN.findall(text.lower())
    text = _normal(text)
    if _NOT_SIMPLE.search(text) is None:
        return _PLAIN.findall(text)
    return [word for word, _, _ in _normal_spans(_IGNORED.sub("", text))]


def word_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each word with its first and last-plus-one character in `text`."""
    if text.isascii():
        for match in _PLAIN.finditer(text.lower()):
            yield match.group(), match.start(), match.end()
        return
    # Clusters are normalised one by one, because composition joins no two of them, and their places are remembered.
    parts: list[str] = []
    places: list[tuple[int, int]] = []
    for cluster in _patterns().cluster.finditer(text):
        part = _IGNORED.sub("", _normal(cluster.group()))
        parts.append(part)
        places += [cluster.span()] * len(part)
    for word, start, end in _normal_spans("".join(parts)):
        first_character, _ = places[start]
        _, last_character = places[end - 1]
        yield word, first_character, last_character


def script_of(text: str) -> str:
    """Return the most frequent script of the first letters of a text, such as `Latin`, `Cjk` or `Devanagari`."""
    beginning = unicodedata.normalize("NFKC", text[:_LOOKED_AT])
    scripts: Counter[str] = Counter()
    for character in beginning:
        if character.isalpha():
            name = unicodedata.name(
                character, "unknown"
            )  # such as LATIN SMALL LETTER A
            scripts[name.split()[0].capitalize()] += 1
    if not scripts:
        return "no letters"
    most_frequent, _ = scripts.most_common(1)[0]
    return most_frequent


def _normal(text: str) -> str:
    """Normalise to NFKC before and after case folding, which may decompose letters."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", folded)


def _normal_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a normalised text with their places in it."""
    patterns = _patterns()
    for match in patterns.word.finditer(text):
        word = match.group()
        is_spaced = match.group(1) is None
        if is_spaced and (len(word) <= _LONGEST or _NOT_SIMPLE.search(word) is None):
            yield word, match.start(), match.end()
            continue
        letters = [
            letter.span() for letter in patterns.letter.finditer(text, *match.span())
        ]
        # Pairs of neighbouring letters; a single letter is a word of its own.
        following = letters[1:] or letters
        for (start, end), (_, next_end) in zip(letters, following, strict=False):
            pair_end = max(end, next_end)
            yield text[start:pair_end], start, pair_end


@dataclass(frozen=True)
class _Patterns:
    """Patterns of the package `regex`, whose types it does not tell.

    Attributes:
        word: a run of letters; group 1 matches if they are of a script without spaces.
        cluster: what is composed at once.
        letter: a letter with its marks.
    """

    word: Any
    cluster: Any
    letter: Any


@functools.cache
def _patterns() -> _Patterns:
    import regex

    letters = r"[\p{L}\p{N}_]"
    spaced = rf"[{letters}--{_UNSPACED}]\p{{M}}*"
    unspaced = rf"[{letters}&&{_UNSPACED}]\p{{M}}*"
    return _Patterns(
        word=regex.compile(rf"(?V1)(?:{spaced})+|((?:{unspaced})+)"),
        cluster=regex.compile(r"\X"),
        letter=regex.compile(rf"{letters}\p{{M}}*"),
    )
