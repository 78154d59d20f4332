"""The corpus as one rank reads it: its share of a pass over a split, and batches with or without stored outputs."""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial

import numpy as np
from transformers import PreTrainedTokenizerFast

from xmtc.data.collate import Batch, Collator
from xmtc.data.corpus import Split
from xmtc.data.sampler import MicroBatch, evaluation_batches
from xmtc.stages.hidden_states import ENCODE_TOKENS, HiddenStates


class CorpusBatches:
    """Makes batches of the splits.

    Args:
        tokenizer: tokenizer of the corpus.
        overlap: tokens that neighbouring windows of a long document share.
        seed: chooses the documents of a sample.
        hidden: caches of the untrained encoder's outputs.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        overlap: int,
        seed: int,
        hidden: HiddenStates,
    ) -> None:
        self.tokenizer = tokenizer
        self.overlap = overlap
        self.seed = seed
        self.hidden = hidden

    def collator(
        self, split: Split, *, cached: bool = False, crop: int | None = None
    ) -> Collator:
        """Make the collator of a split; with `cached`, batches contain cached outputs of the untrained encoder.

        With `crop`, they contain random spans of at most so many tokens.

        Collective with `cached`.
        """
        window = self.hidden.classifier.encoder.window
        collate = partial(
            Collator,
            split,
            self.tokenizer,
            window=window,
            overlap=self.overlap,
            crop=crop,
        )
        if not cached:
            return collate()
        return self.hidden.collator(split, collate, self.share(split, ENCODE_TOKENS))

    def share(
        self,
        split: Split,
        tokens: int,
        documents: int | None = None,
        most: int | None = None,
    ) -> Sequence[MicroBatch]:
        """Return this rank's share of a pass over a split, equally many on every rank.

        If they do not divide evenly, some ranks get a batch again with weight 0.

        Args:
            split: the split.
            tokens: maximum number of padded tokens per batch.
            documents: number of documents in the pass, chosen by the seed. Default: all.
            most: maximum number of documents per batch. Default: any number.
        """
        lengths_N = split.lengths
        rows = np.arange(len(lengths_N))
        if documents is not None and documents < len(rows):
            rows = np.sort(
                np.random.default_rng(self.seed).permutation(len(rows))[:documents]
            )
        most = most or len(rows)
        parts = []
        for places in evaluation_batches(lengths_N[rows], tokens):
            rows_of_batch = rows[places]
            for start in range(0, len(rows_of_batch), most):
                parts.append(rows_of_batch[start : start + most])
        rank = self.hidden.strategy.rank
        world = self.hidden.strategy.world_size
        batches = [
            MicroBatch(part, np.ones(len(part), np.float32))
            for part in parts[rank::world]
        ]
        most_of_a_rank = math.ceil(len(parts) / world)
        if len(batches) < most_of_a_rank:
            batches.append(MicroBatch(parts[0], np.zeros(len(parts[0]), np.float32)))
        return batches

    def read(
        self,
        split: Split,
        tokens: int,
        documents: int | None = None,
        *,
        cached: bool = False,
        title: str | None = None,
        skip: int = 0,
    ) -> Iterator[tuple[MicroBatch, Batch]]:
        """Yield this rank's share of a pass with its batches on the device. Collective with `cached`.

        Args:
            split: the split.
            tokens: see `share`.
            documents: see `share`.
            cached: see `collator`.
            title: of a progress bar. Default: none.
            skip: number of batches that are left out, the first ones.
        """
        collate = self.collator(split, cached=cached)
        micro_batches = self.share(split, tokens, documents)[skip:]
        device = self.hidden.strategy.device
        total = sum(len(micro_batch.documents) for micro_batch in micro_batches)
        with (
            self.hidden.progress.task(title, total=total)
            if title
            else nullcontext() as task
        ):
            for micro_batch in micro_batches:
                yield micro_batch, collate(micro_batch).to(device)
                if task is not None:
                    task.advance(len(micro_batch.documents))
