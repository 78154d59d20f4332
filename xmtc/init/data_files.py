"""Find the files with the documents: one file, or a folder with files by split; local or at a URI."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from xmtc.data.readers.base import Rejected, sound
from xmtc.data.readers.cells import labels_of
from xmtc.data.readers.endings import COMPRESSIONS, ending_of
from xmtc.data.readers.files import check_file
from xmtc.data.readers.formats import format_of
from xmtc.data.readers.jsonl import JsonLines
from xmtc.data.readers.skos import SKOS_FORMATS, TERMS, SkosTable
from xmtc.data.readers.table import Row
from xmtc.data.readers.table_config import (
    TABLES,
    ArrowConfig,
    SplitFilesConfig,
    TableSettings,
    table_of,
)
from xmtc.errors import DataError
from xmtc.files import read_json, reading
from xmtc.init.roles import Roles
from xmtc.storage.config import is_remote
from xmtc.storage.fetch import fetch

_SPLITS = {
    "train": ("train", "training", "trn"),
    "dev": ("dev", "development", "validation", "valid", "val"),
    "test": ("test", "tst"),
}
_SKOS = ("skos", "vocabulary", "thesaurus", "subjects")
_LABELS = ("labels", "label", "label_names", "classes")


@dataclass(frozen=True)
class DataFiles:
    """Files of one format.

    Attributes:
        place: the path or URI that the user gave.
        by_split: files of train, dev and test, as the configuration names them; URIs stay URIs.
        local: the same files on this machine, by the name in the configuration.
        settings: class of the source's settings.
        labels: a label file, if the folder has one.
        left_out: tables in the folder, or splits of the data set, that are none of these.
    """

    place: str
    by_split: Mapping[str, tuple[str, ...]]
    local: Mapping[str, Path]
    settings: TableSettings
    labels: str | None = None
    left_out: Sequence[str] = ()

    def rows(self) -> Iterator[Row | Rejected]:
        """Read the first file of training documents."""
        table = self.settings(files=SplitFilesConfig(train=self.place)).format()
        return table.rows(self.local[self.by_split["train"][0]], None)


def find_files(data: str) -> DataFiles:
    """Find the files that `data` names.

    Args:
        data: a file, a folder, or a URI of either.

    Raises:
        DataError: there are no readable files; the message says what is there.
        StorageError: a URI cannot be copied to this machine.
    """
    local = fetch(data)
    if local.is_dir():
        return _in_folder(data, local)
    settings = table_of(check_file(local))
    if settings is None:
        known = ", ".join([*TABLES, *COMPRESSIONS])
        raise DataError(f"{data}: xmtc init reads {known}, and folders of them; save a spreadsheet as CSV")
    return DataFiles(data, {"train": (data,)}, {data: local}, settings)


def _in_folder(data: str, folder: Path) -> DataFiles:
    """Find the files of a folder, or of its subfolder `data`, by the beginning of their names."""
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        return _saved_dataset(data, folder)
    places = [place for place in (folder, folder / "data") if place.is_dir()]
    files = [path for place in places for path in sorted(place.iterdir()) if path.is_file()]
    tables = [path for path in files if table_of(path) is not None]
    if tables:
        files = [path for path in files if path.parent == tables[0].parent]
        vocabularies = [p for p in files if ending_of(p) in SKOS_FORMATS and _stem(p) in (*_LABELS, *_SKOS)]
        found = _by_split(data, folder, [path for path in files if path in tables], vocabularies)
        left_out = sorted(set(tables) - set(found.local.values()))
        return replace(found, left_out=[path.relative_to(folder).as_posix() for path in left_out])
    there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise DataError(f"{data}: no {', '.join(TABLES)} in this folder; it holds {there}; give the file itself")


def _saved_dataset(data: str, folder: Path) -> DataFiles:
    """Find the files of a data set that Hugging Face `datasets` saved: one data set, or one folder per split."""
    by_split, names = {"train": _shards(folder)}, _listed(folder / "dataset_dict.json", "splits")
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        if (split := _split_of(part)) is not None and (names is None or part.name in names):
            by_split.setdefault(split, []).extend(_shards(part))
    if not by_split["train"]:
        there = ", ".join(sorted(path.name for path in folder.iterdir() if path.is_dir())) or "none"
        raise DataError(f"{data}: no split of this data set is named train; it has {there}; save it under that name")
    left_out = [name for name in names or () if _split_of(Path(name)) is None]
    return replace(_named(data, folder, by_split, ArrowConfig), left_out=left_out)


def _shards(folder: Path) -> list[Path]:
    """List the files of a saved data set; saving it again with fewer leaves the others where they are."""
    listed = _listed(folder / "state.json", "_data_files")
    return sorted(folder.glob("data-*.arrow")) if listed is None else [folder / one["filename"] for one in listed]


def _listed(path: Path, key: str) -> list[Any] | None:
    """Return what `datasets` lists beside its files; None if it lists nothing."""
    with reading(path, fix="save the data set again"):
        return read_json(path).get(key) if path.is_file() else None


def _by_split(data: str, folder: Path, files: list[Path], vocabularies: list[Path]) -> DataFiles:
    labels = [*(path for path in files if _stem(path) in _LABELS), *vocabularies]
    by_split = {split: [path for path in files if _split_of(path) == split] for split in _SPLITS}
    rest = [path for path in files if path not in labels and _split_of(path) is None]
    if not by_split["train"] and len(rest) == 1:
        by_split["train"], rest = rest, []
    if not by_split["train"]:
        names = ", ".join(path.name for path in files[:8])
        raise DataError(
            f"{data}: no file of this folder is named train: {names}; rename one, or give the file of documents itself"
        )
    used = [path for paths in by_split.values() for path in paths]
    settings, *others = {table_of(path) for path in used}
    if others or settings is None:
        names = ", ".join(path.name for path in used[:8])
        raise DataError(f"{data}: files of several formats: {names}; keep one format")
    return _named(data, folder, by_split, settings, labels[:1])


def _named(
    data: str, folder: Path, by_split: Mapping[str, list[Path]], settings: TableSettings, labels: Sequence[Path] = ()
) -> DataFiles:
    """Name files of the folder as the configuration writes them."""
    place = data.rstrip("/") if is_remote(data) else str(folder)
    paths = [path for some in (*by_split.values(), labels) for path in some]
    name = {path: f"{place}/{path.relative_to(folder).as_posix()}" for path in paths}
    splits = {split: tuple(name[path] for path in some) for split, some in by_split.items() if some}
    return DataFiles(
        data, splits, {name[path]: path for path in name}, settings, labels=next((name[path] for path in labels), None)
    )


def _stem(path: Path) -> str:
    return path.name.split(".")[0].lower()


def _split_of(path: Path) -> str | None:
    """Find the split that a file name begins with, such as `train-00000-of-00002.parquet`."""
    first = _stem(path).replace("_", "-").split("-")[0]
    return next((split for split, names in _SPLITS.items() if first in names), None)


_ROWS = 1000  # number of documents whose labels are looked up
_NAMES = ("name", "title", "label", "description", "text", "term", "meaning")
_PARENTS = ("parents", "parent", "parent_id", "broader")


def label_columns(files: DataFiles, roles: Roles) -> dict[str, str | None]:
    """Choose columns of the label file: labels are those that documents have; names tell names and parents."""
    path = files.local[files.labels or ""]
    syntax = SKOS_FORMATS.get(ending_of(path))
    labels, found = _labels(files, roles), defaultdict[str, set[str]](set)
    for row in sound((SkosTable(syntax) if syntax else format_of(path, JsonLines())).rows(path, None)):
        for column in TERMS if syntax else row.cells:
            with suppress(ValueError):  # others than labels
                found[column] |= labels.intersection(labels_of(row.cells.get(column))[0])
    label = max(found, key=lambda column: (len(found[column]), column == "label"), default="label")
    if syntax:
        return {"label": label, "parents": TERMS[label]}
    name, parents = (
        next((column for known in names for column in found if column.lower() == known and column != label), None)
        for names in (_NAMES, _PARENTS)
    )
    return {"label": label, "name": name} | ({"parents": parents} if parents else {})


def _labels(files: DataFiles, roles: Roles) -> set[str]:
    """Read the labels of the first documents."""
    if len(roles.labels) != 1:
        return set(roles.labels)
    rows = [row for row in islice(files.rows(), _ROWS) if not isinstance(row, Rejected)]
    return {label for row in rows for label in labels_of(row.cells.get(roles.labels[0]), roles.separator)[0]}
