"""Labels of an exported model removed, renamed or merged, without training.

Merged labels take the head's rows averaged by their training documents. That is exact for synonyms: where annotators
chose label k for a share π_k of the documents of one meaning, logit_k is about the meaning's logit + ln π_k. The mean
Σ π_k logit_k is then too low by the entropy −Σ π_k ln π_k, which is added. Scorers say themselves how they merge.

Suffixes: L labels before, M labels after, K labels that are merged into one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import quoted_label
from xmtc.errors import ConfigError, DataError
from xmtc.models.calibration import Calibration
from xmtc.models.export import ModelParts
from xmtc.models.label_tree import merged_hierarchy, with_parents
from xmtc.models.rewrite import LabelParts, open_model, write_model
from xmtc.scorers.regrouping import Regrouping


@dataclass(frozen=True)
class Relabelled:
    """What was done.

    Attributes:
        changed: labels that were removed, renamed, or merged into another.
        labels: how many there are now.
        notes: what of it is approximate, in sentences.
    """

    changed: int
    labels: int
    notes: tuple[str, ...] = ()


def remove_labels(model: Path, labels: Sequence[str], output: Path) -> Relabelled:
    """Write a model without some labels. Children of a removed label become children of its parents.

    Args:
        model: exported model, which is left as it is.
        labels: to remove.
        output: directory of the new model; see `check_output`.

    Raises:
        DataError: the model has no such label, or would have no label left.
        CheckpointError: the model is missing or damaged, or the disk refuses.
        ConfigError: the model is of another kind, or something else than a model is at `output`.
    """
    parts = open_model(model, output)
    removed = sorted({_index(parts.labels, label) for label in labels})
    least = 2 if parts.info.task == "single_label" else 1
    if len(parts.labels) - len(removed) < least:
        raise DataError(f"{model}: has {len(parts.labels):,} labels, and at least {least} must remain: remove fewer")
    regrouping = Regrouping.without(len(parts.labels), removed)
    above = {parts.labels.labels[i]: parts.labels.parents[i] if parts.labels.parents else () for i in removed}
    changed = _regrouped(parts, regrouping, with_parents(parts.labels, above))
    write_model(model, output, parts, changed, f"labels removed: {len(removed):,}.")
    return Relabelled(len(removed), len(changed.labels), _notes_on_removal(parts))


def rename_labels(model: Path, names: Mapping[str, str], output: Path) -> Relabelled:
    """Write a model some of whose labels are called otherwise. Scores stay the same bit for bit.

    A label whose name for people is the label itself is called by the new label there too; other names stay.

    Args:
        model: exported model, which is left as it is.
        names: old label → new label.
        output: directory of the new model; see `check_output`.

    Raises:
        DataError: the model has no such label, or two labels would be called the same.
        CheckpointError: see `remove_labels`.
        ConfigError: see `remove_labels`.
    """
    parts = open_model(model, output)
    table, changed = _renamed(parts.labels, names), {old: new for old, new in names.items() if old != new}
    same = LabelParts(table, {}, parts.classifier.calibration, parts.thresholds_L, parts.ensemble)
    write_model(model, output, parts, same, f"labels renamed: {len(changed):,}.")
    return Relabelled(len(changed), len(table))


def merge_labels(model: Path, groups: Mapping[str, Sequence[str]], output: Path) -> Relabelled:
    """Write a model in which some labels stand for others too.

    Args:
        model: exported model, which is left as it is.
        groups: kept label → labels that are merged into it.
        output: directory of the new model; see `check_output`.

    Raises:
        DataError: the model has no such label, or one is in two groups, or the hierarchy would have a cycle.
        CheckpointError: see `remove_labels`.
        ConfigError: the model chooses one of its labels, or has a scorer that cannot merge; see `remove_labels` too.
    """
    parts = open_model(model, output)
    if parts.info.task == "single_label":
        raise ConfigError(
            f"{model}: chooses one of its labels, and no row gives the sum of two labels' probabilities: train again"
        )
    ids = _groups(parts.labels, groups)
    regrouping = Regrouping.merging(len(parts.labels), ids)
    changed = _regrouped(parts, regrouping, merged_hierarchy(parts.labels, groups))
    merged = len(parts.labels) - len(changed.labels)
    write_model(model, output, parts, changed, f"labels merged into others: {merged:,}.")
    return Relabelled(merged, len(changed.labels), _notes_on_merging(parts, regrouping, changed))


def _index(table: LabelTable, label: str) -> int:
    if label not in table:
        raise DataError(f"no label {quoted_label(label)} among the model's {len(table):,} labels; correct it")
    return table.index(label)


def _renamed(table: LabelTable, names: Mapping[str, str]) -> LabelTable:
    """The table with other labels; parents are renamed with them."""
    ids = {_index(table, old): new for old, new in names.items()}
    labels = [ids.get(i, label) for i, label in enumerate(table.labels)]
    tops = set(chain.from_iterable(table.parents or ())) - set(table.labels)
    there = {label for i, label in enumerate(table.labels) if i not in ids} | tops
    for old, new in names.items():
        if not new.strip():
            raise DataError(f"label {quoted_label(old)}: its new name is empty")
        if new in there:
            raise DataError(
                f"label {quoted_label(old)}: {quoted_label(new)} is there already; choose another name, or merge them"
            )
        there.add(new)
    shown = [new if name == old else name for name, old, new in zip(table.names, table.labels, labels, strict=True)]
    parents = table.parents and [tuple(names.get(parent, parent) for parent in above) for above in table.parents]
    return LabelTable(labels, shown, table.train_counts, parents)


def _groups(table: LabelTable, groups: Mapping[str, Sequence[str]]) -> list[list[int]]:
    """Ids of each group, the kept one first."""
    ids, seen = [], set()
    for kept, others in groups.items():
        if not others:
            raise DataError(f"label {quoted_label(kept)}: no label is merged into it; name one")
        for label in (kept, *others):
            if label in seen:
                raise DataError(f"label {quoted_label(label)} is named twice; put all that is one into one group")
            seen.add(label)
        ids.append([_index(table, label) for label in (kept, *others)])
    return ids


def _regrouped(parts: ModelParts, regrouping: Regrouping, table: LabelTable) -> LabelParts:
    """What remains of a model; `table` has all labels, with the parents that they will have."""
    shares = _shares(regrouping, table.train_counts)
    classifier, kept_M = parts.classifier, torch.from_numpy(regrouping.kept_M)
    tables = {
        name: _averaged(rows.detach(), kept_M, regrouping, shares)
        for name, rows in classifier.head.label_tables().items()
    }
    calibration, thresholds = classifier.calibration, parts.thresholds_L
    if calibration is not None:
        columns = (_averaged(one, kept_M, regrouping, shares) for one in (calibration.scale_L, calibration.offset_L))
        calibration = Calibration(*columns)
    logits = tables["bias"] if calibration is None else calibration.offset_L
    for label, share_K in shares.items():
        logits[label] += torch.special.entr(share_K).sum()
    if thresholds is not None:
        thresholds = _averaged(torch.from_numpy(thresholds), kept_M, regrouping, shares).numpy()
    ensemble = None if parts.ensemble is None else parts.ensemble.regrouped(regrouping)
    counts_M = regrouping.summed(table.train_counts)
    if ensemble is not None and ensemble.fusion is not None:
        merged = list(regrouping.merged)
        counts_M[merged] = ensemble.fusion.counts_L[merged]
    return LabelParts(_rows(table, regrouping, counts_M), tables, calibration, thresholds, ensemble)


def _rows(table: LabelTable, regrouping: Regrouping, counts_M: NDArray[np.int64]) -> LabelTable:
    kept = regrouping.kept_M.tolist()
    parents = table.parents
    return LabelTable(
        [table.labels[i] for i in kept],
        [table.names[i] for i in kept],
        counts_M,
        None if parents is None else [parents[i] for i in kept],
    )


def _shares(regrouping: Regrouping, counts_L: NDArray[np.int64]) -> dict[int, Tensor]:
    """Merged label → shares (K,) of its parts in their training documents; equal ones where there are none."""
    shares = {}
    for label, members_K in regrouping.merged.items():
        count_K = counts_L[members_K] if counts_L[members_K].any() else np.ones(len(members_K))
        shares[label] = torch.from_numpy(count_K / count_K.sum()).float()
    return shares


def _averaged(table: Tensor, kept_M: Tensor, regrouping: Regrouping, shares: Mapping[int, Tensor]) -> Tensor:
    """The rows that remain; those of merged labels averaged by their shares, in float32."""
    rows = table.cpu()[kept_M].clone()
    for label, members_K in regrouping.merged.items():
        own = table.cpu()[torch.from_numpy(members_K)].float()
        rows[label] = torch.tensordot(shares[label], own, dims=1).to(rows.dtype)
    return rows


def _notes_on_removal(parts: ModelParts) -> tuple[str, ...]:
    notes = []
    if parts.info.task == "single_label":
        notes.append("the probabilities of the other labels grow in proportion, because they sum to 1")
    if parts.ensemble is not None:
        notes.append("fused probabilities of the other labels may change: their ranks among candidates do")
    return tuple(notes)


def _notes_on_merging(parts: ModelParts, regrouping: Regrouping, changed: LabelParts) -> tuple[str, ...]:
    notes = []
    counts_L, counts_M = parts.labels.train_counts, changed.labels.train_counts
    if parts.info.model.head.scores:
        notes.append("rows of the head are averaged, as if annotators had used the labels for one meaning")
    if parts.ensemble is None or parts.ensemble.train_counts is None:
        notes.append("train_count of merged labels is an upper bound: documents with several of them count twice")
    elif shared := int((regrouping.summed(counts_L) - counts_M)[list(regrouping.merged)].sum()):
        notes.append(f"{shared:,} training documents have several of the labels, and count for each in linear weights")
    if parts.ensemble is not None:
        notes.append("the fusion treats a merged label as its most frequent part; ranks among candidates change")
    if parts.thresholds_L is not None:
        notes.append("thresholds of merged labels are averages, and are not tuned")
    return tuple(notes)
