"""Settings of the C library's memory allocator, for training on the CPU."""

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

# The names and numbers are those of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4
_TOP_PAD = 64 * 1024**2
_RETURNED = {
    _M_TRIM_THRESHOLD: 128 * 1024,
    _M_TOP_PAD: 128 * 1024,
    _M_MMAP_MAX: 65_536,
    # Unless it is set, glibc raises it to the size of the largest freed block up to 32 MiB, and keeps smaller blocks.
    _M_MMAP_THRESHOLD: 128 * 1024,
}


def keep_freed_memory() -> None:
    """Let the process reuse the memory of freed tensors, as PyTorch's allocator does on a GPU.

    By default glibc returns every large block to the system, so every training step faults in all of its activations
    again. This takes about 40 % of a training step on the CPU (docs/benchmarks/training.md). In exchange, fragmentation
    makes the resident set larger. On systems without glibc nothing changes.
    """
    _set({_M_TRIM_THRESHOLD: -1, _M_MMAP_MAX: 0, _M_TOP_PAD: _TOP_PAD})


def release_freed_memory() -> None:
    """Undo `keep_freed_memory`, give all free memory back to the system, and from now on every large block when freed.

    Tables as large as the label set should be built before freed memory is kept: the holes that their making leaves
    would stay resident. The same holds for weights that are gathered for one layer after the other under ZeRO-3.
    """
    _set(_RETURNED)
    trim = _function_of_glibc("malloc_trim")
    if trim is not None:
        trim(0)
    pa.default_memory_pool().release_unused()  # Arrow has an allocator that keeps freed memory as well


@contextmanager
def freed_memory_returned(*, kept_again: bool) -> Iterator[None]:
    """Work on tables as large as the label set: inside the context, freed memory goes back to the system.

    Args:
        kept_again: call `keep_freed_memory` at the end.
    """
    release_freed_memory()
    try:
        yield
    finally:
        if kept_again:
            keep_freed_memory()


def _set(settings: dict[int, int]) -> None:
    mallopt = _function_of_glibc("mallopt")
    if mallopt is None:
        return
    for name, value in settings.items():
        mallopt(name, value)


def _function_of_glibc(name: str) -> Callable[..., int] | None:
    """Find a function of the C library; None where it has none of this name."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)
