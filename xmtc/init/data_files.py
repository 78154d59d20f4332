"""Find the files with the documents: one file, or a folder with files by split; local or at a URI."""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from xmtc.config.load import load_overrides
from xmtc.data.fields import field_parts
from xmtc.data.readers.base import Reader, Rejected, shown_column, sound
from xmtc.data.readers.cells import labels_of
from xmtc.data.readers.config import ReaderConfig, XcRepositoryConfig
from xmtc.data.readers.endings import COMPRESSIONS, ending_of
from xmtc.data.readers.export_config import EXPORT_SETTINGS, ExportSettings
from xmtc.data.readers.exports import recognised
from xmtc.data.readers.exports.base import ID, LABELS, REJECTED
from xmtc.data.readers.files import check_file
from xmtc.data.readers.formats import format_of
from xmtc.data.readers.jsonl import JsonLines
from xmtc.data.readers.skos import SKOS_FORMATS, TERMS, SkosTable
from xmtc.data.readers.table import Row
from xmtc.data.readers.table_config import (
    TABLES,
    ArrowConfig,
    JsonlConfig,
    TableConfig,
    TableSettings,
    table_of,
)
from xmtc.data.readers.xc_repository import (
    XcRepositoryReader,
    reader_of_folder,
)
from xmtc.errors import ConfigError, DataError
from xmtc.files import read_json, reading
from xmtc.init.answers import NO_ANSWERS, OF_SOURCE, Answers, settings_of_source
from xmtc.init.contents import refuse_unread, settings_by_content
from xmtc.init.roles import Roles
from xmtc.run.config import RunConfig
from xmtc.storage.config import is_remote
from xmtc.storage.fetch import fetch
from xmtc.track.progress import Progress

_SPLITS = {
    "train": ("train", "training", "trn"),
    "dev": ("dev", "development", "validation", "valid", "val"),
    "test": ("test", "tst"),
}
"""How the names of files of a split begin."""
_VOCABULARIES = ("skos", "vocabulary", "thesaurus", "subjects")
"""Names of SKOS files in a folder of documents, beside those of label files."""
_LABEL_FILES = ("labels", "label", "label_names", "classes")
"""Names of label files in a folder of documents."""
_WORDS = re.compile(r"[\W_]+")
"""What stands between the words of a file's name."""
_PART = re.compile(r"part-\d+")
"""How the names of files begin that Spark and Hadoop write."""
_KEY = re.compile(r"(?:id|key|number)$", re.IGNORECASE)
"""How the names of columns end by which rows of tables belong together."""
_DOCUMENTS = 5
"""JSON files of a folder from which on each may be a document."""
_SHOWN = 8
"""Files of a folder that a message names."""
_SETTINGS: dict[str, TableSettings | ExportSettings] = {
    settings.kind: settings for settings in (*TABLES.values(), *EXPORT_SETTINGS)
}
"""The sources whose columns are inferred, by `kind`."""


@dataclass(frozen=True)
class DataFiles:
    """Files of one format.

    Attributes:
        place: the path or URI that the user gave.
        by_split: files of train, dev and test, as the configuration names them; URIs stay URIs.
        local: the same files on this machine, by the name in the configuration.
        settings: class of the settings of a source that is told files; not used if there is a `folder`.
        labels: a label file, if the folder has one.
        left_out: tables in the folder, or splits of the data set, that are none of these.
        unlabelled: files of the folder with texts, but without the labels that the training documents have.
        folder: reads the documents if the source is told a folder of known files, and no files; it has the settings.
        overrides: settings of the source that the user gives.
        added: files of `by_split["train"]` that the user adds to the others.
    """

    place: str
    by_split: Mapping[str, tuple[str, ...]]
    local: Mapping[str, Path]
    settings: TableSettings | ExportSettings
    labels: str | None = None
    left_out: Sequence[str] = ()
    unlabelled: Sequence[Path] = ()
    folder: XcRepositoryReader | None = None
    overrides: Sequence[str] = ()
    added: Sequence[str] = ()

    @property
    def kind(self) -> str:
        """The `kind` of the source."""
        settings = self.settings if self.folder is None else self.folder.settings
        return settings.kind

    @property
    def named_by_line(self) -> bool:
        """Whether the first line of a file names the columns."""
        return self.folder is None and self.settings.named_by_line

    @property
    def has_header(self) -> bool:
        """Whether the user names the columns."""
        return any(
            override.startswith(f"{OF_SOURCE}header=") for override in self.overrides
        )

    @property
    def is_export(self) -> bool:
        """Whether another tool wrote the files, in a format that says which columns are the labels."""
        return self.folder is not None or self.settings in EXPORT_SETTINGS

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The columns of the text, if the source does not let one choose them."""
        return None if self.folder is None else self.folder.fields()

    def names(self, *, local: bool = False) -> dict[str, Any]:
        """Return the keys of `data.source` that say what is read.

        Args:
            local: name what is on this machine, not what the user named.
        """
        options = self._options()
        if self.folder is not None:
            directory = self.folder.settings.directory if local else self.place
            return {"directory": directory, **options}
        names_by_key: dict[str, Sequence[str]] = dict(self.by_split)
        if self.added:
            own = [name for name in self.by_split["train"] if name not in self.added]
            names_by_key |= {"train": own, "added": self.added}
        by_key = {
            key: [str(self.local[name]) if local else name for name in names]
            for key, names in names_by_key.items()
        }
        files = {
            key: names[0] if len(names) == 1 else names for key, names in by_key.items()
        }
        return {"files": files, **options}

    def _options(self) -> dict[str, Any]:
        """Return what the user says of the source.

        Raises:
            ConfigError: the source has no such setting.
        """
        if not self.overrides:
            return {}
        source = _source_of(self.kind, self.overrides)
        names = [override.partition("=")[0] for override in self.overrides]
        keys = [name.strip().removeprefix(OF_SOURCE) for name in names]
        return {key: getattr(source, key) for key in keys if key != "kind"}

    def _source(self) -> TableConfig:
        """Make the settings of a source of tables with what the user says of it, but without its files."""
        return cast(TableConfig, _source_of(self.kind, self.overrides))

    def rows(self) -> Iterator[Row | Rejected]:
        """Read the first file of training documents."""
        if self.folder is not None:
            return _rows_of(self.folder)
        first = self.by_split["train"][0]
        return self._source().format().rows(self.local[first], None)

    def with_labels(
        self, labels: Sequence[str], texts: Sequence[str] = ()
    ) -> "DataFiles":
        """Leave out dev and test files without labels: competitions keep the labels of test, or give them later.

        Args:
            labels: columns of labels.
            texts: columns of texts; a file without them, beside one of texts without labels, is left out, too.
        """
        if self.folder is not None:
            return self
        by_split = dict(self.by_split)
        unlabelled: list[Path] = []
        for split in by_split.keys() - {"train"}:
            lacking = [
                name for name in by_split[split] if not self._has_labels(name, labels)
            ]
            if lacking and texts:
                lacking += [
                    name
                    for name in by_split[split]
                    if name not in lacking and self.columns_of(name).isdisjoint(texts)
                ]
            unlabelled += [self.local[name] for name in lacking]
            by_split[split] = tuple(
                name for name in by_split[split] if name not in lacking
            )
        by_split = {split: names for split, names in by_split.items() if names}
        return replace(self, by_split=by_split, unlabelled=unlabelled)

    def _has_labels(self, name: str, labels: Sequence[str]) -> bool:
        columns = self.columns_of(name)
        if not columns.isdisjoint(labels):
            return True
        format = self._source().build().format_of(self.local[name])
        is_other = not isinstance(format, type(self._source().format()))
        return is_other and LABELS in columns  # it stands for the source's labels

    def says_what_was_rejected(self, name: str) -> bool:
        """Whether a file has annotations, which tell rejected labels from those that nobody judged."""
        return {LABELS, REJECTED} <= self.columns_of(name)

    def columns_of(self, name: str) -> set[str]:
        """Return the columns of the first document of a file; none if nobody has judged the first documents."""
        path = self.local[name]
        rows = self._source().build().format_of(path).rows(path, None)
        first = next((row for row in islice(rows, _ROWS) if isinstance(row, Row)), None)
        return set(first.cells) if first is not None else set()


def _rows_of(reader: Reader) -> Iterator[Row | Rejected]:
    """Write the documents of a source as the rows of a table, with a column for each field."""
    documents = reader.read(
        lambda function, items: map(function, items), Progress(enabled=False)
    )
    for number, document in enumerate(documents, start=1):
        if isinstance(document, Rejected):
            yield document
            continue
        texts = field_parts(document.text, len(reader.fields()))
        cells: dict[str, Any] = dict(zip(reader.fields(), texts, strict=True))
        cells |= {ID: document.doc_id, LABELS: list(document.labels)}
        yield Row(cells, document.doc_id, number)


def find_files(data: str, answers: Answers = NO_ANSWERS) -> DataFiles:
    """Find the files that `data` names.

    Args:
        data: a file, a folder, or a URI of either.
        answers: options of the user.

    Raises:
        ConfigError: the user says of the source what it does not have.
        DataError: there are no readable files; the message says what is there.
        StorageError: a URI cannot be copied to this machine.
    """
    settings = settings_of_source(answers.overrides)
    _check_kind(settings.get("kind"))
    files = replace(
        _files_at(data, settings.get("kind"), settings.get("form")),
        overrides=answers.overrides,
    )
    return _with_more(files, answers.add) if answers.add else files


def _files_at(data: str, kind: str | None, form: str | None) -> DataFiles:
    """Find the files, of a kind of source and a layout of a folder if the user says one."""
    local = fetch(data)
    if not local.is_dir():
        check_file(local)
    elif kind in (None, XcRepositoryConfig.kind):
        known = reader_of_folder(_layout(local, form))
        if known is not None:
            return _known_folder(data, known)
    if local.is_dir() and _format_of_export(local) is None:
        return _in_folder(data, local, kind)
    settings = _settings_of(local, data, kind)
    return DataFiles(data, {"train": (data,)}, {data: local}, settings)


def _layout(folder: Path, form: str | None) -> XcRepositoryConfig:
    """Make the settings of a folder, in the layout that the user says.

    Raises:
        ConfigError: there is no such layout.
    """
    overrides = [] if form is None else [f"{OF_SOURCE}form={form}"]
    source = _source_of(XcRepositoryConfig.kind, overrides)
    return replace(cast(XcRepositoryConfig, source), directory=str(folder))


def _source_of(kind: str, overrides: Sequence[str]) -> ReaderConfig:
    """Make the settings of a source with overrides, and something in the place of its files.

    Raises:
        ConfigError: there is no such setting, or no such value of one.
    """
    place = "directory" if kind == XcRepositoryConfig.kind else "files.train"
    minimal = ["name=run", "data.corpus=corpus", f"{OF_SOURCE}kind={kind}"]
    own = [*minimal, f"{OF_SOURCE}{place}=data", *overrides]
    return load_overrides(RunConfig, own).data.source


def _check_kind(kind: str | None) -> None:
    """Refuse a kind of source whose columns are not inferred.

    Raises:
        ConfigError: it is one.
    """
    if kind is not None and kind not in (*_SETTINGS, XcRepositoryConfig.kind):
        raise ConfigError(
            f"{OF_SOURCE}kind={kind}: xmtc init finds the columns of {', '.join(_SETTINGS)}; write the configuration "
            "of another source yourself"
        )


def _with_more(files: DataFiles, names: Sequence[str]) -> DataFiles:
    """Add files of training documents; those that are read anyway stay as they are."""
    if files.folder is not None:
        raise no_files_to_add(files.place, files.kind)
    local = {name: check_file(fetch(name)) for name in names}
    own = files.by_split["train"]
    added = tuple(name for name in dict.fromkeys(names) if name not in own)
    return replace(
        files,
        by_split={**files.by_split, "train": (*own, *added)},
        local={**files.local, **local},
        added=added,
    )


def say_what_was_rejected(kind: str, names: Sequence[str]) -> bool:
    """Whether files that are added to a source of a kind have annotations, see `DataFiles.says_what_was_rejected`.

    Raises:
        DataError: one cannot be read.
        StorageError: a URI cannot be copied to this machine.
    """
    files = DataFiles(
        place=", ".join(names),
        by_split={"train": tuple(names)},
        local={name: check_file(fetch(name)) for name in names},
        settings=_SETTINGS.get(kind, JsonlConfig),
    )
    return any(map(files.says_what_was_rejected, names))


def no_files_to_add(place: object, kind: str) -> ConfigError:
    """Make the error for --add where the source is not told files."""
    return ConfigError(
        f"{place}: --add: a source of the kind {kind} has no files to add to; leave it out"
    )


def _known_folder(data: str, reader: XcRepositoryReader) -> DataFiles:
    """Name the files of a folder of the Extreme Classification Repository."""
    paths = {split: reader.split_files(split) for split in reader.provides()}
    return DataFiles(
        place=data,
        by_split={split: tuple(map(str, files)) for split, files in paths.items()},
        local={str(path): path for files in paths.values() for path in files},
        settings=JsonlConfig,
        folder=reader,
    )


def _format_of_export(path: Path) -> ExportSettings | None:
    """Return the settings of the format of another tool that a file or folder has, if one recognises it."""
    export = recognised(path)
    if export is None:
        return None
    return next(
        settings for settings in EXPORT_SETTINGS if settings.kind == export.identity
    )


def _settings_of(
    path: Path, data: str, kind: str | None
) -> TableSettings | ExportSettings:
    """Return the settings of the source that reads a file: the user's, those of another tool, or by its ending.

    Raises:
        DataError: nothing reads it.
    """
    if kind is not None:
        return _SETTINGS[kind]
    settings = _format_of_export(path)
    if settings is None:
        refuse_unread(path)
        settings = table_of(path) or settings_by_content(path)
    if settings is None:
        endings = ", ".join([*TABLES, *COMPRESSIONS])
        tools = ", ".join(settings.kind for settings in EXPORT_SETTINGS)
        raise DataError(
            f"{data}: neither the name nor the beginning of the file tells its format; xmtc init reads {endings}, "
            f"folders of them, and the formats {tools}; if it is one of these, give {OF_SOURCE}kind=csv, for example"
        )
    return settings


def _in_folder(data: str, folder: Path, kind: str | None) -> DataFiles:
    """Find the files of a folder, or of its subfolder `data`, by the beginning of their names."""
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        return _saved_dataset(data, folder)
    splits = {
        split: folder / name
        for split, names in _SPLITS.items()
        for name in names
        if (folder / name).is_dir()
    }
    parted = _partitions(folder)
    if "train" in parted:
        return _named(
            data, folder, parted, _settings_of(parted["train"][0], data, kind)
        )
    if "train" in splits and _format_of_export(splits["train"]) is not None:
        by_split = {split: [part] for split, part in splits.items()}
        beside = sorted(path for path in folder.iterdir() if path.is_file())
        return _named(
            data,
            folder,
            by_split,
            _settings_of(splits["train"], data, kind),
            _vocabularies(beside)[:1],
        )
    parts = [path for path in _files_in(folder) if _PART.match(path.name)]
    if parts:
        return _named(
            data, folder, {"train": parts}, _settings_of(parts[0], data, kind)
        )
    if _has_a_document_in_each(folder):
        raise _nothing_in(data, folder)
    places = [place for place in (folder, folder / "data") if place.is_dir()]
    files = [path for place in places for path in _files_in(place)]
    tables = [path for path in files if _is_table(path)]
    if not tables:
        raise _nothing_in(data, folder)
    beside = [path for path in files if path.parent == tables[0].parent]
    found = _by_split(
        data,
        folder,
        [path for path in beside if path in tables],
        _vocabularies(beside),
        kind,
    )
    left_out = sorted(set(tables) - set(found.local.values()))
    return replace(
        found, left_out=[path.relative_to(folder).as_posix() for path in left_out]
    )


def _partitions(folder: Path) -> dict[str, list[Path]]:
    """List the tables in folders of splits, such as `train/` and `split=test/`; none if a folder has other files."""
    by_split: dict[str, list[Path]] = {}
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        split = _split_of(part)
        files = [path for path in _files_in(part) if path.name != "_SUCCESS"]
        if split is None or not files:
            continue
        if not all(table_of(path) or _PART.match(path.name) for path in files):
            return {}
        if all(ending_of(path) == ".json" for path in files) and len(files) > 1:
            return {}  # a document in each
        by_split.setdefault(split, []).extend(files)
    return by_split


def _nothing_in(data: str, folder: Path) -> DataError:
    """Make the error for a folder without documents."""
    held = _listed(folder.iterdir()) or "nothing"
    folders = [folder, *(path for path in sorted(folder.iterdir()) if path.is_dir())]
    of_objects = [place for place in folders if _has_a_document_in_each(place)]
    if of_objects:
        commands = "; ".join(
            f"find {shlex.quote(str(place))} -name '*.json' -exec jq -c . {{}} + > {place.name}.jsonl"
            for place in of_objects[:_SHOWN]
        )
        return DataError(
            f"{data}: JSON files with one document in each; join them: {commands}"
        )
    archives = [path for path in _files_in(folder) if path.suffix.lower() == ".zip"]
    if archives:
        place = shlex.quote(str(folder))
        commands = "; ".join(
            f"python -m zipfile -e {shlex.quote(str(path))} {place}"
            for path in archives[:_SHOWN]
        )
        return DataError(
            f"{data}: this folder holds archives: {held}; unpack them: {commands}"
        )
    return DataError(
        f"{data}: no {', '.join(TABLES)} in this folder; it holds {held}; give the file itself"
    )


def _has_a_document_in_each(folder: Path) -> bool:
    """Whether a folder holds many JSON files, the first of which is one object."""
    files = [path for path in _files_in(folder) if path.suffix.lower() == ".json"]
    if len(files) < _DOCUMENTS:
        return False
    try:
        next(iter(JsonLines().rows(files[0], None)))
    except DataError:  # one object of several lines
        return True
    return sum(1 for _ in islice(JsonLines().rows(files[0], None), 2)) == 1


def _files_in(folder: Path) -> list[Path]:
    """List the files of a folder without those that programs hide or keep as copies: `._train.csv`, `train.csv~`."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith((".", "~"))
    ]


def _is_table(path: Path) -> bool:
    """Whether a file has documents, by its ending, or by its content if its name says a split."""
    if table_of(path) is not None:
        return True
    return _split_of(path) is not None and _format_of_export(path) is not None


def _listed(paths: Iterable[Path]) -> str:
    """Write the names of the first files for a message."""
    return ", ".join(sorted(path.name for path in paths)[:_SHOWN])


def _vocabularies(files: Sequence[Path]) -> list[Path]:
    names = (*_LABEL_FILES, *_VOCABULARIES)
    return [
        path
        for path in files
        if ending_of(path) in SKOS_FORMATS and _stem(path) in names
    ]


def _saved_dataset(data: str, folder: Path) -> DataFiles:
    """Find the files of a data set that Hugging Face `datasets` saved: one data set, or one folder per split."""
    by_split: dict[str, list[Path]] = {"train": _shards(folder)}
    splits = _written_list(folder / "dataset_dict.json", "splits")
    parts = sorted(path for path in folder.iterdir() if path.is_dir())
    for part in parts:
        split = _split_of(part)
        if split is not None and (splits is None or part.name in splits):
            by_split.setdefault(split, []).extend(_shards(part))
    if not by_split["train"]:
        raise DataError(
            f"{data}: no split of this data set is named train; it has {_listed(parts) or 'none'}; save it under that "
            "name"
        )
    left_out = [name for name in splits or () if _split_of(Path(name)) is None]
    return replace(_named(data, folder, by_split, ArrowConfig), left_out=left_out)


def _shards(folder: Path) -> list[Path]:
    """List the files of a saved data set; saving it again with fewer leaves the others where they are."""
    listed = _written_list(folder / "state.json", "_data_files")
    if listed is None:
        return sorted(folder.glob("data-*.arrow"))
    return [folder / file["filename"] for file in listed]


def _written_list(path: Path, key: str) -> list[Any] | None:
    """Return what `datasets` lists beside its files; None if it lists nothing."""
    if not path.is_file():
        return None
    with reading(path, fix="save the data set again"):
        return read_json(path).get(key)


def _by_split(
    data: str,
    folder: Path,
    files: list[Path],
    vocabularies: list[Path],
    kind: str | None,
) -> DataFiles:
    """Divide the files of a folder into documents by split, and files of labels."""
    labels = [path for path in files if _stem(path) in _LABEL_FILES] + vocabularies
    by_split = {
        split: [path for path in files if _split_of(path) == split] for split in _SPLITS
    }
    rest = [path for path in files if path not in labels and _split_of(path) is None]
    if not by_split["train"] and rest and _are_alike(rest, data, kind):
        by_split["train"] = rest
    if not by_split["train"]:
        others = rest or files
        shared = _shared_columns(others[:2], data, kind)
        if shared:
            names = ", ".join(map(shown_column, shared))
            raise DataError(
                f"{data}: no file of this folder is named train: {_listed(files)}; {others[0].name} and "
                f"{others[1].name} share {names}: if their rows belong together, join them to one "
                "table first (pandas.merge); rows of the same text become one document"
            )
        more = "".join(f" --add {shlex.quote(str(path))}" for path in others[1:3])
        raise DataError(
            f"{data}: no file of this folder is named train: {_listed(files)}; give the files of documents: xmtc init "
            f"{shlex.quote(str(others[0]))}{more}"
        )
    settings = _settings_of(by_split["train"][0], data, kind)
    return _named(data, folder, by_split, settings, labels[:1])


def _shared_columns(files: Sequence[Path], data: str, kind: str | None) -> list[str]:
    """List columns by which the rows of two tables of otherwise different columns belong together."""
    if len(files) < 2:
        return []
    first, second = (_columns_of(path, data, kind) for path in files)
    shared = sorted(first & second)
    are_keys = all(_KEY.search(name) for name in shared)
    return shared if are_keys and first - second and second - first else []


def _columns_of(path: Path, data: str, kind: str | None) -> frozenset[str]:
    name = str(path)
    settings = _settings_of(path, data, kind)
    alone = DataFiles(name, {"train": (name,)}, {name: path}, settings)
    return frozenset(alone.columns_of(name))


def _are_alike(files: Sequence[Path], data: str, kind: str | None) -> bool:
    """Whether files have the same columns, as the parts of a table have: a file for each year, for example."""
    if len(files) == 1:
        return True
    columns = {
        (_settings_of(path, data, kind).kind, _columns_of(path, data, kind))
        for path in files
    }
    return len(columns) == 1


def _named(
    data: str,
    folder: Path,
    by_split: Mapping[str, list[Path]],
    settings: TableSettings | ExportSettings,
    labels: Sequence[Path] = (),
) -> DataFiles:
    """Name files of the folder as the configuration writes them."""
    place = data.rstrip("/") if is_remote(data) else str(folder)

    def name(path: Path) -> str:
        return f"{place}/{path.relative_to(folder).as_posix()}"

    used = [path for paths in (*by_split.values(), labels) for path in paths]
    return DataFiles(
        place=data,
        by_split={
            split: tuple(map(name, paths)) for split, paths in by_split.items() if paths
        },
        local={name(path): path for path in used},
        settings=settings,
        labels=name(labels[0]) if labels else None,
    )


def _stem(path: Path) -> str:
    return path.name.split(".")[0].lower()


def _split_of(path: Path) -> str | None:
    """Find the split in a file name: `train-00000-of-00002.parquet`, `news_test.csv`, `cooking.valid`.

    The first word of the name decides, or else the only one that is a split.
    """
    words = _WORDS.split(path.name.lower())
    splits = [
        split for word in words for split, names in _SPLITS.items() if word in names
    ]
    if not splits:
        return None
    is_first = words[0] in _SPLITS[splits[0]]
    return splits[0] if is_first or len(set(splits)) == 1 else None


_ROWS = 1000
"""Number of documents whose labels are looked up in a label file."""
_NAMES = ("name", "title", "label", "description", "text", "term", "meaning")
"""Usual columns of names in a label file, from the clearest."""
_PARENTS = ("parents", "parent", "parent_id", "broader")
"""Usual columns of broader labels."""


def label_columns(files: DataFiles, roles: Roles) -> dict[str, str | None]:
    """Choose columns of the label file: labels are those that documents have; names tell names and parents.

    Of a vocabulary whose names documents have, the labels are the IRIs.
    """
    path = files.local[files.labels or ""]
    syntax = SKOS_FORMATS.get(ending_of(path))
    format = SkosTable(syntax) if syntax else format_of(path, JsonLines())
    labels = _labels_of_documents(files, roles)
    shared: defaultdict[str, set[str]] = defaultdict(set)
    for row in sound(format.rows(path, None)):
        for column in _columns_with_labels(row) if syntax else row.cells:
            with suppress(ValueError):  # the column holds no labels
                shared[column] |= labels.intersection(
                    labels_of(row.cells.get(column))[0]
                )
    label = max(
        shared,
        key=lambda column: (len(shared[column]), column == "label"),
        default="label",
    )
    if syntax and label not in TERMS:
        return {"label": "label", "written": label, "parents": TERMS["label"]}
    if syntax:
        return {"label": label, "parents": TERMS[label]}
    others = [column for column in shared if column != label]
    columns = {"label": label, "name": _first_named(others, _NAMES)}
    parents = _first_named(others, _PARENTS)
    if parents is not None:
        columns["parents"] = parents
    return columns


def _columns_with_labels(concept: Row) -> list[str]:
    """List the columns of a vocabulary that documents may write: what identifies a concept first, then its names."""
    names = [column for column in concept.cells if column.startswith("name")]
    return [*TERMS, *sorted(names)]


def _first_named(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first column with one of some names, in the order of the names."""
    for name in names:
        for column in columns:
            if column.lower() == name:
                return column
    return None


def _labels_of_documents(files: DataFiles, roles: Roles) -> set[str]:
    """Read the labels of the first documents."""
    if len(roles.labels) != 1:
        return set(roles.labels)
    labels: set[str] = set()
    for row in islice(files.rows(), _ROWS):
        if isinstance(row, Row):
            labels.update(labels_of(row.cells.get(roles.labels[0]), roles.separator)[0])
    return labels
