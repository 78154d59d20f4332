"""Plant attention and values in closed form, from sums over one pass through the training documents.

Attention. The score of a token for a label should follow the token's relevance for the label, r[l,v] = 2^grade − 1 of
its rank by information gain. Least squares over all tokens gives queries (C + λI)⁻¹ m[l]: h̃ is a hidden state minus
its document's mean (a constant per document changes no ranking), C = Σ h̃h̃ᵀ/N, and m[l] = Σ_v r[l,v] Σ h̃ over the
tokens v. Keys are whitened states, reduced to the head's width by the directions in which the labels' queries differ.

Values. Reduced-rank regression of labels on pooled states (Izenman 1975): whitened states are projected on the
directions that predict labels best. Prototypes are then close to discriminant analysis with a full covariance.

Suffixes: B documents, P positives, T tokens, N counted tokens, D hidden width, d head width, V vocabulary, L labels of
this worker, S a block of them, K ranked tokens of a label.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from xmtc.data.collate import Batch
from xmtc.models.heads.base import PlantsProjections
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.planting.ranking_objective import grades_by_rank
from xmtc.planting.ridge_rows import VectorSums
from xmtc.planting.sums import Sums, blocks
from xmtc.training.label_shard import LabelShard

RIDGE = 1e-3
"""λ as a share of the mean eigenvalue of C."""
_UNDECIDED = 1e-3  # of a moment's trace


class PlantSums(Sums):
    """Sums over all workers' training documents: 2·D² float64, V·D and L·D float32 on the classifier's device.

    Attributes:
        tokens_DD: Σ h̃h̃ᵀ over tokens.
        by_token_VD: Σ h̃ over the tokens of each vocabulary entry.
        tokens: number of tokens.
        means: sums over the documents' mean hidden states.
    """

    def __init__(self, labels: int, vocab_size: int, width: int, device: torch.device) -> None:
        super().__init__()
        self.add_sum("tokens_DD", width, width, dtype=torch.float64, device=device)
        self.add_sum("by_token_VD", vocab_size, width, device=device)
        self.add_sum("tokens", dtype=torch.float64, device=device)
        self.means = VectorSums(labels, width, device)

    def add(self, hidden_BTD: Tensor, batch: Batch, shard: LabelShard) -> None:
        """Add this worker's documents, and for its labels those of all workers. Collective."""
        hidden_BTD, weight_B1 = hidden_BTD.float(), batch.weight_B.unsqueeze(1)
        mask_BT = batch.mask_BT & (weight_B1 > 0)
        mean_BD = (hidden_BTD * mask_BT.unsqueeze(2)).sum(1) / mask_BT.sum(1, keepdim=True).clamp(min=1)
        tokens_ND = (hidden_BTD - mean_BD.unsqueeze(1))[mask_BT]
        exact_ND = tokens_ND.double()  # whitening enlarges what float32 rounds
        self.tokens_DD.add_(exact_ND.T @ exact_ND)
        self.by_token_VD.index_add_(0, batch.token_ids_BT[mask_BT], tokens_ND)
        self.tokens.add_(mask_BT.sum())
        self.means.add(mean_BD, batch, shard)

    def values(self, width: int, seed: int, sum_of_all: Callable[[Tensor], Tensor]) -> Tensor:
        """Compute whitening followed by the directions that predict labels best, float64 (width, D). Collective."""
        covariance_DD, roots_L1 = self.means.covariance(), self.means.counts_L.double().clamp(min=1).sqrt().unsqueeze(1)
        whiten_DD = inverse_root(oas(covariance_DD, float(self.means.documents)))
        means = (self.means.centred(block) / roots_L1[block] for block in blocks(len(roots_L1)))
        between_DD = whiten_DD @ sum_of_all(_moment(means, covariance_DD)) @ whiten_DD
        return _spread(leading(between_DD, covariance_DD, width), whiten_DD, width, seed)

    def token_variance(self, projection_dD: Tensor) -> Tensor:
        """Compute the mean variance of projected tokens over the projection's rows, inside documents."""
        return ((projection_dD @ self.tokens_DD) * projection_dD).sum(1).mean() / self.tokens.clamp(min=1)

    def relevance(self, ranking: TokenRanking) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of labels with the directions of m[l], float64 (S, D), of unit length; zero without ranking."""
        gains_K = torch.from_numpy(np.exp2(grades_by_rank(ranking.k)[:-1].astype(np.float32)) - 1).to(self.by_token_VD)
        for block in blocks(len(ranking.token_ids_LK)):
            ids_SK = torch.from_numpy(ranking.token_ids_LK[block]).long().to(gains_K.device)
            gains_SK = gains_K * (ids_SK >= 0)
            bags_SD = F.embedding_bag(ids_SK.clamp(min=0), self.by_token_VD, mode="sum", per_sample_weights=gains_SK)
            yield block, F.normalize(bags_SD, dim=1).double()


def _moment(parts: Iterable[Tensor], like_DD: Tensor) -> Tensor:
    """Compute Σ xᵀx over blocks x (S, D)."""
    return sum((part_SD.T @ part_SD for part_SD in parts), start=torch.zeros_like(like_DD))


def oas(covariance_DD: Tensor, count: float) -> Tensor:
    """Shrink a covariance of `count` documents towards a multiple of the identity (Chen et al. 2010)."""
    width, trace, squares = len(covariance_DD), covariance_DD.trace(), covariance_DD.square().sum()
    share = (squares + trace**2) / ((count + 1) * (squares - trace**2 / width))
    share = share.nan_to_num(nan=1.0).clamp(0, 1)
    mean = (trace / width).clamp(min=1e-12)
    return (1 - share) * covariance_DD + share * mean * torch.eye(width).to(covariance_DD)


def inverse_root(covariance_DD: Tensor) -> Tensor:
    """Compute Σ^(−1/2) of a positive definite matrix."""
    values_D, vectors_DD = torch.linalg.eigh(covariance_DD)
    return (vectors_DD * values_D.clamp(min=1e-12).rsqrt()) @ vectors_DD.T


def leading(moment_DD: Tensor, covariance_DD: Tensor, width: int) -> Tensor:
    """Select the eigenvectors of the largest eigenvalues, as rows (≤ width, D).

    A little of the covariance decides where labels do not, as when they are fewer than `width`.
    """
    share = _UNDECIDED * moment_DD.trace().clamp(min=1e-12) / covariance_DD.trace().clamp(min=1e-12)
    return torch.linalg.eigh(moment_DD + share * covariance_DD).eigenvectors.T[-width:]


@torch.no_grad()
def plant_centre(head: PlantsProjections, sums: PlantSums) -> None:
    """Set the mean hidden state that the projections subtract."""
    for projection in (head.key_projection, head.value_projection):
        projection.centre.copy_(sums.means.vector_P / sums.means.documents.clamp(min=1))


@torch.no_grad()
def plant_values(head: PlantsProjections, sums: PlantSums, shard: LabelShard, seed: int) -> None:
    """Plant the value projection, such that a token's values have variance 1. Collective."""
    weight_dD = head.value_projection.weight
    values_dD = sums.values(len(weight_dD), seed, shard.sum_of_all)
    weight_dD.copy_(values_dD / sums.token_variance(values_dD).clamp(min=1e-12).sqrt())


@torch.no_grad()
def plant_attention(
    head: PlantsProjections, sums: PlantSums, ranking: TokenRanking, shard: LabelShard, seed: int, *, keys: bool
) -> None:
    """Plant the queries and, with `keys`, the key projection. Collective.

    The key projection keeps the size of its random start. Whitening makes it much larger, and an optimizer whose
    steps have a fixed size, such as Adam, can then hardly move it.

    Args:
        head: changed in place.
        sums: of all workers' documents.
        ranking: tokens by information gain, of this worker's labels.
        shard: this worker's label rows.
        seed: of the rotation that spreads directions over the attention heads.
        keys: whether the key projection may change; otherwise queries are fitted to it as it is.
    """
    weight_dD, covariance_DD = head.key_projection.weight, _ridged(sums.tokens_DD / sums.tokens.clamp(min=1))
    if keys:
        whiten_DD = inverse_root(covariance_DD)
        queries = (F.normalize(relevance_SD @ whiten_DD, dim=1) for _, relevance_SD in sums.relevance(ranking))
        moment_DD = shard.sum_of_all(_moment(queries, covariance_DD))
        keys_dD = _spread(leading(moment_DD, covariance_DD, len(weight_dD)), whiten_DD, len(weight_dD), seed)
        weight_dD.copy_(keys_dD * (weight_dD.double().norm() / keys_dD.norm()))
    keys_dD = weight_dD.double()
    products_dd = keys_dD @ covariance_DD @ keys_dD.T
    queries_Ld = torch.empty(len(ranking.token_ids_LK), len(weight_dD), device=weight_dD.device)
    common_d = keys_dD.new_zeros(len(weight_dD))  # what labels attend to in general, for those without ranked tokens
    for block, relevance_SD in sums.relevance(ranking):
        queries_Sd = torch.linalg.solve(_ridged(products_dd), keys_dD @ relevance_SD.T).T
        spread_S = ((queries_Sd @ products_dd) * queries_Sd).sum(1).clamp(min=1e-24).sqrt()
        queries_Sd /= spread_S.unsqueeze(1)
        common_d += queries_Sd.sum(0)
        queries_Ld[block] = queries_Sd
    common_d = shard.sum_of_all(common_d)
    common_d = common_d / (common_d @ products_dd @ common_d).clamp(min=1e-24).sqrt()
    queries_Ld[~queries_Ld.any(1)] = common_d.float()
    head.plant_queries(queries_Ld)


def _ridged(covariance_DD: Tensor) -> Tensor:
    """Add `RIDGE` to the diagonal."""
    mean = (covariance_DD.trace() / len(covariance_DD)).clamp(min=1e-12)
    return covariance_DD + RIDGE * mean * torch.eye(len(covariance_DD)).to(covariance_DD)


def _spread(directions_kD: Tensor, whiten_DD: Tensor, width: int, seed: int) -> Tensor:
    """Rotate directions (k, D) at random into `width` dimensions, so that every attention head has a share of each.

    The result depends only on the span of the directions: their signs, and the order of equal ones, are rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    normal_dD = torch.randn(width, directions_kD.shape[1], dtype=torch.float64, generator=generator)
    left_dk, _, right_kk = torch.linalg.svd(normal_dD.to(directions_kD.device) @ directions_kD.T, full_matrices=False)
    return left_dk @ right_kk @ directions_kD @ whiten_DD
