"""No head, for models whose scorers are fitted without training, in minutes.

Suffixes: B documents, T tokens, L labels, S requested labels.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from xmtc.models.heads.base import GivesEvidence, Head
from xmtc.models.heads.config import NoHeadConfig


class NoHead(Head, GivesEvidence):
    """Replaces a head; it adds nothing to evidence. Nothing calls its other methods, see `HeadSettings.scores`."""

    def __init__(self, settings: NoHeadConfig, labels: int) -> None:
        super().__init__(settings)
        self.bias = nn.Parameter(torch.zeros(labels), requires_grad=False)

    @override
    def label_tables(self) -> Mapping[str, nn.Parameter]:
        """Only the zero bias."""
        return {"bias": self.bias}

    @override
    def read(self, hidden_BTD: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError

    @override
    def score(
        self, read: tuple[Tensor, ...], mask_BT: Tensor, shortlist: Tensor | None = None
    ) -> Tensor:
        raise NotImplementedError

    @override
    def vectors(self, read: tuple[Tensor, ...], mask_BT: Tensor) -> Tensor:
        raise NotImplementedError

    @override
    def contributions(
        self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor
    ) -> Tensor:
        return hidden_BTD.new_zeros(
            len(mask_BT), shortlist_BS.shape[-1], mask_BT.shape[1]
        )

    @override
    def attention(
        self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor
    ) -> Tensor:
        return hidden_BTD.new_zeros(len(mask_BT), len(label_ids_S), 1, mask_BT.shape[1])
