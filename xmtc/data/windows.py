"""Cut long documents into overlapping windows that fit the backbone, and map every token to a window.

Suffixes: T document tokens, W windows of a document, U window tokens.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


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
    offset_T = np.concatenate(
        [np.arange(prefix), prefix + tokens - starts[window], prefix + length + np.arange(suffix)]
    )
    return Cut(starts, length, window_T, offset_T)
