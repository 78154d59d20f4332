"""Build a Transformers model whose weights are partitioned over the workers, without ever loading it whole."""

import json
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel

from xmtc.distributed.zero3 import Loading
from xmtc.errors import ConfigError

_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


def fetch(name: str) -> Path:
    """Find the folder of a pretrained model, and download it if it is a hub id.

    Raises:
        OSError: the hub has no such model, or does not answer.
    """
    folder = Path(name)
    return folder if folder.is_dir() else Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))


def load_partitioned(model: PreTrainedModel, folder: Path, dtype: torch.dtype, loading: Loading) -> None:
    """Read a model's weights one by one; each worker keeps its share. Collective.

    Args:
        model: model with parameters on the meta device.
        folder: folder with the model's safetensors.
        dtype: type of the weights in memory.
        loading: partitions the weights.

    Raises:
        ConfigError: the folder has no safetensors, or lacks a weight of the model.
    """
    wanted = {name: parameter.shape for name, parameter in model.named_parameters()}
    found: set[str] = set()
    for path in _files(folder):
        for key, shape in _shapes(path).items():
            name = _name(key, model.base_model_prefix, wanted)
            if name is None:
                continue
            if shape != wanted[name]:
                raise ConfigError(
                    f"{path}: the shape of {key} does not match the model's config.json; download the model again"
                )
            owner, _, own_name = name.rpartition(".")
            value = _value(path, key, dtype) if loading.reads else torch.empty(shape, dtype=dtype)
            loading.partition(model.get_submodule(owner), own_name, value)
            found.add(name)
    if lacking := sorted(set(wanted) - found):
        raise ConfigError(f"model.encoder.name: {folder} lacks {len(lacking)} weights, such as {lacking[0]}")


def _files(folder: Path) -> list[Path]:
    if (folder / _INDEX).is_file():
        index = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
        return [folder / name for name in sorted(set(index["weight_map"].values()))]
    if (folder / _SINGLE).is_file():
        return [folder / _SINGLE]
    raise ConfigError(
        f"model.encoder.name: {folder} has no {_SINGLE}: distributed.strategy.stage 3 reads safetensors, which "
        "`save_pretrained` of Transformers writes"
    )


def _name(key: str, prefix: str, wanted: dict[str, torch.Size]) -> str | None:
    """Find the parameter that a tensor of the file belongs to; None for tensors of a head that this model lacks."""
    candidates = (key, key.removeprefix(f"{prefix}."))
    return next((name for name in candidates if name in wanted), None)


def _shapes(path: Path) -> dict[str, torch.Size]:
    with safe_open(path, "pt") as shard:
        return {key: torch.Size(shard.get_slice(key).get_shape()) for key in sorted(shard.keys())}


def _value(path: Path, key: str, dtype: torch.dtype) -> Tensor:
    """Copy a weight. The file is opened for each weight, because pages of an open file stay in memory."""
    with safe_open(path, "pt") as shard:
        return shard.get_tensor(key).to(dtype, copy=True)
