"""The classifier: the encoder reads windows, their tokens are joined to documents, and the head reads documents.

Suffixes: B documents, T document tokens, W windows, U window tokens, D encoder width, K fixed poolings, L labels,
S shortlist.
"""

from collections.abc import Iterable, Mapping

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
        return self.calibrated(self.head.score(self.read(batch), batch.mask_BT))

    def calibrated(self, logits: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Calibrate the head's logits, if the model is calibrated. Padding of a shortlist stays unchanged."""
        return logits if self.calibration is None else self.calibration(logits, shortlist)

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

        A frozen encoder runs without gradient and dropout, so a cache of its states gives the same result.
        """
        if batch.hidden_BTD is not None:
            return batch.hidden_BTD.float()
        frozen = not self.encoder_trainable
        if frozen and self.encoder.training:
            self.encoder.eval()
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            hidden_WUD = self.encoder(batch.input_ids_WU, batch.attention_mask_WU)
        return gather_documents(hidden_WUD, batch)

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
        shares_BST = head.contributions(self.encode(batch), batch.mask_BT, labels_S.expand(len(batch.mask_BT), -1))
        bias_S = head.bias[labels_S].float()
        if self.calibration is None:
            return shares_BST, bias_S
        scale_S1 = self.calibration.scale_L.to(bias_S.device)[labels_S, None]
        return shares_BST * scale_S1, self.calibration(bias_S[None], labels_S)[0]

    @property
    def encoder_trainable(self) -> bool:
        """Whether any parameter of the encoder currently trains."""
        return any(p.requires_grad for p in self.encoder.parameters())

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
    """Build the encoder and the head that the settings describe."""
    encoder = model.encoder.build(vocab_size)
    if model.overlap > encoder.window // 2:
        half = encoder.window // 2
        raise ConfigError(f"model.overlap: {model.overlap} is more than half a window; give at most {half}")
    if encoder.first_token_is_blind and model.head.first_token == "alone":
        raise ConfigError(
            "model.head.pooling: a decoder's first token sees no other, so it does not represent the text; use last or "
            "mean, or set bidirectional: true in the encoder"
        )
    return Classifier(encoder, model.head.build(encoder.width, labels), labels)


def gather_documents(hidden_WUD: Tensor, batch: Batch) -> Tensor:
    """Gather hidden states (B, T, D): each token's from the window and position that represent it, 0 on padding."""
    if batch.position_BT is None:
        hidden_BTD = hidden_WUD
    else:
        flat = hidden_WUD.flatten(0, 1)
        hidden_BTD = flat.index_select(0, batch.position_BT.flatten()).view(*batch.position_BT.shape, -1)
    return hidden_BTD.masked_fill(~batch.mask_BT.unsqueeze(-1), 0)


def _group_parameters(classifier: Classifier) -> dict[str, list[nn.Parameter]]:
    """Partition the parameters that the build left trainable (with LoRA, the adapters and the head)."""
    head, encoder = classifier.head, classifier.encoder
    attention = _candidates(head.attention_parameters()) if isinstance(head, AttendsByLabel) else []
    groups = {"head.attention": attention, "head.classifier": _without(_candidates(head.parameters()), attention)}
    layers = [_candidates(layer.parameters()) for layer in encoder.layers()]
    inside = [parameter for layer in layers for parameter in layer]
    layers[-1] += _without(_candidates(encoder.parameters()), inside)  # final norms belong to the top layer
    for index, parameters in reversed(list(enumerate(layers))):
        groups[f"encoder.{index}"] = parameters
    return {name: parameters for name, parameters in groups.items() if parameters}


def _candidates(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    return [p for p in parameters if p.requires_grad]


def _without(parameters: list[nn.Parameter], others: list[nn.Parameter]) -> list[nn.Parameter]:
    taken = {id(p) for p in others}
    return [p for p in parameters if id(p) not in taken]
