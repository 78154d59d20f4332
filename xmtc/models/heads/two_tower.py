"""Two towers: the encoder reads documents and label texts, and a label's row is computed from its text.

logit[b,l] = s · cos(P pool(hidden[b]), Q mean(hidden of the text of l)) + bias[l], P and Q projections, s learned.

In training, the texts of a micro-batch's labels are embedded with gradient, and there is no table. Everywhere else, the
rows are the latest vectors of the texts: for scoring, index and export, this is a flat head with these rows.

Suffixes: B documents, T tokens, L labels, S labels of a micro-batch, D encoder width, X width of the pooling,
P width of the towers.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from xmtc.models.heads.base import ReadsLabelTexts
from xmtc.models.heads.config import TwoTowerConfig
from xmtc.models.heads.flat import FlatHead
from xmtc.models.poolings.pooling import Pooling


class DocumentTower(Pooling):
    """Projects a pooled document, and scales the result to length s."""

    def __init__(self, pooling: Pooling, width: int, scale: float) -> None:
        super().__init__(width)
        self.pooling = pooling
        self.projection = nn.Linear(pooling.width, width, bias=False)
        self.log_scale = nn.Parameter(
            torch.tensor([math.log(scale)])
        )  # DeepSpeed does not support scalars

    @override
    def forward(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        pooled_BX = self.pooling(hidden_BTD, mask_BT)
        unit_BP = F.normalize(self.projection(pooled_BX).float(), dim=1)
        return unit_BP * self.log_scale.exp()

    @override
    def weights(self, hidden_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        return self.pooling.weights(hidden_BTD, mask_BT)

    @override
    def contributions(
        self, hidden_BTD: Tensor, mask_BT: Tensor, rows_BSD: Tensor
    ) -> Tensor:
        """Exact for the given length of the vector."""
        pooled_BX = self.pooling(hidden_BTD, mask_BT)
        length_B = self.projection(pooled_BX).norm(dim=1).clamp(min=1e-12)
        factor_B = self.log_scale.exp() / length_B
        rows_before_projection_BSX = (
            rows_BSD @ self.projection.weight * factor_B[:, None, None]
        )
        return self.pooling.contributions(
            hidden_BTD, mask_BT, rows_before_projection_BSX
        )


class TwoTowerHead(FlatHead, ReadsLabelTexts):
    """A flat head whose `weights` are stored label vectors, which are not trained.

    Attributes:
        label_projection: Q.
    """

    def __init__(self, config: TwoTowerConfig, hidden_width: int, labels: int) -> None:
        tower = DocumentTower(
            config.pooling.build(hidden_width), config.width, config.scale
        )
        super().__init__(config, tower, labels)
        self.weights.requires_grad_(False)
        self.label_projection = nn.Linear(hidden_width, config.width, bias=False)

    @override
    def rows_of_texts(self, texts_ND: Tensor) -> Tensor:
        """Unit vectors."""
        return F.normalize(self.label_projection(texts_ND).float(), dim=1)

    @override
    def score_rows(
        self, read: tuple[Tensor, ...], rows_SP: Tensor, labels_S: Tensor
    ) -> Tensor:
        (pooled_BP,) = read
        products_BS = F.linear(pooled_BP, rows_SP.to(pooled_BP.dtype))
        return products_BS.float() + self.bias[labels_S]

    @torch.no_grad()
    @override
    def keep_rows(self, rows_SP: Tensor, labels_S: Tensor) -> None:
        self.weights[labels_S] = rows_SP.to(self.weights.dtype)

    @override
    def rows_from_names(self, texts_ND: Tensor) -> dict[str, Tensor]:
        """A name is a label text like any other."""
        return {"weights": self.rows_of_texts(texts_ND)}
