"""The interface of encoders: Hugging Face backbones and lightweight encoders.

Suffixes: W windows, U window tokens, D width.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import save_file
from torch import Tensor, nn

from xmtc.models.module_files import load_weights, whole

if TYPE_CHECKING:
    from xmtc.models.encoders.hugging_face import HuggingFaceBackbone

FOLDER = "encoder"
"""Folder of an encoder's weights in an exported model."""
ADAPTER = "adapter"
"""Folder of an encoder's adapters, in PEFT's layout."""
WEIGHTS = "model.safetensors"
"""File of the weights in the folder of an encoder."""


class Encoder(nn.Module, ABC):
    """Turns tokens into hidden states.

    Every encoder implements the abstract methods. The others have defaults for encoders that start from scratch.

    Attributes:
        width: D.
        window: maximum number of tokens per window, including special tokens.
    """

    def __init__(self, width: int, window: int) -> None:
        super().__init__()
        self.width = width
        self.window = window

    @abstractmethod
    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D) for int64 ids and a bool mask that is False on padding."""

    @abstractmethod
    def layers(self) -> Sequence[nn.Module]:
        """List the blocks from the bottom (embedding) to the top, for unfreezing and per-layer learning rates."""

    @property
    def backbone(self) -> "HuggingFaceBackbone | None":
        """The Hugging Face model that the encoder is or contains; None if there is none."""
        return None

    @property
    def first_token_is_blind(self) -> bool:
        """Whether the first token's state depends on no other token and so does not represent the text."""
        return False

    def save(
        self, model: Path, tensors: Mapping[str, Tensor], trained: Collection[str]
    ) -> bool:
        """Write the encoder's part of an exported model.

        Args:
            model: the model directory; `encoder/` and `adapter/` in it belong to the encoder.
            tensors: whole tensors, by the encoder's parameter names.
            trained: names of the tensors that training changed.

        Returns:
            Whether the directory holds the whole encoder. If false, it holds only the trained part.

        Raises:
            CheckpointError: a tensor is empty.
        """
        del trained
        (model / FOLDER).mkdir()
        if self.backbone is not None:
            self.backbone.transformer.config.save_pretrained(model / FOLDER)
        save_file(whole(tensors, "encoder."), model / FOLDER / WEIGHTS)
        return True

    def load(self, model: Path) -> None:
        """Load the files from `save` that building from `EncoderSettings.exported` has not loaded yet.

        Raises:
            CheckpointError: a file is missing or damaged, or does not fit.
        """
        load_weights(self, model / FOLDER / WEIGHTS)
