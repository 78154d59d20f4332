"""What a new version of a vocabulary changes for a model, and the changes that need no training."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal

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

Kind = Literal["version", "new", "gone", "renamed", "replaced", "merged", "split", "deprecated", "moved"]
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
    known = read_description(model).label_file or LabelFileConfig(path=str(path))
    return replace(known, path=str(path), **columns).read()


def changes_of(table: LabelTable, info: LabelInfo) -> list[VocabularyChange]:
    """List what differs between a model's labels and a vocabulary, which comes first as its version.

    Raises:
        DataError: the vocabulary has none of the labels.
    """
    if not any(label in info.names for label in table.labels):
        raise DataError("the vocabulary has none of the model's labels; say which column has them with --label")
    found = [VocabularyChange("version", name=info.version)]
    parents = table.parents if info.parents else None

    def names_of(label: str) -> dict[str, str]:
        return {one: names.get(label, "") for one, names in info.translations.items() if one in table.translations}

    ends = {label: _ends(label, info) for label in table.labels if label in info.deprecated}
    shared = Counter(end[0] for end in ends.values() if len(end) == 1)
    for at, label in enumerate(table.labels):
        name, above = info.names.get(label), info.parents.get(label, ())
        if label in ends and len(ends[label]) == 1:
            end = ends[label][0]
            kind = "merged" if shared[end] > 1 or end in table else "replaced"
            above = None if parents is None else info.parents.get(end, ())
            found.append(VocabularyChange(kind, label, (end,), info.names.get(end, end), names_of(end), above))
        elif label in ends:
            found.append(VocabularyChange("split" if ends[label] else "deprecated", label, ends[label]))
        elif name is None:
            found.append(VocabularyChange("gone", label))
        else:
            known = {one: names[at] for one, names in table.translations.items() if one in info.translations}
            if (name, names_of(label)) != (table.names[at] or label, known):
                found.append(VocabularyChange("renamed", label, name=name, names=names_of(label)))
            if parents is not None and set(parents[at]) != set(above):
                found.append(VocabularyChange("moved", label, above))
    new = (label for label in info.names if label not in table and label not in info.deprecated)
    return [*found, *(VocabularyChange("new", label, name=info.names[label]) for label in new if label not in shared)]


def _ends(label: str, info: LabelInfo) -> tuple[str, ...]:
    """Follow replacements to labels that are not deprecated; the vocabulary may have cycles."""
    reached = [label]
    for one in reached:  # which grows meanwhile
        reached += [newer for newer in info.deprecated.get(one, ()) if newer not in reached]
    return tuple(one for one in reached if one not in info.deprecated)


def write_changes(changes: Sequence[VocabularyChange], path: Path) -> None:
    """Write JSON lines, which people may shorten before they are applied."""
    write_text(path, "".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in changes))


def read_changes(path: Path) -> list[VocabularyChange] | None:
    """Read what `write_changes` wrote; None if it is another file.

    Raises:
        DataError: a line is no change, or is there twice; names it.
    """
    if not {*JsonlConfig.endings} & {ending.lower() for ending in path.suffixes}:
        return None
    with open_text(path) as text:
        lines = [(f"{path}:{number}", line) for number, line in enumerate(text, start=1) if line.strip()]
    if not lines or '"kind"' not in lines[0][1]:
        return None
    found = [_change(line, where) for where, line in lines]
    twice = [one for one, times in Counter((one.kind, one.label) for one in found).items() if times > 1]
    if twice:
        raise DataError(f"{path}: {twice[0][0]} {quoted_label(twice[0][1])} is there twice; delete one of the lines")
    return found


def _change(line: str, where: str) -> VocabularyChange:
    with reading(where, fix="delete the line", what="not a change"):
        return adapter(VocabularyChange).validate_json(line)


def apply_changes(model: Path, changes: Sequence[VocabularyChange], output: Path) -> tuple[str, ...]:
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
    table, of = LabelTable.load(model / LABELS), {kind: [c for c in changes if c.kind == kind] for kind in NEEDS}
    groups, ids = _merged_groups(table, of["merged"]), {one.label: one.to[0] for one in of["replaced"]}
    ids |= {kept: end for end, (kept, *_) in groups.items() if kept != end}
    merged = {kept: others for kept, *others in groups.values() if others}
    removed = [one.label for one in (*of["gone"], *of["deprecated"])]
    rename = partial(rename_labels, to_parents=True)
    steps: Any = (merge_labels, merged), (rename, ids), (remove_labels, removed)
    notes: dict[str, None] = {}
    with TemporaryDirectory() as folder:
        for number, (step, given) in enumerate(steps):
            if given:
                old, model = model, Path(folder) / str(number)
                notes |= dict.fromkeys(step(old, given, model).notes)
        _name(model, changes, output)
    return tuple(notes)


def _merged_groups(table: LabelTable, merged: Sequence[VocabularyChange]) -> dict[str, list[str]]:
    """Find the labels of each group by what replaces them, first the one to keep: that itself, or the most frequent."""
    groups: dict[str, list[str]] = {}
    for one in sorted(merged, key=lambda one: -table.train_counts[table.index(one.label)]):
        groups.setdefault(one.to[0], [one.to[0]] if one.to[0] in table else []).append(one.label)
    return groups


def _name(model: Path, changes: Sequence[VocabularyChange], output: Path) -> None:
    """Write a model with new names and parents, and with the version of its vocabulary."""
    parts = open_model(model, output)
    names, parents = list(parts.labels.names), list(parts.labels.parents or ())
    translations = {language: list(given) for language, given in parts.labels.translations.items()}
    version = parts.info.vocabulary
    for one in changes:
        if one.kind == "version":
            version = one.name
        elif one.kind in ("renamed", "replaced", "merged"):
            at = parts.labels.index(one.label if one.kind == "renamed" else one.to[0])
            names[at] = one.name or names[at]
            for language, given in translations.items():
                given[at] = one.names.get(language, given[at])
            if parents and one.parents is not None:
                parents[at] = one.parents
        elif one.kind == "moved" and parents:
            parents[parts.labels.index(one.label)] = one.to
    table = replace(parts.labels, names=names, parents=parents or None, translations=translations)
    changed = replace(parts, info=replace(parts.info, vocabulary=version), labels=table)
    write_model(model, output, changed, f"labels brought to vocabulary {version}.", parts.index, finish=write_answers)


def changes_in_words(changes: Sequence[VocabularyChange]) -> Iterator[str]:
    """Say in lines how many changes there are of each kind, an example, and what they need."""
    for kind, needs in NEEDS.items():
        if found := [one for one in changes if one.kind == kind]:
            yield f"{kind}: {len(found):,} labels, such as {quoted_label(found[0].label)}: {needs}"
