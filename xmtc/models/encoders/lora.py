"""Low-rank adapters (LoRA, Hu et al. 2021) on a frozen backbone, in PEFT's layout."""

import re
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from peft.tuners.lora.layer import Linear
from torch import Tensor, nn
from typing_extensions import override

from xmtc.errors import ConfigError
from xmtc.models.encoders.backbone_config import LoraConfig

# The part of a parameter's qualified name that marks attention: self_attn, attn, attention.
_ATTENTION = re.compile(r"(^|[._])(attn|attention)([._]|$)")
_BLOCK = re.compile(r"^(?P<stack>.*?)\.(?P<index>\d+)\.(?P<inner>.+)$")


def infer_target_modules(model: nn.Module, *, all_linear: bool = False) -> list[str]:
    """Find the name suffixes of the linear layers in `model`'s blocks that LoRA adapts.

    In every Transformers architecture, attention projections are inside a module called `attention`, `attn` or
    `self_attn` (LLaMA, Mistral, Qwen: q/k/v/o_proj; Phi-3: the fused qkv_proj, o_proj; BERT-like: attention.self.query
    …, attention.output.dense; DeBERTa: query_proj …; ModernBERT: attn.Wqkv, attn.Wo).

    Args:
        model: a Transformers model.
        all_linear: adapt every linear layer of a block, not only those of attention.

    Raises:
        ConfigError: there is no such layer.
    """
    suffixes = set(_linear_layers_of_blocks(model))
    targets = (
        suffixes
        if all_linear
        else {suffix for suffix in suffixes if _ATTENTION.search(suffix)}
    )
    if not targets:
        raise ConfigError(
            f"no linear attention layers found in {type(model).__name__}: name the layers to adapt in "
            "model.encoder.lora.target_modules"
        )
    return sorted(targets)


def _linear_layers_of_blocks(model: nn.Module) -> Iterator[str]:
    """Yield the name of each linear layer within its block, such as `self_attn.q_proj`."""
    for name, module in model.named_modules():
        block = _BLOCK.match(name)
        if block is not None and _is_linear(module):
            yield block["inner"]


def add_lora(model: nn.Module, config: LoraConfig) -> PeftModel:
    """Freeze `model` and add trainable adapters to it, in place. The returned wrapper writes PEFT's file layout.

    Raises:
        ConfigError: `target_modules` match nothing in the model.
    """
    targets = _target_modules(model, config)
    lora = PeftLoraConfig(
        r=config.r,
        lora_alpha=config.alpha,  # pyright: ignore[reportArgumentType]  annotated as int, and a float works
        lora_dropout=config.dropout,
        target_modules=targets,
        fan_in_fan_out=any(_is_transposed(module) for module in model.modules()),
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore",
                message=".*is_gradient_checkpointing.*",
                category=FutureWarning,
            )
            adapted = get_peft_model(model, lora)  # pyright: ignore[reportArgumentType]
    except ValueError as error:
        linear = {
            name.rsplit(".", 1)[-1]
            for name, module in model.named_modules()
            if _is_linear(module)
        }
        raise ConfigError(
            f"model.encoder.lora.target_modules {targets}: not in {type(model).__name__}, which has {sorted(linear)}; "
            "name some of these"
        ) from error
    for module in adapted.modules():
        if (
            type(module) is Linear
        ):  # not a quantized layer, whose forward pass is another one
            module.__class__ = _AdaptedLinear
    return adapted  # pyright: ignore[reportReturnType]


def _target_modules(model: nn.Module, config: LoraConfig) -> list[str]:
    if config.target_modules == "all_linear":
        return infer_target_modules(model, all_linear=True)
    if not config.target_modules:
        return infer_target_modules(model)
    return list(config.target_modules)


class _AdaptedLinear(Linear):
    """PEFT's layer, in fewer passes over memory.

    Autocast's input gets no copy in float32, and the small product is scaled instead of the large one.
    """

    @override
    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters or self.merged:
            return super().forward(x, *args, **kwargs)
        frozen = self.base_layer(x, *args, **kwargs)
        (name,) = self.active_adapters
        if not torch.is_autocast_enabled(x.device.type):
            x = x.to(next(self.lora_A[name].parameters()).dtype)
        low_rank = self.lora_A[name](self.lora_dropout[name](x))
        low_rank = low_rank * self.scaling[name]
        return (frozen + self.lora_B[name](low_rank)).to(frozen.dtype)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or _is_transposed(module)


def _is_transposed(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D"  # GPT-2's linear layer
