"""Files that name labels: a table of any format. Any bad row is an error."""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from xmtc.data.readers.base import LabelInfo, quoted_cell, sound
from xmtc.data.readers.cells import ONE, label_of, labels_of
from xmtc.data.readers.files import missing_column
from xmtc.data.readers.skos import REPLACEMENTS, SKOS_FORMATS, SkosTable
from xmtc.data.readers.table_config import JsonlConfig, LabelFileConfig, ending_of, format_of
from xmtc.errors import DataError

logger = logging.getLogger(__name__)
_NAME_IT = "name it in source.labels, or for `xmtc labels` by --label, --name or --parents"
_NAMES = re.compile(r"alt_names|name(?:[_@]([a-z]{2,3}(?:-\w+)*))?")


def read_label_file(settings: LabelFileConfig) -> LabelInfo:
    """Read names and parents of labels; not every row needs them.

    Of a published vocabulary, which its readers cannot correct, concepts without a label are left out, and a label of
    several concepts means the first. The log counts them.

    Raises:
        DataError: the file cannot be read, a row is wrong, or a column is missing.
    """
    path = Path(settings.path)
    syntax = SKOS_FORMATS.get(ending_of(path))
    format = SkosTable(syntax, settings.name) if syntax else format_of(path, JsonlConfig)
    published, found, columns = isinstance(format, SkosTable), _Labels({}, {}, {}, {}, {}, {}, Counter()), set[str]()
    for number, row in enumerate(sound(format.rows(path, None)), start=1):
        columns.update(row.cells)
        if settings.label not in row.cells:
            raise missing_column(path, settings.label, row.cells, _NAME_IT)
        try:
            found.add(row.cells, number, settings, published=published)
        except ValueError as problem:
            raise DataError(f"{path}: {problem}; correct row {number}") from None
    missing = [name for name in (settings.name, settings.parents) if name and columns and name not in columns]
    if missing:
        raise missing_column(path, missing[0], sorted(columns), _NAME_IT)
    if published:
        if not found.names:
            raise DataError(f"{path}: no concept has a {settings.label}; use id or label: {_NAME_IT}")
        counted = ", ".join(f"{what} {number:,}" for what, number in found.counts.most_common())
        logger.info("%s: %s labels; %s", path, f"{len(found.names):,}", counted)
    if not published and (unknown := set(chain.from_iterable(found.parents.values())) - found.rows.keys()):
        said = "%s: %d parents are not among its labels, such as %s; several parents are written as a JSON list"
        logger.warning(said, path, len(unknown), quoted_cell(min(unknown)))
    stated = format.stated if isinstance(format, SkosTable) else ""
    others = found.alternatives, found.translations
    return LabelInfo(found.names, found.parents, settings.closed, *others, found.deprecated, stated)


@dataclass(frozen=True)
class _Labels:
    """What has been read: names, parents … by label, and how often what is worth knowing occurred."""

    names: dict[str, str]
    parents: dict[str, tuple[str, ...]]
    alternatives: dict[str, tuple[str, ...]]
    translations: dict[str, dict[str, str]]
    deprecated: dict[str, tuple[str, ...]]
    rows: dict[str, int]
    counts: Counter[str]

    def add(self, cells: Mapping[str, Any], number: int, settings: LabelFileConfig, *, published: bool) -> None:
        """Add a row; ValueError says what is wrong with it."""
        labels, _ = labels_of(cells[settings.label])
        if not labels and not published:
            raise ValueError(f"no label in column {settings.label!r} of row {number}")
        self.counts[f"concepts without {settings.label}, left out,"] += not labels
        self.counts[f"names in {cells.get('language')}"] += bool(labels)
        name = label_of(cells.get(settings.name)) if settings.name else None
        broader = labels_of(cells.get(settings.parents))[0] if settings.parents else ()
        newer = labels_of(cells.get(REPLACEMENTS.get(settings.label, "replaced_by")))[0]
        old = bool(newer) or (label_of(cells.get("deprecated")) or "").capitalize() in ONE
        for label in labels:
            if label in self.rows and not published:
                raise ValueError(f"label {quoted_cell(label)} is in row {self.rows[label]} and again in row {number}")
            if label in self.rows:
                self.counts["labels of several concepts, of which the first counts,"] += 1
                continue
            self.rows[label], self.names[label] = number, name or label
            if others := tuple(other for other in _others(cells) if other != self.names[label]):
                self.alternatives[label] = others
            for column, cell in cells.items():
                if (found := _NAMES.fullmatch(column)) and found[1] and (translated := label_of(cell)):
                    self.translations.setdefault(found[1], {})[label] = translated
            if broader:
                self.parents[label] = broader
            if old:
                self.deprecated[label] = newer


def _others(cells: Mapping[str, Any]) -> Iterator[str]:
    """Yield every name in the columns `alt_names` (a list or a name), `name`, and `name_de`, `name@de` … once."""
    columns = {column: value for column, value in cells.items() if _NAMES.fullmatch(column)}
    several = labels_of(columns.pop("alt_names", None))[0]
    yield from dict.fromkeys(name for name in (*several, *map(label_of, columns.values())) if name)
