"""The classifier: the encoder reads windows, their tokens are joined to documents, and the head reads documents.

Suffixes: B documents, T document tokens, W windows, U window tokens, D encoder width, K fixed poolings, L labels,
S shortlist, X all tokens in a row.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.errors import ConfigError
from xmtc.models.calibration import Calibration
from xmtc.models.config import ModelConfig
from xmtc.models.encoders.base import Encoder
from xmtc.models.heads.base import AttendsByLabel, GivesEvidence, Head, ReadsPooled
from xmtc.models.poolings.pooling import FixedPoolings


class Classifier(nn.Module):
    """Encoder and head.

    Attributes:
        labels: L.
        calibration: calibration of the logits, fitted after training; or None.
    """

    def __init__(self, encoder: Encoder, head: Head, labels: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.labels = labels
        self.fixed = FixedPoolings(encoder.width)
        self.calibration: Calibration | None = None
        self._groups = _group_parameters(self)

    def forward(self, batch: Batch) -> Tensor:
        """Compute logits (B, L)."""
        logits_BL = self.head.score(self.read(batch), batch.mask_BT)
        return self.calibrated(logits_BL)

    def calibrated(self, logits: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Calibrate the head's logits, if the model is calibrated. Padding of a shortlist stays unchanged."""
        if self.calibration is None:
            return logits
        return self.calibration(logits, shortlist)

    def read(self, batch: Batch) -> tuple[Tensor, ...]:
        """Compute the inputs that the label rows need, see `Head.read`."""
        if isinstance(self.head, ReadsPooled):
            return self.head.read_pooled(self.pool(batch))
        return self.head.read(self.encode(batch), batch.mask_BT)

    def pool(self, batch: Batch) -> Tensor:
        """Compute `FixedPoolings` (B, K, D) of the documents in float32, or read them from the batch's cache."""
        if batch.fixed_BKD is not None:
            return batch.fixed_BKD.float()
        return self.fixed(self.encode(batch), batch.mask_BT)

    def pool_mean(self, batch: Batch) -> Tensor:
        """Compute the mean hidden state of each document, float32 (B, D)."""
        return self.pool(batch)[:, 0]

    def encode(self, batch: Batch) -> Tensor:
        """Compute hidden states (B, T, D) of the tokens, zero on padding, or read them from the batch's cache.

        A frozen encoder runs without gradient and dropout, so a cache of its states gives the same result. Outside
        autocast the states are float32 as the head's weights are, also where the encoder's weights are bfloat16.
        """
        if batch.hidden_BTD is not None:
            return batch.hidden_BTD.float()
        frozen = not self.encoder_trainable
        if frozen and self.encoder.training:
            self.encoder.eval()
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            hidden_WUD = self.encoder(batch.input_ids_WU, batch.attention_mask_WU)
        hidden_BTD = gather_documents(hidden_WUD, batch)
        if torch.is_autocast_enabled(hidden_BTD.device.type):
            return hidden_BTD
        return hidden_BTD.float()

    def contributions(self, batch: Batch, labels_S: Tensor) -> tuple[Tensor, Tensor]:
        """Split logits into contributions of tokens (B, S, T) and a part without tokens (S,); these sum to them.

        Raises:
            ConfigError: the head gives no evidence.
        """
        head = self.head
        if not isinstance(head, GivesEvidence):
            raise ConfigError(
                f"model.head.kind: {head.settings.kind}: this head gives no evidence, because its logit is not a sum "
                "over tokens; use another head for that"
            )
        shortlist_BS = labels_S.expand(len(batch.mask_BT), -1)
        shares_BST = head.contributions(self.encode(batch), batch.mask_BT, shortlist_BS)
        bias_S = head.bias[labels_S].float()
        if self.calibration is None:
            return shares_BST, bias_S
        scale_S1 = self.calibration.scale_L.to(bias_S.device)[labels_S, None]
        calibrated_bias_S = self.calibration(bias_S[None], labels_S)[0]
        return shares_BST * scale_S1, calibrated_bias_S

    @property
    def encoder_trainable(self) -> bool:
        """Whether any parameter of the encoder currently trains."""
        return any(parameter.requires_grad for parameter in self.encoder.parameters())

    def parameter_groups(self) -> Mapping[str, list[nn.Parameter]]:
        """Return all parameters that can train, by group, in the order of gradual unfreezing.

        The groups are `head.attention` (queries and projections, which stage 1 trains; only for heads with attention by
        label), `head.classifier` (the rest of the head), then `encoder.<i>` from the top down, where i is the index in
        `encoder.layers()`. With LoRA, encoder groups contain only adapters. Empty groups are left out.
        """
        return self._groups

    def regroup(self) -> None:
        """Update the groups after parameters of the head were replaced."""
        self._groups = _group_parameters(self)


def build_classifier(model: ModelConfig, vocab_size: int, labels: int) -> Classifier:
    """Build the encoder and the head that the settings describe. Only `dtype` and `row_dtype` decide about their types.

    Raises:
        ConfigError: the encoder cannot be loaded, or encoder, overlap and head do not fit each other.
    """
    with _float32_by_default():
        return _built(model, vocab_size, labels)


@contextmanager
def _float32_by_default() -> Iterator[None]:
    """Build modules in float32, whatever type a program that uses xmtc has made PyTorch's default."""
    chosen = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(chosen)


def _built(model: ModelConfig, vocab_size: int, labels: int) -> Classifier:
    encoder = model.encoder.build(vocab_size)
    half_window = encoder.window // 2
    if model.overlap > half_window:
        raise ConfigError(
            f"model.overlap: {model.overlap} is more than half of the encoder's window of {encoder.window} tokens; "
            f"give at most {half_window}"
        )
    if encoder.first_token_is_blind and model.head.first_token == "alone":
        raise ConfigError(
            "model.head.pooling: a decoder's first token sees no other, so it does not represent the text; use last or "
            "mean, or set bidirectional: true in the encoder"
        )
    head = model.head.build(encoder.width, labels)
    return Classifier(encoder, head, labels)


def gather_documents(hidden_WUD: Tensor, batch: Batch) -> Tensor:
    """Gather hidden states (B, T, D): each token's from the window and position that represent it, 0 on padding."""
    if batch.position_BT is None:
        hidden_BTD = hidden_WUD
    else:
        states_XD = hidden_WUD.flatten(0, 1)
        chosen_XD = states_XD.index_select(0, batch.position_BT.flatten())
        hidden_BTD = chosen_XD.view(*batch.position_BT.shape, -1)
    return hidden_BTD.masked_fill(~batch.mask_BT.unsqueeze(-1), 0)


def _group_parameters(classifier: Classifier) -> dict[str, list[nn.Parameter]]:
    """Partition the parameters that the build left trainable (with LoRA, the adapters and the head)."""
    head = classifier.head
    encoder = classifier.encoder
    attention = (
        _trainable(head.attention_parameters())
        if isinstance(head, AttendsByLabel)
        else []
    )
    groups = {
        "head.attention": attention,
        "head.classifier": _without(_trainable(head.parameters()), attention),
    }
    layers = [_trainable(layer.parameters()) for layer in encoder.layers()]
    in_layers = [parameter for layer in layers for parameter in layer]
    layers[-1] += _without(
        _trainable(encoder.parameters()), in_layers
    )  # final norms belong to the top layer
    for index in reversed(range(len(layers))):
        groups[f"encoder.{index}"] = layers[index]
    return {name: parameters for name, parameters in groups.items() if parameters}


def _trainable(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    return [parameter for parameter in parameters if parameter.requires_grad]


def _without(
    parameters: list[nn.Parameter], excluded: list[nn.Parameter]
) -> list[nn.Parameter]:
    excluded_ids = {id(parameter) for parameter in excluded}
    return [parameter for parameter in parameters if id(parameter) not in excluded_ids]
