"""How fast a stage runs, what memory it took, and how long it waited for data."""

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import torch

T = TypeVar("T")

_GIB = 2**30


class Throughput:
    """A meter of one rank. Feed it GLOBAL documents and tokens for the global rate, local ones for this rank's."""

    def __init__(self, device: torch.device | None = None, clock: Callable[[], float] = time.perf_counter):
        self._device, self._clock = device, clock
        self._documents = self._tokens = 0
        self._waited_s = 0.0
        self._since = clock()

    def add(self, documents: int, tokens: int) -> None:
        """Count documents and real (not padding) tokens that were processed."""
        self._documents += documents
        self._tokens += tokens

    def watch(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, and count the time to get each one as waiting."""
        start = self._clock()
        for batch in batches:
            self._waited_s += self._clock() - start
            yield batch
            start = self._clock()
        self._waited_s += self._clock() - start

    def read(self) -> dict[str, float]:
        """Return rates and waiting share since the last read, and the memory peaks so far; start a new interval.

        Returns:
            perf/tokens_per_s, perf/docs_per_s; mem/peak_gib (host, this process) and, on CUDA, mem/cuda_peak_gib;
            time/data_wait_frac in [0, 1].
        """
        now = self._clock()
        elapsed = max(now - self._since, 1e-9)
        metrics = {
            "perf/tokens_per_s": self._tokens / elapsed,
            "perf/docs_per_s": self._documents / elapsed,
            "time/data_wait_frac": min(self._waited_s / elapsed, 1.0),
            **memory_peaks(self._device),
        }
        self._documents = self._tokens = 0
        self._waited_s, self._since = 0.0, now
        return metrics


def memory_peaks(device: torch.device | None = None) -> dict[str, float]:
    """Measure `mem/peak_gib`, this process's peak resident memory, and on a CUDA device `mem/cuda_peak_gib`."""
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss counts KiB on Linux, bytes on macOS
    peaks = {"mem/peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _GIB}
    if device is not None and device.type == "cuda":
        peaks["mem/cuda_peak_gib"] = torch.cuda.max_memory_allocated(device) / _GIB
    return peaks
