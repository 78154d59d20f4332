"""Load Transformers models, pretrained or with random weights. Code in a model's folder is never run."""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import AutoConfig, AutoModel, BitsAndBytesConfig, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as hf_logging

from xmtc.data.pretrained import resolve_pretrained
from xmtc.distributed.zero3 import BlockGathering, Loading
from xmtc.errors import ConfigError
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.encoders.partitioned_loading import fetch, load_partitioned

# A window of a decoder with 128k positions would make attention over the window the whole cost: longer documents
# are cut in windows, and the label attention joins them again.
LONGEST_DEFAULT_WINDOW = 4096

# These count positions from padding_idx + 1, so that many rows of their tables are unused.
_OFFSET_POSITIONS = re.compile(
    "(xlm-)?roberta(-xl|-prelayernorm)?|camembert|mpnet|longformer|data2vec-text|esm|ibert|luke|xmod"
)

# Where a model has the list of its layers.
_STACKS, _LISTS = ("", "encoder.", "transformer.", "decoder."), ("layers", "layer", "h", "albert_layer_groups")


def load_transformer(settings: HuggingFaceConfig, vocab_size: int) -> tuple[PreTrainedModel, int]:
    """Load the Transformers model, and find the maximum tokens per window; see `HuggingFaceConfig.build`.

    Turns cuDNN's attention off in this process. PyTorch prefers it on Hopper, where it builds a plan for every shape of
    a batch (docs/benchmarks/gpu.md).
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    transformer_config = _transformer_config(settings, vocab_size)
    window = _window(settings, transformer_config)
    if settings.from_config is not None:
        model = _random(settings, transformer_config)
    elif (loading := Loading.current()) is not None and settings.lora is not None:
        model = _partitioned(settings, transformer_config, loading)
    else:
        model = _pretrained(settings, transformer_config)
    if settings.bidirectional:
        _make_bidirectional(model)
    if settings.gradient_checkpointing and not model.supports_gradient_checkpointing:
        raise ConfigError(f"model.encoder.gradient_checkpointing: {type(model).__name__} has none; set it to 0")
    if settings.gradient_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=settings.gradient_checkpointing)
    return model, window


def _transformer_config(settings: HuggingFaceConfig, vocab_size: int) -> PreTrainedConfig:
    if settings.from_config is not None:
        loaded = _config_from_mapping(settings.from_config, vocab_size)
    else:
        loaded = _load(settings.name, AutoConfig.from_pretrained, resolve_pretrained(settings.name))
    if loaded.is_encoder_decoder:
        raise ConfigError(f"model.encoder: {loaded.model_type} is an encoder-decoder; use an encoder or a decoder")
    if not hasattr(loaded, "vocab_size"):
        raise ConfigError(f"model.encoder: {loaded.model_type} is not a model of text alone; use one that is")
    if vocab_size > loaded.vocab_size:
        sizes = f"the tokenizer has {vocab_size} token ids and the backbone {settings.name} only {loaded.vocab_size}"
        cure = f"if it is the backbone's own, save the backbone again after `resize_token_embeddings({vocab_size})`"
        raise ConfigError(f"model.encoder: {sizes}: set data.tokenizer=null, or, {cure}")
    loaded.use_cache = False
    loaded.__dict__.setdefault("pad_token_id", None)  # CodeGen and others lack it
    for key in [k for k, v in loaded.to_dict().items() if _is_dropout(k, v) and settings.dropout is not None]:
        setattr(loaded, key, settings.dropout)
    return loaded


def _window(settings: HuggingFaceConfig, transformer_config: PreTrainedConfig) -> int:
    longest = longest_window(transformer_config)
    if settings.window is not None and settings.window > longest:
        raise ConfigError(f"model.encoder.window: {settings.window} is more than the {longest} positions of the model")
    return settings.window or int(min(longest, LONGEST_DEFAULT_WINDOW))


def _random(settings: HuggingFaceConfig, transformer_config: PreTrainedConfig) -> PreTrainedModel:
    return _load(settings.name, AutoModel.from_config, transformer_config, **_arguments(settings, transformer_config))


def _pretrained(settings: HuggingFaceConfig, transformer_config: PreTrainedConfig) -> PreTrainedModel:
    kwargs = _arguments(settings, transformer_config) | {"config": transformer_config, "ignore_mismatched_sizes": True}
    if settings.quantize:
        where = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
        kwargs |= {"quantization_config": _quantization(settings), "device_map": {"": where}}
    path = resolve_pretrained(settings.name)
    model, info = _load(settings.name, AutoModel.from_pretrained, path, output_loading_info=True, **kwargs)
    _keep_trainable(model)
    if wrong := sorted(info["missing_keys"] | {name for name, *_ in info["mismatched_keys"]}):
        what = f"{len(wrong)} weights in the shapes of its config.json, such as {wrong[0]}"
        raise ConfigError(f"model.encoder.name: {settings.name} lacks {what}")
    return model


def _partitioned(settings: HuggingFaceConfig, shape: PreTrainedConfig, loading: Loading) -> PreTrainedModel:
    """Load frozen pretrained weights, partitioned over the workers."""
    folder = _load(settings.name, lambda name, **_: fetch(name), resolve_pretrained(settings.name))
    with init_empty_weights(include_buffers=False):  # buffers have values that no file holds
        model = _random(settings, shape)
    load_partitioned(model, folder, getattr(torch, settings.dtype), loading)
    BlockGathering(model, blocks_of(model))
    return model.eval()


def _quantization(settings: HuggingFaceConfig) -> BitsAndBytesConfig:
    if find_spec("bitsandbytes") is None:
        raise ConfigError("model.encoder.quantize needs bitsandbytes: pip install 'xmtc[quantize]'")
    if settings.quantize == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    nested = {"bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": torch.bfloat16}
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", **nested)


def _kernel(settings: HuggingFaceConfig) -> str | None:
    if settings.attention != "auto":
        return settings.attention
    usable = torch.cuda.is_available() and find_spec("flash_attn") is not None and settings.dtype == "bfloat16"
    return "flash_attention_2" if usable else None


def longest_window(transformer_config: PreTrainedConfig) -> int:
    """Return the model's number of positions; if it has no limit, the longest default window."""
    positions = max(0, getattr(transformer_config, "max_position_embeddings", None) or 0)  # XLNet has -1
    positions = positions or LONGEST_DEFAULT_WINDOW
    if _OFFSET_POSITIONS.fullmatch(transformer_config.model_type):
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
        # The defaults of an architecture are ids of its original vocabulary, which a small vocabulary may not have.
        token_id = getattr(loaded, f"{role}_token_id", None)
        if isinstance(token_id, int) and token_id >= loaded.vocab_size:
            setattr(loaded, f"{role}_token_id", None)
    return loaded


def _load(name: str, load: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a loader of Transformers without its output, and without running code from the model's folder."""
    try:
        with quiet():
            return load(*args, trust_remote_code=False, **kwargs)
    except Exception as error:  # the library has no error class
        problem = f"cannot load {name!r}: {_first_line(error)} {_remedy(Path(name))}"
        raise ConfigError(f"model.encoder.name: {problem}") from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _remedy(folder: Path) -> str:
    if (folder / "adapter_config.json").is_file():
        return "The folder holds PEFT adapters: merge them into their model (`merge_and_unload`), and save that."
    if folder.is_dir():
        return "If a file is missing or damaged, copy the whole folder of the model again."
    copy = f"run `hf download {folder} --local-dir FOLDER` on one that can, and give the copied folder as the name."
    return f"If this machine cannot reach the hub, {copy}"


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Transformers' load reports and progress bars; xmtc raises a ConfigError for what matters."""
    verbosity, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)
        if bars:
            hf_logging.enable_progress_bar()


def _arguments(settings: HuggingFaceConfig, transformer_config: PreTrainedConfig) -> dict[str, Any]:
    """Return what both loaders take. Nothing would train a pooler, so the architecture leaves it out if it can."""
    given = {"attn_implementation": _kernel(settings), "dtype": getattr(torch, settings.dtype)}
    architecture = AutoModel._model_mapping[type(transformer_config)]
    takes_it = "add_pooling_layer" in inspect.signature(architecture.__init__).parameters
    return given | ({"add_pooling_layer": False} if takes_it else {})


def _is_dropout(key: str, value: object) -> bool:
    return type(value) in (int, float) and ("dropout" in key or key.endswith("pdrop"))  # not bool


def _keep_trainable(model: PreTrainedModel) -> None:
    """Switch off bitsandbytes' packing of 4-bit weights for CPUs.

    It repacks the weights in the first forward pass in evaluation mode and never unpacks them. The packed product has
    no backward pass, so training after an evaluation would continue with wrong gradients.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.__dict__["support_avx512bf16_for_cpu"] = False


def _make_bidirectional(model: PreTrainedModel) -> None:
    """Remove the causal mask; `is_causal` verifies this."""
    model.config.is_causal = False
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.__dict__["is_causal"] = False


def is_causal(model: PreTrainedModel, settings: HuggingFaceConfig) -> bool:
    """Find out whether a token sees only the tokens before it, from three texts of up to four tokens.

    A model without weights, with weights in 4 or 8 bits, or with a kernel for GPUs is believed what it declares.
    BigBird's first short text switches off its sparse attention, whose blocks are drawn at random, for good.

    Raises:
        ConfigError: the architecture keeps its causal mask in spite of `bidirectional`, cannot read a text, or reads
            it differently beside padding.
    """
    kind, declared = model.config.model_type, any(getattr(module, "is_causal", False) for module in model.modules())
    fused = model.config._attn_implementation == "flash_attention_2"  # only on a GPU, where the model is not yet
    if fused or any(p.is_meta for p in model.parameters()) or (settings.quantize and not settings.bidirectional):
        return declared
    ids_WU = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, model.config.pad_token_id or 0]], device=model.device)
    mask_WU = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]], device=model.device)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            states_WUD = model(input_ids=ids_WU, attention_mask=mask_WU).last_hidden_state
            alone_UD = model(input_ids=ids_WU[2:, :3], attention_mask=mask_WU[2:, :3]).last_hidden_state[0]
        difference = (states_WUD[2, :3] - alone_UD).norm() / alone_UD.norm()
    except Exception as error:  # the library has no error class
        problem = f"{kind} cannot read a text of three tokens in {settings.dtype} ({_first_line(error)})"
        other = "architecture" if settings.dtype == "float32" else "dtype or architecture"
        raise ConfigError(f"model.encoder: {problem}; use another {other}") from error
    model.train(training)
    if difference > torch.finfo(states_WUD.dtype).eps ** 0.5:
        raise ConfigError(f"model.encoder: {kind} reads a text differently beside padding; use another architecture")
    if states_WUD.shape[2] != model.config.hidden_size:
        raise ConfigError(f"model.encoder: {kind} has states of another width than its hidden_size; use another model")
    causal = torch.equal(states_WUD[0, 0], states_WUD[1, 0])
    if causal and settings.bidirectional:
        raise ConfigError(f"model.encoder.bidirectional: {kind} keeps its causal mask; set it to false")
    return causal


def blocks_of(transformer: nn.Module) -> nn.ModuleList:
    """Find the layers of a model, from the bottom to the top.

    Raises:
        ConfigError: the architecture uses an unknown name for them.
    """
    modules = dict(transformer.named_modules())
    for path in map("".join, product(_STACKS, _LISTS)):
        if isinstance(found := modules.get(path), nn.ModuleList):
            return found
    kind = type(transformer).__name__
    raise ConfigError(f"model.encoder: cannot find the layers of {kind}; use another architecture")
