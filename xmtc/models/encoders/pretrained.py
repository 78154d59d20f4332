"""Load Transformers models, pretrained or with random weights. Code in a model's folder is never run."""

import inspect
from importlib.util import find_spec
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    BitsAndBytesConfig,
    GgufConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from xmtc.data.pretrained import check_published, pretrained_source
from xmtc.distributed.zero3 import BlockGathering, Loading
from xmtc.errors import ConfigError
from xmtc.models.encoders.backbone_config import HuggingFaceConfig
from xmtc.models.encoders.causality import make_bidirectional
from xmtc.models.encoders.partitioned_loading import fetch_folder, load_partitioned
from xmtc.models.encoders.settings import MOST_LAYERS
from xmtc.models.encoders.transformers_calls import load_quietly, quiet

# A window of a decoder with 128k positions would make attention over the window the whole cost: longer documents
# are cut in windows, and the label attention joins them again.
LONGEST_DEFAULT_WINDOW = 4096

# These count positions from padding_idx + 1, so that as many rows of their tables are never used.
_OFFSET_POSITIONS = {
    "camembert",
    "data2vec-text",
    "esm",
    "ibert",
    "longformer",
    "luke",
    "mpnet",
    "roberta",
    "roberta-prelayernorm",
    "xlm-roberta",
    "xlm-roberta-xl",
    "xmod",
}

# Where the architectures have the list of their layers; the first that exists is taken.
_BLOCK_LISTS = (
    "layers",
    "layer",
    "h",
    "encoder.layers",
    "encoder.layer",
    "encoder.albert_layer_groups",
    "transformer.layers",
    "transformer.layer",
    "decoder.layers",
)

# Ids that an architecture's configuration sets by default, for the vocabulary that it was published with.
_SPECIAL_TOKENS = ("pad", "bos", "eos", "cls", "sep", "unk")

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_transformer(
    settings: HuggingFaceConfig, vocab_size: int
) -> tuple[PreTrainedModel, int]:
    """Load the Transformers model, and find the maximum number of tokens per window.

    Turns cuDNN's attention off in this process. PyTorch prefers it on Hopper, where it builds a plan for every shape of
    a batch (docs/benchmarks/gpu.md).

    Args:
        settings: which model, and how it is stored.
        vocab_size: number of token ids of the corpus's tokenizer.

    Raises:
        ConfigError: the model cannot be found, or does not fit these settings or the corpus.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    transformer_config = _transformer_config(settings, vocab_size)
    window = _window(settings, transformer_config)
    loading = Loading.current()
    if settings.from_config is not None:
        model = _random(settings, transformer_config)
    elif loading is not None and settings.lora is not None:
        model = _partitioned(settings, transformer_config, loading)
    else:
        model = _pretrained(settings, transformer_config)
    if settings.bidirectional:
        make_bidirectional(model)
    if settings.gradient_checkpointing:
        _recompute_activations(model, settings.gradient_checkpointing)
    return model, window


def read_pretrained_config(name: str) -> PreTrainedConfig:
    """Read the Transformers configuration of a pretrained model.

    Args:
        name: see `xmtc.data.pretrained.pretrained_source`.

    Raises:
        ConfigError: it cannot be found or read.
    """
    source = pretrained_source(name)
    return load_quietly(
        name, AutoConfig.from_pretrained, source.location, **source.options
    )


def _transformer_config(
    settings: HuggingFaceConfig, vocab_size: int
) -> PreTrainedConfig:
    if settings.from_config is not None:
        loaded = _config_from_mapping(settings.from_config, vocab_size)
    else:
        loaded = read_pretrained_config(settings.name)
    if loaded.is_encoder_decoder:
        raise ConfigError(
            f"model.encoder: {loaded.model_type} is an encoder-decoder; use an encoder or a decoder"
        )
    if not hasattr(loaded, "vocab_size"):
        raise ConfigError(
            f"model.encoder: {loaded.model_type} is not a model of text alone; use one that is"
        )
    layers = getattr(loaded, "num_hidden_layers", 0)
    if not isinstance(layers, int) or layers > MOST_LAYERS:
        raise ConfigError(
            f"model.encoder: num_hidden_layers is {layers!r}, and must be a number up to {MOST_LAYERS:,}: copy the "
            f"config.json of {settings.name} again"
        )
    if vocab_size > loaded.vocab_size:
        raise ConfigError(
            f"model.encoder: the tokenizer has {vocab_size} token ids and the backbone {settings.name} only "
            f"{loaded.vocab_size}: set data.tokenizer=null, or, if tokens were added to the backbone's own tokenizer, "
            f"save the backbone again after `resize_token_embeddings({vocab_size})`"
        )
    loaded.use_cache = False
    loaded.__dict__.setdefault("pad_token_id", None)  # CodeGen and others lack it
    if settings.dropout is not None:
        _set_dropout(loaded, settings.dropout)
    return loaded


def _config_from_mapping(mapping: dict[str, Any], vocab_size: int) -> PreTrainedConfig:
    fields = {"vocab_size": vocab_size} | mapping
    model_type = str(fields.pop("model_type"))
    try:
        with quiet():
            loaded = AutoConfig.for_model(model_type, **fields)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"model.encoder.from_config: {error}") from error
    for role in _SPECIAL_TOKENS:
        token_id = getattr(loaded, f"{role}_token_id", None)
        if isinstance(token_id, int) and token_id >= loaded.vocab_size:
            setattr(loaded, f"{role}_token_id", None)
    return loaded


def _set_dropout(transformer_config: PreTrainedConfig, probability: float) -> None:
    """Set every dropout probability. The architectures name them differently, but always with one of two endings."""
    for key, value in transformer_config.to_dict().items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and ("dropout" in key or key.endswith("pdrop")):
            setattr(transformer_config, key, probability)


def _window(settings: HuggingFaceConfig, transformer_config: PreTrainedConfig) -> int:
    longest = longest_window(transformer_config)
    if settings.window is None:
        return min(longest, LONGEST_DEFAULT_WINDOW)
    if settings.window > longest:
        raise ConfigError(
            f"model.encoder.window: {settings.window} is more than the {longest} positions of the model; give at most "
            f"{longest}, and longer documents are read in several windows"
        )
    return settings.window


def longest_window(transformer_config: PreTrainedConfig) -> int:
    """Return the model's number of positions; if it has no limit, the longest default window."""
    positions = (
        getattr(transformer_config, "max_position_embeddings", None)
        or LONGEST_DEFAULT_WINDOW
    )
    if positions < 0:  # XLNet's -1 means that there is no limit
        return LONGEST_DEFAULT_WINDOW
    if transformer_config.model_type in _OFFSET_POSITIONS:
        padding_index = transformer_config.pad_token_id or 0
        positions -= padding_index + 1
    return int(positions)


def _random(
    settings: HuggingFaceConfig, transformer_config: PreTrainedConfig
) -> PreTrainedModel:
    arguments = _build_arguments(settings, transformer_config)
    return load_quietly(
        settings.name, AutoModel.from_config, transformer_config, **arguments
    )


def _pretrained(
    settings: HuggingFaceConfig, transformer_config: PreTrainedConfig
) -> PreTrainedModel:
    source = pretrained_source(settings.name)
    check_published(settings.name)
    arguments = _build_arguments(settings, transformer_config) | source.options
    if source.gguf_file is None:
        arguments["use_safetensors"] = (
            True  # a pytorch_model.bin is a pickle, which can run code
        )
    else:
        arguments["quantization_config"] = GgufConfig(dequantize=True)
    if settings.quantize:
        device = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
        arguments["quantization_config"] = _quantization(settings)
        arguments["device_map"] = {"": device}
    model, loading_info = load_quietly(
        settings.name,
        AutoModel.from_pretrained,
        source.location,
        config=transformer_config,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # they are named below, in a message of ours
        **arguments,
    )
    _keep_trainable(model)
    mismatched = {name for name, *_ in loading_info["mismatched_keys"]}
    absent = sorted(loading_info["missing_keys"] | mismatched)
    if absent:
        raise ConfigError(
            f"model.encoder.name: {settings.name} lacks {len(absent)} weights in the shapes of its config.json, such "
            f"as {absent[0]}; download or copy the whole model again, config.json and weights from one version"
        )
    return model


def _partitioned(
    settings: HuggingFaceConfig, transformer_config: PreTrainedConfig, loading: Loading
) -> PreTrainedModel:
    """Load frozen pretrained weights, partitioned over the workers."""
    source = pretrained_source(settings.name)
    check_published(settings.name)
    if source.gguf_file is not None:
        raise ConfigError(
            f"model.encoder.name: {settings.name} is a GGUF file, and distributed.strategy.stage 3 reads safetensors, "
            "weight by weight: load the model once with Transformers, `save_pretrained` it with its tokenizer to a "
            "folder, and give this folder; or use stage 2"
        )
    folder = load_quietly(settings.name, fetch_folder, source)
    with init_empty_weights(
        include_buffers=False
    ):  # buffers have values that no file holds
        model = _random(settings, transformer_config)
    load_partitioned(model, folder, _DTYPES[settings.dtype], loading)
    BlockGathering(model, blocks_of(model))
    return model.eval()


def _build_arguments(
    settings: HuggingFaceConfig, transformer_config: PreTrainedConfig
) -> dict[str, object]:
    """Return what both loaders take. Nothing would train a pooler, so the architecture leaves it out if it can."""
    arguments: dict[str, object] = {
        "attn_implementation": _attention_kernel(settings),
        "dtype": _DTYPES[settings.dtype],
    }
    architecture = AutoModel._model_mapping[type(transformer_config)]
    if "add_pooling_layer" in inspect.signature(architecture.__init__).parameters:
        arguments["add_pooling_layer"] = False
    return arguments


def _attention_kernel(settings: HuggingFaceConfig) -> str | None:
    if settings.attention != "auto":
        return settings.attention
    installed = torch.cuda.is_available() and find_spec("flash_attn") is not None
    return "flash_attention_2" if installed and settings.dtype == "bfloat16" else None


def _quantization(settings: HuggingFaceConfig) -> BitsAndBytesConfig:
    if find_spec("bitsandbytes") is None:
        raise ConfigError(
            f"model.encoder.quantize: {settings.quantize} needs bitsandbytes, which is not installed: "
            "pip install 'xmtc[quantize]'"
        )
    if settings.quantize == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def _keep_trainable(model: PreTrainedModel) -> None:
    """Switch off bitsandbytes' packing of 4-bit weights for CPUs.

    It repacks the weights in the first forward pass in evaluation mode and never unpacks them. The packed product has
    no backward pass, so training after an evaluation would continue with wrong gradients.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.__dict__["support_avx512bf16_for_cpu"] = False


def _recompute_activations(model: PreTrainedModel, every_n_layers: int) -> None:
    if not model.supports_gradient_checkpointing:
        raise ConfigError(
            f"model.encoder.gradient_checkpointing: {every_n_layers}, but {type(model).__name__} does not support it; "
            "set it to 0"
        )
    model.activation_checkpointing_enable(
        {"use_reentrant": False}, every_n_layers=every_n_layers
    )


def blocks_of(transformer: nn.Module) -> nn.ModuleList:
    """Find the layers of a model, from the bottom to the top.

    Raises:
        ConfigError: the architecture uses an unknown name for them.
    """
    modules = dict(transformer.named_modules())
    for path in _BLOCK_LISTS:
        blocks = modules.get(path)
        if isinstance(blocks, nn.ModuleList):
            return blocks
    raise ConfigError(
        f"model.encoder: cannot find the layers of {type(transformer).__name__} under any name that architectures "
        f"usually give them ({', '.join(_BLOCK_LISTS)}); use another architecture"
    )
