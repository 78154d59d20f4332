"""Rank the tokens by their information on each label, best first.

Suffixes: N documents, V token vocabulary, L labels, K ranked tokens per label, S selected labels, P pairs.
"""

import hashlib
import json
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file
from scipy import sparse

from xmtc.data.arrays import Matrix
from xmtc.data.corpus import Corpus, Split
from xmtc.errors import DataError
from xmtc.files import reading, replacing_file, writing
from xmtc.planting.mig.config import MigConfig
from xmtc.planting.mig.counts import (
    PairCounts,
    Presence,
    count_pairs,
    count_presence,
    label_blocks,
    row_count,
)
from xmtc.planting.mig.measures import Signal
from xmtc.planting.mig.table import RankTable
from xmtc.track.progress import Progress

FORMAT = "xmtc-token-ranking-1"
PAIRS_PER_BLOCK = 2_000_000
"""Pairs scored at a time by a thread: about 200 MB."""


class RankedToken(NamedTuple):
    """A token of a label's ranking with the counts behind its score."""

    token_id: int
    score: float
    together: int
    token_documents: int
    label_documents: int


@dataclass
class TokenRanking:
    """The ranking of every label, and the counts it came from.

    Attributes:
        token_ids_LK: int32, best first, -1 behind the last ranked token.
        scores_LK: float32, 0 behind the last ranked token.
        together_LK: int32, n11 of the ranked pairs, 0 behind the last.
        token_documents_V: int32, n_t: training documents with the token.
        label_documents_L: int32, n_l: training documents with the label.
        documents: N, training documents.
        fingerprint: of corpus and settings, see `ranking_fingerprint`.
    """

    token_ids_LK: NDArray[np.int32]
    scores_LK: NDArray[np.float32]
    together_LK: NDArray[np.int32]
    token_documents_V: NDArray[np.int32]
    label_documents_L: NDArray[np.int32]
    documents: int
    fingerprint: str = ""

    @property
    def k(self) -> int:
        """K, the most tokens that a label can have."""
        return self.token_ids_LK.shape[1]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Ranked tokens of every label, int64 (L,)."""
        return (self.token_ids_LK >= 0).sum(axis=1)

    @property
    def unranked(self) -> int:
        """Labels without a single ranked token: no training document, or none of its tokens is associated with it."""
        return int((self.counts == 0).sum())

    def table(self, vocab_size: int, values_K1: NDArray) -> RankTable:
        """Make a table that looks up all tokens of selected labels; see `RankTable`.

        Args:
            vocab_size: V; at least as many as the ranking knows tokens.
            values_K1: value of each rank, such as a grade, and last the value of "not ranked".
        """
        if vocab_size < len(self.token_documents_V):
            raise ValueError(
                f"vocabulary of {vocab_size} tokens, but the ranking has {len(self.token_documents_V)}"
            )
        return RankTable(self.token_ids_LK, vocab_size, values_K1)

    def top(self, label_id: int, n: int) -> list[RankedToken]:
        """Return the `n` best tokens of a label with their counts; fewer if fewer are ranked."""
        tokens_K = self.token_ids_LK[label_id]
        ranked = int((tokens_K >= 0).sum())
        best = []
        for rank, token in enumerate(tokens_K[: min(n, ranked)]):
            token_of_rank = RankedToken(
                int(token),
                float(self.scores_LK[label_id, rank]),
                int(self.together_LK[label_id, rank]),
                int(self.token_documents_V[token]),
                int(self.label_documents_L[label_id]),
            )
            best.append(token_of_rank)
        return best

    def save(self, path: Path | str) -> None:
        """Write one safetensors file, under a temporary name until it is whole.

        Raises:
            StorageError: it cannot be written, as on a full disk; an older file is unharmed.
        """
        path = Path(path)
        tensors = {name: np.ascontiguousarray(getattr(self, name)) for name in _ARRAYS}
        metadata = {
            "format": FORMAT,
            "documents": str(self.documents),
            "fingerprint": self.fingerprint,
        }
        with writing(path), replacing_file(path) as partial:
            save_file(tensors, partial, metadata)

    @classmethod
    def load(cls, path: Path | str, labels: slice = slice(None)) -> "TokenRanking":
        """Read the ranking of these labels from a file that `save` wrote.

        Raises:
            DataError: the file is missing, damaged or something else.
        """
        metadata = _read_metadata(path)
        if metadata.get("format") != FORMAT:
            raise DataError(
                f"{path}: written by another version ({metadata.get('format')}); delete it and rank again"
            )
        with (
            reading(path, fix="delete it and rank again"),
            safe_open(path, framework="numpy") as file,
        ):
            arrays = {
                name: file.get_tensor(name)
                for name in _ARRAYS
                if name not in _OF_LABELS
            }
            arrays |= {name: file.get_slice(name)[labels] for name in _OF_LABELS}
            return cls(
                **arrays,
                documents=int(metadata["documents"]),
                fingerprint=metadata["fingerprint"],
            )


_OF_LABELS = ("token_ids_LK", "scores_LK", "together_LK", "label_documents_L")
_ARRAYS = (*_OF_LABELS, "token_documents_V")


def _read_metadata(path: Path | str) -> dict[str, str]:
    """Read the metadata of a safetensors file; empty if it has none."""
    if not Path(path).is_file():
        raise DataError(f"{path}: no such token ranking; run `xmtc mig` first")
    what = "not a token ranking, or a damaged one"
    with (
        reading(path, fix="delete it and rank again", what=what),
        safe_open(path, framework="numpy") as file,
    ):
        return file.metadata() or {}


def saved_fingerprint(path: Path | str) -> str | None:
    """Read the fingerprint of the ranking at `path`, without its arrays; None if there is no ranking."""
    return _read_metadata(path).get("fingerprint") if Path(path).exists() else None


def ranking_fingerprint(corpus_fingerprint: str, config: MigConfig) -> str:
    """Hash everything that determines the ranking: the corpus, the settings and the format."""
    identity = json.dumps([FORMAT, corpus_fingerprint, asdict(config)], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()


def rank_corpus(
    corpus: Corpus,
    config: MigConfig,
    path: Path | str,
    progress: Progress | None = None,
) -> tuple[TokenRanking, bool]:
    """Rank the tokens of a corpus's training split, or read the ranking from `path` if it is up to date.

    Args:
        corpus: only its `train` split is read.
        config: signal and limits.
        path: safetensors file.
        progress: receives how many labels are ranked.

    Returns:
        The ranking, and whether it was there already.

    Raises:
        DataError: no token can be ranked for any label, or the file at `path` is damaged.
    """
    fingerprint = ranking_fingerprint(corpus.fingerprint, config)
    if saved_fingerprint(path) == fingerprint:
        return TokenRanking.load(path), True
    tokenizer = corpus.tokenizer()
    ranking = rank_tokens(
        corpus.split("train"),
        config,
        special_token_ids=tokenizer.all_special_ids,
        vocab_size=len(tokenizer),
        progress=progress,
    )
    if ranking.unranked == len(ranking.label_documents_L):
        raise DataError(
            f"no token could be ranked for any label: of {ranking.documents} training documents, none has both a label "
            f"and a token that {config.min_documents} documents hold, or all have the same labels; lower "
            "mig.min_documents or add documents"
        )
    ranking.fingerprint = fingerprint
    ranking.save(path)
    return ranking, False


def rank_tokens(
    split: Split,
    config: MigConfig,
    *,
    special_token_ids: Collection[int],
    vocab_size: int,
    progress: Progress | None = None,
) -> TokenRanking:
    """Rank the tokens of every label by what the training split says.

    One pass over the tokens gives the sparse presence matrix X; blocks of labels are then counted (YᵀX), scored and
    cut to the top k in parallel threads. Equal scores are ordered by token id, so the result does not depend on the
    number of threads or the size of the blocks.

    Args:
        split: the *training* split; any other would leak its labels into the plant.
        config: signal and limits.
        special_token_ids: never ranked.
        vocab_size: V.
        progress: receives how many labels are ranked.
    """
    signal = config.signal.build()
    with ThreadPoolExecutor(cpu_count()) as executor:
        presence = count_presence(
            split.token_blocks(),
            vocab_size,
            executor,
            occurrences=signal.counts_occurrences,
        )
    keep_token_V = presence.token_documents_V >= config.min_documents
    keep_token_V[np.asarray(list(special_token_ids), dtype=np.int64)] = False
    return rank_presence(
        presence,
        split.label_matrix(),
        signal,
        config.top_k,
        keep_token_V,
        signed=config.signed,
        progress=progress,
    )


def rank_presence(
    presence: Presence,
    labels_NL: Matrix,
    signal: Signal,
    top_k: int,
    keep_token_V: NDArray[np.bool_] | None = None,
    *,
    signed: bool = True,
    progress: Progress | None = None,
) -> TokenRanking:
    """Rank tokens, or whatever documents hold, by their presence; see `rank_tokens`.

    Args:
        presence: what occurs where.
        labels_NL: boolean labels of the same documents.
        signal: scores the pairs.
        top_k: K.
        keep_token_V: tokens that may be ranked; None for all.
        signed: see `MigConfig.signed`.
        progress: receives how many labels are ranked.
    """
    if keep_token_V is None:
        keep_token_V = np.ones(len(presence.token_documents_V), np.bool_)
    documents_by_label_LN = _documents_by_label(signal.permute(labels_NL), presence)
    ranking = _empty(documents_by_label_LN, presence, top_k)
    dense = not signed and signal.scores_absence
    blocks = label_blocks(documents_by_label_LN, presence, PAIRS_PER_BLOCK, dense=dense)

    def rank_block(block: range) -> range:
        pairs = count_pairs(
            documents_by_label_LN, presence, block, keep_token_V, dense=dense
        )
        _fill(ranking, signal, pairs, block, signed=signed)
        return block

    bar = (progress or Progress(enabled=False)).task(
        "rank tokens", len(ranking.label_documents_L), "labels"
    )
    with ThreadPoolExecutor(cpu_count()) as executor, bar as task:
        for block in executor.map(rank_block, blocks):
            task.advance(len(block))
    return ranking


def _documents_by_label(
    labels_NL: sparse.csr_array, presence: Presence
) -> sparse.csr_array:
    """Make Yᵀ, int32 ones."""
    if row_count(labels_NL) != presence.documents:
        raise DataError(
            f"{row_count(labels_NL)} rows of labels for {presence.documents} documents: prepare it again"
        )
    return labels_NL.astype(bool).T.tocsr().astype(np.int32)


def _empty(
    documents_by_label_LN: sparse.csr_array, presence: Presence, top_k: int
) -> TokenRanking:
    """Make a ranking of the right shape in which nothing is ranked yet."""
    labels = row_count(documents_by_label_LN)
    return TokenRanking(
        token_ids_LK=np.full((labels, top_k), -1, np.int32),
        scores_LK=np.zeros((labels, top_k), np.float32),
        together_LK=np.zeros((labels, top_k), np.int32),
        token_documents_V=presence.token_documents_V.astype(np.int32),
        label_documents_L=np.diff(documents_by_label_LN.indptr).astype(np.int32),
        documents=presence.documents,
    )


def _fill(
    ranking: TokenRanking,
    signal: Signal,
    pairs: PairCounts,
    block: range,
    *,
    signed: bool,
) -> None:
    """Score the pairs of a range of labels and write each label's best into its row."""
    pairs = pairs.where(pairs.associated() if signed else pairs.informative())
    score_P = signal.score(pairs)
    bounds = np.searchsorted(pairs.label_P, np.arange(block.start, block.stop + 1))
    for label_id, first, last in zip(block, bounds[:-1], bounds[1:], strict=True):
        best = first + _best(score_P[first:last], pairs.token_P[first:last], ranking.k)
        ranking.token_ids_LK[label_id, : len(best)] = pairs.token_P[best]
        ranking.scores_LK[label_id, : len(best)] = score_P[best]
        ranking.together_LK[label_id, : len(best)] = pairs.together_P[best]


def _best(
    score_P: NDArray[np.float64], token_P: NDArray[np.int64], k: int
) -> NDArray[np.int64]:
    """Find the positions of the k highest scores, best first, equal scores by token id."""
    candidates = np.arange(len(score_P))
    if len(score_P) > k:
        candidates = np.flatnonzero(score_P >= np.partition(score_P, -k)[-k])
    return candidates[np.lexsort((token_P[candidates], -score_P[candidates]))[:k]]
