"""This worker's label rows: each worker scores all workers' documents with its labels. One process has all labels.

With replicas (`xmtc.run.label_rows`), each worker scores its documents with all labels, without an exchange here.

The inputs that label rows need of documents (`Head.read`: keys and values, or a pooled vector) are gathered once per
micro-batch, and their gradient is summed in the backward pass. Logits are never exchanged. The workers share memory and
arithmetic of the label set. `ShardedRowsStrategy` updates the rows.

Gradients add up: every worker computes the encoder's gradient for its documents, and strategies sum over workers. A
worker's rows get their whole gradient.

Suffixes: B documents of this worker, G of all workers, T tokens, L labels, R labels of this worker, K kept.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from xmtc.data.collate import Batch
from xmtc.distributed.collectives import (
    all_gather_object,
    all_reduce_max_ints,
    all_reduce_sum,
    rank_and_world_size,
)
from xmtc.distributed.row_shards import RowShard, share_of
from xmtc.losses.base import OtherLabels, Targets
from xmtc.models.classifier import Classifier
from xmtc.models.config import ModelConfig
from xmtc.models.heads.base import Head
from xmtc.models.kernels.reference import at_least_fp32

BLOCK = 65_536
"""Labels whose rows are drawn at a time."""


@dataclass(frozen=True)
class GatheredDocuments:
    """All workers' documents, as inputs of the label rows.

    Attributes:
        read: tensors (G, …) of `Head.read`.
        mask_GT: False on padding. Documents that pad shorter batches have weight 0 and no positives.
        targets: their positives among this worker's labels, numbered from its first label.
    """

    read: tuple[Tensor, ...]
    mask_GT: Tensor
    targets: Targets


class LabelShard:
    """Reduces a classifier's label tables to this worker's rows, in place.

    This is not a module: the head stays in the classifier, the only place where strategies look for parameters.

    Args:
        classifier: classifier with whole tables, the same on all workers, or with this worker's rows as `RowShard`s.
        split: if false, the tables stay whole, as replicas that the strategy trains.

    Attributes:
        labels: L.
        first: first label of this worker, followed by its other labels.
        rows: R.
        world: number of workers that share the labels.
    """

    def __init__(self, classifier: Classifier, *, split: bool = True) -> None:
        self.head = classifier.head
        self.labels = classifier.labels
        self.first = 0
        self.world = 1
        if split:
            self.world = rank_and_world_size()[1]
            for name, table in self.head.label_tables().items():
                if not isinstance(table, RowShard):
                    setattr(self.head, name, RowShard.of(table))
            bias = self.head.bias
            assert isinstance(bias, RowShard)  # every head has one
            self.first = bias.first
            classifier.regroup()
        self.rows = len(self.head.bias)

    @property
    def own(self) -> slice:
        """Range of this worker's labels among all labels."""
        return slice(self.first, self.first + self.rows)

    def share(self, count: int) -> int:
        """Divide `count` labels in proportion to the workers' rows; return this worker's part, at least 1."""
        up_to_here = count * self.first // self.labels
        up_to_next = count * (self.first + self.rows) // self.labels
        return max(1, up_to_next - up_to_here)

    def gather(self, read: tuple[Tensor, ...], batch: Batch) -> GatheredDocuments:
        """Gather all workers' documents. The call and its backward pass are collective.

        Args:
            read: result of `Head.read` for this worker's documents.
            batch: these documents.
        """
        targets = targets_of(batch)
        if self.world == 1:
            return GatheredDocuments(read, batch.mask_BT, targets)
        device = batch.mask_BT.device
        shapes, targets_of_ranks = zip(
            *all_gather_object((batch.mask_BT.shape, targets.on_host)), strict=True
        )
        documents = max(shape[0] for shape in shapes)
        tokens = max(shape[1] for shape in shapes)
        read_G = _AllGather.apply(
            *(_padded(tensor, documents, tokens) for tensor in read)
        )
        mask_GT = _all_gather(_padded_mask(batch.mask_BT, documents, tokens))
        own = self._own_targets(targets_of_ranks, documents).to(device)
        return GatheredDocuments(read_G, mask_GT, own)  # pyright: ignore[reportArgumentType]

    def gather_tokens(self, hidden_BTD: Tensor, batch: Batch) -> GatheredDocuments:
        """Gather all workers' documents with their hidden states, without gradient, and token ids (G, T, 1) to `read`.

        Collective.
        """
        return self.gather((hidden_BTD.detach(), batch.token_ids_BT[..., None]), batch)

    def mean_of_all(self, values_R: Tensor) -> Tensor:
        """Compute the mean over all labels of a value per label, (R, …) → (…). Collective."""
        return self.sum_of_all(values_R.sum(0)) / self.labels

    def sum_of_all(self, value: Tensor) -> Tensor:
        """Sum a value over the workers that share the labels. Collective."""
        return value if self.world == 1 else all_reduce_sum(value)

    def of_all(self, values_R: Tensor) -> Tensor:
        """Gather one number per label from all workers, on the CPU. Collective."""
        bias = self.head.bias
        return bias.whole(values_R) if isinstance(bias, RowShard) else values_R.cpu()

    def among_best(self, scores_GK: Tensor, count: int) -> Tensor:
        """Mark this worker's scores that are among the `count` highest of all workers; −∞: no score. Collective."""
        if self.world == 1:
            return scores_GK > -torch.inf
        rank, _ = rank_and_world_size()
        own_width = scores_GK.shape[1]
        (width,) = all_reduce_max_ints([own_width])
        padded_GK = nn.functional.pad(
            scores_GK, (0, width - own_width), value=-torch.inf
        )
        all_GX = torch.cat(_all_gather(padded_GK).chunk(self.world), 1)
        best = all_GX.topk(min(count, all_GX.shape[1]))
        is_best_GX = torch.zeros_like(all_GX, dtype=torch.bool)
        is_best_GX.scatter_(1, best.indices, value=True)
        own_GK = is_best_GX[:, rank * width : rank * width + own_width]
        return own_GK & (scores_GK > -torch.inf)

    def exchange_best(
        self, ids_GK: Tensor, logits_GK: Tensor, documents: int
    ) -> tuple[Tensor, Tensor]:
        """Collect all workers' best labels of this worker's documents. Collective.

        Args:
            ids_GK: this worker's best labels of all documents, numbered from its first; K is equal on all workers.
            logits_GK: logits of these labels; −∞ means no label.
            documents: number of documents of this worker.

        Returns:
            Ids among all labels, and logits, (B, K · workers), in no particular order.
        """
        ids_GK = ids_GK + self.first
        if self.world == 1:
            return ids_GK[:documents], logits_GK[:documents]
        return _all_to_all(ids_GK)[:documents], _all_to_all(logits_GK)[:documents]

    def _own_targets(self, of_ranks: Sequence[Targets], documents: int) -> Targets:
        """Find all workers' positives among this worker's labels; rows count through the gathered documents."""
        rows = []
        weights = []
        for rank, targets in enumerate(of_ranks):
            rows.append(targets.rows_P + documents * rank)
            missing = documents - len(targets.weight_B)
            weights.append(nn.functional.pad(targets.weight_B, (0, missing)))
        rows_X = torch.cat(rows)
        columns_X = torch.cat([targets.columns_P for targets in of_ranks]) - self.first
        own_X = (columns_X >= 0) & (columns_X < self.rows)
        most_positives = max(targets.max_positives or 0 for targets in of_ranks)
        others = OtherLabels(self.labels, self.among_best)
        own_targets = Targets(
            rows_X[own_X],
            columns_X[own_X],
            torch.cat(weights),
            min(most_positives, self.rows),
            others,
        )
        return self._with_own_unjudged(own_targets, of_ranks, documents)

    def _with_own_unjudged(
        self, targets: Targets, of_ranks: Sequence[Targets], documents: int
    ) -> Targets:
        """Add this worker's labels that nobody judged, of the documents of all workers."""
        rows: list[Tensor] = []
        columns: list[Tensor] = []
        for rank, of_rank in enumerate(of_ranks):
            if (
                of_rank.unjudged_rows_J is not None
                and of_rank.unjudged_columns_J is not None
            ):
                rows.append(of_rank.unjudged_rows_J + documents * rank)
                columns.append(of_rank.unjudged_columns_J - self.first)
        if not rows:
            return targets
        columns_X = torch.cat(columns)
        own_X = (columns_X >= 0) & (columns_X < self.rows)
        return replace(
            targets,
            unjudged_rows_J=torch.cat(rows)[own_X],
            unjudged_columns_J=columns_X[own_X],
        )


def targets_of(batch: Batch) -> Targets:
    """Return the positives of a batch, among all labels."""
    host = batch.on_host
    targets = Targets(
        rows_P=host.rows_P,
        columns_P=host.labels_P,
        weight_B=host.weight_B,
        max_positives=batch.max_labels,
        unjudged_rows_J=host.unjudged_rows_J,
        unjudged_columns_J=host.unjudged_labels_J,
    )
    return replace(
        targets,
        rows_P=batch.rows_P,
        columns_P=batch.labels_P,
        weight_B=batch.weight_B,
        unjudged_rows_J=batch.unjudged_rows_J,
        unjudged_columns_J=batch.unjudged_labels_J,
        original=targets,
    )


def build_shard(
    model: ModelConfig, vocab_size: int, labels: int, seed: int, ranks: tuple[int, int]
) -> Classifier:
    """Build the model with one rank's rows of the label tables, on the CPU, without ever building a whole table.

    A row's initial values depend only on the seed and the label, not on the number of workers.

    Args:
        model: settings of encoder and head.
        vocab_size: number of token ids of the corpus's tokenizer.
        labels: number of labels of all ranks.
        seed: seed of the run; the caller has seeded PyTorch with it.
        ranks: this rank and the number of ranks.
    """
    rank, world = ranks
    classifier = model.build(vocab_size, min(labels, BLOCK))
    head = classifier.head
    first, end = share_of(rank, world, labels)
    own_rows = {}
    trains = {}
    for name, table in head.label_tables().items():
        own_rows[name] = torch.empty(end - first, *table.shape[1:], dtype=table.dtype)
        trains[name] = table.requires_grad
    for start, drawn in _blocks(model, head, classifier.encoder.width, labels, seed):
        for name, table in drawn.label_tables().items():
            low = max(first, start)
            high = min(end, start + len(table))
            if low < high:
                own_rows[name][low - first : high - first] = table.detach()[
                    low - start : high - start
                ]
    for name, rows in own_rows.items():
        setattr(head, name, RowShard.placed(rows, first, labels, trains[name]))
    classifier.labels = labels
    classifier.regroup()
    return classifier


def _blocks(
    model: ModelConfig, head: Head, width: int, labels: int, seed: int
) -> Iterator[tuple[int, Head]]:
    """Yield heads that each hold the rows of a block of labels, with the block's first label. The first is `head`."""
    yield 0, head
    for start in range(BLOCK, labels, BLOCK):
        torch.manual_seed(zlib.crc32(repr((seed, start)).encode()))
        yield start, model.head.build(width, min(BLOCK, labels - start))


class _AllGather(torch.autograd.Function):
    """Gathers (B, …) of each rank to (G, …) on every rank; backward sums the gradients of this rank's documents."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_all_gather(x_B) for x_B in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        _, world = rank_and_world_size()
        totals = []
        for gradient_G in gradients:
            wide_G = at_least_fp32(
                gradient_G
            ).contiguous()  # bfloat16 would lose digits with every rank
            total_B = wide_G.new_empty(len(wide_G) // world, *wide_G.shape[1:])
            dist.reduce_scatter_tensor(total_B, wide_G)
            totals.append(total_B.to(gradient_G.dtype))
        return tuple(totals)


def _all_gather(x_B: Tensor) -> Tensor:
    """Gather (B, …) of each rank, equal in shape, to (G, …) on every rank."""
    _, world = rank_and_world_size()
    gathered_G = x_B.new_empty(world * len(x_B), *x_B.shape[1:])
    dist.all_gather_into_tensor(gathered_G, x_B.contiguous())
    return gathered_G


def _all_to_all(x_GK: Tensor) -> Tensor:
    """Exchange (G, K) of each rank for all documents to (B, K · ranks) of all ranks for this rank's documents."""
    _, world = rank_and_world_size()
    received_GK = torch.empty_like(x_GK)
    dist.all_to_all_single(received_GK, x_GK.contiguous())
    return torch.cat(received_GK.chunk(world), 1)


def _padded(x_B: Tensor, documents: int, tokens: int) -> Tensor:
    """Pad (B, P) or (B, T, P) to this many documents and tokens."""
    missing_documents = documents - len(x_B)
    if x_B.ndim == 2:
        return nn.functional.pad(x_B, (0, 0, 0, missing_documents))
    missing_tokens = tokens - x_B.shape[1]
    return nn.functional.pad(x_B, (0, 0, 0, missing_tokens, 0, missing_documents))


def _padded_mask(mask_BT: Tensor, documents: int, tokens: int) -> Tensor:
    """Pad the mask to this many documents; added documents have one token, because a softmax needs one."""
    missing_tokens = tokens - mask_BT.shape[1]
    missing_documents = documents - len(mask_BT)
    padded = nn.functional.pad(mask_BT, (0, missing_tokens, 0, missing_documents))
    padded[len(mask_BT) :, 0] = True
    return padded
