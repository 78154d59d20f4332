"""Convolutions of several widths (Kim 2014). Suffixes: W windows, U tokens, D width, F filters."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from xmtc.models.dropout import Dropout
from xmtc.models.encoders.embedding import LightEncoder, TokenEmbedding


class Convolutions(nn.Module):
    """ReLU(convolution) for each filter width, concatenated, with one state per token."""

    def __init__(
        self, width: int, filters: int, filter_widths: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.width = filters * len(filter_widths)
        self.filter_widths = filter_widths
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, filters, span) for span in filter_widths
        )

    def forward(self, hidden_WUD: Tensor) -> Tensor:
        """Compute states (W, U, width)."""
        signal_WDU = hidden_WUD.transpose(1, 2)
        states = []
        for convolution, span in zip(
            self.convolutions, self.filter_widths, strict=True
        ):
            # Both ends are padded to get one state per token; `padding="same"` warns if the span is even.
            padded_WDU = F.pad(signal_WDU, ((span - 1) // 2, span // 2))
            states.append(convolution(padded_WDU))
        states_WFU = torch.cat(states, 1).relu()
        return states_WFU.transpose(1, 2)


class CNNEncoder(LightEncoder):
    """Embedding and convolutions."""

    def __init__(
        self, embedding: TokenEmbedding, convolutions: Convolutions, dropout: float
    ) -> None:
        super().__init__(embedding, convolutions.width, [convolutions])
        self.dropout = Dropout(dropout)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D), 0 on padding."""
        embedded_WUD = self.embedding(input_ids_WU, attention_mask_WU)
        states_WUD = self.blocks[0](embedded_WUD)
        return self.dropout(states_WUD) * attention_mask_WU.unsqueeze(2)
