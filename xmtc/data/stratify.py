"""Multi-label stratification of groups: all documents of a patient go to the same split, rare labels to every split.

G groups, L labels, K splits.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse


def stratify_groups(counts_GL: sparse.csr_array, shares: Sequence[float], seed: int) -> NDArray[np.int8]:
    """Choose a split (G,) for every group, so that each label is divided as `shares` says.

    Iterative stratification (Sechidis et al. 2011) of groups instead of documents: labels from the rarest to the most
    frequent, and every group that has the label goes where most of that label is still wanted. Where the original
    takes the split that wants most, this one draws a split in proportion to what each wants: taking the most would
    put every label of two or three documents into the largest split, and none would ever be evaluated.

    Args:
        counts_GL: documents with each label in each group; the last column counts all documents of the group.
        shares: shares of the K splits; they sum to 1.
        seed: of every draw.
    """
    random = np.random.default_rng(seed)
    by_group, by_label = counts_GL.tocsr(), counts_GL.tocsc()
    shares_K = np.asarray(shares, dtype=np.float64)
    totals_L = np.asarray(counts_GL.sum(axis=0)).ravel()
    wanted_KL = np.outer(shares_K, totals_L)
    split_G = np.full(len(by_group.indptr) - 1, -1, dtype=np.int8)
    for label in np.argsort(totals_L, kind="stable"):
        groups = by_label.indices[by_label.indptr[label] : by_label.indptr[label + 1]]
        for group in random.permutation(groups[split_G[groups] < 0]):
            split_G[group] = chosen = _draw(wanted_KL[:, label], wanted_KL[:, -1], shares_K, random)
            inside = slice(by_group.indptr[group], by_group.indptr[group + 1])
            wanted_KL[chosen, by_group.indices[inside]] -= by_group.data[inside]
    return split_G


def _draw(
    label_K: NDArray[np.float64], documents_K: NDArray[np.float64], shares_K: NDArray[np.float64], random: Generator
) -> int:
    """Draw a split in proportion to how much of the label it needs, and to how far it is from full."""
    room_K = np.clip(documents_K, 0, None) / np.maximum(shares_K, np.finfo(np.float64).tiny)
    weights_K = np.clip(label_K, 0, None) * room_K
    for candidates_K in (weights_K, room_K * shares_K, shares_K):
        if candidates_K.sum() > 0:
            return int(random.choice(len(shares_K), p=candidates_K / candidates_K.sum()))
    raise ValueError("shares are all 0")
