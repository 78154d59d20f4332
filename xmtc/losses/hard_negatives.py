"""Choose the negatives that a document trains on: the hardest, and a uniform sample that represents the rest.

Suffixes: B documents, C columns, P positive pairs, K hardest, M sampled, S = K + M.
"""

import torch
from torch import Tensor

from xmtc.losses.base import Targets


def draw_negatives(
    logits_BC: Tensor,
    targets: Targets,
    hardest: int,
    sampled: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, Tensor]:
    """Draw the `hardest` highest-scored negatives of each document, and `sampled` columns of the others.

    Σ_s importance_bs · f(columns_bs) has the expectation Σ_{c negative of b} f(c), for any f: the sample is uniform
    over all C columns with replacement, each draw weighs C/M, and draws that hit a positive or one of the hardest
    weigh 0, those being counted elsewhere. Where workers share the labels, the hardest are those of all workers, and
    each worker draws its part of the sample among its own columns.

    Args:
        logits_BC: current scores, without gradient.
        targets: the positives, each pair once.
        hardest: K.
        sampled: M; K + M < C.
        generator: for the draws, on the device of the logits.

    Returns:
        Columns (B, S), int64, and the number of negatives that each represents, float32; 0 if a draw must not count.
    """
    documents, columns = logits_BC.shape
    positive_keys = (targets.rows_P * columns + targets.columns_P).sort().values
    hard_BK, is_hard_BK = _hardest(
        logits_BC, positive_keys, hardest, _max_positives(targets)
    )
    if targets.others is not None:
        sampled = max(1, sampled * columns // targets.others.total)
        scores_BK = (
            logits_BC.gather(1, hard_BK).float().masked_fill(~is_hard_BK, -torch.inf)
        )
        is_hard_BK = targets.others.among_best(scores_BK, hardest)
    drawn_BM = torch.randint(
        columns, (documents, sampled), generator=generator, device=logits_BC.device
    )
    sorted_hard_BK = torch.where(is_hard_BK, hard_BK, columns).sort(1).values
    is_positive_BM = among(_keys(drawn_BM, columns), positive_keys)
    is_hard_BM = _are_in_row(drawn_BM, sorted_hard_BK)
    counts_BM = ~is_positive_BM & ~is_hard_BM
    importance_BM = counts_BM.float() * (columns / sampled)
    columns_BS = torch.cat([hard_BK, drawn_BM], 1)
    importance_BS = torch.cat([is_hard_BK.float(), importance_BM], 1)
    return columns_BS, importance_BS


def _max_positives(targets: Targets) -> int:
    if targets.max_positives is not None:
        return targets.max_positives
    if len(targets.rows_P) == 0:
        return 0
    return int(targets.rows_P.bincount().max())


def _hardest(
    logits_BC: Tensor, positive_keys: Tensor, count: int, max_positives: int
) -> tuple[Tensor, Tensor]:
    """Find the top columns (B, K + most positives of a document), and mark the K hardest negatives among them."""
    columns = logits_BC.shape[1]
    top_BK = logits_BC.topk(min(columns, count + max_positives), dim=1).indices
    is_negative_BK = ~among(_keys(top_BK, columns), positive_keys)
    is_among_first_BK = is_negative_BK.cumsum(1) <= count
    return top_BK, is_negative_BK & is_among_first_BK


def _keys(columns_BX: Tensor, columns: int) -> Tensor:
    """Number the pairs of a document and a column."""
    rows_B1 = torch.arange(len(columns_BX), device=columns_BX.device).unsqueeze(1)
    return rows_B1 * columns + columns_BX


def among(keys: Tensor, sorted_keys: Tensor) -> Tensor:
    """Mark the keys that are in an ascending list, at a cost that hardly depends on its length."""
    if len(sorted_keys) == 0:
        return torch.zeros_like(keys, dtype=torch.bool)
    positions = torch.searchsorted(sorted_keys, keys).clamp_(max=len(sorted_keys) - 1)
    return sorted_keys[positions] == keys


def _are_in_row(values_BM: Tensor, sorted_BK: Tensor) -> Tensor:
    """Mark the values that are in the same row of a table of ascending rows."""
    positions_BM = torch.searchsorted(sorted_BK, values_BM).clamp_(
        max=sorted_BK.shape[1] - 1
    )
    return sorted_BK.gather(1, positions_BM) == values_BM
