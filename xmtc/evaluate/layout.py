"""The files of an evaluation's folder, `eval/<split>/` of a run."""

METRICS = "metrics.json"
PER_LABEL = "per_label.parquet"
PREDICTIONS = "predictions.parquet"
DOCUMENTS = "documents.parquet"
REPLICATES = "replicates.parquet"
DETAILS = "details.json"
SUMMARY = "summary.md"
REPORT = "report.html"
SCORERS = "scorers.json"
PER_LABEL_CSV = "per_label.csv"
BEFORE_METRICS = frozenset(
    (PER_LABEL, PER_LABEL_CSV, DOCUMENTS, REPLICATES, DETAILS, SUMMARY)
)
"""Written before the metrics, which say that an evaluation is complete."""
SCORES = "_manifest.json"
"""Says which parts the output of `xmtc score` has; readers of Parquet folders pass over names with an underscore."""
