"""Remove, rename or merge labels of an exported model without training.

A merged label gets the mean of the head's rows, weighted by training documents. This is exact for synonyms: if
annotators chose label k for a share π_k of the documents with one meaning, logit_k is about the meaning's logit +
ln π_k. The mean Σ π_k logit_k is then too low by the entropy −Σ π_k ln π_k, which is added. Each scorer defines how it
merges.

Suffixes: L labels before, M labels after, K labels that are merged into one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.artefact.export import ModelParts, open_model, write_model
from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import quoted_label
from xmtc.data.readers.cells import label_of
from xmtc.data.readers.files import open_text
from xmtc.errors import ConfigError, DataError
from xmtc.models.calibration import Calibration
from xmtc.predict.smoke import write_answers
from xmtc.scorers.regrouping import Regrouping

_IN_A_FILE = "give labels that contain = or a comma in a file, @FILE, separated by tabs"


@dataclass(frozen=True)
class Relabelled:
    """The result of a change of labels.

    Attributes:
        changed: number of labels that were removed, renamed, or merged into another.
        labels: number of labels now.
        notes: sentences about what is approximate.
    """

    changed: int
    labels: int
    notes: tuple[str, ...] = ()


def remove_labels(model: Path, labels: Sequence[str], output: Path) -> Relabelled:
    """Write a model without some labels. Children of a removed label become children of its parents.

    Args:
        model: exported model, which does not change.
        labels: labels to remove.
        output: directory of the new model; see `check_output`.

    Raises:
        DataError: the model has no such label, or would have no label left.
        CheckpointError: the model is missing or damaged, or a file cannot be written.
        ConfigError: the model is of another kind, or `output` holds something that is not a model.
    """
    parts = open_model(model, output)
    removed = sorted({parts.labels.index(label) for label in labels})
    least = 2 if parts.info.task == "single_label" else 1
    if len(parts.labels) - len(removed) < least:
        raise DataError(
            f"{model}: has {len(parts.labels):,} labels, and at least {least} must remain: remove fewer"
        )
    regrouping = Regrouping.without(len(parts.labels), removed)
    changed = _regrouped(parts, regrouping, _without_parents(parts.labels, removed))
    write_model(
        model,
        output,
        changed,
        f"labels removed: {len(removed):,}.",
        finish=write_answers,
    )
    return Relabelled(len(removed), len(changed.labels), _notes_on_removal(parts))


def rename_labels(
    model: Path, names: Mapping[str, str], output: Path, *, to_parents: bool = False
) -> Relabelled:
    """Write a model with some labels renamed. Scores stay the same, bit for bit.

    If a label's readable name is the label itself, it changes too; other names stay.

    Args:
        model: exported model, which does not change.
        names: new labels by old label.
        output: directory of the new model; see `check_output`.
        to_parents: whether a label may become what is so far only a parent of labels, because it means the same.

    Raises:
        DataError: the model has no such label, or two labels would be equal.
        CheckpointError: see `remove_labels`.
        ConfigError: see `remove_labels`.
    """
    parts = open_model(model, output)
    table = _renamed(parts.labels, names, to_parents)
    renamed = sum(old != new for old, new in names.items())
    write_model(
        model,
        output,
        replace(parts, labels=table),
        f"labels renamed: {renamed:,}.",
        parts.index,
        finish=write_answers,
    )
    return Relabelled(renamed, len(table))


def merge_labels(
    model: Path, groups: Mapping[str, Sequence[str]], output: Path
) -> Relabelled:
    """Write a model with some labels merged into others.

    Args:
        model: exported model, which does not change.
        groups: labels to merge, by the label that is kept.
        output: directory of the new model; see `check_output`.

    Raises:
        DataError: the model has no such label, a label is in two groups, or the hierarchy would have a cycle.
        CheckpointError: see `remove_labels`.
        ConfigError: a single-label model, or a scorer that cannot merge; see also `remove_labels`.
    """
    parts = open_model(model, output)
    if parts.info.task == "single_label":
        raise ConfigError(
            f"{model}: a single-label model cannot merge labels: their probabilities cannot be added; train it again"
        )
    groups = {
        _as_label(label): [_as_label(other) for other in others]
        for label, others in groups.items()
    }
    regrouping = Regrouping.merging(
        len(parts.labels), _ids_of_groups(parts.labels, groups)
    )
    changed = _regrouped(parts, regrouping, merged_hierarchy(parts.labels, groups))
    merged = len(parts.labels) - len(changed.labels)
    write_model(
        model,
        output,
        changed,
        f"labels merged into others: {merged:,}.",
        finish=write_answers,
    )
    return Relabelled(
        merged, len(changed.labels), _notes_on_merging(parts, regrouping, changed)
    )


def _as_label(text: str) -> str:
    """Write a label as the model has it; a text that cannot be one is told later, as it was given."""
    return label_of(text) or text


def _without_parents(table: LabelTable, removed: Sequence[int]) -> LabelTable:
    """Replace labels that are removed, where they are parents, by their own parents."""
    if table.parents is None:
        return table
    return with_parents(
        table, {table.labels[label_id]: table.parents[label_id] for label_id in removed}
    )


def _renamed(
    table: LabelTable, names: Mapping[str, str], to_parents: bool
) -> LabelTable:
    """Rename labels in the table, including parents."""
    names = {_as_label(old): label_of(new) or "" for old, new in names.items()}
    new_by_id = {table.index(old): new for old, new in names.items()}
    _check_new_names(table, names, new_by_id.keys(), to_parents)
    labels = []
    readable_names = []
    for label_id, (label, name) in enumerate(
        zip(table.labels, table.names, strict=True)
    ):
        new = new_by_id.get(label_id, label)
        labels.append(new)
        readable_names.append(new if name == label else name)
    parents = None
    if table.parents is not None:
        parents = [
            tuple(names.get(parent, parent) for parent in above)
            for above in table.parents
        ]
    return replace(table, labels=labels, names=readable_names, parents=parents)


def _check_new_names(
    table: LabelTable,
    names: Mapping[str, str],
    renamed_ids: Collection[int],
    to_parents: bool,
) -> None:
    """Refuse new names that are empty, or those of other labels or of parents."""
    taken = {
        label
        for label_id, label in enumerate(table.labels)
        if label_id not in renamed_ids
    }
    if not to_parents:
        taken |= set(chain.from_iterable(table.parents or ())) - set(table.labels)
    for old, new in names.items():
        label = f"label {quoted_label(old)}"
        if not new:
            raise DataError(
                f"{label}: its new name is empty; give one, such as OLD=NEW"
            )
        if new in taken:
            raise DataError(
                f"{label}: {quoted_label(new)} already exists; choose another name, or merge them"
            )
        taken.add(new)


def _ids_of_groups(
    table: LabelTable, groups: Mapping[str, Sequence[str]]
) -> list[list[int]]:
    """Find the ids of each group, the kept label first."""
    ids = []
    grouped: set[str] = set()
    for kept_label, others in groups.items():
        if not others:
            raise DataError(
                f"label {quoted_label(kept_label)}: no label is merged into it; name one"
            )
        for label in (kept_label, *others):
            if label in grouped:
                raise DataError(
                    f"label {quoted_label(label)} is in two groups; make them one group"
                )
            grouped.add(label)
        ids.append([table.index(label) for label in (kept_label, *others)])
    return ids


def _regrouped(
    parts: ModelParts, regrouping: Regrouping, table: LabelTable
) -> ModelParts:
    """Compute the changed parts of a model; `table` has all labels, with their new parents."""
    shares = _shares_of_merged(regrouping, table.train_counts)
    head, calibration = _regrouped_rows(parts, regrouping, shares)
    changed = parts.with_head(head, calibration)
    ensemble = None if parts.ensemble is None else parts.ensemble.regrouped(regrouping)
    counts_M = regrouping.summed(table.train_counts)
    if ensemble is not None and ensemble.fusion is not None:
        merged_ids = list(regrouping.merged)
        counts_M[merged_ids] = ensemble.fusion.counts_L[merged_ids]
    return replace(
        changed,
        labels=table.take(regrouping.kept_M.tolist(), counts_M),
        decision=parts.decision.regrouped(regrouping),
        outcomes=None
        if parts.outcomes is None
        else parts.outcomes.regrouped(regrouping),
        ensemble=ensemble,
    )


def _regrouped_rows(
    parts: ModelParts, regrouping: Regrouping, shares: Mapping[int, Tensor]
) -> tuple[dict[str, Tensor], Calibration | None]:
    """Select and average the rows of the head and of the calibration, and add to each merged logit its entropy."""
    classifier = parts.classifier
    head = classifier.head.state_dict()
    for name in classifier.head.label_tables():
        head[name] = _averaged(head[name], regrouping, shares)
    calibration = classifier.calibration
    if calibration is not None:
        scale_M = _averaged(calibration.scale_L, regrouping, shares)
        offset_M = _averaged(calibration.offset_L, regrouping, shares)
        calibration = Calibration(scale_M, offset_M)
    logits_M = head["bias"] if calibration is None else calibration.offset_L
    for label_id, share_K in shares.items():
        logits_M[label_id] += torch.special.entr(share_K).sum()
    return head, calibration


def _shares_of_merged(
    regrouping: Regrouping, counts_L: NDArray[np.int64]
) -> dict[int, Tensor]:
    """Compute shares (K,) in the training documents of each merged label's parts; equal shares if there are none."""
    shares = {}
    for label_id, members_K in regrouping.merged.items():
        count_K = counts_L[members_K]
        if not count_K.any():
            count_K = np.ones(len(members_K))
        shares[label_id] = torch.from_numpy(count_K / count_K.sum()).float()
    return shares


def _averaged(
    table: Tensor, regrouping: Regrouping, shares: Mapping[int, Tensor]
) -> Tensor:
    """Select the remaining rows; rows of merged labels are averaged by their shares, in float32."""
    table = table.cpu()
    rows = table[torch.from_numpy(regrouping.kept_M)].clone()
    for label_id, members_K in regrouping.merged.items():
        own_rows = table[torch.from_numpy(members_K)].float()
        rows[label_id] = torch.tensordot(shares[label_id], own_rows, dims=1).to(
            rows.dtype
        )
    return rows


def _notes_on_removal(parts: ModelParts) -> tuple[str, ...]:
    notes = []
    if parts.info.task == "single_label":
        notes.append(
            "the probabilities of the other labels grow in proportion, because they sum to 1"
        )
    if parts.ensemble is not None:
        notes.append(
            "fused probabilities of the other labels may change, because their ranks among candidates do"
        )
    return tuple(notes)


def _notes_on_merging(
    parts: ModelParts, regrouping: Regrouping, changed: ModelParts
) -> tuple[str, ...]:
    notes = []
    if parts.info.model.head.scores:
        notes.append(
            "rows of the head are averaged, as if annotators had used the labels for one meaning"
        )
    if parts.ensemble is None or parts.ensemble.train_counts is None:
        notes.append(
            "train_count of merged labels is an upper bound: documents with several of them count twice"
        )
    else:
        summed_M = regrouping.summed(parts.labels.train_counts)
        shared_M = summed_M - changed.labels.train_counts
        shared = int(shared_M[list(regrouping.merged)].sum())
        if shared:
            notes.append(
                f"{shared:,} training documents have several of the labels and count for each in the linear scorer"
            )
    if parts.ensemble is not None:
        notes.append(
            "the fusion treats a merged label as its most frequent part; ranks among candidates change"
        )
    if parts.decision.thresholds_L is not None:
        notes.append("a merged label keeps the threshold of the label that is kept")
    return tuple(notes)


def with_parents(table: LabelTable, instead: Mapping[str, Sequence[str]]) -> LabelTable:
    """Replace some parents by others, which may be replaced in turn.

    Args:
        table: table of labels.
        instead: replacements of a parent, by parent.
    """
    if table.parents is None:
        return table
    parents = []
    for label, above in zip(table.labels, table.parents, strict=True):
        replaced = dict.fromkeys(_replaced(above, instead, set()))
        replaced.pop(label, None)  # a label is not above itself
        parents.append(tuple(replaced))
    return replace(table, parents=parents)


def _replaced(
    parents: Sequence[str], instead: Mapping[str, Sequence[str]], seen: set[str]
) -> Iterator[str]:
    for parent in parents:
        if parent not in instead:
            yield parent
        elif parent not in seen:  # the hierarchy may have cycles
            seen.add(parent)
            yield from _replaced(instead[parent], instead, seen)


def merged_hierarchy(
    table: LabelTable, groups: Mapping[str, Sequence[str]]
) -> LabelTable:
    """Replace merged labels in the hierarchy by the labels that are kept.

    Raises:
        DataError: a label would be its own ancestor.
    """
    if table.parents is None:
        return table
    parents = list(table.parents)
    instead: dict[str, tuple[str, ...]] = {}
    for kept_label, others in groups.items():
        group = (kept_label, *others)
        of_all = dict.fromkeys(
            chain.from_iterable(table.parents[table.index(label)] for label in group)
        )
        parents[table.index(kept_label)] = tuple(
            parent for parent in of_all if parent not in group
        )
        instead |= dict.fromkeys(others, (kept_label,))
    changed = with_parents(replace(table, parents=parents), instead)
    for kept_label in groups:
        _check_no_cycle(changed, kept_label)
    return changed


def _check_no_cycle(table: LabelTable, label: str) -> None:
    """Refuse a hierarchy in which a label is its own ancestor.

    Raises:
        DataError: names a label of the cycle.
    """
    if table.parents is None:
        return
    beneath = {table.labels[label_id] for label_id in table.branch(label)} - {label}
    above_and_below = beneath.intersection(table.parents[table.index(label)])
    if above_and_below:
        other = quoted_label(min(above_and_below))
        raise DataError(
            f"label {quoted_label(label)}: would be above and below {other}; merge that label too"
        )


def read_renames(entries: Sequence[str]) -> dict[str, str]:
    """Read new labels by old label; see `_rows_of`.

    Raises:
        DataError: an entry or line has another form, or a label occurs twice; names it.
    """
    names: dict[str, str] = {}
    for where, cells in _rows_of(entries):
        if len(cells) != 2:
            raise DataError(
                f"{where}: give an old and a new label, such as OLD=NEW; {_IN_A_FILE}"
            )
        if cells[0] in names:
            raise DataError(
                f"{where}: label {quoted_label(cells[0])} is renamed twice; leave one out"
            )
        names[cells[0]] = cells[1]
    return names


def read_groups(entries: Sequence[str]) -> dict[str, list[str]]:
    """Read the labels to merge, by the label that is kept; see `_rows_of`.

    Raises:
        DataError: an entry or line has another form; names it.
    """
    groups: dict[str, list[str]] = {}
    for where, cells in _rows_of(entries):
        if len(cells) < 2:
            raise DataError(
                f"{where}: give the label to keep and the labels to merge into it"
            )
        groups.setdefault(cells[0], []).extend(cells[1:])
    return groups


def _rows_of(entries: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each row's place, for messages, and its labels.

    Args:
        entries: such as `LABEL=OTHER,OTHER`, or `@FILE` with the labels of each line separated by tabs.
    """
    for entry in entries:
        if entry.startswith("@"):
            yield from _lines_of(Path(entry[1:]))
            continue
        cells = [part for side in entry.split("=", 1) for part in side.split(",")]
        if (
            entry.count("=") != 1
            or "," in entry.split("=")[0]
            or not all(map(str.strip, cells))
        ):
            raise DataError(
                f"{quoted_label(entry)}: not OLD=NEW or KEPT=OTHER,OTHER; {_IN_A_FILE}"
            )
        yield quoted_label(entry), cells


def _lines_of(path: Path) -> Iterator[tuple[str, list[str]]]:
    with open_text(path) as lines:
        rows = [
            (f"{path}:{number}", line.strip("\r\n").split("\t"))
            for number, line in enumerate(lines, start=1)
        ]
    rows = [
        (where, [cell.strip() for cell in cells])
        for where, cells in rows
        if any(cell.strip() for cell in cells)
    ]
    if not rows:
        raise DataError(
            f"{path}: has no labels; write labels that belong together on one line, separated by tabs"
        )
    for where, cells in rows:
        if not all(cells):
            raise DataError(f"{where}: an empty label; separate labels by one tab")
    yield from rows
