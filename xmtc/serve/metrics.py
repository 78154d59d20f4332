"""Metrics for Prometheus: counts, times and sizes, but no document content."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The metrics of one server; several may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("xmtc_requests", "Answered requests.", ("route", "status"), registry=self.registry)
        self.seconds = Histogram(
            "xmtc_request_seconds", "Time to answer a request.", ("route",), buckets=_SECONDS, registry=self.registry
        )
        self.batch_texts = Histogram(
            "xmtc_batch_texts", "Texts in a pass through the model.", buckets=_TEXTS, registry=self.registry
        )
        self.batch_seconds = Histogram(
            "xmtc_batch_seconds", "Time of a pass through the model.", buckets=_SECONDS, registry=self.registry
        )
        self.waiting = Gauge("xmtc_queue_texts", "Texts that wait for the model.", registry=self.registry)
        self.refused = Counter("xmtc_refused", "Requests refused because the server is full.", registry=self.registry)

    def page(self) -> bytes:
        """Format the metrics as text for Prometheus."""
        return generate_latest(self.registry)
