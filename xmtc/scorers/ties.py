"""Choose the most similar of many so that rounding decides nothing.

A similarity is a sum, and the last bits of a sum depend on the batch and on the processor. Training has documents that
are equally similar to another one, such as two with the same text, and rounding would choose between them: a document's
score would depend on what else is in its batch. Here, similarities that differ by less than `EQUAL` from the next one
count as equal, and of equal ones the lower id comes first.

Suffixes: B queries, K chosen of each, P pairs of a query and a candidate.
"""

import numpy as np
from numpy.typing import NDArray

from xmtc.data.arrays import Floats

EQUAL = 1e-5
"""Similarities that are nearer to the next one than this count as equal. Rounding changes them by about 1e-6."""


def first_of_each(
    query_P: NDArray[np.integer],
    id_P: NDArray[np.integer],
    similarity_P: NDArray[np.floating],
    queries: int,
    k: int,
) -> tuple[NDArray[np.int64], Floats]:
    """Choose each query's k most similar candidates; of equally similar ones, those with the lower ids.

    Args:
        query_P: query of each pair.
        id_P: candidate of each pair; no query has one twice.
        similarity_P: their similarity.
        queries: B.
        k: K.

    Returns:
        Ids and similarities (B, K), most similar first, padded with -1 and 0.
    """
    order_P = np.lexsort((-similarity_P, query_P))
    query_P = query_P[order_P]
    id_P = id_P[order_P]
    similarity_P = similarity_P[order_P]
    # A new level begins with each query, and where a similarity is clearly lower than the one before.
    begins_P = np.ones(len(query_P), np.bool_)
    begins_P[1:] = (query_P[1:] != query_P[:-1]) | (
        similarity_P[:-1] - similarity_P[1:] >= EQUAL
    )
    level_P = np.cumsum(begins_P)
    order_P = np.lexsort((id_P, level_P))
    starts_B = np.searchsorted(query_P, np.arange(queries))
    place_P = np.arange(len(query_P)) - starts_B[query_P]
    chosen_P = place_P < k
    ids_BK = np.full((queries, k), -1, np.int64)
    similarities_BK = np.zeros((queries, k), np.float32)
    at = query_P[chosen_P], place_P[chosen_P]
    ids_BK[at] = id_P[order_P][chosen_P]
    similarities_BK[at] = similarity_P[order_P][chosen_P]
    return ids_BK, similarities_BK
