"""No head, for models whose scorers are fitted without training, in minutes.

Suffixes: B documents, T tokens, L labels, S requested labels.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from xmtc.models.heads.base import Head
from xmtc.models.heads.config import NoHeadConfig


class NoHead(Head):
    """Replaces a head; it scores nothing and adds nothing to evidence."""

    def __init__(self, settings: NoHeadConfig, labels: int) -> None:
        super().__init__(settings)
        self.bias = nn.Parameter(torch.zeros(labels), requires_grad=False)

    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Refuse: see `Head.forward`."""
        raise self.cannot("scores nothing")

    def label_tables(self) -> Mapping[str, nn.Parameter]:
        """Return only the zero bias."""
        return {"bias": self.bias}

    def set_classifier(self, weights_LP: Tensor | None = None, bias_L: Tensor | None = None) -> None:
        """Do nothing: there are no rows."""

    def label_vectors(self) -> Tensor:
        """Refuse: see `Head.label_vectors`."""
        raise self.cannot("has no label vectors")

    def document_vectors(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Refuse: see `Head.document_vectors`."""
        raise self.cannot("has no document vectors")

    def contributions(self, hidden_BTD: Tensor, mask_BT: Tensor, shortlist_BS: Tensor) -> Tensor:
        """Return zeros (B, S, T)."""
        return hidden_BTD.new_zeros(len(mask_BT), shortlist_BS.shape[-1], mask_BT.shape[1])

    def attention(self, hidden_BTD: Tensor, mask_BT: Tensor, label_ids_S: Tensor) -> Tensor:
        """Return zeros (B, S, 1, T)."""
        return hidden_BTD.new_zeros(len(mask_BT), len(label_ids_S), 1, mask_BT.shape[1])
