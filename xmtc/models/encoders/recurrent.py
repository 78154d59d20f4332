"""What the recurrent encoders share. Suffixes: W windows, U tokens, D width."""

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from xmtc.models.dropout import Dropout
from xmtc.models.encoders.embedding import LightEncoder, TokenEmbedding


class Recurrent(nn.Module):
    """A GRU or LSTM over packed windows, so that no state passes through padding. Padding stands on the right."""

    def __init__(self, cells: nn.GRU | nn.LSTM) -> None:
        super().__init__()
        self.cells = cells

    def forward(self, hidden_WUD: Tensor, mask_WU: Tensor) -> Tensor:
        """States (W, U, D), 0 on padding; those of both directions side by side."""
        lengths_W = mask_WU.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(hidden_WUD, lengths_W, batch_first=True, enforce_sorted=False)
        states_WUD, _ = pad_packed_sequence(self.cells(packed)[0], batch_first=True, total_length=mask_WU.shape[1])
        return states_WUD * mask_WU.unsqueeze(2)


class RecurrentEncoder(LightEncoder):
    """Embedding and recurrent layers."""

    def __init__(self, embedding: TokenEmbedding, cells: nn.GRU | nn.LSTM, dropout: float) -> None:
        directions = 2 if cells.bidirectional else 1
        super().__init__(embedding, directions * cells.hidden_size, [Recurrent(cells)])
        self.dropout = Dropout(dropout)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D), 0 on padding."""
        embedded_WUD = self.embedding(input_ids_WU, attention_mask_WU)
        return self.dropout(self.blocks[0](embedded_WUD, attention_mask_WU))
