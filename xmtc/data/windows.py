"""Cut long documents: to the tokens that are read, and into overlapping windows that fit the backbone.

Suffixes: T document tokens, W windows of a document, U window tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from xmtc.data.fields import category_lines

Ids = NDArray[np.int64]
_CHARACTERS_PER_TOKEN = 8
"""How many characters of a text are tokenised at first, for each token that is needed."""
_GROWTH = 8
"""How many times as many are tokenised next, if they gave too few tokens."""
_MARGIN = 64
"""Tokens at the end of a cut text that the rest of the text might have changed."""


def first_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], most: int, *, offsets: bool = False
) -> list[Encoding]:
    """Tokenise texts as far as needed: a token takes 200 bytes while a text is tokenised, and a text may have 20 MB.

    Args:
        tokenizer: adds no special tokens here.
        texts: texts of any length; the values of their categories come before them, see `category_lines`.
        most: tokens that are read; the result has more of them if the text has.
        offsets: whether spans of characters are needed, which take time.
    """
    encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
    needed = most + _MARGIN
    texts = [category_lines(text) + text for text in texts]
    encodings: dict[int, Encoding] = {}
    unfinished = list(range(len(texts)))
    characters = _CHARACTERS_PER_TOKEN * needed
    while unfinished:
        beginnings = [_beginning(texts[row], characters) for row in unfinished]
        encodings.update(
            zip(unfinished, encode(beginnings, add_special_tokens=False), strict=True)
        )
        unfinished = [
            row
            for row, beginning in zip(unfinished, beginnings, strict=True)
            if len(beginning) < len(texts[row]) and len(encodings[row]) < needed
        ]
        characters *= _GROWTH
    return [encodings[row] for row in range(len(texts))]


def _beginning(text: str, characters: int) -> str:
    """Cut a long text, before a blank if there is one."""
    if len(text) <= characters:
        return text
    last_blank = max(text.rfind(" ", 0, characters), text.rfind("\n", 0, characters))
    return text[:last_blank] if last_blank > 0 else text[:characters]


@dataclass(frozen=True)
class Cut:
    """How one document is cut.

    Attributes:
        starts_W: int64, first content token of each window.
        length: content tokens of every window.
        window_T, offset_T: int64, for every document token (special ones included) the window that represents it and
            its place there: the window in which it is farthest from the edges.
    """

    starts_W: Ids
    length: int
    window_T: Ids
    offset_T: Ids


def cut(content: int, capacity: int, overlap: int, prefix: int, suffix: int) -> Cut:
    """Cut a document into as few windows as possible, all equally long and as short as possible.

    Args:
        content: its tokens without special ones.
        capacity: most content tokens of a window.
        overlap: content tokens that neighbouring windows share at least, below `capacity`.
        prefix: special tokens before the content, of the document and of every window.
        suffix: the same, behind it.
    """
    if content <= capacity:
        total = prefix + content + suffix
        return Cut(
            starts_W=np.zeros(1, np.int64),
            length=content,
            window_T=np.zeros(total, np.int64),
            offset_T=np.arange(total),
        )
    windows = math.ceil((content - capacity) / (capacity - overlap)) + 1
    length = math.ceil((content + (windows - 1) * overlap) / windows)
    starts_W = np.arange(windows) * (content - length) // (windows - 1)
    # Between two neighbours the token in the middle of what they share is equally far from both edges.
    borders = (starts_W[1:] + starts_W[:-1] + length + 1) // 2
    content_tokens = np.arange(content)
    content_windows = np.searchsorted(borders, content_tokens, side="right")
    content_offsets = prefix + content_tokens - starts_W[content_windows]
    # The prefix belongs to the first window, the suffix to the last one.
    prefix_windows = np.zeros(prefix, np.int64)
    suffix_windows = np.full(suffix, windows - 1)
    suffix_offsets = prefix + length + np.arange(suffix)
    return Cut(
        starts_W=starts_W,
        length=length,
        window_T=np.concatenate([prefix_windows, content_windows, suffix_windows]),
        offset_T=np.concatenate([np.arange(prefix), content_offsets, suffix_offsets]),
    )
