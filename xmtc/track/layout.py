"""The name of the file that training logs to."""

METRICS_LOG = "metrics.jsonl"
