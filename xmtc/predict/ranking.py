"""Score many documents with a classifier: each document's best labels and their probabilities.

Suffixes: N documents of the split, B of a batch, K kept labels, L labels.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.data.config import Task
from xmtc.data.documents import Documents
from xmtc.data.loader import prefetch
from xmtc.data.sampler import MicroBatch, evaluation_batches
from xmtc.errors import XmtcError
from xmtc.models.classifier import Classifier
from xmtc.predict.shortlist_scores import product_scores

# Float32 logits of one batch: with millions of labels, logits take more memory than tokens.
_LOGIT_BYTES = 1 << 28


class BestLabels(Protocol):
    """Finds some labels of a document and their logits without computing all logits, such as a shortlist."""

    @property
    def size(self) -> int:
        """N, number of labels per document."""
        ...

    @property
    def max_documents(self) -> int:
        """Maximum number of documents in a batch, limited by memory."""
        ...

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Find label ids int64 (B, N), distinct per document, and the log-odds of their probabilities (B, N)."""
        ...


@dataclass(frozen=True)
class Scoring:
    """How to score.

    Attributes:
        labels: L, number of labels that the model scores.
        top_k: K, number of labels to keep per document, at most L.
        tokens_per_batch: content tokens per batch, including padding.
        task: sigmoid (multi_label) or softmax (single_label).
        bfloat16: run under bfloat16 autocast; probabilities are still float32.
        only: ids of the labels to keep. Default: all.
    """

    labels: int
    top_k: int = 100
    tokens_per_batch: int = 16384
    task: Task = "multi_label"
    bfloat16: bool = False
    only: NDArray[np.int64] | None = None


def score_split(
    model: nn.Module,
    split: Documents,
    collate: Callable[[MicroBatch], Batch],
    scoring: Scoring,
    *,
    batches: Sequence[NDArray[np.int64]] | None = None,
    progress: Callable[[int], None] | None = None,
    on_logits: Callable[[NDArray[np.int64], Tensor], None] | None = None,
    on_best: Callable[[Batch, Tensor, Tensor], None] | None = None,
    best: BestLabels | None = None,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Find each document's K best labels and their probabilities, best first.

    Args:
        model: the classifier, or a strategy's wrapper of it; it runs in evaluation mode, then its mode is restored.
        split: the documents.
        collate: makes a batch of rows of the split.
        scoring: see `Scoring`.
        batches: rows to score, batch by batch. Ranks pass `batches[rank::world]`. Default: all rows, longest first.
        progress: called with the number of documents of each batch.
        on_logits: called with the rows and their logits (B, L), float32, for statistics over all labels.
        on_best: called with each batch, its best labels and their probabilities (B, K). The batch has hidden states.
        best: finds each document's best labels without all logits; then `on_logits` is not called.

    Returns:
        Label ids int32 (N, K) and probabilities float32 (N, K), padded with -1 and 0; documents that are not in
        `batches` get only padding.

    Raises:
        XmtcError: a score that is not finite.
    """
    if best is None and on_logits is None and scoring.only is None:
        best = product_scores(
            model, scoring.top_k, independent=scoring.task == "multi_label"
        )
    labels = scoring.labels
    top_k = min(scoring.top_k, labels if best is None else best.size)
    ids_NK = np.full((len(split.lengths), top_k), -1, np.int32)
    scores_NK = np.zeros((len(split.lengths), top_k), np.float32)
    if batches is None:
        batches = evaluation_batches(split.lengths, scoring.tokens_per_batch)
    device = next(
        (parameter.device for parameter in model.parameters()), torch.device("cpu")
    )
    with _evaluating(model), torch.inference_mode():
        for batch in prefetch(
            _collated(collate, batches, max_documents(labels, best)), depth=2
        ):
            rows_B = batch.documents_B.numpy()
            batch = batch.to(device)
            if on_best is not None:
                assert isinstance(model, Classifier), (
                    "only a whole classifier keeps hidden states"
                )
                with _autocast(batch, scoring):
                    batch = replace(batch, hidden_BTD=model.encode(batch))
            if best is None:
                with _autocast(batch, scoring):
                    logits_BL = model(batch).float()
                if on_logits is not None:
                    on_logits(rows_B, logits_BL)
                ids_BK, scores_BK = best_labels(
                    logits_BL, top_k, scoring.task, scoring.only
                )
            else:
                ids_BK, scores_BK = _best_of_some(best, batch, top_k, scoring)
            if on_best is not None:
                on_best(batch, ids_BK, scores_BK)
            ids_NK[rows_B] = ids_BK.cpu().numpy()
            scores_NK[rows_B] = scores_BK.cpu().numpy()
            if progress is not None:
                progress(len(rows_B))
    if not np.isfinite(scores_NK).all():
        row = int(np.argmin(np.isfinite(scores_NK).all(axis=1)))
        raise XmtcError(
            f"document {row} has scores that are not finite: the model diverged; use an earlier checkpoint"
        )
    return ids_NK, scores_NK


def best_labels(
    logits_BL: Tensor, top_k: int, task: Task, only: NDArray[np.int64] | None = None
) -> tuple[Tensor, Tensor]:
    """Find the K best labels int32 (B, K) and their probabilities float32 (B, K), best first.

    Probabilities are relative to all labels. If fewer than K labels are kept, rows are padded with -1 and 0.
    """
    top_BK = _kept(logits_BL, only).topk(top_k, dim=1)
    ids_BK = top_BK.indices.int().masked_fill(top_BK.values == -torch.inf, -1)
    if task == "multi_label":
        return ids_BK, _sigmoid(top_BK.values)
    total_B1 = logits_BL.logsumexp(1, keepdim=True)
    return ids_BK, (top_BK.values - total_B1).exp()


def _sigmoid(descending_BK: Tensor) -> Tensor:
    """Compute probabilities that descend as the logits do; rounding can raise one above its better neighbour."""
    return descending_BK.sigmoid().cummin(1).values


def _kept(logits_BL: Tensor, only: NDArray[np.int64] | None) -> Tensor:
    """Set the logits of labels that are not kept to -∞."""
    if only is None:
        return logits_BL
    hidden_L = torch.ones(logits_BL.shape[1], dtype=torch.bool, device=logits_BL.device)
    hidden_L[torch.from_numpy(only).to(logits_BL.device)] = False
    return logits_BL.masked_fill(hidden_L, -torch.inf)


def _best_of_some(
    best: BestLabels, batch: Batch, top_k: int, scoring: Scoring
) -> tuple[Tensor, Tensor]:
    with _autocast(batch, scoring):
        ids_BN, logits_BN = best(batch)
    if scoring.only is not None:
        hidden_BN = ~torch.isin(
            ids_BN, torch.from_numpy(scoring.only).to(ids_BN.device)
        )
        ids_BN = ids_BN.masked_fill(hidden_BN, -1)
        logits_BN = logits_BN.masked_fill(hidden_BN, -torch.inf)
    top_BK = logits_BN.topk(top_k, dim=1)
    return ids_BN.gather(1, top_BK.indices).int(), _sigmoid(top_BK.values)


def _autocast(batch: Batch, scoring: Scoring) -> torch.autocast:
    return torch.autocast(
        batch.mask_BT.device.type, dtype=torch.bfloat16, enabled=scoring.bfloat16
    )


def max_documents(labels: int, best: BestLabels | None) -> int:
    """Compute the maximum number of documents in a batch whose logits, or those of shortlists, fit in memory."""
    if best is not None:
        return best.max_documents
    return max(1, _LOGIT_BYTES // (4 * labels))


def _collated(
    collate: Callable[[MicroBatch], Batch],
    batches: Sequence[NDArray[np.int64]],
    most: int,
) -> Iterator[partial[Batch]]:
    """Yield what collates each batch, divided into batches of at most so many documents."""
    for rows in batches:
        for start in range(0, len(rows), most):
            rows_B = rows[start : start + most]
            yield partial(collate, MicroBatch(rows_B, np.ones(len(rows_B), np.float32)))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    if not model.training:  # walking the modules takes as long as a layer
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()
