"""How fast a stage runs, what memory it took, and how long it waited for data."""

import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T")

_GIB = 2**30
_SHORTEST_S = 1e-9
"""Stands for an interval of no time where something is divided by it."""
_TERA = 1e12


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a token costs, and what the devices that share the tokens can do.

    Attributes:
        operations_per_token: floating-point operations; 0 if they are not counted.
        workers: devices that share the tokens.
        tflop_per_s: published rate of one device; None if it is unknown.
    """

    operations_per_token: float = 0.0
    workers: int = 1
    tflop_per_s: float | None = None


class Throughput:
    """A meter of one rank. Feed it GLOBAL documents and tokens for the global rate, local ones for this rank's."""

    def __init__(
        self,
        device: torch.device | None = None,
        clock: Callable[[], float] = time.perf_counter,
        work: Work = Work(),
    ):
        self._device = device
        self._clock = clock
        self._work = work
        self._documents = 0
        self._tokens = 0
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
            perf/tokens_per_s, perf/docs_per_s; perf/tflop_per_s of each device, where operations are counted, and its
            share of the device's published rate, perf/mfu, where that is known; mem/peak_gib (host, this process) and,
            on CUDA, mem/cuda_peak_gib; time/data_wait_frac in [0, 1].
        """
        now = self._clock()
        elapsed = max(now - self._since, _SHORTEST_S)
        tokens_per_s = self._tokens / elapsed
        metrics = {
            "perf/tokens_per_s": tokens_per_s,
            "perf/docs_per_s": self._documents / elapsed,
            **self._rates(tokens_per_s),
            "time/data_wait_frac": min(self._waited_s / elapsed, 1.0),
            **memory_peaks(self._device),
        }
        self._documents = 0
        self._tokens = 0
        self._waited_s = 0.0
        self._since = now
        return metrics

    def _rates(self, tokens_per_s: float) -> dict[str, float]:
        """Compute the rate of each device, and its share of the published one."""
        if not self._work.operations_per_token:
            return {}
        tflop_per_s = (
            tokens_per_s * self._work.operations_per_token / self._work.workers / _TERA
        )
        rates = {"perf/tflop_per_s": tflop_per_s}
        if self._work.tflop_per_s is not None:
            rates["perf/mfu"] = tflop_per_s / self._work.tflop_per_s
        return rates


def memory_peaks(device: torch.device | None = None) -> dict[str, float]:
    """Measure `mem/peak_gib`, this process's peak resident memory, and on a CUDA device `mem/cuda_peak_gib`."""
    unit = (
        1 if sys.platform == "darwin" else 1024
    )  # ru_maxrss counts KiB on Linux, bytes on macOS
    peaks = {
        "mem/peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _GIB
    }
    if device is not None and device.type == "cuda":
        peaks["mem/cuda_peak_gib"] = torch.cuda.max_memory_allocated(device) / _GIB
    return peaks
