"""The metrics that a run may be chosen by."""

from xmtc.evaluate.cutoffs import NDCG_AT, PRECISION_AT, PROPENSITY_AT, RECALL_AT

_ANY_TASK = (
    *(f"p@{k}" for k in PRECISION_AT),
    *(f"r@{k}" for k in RECALL_AT),
    "rp@5",
    *(f"ndcg@{k}" for k in NDCG_AT),
    *(f"psp@{k}" for k in PROPENSITY_AT),
    *(f"psndcg@{k}" for k in PROPENSITY_AT),
    "micro_f1",
    "micro_precision",
    "micro_recall",
    "macro_f1",
    "macro_precision",
    "macro_recall",
    "macro_f1_all",
    "macro_f1_harmonic",
    "samples_f1",
    "exact_match",
    "map",
    "coverage",
    "coverage_right",
)
AFTER_TRAINING = ("micro_auc", "macro_auc", "shortlist_recall@5")
"""Not measured after an epoch: areas where every score is computed, the recall where labels are shortlisted."""


def goals(task: str) -> tuple[str, ...]:
    """List the metrics that every evaluation of such a task computes and for which higher is better."""
    return ("accuracy", *_ANY_TASK) if task == "single_label" else _ANY_TASK
