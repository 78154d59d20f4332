"""Plant the rows of a head that scores documents by one vector: ridge regression of the labels on these vectors.

Regression makes rows of rare labels tiny and those of common ones huge, so each row gets the length that it has in
discriminant analysis. Documents are not normal, so all rows are shorter if labels would be further apart than `GAP`.

Each worker plants its rows from all workers' documents.

Suffixes: L labels of this worker, S a block of them, P width of the vectors.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from xmtc.models.classifier import Classifier
from xmtc.models.heads.base import ScoresByProduct
from xmtc.planting.rows import RIDGE, Responses, set_rows
from xmtc.planting.sums import ReadFor, VectorSums, blocks
from xmtc.training.label_shard import LabelShard


def ridge_rows(
    sums: VectorSums,
    sum_of_all: Callable[[Tensor], Tensor],
    *,
    members: int = 1,
    dropout: float = 0.0,
) -> Responses:
    """Compute w[l] = s[l] A⁻¹ (μ[l] − μ) and the mean responses to documents. Collective.

    A = Σ + λI + p/(1 − p) · diag(mean x²): dropout of a share p is, on average, such a penalty (Wager et al. 2013).
    A label's distance (μ[l] − μ)ᵀA⁻¹(μ[l] − μ) is too large by h / n[l] on average, for n[l] documents and
    h = tr(A⁻¹Σ). With the mean true distance δ² of the labels, s[l] = δ² / (δ² + h / n[l]) (empirical Bayes).

    Args:
        sums: sums of the documents' vectors.
        sum_of_all: sums a value over the labels of all workers.
        members: number of equal parts of a vector, each of which is to score by itself.
        dropout: p.
    """
    covariance_PP = sums.covariance()
    inverse_PP = _inverse(sums, covariance_PP, members, dropout)
    noise = (inverse_PP * covariance_PP).sum()  # h
    counts_L = sums.counts_L.double()
    rows_LP = torch.empty_like(sums.by_label_LP)
    own_L = torch.empty_like(
        counts_L
    )  # Σ of the unshrunk row's products with the label's documents
    all_L = torch.empty_like(counts_L)  # the same with all documents
    for block in blocks(len(counts_L)):
        distance_SP = sums.centred(block) / counts_L[block].clamp(min=1).unsqueeze(1)
        rows_SP = distance_SP @ inverse_PP
        own_L[block] = (rows_SP * sums.by_label_LP[block]).sum(1)
        all_L[block] = rows_SP @ sums.vector_P
        rows_LP[block] = rows_SP
    excess_L = (
        own_L - counts_L * all_L / sums.documents.clamp(min=1) - noise * (counts_L > 0)
    )
    distance = sum_of_all(excess_L.sum()) / sum_of_all(counts_L.sum()).clamp(
        min=1
    )  # δ²
    distance = distance.clamp(min=1e-3 * noise)
    shrink_L = distance / (distance + noise / counts_L.clamp(min=1))
    positive_L = shrink_L * own_L / counts_L.clamp(min=1)
    negative_L = shrink_L * (all_L - own_L) / (sums.documents - counts_L).clamp(min=1)
    rows_LP.mul_(shrink_L.float().unsqueeze(1))
    return Responses(rows_LP, positive_L.float(), negative_L.float())


def _inverse(
    sums: VectorSums, covariance_PP: Tensor, members: int, dropout: float
) -> Tensor:
    """Compute A⁻¹ of each member's dimensions by themselves; 0 between members."""
    squares_P = sums.products_PP.diagonal() / sums.documents.clamp(min=1)
    variance = covariance_PP.diagonal().mean().clamp(min=1e-12)
    penalty_P = RIDGE * variance + dropout / (1 - dropout) * squares_P
    inverse_PP = torch.zeros_like(covariance_PP)
    dimensions_P = torch.arange(len(covariance_PP), device=covariance_PP.device)
    for own in dimensions_P.chunk(members):
        own_PP = covariance_PP[own][:, own] + penalty_P[own].diag()
        inverse_PP[own.unsqueeze(1), own] = torch.cholesky_inverse(
            torch.linalg.cholesky(own_PP)
        )
    return inverse_PP


@torch.no_grad()
def plant_ridge_rows(
    classifier: Classifier, read: ReadFor, prior_L: Tensor, shard: LabelShard
) -> None:
    """Set the head's rows, see `ridge_rows`, and its bias so that a negative scores the label's prior. Collective.

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
        vectors_BP = head.vectors(classifier.read(batch), batch.mask_BT)
        sums.add(vectors_BP, batch, shard)
    sums.all_reduce(labels=shard.world == 1)
    responses = ridge_rows(
        sums, shard.sum_of_all, members=head.members, dropout=head.dropped
    )
    set_rows(head, responses, prior_L, shard, most=1.0)
