"""Hours and cost of a run on GPUs: the operations of its backbone, and the share of a card's rate that they reach.

The share depends on the width of the backbone most of all, because narrow products leave a large card idle. It was
measured on one H200 for two widths (docs/benchmarks/gpu.md); for others it is read off a line through both, over the
logarithms of width and share, and it is assumed that other cards reach the same share.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from xmtc.distributed.cards import CARDS
from xmtc.estimate.memory import meta_classifier
from xmtc.estimate.size import Size
from xmtc.models.classifier import Classifier
from xmtc.models.operations import forward_operations, training_operations
from xmtc.planting.plan import planting_plan
from xmtc.run.config import RunConfig
from xmtc.run.encoder_use import encoder_use
from xmtc.track.console import terminal_table
from xmtc.training.config import PhaseConfig
from xmtc.training.unfreeze import trained_groups

_MEASURED_ON = "H200"
_MEASURED_TFLOP_PER_S = {384: 24.8, 4096: 342.0}
"""By width. 4096: a LoRA step of an 8B decoder, 12,220 tokens/s of 4 × 7.0e9 operations, 43 % of the 790 TFLOP/s that
the card reaches in products alone. 384: MiniLM trained, 390,000 tokens/s of 6 × 1.06e7 operations."""
_SAME_WIDTH = 0.1
"""Relative difference of widths up to which a measured share counts as measured."""
_RECOMPUTATION = 8_720 / 12_220
"""Speed with `gradient_checkpointing: 1` beside that without, of the same decoder."""


@dataclass(frozen=True)
class CardCost:
    """What a run takes on one card.

    Attributes:
        card: its name.
        gib: its memory.
        hours: hours of one card; those of several cards together are as many if they lose nothing to each other.
        measured: whether the share of the card's rate was measured on this card with a backbone of this width.
    """

    card: str
    gib: float
    hours: float
    measured: bool


def backbone_operations(
    config: RunConfig, size: Size, classifier: Classifier
) -> dict[str, float]:
    """Count the floating-point operations of the backbone in a run, by what they are for.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        classifier: its model on the meta device.
    """
    forward = forward_operations(classifier.encoder)
    use = encoder_use(config)
    reads_states = config.model.head.scores or use.scores_states
    tokens = {
        "train": size.train * size.tokens,
        "dev": size.dev * size.tokens,
        "test": size.test * size.tokens,
    }
    operations = {"encode": 0.0, "plant": 0.0, "finetune": 0.0, "evaluate": 0.0}
    if reads_states and use.caches_states:
        operations["encode"] = forward * (tokens["train"] + tokens["dev"])
    if config.model.head.scores:
        operations["plant"] = forward * _planted_tokens(config, size)
        for phase in config.finetune.phases:
            operations["finetune"] += _finetune_operations(
                config, size, classifier, phase
            )
    if reads_states:
        operations["evaluate"] = forward * (tokens["dev"] + tokens["test"])
    return {name: count for name, count in operations.items() if count}


def _planted_tokens(config: RunConfig, size: Size) -> float:
    """Count the tokens that planting encodes, where it does not read cached states."""
    planting = planting_plan(config.model, config.plant)
    if config.plant.cache_hidden or not planting.parts:
        return 0.0
    return (
        planting.documents(size.train) + planting.ranking_epochs * size.train
    ) * size.tokens


def _finetune_operations(
    config: RunConfig, size: Size, classifier: Classifier, phase: PhaseConfig
) -> float:
    """Count the operations of a phase; none where it reads cached states."""
    finetune = config.finetune
    if finetune.cache_hidden and phase.encoder_layers == 0:
        return 0.0
    groups = classifier.parameter_groups()
    trained = set()
    for name in trained_groups(list(groups), phase):
        trained.update(id(parameter) for parameter in groups[name])
    tokens = min(size.tokens, encoder_use(config).trained_length)
    measured_documents = min(size.dev, finetune.dev_documents or size.dev)
    training = size.train * tokens * training_operations(classifier.encoder, trained)
    measuring = (
        measured_documents * size.tokens * forward_operations(classifier.encoder)
    )
    return phase.epochs * (training + measuring)


def share_of_rate(width: int) -> float:
    """Estimate the share of a card's published rate that a backbone of this width reaches."""
    published = CARDS[_MEASURED_ON].bf16_tflop_per_s
    assert published is not None, "the card that was measured has a published rate"
    (narrow, slow), (wide, fast) = sorted(_MEASURED_TFLOP_PER_S.items())
    slope = math.log(fast / slow) / math.log(wide / narrow)
    within = min(max(width, narrow), wide)
    return slow * (within / narrow) ** slope / published


def _is_measured(card: str, width: int) -> bool:
    """Whether the share was measured on this card with a backbone of about this width."""
    near = any(
        abs(width / measured - 1) <= _SAME_WIDTH for measured in _MEASURED_TFLOP_PER_S
    )
    return card == _MEASURED_ON and near


def costs_by_card(
    config: RunConfig, operations: float, width: int, peak_bytes: float
) -> Iterator[CardCost]:
    """Estimate the hours of each card that holds a worker and has instructions for bfloat16.

    Args:
        config: configuration of the run.
        operations: of the whole run.
        width: D, width of the backbone.
        peak_bytes: memory of one worker.
    """
    backbone = config.model.encoder.backbone
    recomputes = backbone is not None and bool(backbone.gradient_checkpointing)
    share = share_of_rate(width) * (_RECOMPUTATION if recomputes else 1.0)
    for name, card in CARDS.items():
        if card.bf16_tflop_per_s is not None and card.gib * 2**30 >= peak_bytes:
            hours = operations / (card.bf16_tflop_per_s * 1e12 * share) / 3600
            yield CardCost(name, card.gib, hours, _is_measured(name, width))


def print_gpu_costs(
    config: RunConfig,
    size: Size,
    width: int,
    peak_bytes: float,
    workers: int,
    price: float | None,
) -> None:
    """Print hours and, with a price, costs by card, and what of it is measured and what assumed.

    Args:
        config: configuration of the run.
        size: size of its corpus.
        width: D, width of the backbone.
        peak_bytes: memory of one worker.
        workers: number of cards that share the work.
        price: of a card for an hour.
    """
    operations = backbone_operations(config, size, meta_classifier(config, size))
    total = sum(operations.values())
    if not total:
        print("on GPUs: the backbone has no products to estimate hours from")
        return
    parts = ", ".join(f"{name} {count:.2g}" for name, count in operations.items())
    print(f"operations of the backbone's products: {total:.2g} ({parts})")
    costs = list(costs_by_card(config, total, width, peak_bytes))
    if not costs:
        print("no known card holds a worker; see the largest line of memory above")
        return
    columns = [
        "card",
        "GiB",
        "hours of one card",
        f"hours of {workers} cards",
        "cost",
        "share of rate",
    ]
    rows = []
    for cost in costs:
        amount = "–" if price is None else f"{cost.hours * price:,.2f}"
        origin = "measured" if cost.measured else "assumed"
        rows.append(
            [
                cost.card,
                f"{cost.gib:g}",
                _hours(cost.hours),
                _hours(cost.hours / workers),
                amount,
                origin,
            ]
        )
    Console().print(terminal_table(columns, rows, right=columns[1:5]))
    print(
        f"of this, the share of a card's published rate ({share_of_rate(width):.1%}) was measured on one "
        f"{_MEASURED_ON}, for widths {' and '.join(map(str, sorted(_MEASURED_TFLOP_PER_S)))}; assumed are that other "
        "cards reach the same share, that several cards lose nothing to each other, and that head, scorers and reading "
        "take no time"
    )


def _hours(hours: float) -> str:
    """Format hours with enough digits for short runs."""
    return f"{hours:,.2f}" if hours < 10 else f"{hours:,.0f}"
