"""A head whose label rows are split over the ranks: each computes the logits of all documents for its own labels.

Hidden states go round once a step, logits never: memory and arithmetic of the label set are divided by the ranks. Not
wired into the training loop; `xmtc train` keeps whole tables on every rank (docs/mining.md).

The gradient convention is a sum: what is replicated (encoder, projections) has on each rank the part of its gradient
that comes from this rank's labels (projections) or documents (encoder), and `sum_gradients` adds them up.

Suffixes: B documents of this rank, G of all ranks, T tokens, D encoder width, L labels, R labels of this rank, K kept.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from xmtc.distributed.collectives import all_gather_object, all_reduce_sum, rank_and_world_size
from xmtc.losses.base import LossOutput, Targets
from xmtc.models.heads import FlatHead, LabelAttentionHead


class ShardedHead(nn.Module):
    """Cuts a head's label tables down to this rank's rows, in place, and runs it on the documents of all ranks.

    Args:
        head: with whole tables, the same on all ranks. Its dropout draws of each rank's own generator.

    Attributes:
        labels: L.
        first: the first label of this rank; it has the next len(head.bias).
    """

    def __init__(self, head: LabelAttentionHead | FlatHead) -> None:
        super().__init__()
        rank, world = rank_and_world_size()
        self.head, self.labels = head, len(head.bias)
        self.first, end = (self.labels * part // world for part in (rank, rank + 1))
        for name in self._tables():
            own = getattr(head, name).detach()[self.first : end].clone()
            setattr(head, name, nn.Parameter(own))

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor, targets: Targets) -> tuple[Tensor, Targets]:
        """Logits (G, R) of all ranks' documents for this rank's labels, and these documents' positives among them.

        Collective, as is its backward pass. Documents that fill up shorter batches have weight 0 and no positives.
        """
        documents, tokens = (max(sizes) for sizes in zip(*all_gather_object(tuple(mask_BT.shape)), strict=True))
        hidden_BTD = nn.functional.pad(
            hidden_BTD, (0, 0, 0, tokens - hidden_BTD.shape[1], 0, documents - len(hidden_BTD))
        )
        mask_BT = _padded_mask(mask_BT, documents, tokens)
        hidden_GTD, mask_GT = _AllGather.apply(hidden_BTD), _all_gather(mask_BT)
        return self.head(hidden_GTD, mask_GT), self._own_targets(targets, documents)

    def loss(
        self, loss: Callable[..., LossOutput], hidden_BTD: Tensor, mask_BT: Tensor, targets: Targets
    ) -> LossOutput:
        """The part of the loss that this rank's labels have; summed over ranks, it is all documents' loss. Collective.

        Args:
            loss: one that is a sum over labels, such as binary cross-entropy: no softmax, no picked negatives.
            hidden_BTD: of this rank's documents.
            mask_BT: False on padding.
            targets: of this rank's documents.

        Returns:
            The part, and the weight of all ranks' documents.
        """
        logits_GR, own = self(hidden_BTD, mask_BT, targets)
        return loss(logits_GR, own)

    @torch.no_grad()
    def top_k(self, hidden_BTD: Tensor, mask_BT: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Label ids and logits (B, K) of this rank's documents, best first, merged from all ranks' best. Collective."""
        nothing = torch.empty(0, dtype=torch.int64)
        logits_GR, _ = self(hidden_BTD, mask_BT, Targets(nothing, nothing, torch.ones(len(hidden_BTD))))
        best_GK, columns_GK = logits_GR.topk(min(k, logits_GR.shape[1]))
        rank, world = rank_and_world_size()
        start = len(logits_GR) // world * rank
        found = [
            (best[start : start + len(hidden_BTD)], ids[start : start + len(hidden_BTD)])
            for best, ids in all_gather_object((best_GK.cpu(), columns_GK.cpu() + self.first))
        ]
        best_BX, ids_BX = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        best_BK, columns_BK = best_BX.topk(min(k, self.labels))
        return ids_BX.gather(1, columns_BK), best_BK

    @torch.no_grad()
    def whole_tables(self) -> dict[str, Tensor]:
        """The tables of all labels by name, on the CPU of every rank, for the export. Collective."""
        own = {name: getattr(self.head, name).detach().cpu() for name in self._tables()}
        parts = all_gather_object(own)
        return {name: torch.cat([part[name] for part in parts]) for name in own}

    def replicated(self) -> list[nn.Parameter]:
        """The head's parameters that every rank has whole."""
        own = {id(table) for table in self.head.label_tables()}
        return [parameter for parameter in self.head.parameters() if id(parameter) not in own]

    def _tables(self) -> list[str]:
        tables = {id(table) for table in self.head.label_tables()}
        return [name for name, parameter in self.head.named_parameters() if id(parameter) in tables]

    def _own_targets(self, targets: Targets, documents: int) -> Targets:
        """All ranks' positives among this rank's labels; rows count through the gathered documents."""
        weight_B = nn.functional.pad(targets.weight_B, (0, documents - len(targets.weight_B)))
        cpu = replace(targets, rows_P=targets.rows_P.cpu(), columns_P=targets.columns_P.cpu(), weight_B=weight_B.cpu())
        parts = all_gather_object(cpu)
        rows_P = torch.cat([part.rows_P + documents * rank for rank, part in enumerate(parts)])
        columns_P = torch.cat([part.columns_P for part in parts]) - self.first
        kept_P = (columns_P >= 0) & (columns_P < len(self.head.bias))
        weight_G = torch.cat([part.weight_B for part in parts])
        device = targets.weight_B.device
        return Targets(rows_P[kept_P].to(device), columns_P[kept_P].to(device), weight_G.to(device))


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Add up the gradients of replicated parameters over the ranks, in place. Collective."""
    for parameter in parameters:
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        parameter.grad = all_reduce_sum(gradient)


class _AllGather(torch.autograd.Function):
    """(B, …) of each rank → (G, …) on every rank; backward adds up what all ranks send to this one's documents."""

    @staticmethod
    def forward(ctx: Any, x_B: Tensor) -> Tensor:
        ctx.documents = len(x_B)
        return _all_gather(x_B)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total_G = all_reduce_sum(gradients[0])
        rank, _ = rank_and_world_size()
        return total_G[rank * ctx.documents : (rank + 1) * ctx.documents]


def _all_gather(x_B: Tensor) -> Tensor:
    _, world = rank_and_world_size()
    if world == 1:
        return x_B
    parts = [torch.empty_like(x_B) for _ in range(world)]
    dist.all_gather(parts, x_B.contiguous())
    return torch.cat(parts)


def _padded_mask(mask_BT: Tensor, documents: int, tokens: int) -> Tensor:
    """The mask of a batch of this many documents; those that fill it up have one token, since a softmax needs one."""
    padded = nn.functional.pad(mask_BT, (0, tokens - mask_BT.shape[1], 0, documents - len(mask_BT)))
    padded[len(mask_BT) :, 0] = True
    return padded
