"""A Hugging Face backbone's files in an exported model: `adapter/` in PEFT's layout, `encoder/` in Transformers'."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import save_file
from torch import Tensor

from xmtc.errors import CheckpointError
from xmtc.models.encoders.base import FOLDER
from xmtc.models.encoders.pretrained import quiet
from xmtc.models.module_files import part, read_weights, whole

if TYPE_CHECKING:
    from xmtc.models.encoders.hugging_face import HuggingFaceBackbone

_ADAPTER = "adapter/adapter_model.safetensors"


def save_backbone(
    backbone: "HuggingFaceBackbone", model: Path, tensors: Mapping[str, Tensor], trained: Collection[str]
) -> bool:
    """Write what the export needs of a backbone; False if its identity is enough."""
    adapted = isinstance(backbone.model, PeftModel)
    if isinstance(backbone.model, PeftModel):
        _save_adapter(model / _ADAPTER, backbone.model, tensors, backbone.name)
    changed = any("lora_" not in name for name in trained)
    if not changed and backbone.name is not None:
        return False
    plain = {name: tensor for name, tensor in tensors.items() if "lora_" not in name}
    weights = whole(part(plain, "model.base_model.model." if adapted else "model."), "encoder.model.")
    weights = {name.replace(".base_layer.", "."): tensor for name, tensor in weights.items()}
    with quiet():
        backbone.transformer.save_pretrained(model / FOLDER, state_dict=weights)
    return True


def load_adapter(backbone: "HuggingFaceBackbone", model: Path) -> None:
    """Load the adapters that `save_backbone` wrote, if the backbone has any.

    Raises:
        CheckpointError: the file is missing or damaged, or holds other adapters.
    """
    if not isinstance(backbone.model, PeftModel):
        return
    path = model / _ADAPTER
    adapter = read_weights(path)
    present = get_peft_model_state_dict(backbone.model, save_embedding_layers=False)
    if {name: t.shape for name, t in present.items()} != {name: t.shape for name, t in adapter.items()}:
        raise CheckpointError(f"{path}: its adapters do not match config.json; copy the whole model folder again")
    set_peft_model_state_dict(backbone.model, adapter)


def _save_adapter(path: Path, model: PeftModel, tensors: Mapping[str, Tensor], base: str | None) -> None:
    lora = {name: tensor for name, tensor in tensors.items() if "lora_" in name}
    adapter = get_peft_model_state_dict(
        model, state_dict=whole(part(lora, "model."), "encoder.model."), save_embedding_layers=False
    )
    path.parent.mkdir()
    save_file(adapter, path, metadata={"format": "pt"})
    settings = replace(model.peft_config["default"], base_model_name_or_path=base, inference_mode=True)
    settings.save_pretrained(str(path.parent))
