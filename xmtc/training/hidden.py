"""Cache a frozen encoder's outputs: computed once, read every epoch, and shared by runs over the same corpus.

For heads that read tokens, these are the hidden states of all tokens. For other heads, `FixedPoolings` take 1 % of that
space. A run that is interrupted while it fills a cache continues where it was.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.data.collate import Batch, Collator
from xmtc.data.config import CacheDtype
from xmtc.data.corpus import Split
from xmtc.data.hidden_cache import HiddenCache, HiddenCacheWriter, cache_bytes
from xmtc.data.progress import Progress
from xmtc.data.sampler import MicroBatch
from xmtc.distributed.collectives import all_gather_object, barrier, broadcast_object
from xmtc.distributed.strategy import Strategy
from xmtc.files import locked
from xmtc.models.classifier import Classifier
from xmtc.models.poolings.pooling import FixedPoolings
from xmtc.track.console import print_line

_FLUSH_S = 30.0  # seconds of encoding that a killed run loses at most


@dataclass(frozen=True)
class Encoding:
    """How documents are encoded.

    Attributes:
        classifier: classifier whose encoder is used.
        strategy: provides rank, device and precision.
        dtype: type of the stored states.
        progress: progress bar.
        tokens: whether to keep the hidden states of all tokens; otherwise their `FixedPoolings`.
    """

    classifier: Classifier
    strategy: Strategy
    dtype: CacheDtype
    progress: Progress
    tokens: bool

    def lengths(self, split: Split, special_tokens: int) -> NDArray[np.int64]:
        """Return the number of stored vectors per document."""
        if self.tokens:
            return split.lengths.astype(np.int64) + special_tokens
        return np.full(len(split), FixedPoolings.count, np.int64)

    def vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the vectors to store for a batch, (B, X, D), and their mask, (B, X)."""
        if self.tokens:
            return self.classifier.encode(batch), batch.mask_BT
        fixed_BKD = self.classifier.pool(batch)
        return fixed_BKD, torch.ones(fixed_BKD.shape[:2], dtype=torch.bool)


def open_hidden(
    directory: Path,
    fingerprint: str,
    split: Split,
    collate: Collator,
    batches: Sequence[MicroBatch],
    encoding: Encoding,
) -> HiddenCache:
    """Open the cache of a split's hidden states; if it does not exist, all ranks fill it together. Collective.

    Args:
        directory: directory of the cache, on a file system that all ranks share.
        fingerprint: fingerprint of everything that hidden states depend on.
        split: the split.
        collate: makes batches of the split without a cache.
        batches: this rank's share of one pass.
        encoding: see `Encoding`.

    Raises:
        DataError: there is not enough disk space.
    """
    first = encoding.strategy.rank == 0
    with locked(directory) if first else nullcontext():  # another run over this corpus may be filling it
        if not broadcast_object(HiddenCache.open(directory, fingerprint) is not None if first else None):
            _fill(directory, fingerprint, split, collate, batches, encoding)
        barrier()
    cache = HiddenCache.open(directory, fingerprint)
    assert cache is not None  # rank 0 has found or just published it
    return cache


def _fill(
    directory: Path,
    fingerprint: str,
    split: Split,
    collate: Collator,
    batches: Sequence[MicroBatch],
    encoding: Encoding,
) -> None:
    first, dtype = encoding.strategy.rank == 0, encoding.dtype
    lengths, width = encoding.lengths(split, collate.special_tokens), encoding.classifier.encoder.width
    if first:
        print_line(f"hidden states of {split.name}: {cache_bytes(lengths, width, dtype) / 2**20:,.0f} MiB on disk")
    else:
        barrier()
    writer = HiddenCacheWriter(directory, fingerprint, lengths=lengths, width=width, dtype=dtype, create=first)
    if first:
        barrier()
    missing, flushed_s = _missing(batches, writer), time.monotonic()
    if first and len(missing) < len(batches):
        print_line(f"encode {split.name}: {1 - len(missing) / len(batches):.0%} is on disk from an interrupted run")
    with encoding.progress.task(f"encode {split.name}", total=sum(len(b.documents) for b in missing)) as task:
        for micro_batch in missing:
            _encode(micro_batch, writer, collate, encoding)
            if time.monotonic() - flushed_s > _FLUSH_S:
                writer.flush()
                flushed_s = time.monotonic()
            task.advance(len(micro_batch.documents))
    writer.flush()
    barrier()
    if first:
        writer.publish()


def _missing(batches: Sequence[MicroBatch], writer: HiddenCacheWriter) -> list[MicroBatch]:
    """Select the batches to encode, equally many on every rank: encoding may be collective. Collective."""
    done = [writer.has(one.documents) for one in batches]
    everywhere = map(all, zip(*all_gather_object(done), strict=True))
    return [one for one, skipped in zip(batches, everywhere, strict=True) if not skipped]


@torch.inference_mode()
def _encode(micro_batch: MicroBatch, writer: HiddenCacheWriter, collate: Collator, encoding: Encoding) -> None:
    batch = collate(micro_batch).to(encoding.strategy.device)
    encoding.classifier.eval()
    with encoding.strategy.autocast():
        vectors_BXD, mask_BX = encoding.vectors(batch)
    writer.write(micro_batch.documents, vectors_BXD, mask_BX)
