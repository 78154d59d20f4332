"""Token embedding with positions, which the lightweight encoders share, and word vectors from text files.

Suffixes: W windows, U window tokens, V vocabulary, D width.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from xmtc.errors import ConfigError, DataError
from xmtc.models.dropout import Dropout
from xmtc.models.encoders.base import Encoder
from xmtc.models.encoders.light_config import EmbeddingConfig


class TokenEmbedding(nn.Module):
    """Embedded tokens (W, U, D), 0 on padding.

    Attributes:
        width: D.
        window: longest sequence that the positions allow.
        tokens: the table (V, D).
    """

    def __init__(self, config: EmbeddingConfig, vocab_size: int, window: int, *, positions: bool) -> None:
        super().__init__()
        self.config, self.width, self.window = config, config.width, window
        self.tokens = nn.Embedding(vocab_size, config.width)
        nn.init.normal_(self.tokens.weight, std=config.width**-0.5)
        self.dropout = Dropout(config.dropout)
        self.positions_UD = nn.Parameter(torch.randn(window, config.width) * 0.02) if positions else None

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute embedded tokens (W, U, D)."""
        embedded_WUD = self.tokens(input_ids_WU)
        if self.training and self.config.token_dropout:
            kept_WU1 = torch.ones_like(embedded_WUD[..., :1])
            embedded_WUD = embedded_WUD * F.dropout(kept_WU1, self.config.token_dropout).sign()
        if self.positions_UD is not None:
            embedded_WUD = embedded_WUD + self.positions_UD[: input_ids_WU.shape[1]]
        return self.dropout(embedded_WUD) * attention_mask_WU.unsqueeze(2)

    def load_vectors(self, vocabulary: Mapping[str, int]) -> int:
        """Initialise the rows of known words with vectors from the configured file.

        Args:
            vocabulary: ids by token.

        Returns:
            The number of tokens with a vector; 0 without a configured file.

        Raises:
            DataError, ConfigError: see `read_word_vectors`.
        """
        if self.config.vectors is None:
            return 0
        found = read_word_vectors(self.config.vectors, vocabulary, self.width)
        rows = torch.as_tensor(list(found), dtype=torch.int64)
        with torch.no_grad():
            self.tokens.weight[rows] = torch.as_tensor(np.stack(list(found.values())))
        return len(found)


class LightEncoder(Encoder):
    """Base of the lightweight encoders: an embedding, then blocks.

    Attributes:
        embedding: the lowest layer.
        blocks: the other layers, bottom to top.
    """

    def __init__(self, embedding: TokenEmbedding, width: int, blocks: Sequence[nn.Module]) -> None:
        super().__init__(width, embedding.window)
        self.embedding, self.blocks = embedding, nn.ModuleList(blocks)

    @override
    def layers(self) -> Sequence[nn.Module]:
        """Embedding and blocks."""
        return [self.embedding, *self.blocks]

    @override
    def load_vectors(self, vocabulary: Mapping[str, int]) -> int:
        return self.embedding.load_vectors(vocabulary)


class BagEncoder(LightEncoder):
    """The embedded tokens, unchanged. With mean pooling and the flat head, this is fastText's bag of embeddings."""

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D), 0 on padding."""
        return self.embedding(input_ids_WU, attention_mask_WU)


def read_word_vectors(path: str, vocabulary: Mapping[str, int], width: int) -> dict[int, np.ndarray]:
    """Read the vectors of the vocabulary's words, by token id.

    Reads word2vec's text format (whose first line has the numbers of words and dimensions) and GloVe's (without this
    line). Only words of the vocabulary are parsed and kept.

    Raises:
        DataError: the file is missing, damaged or not text, or has none of the words.
        ConfigError: the vectors have another width.
    """
    if not Path(path).is_file():
        raise DataError(f"model.encoder.embedding.vectors: {path} is not a file; give a word2vec or GloVe text file")
    found: dict[int, np.ndarray] = {}
    has = None
    with open(path, encoding="utf-8-sig", errors="replace", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            if "\0" in line:
                raise DataError(f"{path}: is not text; unpack it, or convert word2vec's binary format to its text")
            if not (parts := line.split()):
                continue
            if has is None:
                has, is_header = _dimensions(parts)
                if has != width:
                    raise ConfigError(
                        f"model.encoder.embedding.width: {width}, but the vectors of {path} have {has} dimensions; set "
                        f"model.encoder.embedding.width={has}"
                    )
                if is_header:
                    continue
            # a few words in GloVe's larger files contain spaces, so numbers are counted from the right
            word, *numbers = line.rstrip("\r\n ").rsplit(" ", width)
            if len(numbers) == width and word not in vocabulary:
                continue
            vector = _parse(numbers, width)
            if vector is None:
                raise DataError(f"{path}:{number}: expected a word and {width} finite numbers, separated by spaces")
            found[vocabulary[word]] = vector
    if not found:
        raise DataError(
            f"{path}: has none of the {len(vocabulary)} tokens; set data.tokenizer.model=word, and "
            "data.tokenizer.lowercase as in the file"
        )
    return found


def _dimensions(parts: list[str]) -> tuple[int, bool]:
    """Read the dimensions from the first line; also return whether it is word2vec's, which has no vector."""
    is_header = len(parts) == 2 and all(part.isdecimal() for part in parts)
    return (int(parts[1]) if is_header else len(parts) - 1), is_header


def _parse(numbers: list[str], width: int) -> np.ndarray | None:
    """Convert numbers to float32; None where some are missing, unreadable or not finite."""
    try:
        vector = np.array(numbers, np.float64)
    except ValueError:
        return None
    return (
        vector.astype(np.float32)
        if len(vector) == width and (np.abs(vector) < np.finfo(np.float32).max).all()
        else None
    )
