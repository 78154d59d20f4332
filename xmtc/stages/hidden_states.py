"""Caches of the untrained encoder's outputs: computed once, read every epoch, and shared by runs over the same corpus.

Below the corpus, `hidden/<key>/<split>` has the hidden states of all tokens. `pooled/<key>/<split>` has
`FixedPoolings`, which take 1 % of that space, for heads that read nothing else. A run that is interrupted while filling
a cache continues where it was.

Suffixes: B documents, X stored vectors of a document, D width of the encoder.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.config.plain import config_hash, to_plain
from xmtc.data.collate import Batch, Collator
from xmtc.data.config import CacheDtype
from xmtc.data.corpus import Split
from xmtc.data.hidden_cache import HiddenCache, HiddenCacheWriter, cache_bytes
from xmtc.data.sampler import MicroBatch
from xmtc.distributed.collectives import (
    all_gather_object,
    barrier,
    broadcast_object,
    is_leader,
)
from xmtc.distributed.strategy import Strategy
from xmtc.errors import ConfigError, Interrupted
from xmtc.files import locked
from xmtc.models.classifier import Classifier
from xmtc.models.poolings.pooling import FixedPoolings
from xmtc.run.config import RunConfig
from xmtc.run.encoder_use import encoder_use
from xmtc.track.console import print_line
from xmtc.track.progress import Progress
from xmtc.training.interruption import STOP, stop_anywhere

ENCODE_TOKENS = 8192
"""Tokens of a batch that fills a cache, which needs no memory for gradients."""
_FLUSH_S = 30.0
"""Seconds of encoding that a killed run loses at most."""


def cache_key(config: RunConfig, corpus: str, start: str | None) -> str:
    """Hash everything that the untrained encoder's outputs depend on.

    Args:
        config: configuration of the run.
        corpus: fingerprint of the corpus.
        start: digest of the model that training continues from, or None.
    """
    encoder = config.model.encoder
    inputs: list[Any] = [
        corpus,
        to_plain(encoder),
        config.model.overlap,
        config.distributed.precision,
    ]
    if encoder.weights:
        inputs.append(encoder.weights)
    if start is not None:
        inputs.append(start)
    elif not encoder.pretrained:
        inputs.append(config.seed)
    return config_hash(*inputs)


def stored_dtype(config: RunConfig) -> CacheDtype:
    """Return the type of the stored outputs; poolings are small, and standardised."""
    if config.distributed.precision == "bf16" and encoder_use(config).reads_tokens:
        return "bfloat16"
    return "float32"


_Kind = Literal["hidden", "pooled"]
"""What is stored: states of all tokens, or pooled vectors."""


@dataclass(frozen=True)
class HiddenStates:
    """The caches of one encoder over one corpus.

    Attributes:
        corpus: directory of the corpus, on a file system that all ranks share.
        key: see `cache_key`.
        classifier: classifier whose encoder is used.
        strategy: provides rank, device and precision.
        progress: progress bar.
        tokens: whether the run reads the hidden states of all tokens; otherwise their `FixedPoolings`.
        dtype: see `stored_dtype`.
    """

    corpus: Path
    key: str
    classifier: Classifier
    strategy: Strategy
    progress: Progress
    tokens: bool
    dtype: CacheDtype

    def collator(
        self,
        split: Split,
        collate: Callable[..., Collator],
        batches: Sequence[MicroBatch],
    ) -> Collator:
        """Make the collator whose batches contain stored outputs; all ranks first fill what is missing. Collective.

        Args:
            split: the split.
            collate: makes a collator of the split from sources of stored outputs.
            batches: this rank's share of one pass.

        Raises:
            ConfigError: the ranks have separate copies of the corpus.
            DataError: there is not enough disk space.
        """
        if sum(all_gather_object(is_leader(self.corpus))) > 1:
            raise ConfigError(
                "plant.cache_hidden, finetune.cache_hidden: workers on several nodes write hidden states together, but "
                f"every node has its own copy of the corpus, {self.corpus}; set both to false, or storage.cache to a "
                "folder that all nodes share"
            )
        if self.tokens:
            return collate(hidden=self._filled("hidden", split, collate(), batches))
        of_tokens = self._opened(
            "hidden", split, collate()
        )  # another run may have encoded the corpus
        return collate(
            fixed=self._filled("pooled", split, collate(hidden=of_tokens), batches)
        )

    def _folder(self, kind: _Kind, split: Split) -> Path:
        return self.corpus / kind / self.key / split.name

    def _filled(
        self,
        kind: _Kind,
        split: Split,
        collate: Collator,
        batches: Sequence[MicroBatch],
    ) -> HiddenCache:
        """Open a cache; if it does not exist, all ranks fill it together."""
        folder = self._folder(kind, split)
        is_first = self.strategy.rank == 0
        with (
            locked(folder) if is_first else nullcontext()
        ):  # another run over this corpus may be filling it
            exists = is_first and self._opened(kind, split, collate) is not None
            if not broadcast_object(exists):
                self._fill(folder, split, collate, batches)
            barrier()
        cache = self._opened(kind, split, collate)
        assert cache is not None  # rank 0 has found or just published it
        return cache

    def _fill(
        self,
        folder: Path,
        split: Split,
        collate: Collator,
        batches: Sequence[MicroBatch],
    ) -> None:
        first = self.strategy.rank == 0
        width = self.classifier.encoder.width
        lengths = self._lengths(
            "hidden" if self.tokens else "pooled", split, collate.special_tokens
        )
        if first:
            size = cache_bytes(lengths, width, self.dtype) / 2**20
            print_line(f"hidden states of {split.name}: {size:,.0f} MiB on disk")
        else:
            barrier()
        writer = HiddenCacheWriter(
            folder,
            self.key,
            lengths=lengths,
            width=width,
            dtype=self.dtype,
            create=first,
        )
        if first:
            barrier()
        missing = _missing(batches, writer)
        flushed_s = time.monotonic()
        if first and len(missing) < len(batches):
            print_line(
                f"encode {split.name}: {1 - len(missing) / len(batches):.0%} is on disk from an interrupted run"
            )
        with self.progress.task(
            f"encode {split.name}", total=sum(len(b.documents) for b in missing)
        ) as task:
            for micro_batch in missing:
                self._encode(micro_batch, writer, collate)
                stopping = stop_anywhere()
                if stopping or time.monotonic() - flushed_s > _FLUSH_S:
                    writer.flush()
                    flushed_s = time.monotonic()
                if stopping:
                    raise Interrupted(
                        f"encoding {split.name} stopped; what is encoded is on disk",
                        STOP.number,
                    )
                task.advance(len(micro_batch.documents))
        writer.flush()
        barrier()
        if first:
            writer.publish()

    def _opened(
        self, kind: _Kind, split: Split, collate: Collator
    ) -> HiddenCache | None:
        lengths = self._lengths(kind, split, collate.special_tokens)
        width = self.classifier.encoder.width
        return HiddenCache.open(self._folder(kind, split), self.key, lengths, width)

    def _lengths(
        self, kind: _Kind, split: Split, special_tokens: int
    ) -> NDArray[np.int64]:
        """Return the number of stored vectors per document."""
        if kind == "hidden":
            return split.lengths.astype(np.int64) + special_tokens
        return np.full(len(split), FixedPoolings.count, np.int64)

    @torch.inference_mode()
    def _encode(
        self, micro_batch: MicroBatch, writer: HiddenCacheWriter, collate: Collator
    ) -> None:
        batch = collate(micro_batch).to(self.strategy.device)
        self.classifier.eval()
        with self.strategy.autocast():
            vectors_BXD, mask_BX = self._vectors(batch)
        writer.write(micro_batch.documents, vectors_BXD, mask_BX)

    def _vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Compute the vectors to store for a batch, (B, X, D), and their mask, (B, X)."""
        if self.tokens:
            return self.classifier.encode(batch), batch.mask_BT
        fixed_BXD = self.classifier.pool(batch)
        return fixed_BXD, torch.ones(fixed_BXD.shape[:2], dtype=torch.bool)


def _missing(
    batches: Sequence[MicroBatch], writer: HiddenCacheWriter
) -> list[MicroBatch]:
    """Select the batches to encode, equally many on every rank: encoding may be collective. Collective."""
    is_written = [writer.has(micro_batch.documents) for micro_batch in batches]
    missing = []
    for micro_batch, written_by_rank in zip(
        batches, zip(*all_gather_object(is_written), strict=True), strict=True
    ):
        if not all(written_by_rank):
            missing.append(micro_batch)
    return missing
