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

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from xmtc.data.collate import Batch
from xmtc.models.heads.base import PlantsProjections
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.planting.relevance import gains_by_rank
from xmtc.planting.sums import Sums, VectorSums, blocks
from xmtc.planting.whitening import inverse_root, leading, moment, oas, ridged, spread
from xmtc.training.label_shard import LabelShard

_SMALLEST_VARIANCE = 1e-12
_SMALLEST_SQUARE = 1e-24


class PlantSums(Sums):
    """Sums over all workers' training documents: 2·D² float64, V·D and L·D float32 on the classifier's device.

    Attributes:
        tokens_DD: Σ h̃h̃ᵀ over tokens.
        by_token_VD: Σ h̃ over the tokens of each vocabulary entry.
        tokens: number of tokens.
        means: sums over the documents' mean hidden states.
    """

    def __init__(
        self, labels: int, vocab_size: int, width: int, device: torch.device
    ) -> None:
        super().__init__()
        self.add_sum("tokens_DD", width, width, dtype=torch.float64, device=device)
        self.add_sum("by_token_VD", vocab_size, width, device=device)
        self.add_sum("tokens", dtype=torch.float64, device=device)
        self.means = VectorSums(labels, width, device)

    def add(self, hidden_BTD: Tensor, batch: Batch, shard: LabelShard) -> None:
        """Add this worker's documents, and for its labels those of all workers. Collective."""
        hidden_BTD = hidden_BTD.float()
        counted_BT = batch.mask_BT & (batch.weight_B.unsqueeze(1) > 0)
        length_B1 = counted_BT.sum(1, keepdim=True).clamp(min=1)
        mean_BD = (hidden_BTD * counted_BT.unsqueeze(2)).sum(1) / length_B1
        tokens_ND = (hidden_BTD - mean_BD.unsqueeze(1))[counted_BT]
        exact_ND = tokens_ND.double()  # whitening enlarges what float32 rounds
        self.tokens_DD.add_(exact_ND.T @ exact_ND)
        self.by_token_VD.index_add_(0, batch.token_ids_BT[counted_BT], tokens_ND)
        self.tokens.add_(counted_BT.sum())
        self.means.add(mean_BD, batch, shard)

    def token_covariance(self) -> Tensor:
        """Compute C + λI, the covariance of tokens inside documents, float64 (D, D)."""
        return ridged(self.tokens_DD / self.tokens.clamp(min=1))

    def token_variance(self, projection_dD: Tensor) -> Tensor:
        """Compute the mean variance of projected tokens over the projection's rows, inside documents."""
        squares_d = ((projection_dD @ self.tokens_DD) * projection_dD).sum(1)
        return squares_d.mean() / self.tokens.clamp(min=1)

    def values(
        self, width: int, seed: int, sum_of_all: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Compute whitening followed by the directions that predict labels best, float64 (width, D). Collective.

        Args:
            width: d, number of rows.
            seed: of the rotation that spreads directions over the attention heads.
            sum_of_all: sums a value over the labels of all workers.
        """
        covariance_DD = self.means.covariance()
        whiten_DD = inverse_root(oas(covariance_DD, float(self.means.documents)))
        roots_L1 = self.means.counts_L.double().clamp(min=1).sqrt().unsqueeze(1)
        means = (
            self.means.centred(block) / roots_L1[block]
            for block in blocks(len(roots_L1))
        )
        between_DD = whiten_DD @ sum_of_all(moment(means, covariance_DD)) @ whiten_DD
        directions_kD = leading(between_DD, covariance_DD, width)
        return spread(directions_kD, whiten_DD, width, seed)

    def relevance(self, ranking: TokenRanking) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of labels with the directions of m[l], float64 (S, D), of unit length; zero without ranking."""
        gains_K = torch.from_numpy(gains_by_rank(ranking.k)).to(self.by_token_VD)
        for block in blocks(len(ranking.token_ids_LK)):
            ids_SK = (
                torch.from_numpy(ranking.token_ids_LK[block]).long().to(gains_K.device)
            )
            gains_SK = gains_K * (ids_SK >= 0)
            bags_SD = F.embedding_bag(
                ids_SK.clamp(min=0),
                self.by_token_VD,
                mode="sum",
                per_sample_weights=gains_SK,
            )
            yield block, F.normalize(bags_SD, dim=1).double()


@torch.no_grad()
def plant_centre(head: PlantsProjections, sums: PlantSums) -> None:
    """Set the mean hidden state that the projections subtract."""
    for projection in (head.key_projection, head.value_projection):
        projection.centre.copy_(sums.means.mean())


@torch.no_grad()
def plant_values(
    head: PlantsProjections, sums: PlantSums, shard: LabelShard, seed: int
) -> None:
    """Plant the value projection, such that a token's values have variance 1. Collective."""
    weight_dD = head.value_projection.weight
    values_dD = sums.values(len(weight_dD), seed, shard.sum_of_all)
    variance = sums.token_variance(values_dD).clamp(min=_SMALLEST_VARIANCE)
    weight_dD.copy_(values_dD / variance.sqrt())


@torch.no_grad()
def plant_attention(
    head: PlantsProjections,
    sums: PlantSums,
    ranking: TokenRanking,
    shard: LabelShard,
    seed: int,
    *,
    keys: bool,
) -> None:
    """Plant the queries and, with `keys`, the key projection. Collective.

    Args:
        head: changed in place.
        sums: of all workers' documents.
        ranking: tokens by information gain, of this worker's labels.
        shard: this worker's label rows.
        seed: of the rotation that spreads directions over the attention heads.
        keys: whether the key projection may change; otherwise queries are fitted to it as it is.
    """
    covariance_DD = sums.token_covariance()
    if keys:
        _plant_keys(head, sums, ranking, shard, covariance_DD, seed)
    keys_dD = head.key_projection.weight.double()
    head.plant_queries(_queries(sums, ranking, shard, keys_dD, covariance_DD))


def _plant_keys(
    head: PlantsProjections,
    sums: PlantSums,
    ranking: TokenRanking,
    shard: LabelShard,
    covariance_DD: Tensor,
    seed: int,
) -> None:
    """Plant the key projection: whitened states, reduced to the directions in which the labels' queries differ.

    It keeps the size of its random start. Whitening makes it much larger, and an optimizer whose steps have a fixed
    size, such as Adam, can then hardly move it.
    """
    weight_dD = head.key_projection.weight
    width = len(weight_dD)
    whiten_DD = inverse_root(covariance_DD)
    queries = (
        F.normalize(relevance_SD @ whiten_DD, dim=1)
        for _, relevance_SD in sums.relevance(ranking)
    )
    moment_DD = shard.sum_of_all(moment(queries, covariance_DD))
    directions_kD = leading(moment_DD, covariance_DD, width)
    keys_dD = spread(directions_kD, whiten_DD, width, seed)
    weight_dD.copy_(keys_dD * (weight_dD.double().norm() / keys_dD.norm()))


def _queries(
    sums: PlantSums,
    ranking: TokenRanking,
    shard: LabelShard,
    keys_dD: Tensor,
    covariance_DD: Tensor,
) -> Tensor:
    """Compute the queries (L, d) that fit relevance by least squares, each with products of variance 1 over tokens.

    A label without ranked tokens gets the sum of all labels' queries: it attends to what labels attend to in general.
    """
    products_dd = keys_dD @ covariance_DD @ keys_dD.T
    ridged_dd = ridged(products_dd)
    queries_Ld = torch.empty(
        len(ranking.token_ids_LK), len(keys_dD), device=keys_dD.device
    )
    common_d = keys_dD.new_zeros(len(keys_dD))
    for block, relevance_SD in sums.relevance(ranking):
        queries_Sd = torch.linalg.solve(ridged_dd, keys_dD @ relevance_SD.T).T
        variance_S = ((queries_Sd @ products_dd) * queries_Sd).sum(1)
        queries_Sd = queries_Sd / variance_S.clamp(
            min=_SMALLEST_SQUARE
        ).sqrt().unsqueeze(1)
        common_d += queries_Sd.sum(0)
        queries_Ld[block] = queries_Sd
    common_d = shard.sum_of_all(common_d)
    variance = common_d @ products_dd @ common_d
    common_d = common_d / variance.clamp(min=_SMALLEST_SQUARE).sqrt()
    without_ranking_L = ~queries_Ld.any(1)
    queries_Ld[without_ranking_L] = common_d.float()
    return queries_Ld
