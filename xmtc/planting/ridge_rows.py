"""Plant the rows of a head that scores documents by one vector: ridge regression of the labels on these vectors.

Regression makes rows of rare labels tiny and those of common ones huge, so each row gets the length that it has in
discriminant analysis. Documents are not normal, so all rows are shorter if labels would be further apart than `GAP`.

Each worker plants its rows from all workers' documents.

Suffixes: B documents, L labels of this worker, P width of the vectors.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from xmtc.data.collate import Batch
from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import ScoresByProduct
from xmtc.planting.prototypes import Responses, set_rows
from xmtc.planting.sums import ReadFor, Sums, blocks
from xmtc.training.label_shard import LabelShard

RIDGE = 0.3
"""Penalty as a share of the mean variance of a dimension. From 0.1 to 1, the trained head is equally good."""


class VectorSums(Sums):
    """Sums over all workers' training documents: P² float64 and L·P float32 on the classifier's device."""

    def __init__(self, labels: int, width: int, device: torch.device) -> None:
        super().__init__()
        self.add_sum("products_PP", width, width, dtype=torch.float64, device=device)
        self.add_sum("vector_P", width, dtype=torch.float64, device=device)
        self.add_sum("documents", dtype=torch.float64, device=device)
        self.add_sum("by_label_LP", labels, width, device=device)
        self.add_sum("counts_L", labels, device=device)

    def add(self, vectors_BP: Tensor, batch: Batch, shard: LabelShard) -> None:
        """Add this worker's documents, and for its labels those of all workers. Collective."""
        vectors_BP = vectors_BP.float() * batch.weight_B.unsqueeze(1)
        self.products_PP.add_((vectors_BP.T @ vectors_BP).double())
        self.vector_P.add_(vectors_BP.double().sum(0))
        self.documents.add_(batch.weight_B.double().sum())
        documents = shard.gather((vectors_BP,), batch)
        rows_P, labels_P = documents.targets.rows_P, documents.targets.columns_P
        self.by_label_LP.index_add_(0, labels_P, documents.read[0][rows_P])
        self.counts_L.index_add_(0, labels_P, documents.targets.weight_B[rows_P])

    def covariance(self) -> Tensor:
        """Compute the covariance of the vectors, float64 (P, P)."""
        mean_P = self.vector_P / self.documents.clamp(min=1)
        return self.products_PP / self.documents.clamp(min=1) - torch.outer(mean_P, mean_P)

    def centred(self, labels: slice = slice(None)) -> Tensor:
        """Compute the sums of centred vectors over the documents of each of these labels, float64 (S, P)."""
        mean_P = self.vector_P / self.documents.clamp(min=1)
        return self.by_label_LP[labels].double() - self.counts_L[labels].double().unsqueeze(1) * mean_P

    def rows(self, sum_of_all: Callable[[Tensor], Tensor], *, members: int = 1, dropout: float = 0.0) -> Responses:
        """Compute w[l] = s[l] A⁻¹ (μ[l] − μ) and the mean responses to documents. Collective.

        A = Σ + λI + p/(1 − p) · diag(mean x²): dropout of a share p is, on average, such a penalty (Wager et al. 2013).
        A label's distance (μ[l] − μ)ᵀA⁻¹(μ[l] − μ) is too large by h / n[l] on average, for n[l] documents and
        h = tr(A⁻¹Σ). With the mean true distance δ² of the labels, s[l] = δ² / (δ² + h / n[l]) (empirical Bayes).

        Args:
            sum_of_all: sums a value over the labels of all workers.
            members: number of equal parts of a vector, each of which is to score by itself.
            dropout: p.
        """
        covariance_PP, counts_L = self.covariance(), self.counts_L.double()
        variance_P, squares_P = covariance_PP.diagonal(), self.products_PP.diagonal() / self.documents.clamp(min=1)
        penalty_P = RIDGE * variance_P.mean().clamp(min=1e-12) + dropout / (1 - dropout) * squares_P
        inverse_PP = torch.zeros_like(covariance_PP)
        for part in torch.arange(len(covariance_PP), device=covariance_PP.device).chunk(members):
            own_PP = covariance_PP[part][:, part] + penalty_P[part].diag()
            inverse_PP[part.unsqueeze(1), part] = torch.cholesky_inverse(torch.linalg.cholesky(own_PP))
        noise, rows_LP = (inverse_PP * covariance_PP).sum(), torch.empty_like(self.by_label_LP)
        own_L, all_L = torch.empty_like(counts_L), torch.empty_like(counts_L)
        for block in blocks(len(counts_L)):
            rows_SP = self.centred(block) / counts_L[block].clamp(min=1).unsqueeze(1) @ inverse_PP
            own_L[block], all_L[block] = (rows_SP * self.by_label_LP[block]).sum(1), rows_SP @ self.vector_P
            rows_LP[block] = rows_SP
        excess = (own_L - counts_L * all_L / self.documents.clamp(min=1) - noise * (counts_L > 0)).sum()
        distance = (sum_of_all(excess) / sum_of_all(counts_L.sum()).clamp(min=1)).clamp(min=1e-3 * noise)
        shrink_L = distance / (distance + noise / counts_L.clamp(min=1))
        positive_L = shrink_L * own_L / counts_L.clamp(min=1)
        negative_L = shrink_L * (all_L - own_L) / (self.documents - counts_L).clamp(min=1)
        return Responses(rows_LP.mul_(shrink_L.float().unsqueeze(1)), positive_L.float(), negative_L.float())


@torch.no_grad()
def plant_ridge_rows(classifier: Classifier, read: ReadFor, prior_L: Tensor, shard: LabelShard) -> None:
    """Set the head's rows, see `VectorSums.rows`, and its bias so that a negative scores the label's prior. Collective.

    Args:
        classifier: classifier whose head `ScoresByProduct`; its rows and biases are changed in place.
        read: see `ReadFor`.
        prior_L: log-odds in train of this worker's labels.
        shard: this worker's label rows.
    """
    head = classifier.eval().head
    assert isinstance(head, ScoresByProduct)  # its settings say so
    sums = VectorSums(len(prior_L), head.weights.shape[1], prior_L.device)
    for batch in read(sums):
        sums.add(head.vectors(classifier.read(batch), batch.mask_BT), batch, shard)
    sums.all_reduce(labels=shard.world == 1)
    set_rows(head, sums.rows(shard.sum_of_all, members=head.members, dropout=head.dropped), prior_L, shard, most=1.0)
