"""The lexical branch: a sparse linear model over the tokens themselves, fused late with the head.

A head on a pretrained backbone knows what words mean, a linear model knows exactly which words a label's few documents
share: they err in different places, so the mean of their logits beats either (docs/benchmarks/planting.md).

Suffixes: B documents, T tokens, V token vocabulary, L labels, S labels asked for.
"""

import warnings
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from xmtc.config.base import config
from xmtc.errors import CheckpointError


@config
class LexicalConfig:
    """One linear support vector machine a label over TF-IDF of the token ids (Babbar & Schölkopf 2017, DiSMEC)."""

    share: Annotated[float, Field(ge=0, le=1)] = 0.6
    """Share of the lexical logit in the fused one: `(1 − share) · head + share · lexical`."""
    c: Annotated[float, Field(gt=0)] = 3.0
    """Inverse strength of the L2 regularisation."""
    negatives: Annotated[int, Field(ge=1)] = 20_000
    """Most training documents beside its own that a label learns from: those most like its own."""
    prune: Annotated[float, Field(ge=0)] = 0.01
    """Weights smaller than this are dropped; what is left is the size of the exported model."""


@dataclass(frozen=True)
class Lexical:
    """A fitted lexical branch.

    Attributes:
        idf_V: float32, inverse document frequency; 0 for special tokens and tokens that train lacks.
        starts: int32 (L + 1,), tokens: int32, values: float32: the weights of the labels, one row after the other.
        bias_L: float32.
        calibration: float32 (2,), scale and offset that make log-odds of margins, fitted on dev.
    """

    idf_V: Tensor
    starts: Tensor
    tokens: Tensor
    values: Tensor
    bias_L: Tensor
    calibration: Tensor

    @property
    def labels(self) -> int:
        """L."""
        return len(self.bias_L)

    def to(self, device: torch.device) -> "Lexical":
        """The same on `device`; itself where it is there already."""
        if self.idf_V.device == device:
            return self
        return replace(self, **{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def of(self, label_ids_S: Tensor) -> "Lexical":
        """The branch of a model that is cut down to these labels, int64 (S,), in their order."""
        starts_S, counts_S = self.starts[label_ids_S], self.starts.diff()[label_ids_S]
        ends_S = counts_S.cumsum(0)
        within = torch.arange(int(counts_S.sum())) - (ends_S - counts_S).repeat_interleave(counts_S)
        taken = starts_S.repeat_interleave(counts_S) + within
        starts = torch.cat([ends_S.new_zeros(1), ends_S]).to(self.starts.dtype)
        rows = {"tokens": self.tokens[taken], "values": self.values[taken], "bias_L": self.bias_L[label_ids_S]}
        return replace(self, starts=starts, **rows)

    def silent(self, label_ids_S: Tensor) -> "Lexical":
        """The branch with a logit of 0, whatever the document, for these labels, which have no weights."""
        scale, offset = self.calibration
        return replace(
            self, bias_L=self.bias_L.index_fill(0, label_ids_S.to(self.bias_L.device), float(-offset / scale))
        )

    def features(self, token_ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """TF-IDF (B, V), float32: (1 + ln count) · idf, rows of unit length."""
        return tfidf(token_ids_BT, mask_BT, self.idf_V)

    def logits(self, token_ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Log-odds of the labels, (B, L), float32.

        Args:
            token_ids_BT: int64.
            mask_BT: bool, False on padding.
        """
        scale, offset = self.calibration
        return (self.margins(self.features(token_ids_BT, mask_BT)) * scale) + offset

    def margins(self, features_BV: Tensor) -> Tensor:
        """⟨w[l], x⟩ + b[l], shape (B, L)."""
        with torch.autocast(features_BV.device.type, enabled=False):
            return (self._weights() @ features_BV.T).T + self.bias_L

    def contributions(self, token_ids_BT: Tensor, mask_BT: Tensor, labels_S: Tensor) -> tuple[Tensor, Tensor]:
        """What each token adds to a logit (B, S, T), and what is there without any token (S,); they sum to the logit.

        Args:
            token_ids_BT: int64.
            mask_BT: bool, False on padding.
            labels_S: int64 label ids.
        """
        scale, offset = self.calibration
        counts_BV = counts(token_ids_BT, mask_BT, len(self.idf_V))
        each_BV = self.features(token_ids_BT, mask_BT) / counts_BV.clamp(min=1)
        each_BT = each_BV.gather(1, token_ids_BT) * mask_BT
        weights_SV = torch.stack([self._row(int(label)) for label in labels_S])
        weights_BST = weights_SV[:, token_ids_BT].transpose(0, 1)
        return scale * each_BT.unsqueeze(1) * weights_BST, scale * self.bias_L[labels_S] + offset

    def save(self, path: Path) -> None:
        """Write a safetensors file."""
        save_file({f.name: getattr(self, f.name).cpu().contiguous() for f in fields(self)}, path)

    @classmethod
    def load(cls, path: Path) -> "Lexical":
        """Read what `save` wrote.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        try:
            return cls(**load_file(path))
        except (OSError, SafetensorError, TypeError) as error:
            raise CheckpointError(f"{path}: not a lexical branch ({error}): copy it, or train it, again") from error

    def _row(self, label: int) -> Tensor:
        row_V = torch.zeros_like(self.idf_V)
        inside = slice(int(self.starts[label]), int(self.starts[label + 1]))
        return row_V.index_copy(0, self.tokens[inside].long(), self.values[inside])

    def _weights(self) -> Tensor:
        with warnings.catch_warnings():  # PyTorch calls its CSR tensors a beta; their products are the fast ones
            warnings.simplefilter("ignore", UserWarning)
            return torch.sparse_csr_tensor(
                self.starts, self.tokens, self.values, (self.labels, len(self.idf_V)), check_invariants=False
            )


def counts(token_ids_BT: Tensor, mask_BT: Tensor, vocabulary: int) -> Tensor:
    """How often each token occurs, (B, V), float32."""
    counts_BV = torch.zeros(len(token_ids_BT), vocabulary, device=token_ids_BT.device)
    return counts_BV.scatter_add_(1, token_ids_BT, mask_BT.float())


def tfidf(token_ids_BT: Tensor, mask_BT: Tensor, idf_V: Tensor) -> Tensor:
    """TF-IDF (B, V) with sublinear term frequency, rows of unit length, float32."""
    counts_BV = counts(token_ids_BT, mask_BT, len(idf_V))
    weighted_BV = torch.where(counts_BV > 0, 1 + counts_BV.clamp(min=1).log(), 0) * idf_V
    return torch.nn.functional.normalize(weighted_BV, dim=1)
