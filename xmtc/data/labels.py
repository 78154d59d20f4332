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

from xmtc.data.readers.base import hash_of_labels, quoted_label
from xmtc.data.readers.cells import label_of, near_pairs
from xmtc.errors import DataError
from xmtc.files import reading

_BLOCK = 1 << 16  # labels written or read at a time
_IN = "name in "  # begins the column of a language


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
    """

    labels: list[str] | Strings
    names: list[str] | Strings
    train_counts: NDArray[np.int64]
    parents: list[tuple[str, ...]] | None = None
    alternatives: list[tuple[str, ...]] | None = None
    translations: Mapping[str, list[str] | Strings] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: object) -> bool:
        return isinstance(label, str) and label_of(label) in self._ids

    def index(self, label: str) -> int:
        """Return the id of `label`.

        Raises:
            DataError: no such label; the message names one that looks like it.
        """
        found = self._ids.get(label_of(label) or "")
        if found is None:
            raise DataError(self.unknown(label))
        return found

    def names_in(self, language: str | None) -> Sequence[str]:
        """Return the names in a language, empty where there is none; without a language, the usual names.

        Raises:
            DataError: no label has a name in this language.
        """
        if language is None:
            return self.names
        if (language := str(language)) not in self.translations:
            there = ", ".join(self.translations) or "none; columns such as name_de of a label file give them"
            raise DataError(f"no label has a name in the language {quoted_label(language)}; there are: {there}")
        return self.translations[language]

    def take(self, kept: Sequence[int], train_counts: NDArray[np.int64]) -> "LabelTable":
        """Keep some labels, whose numbers of training documents are given."""
        return LabelTable(
            [self.labels[i] for i in kept],
            [self.names[i] for i in kept],
            train_counts,
            self.parents and [self.parents[i] for i in kept],
            self.alternatives and [self.alternatives[i] for i in kept],
            {language: [names[i] for i in kept] for language, names in self.translations.items()},
        )

    def unknown(self, label: str) -> str:
        """Say that there is no such label, and name one that looks like it."""
        near = "".join(f"; did you mean {quoted_label(other)}?" for other, _ in near_pairs([label], self.labels)[:1])
        return f"no label {quoted_label(label)} among the model's {len(self):,} labels{near}"

    def indices(self, labels: Iterable[str]) -> NDArray[np.int32]:
        """Return the ids of several labels; see `index`."""
        return np.fromiter((self.index(label) for label in labels), dtype=np.int32)

    def branch(self, top: str) -> NDArray[np.int32]:
        """List the ids of a label and of all labels beneath it, ascending; empty if it is unknown.

        Args:
            top: a label, or a parent that is not a label of this table.
        """
        found, waiting = set(), [label_of(top) or top]
        while waiting:
            label = waiting.pop()
            if label not in found:
                found.add(label)
                waiting += self._children.get(label, ())
        return np.array(sorted(self._ids[label] for label in found if label in self._ids), np.int32)

    @cached_property
    def _ids(self) -> dict[str, int]:
        """Made when a label is looked up: training has no use for it, and millions of labels take hundreds of MiB."""
        return {label: i for i, label in enumerate(self.labels)}

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        children: dict[str, list[str]] = {}
        for label, parents in zip(self.labels, self.parents or (), strict=self.parents is not None):
            for parent in parents:
                children.setdefault(parent, []).append(label)
        return children

    def propensities(self, train_documents: int, a: float = 0.55, b: float = 1.5) -> NDArray[np.float64]:
        """Estimate the share of a label's true occurrences that annotators found, p_l = 1 / (1 + C (N_l + B)^-A).

        C = (ln N - 1)(B + 1)^A (Jain et al. 2016, eq. 3); usual (A, B): (0.55, 1.5), Amazon (0.6, 2.6), Wikipedia
        (0.5, 0.4).

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
        return hash_of_labels(zip(self.labels, self.names, self.parents or repeat(()), strict=False))

    def save(self, path: Path) -> None:
        """Write as Arrow IPC: label, name, train_count and, if any, parents, alternatives and translations."""
        types = {"label": pa.string(), "name": pa.string(), "train_count": pa.int64()}
        lists = {"parents": self.parents, "alternatives": self.alternatives}
        lists = {name: values for name, values in lists.items() if values is not None}
        types |= dict.fromkeys(lists, pa.list_(pa.string()))
        translations = {f"{_IN}{language}": names for language, names in self.translations.items()}
        types |= dict.fromkeys(translations, pa.string())
        schema = pa.schema(types)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for start in range(0, len(self), _BLOCK):
                block = slice(start, start + _BLOCK)
                columns: list[Any] = [self.labels[block], self.names[block], self.train_counts[block]]
                columns += [values[block] for values in (*lists.values(), *translations.values())]
                writer.write_batch(
                    pa.record_batch([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema=schema)
                )

    @staticmethod
    def load(path: Path) -> "LabelTable":
        """Read what `save` wrote.

        Raises:
            DataError: missing or damaged.
        """
        with reading(path, what="cannot be read as a label table"):
            with pa.memory_map(str(path)) as source:
                table = pa.ipc.open_file(source).read_all()
            parents, others = (
                list(map(tuple, table[name].to_pylist())) if name in table.column_names else None
                for name in ("parents", "alternatives")
            )
            counts = np.array(table["train_count"].to_numpy(), dtype=np.int64)
            labels = Strings(table["label"])
            names = labels if table["name"].equals(table["label"]) else Strings(table["name"])
            languages = [name.removeprefix(_IN) for name in table.column_names if name.startswith(_IN)]
            translations = {language: Strings(table[f"{_IN}{language}"]) for language in languages}
            return LabelTable(labels, names, counts, parents, others, translations)
