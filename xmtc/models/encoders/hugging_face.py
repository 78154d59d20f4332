"""Any Hugging Face encoder or decoder as a backbone.

Suffixes: W windows, G windows of a micro-group, U window tokens, D width.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModel, BitsAndBytesConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as hf_logging

from xmtc.config.base import config
from xmtc.data.pretrained import resolve_pretrained
from xmtc.errors import ConfigError
from xmtc.models.adapters import LoraConfig, add_lora, has_adapters

# A window of a decoder with 128k positions would make attention over the window the whole cost: longer documents
# are cut in windows, and the label attention joins them again.
LONGEST_DEFAULT_WINDOW = 4096

_BLOCK_LISTS = ("layers", "encoder.layer", "encoder.layers", "h", "transformer.layer", "transformer.layers")
# These number positions from padding_idx + 1 on, so that their tables have that many rows of no use.
_OFFSET_POSITIONS = {
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "mpnet",
    "longformer",
    "roberta-prelayernorm",
}


@config
class HuggingFaceConfig:
    """A Hugging Face encoder (BERT, RoBERTa, DeBERTa, ModernBERT …) or decoder (LLaMA, Mistral, Qwen, Phi …)."""

    kind: Literal["hugging_face"] = "hugging_face"
    """Which encoder."""
    name: str = "packaged:all-MiniLM-L6-v2"
    """Hub id, local folder, or `packaged:<name>`; its tokenizer serves when data.tokenizer is absent."""
    from_config: dict[str, Any] | None = None
    """Random weights of this Transformers configuration (with `model_type`) in place of the pretrained ones."""
    lora: LoraConfig | None = None
    """Train low-rank adapters and freeze the backbone; without it fine-tuning trains the whole backbone."""
    quantize: Literal["nf4", "int8"] | None = None
    """Hold the frozen weights in 4 or 8 bits (bitsandbytes); needs `lora`; not with ZeRO-3."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the stored weights. bfloat16 halves a frozen backbone under LoRA; adapters stay in float32."""
    bidirectional: bool = False
    """Let every token of a decoder see the tokens after it."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """Attention kernel. auto: FlashAttention-2 where installed and usable, otherwise what Transformers prefers."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: per layer, or per micro-group with `window_group`."""
    window: Annotated[int, Field(ge=8)] | None = None
    """Tokens of one window, special tokens included; the model's longest, but at most 4,096, when absent."""
    window_group: Annotated[int, Field(ge=1)] | None = None
    """Windows that run through the backbone at a time; all of the batch when absent. Bounds the activations of long
    documents (with `gradient_checkpointing`, in training too). Not with ZeRO-3: ranks would differ in their number
    of passes."""
    dropout: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Overrides every dropout probability of the backbone."""

    def __post_init__(self) -> None:
        """Refuse combinations that cannot train."""
        if self.quantize and self.lora is None:
            raise ValueError("`quantize` needs `lora`: quantized weights cannot be trained themselves")
        if self.quantize and self.from_config is not None:
            raise ValueError("`quantize` needs pretrained weights, and `from_config` gives random ones")
        if self.from_config is not None and not isinstance(self.from_config.get("model_type"), str):
            raise ValueError("`from_config` needs a `model_type` such as llama or bert")
        if self.attention == "flash_attention_2" and self.dtype != "bfloat16" and not self.quantize:
            raise ValueError("`attention: flash_attention_2` needs `dtype: bfloat16`")

    def build(self, vocab_size: int) -> "HuggingFaceBackbone":
        """The backbone, loaded.

        Args:
            vocab_size: number of token ids of the corpus's tokenizer.

        Raises:
            ConfigError: the model cannot be found, or does not fit these settings or the corpus.
        """
        transformer_config = self._transformer_config(vocab_size)
        window = self._window(transformer_config)
        model = (
            self._random(transformer_config) if self.from_config is not None else self._pretrained(transformer_config)
        )
        if self.bidirectional:
            _make_bidirectional(model)
        if self.gradient_checkpointing and self.window_group is None:
            model.activation_checkpointing_enable({"use_reentrant": False})
        return HuggingFaceBackbone(model, self, window)

    def _transformer_config(self, vocab_size: int) -> PreTrainedConfig:
        if self.from_config is not None:
            loaded = _config_from_mapping(self.from_config, vocab_size)
        else:
            loaded = _load(self.name, AutoConfig.from_pretrained, resolve_pretrained(self.name))
        if loaded.is_encoder_decoder:
            raise ConfigError(f"model.encoder: {loaded.model_type} is an encoder-decoder; use an encoder or a decoder")
        if vocab_size > loaded.vocab_size:
            raise ConfigError(
                f"the corpus's tokenizer has {vocab_size} token ids and the backbone {self.name} only "
                f"{loaded.vocab_size}: prepare the corpus with the backbone's tokenizer"
            )
        loaded.use_cache = False
        for key in [k for k, v in loaded.to_dict().items() if _is_dropout(k, v) and self.dropout is not None]:
            setattr(loaded, key, self.dropout)
        return loaded

    def _window(self, transformer_config: PreTrainedConfig) -> int:
        longest = longest_window(transformer_config)
        if self.window is not None and self.window > longest:
            raise ConfigError(f"model.encoder.window: {self.window} is more than the {longest} positions of the model")
        return self.window or int(min(longest, LONGEST_DEFAULT_WINDOW))

    def _random(self, transformer_config: PreTrainedConfig) -> PreTrainedModel:
        kwargs = _without_pooler(transformer_config) | {"attn_implementation": self._kernel()}
        return _load(self.name, AutoModel.from_config, transformer_config, dtype=self._dtype(), **kwargs)

    def _pretrained(self, transformer_config: PreTrainedConfig) -> PreTrainedModel:
        kwargs: dict[str, Any] = _without_pooler(transformer_config)
        if self.quantize:
            where = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
            kwargs |= {"quantization_config": self._quantization(), "device_map": {"": where}}
        model, info = _load(
            self.name,
            AutoModel.from_pretrained,
            resolve_pretrained(self.name),
            config=transformer_config,
            dtype=self._dtype(),
            attn_implementation=self._kernel(),
            output_loading_info=True,
            **kwargs,
        )
        _keep_trainable(model)
        if info["missing_keys"]:
            missing = sorted(info["missing_keys"])
            raise ConfigError(f"model.encoder.name: {self.name} lacks {len(missing)} weights, such as {missing[0]}")
        return model

    def _quantization(self) -> BitsAndBytesConfig:
        if find_spec("bitsandbytes") is None:
            raise ConfigError("model.encoder.quantize needs bitsandbytes: pip install 'xmtc[quantize]'")
        if self.quantize == "int8":
            return BitsAndBytesConfig(load_in_8bit=True)
        return BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )

    def _dtype(self) -> torch.dtype:
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[self.dtype]

    def _kernel(self) -> str | None:
        if self.attention != "auto":
            return self.attention
        usable = torch.cuda.is_available() and find_spec("flash_attn") is not None and self.dtype == "bfloat16"
        return "flash_attention_2" if usable else None


class HuggingFaceBackbone(nn.Module):
    """A transformer without heads, applied to windows.

    Attributes:
        model: the Transformers model, wrapped by PEFT where there are adapters.
        width: D.
        window: most tokens of one window.
        name: of the pretrained model; None where the weights were drawn at random.
        causal: whether a token sees those before it alone.
    """

    def __init__(self, model: PreTrainedModel, config: HuggingFaceConfig, window: int) -> None:
        super().__init__()
        self.causal = any(getattr(module, "is_causal", False) for module in model.modules())
        self.width: int = model.config.hidden_size
        self.window = window
        self.pad_token_id: int = model.config.pad_token_id or 0
        self.name = config.name if config.from_config is None else None
        self.window_group = config.window_group
        self.checkpoint_groups = config.gradient_checkpointing and config.window_group is not None
        self.model = model if config.lora is None else add_lora(model, config.lora)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        """Hidden states (W, U, D); windows run in micro-groups of `window_group`."""
        # Some models number positions by comparing ids with their own padding id, whatever the collator padded with.
        input_ids_WU = input_ids_WU.masked_fill(~attention_mask_WU, self.pad_token_id)
        group = self.window_group
        if group is None:
            return self._group(input_ids_WU, attention_mask_WU)
        pairs = zip(input_ids_WU.split(group), attention_mask_WU.split(group), strict=True)
        return torch.cat([self._group(ids_GU, mask_GU) for ids_GU, mask_GU in pairs])

    def _group(self, input_ids_GU: Tensor, attention_mask_GU: Tensor) -> Tensor:
        if self.checkpoint_groups and torch.is_grad_enabled():
            return checkpoint(self._run, input_ids_GU, attention_mask_GU, use_reentrant=False)  # pyright: ignore[reportReturnType]
        return self._run(input_ids_GU, attention_mask_GU)

    def _run(self, input_ids_GU: Tensor, attention_mask_GU: Tensor) -> Tensor:
        return self.model(input_ids=input_ids_GU, attention_mask=attention_mask_GU.long()).last_hidden_state

    def hidden_states(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Sequence[Tensor]:
        """States (W, U, D) of the embedding and of every layer; the last as `forward`. All windows run at once."""
        input_ids_WU = input_ids_WU.masked_fill(~attention_mask_WU, self.pad_token_id)
        mask_WU = attention_mask_WU.long()
        return self.model(input_ids=input_ids_WU, attention_mask=mask_WU, output_hidden_states=True).hidden_states

    @property
    def transformer(self) -> PreTrainedModel:
        """The Transformers model, without PEFT's wrapper."""
        if isinstance(self.model, PreTrainedModel):
            return self.model
        base = self.model.get_base_model()
        assert isinstance(base, PreTrainedModel)
        return base

    def layers(self) -> Sequence[nn.Module]:
        """Embeddings and blocks, bottom to top; with LoRA the adapter-bearing blocks only."""
        blocks = _blocks(self.transformer)
        if not isinstance(self.model, PreTrainedModel):
            return [block for block in blocks if has_adapters(block)]
        inside = {id(p) for block in blocks for p in block.parameters()}
        # Final norms stand outside of the blocks and belong to the top: the classifier's groups take care of them.
        below = [
            m for n, m in _leaves(self.transformer) if _is_below(n, m) and not inside & {id(p) for p in m.parameters()}
        ]
        return [nn.ModuleList(below), *blocks]


def longest_window(transformer_config: PreTrainedConfig) -> int:
    """The model's number of positions; without a limit, the longest default window."""
    positions = getattr(transformer_config, "max_position_embeddings", None) or LONGEST_DEFAULT_WINDOW
    if transformer_config.model_type in _OFFSET_POSITIONS:
        positions -= (transformer_config.pad_token_id or 0) + 1
    return positions


def _config_from_mapping(mapping: dict[str, Any], vocab_size: int) -> PreTrainedConfig:
    fields = {"vocab_size": vocab_size} | mapping
    model_type = str(fields.pop("model_type"))
    try:
        with quiet():
            loaded = AutoConfig.for_model(model_type, **fields)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"model.encoder.from_config: {error}") from error
    for role in ("pad", "bos", "eos", "cls", "sep", "unk"):
        # The family's defaults belong to its own vocabulary, which a small one does not reach.
        token_id = getattr(loaded, f"{role}_token_id", None)
        if isinstance(token_id, int) and token_id >= loaded.vocab_size:
            setattr(loaded, f"{role}_token_id", None)
    return loaded


def _load(name: str, load: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a loader of Transformers quietly, never running code from the model's folder."""
    try:
        with quiet():
            return load(*args, trust_remote_code=False, **kwargs)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(
            f"model.encoder.name: cannot load {name!r}: {str(error).splitlines()[0]} If this machine cannot reach the "
            f"hub, run `hf download {name} --local-dir FOLDER` on one that can, and give the copied folder as the name."
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without Transformers' load reports and bars; what matters in them becomes a ConfigError here."""
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()


def _without_pooler(transformer_config: PreTrainedConfig) -> dict[str, bool]:
    """`add_pooling_layer=False` where the architecture takes it: nothing would train a pooler."""
    architecture = AutoModel._model_mapping[type(transformer_config)]
    takes_it = "add_pooling_layer" in inspect.signature(architecture.__init__).parameters
    return {"add_pooling_layer": False} if takes_it else {}


def _is_dropout(key: str, value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and ("dropout" in key or key.endswith("pdrop"))
    )


def _blocks(transformer: nn.Module) -> nn.ModuleList:
    for path in _BLOCK_LISTS:
        try:
            found = transformer.get_submodule(path)
        except AttributeError:
            continue
        if isinstance(found, nn.ModuleList):
            return found
    raise ConfigError(f"model.encoder: {type(transformer).__name__} keeps its layers under no name that is known here")


def _leaves(transformer: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, module) for name, module in transformer.named_modules() if not list(module.children())]


def _is_below(name: str, module: nn.Module) -> bool:
    last = name.rsplit(".", 1)[-1].lower()
    final_norm = ("norm" in last or last == "ln_f") and "embed" not in name
    return not final_norm and any(True for _ in module.parameters())


def _keep_trainable(model: PreTrainedModel) -> None:
    """Switch off bitsandbytes' packing of 4-bit weights for CPUs.

    It repacks the weights in the first forward pass in evaluation mode and never back, and the packed product has no
    backward: training after an evaluation would go on with wrong gradients.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.__dict__["support_avx512bf16_for_cpu"] = False


def _make_bidirectional(model: PreTrainedModel) -> None:
    """Drop the causal mask, and prove it on four tokens.

    Raises:
        ConfigError: the architecture keeps its causal mask.
    """
    model.config.is_causal = False
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.__dict__["is_causal"] = False
    if model.config._attn_implementation == "flash_attention_2":
        return  # takes `is_causal` from the modules, and runs on a GPU only, where the model is not yet
    ids = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5]], device=model.device)
    training = model.training
    model.eval()
    with torch.no_grad():
        first, second = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
    model.train(training)
    if torch.equal(first, second):
        raise ConfigError(
            f"model.encoder.bidirectional: {model.config.model_type} keeps its causal mask; set it to false"
        )
