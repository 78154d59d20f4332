"""Frequency bins that scorers and their fusion treat separately, named as in `xmtc.data.bins`."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from xmtc.data.bins import bin_mask


def bins_of_labels(names: Sequence[str], counts_L: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    """Yield the labels of each nonempty bin: boolean (L,)."""
    for name in names:
        mask_L = bin_mask(name, counts_L)
        if mask_L.any():
            yield mask_L
