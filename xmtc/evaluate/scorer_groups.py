"""Which groups of labels are large enough to be compared, and for which a scorer alone is clearly better than all."""

from collections.abc import Mapping, Sequence
from typing import Any

from xmtc.evaluate.summary import percent

FEWEST_LABELS = 10
FEWEST_DOCUMENTS = 30
"""Labels and documents from which the interval of a group is believed, and groups are compared."""
_CLEARLY = 0.05
"""Difference of macro-F1 that is called clear: groups of `scorers.json` have no intervals."""


def is_judged(group: Mapping[str, Any]) -> bool:
    """Whether a group of labels has enough labels and documents to say something of it.

    Args:
        group: its number of `labels` that occur in the documents, and of `docs` that have one of them.
    """
    return group["labels"] >= FEWEST_LABELS and group["docs"] >= FEWEST_DOCUMENTS


def groups_lost_by_fusion(scorers: Mapping[str, Any]) -> Sequence[str]:
    """Say in which groups of labels the fused score is clearly worse than the best scorer alone.

    Small groups are left out: chance explains their differences.

    Args:
        scorers: content of `scorers.json`: metrics of all scorers (`fused`), of each `alone`, and sizes of `groups`.
    """
    sentences = []
    for name, fused in scorers["fused"]["bins"].items():
        alone = {
            scorer: metrics["bins"].get(name)
            for scorer, metrics in scorers["alone"].items()
        }
        measured = {
            scorer: value for scorer, value in alone.items() if value is not None
        }
        size = scorers.get("groups", {}).get(name)
        if fused is None or not measured or size is None or not is_judged(size):
            continue
        best = max(measured, key=lambda scorer: measured[scorer])
        if measured[best] - fused >= _CLEARLY:
            sentences.append(
                f"labels with {name} training documents: macro-F1 {percent(fused)} of all scorers fused, "
                f"{percent(measured[best])} of {best} alone"
            )
    return sentences
