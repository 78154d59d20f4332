"""Supervised contrastive loss, added to a classification loss in training only.

Suffixes: B documents, Q documents in the memory queue, A = B + Q, D width, P positive pairs, U labels of the batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.losses.base import LossOutput, Targets, compute_dtype
from xmtc.losses.config import SupervisedContrastiveConfig


class SupervisedContrastive(nn.Module):
    r"""Pulls documents together that share labels, and pushes all others apart (Khosla et al. 2020, L_out).

    Formula, with z the features scaled to length 1 and a over all other documents of the batch and of the queue:

        L_i = − Σ_a w_ia / (Σ_a w_ia) · ln( exp(⟨z_i, z_a⟩/τ) / Σ_a exp(⟨z_i, z_a⟩/τ) )

    summed over the documents i that have a positive, times the weight of the configuration. w_ia = |y_i ∩ y_a| /
    |y_i ∪ y_a|, the overlap of the label sets [D]; with one label per document it is 1 or 0, which is Khosla's loss.
    The queue (He et al. 2020; without a momentum encoder, as in Wang et al. 2020) holds the features of earlier
    batches, without gradient: it makes the comparisons of a large batch at the cost of a small one. It is neither
    saved nor shared between workers; after a resume it fills again.

    Inputs: pooled features (B, D), the sparse positives.

    Prefer it when labels are few enough that documents share them, and when the encoder is trained from scratch or
    data are scarce. It shapes the features and does not classify: add it to another loss.

    Example:
        >>> loss = SupervisedContrastiveConfig(weight=1.0, queue_size=0).build()
        >>> targets = Targets(torch.arange(2), torch.tensor([4, 4]), torch.ones(2))
        >>> loss(torch.eye(2), targets).sum
        tensor(0.)
    """

    def __init__(self, config: SupervisedContrastiveConfig) -> None:
        super().__init__()
        self.config = config
        # No buffer: strategies broadcast buffers, and every worker's queue is another.
        self.queue: _Queue | None = None

    def forward(self, features_BD: Tensor, targets: Targets) -> LossOutput:
        """Compute the weighted sum, in fp32, and the documents; in training mode the batch then enters the queue.

        Args:
            features_BD: pooled document vectors, any length.
            targets: the positives as label ids (not shortlist positions), each pair once. Fillers are left out.
        """
        real_B = targets.weight_B > 0
        # Mixed precision would multiply in bfloat16: an error of 2⁻⁸ in a cosine, which 1/τ makes ten times as large.
        with torch.autocast(features_BD.device.type, enabled=False):
            unit_BD = F.normalize(features_BD.to(compute_dtype(features_BD)), dim=1)
            others_AD, rows_P, labels_P = self._with_queue(unit_BD, targets)
            similarity_BA = unit_BD @ others_AD.T / self.config.temperature
            overlap_BA = jaccard_overlap(targets, rows_P, labels_P, len(others_AD)).to(similarity_BA.dtype)
            loss_B = _contrast(similarity_BA, overlap_BA, real_B)
        if self.training and self.config.queue_size:
            self._push(unit_BD.detach(), targets, real_B)
        return LossOutput(self.config.weight * (loss_B * targets.weight_B).sum(), targets.weight_B.sum())

    def _with_queue(self, unit_BD: Tensor, targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
        if self.queue is None:
            return unit_BD, targets.rows_P, targets.columns_P
        others_AD = torch.cat([unit_BD, self.queue.features_QD.to(unit_BD.dtype)])
        rows_P = torch.cat([targets.rows_P, self.queue.rows_P + len(unit_BD)])
        return others_AD, rows_P, torch.cat([targets.columns_P, self.queue.labels_P])

    def _push(self, unit_BD: Tensor, targets: Targets, real_B: Tensor) -> None:
        """Put the batch's real documents first in the queue, and let the oldest fall out."""
        place_B = real_B.cumsum(0) - 1
        kept_P = real_B[targets.rows_P]
        new_BD, labels_P = unit_BD[real_B], targets.columns_P[kept_P]
        rows_P = place_B[targets.rows_P[kept_P]]
        if self.queue is not None:
            rows_P = torch.cat([rows_P, self.queue.rows_P + len(new_BD)])
            labels_P = torch.cat([labels_P, self.queue.labels_P])
            new_BD = torch.cat([new_BD, self.queue.features_QD.to(new_BD.dtype)])
        within_P = rows_P < self.config.queue_size
        self.queue = _Queue(new_BD[: self.config.queue_size], rows_P[within_P], labels_P[within_P])


@dataclass(frozen=True)
class _Queue:
    """Documents of earlier batches, newest first: unit features, and (row, label) pairs."""

    features_QD: Tensor
    rows_P: Tensor
    labels_P: Tensor


def jaccard_overlap(targets: Targets, rows_P: Tensor, labels_P: Tensor, documents: int) -> Tensor:
    """Compute |y_i ∩ y_a| / |y_i ∪ y_a| (B, A) between the batch and `documents` others; 0 if both have no label.

    Only the batch's own labels are made dense (B, U), so that the size of the label set does not matter.

    Args:
        targets: the batch.
        rows_P: document of each (document, label) pair of the others.
        labels_P: its label.
        documents: A.
    """
    known_U, column_P = targets.columns_P.unique(return_inverse=True)
    batch_BU = torch.zeros(len(targets.weight_B), len(known_U), device=rows_P.device)
    batch_BU[targets.rows_P, column_P] = 1
    shared_P = torch.isin(labels_P, known_U)
    others_AU = torch.zeros(documents, len(known_U), device=rows_P.device)
    others_AU[rows_P[shared_P], torch.searchsorted(known_U, labels_P[shared_P])] = 1
    both_BA = batch_BU @ others_AU.T
    sizes_A = rows_P.bincount(minlength=documents)
    return both_BA / (batch_BU.sum(1, keepdim=True) + sizes_A - both_BA).clamp(min=1)


def _contrast(similarity_BA: Tensor, overlap_BA: Tensor, real_B: Tensor) -> Tensor:
    """Compute L_i of each document (B,); 0 for one without positives."""
    documents = len(real_B)
    usable_BA = torch.ones_like(overlap_BA, dtype=torch.bool)
    usable_BA[:, :documents] = real_B & ~torch.eye(documents, dtype=torch.bool, device=real_B.device)
    # Finite, so that a document without company gives 0 and not NaN.
    log_p_BA = similarity_BA.masked_fill(~usable_BA, -1e9).log_softmax(1)
    overlap_BA = overlap_BA * usable_BA
    return -(overlap_BA * log_p_BA).sum(1) / overlap_BA.sum(1).clamp(min=1e-9)
