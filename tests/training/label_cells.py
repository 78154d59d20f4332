"""Tiny training by hand on any number of ranks: every head, choice of labels, row optimizer, strategy and stage."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.distributed.collectives import (
    all_reduce_sum_floats,
    barrier,
    rank_and_world_size,
)
from xmtc.distributed.config import DistributedConfig, Precision
from xmtc.distributed.row_shards import RowShard
from xmtc.distributed.rowwise_config import (
    LazyAdamConfig,
    RowwiseAdagradConfig,
    RowwiseOptimizerConfig,
    SGDConfig,
)
from xmtc.distributed.strategies.config import (
    DDPConfig,
    DeepSpeedConfig,
    StrategyConfig,
)
from xmtc.losses.config import (
    AsymmetricFocalConfig,
    BinaryCrossEntropyConfig,
    LambdaRankConfig,
    LossConfig,
)
from xmtc.mining.config import MiningConfig
from xmtc.models.classifier import Classifier
from xmtc.models.encoders.base import Encoder
from xmtc.models.heads.base import PlantsProjections
from xmtc.models.heads.config import (
    FlatConfig,
    HeadConfig,
    LabelAttentionConfig,
    TwoTowerConfig,
)
from xmtc.planting.config import PlantConfig
from xmtc.planting.mig.ranking import TokenRanking
from xmtc.planting.projections import PlantSums, plant_attention, plant_values
from xmtc.planting.prototypes import plant_prototypes
from xmtc.planting.ranking_objective import PlantObjective
from xmtc.planting.ridge_rows import plant_ridge_rows
from xmtc.training.config import (
    FinetuneConfig,
    OptimizerConfig,
    PhaseConfig,
    TrainingConfig,
)
from xmtc.training.fine_tuning import FinetuneObjective
from xmtc.training.label_shard import LabelShard
from xmtc.training.objective import Objective
from xmtc.training.unfreeze import parameter_groups

LABELS, WIDTH, VOCABULARY, DOCUMENTS, TOKENS, STEPS = 23, 12, 40, 12, 7, 3
PARAMETERS = {"stage3_param_persistence_threshold": 0}  # none stays whole

HEADS: dict[str, HeadConfig] = {
    "label_attention": LabelAttentionConfig(width=8, heads=2, dropout=0.0),
    "flat": FlatConfig(dropout=0.0),
    "two_tower": TwoTowerConfig(width=8, dropout=0.0),
}
CHOICES: dict[str, dict[str, Any]] = {
    "all": {},
    "mined": {
        "mining": MiningConfig(candidates=3, uniform=3 * LABELS, refresh_steps=2)
    },  # and all others
}
OPTIMIZERS: dict[str, RowwiseOptimizerConfig | None] = {
    "default": None,
    "lazy_adam": LazyAdamConfig(learning_rate=0.02),
    "rowwise_adagrad": RowwiseAdagradConfig(learning_rate=0.02),
    "sgd": SGDConfig(learning_rate=0.5),
}
STRATEGIES: dict[str, StrategyConfig] = {
    "ddp": DDPConfig(),
    "zero1": DeepSpeedConfig(stage=1),
    "zero2": DeepSpeedConfig(stage=2),
    "zero3": DeepSpeedConfig(stage=3, zero_optimization=PARAMETERS),
}


@dataclass(frozen=True)
class Cell:
    """One combination."""

    head: str
    choice: str = "all"
    optimizer: str = "default"
    strategy: str = "ddp"
    stage: str = "finetune"
    loss: LossConfig = field(default_factory=BinaryCrossEntropyConfig)
    rows: str = "float32"
    precision: Precision = "fp32"
    replicas: bool = False

    @property
    def rounded(self) -> bool:
        """Whether something is computed or kept in bfloat16."""
        return self.rows == "bfloat16" or self.precision == "bf16"

    def __str__(self) -> str:
        parts = (
            self.stage,
            self.head,
            self.choice,
            self.optimizer,
            self.strategy,
            self.loss.kind,
            self.rows,
        )
        parts += (self.precision, "replicas" if self.replicas else "shares")
        return "-".join(parts)


def cells() -> list[Cell]:
    """Every head, choice and optimizer under DDP; every strategy; stage 1; the hardest negatives; bfloat16."""
    trained = ("label_attention", "flat")
    found = [Cell(*parts) for parts in product(trained, CHOICES, OPTIMIZERS)]
    found += [
        Cell("two_tower", "mined", strategy=strategy) for strategy in ("ddp", "zero2")
    ]
    found += [
        Cell("label_attention", "all", "lazy_adam", "zero1"),
        Cell("flat", "mined", "lazy_adam", "zero2"),
        Cell("label_attention", "mined", "rowwise_adagrad", "zero3"),
        Cell("flat", "all", "sgd", "zero3"),
    ]
    found += [
        Cell("label_attention", stage="plant", strategy=strategy)
        for strategy in ("ddp", "zero3")
    ]
    found += [Cell("label_attention", optimizer="lazy_adam", stage="plant")]
    focal = AsymmetricFocalConfig(
        gamma_negative=1.0, hard_negatives=4, sampled_negatives=LABELS
    )
    found += [Cell(head, loss=focal) for head in trained]
    rounded = [
        Cell(head, "all", "rowwise_adagrad", rows="bfloat16") for head in trained
    ]
    autocast = [
        Cell("label_attention", "mined", "lazy_adam", "zero2", precision="bf16"),
        Cell("label_attention", "all", "lazy_adam", "zero3", precision="bf16"),
        Cell("flat", "all", "sgd", precision="bf16"),
    ]
    replicas = [
        *(
            Cell("label_attention", strategy=strategy, replicas=True)
            for strategy in ("ddp", "zero1", "zero3")
        ),
        Cell("label_attention", strategy="zero2", precision="bf16", replicas=True),
        Cell("label_attention", loss=focal, replicas=True),
        Cell("label_attention", stage="plant", replicas=True),
    ]
    return found + rounded + autocast + replicas


class Tokens(Encoder):
    """An embedding and a layer on top."""

    def __init__(self) -> None:
        super().__init__(WIDTH, TOKENS)
        self.table, self.top = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, input_ids_WU: Tensor, attention_mask_WU: Tensor) -> Tensor:
        return self.top(self.table(input_ids_WU)) * attention_mask_WU[..., None]

    def layers(self) -> Sequence[nn.Module]:
        return [self.table, self.top]


class Texts:
    """A label's text is the token of its number."""

    def __init__(self, classifier: Classifier, shard: LabelShard) -> None:
        self.classifier, self.first, self.rows = classifier, shard.first, shard.rows

    def __call__(self, rows_S: np.ndarray) -> Tensor:
        ids_S1 = torch.from_numpy(rows_S + self.first)[:, None]
        return self.classifier.encoder(
            ids_S1, torch.ones_like(ids_S1, dtype=torch.bool)
        )[:, 0]

    @torch.no_grad()
    def all(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        yield np.arange(self.rows), self(np.arange(self.rows))


def batch_of(rows: Sequence[int], step: int) -> Batch:
    """Documents of a step, the same whoever has them."""
    generator = torch.Generator().manual_seed(step)
    ids = torch.randint(1, VOCABULARY, (DOCUMENTS, TOKENS), generator=generator)
    lengths = torch.randint(2, TOKENS + 1, (DOCUMENTS,), generator=generator)
    gold = torch.rand(DOCUMENTS, LABELS, generator=generator) < 0.12
    longest = int(lengths[list(rows)].max())
    mask = (torch.arange(TOKENS) < lengths[:, None])[list(rows), :longest]
    documents, labels = gold[list(rows)].nonzero(as_tuple=True)
    ids = ids[list(rows), :longest]
    return Batch(
        torch.tensor(rows),
        ids,
        mask,
        ids,
        mask,
        None,
        documents,
        labels,
        torch.ones(len(rows)),
    )


def rows_of_rank(step: int) -> list[list[int]]:
    """Two micro-batches, unequally large on the ranks."""
    rank, world = rank_and_world_size()
    cuts = [
        round(DOCUMENTS * (i / world) ** (1 if step % 2 else 1.2))
        for i in range(world + 1)
    ]
    own = list(range(cuts[rank], cuts[rank + 1]))
    return [own[: len(own) // 2], own[len(own) // 2 :]]


def ranking(own: slice) -> TokenRanking:
    generator = np.random.default_rng(5)
    tokens = np.stack(
        [generator.permutation(VOCABULARY)[:10] for _ in range(LABELS)]
    ).astype(np.int32)
    tokens[3] = -1  # a label without ranked tokens
    ones = np.ones_like(tokens)
    counts = np.ones(VOCABULARY, np.int32), np.ones(LABELS, np.int32)[own]
    return TokenRanking(
        tokens[own], ones[own].astype(np.float32), ones[own], *counts, 9, ""
    )


def build(cell: Cell) -> tuple[Classifier, LabelShard]:
    torch.manual_seed(3)
    head = HEADS[cell.head]
    if cell.rows != "float32":
        head = replace(head, row_dtype="bfloat16")
    encoder = Tokens()
    classifier = Classifier(encoder, head.build(WIDTH, LABELS), LABELS)
    return classifier, LabelShard(classifier, split=not cell.replicas)


def objective_of(
    cell: Cell, classifier: Classifier, shard: LabelShard, **settings: Any
) -> Objective:
    if cell.stage == "plant":
        optimizer, loss = OPTIMIZERS[cell.optimizer], LambdaRankConfig()
        plan = PlantConfig(
            method="ranking",
            sampled_labels=2 * LABELS,
            loss=loss,
            label_optimizer=optimizer,
        )
        return PlantObjective(
            classifier, ranking(shard.own), plan, VOCABULARY, dict, shard
        )
    finetune = FinetuneConfig(loss=cell.loss, **(CHOICES[cell.choice] | settings))
    texts = Texts(classifier, shard) if cell.head == "two_tower" else None
    return FinetuneObjective(classifier, finetune, dict, shard, texts)  # pyright: ignore[reportArgumentType]


def train(
    cell: Cell, save: Path | None = None, resume: Path | None = None
) -> dict[str, Any]:
    """Losses and norms of a few steps, and what the weights are then, tables whole.

    Rows in bfloat16 are rounded to the nearest, because the noise depends on the number of ranks.
    """
    to_nearest = patch(
        "xmtc.distributed.rowwise_optim.stochastic_round_", lambda values, noise: values
    )
    with to_nearest if cell.rows == "bfloat16" else nullcontext():
        return _train(cell, save, resume)


def _train(cell: Cell, save: Path | None, resume: Path | None) -> dict[str, Any]:
    world = rank_and_world_size()[1]
    classifier, shard = build(cell)
    objective = objective_of(cell, classifier, shard)
    chosen = STRATEGIES[cell.strategy] if world > 1 else None
    strategy = DistributedConfig(
        workers=world, strategy=chosen, precision=cell.precision
    ).build_strategy(torch.device("cpu"))
    named = dict(classifier.parameter_groups())
    if cell.stage == "plant":
        named = {"head.attention": list(classifier.head.attention_parameters())}
    optimizer = OPTIMIZERS[cell.optimizer]
    phase = PhaseConfig(epochs=1, encoder_layers=-1, encoder_learning_rate=0.01)
    settings = TrainingConfig(
        optimizer=OptimizerConfig(learning_rate=0.02, weight_decay=0.01),
        label_optimizer=optimizer,
    )
    tables = [t for t in classifier.head.label_tables().values() if t.requires_grad]
    groups = parameter_groups(named, phase, settings, tables)
    module = strategy.prepare(objective, groups)
    rates = [group.learning_rate for group in groups]
    if resume is not None:
        strategy.load(resume)
    found: dict[str, Any] = {"losses": [], "norms": []}
    for step in range(STEPS):
        objective.before_step(step)
        torch.manual_seed(step)
        strategy.set_learning_rates(rates)
        total, parts = 0.0, rows_of_rank(step)
        for i, rows in enumerate(parts):
            with strategy.micro_batch(last=i == len(parts) - 1):
                with strategy.autocast():
                    output = module(batch_of(rows, step), 100 * step + i)
                strategy.backward(output.sum / DOCUMENTS)
            total += float(output.sum.detach())
        found["norms"].append(strategy.step(1.0))
        found["losses"].append(all_reduce_sum_floats([total])[0] / DOCUMENTS)
    if save is not None:
        strategy.save(save)
    found["weights"] = strategy.gather_trainable()
    strategy.close()
    shards: Mapping[str, Any] = {
        n: p for n, p in objective.named_parameters() if isinstance(p, RowShard)
    }
    found["weights"] |= {
        name: table.whole(table.detach()) for name, table in shards.items()
    }
    return found


def planted(head: str, *, replicas: bool = False) -> dict[str, Tensor]:
    """The whole head, planted in closed form; a batch has the same documents on any number of ranks.

    Replicas get no prototypes, whose negatives are a rank's own batch.
    """
    (rank, world), (classifier, shard) = (
        rank_and_world_size(),
        build(Cell(head, replicas=replicas)),
    )
    own = range(DOCUMENTS * rank // world, DOCUMENTS * (rank + 1) // world)
    batches, prior_L = (
        [batch_of(own, step) for step in range(2)],
        torch.linspace(-5, -1, LABELS)[shard.own],
    )
    if isinstance(classifier.head, PlantsProjections):
        sums = PlantSums(shard.rows, VOCABULARY, WIDTH, torch.device("cpu"))
        with torch.no_grad():
            for batch in batches:
                sums.add(classifier.encode(batch), batch, shard)
        sums.all_reduce(labels=shard.world == 1)
        plant_values(classifier.head, sums, shard, seed=7)
        plant_attention(
            classifier.head, sums, ranking(shard.own), shard, seed=7, keys=True
        )
        if not replicas:
            plant_prototypes(classifier, lambda sums: batches, prior_L, shard)
    else:
        plant_ridge_rows(classifier, lambda sums: batches, prior_L, shard)
    kind = f"{head}, replicas" if replicas else head
    parameters = {
        f"{kind} {name}": parameter
        for name, parameter in classifier.head.named_parameters()
    }
    return {
        name: p.whole(p.detach()) if isinstance(p, RowShard) else p.detach()
        for name, p in parameters.items()
    }


DRAWN: dict[str, dict[str, Any]] = {
    "sampled": {"sampled_labels": 17},
    "mined": {"mining": MiningConfig(candidates=1, uniform=3, refresh_steps=2)},
    "hardest": {
        "loss": AsymmetricFocalConfig(
            gamma_negative=1.0, hard_negatives=3, sampled_negatives=6
        )
    },
}
SEEDS = 80


def estimates(head: str, drawn: str) -> tuple[list[float], Tensor, float, Tensor]:
    """The loss of one batch and its gradient at the biases, for many draws, and both with all labels."""
    loss = DRAWN[drawn].get("loss", BinaryCrossEntropyConfig())
    exact = AsymmetricFocalConfig(gamma_negative=1.0) if drawn == "hardest" else loss
    classifier, shard = build(Cell(head))
    settings = {
        "loss": loss,
        **{key: value for key, value in DRAWN[drawn].items() if key != "loss"},
    }
    objective = FinetuneObjective(classifier, FinetuneConfig(**settings), dict, shard)
    objective.before_step(0)
    losses, gradients_SL = _losses_and_gradients(objective, SEEDS)
    whole = FinetuneObjective(classifier, FinetuneConfig(loss=exact), dict, shard)
    (total,), gradient_1L = _losses_and_gradients(whole, 1)
    return losses, gradients_SL, total, gradient_1L[0]


def _losses_and_gradients(
    objective: FinetuneObjective, seeds: int
) -> tuple[list[float], Tensor]:
    (rank, world), bias = rank_and_world_size(), objective.classifier.head.bias
    assert isinstance(bias, RowShard)
    few = range(
        4 * rank // world, 4 * (rank + 1) // world
    )  # so that most labels are no positives
    batch, losses, gradients = batch_of(few, 0), [], []
    for seed in range(seeds):
        bias.grad = None
        output = objective(batch, 1000 * rank + seed)
        output.sum.backward()
        assert bias.grad is not None
        losses.append(float(output.sum.detach()))
        gradients.append(bias.grad.to_dense() if bias.grad.is_sparse else bias.grad)
    return all_reduce_sum_floats(losses), bias.whole(torch.stack(gradients, 1)).T


def estimate_all() -> dict[str, tuple[list[float], Tensor, float, Tensor]]:
    return {
        f"{head}-{drawn}": estimates(head, drawn)
        for head in ("label_attention", "flat")
        for drawn in DRAWN
    }


RESUMED = (
    Cell("label_attention", "mined", "lazy_adam"),
    Cell("flat", "all", "sgd"),
    Cell("label_attention", replicas=True),
)


def train_all(folder: Path) -> dict[str, dict[str, Any]]:
    """All cells; two ranks leave checkpoints in `folder`, which others take up. Fewer than three estimate."""
    found: dict[str, dict[str, Any]] = {str(cell): train(cell) for cell in cells()}
    rank, world = rank_and_world_size()
    found["planted"] = (
        planted("label_attention")
        | planted("flat")
        | planted("label_attention", replicas=True)
    )
    if world <= 2:
        found["drawn"] = estimate_all()
    for cell in RESUMED:
        saved = folder / str(cell)
        if world == 2 and rank == 0:
            saved.mkdir()
        barrier()
        found[f"resumed-{cell}"] = (
            train(cell, save=saved) if world == 2 else train(cell, resume=saved)
        )
    return found
