"""Any Hugging Face encoder or decoder as a backbone.

Suffixes: W windows, U window tokens, D width.
"""

import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftLoraConfig
from peft import PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.lora.layer import Linear
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from typing_extensions import override

from xmtc.errors import CheckpointError, ConfigError
from xmtc.models.encoders.backbone_config import HuggingFaceConfig, LoraConfig
from xmtc.models.encoders.base import FOLDER, Encoder
from xmtc.models.encoders.pretrained import blocks_of, is_causal, quiet
from xmtc.models.module_files import part, read_weights, whole

_PACKED = ("llama", "mistral", "qwen2", "qwen3", "phi3", "phi", "gpt2")  # of which a test knows that they can
_ADAPTER = "adapter/adapter_model.safetensors"  # in PEFT's layout; `encoder/` has Transformers'


class HuggingFaceBackbone(Encoder):
    """A transformer without heads, applied to windows.

    Attributes:
        model: the Transformers model, wrapped by PEFT if it has adapters.
        name: name of the pretrained model; None if the weights are random.
        causal: whether a token sees only the tokens before it.
        packs: whether padding is left out, which needs FlashAttention: other kernels get a dense mask of the whole row.
    """

    def __init__(self, model: PreTrainedModel, settings: HuggingFaceConfig, window: int) -> None:
        super().__init__(model.config.hidden_size, window)
        self.causal = is_causal(model, settings)
        self.pad_token_id: int = model.config.pad_token_id or 0
        self.name = settings.name if settings.from_config is None else None
        fused = model.config._attn_implementation == "flash_attention_2"
        self.packs = fused and self.causal and model.config.model_type in _PACKED
        self.model = model if settings.lora is None else add_lora(model, settings.lora)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute hidden states (W, U, D)."""
        if self.packs:
            return self._packed(input_ids_WU, attention_mask_WU)
        return self.model(**self._inputs(input_ids_WU, attention_mask_WU)).last_hidden_state

    def _inputs(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> dict[str, Tensor]:
        # Some models compute positions by comparing ids with their padding id, which may differ from the collator's.
        input_ids_WU = input_ids_WU.masked_fill(~attention_mask_WU, self.pad_token_id)
        return {"input_ids": input_ids_WU, "attention_mask": attention_mask_WU.long()}

    def _packed(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Compute the same from one row of all windows; without ends, every layer would find the padding again."""
        ends_W = nn.functional.pad(attention_mask_WU.sum(1).cumsum(0), (1, 0)).int()
        longest, places_P = attention_mask_WU.shape[1], attention_mask_WU.flatten().nonzero().squeeze(1)
        states_1PD = self.model(
            input_ids=input_ids_WU.flatten()[places_P][None],
            position_ids=(attention_mask_WU.cumsum(1) - 1).flatten()[places_P][None],
            use_cache=False,  # with a cache, Transformers takes the row for one text
            cu_seq_lens_q=ends_W,
            cu_seq_lens_k=ends_W,
            max_length_q=longest,
            max_length_k=longest,
        ).last_hidden_state
        padded_XD = states_1PD.new_zeros(attention_mask_WU.numel(), self.width)
        return padded_XD.index_copy(0, places_P, states_1PD[0]).view(*attention_mask_WU.shape, -1)

    def hidden_states(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Sequence[Tensor]:
        """Compute states (W, U, D) of embedding and layers, the last equal `forward`."""
        inputs = self._inputs(input_ids_WU, attention_mask_WU)
        return self.model(**inputs, output_hidden_states=True).hidden_states

    @property
    def backbone(self) -> "HuggingFaceBackbone":
        """Itself."""
        return self

    @property
    @override
    def first_token_is_blind(self) -> bool:
        """True for a decoder."""
        return self.causal

    @property
    def transformer(self) -> PreTrainedModel:
        """The Transformers model, without PEFT's wrapper."""
        base = self.model if isinstance(self.model, PreTrainedModel) else self.model.get_base_model()
        assert isinstance(base, PreTrainedModel)
        return base

    @override
    def layers(self) -> Sequence[nn.Module]:
        """Embeddings and blocks; with LoRA, only blocks with adapters."""
        blocks = blocks_of(self.transformer)
        if not isinstance(self.model, PreTrainedModel):
            return [block for block in blocks if any("lora_" in name for name, _ in block.named_parameters())]
        inside = {id(p) for block in blocks for p in block.parameters()}
        # Final norms are outside the blocks; the classifier's groups assign them to the top layer.
        leaves = [(n, m) for n, m in self.transformer.named_modules() if not list(m.children()) and _is_below(n, m)]
        return [nn.ModuleList(m for _, m in leaves if not inside & {id(p) for p in m.parameters()}), *blocks]

    @override
    def save(self, model: Path, tensors: Mapping[str, Tensor], trained: Collection[str]) -> bool:
        """Adapters, and the backbone unless it is an unchanged pretrained model."""
        adapted = isinstance(self.model, PeftModel)
        if isinstance(self.model, PeftModel):
            _save_adapter(model / _ADAPTER, self.model, tensors, self.name)
        changed = any("lora_" not in name for name in trained)
        if not changed and self.name is not None:
            return False
        plain = {name: tensor for name, tensor in tensors.items() if "lora_" not in name}
        weights = whole(part(plain, "model.base_model.model." if adapted else "model."), "encoder.model.")
        weights = {name.replace(".base_layer.", "."): tensor for name, tensor in weights.items()}
        with quiet():
            self.transformer.save_pretrained(model / FOLDER, state_dict=weights)
        return True

    @override
    def load(self, model: Path) -> None:
        """Adapters; the backbone was loaded when it was built."""
        if not isinstance(self.model, PeftModel):
            return
        path = model / _ADAPTER
        adapter = read_weights(path)
        present = get_peft_model_state_dict(self.model, save_embedding_layers=False)
        if {name: t.shape for name, t in present.items()} != {name: t.shape for name, t in adapter.items()}:
            raise CheckpointError(f"{path}: its adapters do not match config.json; copy the whole model folder again")
        set_peft_model_state_dict(self.model, adapter)


def _save_adapter(path: Path, model: PeftModel, tensors: Mapping[str, Tensor], base: str | None) -> None:
    lora = {name: tensor for name, tensor in tensors.items() if "lora_" in name}
    state = whole(part(lora, "model."), "encoder.model.")
    adapter = get_peft_model_state_dict(model, state_dict=state, save_embedding_layers=False)
    path.parent.mkdir()
    save_file(adapter, path, metadata={"format": "pt"})
    settings = replace(model.peft_config["default"], base_model_name_or_path=base, inference_mode=True)
    settings.save_pretrained(str(path.parent))


def _is_below(name: str, module: nn.Module) -> bool:
    last = name.rsplit(".", 1)[-1].lower()
    final_norm = ("norm" in last or last == "ln_f") and "embed" not in name
    return not final_norm and any(True for _ in module.parameters())


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
    blocks = (_BLOCK.match(name) for name, module in model.named_modules() if _is_linear(module))
    targets = {b["inner"] for b in blocks if b and (all_linear or _ATTENTION.search(b["inner"]))}
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
            adapted = get_peft_model(model, lora)  # pyright: ignore[reportArgumentType]
    except ValueError as error:
        names = sorted({name.rsplit(".", 1)[-1] for name, module in model.named_modules() if _is_linear(module)})
        message = f"model.encoder.lora.target_modules {targets}: not in {type(model).__name__}, which has {names}"
        raise ConfigError(message) from error
    for module in adapted.modules():
        if type(module) is Linear:  # not a quantized layer, whose forward pass is another one
            module.__class__ = _AdaptedLinear
    return adapted  # pyright: ignore[reportReturnType]


class _AdaptedLinear(Linear):
    """PEFT's layer, in fewer passes over memory: autocast's input gets no copy in fp32, and the small product is scaled
    instead of the large one.
    """

    @override
    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.disable_adapters or self.merged:
            return super().forward(x, *args, **kwargs)
        frozen = self.base_layer(x, *args, **kwargs)
        (name,) = self.active_adapters
        if not torch.is_autocast_enabled(x.device.type):
            x = x.to(next(self.lora_A[name].parameters()).dtype)
        low_rank = self.lora_A[name](self.lora_dropout[name](x)) * self.scaling[name]
        return (frozen + self.lora_B[name](low_rank)).to(frozen.dtype)


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or _is_transposed(module)


def _is_transposed(module: nn.Module) -> bool:
    return type(module).__name__ == "Conv1D"  # GPT-2's linear layer
