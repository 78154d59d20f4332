"""Convert document indices to the tensors that a model reads.

Suffixes: B documents, T document tokens (padded), W windows, U window tokens (padded), P (document, label) pairs,
D hidden width, K fixed poolings.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from xmtc.data.documents import Documents
from xmtc.data.hidden_cache import HiddenCache
from xmtc.data.sampler import MicroBatch
from xmtc.data.tokenizer import special_tokens
from xmtc.data.windows import Cut, cut
from xmtc.errors import ConfigError


@dataclass(frozen=True)
class Batch:
    """B documents, cut into W >= B windows that fit the backbone, with the positions that join them again.

    A document's tokens are: special prefix ([CLS], <s>), content, special suffix ([SEP]). A document longer than a
    window is cut into overlapping windows, each with special tokens. One (window, position) represents each token of
    the document: the one farthest from its window's edges.

    Attributes:
        documents_B: int64, row in the split.
        token_ids_BT: int64, the document's tokens; `mask_BT` bool, False on padding.
        input_ids_WU: int64, the windows' tokens; `attention_mask_WU` bool.
        position_BT: int64, index into the flattened (W·U) windows for every document token (0 on padding), or None
            if each document is one window.
        rows_P, labels_P: int64, the positive pairs: document in the batch, label id.
        unjudged_rows_J, unjudged_labels_J: int64, the pairs of a document and a label that nobody judged; None if there
            are none.
        weight_B: float32, 0 for a filler document (see `xmtc.data.sampler`), otherwise 1.
        hidden_BTD: hidden states read from a cache instead of running the backbone, or None.
        fixed_BKD: poolings of the hidden states (`FixedPoolings`) read from a cache, or None.
        original: the batch on the CPU from which this one was copied, or None for that batch itself.
    """

    documents_B: Tensor
    token_ids_BT: Tensor
    mask_BT: Tensor
    input_ids_WU: Tensor
    attention_mask_WU: Tensor
    position_BT: Tensor | None
    rows_P: Tensor
    labels_P: Tensor
    weight_B: Tensor
    hidden_BTD: Tensor | None = None
    fixed_BKD: Tensor | None = None
    unjudged_rows_J: Tensor | None = None
    unjudged_labels_J: Tensor | None = None
    original: "Batch | None" = None

    @property
    def on_host(self) -> "Batch":
        """The batch on the CPU: reading a value there does not wait for a device."""
        return self.original or self

    @property
    def max_labels(self) -> int:
        """The number of labels of the document that has most, without waiting for a device."""
        rows_P = self.on_host.rows_P
        return int(rows_P.bincount().max()) if len(rows_P) else 0

    def to(self, device: torch.device | str) -> "Batch":
        """Copy the batch to `device`."""
        moved: dict[str, Tensor] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                moved[field.name] = value.to(device, non_blocking=True)
        return replace(self, **moved, original=self.on_host)


class Collator:
    """Makes batches of a split.

    Args:
        documents: source of the batches.
        tokenizer: provides the special tokens around a text, and the padding token.
        window: most tokens of a window, special tokens included.
        overlap: tokens that neighbouring windows of a long document share.
        hidden: stored hidden states to read instead of running the backbone.
        fixed: stored poolings of the hidden states.
        crop: maximum number of content tokens; of a longer document, a random span is read. Default: all.

    Raises:
        ConfigError: the overlap does not fit in a window.
    """

    def __init__(
        self,
        documents: Documents,
        tokenizer: PreTrainedTokenizerBase,
        *,
        window: int,
        overlap: int,
        hidden: HiddenCache | None = None,
        fixed: HiddenCache | None = None,
        crop: int | None = None,
    ):
        prefix, suffix = special_tokens(tokenizer)
        self._prefix = np.array(prefix, dtype=np.int32)
        self._suffix = np.array(suffix, dtype=np.int32)
        self._capacity = window - len(prefix) - len(suffix)
        self._overlap = overlap
        if not 0 <= overlap < self._capacity:
            raise ConfigError(
                f"windows of {window} tokens hold {self._capacity} without special tokens, but overlap by {overlap}: "
                "the overlap must be less"
            )
        self._documents = documents
        self._hidden = hidden
        self._fixed = fixed
        self._crop = crop
        # Padding is masked everywhere, so any id works if the tokenizer has no padding token.
        self._pad = (
            int(tokenizer.pad_token_id)
            if isinstance(tokenizer.pad_token_id, int)
            else 0
        )

    @property
    def special_tokens(self) -> int:
        """Special tokens that every document has in addition to its content."""
        return len(self._prefix) + len(self._suffix)

    def __call__(self, batch: MicroBatch, seed: int = 0) -> Batch:
        """Make the batch of these documents, on the CPU; `seed` determines the spans."""
        contents = [
            self._documents.tokens(int(document)) for document in batch.documents
        ]
        if self._crop is not None:
            contents = _random_spans(contents, self._crop, seed)
        cuts = [
            cut(
                len(content),
                self._capacity,
                self._overlap,
                len(self._prefix),
                len(self._suffix),
            )
            for content in contents
        ]
        token_ids_BT, mask_BT = self._pad_rows(
            [self._wrapped(content) for content in contents]
        )
        longest = mask_BT.shape[1]
        fits_in_windows = all(len(document.starts_W) == 1 for document in cuts)
        if fits_in_windows:
            input_ids_WU, attention_mask_WU, position_BT = token_ids_BT, mask_BT, None
        else:
            input_ids_WU, attention_mask_WU = self._windows(contents, cuts)
            position_BT = _positions(cuts, longest, input_ids_WU.shape[1])
        rows_P, labels_P = _pairs(
            [self._documents.label_ids(int(document)) for document in batch.documents]
        )
        unjudged = [
            self._documents.unjudged_ids(int(document)) for document in batch.documents
        ]
        unjudged_rows_J, unjudged_labels_J = (
            _pairs(unjudged) if any(map(len, unjudged)) else (None, None)
        )
        hidden_BTD = None
        if self._hidden is not None:
            hidden_BTD = _stack(self._hidden.read(batch.documents), longest)
        fixed_BKD = None
        if self._fixed is not None:
            fixed_BKD = torch.stack(self._fixed.read(batch.documents))
        return Batch(
            documents_B=torch.from_numpy(np.array(batch.documents, dtype=np.int64)),
            token_ids_BT=token_ids_BT,
            mask_BT=mask_BT,
            input_ids_WU=input_ids_WU,
            attention_mask_WU=attention_mask_WU,
            position_BT=position_BT,
            rows_P=rows_P,
            labels_P=labels_P,
            weight_B=torch.from_numpy(np.array(batch.weights, dtype=np.float32)),
            hidden_BTD=hidden_BTD,
            fixed_BKD=fixed_BKD,
            unjudged_rows_J=unjudged_rows_J,
            unjudged_labels_J=unjudged_labels_J,
        )

    def _wrapped(self, content: NDArray[np.int32]) -> NDArray[np.int32]:
        """Put the special tokens around a content."""
        return np.concatenate([self._prefix, content, self._suffix])

    def _pad_rows(self, rows: list[NDArray[np.int32]]) -> tuple[Tensor, Tensor]:
        """Pad to ids, int64, and mask, bool, both (rows, longest)."""
        lengths = np.array([len(row) for row in rows])
        mask = np.arange(lengths.max())[None] < lengths[:, None]
        ids = np.full(mask.shape, self._pad, dtype=np.int64)
        ids[mask] = np.concatenate(rows)
        return torch.from_numpy(ids), torch.from_numpy(mask)

    def _windows(
        self, contents: list[NDArray[np.int32]], cuts: list[Cut]
    ) -> tuple[Tensor, Tensor]:
        """Make the windows of all documents: token ids and mask, both (W, U)."""
        windows: list[NDArray[np.int32]] = []
        for content, document_cut in zip(contents, cuts, strict=True):
            starts = document_cut.starts_W
            windows += [
                self._wrapped(content[start : start + document_cut.length])
                for start in starts
            ]
        return self._pad_rows(windows)


def _pairs(label_ids: list[NDArray[np.int32]]) -> tuple[Tensor, Tensor]:
    """List the pairs of documents with their labels: places in the batch, and label ids, both (P,)."""
    counts = [len(document_labels) for document_labels in label_ids]
    rows_P = np.repeat(np.arange(len(label_ids), dtype=np.int64), counts)
    labels_P = np.concatenate(label_ids).astype(np.int64)
    return torch.from_numpy(rows_P), torch.from_numpy(labels_P)


def _random_spans(
    contents: list[NDArray[np.int32]], length: int, seed: int
) -> list[NDArray[np.int32]]:
    """Cut each longer content to a span of `length` tokens that begins anywhere."""
    possible_starts = [max(len(content) - length, 0) + 1 for content in contents]
    starts = np.random.default_rng(seed).integers(possible_starts)
    return [
        content[start : start + length]
        for content, start in zip(contents, starts, strict=True)
    ]


def _positions(cuts: list[Cut], longest: int, window_width: int) -> Tensor:
    """Compute each token's index (B, T) int64 into the flattened windows, 0 on padding."""
    position_BT = np.zeros((len(cuts), longest), dtype=np.int64)
    first_window = 0
    for row, document in enumerate(cuts):
        window_T = first_window + document.window_T
        position_BT[row, : len(window_T)] = window_T * window_width + document.offset_T
        first_window += len(document.starts_W)
    return torch.from_numpy(position_BT)


def _stack(hidden: list[Tensor], longest: int) -> Tensor:
    """Stack hidden states to (B, T, D), zero on padding."""
    width = hidden[0].shape[-1]
    hidden_BTD = hidden[0].new_zeros(len(hidden), longest, width)
    for row, hidden_TD in enumerate(hidden):
        hidden_BTD[row, : len(hidden_TD)] = hidden_TD
    return hidden_BTD
