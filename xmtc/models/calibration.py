"""Calibration: a scale and an offset per label, after which the sigmoid of a logit is a calibrated probability.

Suffixes: B documents, L labels, S shortlisted labels.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from xmtc.errors import CheckpointError
from xmtc.files import reading


@dataclass(frozen=True)
class Calibration:
    """calibrated logit = scale · logit + offset.

    Scales are positive, so the ranking of documents by a label does not change; the ranking of labels may.

    Attributes:
        scale_L: float32 (L,), one over the temperature.
        offset_L: float32 (L,).
    """

    scale_L: Tensor
    offset_L: Tensor

    def __post_init__(self) -> None:
        """Raise ValueError if the shapes differ, or a scale is not positive."""
        if self.scale_L.shape != self.offset_L.shape or self.scale_L.ndim != 1:
            raise ValueError(
                f"scales {tuple(self.scale_L.shape)} and offsets {tuple(self.offset_L.shape)}: not (L,)"
            )
        if not (self.scale_L > 0).all() or not self.offset_L.isfinite().all():
            raise ValueError("scales must be positive, and offsets finite")

    def __call__(self, logits: Tensor, shortlist: Tensor | None = None) -> Tensor:
        """Calibrate logits, float32.

        Args:
            logits: (B, L), or (B, S) for the label ids in `shortlist`.
            shortlist: int64 (S,) or (B, S); padding, -1, keeps its logit.
        """
        scale_L = self.scale_L.to(logits.device)
        offset_L = self.offset_L.to(logits.device)
        if shortlist is None:
            return torch.addcmul(offset_L, logits.float(), scale_L)
        calibrated = torch.addcmul(
            offset_L[shortlist], logits.float(), scale_L[shortlist]
        )
        return torch.where(shortlist < 0, logits.float(), calibrated)

    def of(self, label_ids: Tensor) -> "Calibration":
        """Select the calibration of these labels."""
        return Calibration(self.scale_L[label_ids], self.offset_L[label_ids])

    def save(self, path: Path) -> None:
        """Write as safetensors."""
        tensors = {
            "scale": self.scale_L.float().contiguous(),
            "offset": self.offset_L.float().contiguous(),
        }
        save_file(tensors, path)

    @classmethod
    def load(cls, path: Path, labels: int) -> "Calibration":
        """Read a saved calibration.

        Raises:
            CheckpointError: the file is damaged, or belongs to a model with another number of labels.
        """
        with reading(path, CheckpointError, "copy it again, or export the model again"):
            tensors = load_file(path)
            calibration = cls(tensors["scale"], tensors["offset"])
        calibrated_labels = len(calibration.scale_L)
        if calibrated_labels != labels:
            raise CheckpointError(
                f"{path}: calibrates {calibrated_labels} labels, but the model has {labels}; copy the whole model "
                "folder again"
            )
        return calibration
