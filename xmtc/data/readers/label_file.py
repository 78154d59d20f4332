"""Files that name labels: a table of any format. Any bad row is an error."""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xmtc.data.readers.base import LabelInfo, quoted_cell, sound
from xmtc.data.readers.cells import ONE, label_of, labels_of
from xmtc.data.readers.endings import ending_of
from xmtc.data.readers.files import missing_column
from xmtc.data.readers.formats import format_of
from xmtc.data.readers.jsonl import JsonLines
from xmtc.data.readers.skos import REPLACEMENTS, SKOS_FORMATS, SkosTable
from xmtc.errors import DataError

if TYPE_CHECKING:
    from xmtc.data.readers.table_config import LabelFileConfig

logger = logging.getLogger(__name__)
_NAME_IT = (
    "name it in source.labels, or for `xmtc labels` by --label, --name or --parents"
)
_NAMES = re.compile(r"alt_names|name(?:[_@]([a-z]{2,3}(?:-\w+)*))?")
"""Columns with names; the group is the language."""


def read_label_file(settings: "LabelFileConfig") -> LabelInfo:
    """Read names and parents of labels; not every row needs them.

    Of a published vocabulary, which its readers cannot correct, concepts without a label are left out, and a label of
    several concepts means the first. The log counts them.

    Raises:
        DataError: the file cannot be read, a row is wrong, or a column is missing.
    """
    path = Path(settings.path)
    syntax = SKOS_FORMATS.get(ending_of(path))
    vocabulary = SkosTable(syntax, settings.name) if syntax else None
    rows = _Rows(settings, published=vocabulary is not None)
    columns: set[str] = set()
    for number, row in enumerate(
        sound((vocabulary or format_of(path, JsonLines())).rows(path, None)), start=1
    ):
        columns.update(row.cells)
        if settings.label not in row.cells:
            raise missing_column(path, settings.label, row.cells, _NAME_IT)
        try:
            rows.add(row.cells, number)
        except ValueError as problem:
            raise DataError(f"{path}: {problem}; correct row {number}") from None
    for column in (settings.name, settings.parents, settings.written):
        if column and columns and column not in columns:
            raise missing_column(path, column, sorted(columns), _NAME_IT)
    if vocabulary is not None:
        _report_vocabulary(path, rows, settings)
    else:
        _report_unknown_parents(path, rows)
    return LabelInfo(
        names=rows.names,
        parents=rows.parents,
        closed=settings.closed,
        alternatives=rows.alternatives,
        translations=rows.translations,
        deprecated=rows.deprecated,
        notations=rows.notations,
        written=rows.written,
        stated=vocabulary.stated if vocabulary is not None else "",
    )


def _report_vocabulary(path: Path, rows: "_Rows", settings: "LabelFileConfig") -> None:
    """Count in the log what was left out of a published vocabulary, and refuse one without labels."""
    if not rows.names:
        raise DataError(
            f"{path}: no concept has a {settings.label}; use id or label: {_NAME_IT}"
        )
    counted = ", ".join(
        f"{what} {number:,}" for what, number in rows.counts.most_common()
    )
    logger.info("%s: %s labels; %s", path, f"{len(rows.names):,}", counted)


def _report_unknown_parents(path: Path, rows: "_Rows") -> None:
    """Warn of parents that are no labels, as they are if several of them stand in one string."""
    unknown = set(chain.from_iterable(rows.parents.values())) - rows.row_of.keys()
    if unknown:
        logger.warning(
            "%s: %d parents are not among its labels, such as %s; several parents are written as a JSON list",
            path,
            len(unknown),
            quoted_cell(min(unknown)),
        )


@dataclass(frozen=True)
class _Rows:
    """What the rows of a label file say, by label.

    Attributes:
        settings: which columns say what.
        published: whether the file is a vocabulary that its readers cannot correct.
        names, parents, alternatives, translations, deprecated, notations, written: see `LabelInfo`.
        row_of: number of the row of each label.
        counts: how often what is worth knowing occurred, by what it is.
    """

    settings: "LabelFileConfig"
    published: bool
    names: dict[str, str] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    alternatives: dict[str, tuple[str, ...]] = field(default_factory=dict)
    translations: dict[str, dict[str, str]] = field(default_factory=dict)
    deprecated: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notations: dict[str, str] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    row_of: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, cells: Mapping[str, Any], number: int) -> None:
        """Add a row.

        Raises:
            ValueError: the row is wrong; the message says what is.
        """
        column = self.settings.label
        labels, _ = labels_of(cells[column])
        if labels:
            self.counts[f"names in {cells.get('language')}"] += 1
        elif self.published:
            self.counts[f"concepts without {column}, left out,"] += 1
        else:
            raise ValueError(f"no label in column {column!r} of row {number}")
        for label in labels:
            if label not in self.row_of:
                self.row_of[label] = number
                self._describe(label, cells)
            elif self.published:
                self.counts[
                    "labels of several concepts, of which the first counts,"
                ] += 1
            else:
                raise ValueError(
                    f"label {quoted_cell(label)} is in row {self.row_of[label]} and again in row {number}"
                )

    def _describe(self, label: str, cells: Mapping[str, Any]) -> None:
        """Note what a row says about its label."""
        settings = self.settings
        name = label_of(cells.get(settings.name)) if settings.name else None
        self.names[label] = name or label
        other_names = tuple(
            other for other in _names_in(cells) if other != self.names[label]
        )
        if other_names:
            self.alternatives[label] = other_names
        for language, translation in _translations_in(cells):
            self.translations.setdefault(language, {})[label] = translation
        if settings.written is not None:
            for spelling in labels_of(cells.get(settings.written))[0]:
                self.written.setdefault(spelling, label)
        notations, _ = labels_of(cells.get("notation"))
        if notations and label not in notations:
            self.notations[label] = notations[0]
        broader = labels_of(cells.get(settings.parents))[0] if settings.parents else ()
        if broader:
            self.parents[label] = broader
        replacements, _ = labels_of(
            cells.get(REPLACEMENTS.get(settings.label, "replaced_by"))
        )
        is_deprecated = (label_of(cells.get("deprecated")) or "").capitalize() in ONE
        if replacements or is_deprecated:
            self.deprecated[label] = replacements


def _translations_in(cells: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield language and name of the columns `name_de`, `name@de` …"""
    for column, cell in cells.items():
        match = _NAMES.fullmatch(column)
        if match is None or match[1] is None:
            continue
        translation = label_of(cell)
        if translation:
            yield match[1], translation


def _names_in(cells: Mapping[str, Any]) -> Iterator[str]:
    """Yield every name in the columns `alt_names` (a list or a name), `name`, and `name_de`, `name@de` … once."""
    columns = {
        column: cell for column, cell in cells.items() if _NAMES.fullmatch(column)
    }
    names, _ = labels_of(columns.pop("alt_names", None))
    translations = [label_of(cell) for cell in columns.values()]
    yield from dict.fromkeys(name for name in (*names, *translations) if name)
