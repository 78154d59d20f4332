"""Finding the terms of a linear model in the training documents, and a split's documents as rows of TF-IDF.

Suffixes: N documents of a split, B of a block, T tokens, V token vocabulary, F terms, G n-grams of one length.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from xmtc.data.corpus import Split
from xmtc.models.terms import Terms

_BLOCK = 128  # documents whose features are dense at once
_PENDING = 1 << 23  # n-grams counted before they are merged with the others
Matrix = Any  # a scipy.sparse.csr_array; the stubs know neither its shape nor its rows


def find_terms(
    split: Split, *, vocabulary: int, special_token_ids: list[int], longest: int = 1, min_documents: int = 1
) -> Terms:
    """The tokens of a split, without the special ones, and their n-grams.

    The inverse document frequency is ln((1 + N) / (1 + n)) + 1, as scikit-learn smooths it.

    Args:
        split: the documents.
        vocabulary: V.
        special_token_ids: tokens that never count, neither in an n-gram.
        longest: most tokens of an n-gram.
        min_documents: an n-gram of two or more tokens in fewer documents than this is none.
    """
    documents_V = np.zeros(vocabulary, np.int64)
    for row in range(len(split)):
        documents_V[np.unique(split.tokens(row))] += 1
    idf_V = _idf(documents_V, len(split))
    idf_V[documents_V == 0] = 0
    idf_V[special_token_ids] = 0
    terms = Terms(torch.from_numpy(idf_V), torch.empty(0, dtype=torch.int64))
    for _ in range(longest - 1):
        # an n-gram is in no more documents than what it begins with: what is left out now starts no longer one
        names_G, documents_G = _count_longer(split, terms)
        kept_G = documents_G >= min_documents
        idf_G = torch.from_numpy(_idf(documents_G[kept_G], len(split)))
        names = torch.cat([terms.ngrams, torch.from_numpy(names_G[kept_G])])
        terms = Terms(torch.cat([terms.idf_F, idf_G]), names)
    return terms


def feature_matrix(split: Split, terms: Terms) -> Matrix:
    """TF-IDF of all documents, a sparse matrix (N, F)."""
    rows = []
    for tokens_BT, mask_BT in blocks(split):
        terms_U, tfidf_BU, _ = terms.tfidf(terms.found(tokens_BT, mask_BT))
        block = sparse.csr_array(tfidf_BU.numpy())  # `nothing` has no weight, and so no entry
        columns = terms_U.numpy()[block.indices].astype(np.int32)
        rows.append(sparse.csr_array((block.data, columns, block.indptr), shape=(len(tokens_BT), terms.nothing)))
    return sparse.csr_array(sparse.vstack(rows, format="csr"))


def blocks(split: Split, documents: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Content tokens int64 (B, T) and mask of one block of documents after the other; of the first `documents`."""
    total = len(split) if documents is None else min(documents, len(split))
    for start in range(0, total, _BLOCK):
        tokens = [
            torch.from_numpy(split.tokens(row).astype(np.int64)) for row in range(start, min(start + _BLOCK, total))
        ]
        ids_BT = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True)
        yield ids_BT, torch.arange(ids_BT.shape[1])[None] < torch.tensor([len(one) for one in tokens])[:, None]


def _idf(documents: NDArray[np.int64], total: int) -> NDArray[np.float32]:
    return (np.log((1 + total) / (1 + documents)) + 1).astype(np.float32)


def _count_longer(split: Split, terms: Terms) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The terms of most tokens with one token more: names (G,), ascending, and in how many documents each is."""
    names, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    pending: list[NDArray[np.int64]] = []
    for tokens_BT, mask_BT in blocks(split):
        pending.append(_longer_of_block(tokens_BT, mask_BT, terms))
        if sum(map(len, pending)) > max(_PENDING, len(names)):
            (names, counts), pending = _merged(names, counts, pending), []
    return _merged(names, counts, pending)


def _longer_of_block(tokens_BT: Tensor, mask_BT: Tensor, terms: Terms) -> NDArray[np.int64]:
    """Names of the n-grams of a block, each as often as there are documents that have it."""
    found_BNT = terms.found(tokens_BT, mask_BT)
    names_BT = terms.longer(found_BNT[:, -1], tokens_BT)
    first = terms.nothing * terms.vocabulary  # names from here on begin with nothing
    whole_BT = (found_BNT[:, 0] != terms.nothing) & (names_BT < first)
    rows_BT = torch.arange(len(tokens_BT))[:, None].expand_as(names_BT)
    return (rows_BT[whole_BT] * first + names_BT[whole_BT]).unique().numpy() % first


def _merged(
    names: NDArray[np.int64], counts: NDArray[np.int64], pending: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    every = np.concatenate([names, *pending])
    weights = np.concatenate([counts, np.ones(len(every) - len(names), np.int64)])
    merged, index = np.unique(every, return_inverse=True)
    return merged, np.bincount(index, weights, len(merged)).astype(np.int64)
