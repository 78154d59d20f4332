"""Filters for the labels that may be predicted, by name or by branch of the hierarchy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xmtc.data.labels import LabelTable
from xmtc.errors import DataError
from xmtc.predict.arguments import as_labels

BRANCH = "branch:"
"""`branch:LABEL` means the label and all its descendants."""
_CANDIDATES = 1000

Threshold = float | str | None
"""Minimum probability at which a label is kept; or `tuned`, the model's decision, or the rule of another one."""


@dataclass(frozen=True)
class LabelFilter:
    """The labels that may be predicted. A filter hides labels; it does not change the scores of the others.

    There is one exception: a model of fused scorers also scores included labels that no scorer proposes. This may
    change the ranks of other candidates, which are part of a fused score.

    Attributes:
        allowed: ids of the labels that may be predicted, ascending.
        candidates: ids that fused scorers always score: the included labels, if there are at most 1,000.
    """

    allowed: NDArray[np.int64]
    candidates: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        labels: LabelTable,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        candidates: Sequence[str] = (),
    ) -> "LabelFilter | None":
        """Make the filter for these labels; None if all labels may be predicted, and none is always scored.

        Args:
            labels: labels of the model.
            include: labels and branches that may be predicted; None: all.
            exclude: labels and branches that may not be predicted, even if they are included.
            candidates: labels that fused scorers always score, beside the included ones.

        Raises:
            DataError: the model has no such label or branch, or no label is left; names it.
        """
        included = None if include is None else as_labels(include)
        excluded = as_labels(exclude)
        if included is None and not excluded and not candidates:
            return None
        allowed_L = np.full(len(labels), included is None)
        for entry in included or ():
            allowed_L[_ids(labels, entry, "include")] = True
        for entry in excluded:
            allowed_L[_ids(labels, entry, "exclude")] = False
        allowed = np.flatnonzero(allowed_L)
        if not len(allowed):
            raise DataError(
                "include and exclude leave no label: include more labels or exclude fewer"
            )
        always = labels.indices(candidates).astype(np.int64)
        if included is not None and len(allowed) <= _CANDIDATES:
            always = np.union1d(always, allowed)
        return cls(allowed, always)


def _ids(labels: LabelTable, entry: str, option: str) -> NDArray[np.int32]:
    """Find the ids that an entry means. A label that is itself called `branch:…` takes precedence."""
    if entry in labels:
        return labels.indices([entry])
    if not entry.startswith(BRANCH):
        raise DataError(f"{option}: {labels.unknown(entry)}; correct it")
    if labels.parents is None:
        raise DataError(
            f"{option}: {entry}: the model's labels have no hierarchy; name the labels one by one"
        )
    branch = labels.branch(entry.removeprefix(BRANCH))
    if not len(branch):
        raise DataError(
            f"{option}: {entry}: neither a label of the model nor a parent of one; correct it"
        )
    return branch
