"""Labels of a corpus: ids, names, train counts, hierarchy, propensities. L labels."""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, SupportsIndex, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.data.arrow_files import read_arrow, write_arrow
from xmtc.data.readers.base import hash_of_labels, quoted_label
from xmtc.data.readers.cells import label_of, near_pairs
from xmtc.errors import DataError, XmtcError
from xmtc.files import reading

_BLOCK = 1 << 16
"""Labels that are written or read at a time."""
_NAME_IN = "name in "
"""Begins the column of the names in a language."""


class Strings(Sequence[str]):
    """Strings of an Arrow column, which may lie in a memory-mapped file. Reading one makes a Python string of it.

    Millions of labels would take hundreds of MiB as Python strings, in every worker.

    Args:
        column: strings without nulls.
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> str | list[str]:
        if isinstance(index, slice):
            return self._column[index].to_pylist()
        return self._column[operator.index(index)].as_py()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            yield from self._column.slice(start, _BLOCK).to_pylist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __arrow_array__(self, type: Any = None) -> pa.Array:
        return self._column.combine_chunks()


@dataclass(frozen=True)
class LabelTable:
    """Labels in the order of their ids: the label id is the position here.

    Attributes:
        labels: L labels as the source writes them, sorted; `Strings` if they were read from a file.
        names: L names for people; the label itself if the source has none.
        train_counts: int64 (L,), training documents with the label; 0 for labels of dev or test alone.
        parents: L tuples of broader labels, or None if the source has no hierarchy. A parent need not be a label
            of this table.
        alternatives: L tuples of other names, in any language, or None.
        translations: by language, such as `de`, L names; empty where there is none.
        notations: L notations, such as the numbers of classes, empty where there is none; or None.
    """

    labels: list[str] | Strings
    names: list[str] | Strings
    train_counts: NDArray[np.int64]
    parents: list[tuple[str, ...]] | None = None
    alternatives: list[tuple[str, ...]] | None = None
    translations: Mapping[str, list[str] | Strings] = field(default_factory=dict)
    notations: list[str] | Strings | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: object) -> bool:
        return isinstance(label, str) and label_of(label) in self._ids

    def index(self, label: str) -> int:
        """Return the id of `label`.

        Raises:
            DataError: no such label; the message names one that looks like it.
        """
        label_id = self._ids.get(label_of(label) or "")
        if label_id is None:
            raise DataError(self.unknown(label))
        return label_id

    def names_in(self, language: str | None) -> Sequence[str]:
        """Return the names in a language, empty where there is none; without a language, the usual names.

        Raises:
            DataError: no label has a name in this language.
        """
        if language is None:
            return self.names
        language = str(language)
        if language not in self.translations:
            languages = (
                ", ".join(self.translations)
                or "none; columns such as name_de of a label file give them"
            )
            raise DataError(
                f"no label has a name in the language {quoted_label(language)}; there are: {languages}"
            )
        return self.translations[language]

    def take(
        self, label_ids: Sequence[int], train_counts: NDArray[np.int64]
    ) -> "LabelTable":
        """Keep some labels, whose numbers of training documents are given."""
        translations = {
            language: [names[label_id] for label_id in label_ids]
            for language, names in self.translations.items()
        }
        return LabelTable(
            labels=[self.labels[label_id] for label_id in label_ids],
            names=[self.names[label_id] for label_id in label_ids],
            train_counts=train_counts,
            parents=self.parents and [self.parents[label_id] for label_id in label_ids],
            alternatives=self.alternatives
            and [self.alternatives[label_id] for label_id in label_ids],
            translations=translations,
            notations=self.notations
            and [self.notations[label_id] for label_id in label_ids],
        )

    def unknown(self, label: str) -> str:
        """Say that there is no such label, and name one that looks like it, or of which it is the name."""
        message = (
            f"no label {quoted_label(label)} among the model's {len(self):,} labels"
        )
        wanted = label.casefold()
        named = [
            quoted_label(known)
            for known, name in zip(self.labels, self.names, strict=True)
            if name != known and name.casefold() == wanted
        ]
        if len(named) > 1:
            return f"{message}; {len(named):,} labels have this name, such as {named[0]} and {named[1]}"
        if named:
            return f"{message}; it is the name of {named[0]}"
        for similar, _ in near_pairs([label], self.labels)[:1]:
            message += f"; did you mean {quoted_label(similar)}?"
        return message

    def indices(self, labels: Iterable[str]) -> NDArray[np.int32]:
        """Return the ids of several labels; see `index`."""
        return np.fromiter((self.index(label) for label in labels), dtype=np.int32)

    def branch(self, top: str) -> NDArray[np.int32]:
        """List the ids of a label and of all labels beneath it, ascending; empty if it is unknown.

        Args:
            top: a label, or a parent that is not a label of this table.
        """
        branch: set[str] = set()
        to_visit = [label_of(top) or top]
        while to_visit:
            label = to_visit.pop()
            if label not in branch:
                branch.add(label)
                to_visit += self._children.get(label, ())
        label_ids = [self._ids[label] for label in branch if label in self._ids]
        return np.array(sorted(label_ids), np.int32)

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Ids by label, made when one is looked up: training has no use for them, and millions take hundreds of MiB."""
        return {label: label_id for label_id, label in enumerate(self.labels)}

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        children: dict[str, list[str]] = {}
        if self.parents is None:
            return children
        for label, parents in zip(self.labels, self.parents, strict=True):
            for parent in parents:
                children.setdefault(parent, []).append(label)
        return children

    def propensities(
        self, train_documents: int, a: float = 0.55, b: float = 1.5
    ) -> NDArray[np.float64]:
        """Estimate the share of a label's true occurrences that annotators found, p_l = 1 / (1 + C (N_l + B)^-A).

        C = (ln N - 1)(B + 1)^A (Jain et al. 2016, eq. 3). The usual (A, B) are (0.55, 1.5); for data of Amazon they
        are (0.6, 2.6), and for Wikipedia (0.5, 0.4).

        Args:
            train_documents: N.
            a: A.
            b: B.

        Returns:
            float64 (L,), in (0, 1].
        """
        c = (np.log(train_documents) - 1.0) * (b + 1.0) ** a
        return 1.0 / (1.0 + c * (self.train_counts + b) ** -a)

    @cached_property
    def version(self) -> str:
        """A hash of labels, names and parents."""
        return hash_of_labels(
            zip(self.labels, self.names, self.parents or repeat(()), strict=False)
        )

    def save(self, path: Path) -> None:
        """Write as Arrow IPC: label, name, train_count and, where there are any, the other attributes."""
        text = pa.string()
        columns: list[tuple[str, pa.DataType, Any]] = [
            ("label", text, self.labels),
            ("name", text, self.names),
            ("train_count", pa.int64(), self.train_counts),
        ]
        if self.parents is not None:
            columns.append(("parents", pa.list_(text), self.parents))
        if self.alternatives is not None:
            columns.append(("alternatives", pa.list_(text), self.alternatives))
        if self.notations is not None:
            columns.append(("notation", text, self.notations))
        for language, names in self.translations.items():
            columns.append((f"{_NAME_IN}{language}", text, names))
        schema = pa.schema([(name, kind) for name, kind, _ in columns])

        def batches() -> Iterator[pa.RecordBatch]:
            for start in range(0, len(self), _BLOCK):
                block = slice(start, start + _BLOCK)
                arrays = [pa.array(values[block], kind) for _, kind, values in columns]
                yield pa.record_batch(arrays, schema=schema)

        write_arrow(path, schema, batches())

    @staticmethod
    def load(path: Path) -> "LabelTable":
        """Read what `save` wrote.

        Raises:
            DataError: missing or damaged.
        """
        with reading(path, what="cannot be read as a label table"):
            table = read_arrow(path)
            labels = Strings(table["label"])
            names = (
                labels
                if table["name"].equals(table["label"])
                else Strings(table["name"])
            )
            languages = [
                name.removeprefix(_NAME_IN)
                for name in table.column_names
                if name.startswith(_NAME_IN)
            ]
            return LabelTable(
                labels=labels,
                names=names,
                train_counts=np.array(table["train_count"].to_numpy(), dtype=np.int64),
                parents=_tuples(table, "parents"),
                alternatives=_tuples(table, "alternatives"),
                translations={
                    language: Strings(table[f"{_NAME_IN}{language}"])
                    for language in languages
                },
                notations=Strings(table["notation"])
                if "notation" in table.column_names
                else None,
            )


_COLUMNS = {"label": pa.string(), "name": pa.string(), "train_count": pa.int64()}
"""Columns of every table, and their types; others hold text."""
_LISTS = frozenset({"parents", "alternatives"})


def check_labels(path: Path, kind: type[XmtcError], fix: str) -> int:
    """Check what a file of labels holds, which may be a stranger's, and return L.

    Args:
        path: the file.
        kind: kind of the error.
        fix: what to do.

    Raises:
        XmtcError: of this kind; a column is missing or of another type, or a label occurs twice.
    """
    with reading(path, kind, fix):
        table = read_arrow(path)
        table.validate(full=True)
    columns = {column.name: column.type for column in table.schema}
    for name, found in columns.items():
        expected = _COLUMNS.get(
            name, pa.list_(pa.string()) if name in _LISTS else pa.string()
        )
        if found != expected:
            raise kind(
                f"{path}: the column {name[:40]!r} is of the type {found}, not {expected}; {fix}"
            )
    for name in _COLUMNS:
        if name not in columns:
            raise kind(f"{path}: lacks the column {name}; {fix}")
        if table[name].null_count:
            raise kind(f"{path}: the column {name} has empty cells; {fix}")
    if not len(table) or len(table["label"].unique()) != len(table):
        raise kind(f"{path}: has no labels, or a label twice; {fix}")
    if min(table["train_count"].to_pylist()) < 0:
        raise kind(f"{path}: train_count is less than 0; {fix}")
    return len(table)


def _tuples(table: pa.Table, column: str) -> list[tuple[str, ...]] | None:
    """Read a column of lists; None if the table has none of this name."""
    if column not in table.column_names:
        return None
    return [tuple(names) for names in table[column].to_pylist()]
