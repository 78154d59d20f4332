"""Store the hidden states of a frozen backbone on disk: encode once, read in every epoch.

Suffixes: B documents, T tokens of a document (special ones included, padded), D width, N documents of the split.
"""

import json
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor

from xmtc.data.config import CacheDtype
from xmtc.errors import DataError, TrainingError
from xmtc.files import publish_directory

logger = logging.getLogger(__name__)

_TORCH_TYPES: dict[CacheDtype, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}
# NumPy has no bfloat16, so its bits are stored as integers.
_NUMPY_TYPES: dict[CacheDtype, type] = {"bfloat16": np.int16, "float32": np.float32}

_STATES = "hidden.bin"
_WRITTEN = "written.bin"
"""Which documents are on the disk: a byte for each."""
_META = "meta.json"
"""What a finished cache holds."""
_STARTED = "started.json"
"""The same of an unfinished one, written when the other files had their full size."""


@dataclass(frozen=True)
class _Finished:
    """The content of `meta.json`."""

    fingerprint: str
    lengths: list[int]
    width: int
    dtype: CacheDtype


_FINISHED = TypeAdapter(_Finished)


def cache_bytes(lengths: NDArray[np.integer], width: int, dtype: CacheDtype) -> int:
    """Compute the bytes that a cache takes on disk. Runs report this before they write it.

    Args:
        lengths: (N,) tokens per document, special ones included.
        width: D.
        dtype: type of the stored states.
    """
    tokens = int(np.asarray(lengths, dtype=np.int64).sum())
    return tokens * width * np.dtype(_NUMPY_TYPES[dtype]).itemsize


class HiddenCache:
    """The finished hidden states of a split.

    Attributes:
        width: D.
        dtype: type of the stored states.
    """

    def __init__(
        self, states_XD: NDArray, offsets: NDArray[np.int64], dtype: CacheDtype
    ):
        self._states_XD = states_XD
        self._offsets = offsets
        self.dtype: CacheDtype = dtype
        self.width: int = states_XD.shape[1]

    @staticmethod
    def open(
        directory: str | Path,
        fingerprint: str,
        lengths: NDArray[np.integer],
        width: int,
    ) -> "HiddenCache | None":
        """Open a finished cache.

        Args:
            directory: its folder.
            fingerprint: see `HiddenCacheWriter`.
            lengths: (N,) what the cache must hold of each document.
            width: D.

        Returns:
            None if it is missing, damaged or of other states.
        """
        root = Path(directory)
        meta_path = root / _META
        if not meta_path.is_file():
            return None
        try:
            meta = _FINISHED.validate_json(meta_path.read_bytes())
        except ValueError:  # the machine failed before the file was on disk
            logger.warning(
                "%s: damaged; xmtc computes the hidden states again", meta_path
            )
            return None
        if meta.fingerprint != fingerprint:
            return None
        states_path = root / _STATES
        if (
            (meta.width, meta.lengths) != (width, np.asarray(lengths).tolist())
            or not states_path.is_file()
            or states_path.stat().st_size != cache_bytes(lengths, width, meta.dtype)
        ):
            logger.warning(
                "%s: damaged; xmtc computes the hidden states again", states_path
            )
            return None
        offsets = _offsets(np.asarray(lengths, np.int64))
        states_XD = _map(states_path, int(offsets[-1]), width, meta.dtype, "r")
        return HiddenCache(states_XD, offsets, meta.dtype)

    def read(self, documents: NDArray[np.int64]) -> list[Tensor]:
        """Copy the states of each document to the CPU: (T, D) in the stored dtype, without padding."""
        states: list[Tensor] = []
        for document in documents:
            start, end = self._offsets[document], self._offsets[document + 1]
            copied_TD = np.array(self._states_XD[start:end])
            states.append(torch.from_numpy(copied_TD).view(_TORCH_TYPES[self.dtype]))
        return states


class HiddenCacheWriter:
    """Writes a cache to a temporary directory. `publish` moves it to its destination.

    If several ranks share a file system, rank 0 creates the writer. After a barrier, the others join with
    `create=False`. After a second barrier, rank 0 publishes. What an interrupted writer of the same cache has flushed
    is kept, see `has`.

    Args:
        directory: destination of the cache.
        fingerprint: hash of everything that changes the states: corpus, backbone, windows, dtype.
        lengths: (N,) tokens per document, special ones included.
        width: D.
        dtype: type of the stored states.
        create: whether to create the directory; False joins a writer of another process.

    Raises:
        DataError: the disk has no room for the whole cache, which is reserved in advance.
    """

    def __init__(
        self,
        directory: str | Path,
        fingerprint: str,
        *,
        lengths: NDArray[np.integer] | Sequence[int],
        width: int,
        dtype: CacheDtype,
        create: bool = True,
    ):
        self._directory = Path(directory)
        self._dtype: CacheDtype = dtype
        self._work = self._directory.parent / f".{self._directory.name}.unfinished"
        per_document = np.asarray(lengths, dtype=np.int64)
        self._offsets = _offsets(per_document)
        self._meta = json.dumps(
            asdict(_Finished(fingerprint, per_document.tolist(), width, dtype))
        )
        if create and not self._resumes():
            shutil.rmtree(self._work, ignore_errors=True)
            self._work.mkdir(parents=True)
            _reserve(self._work / _STATES, cache_bytes(per_document, width, dtype))
            _reserve(self._work / _WRITTEN, len(per_document))
            (self._work / _STARTED).write_text(self._meta, encoding="utf-8")
        self._states_XD = _map(
            self._work / _STATES, int(self._offsets[-1]), width, dtype, "r+"
        )
        self._written = np.memmap(
            self._work / _WRITTEN, dtype=np.uint8, mode="r+", shape=(len(per_document),)
        )
        self._unflushed: list[NDArray[np.int64]] = []

    def _resumes(self) -> bool:
        """Whether an interrupted writer has left a directory for exactly this cache."""
        started = self._work / _STARTED
        return (
            started.is_file()
            and started.read_text(encoding="utf-8", errors="replace") == self._meta
        )

    def has(self, documents: NDArray[np.int64]) -> bool:
        """Whether the states of all these documents have been flushed."""
        return bool(self._written[documents].all())

    def write(
        self, documents: NDArray[np.int64] | Tensor, hidden_BTD: Tensor, mask_BT: Tensor
    ) -> None:
        """Store the states of B documents without their padding.

        Raises:
            TrainingError: a state is not finite.
        """
        hidden_XD = hidden_BTD.detach()[mask_BT].to(_TORCH_TYPES[self._dtype]).cpu()
        if not torch.isfinite(hidden_XD).all():
            raise TrainingError(
                f"hidden states are not finite as {self._dtype}; check the weights of the encoder, or set "
                "distributed.precision to fp32"
            )
        if self._dtype == "bfloat16":
            hidden_XD = hidden_XD.view(torch.int16)
        ends = np.cumsum(mask_BT.sum(dim=1).cpu().numpy())
        states_by_document = np.split(hidden_XD.numpy(), ends[:-1])
        rows = np.asarray(documents, np.int64)
        for document, states_TD in zip(rows, states_by_document, strict=True):
            start, end = self._offsets[document], self._offsets[document + 1]
            if len(states_TD) != end - start:
                raise ValueError(
                    f"document {document}: {len(states_TD)} states for {end - start} tokens"
                )
            self._states_XD[start:end] = states_TD
        self._unflushed.append(rows)

    def flush(self) -> None:
        """Force what was written to disk, then mark it as written: a later writer of this cache does not repeat it."""
        self._states_XD.flush()
        for rows in self._unflushed:
            self._written[rows] = 1
        self._unflushed = []
        self._written.flush()

    def publish(self) -> None:
        """Move the finished cache to its destination.

        Raises:
            TrainingError: a document has no states.
        """
        self.flush()
        missing = int((self._written == 0).sum())
        if missing:
            raise TrainingError(
                f"{missing} of {len(self._written)} documents have no hidden states"
            )
        (self._work / _STARTED).rename(self._work / _META)
        publish_directory(self._work, self._directory)


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Compute where each document begins, and where the last one ends: (N + 1,)."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _map(
    path: Path, tokens: int, width: int, dtype: CacheDtype, mode: Literal["r", "r+"]
) -> np.memmap:
    return np.memmap(path, dtype=_NUMPY_TYPES[dtype], mode=mode, shape=(tokens, width))


def _reserve(path: Path, size: int) -> None:
    """Reserve the disk space now: a memory-mapped write to a full disk kills the process with a signal."""
    try:
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        shutil.rmtree(path.parent, ignore_errors=True)
        free = shutil.disk_usage(path.parent.parent).free
        raise DataError(
            f"{path.parent}: no room for {size / 2**30:.1f} GiB of hidden states ({free / 2**30:.1f} GiB free): "
            f"{error.strerror}; free space, set plant.cache_hidden and finetune.cache_hidden to false, or put "
            "data.corpus on another disk"
        ) from error
