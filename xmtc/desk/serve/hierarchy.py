"""Where a label stands in the hierarchy: its broader labels, the topmost first."""

from collections.abc import Sequence

from xmtc.data.labels import LabelTable

_DEEPEST = 20
"""Broader labels that are followed at most; a vocabulary may have cycles."""


def broader_names(labels: LabelTable, label_id: int, names: Sequence[str]) -> list[str]:
    """Name the broader labels of a label, the topmost first. Of several parents, the first is followed.

    Args:
        labels: labels of a model.
        label_id: the label.
        names: names of the labels in the reader's language, empty where there is none.

    Returns:
        The names; of a parent that is no label of the model, its identifier. Empty without a hierarchy.
    """
    if labels.parents is None:
        return []
    path: list[str] = []
    parents = labels.parents[label_id]
    while parents and len(path) < _DEEPEST:
        parent = parents[0]
        if parent not in labels:
            path.append(parent)
            break
        parent_id = labels.index(parent)
        path.append(names[parent_id] or labels.names[parent_id])
        parents = labels.parents[parent_id]
    return path[::-1]
