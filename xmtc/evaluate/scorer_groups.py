"""Groups of labels for which a scorer alone is clearly better than all scorers fused."""

from collections.abc import Mapping, Sequence
from typing import Any

from xmtc.evaluate.summary import percent

_CLEARLY = 0.05
"""Difference of macro-F1 that is called clear: groups of `scorers.json` have no intervals."""


def groups_lost_by_fusion(scorers: Mapping[str, Any]) -> Sequence[str]:
    """Say in which groups of labels the fused score is clearly worse than its best scorer alone.

    Args:
        scorers: content of `scorers.json`: metrics of all scorers (`fused`), and of each `alone`.
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
        if fused is None or not measured:
            continue
        best = max(measured, key=lambda scorer: measured[scorer])
        if measured[best] - fused >= _CLEARLY:
            sentences.append(
                f"labels with {name} training documents: macro-F1 {percent(fused)} of all scorers fused, "
                f"{percent(measured[best])} of {best} alone"
            )
    return sentences
