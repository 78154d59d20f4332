"""Estimate memory, disk, steps and time of a run before it begins, without weights and without a GPU.

Parameter counts come from a model on the meta device, and activations from a simulated micro-batch of the longest
documents (see `simulate`). The rest is arithmetic. Bytes are per worker.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from torch import nn

from xmtc.data.corpus import Corpus
from xmtc.data.pretrained import resolve_pretrained
from xmtc.data.windows import cut
from xmtc.errors import ConfigError
from xmtc.estimate.cards import CARDS, card_of
from xmtc.estimate.check import check
from xmtc.estimate.label_memory import describe, label_memory, memory_of_worker, scored_labels
from xmtc.estimate.measured import Measured, measure
from xmtc.estimate.simulate import Shapes, meta_classifier, simulate_finetune
from xmtc.estimate.timing import disk_of_states, in_words
from xmtc.files import reading
from xmtc.models.classifier import Classifier
from xmtc.run.config import RunConfig
from xmtc.run.directory import RunPaths, Stage
from xmtc.training.config import PhaseConfig
from xmtc.training.unfreeze import trained_groups

# Published shapes of backbones whose files may not be on this machine.
_LLAMA: dict[str, Any] = {"model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 8192}
_SHAPES: dict[str, dict[str, Any]] = {
    "meta-llama/Meta-Llama-3-8B": _LLAMA
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
    | {"num_attention_heads": 32, "num_key_value_heads": 8},
    "meta-llama/Llama-3.2-1B": _LLAMA
    | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
    | {"num_attention_heads": 32, "num_key_value_heads": 8},
    "mistralai/Mistral-7B-v0.3": {"model_type": "mistral", "vocab_size": 32768, "max_position_embeddings": 32768}
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "sliding_window": None}
    | {"num_attention_heads": 32, "num_key_value_heads": 8},
    "microsoft/Phi-3-mini-4k-instruct": {"model_type": "phi3", "vocab_size": 32064, "max_position_embeddings": 4096}
    | {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32}
    | {"num_attention_heads": 32, "num_key_value_heads": 32, "pad_token_id": 0},
}
_QUANTISED_BYTES = {"nf4": 0.516, "int8": 1.0}  # per weight; NF4 with doubly quantised scales of blocks of 64
_GIB = 2**30
CPU_TFLOPS, SHARE = 0.1, 0.4  # peak of a core with AVX-512; share of the peak that training reaches
_EXAMPLES = ("L4", "A100", "H100")  # where nobody has said which card it is


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What the corpus is like.

    Attributes:
        documents, dev_documents: of train and dev.
        tokens: mean tokens of a document, cut at the maximum.
        longest: tokens of the longest document.
        labels, vocab_size: L and V.
        prepared: whether these are of a prepared corpus.
        origin: where these come from, for messages.
    """

    documents: int = 100_000
    dev_documents: int = 10_000
    tokens: float = 1000.0
    longest: int = 6000
    labels: int = 10_000
    vocab_size: int = 30_000
    prepared: bool = False
    origin: str = "ASSUMED, because the source cannot be read here (tools/check/estimate.py accepts other sizes)"


@dataclass(frozen=True)
class Estimate:
    """The result.

    Attributes:
        memory: bytes of one worker by purpose; they add up to the peak.
        disk: bytes of the whole run by purpose.
        parameters, trained: number of parameters, and the largest number that trains at once.
        steps: optimizer steps by stage.
        flops: operations of the encoder's matrix products, for the whole run and all workers.
        workers: number of workers.
        workload: size of the corpus that it was estimated for.
        offloaded: bytes in `nvme_path`, of all workers together.
    """

    memory: Mapping[str, float]
    disk: Mapping[str, float]
    parameters: int
    trained: int
    steps: Mapping[str, int]
    flops: float
    workers: int
    workload: Workload
    offloaded: float = 0.0

    @property
    def peak(self) -> float:
        """Bytes of one worker."""
        return sum(self.memory.values())

    def hours(self, peak_tflops: float, share: float) -> float:
        """Estimate the training time at a share of the devices' peak."""
        return self.flops / (self.workers * peak_tflops * 1e12 * share) / 3600


def estimate(config: RunConfig, workload: Workload | None = None, workers: int | None = None) -> Estimate:
    """Estimate what a run will take.

    Args:
        config: configuration of the run.
        workload: size of the corpus. Default: see `workload_of`.
        workers: number of workers. Default: the smallest number in `distributed.workers`, with the most memory each.

    Raises:
        ConfigError: the shape of the backbone is neither in the table here nor in files on this machine.
    """
    workload = workload or workload_of(config)
    world = max(1, config.distributed.min_workers if workers is None else workers)
    classifier = meta_classifier(config.model, backbone_shape(config), workload.vocab_size, workload.labels)
    phase = config.finetune.phases[-1]
    trained = [
        p
        for name in trained_groups(list(classifier.parameter_groups()), phase)
        for p in _group(classifier, name)
        if config.model.head.scores
    ]
    numbers = sum(p.numel() for p in trained)
    total = sum(p.numel() for p in classifier.parameters())
    shapes = micro_batch(config, workload, classifier.encoder.window)
    memory = _weights(config, classifier, trained, world) | _training(config, numbers, world)
    if config.model.head.trains_rows:
        tables = sum(table.numel() for table in classifier.head.label_tables().values())
        rows = label_memory(config, classifier.encoder.width, workload.labels, shapes.documents)
        memory |= _training(config, numbers - tables, world) | {"label rows: gradients, moments": rows.training}
        if not config.distributed.chosen_strategy().partitions.parameters:
            memory["trained weights"] += rows.tables - sum(t.nbytes for t in classifier.head.label_tables().values())
    linear = _product_weights(classifier)
    layers = sum(name.startswith("encoder.") for name in classifier.parameter_groups())
    if config.model.head.scores:
        scored = scored_labels(config, workload.labels, shapes.documents)
        simulated = meta_classifier(config.model, backbone_shape(config), workload.vocab_size, scored)
        bf16 = config.distributed.precision == "bf16"
        memory["activations, head, logits"] = simulate_finetune(simulated, phase, shapes, bf16=bf16)
    return Estimate(
        memory=memory,
        disk=_disk(config, workload, classifier.encoder.width, numbers),
        parameters=total,
        trained=numbers,
        steps=_steps(config, workload),
        flops=_flops(config, workload, linear, max(1, layers)),
        workers=world,
        workload=workload,
        offloaded=config.distributed.chosen_strategy().disk_bytes(numbers, _all_weights(classifier)),
    )


def workload_of(config: RunConfig) -> Workload:
    """Find the size of the prepared corpus, or assume one that respects `data.limit` and `data.max_length`."""
    longest = config.data.max_length
    if _is_prepared(config):
        return workload_of_corpus(Corpus.open(RunPaths.of(config).corpus))
    limit, shape = config.data.limit, backbone_shape(config) or {}
    return Workload(
        documents=limit.train or Workload.documents,
        dev_documents=limit.dev or Workload.dev_documents,
        tokens=min(longest, max(longest / 2, 100)),
        longest=longest,
        vocab_size=int(shape.get("vocab_size", Workload.vocab_size)),
    )


def workload_of_corpus(corpus: Corpus) -> Workload:
    """Find the size of a prepared corpus."""
    lengths = np.asarray(corpus.split("train").lengths)
    return Workload(
        documents=len(lengths),
        dev_documents=len(corpus.split("dev")) if "dev" in corpus.splits else 0,
        tokens=float(lengths.mean()),
        longest=int(lengths.max()),
        labels=len(corpus.labels),
        vocab_size=len(corpus.tokenizer()),
        prepared=True,
        origin="of the prepared corpus",
    )


def workload_of_source(config: RunConfig, found: Measured) -> Workload:
    """Find the size of a corpus from counts of its source."""
    lengths = np.minimum(found.lengths, config.data.max_length)
    shape = backbone_shape(config) or {}
    return Workload(
        documents=found.found.documents.get("train", 0),
        dev_documents=found.found.documents.get("dev", 0),
        tokens=float(lengths.mean()),
        longest=int(lengths.max()),
        labels=found.found.labels,
        vocab_size=int(shape.get("vocab_size", Workload.vocab_size)),
        origin="counted in the source" if found.found.exact else "extrapolated from a part of the source",
    )


def backbone_shape(config: RunConfig) -> dict[str, Any] | None:
    """Find the backbone's Transformers configuration in its files or the table here; None for other encoders.

    Raises:
        ConfigError: it is in neither place.
    """
    encoder = config.model.encoder.backbone
    if encoder is None:
        return None
    if encoder.from_config is not None:
        return dict(encoder.from_config)
    if encoder.name in _SHAPES:
        return dict(_SHAPES[encoder.name])
    path = Path(resolve_pretrained(encoder.name)) / "config.json"
    if not path.is_file():
        raise ConfigError(
            f"model.encoder.name: {encoder.name} is not on this machine, and its shape is unknown; give the folder "
            f"of the model, or one of {', '.join(_SHAPES)}"
        )
    # Some keys are understood only by the configuration class of their architecture; unknown keys are harmless.
    with reading(path, ConfigError, "download the model again"):
        return json.loads(path.read_text(encoding="utf-8"))


def micro_batch(config: RunConfig, workload: Workload, window: int) -> Shapes:
    """Return the largest micro-batch of the longest documents."""
    tokens = min(workload.longest, config.data.max_length)
    documents = max(1, config.finetune.tokens_per_micro_batch // tokens)
    windows = len(cut(tokens, window - 2, config.model.overlap, 1, 1).starts_W)
    # The windows of one document are equally long; documents hardly ever are.
    return Shapes(documents, tokens, documents * windows, min(window, tokens), workload.labels, padded=documents > 1)


def label_lines(config: RunConfig, workload: Workload) -> list[str]:
    """Describe the memory that the label set takes on a worker and, if that is too much, settings that reduce it."""
    try:
        shape = backbone_shape(config)
    except ConfigError as error:
        return [f"the memory for the labels is unknown: {error}"]
    encoder = meta_classifier(config.model, shape, workload.vocab_size, 1).encoder
    documents = micro_batch(config, workload, encoder.window).documents
    return list(describe(config, encoder.width, workload.labels, documents))


def dry_run(config: RunConfig) -> None:
    """Check the configuration and print the estimate, without loading weights.

    Raises:
        ConfigError: the run would refuse the configuration, or the shape of the backbone is unknown.
    """
    check(config)
    gpu = config.distributed.gpus_per_worker > 0
    width = meta_classifier(config.model, backbone_shape(config), Workload.vocab_size, 1).encoder.width
    measured = measure(config, width)
    load = workload_of(config) if measured is None or _is_prepared(config) else workload_of_source(config, measured)
    found = estimate(config, load)
    stages = None if measured is None or gpu else measured.stages
    print_estimate(config, found, stages=stages)
    print(*label_lines(config, found.workload), sep="\n")


def _is_prepared(config: RunConfig) -> bool:
    return (RunPaths.of(config).corpus / "manifest.json").is_file()


def print_estimate(
    config: RunConfig,
    found: Estimate,
    peak_tflops: float | None = None,
    share: float = SHARE,
    *,
    stages: Mapping[str, float] | None = None,
) -> None:
    """Print the estimate as a table.

    Args:
        config: configuration of the run.
        found: the estimate.
        peak_tflops: peak rate of a worker. Default: that of its card or core.
        share: share of the peak that training reaches.
        stages: seconds of each stage, if measured.
    """
    load = found.workload
    print(
        f"{config.name}: {found.workers} worker{'s' if found.workers > 1 else ''}; {load.origin}: "
        f"{load.documents:,} documents of {load.tokens:,.0f} tokens"
    )
    print(f"(longest {load.longest:,}), {load.labels:,} labels")
    print(f"parameters: {found.parameters:,}; at most {found.trained:,} train at once")
    table = Table("memory of one worker", "GiB", title_justify="left")
    for name, size in (*found.memory.items(), ("together", found.peak)):
        table.add_row(name, f"{size / _GIB:,.2f}")
    Console().print(table)
    room = memory_of_worker(config)
    if room is not None and found.peak > room:
        print(f"this exceeds the {room / _GIB:,.1f} GiB of a worker")
    for name, size in found.disk.items():
        print(f"disk, {name}: {size / _GIB:,.2f} GiB")
    if found.offloaded:
        print(f"disk, nvme_path, all workers together: {found.offloaded / _GIB:,.2f} GiB")
    if found.steps:
        print("optimizer steps: " + ", ".join(f"{stage} {steps:,}" for stage, steps in found.steps.items()))
    if stages is not None:
        parts = ", ".join(f"{stage} {in_words(seconds)}" for stage, seconds in stages.items())
        print(f"time, measured on this machine, assuming that it is idle: {in_words(sum(stages.values()))} ({parts})")
        return
    times = "; ".join(_time(found, name, peak, share) for name, peak in rates(config, peak_tflops).items())
    print(
        f"time in the encoder: about {times} ({found.flops:.3g} FLOP); its attention and the head take additional time"
    )
    if config.distributed.gpus_per_worker and peak_tflops is None and card_of(config.distributed) is None:
        print("the card is unknown; name it with distributed.resources_per_worker={accelerator_type:A100: 0.001}")


def rates(config: RunConfig, peak_tflops: float | None = None) -> dict[str, float]:
    """Return peak rates in TFLOP/s by the name of a worker's card or core; several cards if the card is unknown."""
    distributed = config.distributed
    if peak_tflops is not None:
        return {"a worker": peak_tflops}
    if distributed.gpus_per_worker == 0:
        return {"a core": CPU_TFLOPS}
    card = card_of(distributed)
    cards = [card] if card is not None else [one for one in CARDS if one.name in _EXAMPLES]
    return {one.name: one.tflops(distributed.precision) for one in cards}


def _time(found: Estimate, name: str, peak_tflops: float, share: float) -> str:
    hours = found.hours(peak_tflops, share)
    time = f"{hours:,.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"
    return f"{time} at {share:.0%} of {peak_tflops:g} TFLOP/s ({name})"


def _all_weights(classifier: Classifier) -> float:
    """Estimate bytes of all parameters before quantisation."""
    return float(sum(p.numel() * p.element_size() for p in classifier.parameters()))


def _group(classifier: Classifier, name: str) -> list[nn.Parameter]:
    return list(classifier.parameter_groups()[name])


def _weights(config: RunConfig, classifier: Classifier, trained: list[nn.Parameter], world: int) -> dict[str, float]:
    """Estimate bytes of frozen and trained weights that are not offloaded."""
    strategy = config.distributed.chosen_strategy()
    ours = {id(p) for p in trained}
    backbone = config.model.encoder.backbone
    quantize = backbone.quantize if backbone is not None else None
    inside = {id(m.weight) for m in _block_products(classifier)} if quantize else set()
    frozen = 0.0
    for parameter in classifier.parameters():
        if id(parameter) not in ours:
            size = _QUANTISED_BYTES[quantize] if id(parameter) in inside and quantize else parameter.element_size()
            frozen += parameter.numel() * size
    own = sum(p.numel() * p.element_size() for p in trained)
    return {
        "frozen weights": strategy.weight_bytes(frozen, world),
        "trained weights": strategy.weight_bytes(own, world),
    }


def _training(config: RunConfig, numbers: int, world: int) -> dict[str, float]:
    """Estimate bytes of gradients, optimizer state and exchange buffers; float32 throughout."""
    found = config.distributed.chosen_strategy().training_bytes(numbers, world)
    return {
        "gradients": found.gradients,
        "optimizer state": found.optimizer_state,
        "exchange buffers": found.exchange_buffers,
    }


def _block_products(classifier: Classifier) -> list[nn.Module]:
    """List the layers of the backbone that multiply every token by their weights, without adapters."""
    kinds = nn.Linear | nn.Conv1d | nn.RNNBase
    named = classifier.encoder.named_modules()
    return [module for name, module in named if isinstance(module, kinds) and "lora_" not in name]


def _product_weights(classifier: Classifier) -> int:
    modules = _block_products(classifier)
    return sum(p.numel() for module in modules for p in module.parameters(recurse=False) if p.dim() > 1)


def _disk(config: RunConfig, workload: Workload, width: int, trained: int) -> dict[str, float]:
    documents = workload.documents + workload.dev_documents
    return {
        "corpus": 4 * workload.tokens * documents,
        "hidden states": disk_of_states(config, documents, workload.tokens, width),
        "checkpoints": 12.0 * trained * (config.track.keep_last + 1) + 4.0 * trained,
    }


def _steps(config: RunConfig, workload: Workload) -> dict[str, int]:
    if not config.model.head.scores:
        return {}
    finetune = sum(phase.epochs for phase in config.finetune.phases)
    steps = {str(Stage.FINETUNE): finetune * math.ceil(workload.documents / config.finetune.batch_size)}
    if config.plants and config.plant.epochs:
        return {str(Stage.PLANT): config.plant.epochs * math.ceil(workload.documents / config.plant.batch_size)} | steps
    return steps


def _flops(config: RunConfig, workload: Workload, linear: int, layers: int) -> float:
    """Count 2 FLOP per weight and token forward, and as many for each kind of gradient and for recomputation."""
    backbone, forward = config.model.encoder.backbone, 2.0 * linear * workload.tokens * workload.documents
    lora = backbone is not None and backbone.lora is not None
    recompute = backbone is not None and backbone.gradient_checkpointing
    if not config.model.head.scores:
        return config.scores_states * forward
    passes = 0.0
    plant = config.plant
    frozen: list[tuple[bool, int]] = [(plant.cache_hidden, plant.epochs + plant.prototypes)] if config.plants else []
    for phase in config.finetune.phases:
        if phase.encoder_layers == 0:
            frozen.append((config.finetune.cache_hidden, phase.epochs))
        else:
            passes += phase.epochs * (1 + _trained_share(phase, layers) * (1 + (not lora) + recompute))
    passes += sum(epochs for cached, epochs in frozen if not cached) + any(cached for cached, _ in frozen)
    return passes * forward


def _trained_share(phase: PhaseConfig, layers: int) -> float:
    return 1.0 if phase.encoder_layers < 0 else min(1.0, phase.encoder_layers / layers)
