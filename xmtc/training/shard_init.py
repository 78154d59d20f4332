"""Initialise each worker's label rows without ever building a whole table.

A row's initial values depend only on the seed and the label, not on the number of workers.
"""

import zlib
from collections.abc import Iterator

import torch

from xmtc.distributed.row_shards import RowShard, share_of
from xmtc.models.classifier import Classifier
from xmtc.models.config import ModelConfig
from xmtc.models.heads.base import Head

BLOCK = 65_536  # labels that are drawn at a time


def build_shard(model: ModelConfig, vocab_size: int, labels: int, seed: int, ranks: tuple[int, int]) -> Classifier:
    """Build the model with one rank's rows of the label tables, on the CPU.

    Args:
        model: settings of encoder and head.
        vocab_size: number of token ids of the corpus's tokenizer.
        labels: number of labels of all ranks.
        seed: seed of the run; the caller has seeded PyTorch with it.
        ranks: this rank and the number of ranks.
    """
    rank, world = ranks
    classifier = model.build(vocab_size, min(labels, BLOCK))
    head, (first, end) = classifier.head, share_of(rank, world, labels)
    tables = {
        name: (torch.empty(end - first, *table.shape[1:], dtype=table.dtype), table.requires_grad)
        for name, table in head.label_tables().items()
    }
    for start, drawn in _blocks(model, head, classifier.encoder.width, labels, seed):
        for name, table in drawn.label_tables().items():
            low, high = max(first, start), min(end, start + len(table))
            if low < high:
                tables[name][0][low - first : high - first] = table.detach()[low - start : high - start]
    for name, (rows, trains) in tables.items():
        setattr(head, name, RowShard.placed(rows, first, labels, trains))
    classifier.labels = labels
    classifier.regroup()
    return classifier


def _blocks(model: ModelConfig, head: Head, width: int, labels: int, seed: int) -> Iterator[tuple[int, Head]]:
    """Yield heads that each hold the rows of a block of labels, with the block's first label. The first is `head`."""
    yield 0, head
    for start in range(BLOCK, labels, BLOCK):
        torch.manual_seed(zlib.crc32(repr((seed, start)).encode()))
        yield start, model.head.build(width, min(BLOCK, labels - start))
