"""A bidirectional GRU. Suffixes: W windows, U tokens, D width, X width of one direction's states."""

import torch
from torch import Tensor, nn

from xmtc.models.dropout import Dropout
from xmtc.models.encoders.embedding import LightEncoder
from xmtc.models.encoders.light_config import BiGRUConfig


class BiGRU(nn.Module):
    """Layers of a GRU in both directions. Padding, which is on the right, does not affect any state.

    The right-to-left direction reads each window mirrored. Packed sequences would give the same result, but on a CPU
    their backward pass fills a gradient of the whole batch at every token, so its time is quadratic in the length.

    Args:
        width: D, width of the inputs.
        hidden: width of a direction's state.
        layers: number of layers.
        dropout: dropout on the inputs of the second and higher layers.
    """

    def __init__(self, width: int, hidden: int, *, layers: int, dropout: float) -> None:
        super().__init__()
        self.width = 2 * hidden
        input_widths = [width] + [self.width] * (layers - 1)
        self.rightward = nn.ModuleList(
            nn.GRU(inputs, hidden, batch_first=True) for inputs in input_widths
        )
        self.leftward = nn.ModuleList(
            nn.GRU(inputs, hidden, batch_first=True) for inputs in input_widths
        )
        self.dropout = Dropout(dropout)

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """Compute states (W, U, D), 0 on padding; the states of both directions are concatenated."""
        mirrored_WU = mirrored_positions(mask_WU)
        for layer, (rightward, leftward) in enumerate(
            zip(self.rightward, self.leftward, strict=True)
        ):
            if layer > 0:
                hidden_WUD = self.dropout(hidden_WUD)
            leftward_WUX, _ = leftward(_tokens_at(hidden_WUD, mirrored_WU))
            rightward_WUX, _ = rightward(hidden_WUD)
            hidden_WUD = torch.cat(
                [rightward_WUX, _tokens_at(leftward_WUX, mirrored_WU)], 2
            )
        return hidden_WUD * mask_WU.unsqueeze(2)


def mirrored_positions(mask_WU: Tensor) -> Tensor:
    """Compute positions (W, U) of the tokens after reversing each window's tokens but not its padding."""
    positions_U = torch.arange(mask_WU.shape[1], device=mask_WU.device)
    lengths_W1 = mask_WU.sum(1, keepdim=True)
    return torch.where(mask_WU, lengths_W1 - 1 - positions_U, positions_U)


def _tokens_at(states_WUD: Tensor, positions_WU: Tensor) -> Tensor:
    return states_WUD.gather(1, positions_WU.unsqueeze(2).expand_as(states_WUD))


class BiGRUEncoder(LightEncoder):
    """Embedding and recurrent layers."""

    def __init__(self, settings: BiGRUConfig, vocab_size: int) -> None:
        embedding = settings.embedding.build(vocab_size, settings.window)
        recurrent = BiGRU(
            embedding.width,
            settings.hidden,
            layers=settings.layers,
            dropout=settings.dropout,
        )
        super().__init__(embedding, recurrent.width, [recurrent])
        self.dropout = Dropout(settings.dropout)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D), 0 on padding."""
        embedded_WUD = self.embedding(input_ids_WU, attention_mask_WU)
        return self.dropout(self.blocks[0](embedded_WUD, attention_mask_WU))
