"""Groups of labels by how often they occur in training."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

UNSEEN = "0"
"""The group of labels without training documents."""


def bin_mask(name: str, train_counts_L: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of the labels of one bin.

    Args:
        name: `n`, `a-b` (both ends included) or `>n`, in training documents.
        train_counts_L: training documents of each label.

    Returns:
        Boolean (L,).
    """
    if name.startswith(">"):
        return train_counts_L > int(name[1:])
    low, _, high = name.partition("-")
    lowest = int(low)
    highest = int(high or low)
    return (train_counts_L >= lowest) & (train_counts_L <= highest)


def bin_masks(
    names: Sequence[str], train_counts_L: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return a mask of the labels of every bin: boolean (bins, L)."""
    masks = [bin_mask(name, train_counts_L) for name in names]
    return np.array(masks, np.bool_).reshape(len(names), -1)


def nonempty_bins(
    names: Sequence[str], train_counts_L: NDArray[np.int64]
) -> Iterator[NDArray[np.bool_]]:
    """Yield the labels of each bin that has any: boolean (L,)."""
    for name in names:
        mask_L = bin_mask(name, train_counts_L)
        if mask_L.any():
            yield mask_L
