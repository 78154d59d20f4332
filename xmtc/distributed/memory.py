"""How the C library hands out memory on the CPU."""

import ctypes
import sys

# The names and numbers are those of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4
_TOP_PAD = 64 * 1024**2


def keep_freed_memory() -> bool:
    """Let the process keep memory that tensors free, for the next ones, as PyTorch's allocator does on a GPU.

    By default glibc gives every large block back to the system, and every step of training faults all of its
    activations in again: about 40 % of a training step on the CPU (docs/benchmarks/training.md). The price is a higher
    resident set, by what fragmentation costs.

    Returns:
        Whether the C library took the settings; on systems without glibc nothing changes.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = {_M_TRIM_THRESHOLD: -1, _M_MMAP_MAX: 0, _M_TOP_PAD: _TOP_PAD}
    return all(mallopt(name, value) == 1 for name, value in settings.items())
