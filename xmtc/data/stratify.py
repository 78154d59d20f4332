"""Multi-label stratification of groups: all documents of a patient go to the same split, rare labels to every split.

G groups, L labels, K splits.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import sparse


def stratify_groups(
    counts_GL: sparse.csr_array, shares: Sequence[float], seed: int
) -> NDArray[np.int8]:
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
    by_group = counts_GL.tocsr()
    by_label = counts_GL.tocsc()
    shares_K = np.asarray(shares, dtype=np.float64)
    totals_L = np.asarray(counts_GL.sum(axis=0)).ravel()
    wanted_KL = np.outer(shares_K, totals_L)
    groups = len(by_group.indptr) - 1
    split_G = np.full(groups, -1, dtype=np.int8)
    for label in np.argsort(totals_L, kind="stable"):
        groups_with_label = by_label.indices[
            by_label.indptr[label] : by_label.indptr[label + 1]
        ]
        without_split = groups_with_label[split_G[groups_with_label] < 0]
        for group in random.permutation(without_split):
            split = _draw(wanted_KL[:, label], wanted_KL[:, -1], shares_K, random)
            split_G[group] = split
            entries = slice(by_group.indptr[group], by_group.indptr[group + 1])
            wanted_KL[split, by_group.indices[entries]] -= by_group.data[entries]
    return split_G


def _draw(
    label_K: NDArray[np.float64],
    documents_K: NDArray[np.float64],
    shares_K: NDArray[np.float64],
    random: Generator,
) -> int:
    """Draw a split in proportion to how much of the label it needs, and to how far it is from full."""
    room_K = np.clip(documents_K, 0, None) / np.maximum(
        shares_K, np.finfo(np.float64).tiny
    )
    by_need_K = np.clip(label_K, 0, None) * room_K
    by_room_K = room_K * shares_K  # where no split needs the label
    for weights_K in (by_need_K, by_room_K, shares_K):
        total = weights_K.sum()
        if total > 0:
            return int(random.choice(len(shares_K), p=weights_K / total))
    raise ValueError("shares are all 0")
