"""Memory of one worker, by arithmetic over the shapes of the model, of a micro-batch and of the label set.

The model is built on PyTorch's meta device: it has shapes and dtypes, and no weights. Bytes are per worker.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from xmtc.data.pretrained import pretrained_source
from xmtc.data.windows import cut
from xmtc.distributed.cards import card_named
from xmtc.distributed.config import DistributedConfig
from xmtc.distributed.rowwise_config import AdamWConfig
from xmtc.errors import ConfigError
from xmtc.estimate.size import Size
from xmtc.files import read_json, reading
from xmtc.models.classifier import Classifier
from xmtc.models.encoders.pretrained import read_pretrained_config
from xmtc.models.heads.base import ScoresByProduct
from xmtc.models.kernels.products import CHUNK
from xmtc.models.operations import products
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.encoder_use import encoder_use
from xmtc.run.label_rows import shares_rows
from xmtc.training.unfreeze import trained_groups

GIB = 2**30
_SHAPES: dict[str, dict[str, Any]] = read_json(
    Path(__file__).with_name("backbones.json")
)
"""Published shapes of backbones whose files may not be on this machine."""
_QUANTISED_BYTES = {"nf4": 0.516, "int8": 1.0}
"""Bytes of a weight. NF4 has a scale for each block of 64 weights, and the scales are quantised as well."""
_LOGIT_BYTES = 12
"""Three numbers of float32: the logit, its gradient, and a value that the loss keeps for the backward pass."""
_RECURRENT_NUMBERS = 10
"""Gates and states that a recurrent layer keeps of a unit and a token, measured."""
TABLES = "tables"
MOMENTS = "gradients and moments"
LOGITS = "logits"
CARD_RESOURCE = "accelerator_type:"
"""Begins the name of the resource by which Ray knows a node's cards."""


class UnknownShapeError(ConfigError):
    """The shape of the backbone is neither in files on this machine nor in the table here."""


def backbone_shape(config: RunConfig) -> dict[str, Any] | None:
    """Find the backbone's Transformers configuration in its files or the table here; None for other encoders.

    Raises:
        UnknownShapeError: it is in neither place.
    """
    encoder = config.model.encoder.backbone
    if encoder is None:
        return None
    if encoder.from_config is not None:
        return dict(encoder.from_config)
    source = pretrained_source(encoder.name)
    if source.location in _SHAPES:
        return dict(_SHAPES[source.location])
    if source.gguf_file is not None:
        return read_pretrained_config(encoder.name).to_dict()
    path = Path(source.location) / "config.json"
    if not path.is_file():
        raise UnknownShapeError(
            f"model.encoder.name: {encoder.name} is not on this machine, and its shape is unknown; give the folder "
            f"of the model, or one of {', '.join(_SHAPES)}"
        )
    # Some keys are understood only by the configuration class of their architecture; unknown keys are harmless.
    with reading(path, ConfigError, "download the model again"):
        return read_json(path)


def meta_classifier(config: RunConfig, size: Size) -> Classifier:
    """Build the run's model on the meta device, without quantisation of the backbone.

    Raises:
        ConfigError: the settings do not fit each other or the corpus.
        UnknownShapeError: the shape of the backbone is unknown.
    """
    shape = backbone_shape(config)
    encoder = config.model.encoder
    vocab_size = size.vocab_size or int((shape or {}).get("vocab_size", 30_000))
    if encoder.backbone is not None and shape is not None:
        # A causal mask does not change shapes, and the check of `bidirectional` needs weights.
        plain = replace(
            encoder.backbone,
            quantize=None,
            bidirectional=False,
            attention="eager",
            from_config=shape,
        )
        encoder = encoder.with_backbone(plain)
    with torch.device("meta"):
        return replace(config.model, encoder=encoder).build(vocab_size, size.labels)


def trained_parameters(config: RunConfig, classifier: Classifier) -> list[nn.Parameter]:
    """List what trains in the last phase; nothing without a head."""
    if not config.model.head.scores:
        return []
    groups = classifier.parameter_groups()
    trained: list[nn.Parameter] = []
    for name in trained_groups(list(groups), config.finetune.phases[-1]):
        trained += groups[name]
    return trained


def worker_memory(
    config: RunConfig, classifier: Classifier, size: Size, world: int
) -> dict[str, float]:
    """Estimate the bytes of one worker in the last phase of training, by purpose; they add up to its peak.

    Args:
        config: configuration of the run.
        classifier: its model on the meta device.
        size: size of its corpus.
        world: number of workers.
    """
    strategy = config.distributed.chosen_strategy()
    trained = trained_parameters(config, classifier)
    tables = (
        list(classifier.head.label_tables().values())
        if config.model.head.trains_rows
        else []
    )
    labels = label_memory(config, classifier, size)
    trained_bytes = sum(parameter.nbytes for parameter in trained)
    if tables and not strategy.partitions_parameters:
        bytes_of_all_rows = sum(table.nbytes for table in tables)
        trained_bytes += labels[TABLES] - bytes_of_all_rows
    trained_numbers = sum(parameter.numel() for parameter in trained)
    numbers_of_rows = sum(table.numel() for table in tables)
    training = strategy.training_bytes(trained_numbers - numbers_of_rows, world)
    bytes_by_purpose = {
        "frozen weights": strategy.weight_bytes(
            _frozen_bytes(config, classifier, trained), world
        ),
        "trained weights": strategy.weight_bytes(trained_bytes, world),
        "gradients": training.gradients,
        "optimizer state": training.optimizer_state,
        "exchange buffers": training.exchange_buffers,
    }
    if tables:
        bytes_by_purpose["label rows: gradients, moments"] = labels[MOMENTS]
    if config.model.head.scores:
        bytes_by_purpose["activations, head, logits"] = (
            _activations(config, classifier, size) + labels[LOGITS]
        )
    weights = bytes_by_purpose["frozen weights"] + bytes_by_purpose["trained weights"]
    beside_weights = sum(bytes_by_purpose.values()) - weights
    planting = _planting(config, classifier, size)
    if planting > beside_weights:
        bytes_by_purpose["planting, beyond training"] = planting - beside_weights
    return bytes_by_purpose


def _planting(config: RunConfig, classifier: Classifier, size: Size) -> float:
    """Estimate the sums that closed forms are computed from: `PlantSums`, and rows with one or two sums of each."""
    planting = planting_plan(config.model, config.plant)
    labels = math.ceil(size.labels / _sharing(config, size))
    sums = 0.0
    if planting.projections:
        sums += 4.0 * (labels + (size.vocab_size or 0)) * classifier.encoder.width
    if planting.plants_rows:
        sums += 12.0 * labels * classifier.head.weights.shape[1]
    return sums


def _frozen_bytes(
    config: RunConfig, classifier: Classifier, trained: list[nn.Parameter]
) -> float:
    """Estimate the bytes of the parameters that do not train; those of products are quantised if the run says so."""
    backbone = config.model.encoder.backbone
    quantize = None if backbone is None else backbone.quantize
    ids_of_trained = {id(parameter) for parameter in trained}
    ids_of_products: set[int] = set()
    if quantize is not None:
        ids_of_products = {id(layer.weight) for layer in products(classifier.encoder)}
    total = 0.0
    for parameter in classifier.parameters():
        if id(parameter) in ids_of_trained:
            continue
        bytes_of_number = float(parameter.element_size())
        if quantize is not None and id(parameter) in ids_of_products:
            bytes_of_number = _QUANTISED_BYTES[quantize]
        total += parameter.numel() * bytes_of_number
    return total


def label_memory(
    config: RunConfig, classifier: Classifier, size: Size
) -> dict[str, float]:
    """Estimate the bytes of the label set on one worker, which holds all rows or a share.

    They are of rows (`TABLES`), their gradients and optimizer state (`MOMENTS`), and a micro-batch's `LOGITS`.

    Args:
        config: configuration of the run.
        classifier: its model on the meta device.
        size: size of its corpus.
    """
    finetune = config.finetune
    tables = list(classifier.head.label_tables().values())
    world = _sharing(
        config, size
    )  # a worker that holds a share of the labels scores the documents of all workers
    documents = _documents(config, size) * world
    own = math.ceil(size.labels / world)
    scored = math.ceil(_scored_labels(config, size.labels, documents) / world)
    can_chunk = (
        isinstance(classifier.head, ScoresByProduct)
        and finetune.label_optimizer is not None
    )
    if (
        can_chunk and not finetune.samples_labels and finetune.loss.separable
    ):  # they train chunk by chunk
        scored = min(CHUNK, own)
    optimizer = finetune.label_optimizer or AdamWConfig()
    training = 0.0
    for table in tables:
        if not table.requires_grad:
            continue
        row = table[0].numel()
        state = optimizer.row_state_bytes(row, bfloat16=table.dtype == torch.bfloat16)
        training += 4 * row * scored + state * own
    bytes_of_row = sum(table[0].nbytes for table in tables)
    return {
        TABLES: own * bytes_of_row,
        MOMENTS: training,
        LOGITS: _LOGIT_BYTES * scored * documents,
    }


def _sharing(config: RunConfig, size: Size) -> int:
    """Count the workers that divide the label rows among them."""
    world = max(1, config.distributed.min_workers)
    return world if shares_rows(config, size.labels, world) else 1


def _scored_labels(config: RunConfig, labels: int, documents: int) -> int:
    """Compute how many labels have a logit in a micro-batch; if labels are drawn, without the positives."""
    settings = config.finetune
    if settings.mining is not None:
        return min(
            labels, settings.mining.candidates * documents + settings.mining.uniform
        )
    return min(labels, settings.sampled_labels or labels)


def _documents(config: RunConfig, size: Size) -> int:
    """Compute how many of the longest documents fit in a micro-batch."""
    return max(1, config.finetune.tokens_per_micro_batch // _longest(config, size))


def _longest(config: RunConfig, size: Size) -> int:
    """Compute the tokens of the longest document as it is trained on."""
    return min(size.longest, encoder_use(config).trained_length)


def _activations(config: RunConfig, classifier: Classifier, size: Size) -> float:
    """Estimate the peak of a micro-batch of the longest documents, forward and backward, without weights and logits.

    Layers that train keep the inputs and outputs of their products for the backward pass, unless they are recomputed.
    """
    encoder = classifier.encoder
    backbone = config.model.encoder.backbone
    documents = _documents(config, size)
    tokens = _longest(config, size)
    windows_of_document = len(
        cut(tokens, encoder.window - 2, config.model.overlap, 1, 1).starts_W
    )
    positions = documents * windows_of_document * min(encoder.window, tokens)
    bytes_of_number = (
        3 if config.distributed.precision == "bf16" else 4
    )  # autocast keeps sums and norms in float32
    has_dropout = (
        backbone is not None and backbone.lora is not None and backbone.lora.dropout > 0
    )
    layers = [
        positions * bytes_of_number * _kept(layer, dropped=has_dropout)
        for layer in encoder.layers()
    ]
    head = _head_activations(config, classifier, documents, tokens)
    names = trained_groups(
        list(classifier.parameter_groups()), config.finetune.phases[-1]
    )
    trained_layers = sum(name.startswith("encoder.") for name in names)
    if trained_layers == 0:  # the encoder keeps nothing
        largest_layer = max(layers) / 2 + positions * bytes_of_number * encoder.width
        return max(largest_layer, head)
    attention = 4 * positions * _attention(config, classifier, tokens)
    first_trained = len(layers) - trained_layers
    layers_kept = [layer + attention for layer in layers[first_trained:]]
    if backbone is None or not backbone.gradient_checkpointing:
        return sum(layers_kept) + head
    boundary = positions * encoder.width * (2 if backbone.dtype == "bfloat16" else 4)
    recomputed = layers_kept[:: backbone.gradient_checkpointing]
    return (
        sum(layers_kept)
        - sum(recomputed)
        + max(recomputed)
        + trained_layers * boundary
        + head
    )


def _head_activations(
    config: RunConfig, classifier: Classifier, documents: int, tokens: int
) -> float:
    """Estimate the bytes of hidden states and of the head's products, in float32."""
    vectors = documents if config.model.head.reads_fixed else documents * tokens
    hidden_states = 3 * documents * tokens * classifier.encoder.width
    return 4 * (hidden_states + 2 * vectors * _kept(classifier.head))


def _kept(module: nn.Module, *, dropped: bool = False) -> float:
    """Count the numbers that a layer keeps of a token for its backward pass: inputs and outputs of products.

    A frozen product's input is kept only where it is also the output of something else. Adapters share their input,
    unless dropout (`dropped`) makes another one for each, and a mask.
    """
    total = 0.0
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear) and "lora_A" in name:
            total += layer.in_features * (2.0 if dropped else 0.25)
        elif isinstance(layer, nn.Linear) and "lora_B" not in name:
            total += layer.out_features + layer.in_features * (
                1.0 if layer.weight.requires_grad else 0.5
            )
        elif isinstance(layer, nn.Conv1d):
            total += layer.in_channels + layer.out_channels
        elif isinstance(layer, nn.RNNBase):
            directions = 2 if layer.bidirectional else 1
            total += (
                layer.input_size + _RECURRENT_NUMBERS * layer.hidden_size * directions
            )
    return total


def _attention(config: RunConfig, classifier: Classifier, tokens: int) -> float:
    """Count the weights that a layer keeps of a token: none, unless a CPU drops some out, which its kernel cannot."""
    backbone = classifier.encoder.backbone
    if backbone is None or config.distributed.on_gpu:
        return 0.0
    shape = backbone.transformer.config.to_dict()
    dropped = shape.get("attention_probs_dropout_prob") or shape.get(
        "attention_dropout"
    )
    if not dropped:
        return 0.0
    return 3.0 * shape.get("num_attention_heads", 0) * min(backbone.window, tokens)


def memory_of_worker(config: RunConfig) -> float | None:
    """Estimate bytes available to a worker; None if unknown, because the machine or the card is."""
    if config.distributed.on_gpu:
        gib = card_gib(config.distributed)
        return None if gib is None else gib * GIB
    if config.distributed.address is not None:
        return None
    return psutil.virtual_memory().available / max(1, config.distributed.max_workers)


def label_lines(config: RunConfig, size: Size) -> list[str]:
    """Describe the memory of the label set on a worker and, if that is too much, name the settings that reduce it.

    Raises:
        ConfigError: the model cannot be built for a corpus of this size.
    """
    try:
        bytes_by_purpose = label_memory(config, meta_classifier(config, size), size)
    except UnknownShapeError as error:
        return [f"the memory for the labels is unknown: {error}"]
    total = sum(bytes_by_purpose.values())
    parts = ", ".join(
        f"{purpose} {part / GIB:,.2f}" for purpose, part in bytes_by_purpose.items()
    )
    place = "a worker" if config.distributed.max_workers > 0 else "memory"
    lines = [
        f"{size.labels:,} labels take {total / GIB:,.2f} GiB of {place}: {parts} GiB"
    ]
    room = memory_of_worker(config)
    if room is not None and total > room:
        lines.append(
            f"this exceeds the {room / GIB:,.1f} GiB that a worker has here; to reduce it, set in this order "
            "finetune.sampled_labels=512 (or finetune.mining), 'finetune.label_optimizer={kind: rowwise_adagrad}', "
            "model.head.row_dtype=bfloat16, 'model.head={kind: flat}' (docs/how-to/debug_memory.md)"
        )
    return lines


def card_gib(distributed: DistributedConfig) -> float | None:
    """Find the memory of the card of a run's workers, which have one, in GiB; None if it is unknown.

    A worker that asks Ray for `accelerator_type:A100` gets that card. Otherwise, a run on this machine uses this
    machine's card.
    """
    for resource in distributed.resources_per_worker:
        if resource.startswith(CARD_RESOURCE):
            card = card_named(resource.removeprefix(CARD_RESOURCE))
            return None if card is None else card.gib
    if distributed.address is None and torch.cuda.is_available():
        return torch.cuda.get_device_properties(0).total_memory / GIB
    return None
