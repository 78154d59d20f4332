"""What the page calls metrics and labels."""

from collections.abc import Iterable

HEADLINE = {
    "p@1": "P@1",
    "p@3": "P@3",
    "p@5": "P@5",
    "p@8": "P@8",
    "r@5": "R@5",
    "r@10": "R@10",
    "rp@5": "RP@5",
    "ndcg@5": "nDCG@5",
    "psp@1": "PSP@1",
    "psp@3": "PSP@3",
    "psp@5": "PSP@5",
    "psndcg@5": "PSnDCG@5",
    "micro_f1": "micro-F1",
    "micro_precision": "micro-precision",
    "micro_recall": "micro-recall",
    "macro_precision": "macro-precision",
    "macro_recall": "macro-recall",
    "macro_f1": "macro-F1 (labels present)",
    "macro_f1_all": "macro-F1 (all labels)",
    "macro_f1_harmonic": "harmonic mean of macro-P and macro-R",
    "samples_f1": "samples-F1",
    "exact_match": "exact match",
    "accuracy": "accuracy = micro-F1",
    "map": "mean average precision",
    "micro_auc": "micro-AUC",
    "macro_auc": "macro-AUC",
    "coverage": "coverage (labels ever predicted)",
    "shortlist_recall@5": "share of the best five labels that the shortlist holds",
    "ece": "expected calibration error",
    "ece_uncalibrated": "expected calibration error before calibration",
}
# of labels that exclude each other: the others are the accuracy by another name, or a constant
ONE_LABEL = (
    "accuracy",
    "macro_f1",
    "macro_f1_all",
    "macro_precision",
    "macro_recall",
    "macro_auc",
    "coverage",
    "ece",
)
BIN_COLUMNS = {
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "recall": "recall",
    "ndcg@5": "nDCG@5",
    "r@10": "R@10",
}
BIN_COLUMNS_ONE_LABEL = {key: BIN_COLUMNS[key] for key in ("macro_f1", "micro_f1", "recall")}


def label_title(label: str, name: str) -> str:
    """Return a label with its name, if it has one."""
    return label if name == label else f"{label} ({name})"


def union(names: Iterable[Iterable[str]]) -> list[str]:
    """List every name once, in the order in which they first occur."""
    return list(dict.fromkeys(name for group in names for name in group))
