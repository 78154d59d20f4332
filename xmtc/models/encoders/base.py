"""What an encoder is: the Hugging Face backbones and the lightweight encoders share this.

Suffixes: W windows, U window tokens, D width.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors.torch import save_file
from torch import Tensor, nn

from xmtc.models.tensor_files import load_weights, whole

if TYPE_CHECKING:
    from xmtc.models.encoders.hugging_face import HuggingFaceBackbone

FIRST_TOKEN = "cls"
"""The kind of attention of a window's first token; of a document it is that of its first window's."""
FOLDER, WEIGHTS = "encoder", "model.safetensors"
"""Where an exported model keeps an encoder's weights."""


class Encoder(nn.Module, ABC):
    """From tokens to hidden states.

    The abstract methods are what every encoder has. The others have defaults for encoders that start from scratch.

    Attributes:
        width: D.
        window: most tokens of one window, special tokens included.
    """

    def __init__(self, width: int, window: int) -> None:
        super().__init__()
        self.width, self.window = width, window

    @abstractmethod
    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D) for int64 ids and a bool mask that is False on padding."""

    @abstractmethod
    def layers(self) -> Sequence[nn.Module]:
        """Blocks from the bottom (embedding) to the top, for gradual unfreezing and per-layer learning rates."""

    @property
    def backbone(self) -> "HuggingFaceBackbone | None":
        """The Hugging Face model that the encoder is or contains; None where there is none."""
        return None

    @property
    def first_token_is_blind(self) -> bool:
        """Whether the first token's state depends on no other token, so that it says nothing of the text."""
        return False

    def attention_received(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> dict[str, Tensor]:
        """Share (W, U) of the top layer's attention that each token gets, by kind; empty where it is not known."""
        del input_ids_WU, attention_mask_WU
        return {}

    def load_vectors(self, vocabulary: Mapping[str, int]) -> int:
        """Start the embeddings of known words at their vectors of the configured file.

        Args:
            vocabulary: token to id.

        Returns:
            How many tokens found a vector; 0 when no file is configured.

        Raises:
            DataError, ConfigError: the file cannot be read, or does not fit.
        """
        del vocabulary
        return 0

    def for_export(self) -> AbstractContextManager[None]:
        """Within it, `forward` consists of operators that the ONNX exporter knows.

        Raises:
            ConfigError: it cannot.
        """
        return nullcontext()

    def save(self, model: Path, tensors: Mapping[str, Tensor], trained: Collection[str]) -> bool:
        """Write the encoder's part of an exported model.

        Args:
            model: the model directory, in which `encoder/` and `adapter/` are the encoder's.
            tensors: whole tensors, by the encoder's parameter names.
            trained: names of those that training changed.

        Returns:
            Whether the directory holds the whole encoder, or else what was trained.

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
        """Load what `save` wrote, as far as building from `EncoderSettings.exported` has not done it.

        Raises:
            CheckpointError: a file is missing or damaged, or does not fit.
        """
        load_weights(self, model / FOLDER / WEIGHTS)
