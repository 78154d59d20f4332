"""What a new version of a vocabulary changes for a model, and the changes that need no training."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Literal

from xmtc.artefact.contract import LABELS
from xmtc.artefact.export import open_model, write_model
from xmtc.artefact.info import STRICT, read_description
from xmtc.config.shape import adapter
from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import LabelInfo, quoted_label
from xmtc.data.readers.files import open_text
from xmtc.data.readers.table_config import JsonlConfig, LabelFileConfig
from xmtc.errors import DataError
from xmtc.files import reading, write_text
from xmtc.labels.relabel import merge_labels, remove_labels, rename_labels
from xmtc.predict.smoke import write_answers

Kind = Literal[
    "version",
    "new",
    "gone",
    "renamed",
    "replaced",
    "merged",
    "split",
    "deprecated",
    "moved",
]
NEEDS: dict[Kind, str] = {
    "new": "training with documents, or `xmtc labels add`; labels that the model never had count, too",
    "split": "training: nobody knows which documents belong to which part; the old label stays until then",
    "gone": "apply removes them",
    "deprecated": "apply removes them, because nothing replaces them",
    "renamed": "apply changes their names",
    "replaced": "apply changes their identifiers",
    "merged": "apply merges them into the label that replaces them",
    "moved": "apply changes their parents",
}


@dataclass(frozen=True)
class VocabularyChange:
    """A change of a vocabulary.

    Attributes:
        kind: what happened.
        label: the label, as the model has it.
        to: labels that replace it, or its new parents if it moved.
        name: its new name, or that of the label that replaces it; the version of the vocabulary.
        names: the same by language, in those that the model and the vocabulary have; empty where there is none.
        parents: those of the label that replaces it; None if they are not known.
    """

    __pydantic_config__: ClassVar = STRICT

    kind: Kind
    label: str = ""
    to: tuple[str, ...] = ()
    name: str = ""
    names: dict[str, str] = field(default_factory=dict)
    parents: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind in ("replaced", "merged") and len(self.to) != 1:
            raise ValueError("`to` needs the one label that replaces this one")


def read_vocabulary(model: Path, path: Path, columns: dict[str, str]) -> LabelInfo:
    """Read a label file by the columns that the model's had, or by given ones.

    Raises:
        DataError: it cannot be read, or lacks a column.
        CheckpointError: there is no model.
    """
    as_in_training = read_description(model).label_file or LabelFileConfig(
        path=str(path)
    )
    return replace(as_in_training, path=str(path), **columns).read()


def changes_of(table: LabelTable, info: LabelInfo) -> list[VocabularyChange]:
    """List what differs between a model's labels and a vocabulary, which comes first as its version.

    Raises:
        DataError: the vocabulary has none of the labels.
    """
    if not any(label in info.names for label in table.labels):
        raise DataError(
            "the vocabulary has none of the model's labels; say which column has them with --label"
        )
    changes = [VocabularyChange("version", name=info.version)]
    replacements = {
        label: _replacements(label, info)
        for label in table.labels
        if label in info.deprecated
    }
    replaced_by = Counter(
        labels[0] for labels in replacements.values() if len(labels) == 1
    )
    for label_id, label in enumerate(table.labels):
        if label in replacements:
            changes.append(
                _replacement(label, replacements[label], table, info, replaced_by)
            )
        elif label not in info.names:
            changes.append(VocabularyChange("gone", label))
        else:
            changes += _changes_of_label(label_id, table, info)
    for label, name in info.names.items():
        if (
            label not in table
            and label not in info.deprecated
            and label not in replaced_by
        ):
            changes.append(VocabularyChange("new", label, name=name))
    return changes


def _replacement(
    label: str,
    newer: tuple[str, ...],
    table: LabelTable,
    info: LabelInfo,
    replaced_by: Mapping[str, int],
) -> VocabularyChange:
    """Say what becomes of a deprecated label.

    Args:
        label: the label.
        newer: the labels that replace it.
        table: labels of the model.
        info: the vocabulary.
        replaced_by: how many labels of the model each label replaces alone.
    """
    if len(newer) != 1:
        return VocabularyChange("split" if newer else "deprecated", label, newer)
    (new,) = newer
    is_shared = replaced_by[new] > 1 or new in table
    return VocabularyChange(
        kind="merged" if is_shared else "replaced",
        label=label,
        to=newer,
        name=info.names.get(new, new),
        names=_names_of(new, table, info),
        parents=info.parents.get(new, ())
        if table.parents is not None and info.parents
        else None,
    )


def _changes_of_label(
    label_id: int, table: LabelTable, info: LabelInfo
) -> Iterator[VocabularyChange]:
    """Yield what has changed of a label that stays: its names, its parents."""
    label = table.labels[label_id]
    name = info.names[label]
    new_names = _names_of(label, table, info)
    old_names = {
        language: names[label_id]
        for language, names in table.translations.items()
        if language in info.translations
    }
    if name != (table.names[label_id] or label) or new_names != old_names:
        yield VocabularyChange("renamed", label, name=name, names=new_names)
    if table.parents is not None and info.parents:
        parents = info.parents.get(label, ())
        if set(table.parents[label_id]) != set(parents):
            yield VocabularyChange("moved", label, parents)


def _names_of(label: str, table: LabelTable, info: LabelInfo) -> dict[str, str]:
    """Return the names of a label in the languages that both the model and the vocabulary have."""
    return {
        language: names.get(label, "")
        for language, names in info.translations.items()
        if language in table.translations
    }


def _replacements(label: str, info: LabelInfo) -> tuple[str, ...]:
    """Follow replacements to labels that are not deprecated; the vocabulary may have cycles."""
    reached = [label]
    for passed in reached:  # which grows meanwhile
        reached += [
            newer for newer in info.deprecated.get(passed, ()) if newer not in reached
        ]
    return tuple(end for end in reached if end not in info.deprecated)


def write_changes(changes: Sequence[VocabularyChange], path: Path) -> None:
    """Write JSON lines, which people may shorten before they are applied."""
    lines = [json.dumps(asdict(change), ensure_ascii=False) for change in changes]
    write_text(path, "".join(f"{line}\n" for line in lines))


def read_changes(path: Path) -> list[VocabularyChange] | None:
    """Read what `write_changes` wrote; None if it is another file.

    Raises:
        DataError: a line is no change, or is there twice; names it.
    """
    if not {*JsonlConfig.endings} & {ending.lower() for ending in path.suffixes}:
        return None
    with open_text(path) as text:
        lines = [
            (f"{path}:{number}", line)
            for number, line in enumerate(text, start=1)
            if line.strip()
        ]
    if not lines or '"kind"' not in lines[0][1]:
        return None
    changes = [_change(line, where) for where, line in lines]
    counts = Counter((change.kind, change.label) for change in changes)
    for (kind, label), times in counts.items():
        if times > 1:
            raise DataError(
                f"{path}: {kind} {quoted_label(label)} is there twice; delete one of the lines"
            )
    return changes


def _change(line: str, where: str) -> VocabularyChange:
    with reading(where, fix="delete the line", what="not a change"):
        return adapter(VocabularyChange).validate_json(line)


def apply_changes(
    model: Path, changes: Sequence[VocabularyChange], output: Path
) -> tuple[str, ...]:
    """Write a model with the changes that need no training: merge, replace, remove, then names and parents.

    Args:
        model: exported model, which does not change.
        changes: see `changes_of`.
        output: directory of the new model; see `check_output`.

    Returns:
        Sentences about what is approximate.

    Raises:
        DataError: the model has no such label.
        ConfigError: the model cannot merge or remove labels, or `output` holds something that is not a model.
        CheckpointError: the model is missing or damaged, or a file cannot be written.
    """
    by_kind: dict[Kind, list[VocabularyChange]] = {kind: [] for kind in NEEDS}
    for change in changes:
        if change.kind in by_kind:
            by_kind[change.kind].append(change)
    new_names = {change.label: change.to[0] for change in by_kind["replaced"]}
    merged = {}
    for newer, (first, *others) in _merged_groups(
        LabelTable.load(model / LABELS), by_kind["merged"]
    ).items():
        if first != newer:
            new_names[first] = newer
        if others:
            merged[first] = others
    removed = [change.label for change in (*by_kind["gone"], *by_kind["deprecated"])]
    notes: list[str] = []
    with TemporaryDirectory() as folder:
        if merged:
            result = merge_labels(model, merged, Path(folder) / "merged")
            model = Path(folder) / "merged"
            notes += result.notes
        if new_names:
            result = rename_labels(
                model, new_names, Path(folder) / "renamed", to_parents=True
            )
            model = Path(folder) / "renamed"
            notes += result.notes
        if removed:
            result = remove_labels(model, removed, Path(folder) / "removed")
            model = Path(folder) / "removed"
            notes += result.notes
        _write_names_and_parents(model, changes, output)
    return tuple(dict.fromkeys(notes))


def _merged_groups(
    table: LabelTable, merged: Sequence[VocabularyChange]
) -> dict[str, list[str]]:
    """Find the labels of each group by what replaces them, first the one to keep: that itself, or the most frequent."""
    groups: dict[str, list[str]] = {}
    for change in sorted(
        merged, key=lambda change: -table.train_counts[table.index(change.label)]
    ):
        newer = change.to[0]
        group = groups.setdefault(newer, [newer] if newer in table else [])
        group.append(change.label)
    return groups


def _write_names_and_parents(
    model: Path, changes: Sequence[VocabularyChange], output: Path
) -> None:
    """Write a model with new names and parents, and with the version of its vocabulary."""
    parts = open_model(model, output)
    labels = parts.labels
    names = list(labels.names)
    parents = None if labels.parents is None else list(labels.parents)
    translations = {
        language: list(translated)
        for language, translated in labels.translations.items()
    }
    version = parts.info.vocabulary
    for change in changes:
        if change.kind == "version":
            version = change.name
        elif change.kind in ("renamed", "replaced", "merged"):
            label_id = labels.index(
                change.label if change.kind == "renamed" else change.to[0]
            )
            names[label_id] = change.name or names[label_id]
            for language, translated in translations.items():
                translated[label_id] = change.names.get(language, translated[label_id])
            if parents is not None and change.parents is not None:
                parents[label_id] = change.parents
        elif change.kind == "moved" and parents is not None:
            parents[labels.index(change.label)] = change.to
    table = replace(labels, names=names, parents=parents, translations=translations)
    changed = replace(parts, info=replace(parts.info, vocabulary=version), labels=table)
    write_model(
        model,
        output,
        changed,
        f"labels brought to vocabulary {version}.",
        parts.index,
        finish=write_answers,
    )


def changes_in_words(changes: Sequence[VocabularyChange]) -> Iterator[str]:
    """Say in lines how many changes there are of each kind, an example, and what they need."""
    for kind, needs in NEEDS.items():
        labels = [change.label for change in changes if change.kind == kind]
        if labels:
            noun = "label" if len(labels) == 1 else "labels"
            yield f"{kind}: {len(labels):,} {noun}, such as {quoted_label(labels[0])}: {needs}"
