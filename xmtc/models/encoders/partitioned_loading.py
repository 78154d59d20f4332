"""Build a Transformers model whose weights are partitioned over the workers, without ever loading it whole."""

import json
from pathlib import Path
from typing import Literal

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel

from xmtc.data.pretrained import PretrainedSource
from xmtc.distributed.zero3 import Loading
from xmtc.errors import ConfigError

_INDEX = "model.safetensors.index.json"  # of weights in several files
_SINGLE = "model.safetensors"


def fetch_folder(
    source: PretrainedSource, *, trust_remote_code: Literal[False] = False
) -> Path:
    """Find the folder of a pretrained model, and download it if it is on the Hub.

    Args:
        source: where the model is.
        trust_remote_code: what all loaders of models take; nothing here runs code.

    Raises:
        OSError: the hub has no such model, or does not answer.
    """
    del trust_remote_code
    if source.folder is not None:
        return source.folder
    patterns = ["*.json", "*.safetensors"]
    return Path(
        snapshot_download(
            source.location, revision=source.revision, allow_patterns=patterns
        )
    )


def load_partitioned(
    model: PreTrainedModel, folder: Path, dtype: torch.dtype, loading: Loading
) -> None:
    """Read a model's weights one by one; each worker keeps its share. Collective.

    Args:
        model: model with parameters on the meta device.
        folder: folder with the model's safetensors.
        dtype: type of the weights in memory.
        loading: partitions the weights.

    Raises:
        ConfigError: the folder has no safetensors, or lacks a weight of the model.
    """
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    loaded: set[str] = set()
    for path in _files(folder):
        for key, shape in _shapes(path).items():
            name = _parameter_name(key, model.base_model_prefix, shapes)
            if name is None:
                continue
            if shape != shapes[name]:
                raise ConfigError(
                    f"{path}: {key} has shape {tuple(shape)}, but the model's config.json gives {tuple(shapes[name])}; "
                    "download the model again"
                )
            value = (
                _read_weight(path, key, dtype)
                if loading.reads
                else torch.empty(shape, dtype=dtype)
            )
            owner, _, own_name = name.rpartition(".")
            loading.partition(model.get_submodule(owner), own_name, value)
            loaded.add(name)
    absent = sorted(shapes.keys() - loaded)
    if absent:
        raise ConfigError(
            f"model.encoder.name: {folder} lacks {len(absent)} weights, such as {absent[0]}; download the model again"
        )


def _files(folder: Path) -> list[Path]:
    index_file = folder / _INDEX
    if index_file.is_file():
        index = json.loads(index_file.read_text(encoding="utf-8"))
        return [folder / name for name in sorted(set(index["weight_map"].values()))]
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    raise ConfigError(
        f"model.encoder.name: {folder} has no {_SINGLE}: distributed.strategy.stage 3 reads safetensors, which "
        "`save_pretrained` of Transformers writes"
    )


def _parameter_name(key: str, prefix: str, shapes: dict[str, torch.Size]) -> str | None:
    """Find the parameter that a tensor of the file belongs to; None for tensors of a head that this model lacks."""
    for name in (key, key.removeprefix(f"{prefix}.")):
        if name in shapes:
            return name
    return None


def _shapes(path: Path) -> dict[str, torch.Size]:
    with safe_open(path, "pt") as file:
        return {
            key: torch.Size(file.get_slice(key).get_shape())
            for key in sorted(file.keys())
        }


def _read_weight(path: Path, key: str, dtype: torch.dtype) -> Tensor:
    """Copy a weight. The file is opened for each weight, because pages of an open file stay in memory."""
    with safe_open(path, "pt") as file:
        return file.get_tensor(key).to(dtype, copy=True)
