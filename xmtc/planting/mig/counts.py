"""How often tokens and labels occur together, counted sparsely and in blocks of labels.

Suffixes: N documents, V token vocabulary, L labels, P (label, token) pairs of one block, E entries of a sparse matrix.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xmtc.data.arrays import Matrix
from xmtc.errors import DataError

TOKENS_PER_CHUNK = 4_000_000
"""Tokens deduplicated at a time: bounds the transient memory of a thread to about 100 MB."""


@dataclass(frozen=True)
class PairCounts:
    """The counts of P (label, token) pairs from which every signal is computed.

    Attributes:
        label_P: int64, label id. Pairs are grouped by label, ascending.
        token_P: int64, token id.
        together_P: int64, n11: documents with both.
        token_documents_P: int64, n_t: documents with the token.
        label_documents_P: int64, n_l: documents with the label.
        documents: N.
        occurrences_P: int64, how often the token occurs in the label's documents, where a signal asks for it.
    """

    label_P: NDArray[np.int64]
    token_P: NDArray[np.int64]
    together_P: NDArray[np.int64]
    token_documents_P: NDArray[np.int64]
    label_documents_P: NDArray[np.int64]
    documents: int
    occurrences_P: NDArray[np.int64] | None = None

    def associated(self) -> NDArray[np.bool_]:
        """Mark pairs in which token and label occur together more often than if independent: n11·N > n_t·n_l."""
        return (
            self.together_P * self.documents
            > self.token_documents_P * self.label_documents_P
        )

    def informative(self) -> NDArray[np.bool_]:
        """Mark pairs whose label some documents have and some lack: no token has information on other labels."""
        return (self.label_documents_P > 0) & (self.label_documents_P < self.documents)

    def where(self, keep_P: NDArray[np.bool_]) -> "PairCounts":
        """Keep only the pairs of the mask."""
        return PairCounts(
            label_P=self.label_P[keep_P],
            token_P=self.token_P[keep_P],
            together_P=self.together_P[keep_P],
            token_documents_P=self.token_documents_P[keep_P],
            label_documents_P=self.label_documents_P[keep_P],
            documents=self.documents,
            occurrences_P=None
            if self.occurrences_P is None
            else self.occurrences_P[keep_P],
        )


@dataclass(frozen=True)
class Presence:
    """Which token occurs in which document.

    Attributes:
        present_NV: int32 csr, 1 where the token occurs in the document.
        occurrences_NV: int32 csr of the same structure with the number of occurrences, or None when nobody asks.
        token_documents_V: int64, n_t.
    """

    present_NV: sparse.csr_array
    occurrences_NV: sparse.csr_array | None
    token_documents_V: NDArray[np.int64]

    @classmethod
    def of(cls, counts_NV: Matrix, *, occurrences: bool = False) -> "Presence":
        """Make it of counts, or of other values, which are not 0 where a token occurs."""
        token_documents_V = np.bincount(
            counts_NV.indices, minlength=counts_NV.shape[1]
        ).astype(np.int64)
        content = (
            np.ones(counts_NV.nnz, np.int32),
            counts_NV.indices,
            counts_NV.indptr,
        )
        present_NV = sparse.csr_array(content, shape=counts_NV.shape)
        return cls(present_NV, counts_NV if occurrences else None, token_documents_V)

    @property
    def documents(self) -> int:
        """N, documents without any token or label included."""
        return row_count(self.present_NV)


def row_count(matrix: sparse.csr_array) -> int:
    """Count the rows of a csr matrix."""
    return len(matrix.indptr) - 1


def count_presence(
    blocks: Iterable[tuple[NDArray[np.int32], NDArray[np.int64]]],
    vocab_size: int,
    executor: Executor,
    *,
    occurrences: bool = False,
) -> Presence:
    """Make the sparse (N, V) presence matrix in one pass over the tokens; blocks are deduplicated in parallel.

    Args:
        blocks: flat token ids and document offsets, see `Split.token_blocks`.
        vocab_size: V; a token id outside of it raises DataError.
        executor: threads (the work is numpy's and scipy's, which release the interpreter lock).
        occurrences: whether to keep how often a token occurs in a document.
    """
    chunks = chain.from_iterable(
        _chunks(tokens_E, offsets_N1) for tokens_E, offsets_N1 in blocks
    )

    def count(chunk: tuple[NDArray[np.int32], NDArray[np.int64]]) -> sparse.csr_array:
        ids_E, chunk_offsets_N1 = chunk
        return _count_chunk(ids_E, chunk_offsets_N1, vocab_size)

    counts = list(executor.map(count, chunks))
    if not counts:
        counts = [
            _count_chunk(np.zeros(0, np.int32), np.zeros(1, np.int64), vocab_size)
        ]
    counts_NV = sparse.csr_array(sparse.vstack(counts))
    return Presence.of(counts_NV, occurrences=occurrences)


def _chunks(
    tokens_E: NDArray[np.int32], offsets_N1: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    """Cut a block between documents, so that memory and parallelism do not hang on how large a shard is."""
    first = 0
    documents = len(offsets_N1) - 1
    while first < documents:
        limit = offsets_N1[first] + TOKENS_PER_CHUNK
        last = max(first + 1, int(np.searchsorted(offsets_N1, limit, side="right")) - 1)
        cut_N1 = offsets_N1[first : last + 1]
        yield tokens_E[cut_N1[0] : cut_N1[-1]], cut_N1 - cut_N1[0]
        first = last


def _count_chunk(
    tokens_E: NDArray[np.int32], offsets_N1: NDArray[np.int64], vocab_size: int
) -> sparse.csr_array:
    """Count every token in every document of a chunk, in time linear in the tokens."""
    if tokens_E.size and not (tokens_E.min() >= 0 and tokens_E.max() < vocab_size):
        bad = tokens_E.min() if tokens_E.min() < 0 else tokens_E.max()
        raise DataError(
            f"the corpus holds token id {bad}, but the vocabulary has ids 0 to {vocab_size - 1}: "
            "it was prepared with another tokenizer; prepare it again"
        )
    shape = (len(offsets_N1) - 1, vocab_size)
    flat = sparse.csr_array(
        (np.ones(tokens_E.size, np.int32), tokens_E, offsets_N1.astype(np.int32)),
        shape=shape,
    )
    counts = (
        flat.tocsc().tocsr()
    )  # a counting sort: the repetitions of a token in a document lie side by side
    counts.sum_duplicates()
    return counts


def label_blocks(
    documents_by_label_LN: sparse.csr_array,
    presence: Presence,
    pairs_per_block: int,
    *,
    dense: bool,
) -> list[range]:
    """Cut the labels into consecutive ranges with about `pairs_per_block` pairs each, and at least one label.

    A label can meet no more distinct tokens than its documents hold together, nor more than the vocabulary; with
    `dense` every token of the vocabulary counts as a pair.
    """
    labels = row_count(documents_by_label_LN)
    vocab_size = len(presence.token_documents_V)
    tokens_N = np.diff(presence.present_NV.indptr).astype(np.int64)
    tokens_L = documents_by_label_LN.astype(np.int64) @ tokens_N
    fewest_pairs = vocab_size if dense else 1
    pairs_L = np.clip(tokens_L, fewest_pairs, vocab_size)
    block_L = np.cumsum(pairs_L) // pairs_per_block
    starts = np.flatnonzero(np.diff(block_L, prepend=-1))
    return [range(first, last) for first, last in pairwise([*starts.tolist(), labels])]


def count_pairs(
    documents_by_label_LN: sparse.csr_array,
    presence: Presence,
    block: range,
    keep_token_V: NDArray[np.bool_],
    *,
    dense: bool,
) -> PairCounts:
    """Count the kept tokens of a range of labels: the product C = YᵀX of that range.

    Args:
        documents_by_label_LN: int32 csr, Yᵀ with ones.
        presence: X.
        block: label ids.
        keep_token_V: tokens that may be ranked.
        dense: also return the pairs that never occur together (n11 = 0); otherwise only those that do.
    """
    labels_BN = documents_by_label_LN[block.start : block.stop]
    together_BV = labels_BN @ presence.present_NV
    read = _read_dense if dense else _read_stored
    row_P, token_P, together_P = read(together_BV, keep_token_V)
    occurrences_P = None
    if presence.occurrences_NV is not None:
        _, _, occurrences_P = read(labels_BN @ presence.occurrences_NV, keep_token_V)
    label_documents_B = np.diff(labels_BN.indptr).astype(np.int64)
    return PairCounts(
        label_P=row_P + block.start,
        token_P=token_P,
        together_P=together_P,
        token_documents_P=presence.token_documents_V[token_P],
        label_documents_P=label_documents_B[row_P],
        documents=presence.documents,
        occurrences_P=occurrences_P,
    )


_Triple = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _read_stored(
    counts_BV: sparse.csr_array, keep_token_V: NDArray[np.bool_]
) -> _Triple:
    """Read row, token and count of the stored entries."""
    keep_E = keep_token_V[counts_BV.indices]
    row_E = np.repeat(np.arange(row_count(counts_BV)), np.diff(counts_BV.indptr))
    token_P = counts_BV.indices[keep_E].astype(np.int64)
    count_P = counts_BV.data[keep_E].astype(np.int64)
    return row_E[keep_E], token_P, count_P


def _read_dense(
    counts_BV: sparse.csr_array, keep_token_V: NDArray[np.bool_]
) -> _Triple:
    """Read row, token and count of all entries, zeros included."""
    token_K = np.flatnonzero(keep_token_V)
    rows = row_count(counts_BV)
    count_BK = counts_BV.toarray()[:, token_K].astype(np.int64)
    row_P = np.repeat(np.arange(rows), token_K.size)
    token_P = np.tile(token_K, rows)
    return row_P, token_P, count_BK.reshape(-1)
