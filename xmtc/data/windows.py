"""Cut long documents: to the tokens that are read, and into overlapping windows that fit the backbone.

Suffixes: T document tokens, W windows of a document, U window tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from xmtc.data.fields import category_lines

Ids = NDArray[np.int64]
_CHARACTERS, _MARGIN = 8, 64


def first_tokens(tokenizer: Tokenizer, texts: Sequence[str], most: int, *, offsets: bool = False) -> list[Encoding]:
    """Tokenise texts as far as needed: a token takes 200 bytes while a text is tokenised, and a text may have 20 MB.

    Args:
        tokenizer: adds no special tokens here.
        texts: texts of any length; the values of their categories come before them, see `category_lines`.
        most: tokens that are read; the result has more of them if the text has.
        offsets: whether spans of characters are needed, which take time.
    """
    encode = tokenizer.encode_batch if offsets else tokenizer.encode_batch_fast
    needed, found = most + _MARGIN, dict[int, Encoding]()  # the last tokens of a beginning may differ
    texts = [category_lines(text) + text for text in texts]
    left, characters = list(range(len(texts))), _CHARACTERS * needed
    while left:
        parts = [_beginning(texts[i], characters) for i in left]
        found |= zip(left, encode(parts, add_special_tokens=False), strict=True)
        left = [i for i, part in zip(left, parts, strict=True) if len(part) < len(texts[i]) and len(found[i]) < needed]
        characters *= 8
    return [found[i] for i in range(len(texts))]


def _beginning(text: str, characters: int) -> str:
    """Cut a long text, before a blank if there is one."""
    if len(text) <= characters:
        return text
    end = max(text.rfind(blank, 0, characters) for blank in " \n")
    return text[: end if end > 0 else characters]


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
        return Cut(np.zeros(1, np.int64), content, np.zeros(total, np.int64), np.arange(total))
    windows = -(-(content - capacity) // (capacity - overlap)) + 1
    length = -(-(content + (windows - 1) * overlap) // windows)
    starts = np.arange(windows) * (content - length) // (windows - 1)
    # Between two neighbours the token in the middle of what they share is equally far from both edges.
    borders = (starts[1:] + starts[:-1] + length + 1) // 2
    tokens = np.arange(content)
    window = np.searchsorted(borders, tokens, side="right")
    window_T = np.concatenate([np.zeros(prefix, np.int64), window, np.full(suffix, windows - 1)])
    inner = prefix + tokens - starts[window]
    offset_T = np.concatenate([np.arange(prefix), inner, prefix + length + np.arange(suffix)])
    return Cut(starts, length, window_T, offset_T)
