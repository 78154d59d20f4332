"""Update the hierarchy of labels when labels are replaced by others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import quoted_label
from xmtc.errors import DataError


def with_parents(table: LabelTable, instead: Mapping[str, Sequence[str]]) -> LabelTable:
    """Replace some parents by others, which may be replaced in turn.

    Args:
        table: table of labels.
        instead: replacements of a parent, by parent.
    """
    if table.parents is None:
        return table
    parents = [
        tuple(dict.fromkeys(found for found in _replaced(above, instead, set()) if found != label))
        for label, above in zip(table.labels, table.parents, strict=True)
    ]
    return replace(table, parents=parents)


def _replaced(parents: Sequence[str], instead: Mapping[str, Sequence[str]], seen: set[str]) -> Iterator[str]:
    for parent in parents:
        if parent not in instead:
            yield parent
        elif parent not in seen:  # the hierarchy may have cycles
            seen.add(parent)
            yield from _replaced(instead[parent], instead, seen)


def merged_hierarchy(table: LabelTable, groups: Mapping[str, Sequence[str]]) -> LabelTable:
    """Replace merged labels in the hierarchy by the labels that are kept.

    Raises:
        DataError: a label would be its own ancestor.
    """
    if table.parents is None:
        return table
    kept_for = {other: (kept,) for kept, others in groups.items() for other in others}
    parents = list(table.parents)
    for kept, others in groups.items():
        own = [table.parents[table.index(label)] for label in (kept, *others)]
        parents[table.index(kept)] = tuple(p for p in dict.fromkeys(chain(*own)) if p not in (kept, *others))
    changed = with_parents(replace(table, parents=parents), kept_for)
    for kept in groups:
        _check_no_cycle(changed, kept)
    return changed


def _check_no_cycle(table: LabelTable, label: str) -> None:
    """Refuse a hierarchy in which a label is its own ancestor.

    Raises:
        DataError: names a label of the cycle.
    """
    beneath = {table.labels[i] for i in table.branch(label)} - {label}
    between = sorted(beneath & set((table.parents or [()])[table.index(label)]))
    if between:
        raise DataError(
            f"label {quoted_label(label)}: would be above and below {quoted_label(between[0])}; merge that label too"
        )
