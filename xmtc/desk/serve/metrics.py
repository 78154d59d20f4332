"""Metrics for Prometheus: counts, times and sizes, but no document content."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from xmtc.data.bins import bin_mask
from xmtc.fusion.config import BINS
from xmtc.predict.predictor import Model
from xmtc.predict.statistics import STATISTICS, of_answers, of_tokens
from xmtc.predict.tokenised import TokenisedTexts

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_SHARES = tuple(step / 10 for step in range(1, 11))
_BUCKETS = {
    "tokens": _TEXTS,
    "bits": tuple(range(4, 21)),
    "predicted": (0, 1, 2, 3, 5, 8, 13, 21),
}
_COSTLY = ("known_words", "nearest")
_MEASURED = {
    name: (title, _BUCKETS.get(name, _SHARES))
    for name, title in STATISTICS.items()
    if name not in _COSTLY
}
"""Statistics that cost almost nothing beside an answer: their titles and buckets."""


def dev_means(model: Model) -> dict[str, float]:
    """Return the mean on dev of each statistic that is measured of texts, as far as the model remembers it."""
    sample = {} if model.profile is None else model.profile.sample
    return {
        name: float(values.mean())
        for name, values in sample.items()
        if name in _MEASURED
    }


class Metrics:
    """The metrics of one server; several may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "xmtc_requests",
            "Answered requests.",
            ("route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "xmtc_request_seconds",
            "Time to answer a request.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.batch_texts = Histogram(
            "xmtc_batch_texts",
            "Texts in a pass through the model.",
            buckets=_TEXTS,
            registry=self.registry,
        )
        self.batch_seconds = Histogram(
            "xmtc_batch_seconds",
            "Time of a pass through the model.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.waiting = Gauge(
            "xmtc_queue_texts", "Texts that wait for the model.", registry=self.registry
        )
        self.refused = Counter(
            "xmtc_refused",
            "Requests refused because the server is full.",
            registry=self.registry,
        )
        self._texts = {
            name: Histogram(
                f"xmtc_text_{name}",
                f"Of a text: {title}.",
                buckets=buckets,
                registry=self.registry,
            )
            for name, (title, buckets) in _MEASURED.items()
        }
        self._predicted = Counter(
            "xmtc_predicted",
            "Predicted labels by bin.",
            ("bin",),
            registry=self.registry,
        )
        self._dev = Gauge(
            "xmtc_text_dev",
            "Mean of a statistic on dev.",
            ("model", "statistic"),
            registry=self.registry,
        )

    def show_dev(self, name: str, means: Mapping[str, float]) -> None:
        """Show what dev was like, with which alerts can compare.

        Args:
            name: name of the model.
            means: see `dev_means`.
        """
        for statistic, mean in means.items():
            self._dev.labels(name, statistic).set(mean)

    def measure(
        self,
        model: Model,
        documents: TokenisedTexts,
        ids_NK: NDArray[np.int32],
        scores_NK: NDArray[np.float32],
    ) -> None:
        """Count the statistics of texts, see `xmtc drift`."""
        found = of_answers(model.decision, ids_NK, scores_NK)
        if model.profile is not None:
            found |= of_tokens(model.profile, documents.ids_N)
        for name, values in found.items():
            for value in values.tolist():
                self._texts[name].observe(value)
        counts = model.labels.train_counts[
            ids_NK[model.decision.chosen(ids_NK, scores_NK)]
        ]
        for name in BINS:
            self._predicted.labels(name).inc(int(bin_mask(name, counts).sum()))

    def page(self) -> bytes:
        """Format the metrics as text for Prometheus."""
        return generate_latest(self.registry)
