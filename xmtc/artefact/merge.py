"""Fold the adapters of a model into its backbone, so that the backbone is an ordinary one.

Suffixes: W windows, U window tokens, D width.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from xmtc.artefact.export import ENCODER, Finish, ModelParts, add_note, open_model
from xmtc.artefact.info import write_info
from xmtc.artefact.output import SMOKE, replacing
from xmtc.errors import ConfigError
from xmtc.models.encoders.base import ADAPTER, Encoder

_WRITTEN_AGAIN = ("config.json", ENCODER, ADAPTER, SMOKE)


def merge_adapters(model: Path, output: Path, finish: Finish | None = None) -> float:
    """Write a model whose backbone has the LoRA adapters folded in: W + (alpha / r) · B A instead of W.

    The folder `encoder/` of the new model is one that Transformers and other programs load by themselves. The model
    gives the same probabilities up to rounding, takes a little less time, and can no longer be trained further with
    these adapters. Weights in bfloat16 are rounded once more than before.

    Args:
        model: exported model, which does not change.
        output: directory of the new model; see `check_output`.
        finish: see `export_model`.

    Returns:
        The largest change of a hidden state, relative to the largest hidden state, over a window of words.

    Raises:
        CheckpointError: the model is missing or damaged, or a file cannot be written.
        ConfigError: the model has no adapters, its backbone is quantised, or `output` holds something else.
    """
    parts = open_model(model, output)
    encoder = parts.classifier.encoder
    settings = parts.info.model.encoder.backbone
    if encoder.backbone is None or settings is None or settings.lora is None:
        raise ConfigError(
            f"{model}: it has no LoRA adapters, so there is nothing to merge; use the model as it is"
        )
    if settings.quantize is not None:
        raise ConfigError(
            f"{model}: its backbone is quantised ({settings.quantize}), and so few bits cannot hold the sum with the "
            "adapters; train with model.encoder.quantize: null to get a model that can be merged"
        )
    before_WUD = _states(encoder, parts.info.vocab_size)
    encoder.backbone.merge_adapters()
    after_WUD = _states(encoder, parts.info.vocab_size)
    merged_settings = parts.info.model.encoder.with_backbone(
        replace(settings, lora=None)
    )
    merged_model = replace(parts.info.model, encoder=merged_settings)
    _write(
        model,
        output,
        replace(parts, info=replace(parts.info, model=merged_model, weights="")),
        finish,
    )
    change = (after_WUD - before_WUD).abs().max() / before_WUD.abs().max()
    return float(change)


def _states(encoder: Encoder, vocab_size: int) -> Tensor:
    """Compute hidden states of a window whose tokens are spread over the vocabulary."""
    tokens = min(encoder.window, 64)
    ids_WU = torch.linspace(0, vocab_size - 1, tokens, dtype=torch.float32).long()[None]
    with torch.no_grad():
        return encoder(ids_WU, torch.ones_like(ids_WU, dtype=torch.bool)).float()


def _write(
    model: Path, output: Path, merged: ModelParts, finish: Finish | None
) -> None:
    with replacing(output) as folder:
        for path in sorted(model.rglob("*")):
            name = path.relative_to(model)
            if path.is_file() and name.parts[0] not in _WRITTEN_AGAIN:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(
                    path, folder / name
                )  # without its rights: the model may be read-only
        tensors = merged.classifier.encoder.state_dict()
        merged.classifier.encoder.save(folder, tensors, trained=tensors.keys())
        add_note(
            folder / "README.md",
            "the LoRA adapters were folded into the backbone, which this folder holds whole, in `encoder/`.",
        )
        write_info(folder, merged.info)
        if finish is not None:
            finish(folder)
