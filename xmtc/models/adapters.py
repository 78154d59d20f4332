"""Low-rank adapters (LoRA, https://arxiv.org/abs/2106.09685) through PEFT."""

import re
import warnings

from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model
from torch import nn

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

    Raises:
        ConfigError: there is no such layer.
    """
    targets = set()
    for name, module in model.named_modules():
        block = _BLOCK.match(name)
        if block and _is_linear(module) and (all_linear or _ATTENTION.search(block["inner"])):
            targets.add(block["inner"])
    if not targets:
        kind = type(model).__name__
        raise ConfigError(f"no linear attention layers found in {kind}: name them in model.encoder.lora.target_modules")
    return sorted(targets)


def add_lora(model: nn.Module, config: LoraConfig) -> PeftModel:
    """Freeze `model` and add trainable adapters to it, in place. The returned wrapper writes PEFT's file layout.

    Raises:
        ConfigError: `target_modules` match nothing in the model.
    """
    named, every = config.target_modules, config.target_modules == "all_linear"
    targets = infer_target_modules(model, all_linear=every) if every or not named else list(named)
    lora = PeftLoraConfig(
        r=config.r,
        lora_alpha=config.alpha,  # pyright: ignore[reportArgumentType]  annotated as int, and a float works
        lora_dropout=config.dropout,
        target_modules=targets,
        fan_in_fan_out=any(_is_transposed(module) for module in model.modules()),
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)
            return get_peft_model(model, lora)  # pyright: ignore[reportArgumentType, reportReturnType]
    except ValueError as error:
        names = sorted({name.rsplit(".", 1)[-1] for name, module in model.named_modules() if _is_linear(module)})
        message = f"model.encoder.lora.target_modules {targets}: not in {type(model).__name__}, which has {names}"
        raise ConfigError(message) from error


def has_adapters(module: nn.Module) -> bool:
    """Whether `module` has a LoRA parameter."""
    return any("lora_" in name for name, _ in module.named_parameters())


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or _is_transposed(module)


def _is_transposed(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D"  # GPT-2's linear layer
