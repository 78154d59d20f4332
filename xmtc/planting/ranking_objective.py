"""Stage 1: teach the label attention to rank a document's tokens by their information gain with each label.

Each worker plants its own labels, with all workers' documents.

Suffixes: B documents (of all workers), T tokens, S sampled labels of this worker, H heads, P (document, label) pairs,
V vocabulary.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from xmtc.data.collate import Batch
from xmtc.losses.base import LossOutput
from xmtc.losses.hard_negatives import among
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import AttendsByLabel
from xmtc.planting.config import PlantConfig
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.planting.relevance import grades_by_rank, ndcg_of_lists
from xmtc.training.label_sampling import distinct
from xmtc.training.label_shard import GatheredDocuments, LabelShard
from xmtc.training.objective import Objective

NDCG_CUTOFF = 10
METRIC = f"ndcg@{NDCG_CUTOFF}"
"""Dev metric that picks the best epoch."""


class PlantObjective(Objective):
    """Trains the attention to rank tokens for sampled labels.

    Args:
        classifier: classifier whose head attends by label.
        ranking: tokens by information gain, of this worker's labels.
        settings: see `PlantConfig`.
        vocab_size: V.
        evaluate: measures nDCG on dev; collective.
        shard: this worker's label rows.
    """

    measured = "attention alone"

    def __init__(
        self,
        classifier: Classifier,
        ranking: TokenRanking,
        settings: PlantConfig,
        vocab_size: int,
        evaluate: Callable[[], dict[str, float]],
        shard: LabelShard,
    ) -> None:
        super().__init__(classifier, evaluate)
        classifier.head.sparse_gradients = settings.label_optimizer is not None
        self.loss = settings.loss.build()
        self.settings = settings
        self.shard = shard
        self.rankable = torch.from_numpy(np.flatnonzero(ranking.counts > 0))
        self.grade_table = ranking.table(vocab_size, grades_by_rank(ranking.k))

    def forward(self, batch: Batch, seed: int) -> LossOutput:
        """Compute this worker's share of each document's mean list loss, summed over documents."""
        documents = self.shard.gather_tokens(self.classifier.encode(batch), batch)
        targets = documents.targets
        labels_S = self.sample_labels(targets.on_host.columns_P, seed)
        scores_BST, grades_BST = self.lists(documents, labels_S)
        mask_BST = documents.mask_GT.unsqueeze(1).expand_as(grades_BST)
        loss_N = self.loss(
            scores_BST.flatten(0, 1), grades_BST.flatten(0, 1), mask_BST.flatten(0, 1)
        )
        loss_BS = loss_N.view(scores_BST.shape[:2])
        has_ranked_tokens_BS = (grades_BST > 0).any(2)
        lists_B = self.shard.sum_of_all(has_ranked_tokens_BS.sum(1).to(loss_BS.dtype))
        per_document_B = loss_BS.sum(1) / lists_B.clamp(min=1)
        return LossOutput(
            (per_document_B * targets.weight_B).sum(), batch.weight_B.sum()
        )

    def sample_labels(self, columns_P: Tensor, seed: int) -> Tensor:
        """Sample labels, int64 (S,): positives that have a ranking, plus uniformly drawn labels; all on the CPU."""
        generator = torch.Generator().manual_seed(seed)
        count = self.shard.share(self.settings.sampled_labels)
        positives = columns_P.unique()
        positives = positives[among(positives, self.rankable)]
        positives = positives[
            torch.randperm(len(positives), generator=generator)[:count]
        ]
        drawn = self.rankable[distinct(count, len(self.rankable), generator)]
        return torch.cat([positives, drawn])[:count].unique()

    def lists(
        self, documents: GatheredDocuments, labels_S: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Collect scores and grades (B, S, T) of every document's tokens for these labels, which are on the CPU."""
        mask_BT = documents.mask_GT
        scores_BSHT = self._attention_scores(
            documents, labels_S.to(mask_BT.device, non_blocking=True)
        )
        grades_BST = self.grades(_token_ids(documents), labels_S) * mask_BT.unsqueeze(1)
        return scores_BSHT.mean(2), grades_BST

    def _attention_scores(
        self, documents: GatheredDocuments, labels_S: Tensor
    ) -> Tensor:
        head = self.classifier.head
        assert isinstance(head, AttendsByLabel)
        return head.attention_scores(documents.read[0], documents.mask_GT, labels_S)

    @torch.no_grad()
    def ndcg(self, batch: Batch) -> tuple[float, float]:
        """Sum the nDCG of the attention's ranking over pairs of a document and a positive label, and count the pairs.

        Covers this worker's labels and all workers' documents. Collective.
        """
        documents = self.shard.gather_tokens(self.classifier.encode(batch), batch)
        targets = documents.targets
        mask_BT = documents.mask_GT
        ranked_P = among(targets.on_host.columns_P, self.rankable).to(mask_BT.device)
        rows_P = targets.rows_P[ranked_P]
        if len(rows_P) == 0:
            return 0.0, 0.0
        labels_S, columns_P = targets.columns_P[ranked_P].unique(return_inverse=True)
        scores_BSHT = self._attention_scores(documents, labels_S)
        grades_PT = (
            self.grades(_token_ids(documents), labels_S)[rows_P, columns_P]
            * mask_BT[rows_P]
        )
        scores_PT = scores_BSHT.mean(2)[rows_P, columns_P]
        ndcg_P = ndcg_of_lists(scores_PT, grades_PT, mask_BT[rows_P], NDCG_CUTOFF)
        counted_P = targets.weight_B[rows_P] * (grades_PT > 0).any(1)
        return float((ndcg_P * counted_P).sum()), float(counted_P.sum())

    def grades(self, token_ids_BT: Tensor, labels_S: Tensor) -> Tensor:
        """Look up grades (B, S, T) of every token of every document for every label."""
        table_SV = torch.from_numpy(self.grade_table(labels_S.cpu().numpy()))
        grades_SV = table_SV.to(token_ids_BT.device, non_blocking=True)
        return grades_SV[:, token_ids_BT].transpose(0, 1)


def _token_ids(documents: GatheredDocuments) -> Tensor:
    """Return the token ids (B, T) that `LabelShard.gather_tokens` has gathered beside the hidden states."""
    _, ids_BT1 = documents.read
    return ids_BT1[..., 0]
