"""The input of scoring: find files, and read them in blocks of rows that are the same in every run.

A block is the unit of work: it is read, scored and published as a whole. Its name consists of the index of the file in
the sorted list of files, and the index of the block in the file.
"""

import glob
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any

from xmtc.config.base import config
from xmtc.data.parallel import map_processes
from xmtc.data.readers import Document, ReaderSettings, Rejected
from xmtc.data.readers.base import LONGEST_DOCUMENT, sound
from xmtc.data.readers.columns import ColumnsConfig, DocumentColumns
from xmtc.data.readers.files import content_hash
from xmtc.data.readers.table_config import TABLES, SplitFilesConfig, table_of
from xmtc.data.readers.table_reader import TableReader
from xmtc.errors import DataError
from xmtc.files import reading, resolve_links
from xmtc.storage.config import StorageConfig, is_remote, on_this_machine
from xmtc.storage.fetch import matches, split_pattern
from xmtc.track.progress import Progress

if TYPE_CHECKING:
    from xmtc.storage.remote import Stamp

logger = logging.getLogger(__name__)

JOB = "_job.json"
"""In the output of a scoring job: its description."""


@config
class TextColumns(ColumnsConfig):
    """Columns of documents without known labels; `labels` is ignored."""

    longest_document: int = LONGEST_DOCUMENT
    """Most characters of a document."""

    def names(self) -> list[str]:
        """List all columns that a source must have."""
        return list(
            dict.fromkeys(
                name for name in (self.id, *self.text_columns()) if name is not None
            )
        )

    def advice(self) -> str:
        """Say how to fix a missing column."""
        return "rename the columns, or name others by --text-column and --id where a command has them"

    def _labels(self, row: Mapping[str, Any]) -> tuple[tuple[str, ...], int]:
        return (), 0


def text_columns(
    text: Sequence[str] | None,
    doc_id: str | None,
    trained_on: DocumentColumns | None = None,
    longest_document: int | None = None,
) -> TextColumns:
    """Choose the columns by name, joined as in training.

    Args:
        text: columns to join; None: those that the model was trained on.
        doc_id: column with identifiers, or None.
        trained_on: columns of the model's training data; None: `text`, joined by line breaks.
        longest_document: most characters of a document; None: `LONGEST_DOCUMENT`.

    Raises:
        DataError: a column is named twice.
    """
    trained_on = trained_on or DocumentColumns()
    names = tuple(text or trained_on.text)
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"--text-column {name}: named twice; name each column once")
    categories = tuple(name for name in trained_on.categories if name not in names)
    return TextColumns(
        id=doc_id,
        text=names,
        categories=categories,
        labels=names[0],
        longest_document=longest_document or LONGEST_DOCUMENT,
    )


def with_known_id(
    columns: TextColumns,
    trained_on: DocumentColumns | None,
    files: Iterable["InputFile"],
) -> TextColumns:
    """Add training's identifier column, if no other is given and every file has it. Log categories that a file lacks.

    Raises:
        DataError: a file cannot be read.
    """
    id_of_training = (
        trained_on.id if trained_on is not None and columns.id is None else None
    )
    if id_of_training is None and not columns.categories:
        return columns
    all_have_id = id_of_training is not None
    tables = [file.local() for file in _first_of_each_place(files)]
    for path in tables:
        names = _reader(path, columns).first_columns()
        all_have_id = all_have_id and id_of_training in names
        for category in columns.categories:
            if category not in names:
                logger.warning(
                    "%s: no column %r: its documents are read without this category",
                    path,
                    category,
                )
                break
    return replace(columns, id=id_of_training) if tables and all_have_id else columns


def check_readable(files: Iterable["InputFile"], columns: TextColumns) -> None:
    """Read the first row of every file, so that a missing column in the last is not found after the others are scored.

    Raises:
        DataError: a file cannot be read, or lacks a column.
    """
    for file in _first_of_each_place(files):
        next(iter(read_rows(file, columns)), None)


@dataclass(frozen=True)
class Source:
    """The source of a configuration.

    Attributes:
        settings: settings of its reader.
        longest_document: most characters of a document, as the configuration says.
    """

    settings: ReaderSettings
    longest_document: int


@dataclass(frozen=True)
class InputFile:
    """A file to score, or the source of a configuration.

    Attributes:
        path: absolute path, because workers may run in other folders; or a URI.
        name: short unique name of the file in document ids and in the manifest.
        digest: hash of the content; for a file at a URI, the version that the store reports.
        rows: number of rows, perhaps estimated, if it is cheap to find.
        source: the source, if a configuration names it; None for a file, which is read according to its extension.
        counted: whether `rows` is exact.
        stamp: size, time of change and number of the file when it was found; see `_stamp`.
    """

    path: str
    name: str
    digest: str
    rows: int | None
    source: Source | None = None
    counted: bool = False
    stamp: tuple[int, ...] | None = None

    def local(self) -> Path:
        """Return the path of the file on this machine, if it is still what the job found; a file at a URI is copied.

        Raises:
            StorageError: it cannot be copied.
            DataError: it has changed since the job's start.
        """
        if not is_remote(self.path):
            self.check()
            return Path(self.path)
        folder, name = self.path.rsplit("/", 1)
        mirror = StorageConfig().mirror(folder)
        mirror.pull(name)
        if _version(StorageConfig().remote(folder).stamp(name)) != self.digest:
            raise self.changed()
        return mirror.local / name

    def check(self) -> None:
        """Look whether a file on this machine is still what the job found. If it was touched, its content is compared.

        Raises:
            DataError: it has changed.
        """
        path = Path(self.path)
        if (
            self.stamp is not None
            and _stamp(path) != self.stamp
            and content_hash([path]) != self.digest
        ):
            raise self.changed()

    def known_here(self) -> "InputFile":
        """Return the same with the stamp that the file has on this machine, which may be another's copy."""
        if self.stamp is None:
            return self
        self.check()
        return replace(self, stamp=_stamp(Path(self.path)))

    def changed(self) -> DataError:
        """Make the error for a file that has changed since the job's start."""
        return DataError(
            f"{self.path}: changed while it was scored; run the command again"
        )


@dataclass(frozen=True)
class RawBlock:
    """Rows of one file, as read.

    Attributes:
        file: index of the file in the list.
        block: index of the block in the file.
        doc_ids, texts: the documents.
        rejected: rows that are not documents.
    """

    file: int
    block: int
    doc_ids: tuple[str, ...]
    texts: tuple[str, ...]
    rejected: tuple[Rejected, ...]

    @property
    def name(self) -> str:
        """`00000-00000`: file and block."""
        return block_name(self.file, self.block)


def block_name(file: int, block: int) -> str:
    """Return the name of a block, `00000-00000`: file and block. Names sort in the order of the documents."""
    return f"{file:05d}-{block:05d}"


def input_files(
    inputs: Iterable[str], sources: Mapping[str, Source] | None = None
) -> list[InputFile]:
    """Find the files at these paths, globs, folders and URIs, sorted and without duplicates. Copies no file.

    Args:
        inputs: paths, globs, folders and URIs.
        sources: sources of configurations, by the configuration's path; they come last.

    Raises:
        DataError: nothing is there, or a file has an unknown extension.
    """
    local_paths: list[Path] = []
    remote_files: dict[str, Stamp] = {}
    for place in dict.fromkeys(inputs):
        local = on_this_machine(place)
        if local is None:
            remote_files |= _expand_remote(place)
        else:
            local_paths += _expand(local)
    # A file that is given several times, perhaps under different paths, counts once, under its first path.
    paths = sorted(
        {resolve_links(path): path for path in reversed(local_paths)}.values()
    )
    readers = [
        _reader(path, TextColumns()) for path in paths
    ]  # refuses unknown extensions before anything is hashed
    uris = sorted(remote_files)
    names = _names([*(path.as_posix() for path in paths), *uris])
    files = []
    for path, reader in zip(paths, readers, strict=True):
        stamp = _stamp(path)
        digest = content_hash([path])
        name = names[path.as_posix()]
        counted = reader.counts_exactly
        files.append(
            InputFile(
                str(path.absolute()),
                name,
                digest,
                reader.count(),
                counted=counted,
                stamp=stamp,
            )
        )
    for uri in uris:
        files.append(InputFile(uri, names[uri], _version(remote_files[uri]), None))
    for path, source in (sources or {}).items():
        digest = source.settings.build().fingerprint()
        files.append(InputFile(path, path, digest, None, source))
    return files


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what shows that a file on this machine has changed, without reading it."""
    with reading(path):
        found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ino


def _version(stamp: "Stamp | None") -> str:
    return " ".join(map(str, stamp or ()))


def _first_of_each_place(files: Iterable["InputFile"]) -> Iterator["InputFile"]:
    """Yield this machine's files, and the first file of each folder at a URI, because reading a URI needs a copy."""
    folders: set[str] = set()
    for file in files:
        folder = file.path.rpartition("/")[0]
        if file.source is None and folder not in folders:
            yield file
        if is_remote(file.path):
            folders.add(folder)


def _expand_remote(uri: str) -> "dict[str, Stamp]":
    """Find the tables that a URI (file, folder or pattern) means, with their versions.

    Raises:
        DataError: there is no such file.
        StorageError: the storage does not answer.
    """
    uri = uri.rstrip("/")
    fixed = split_pattern(uri)[0]
    remote = StorageConfig().remote(fixed)
    if fixed == uri and remote.is_file():
        stamp = remote.stamp()
        found = {uri: stamp} if stamp is not None else {}
    else:
        stamps = remote.list()
        found = {}
        for name in _documents(map(PurePosixPath, stamps)):
            address = f"{fixed}/{name}"
            if fixed == uri or matches(address.split("/"), uri.split("/")):
                found[address] = stamps[str(name)]
    tables = {
        name: stamp for name, stamp in found.items() if table_of(Path(name)) is not None
    }
    if not tables:
        raise DataError(f"{uri}: nothing there whose name ends in {', '.join(TABLES)}")
    return tables


def _reader(path: Path, columns: TextColumns) -> TableReader:
    """Build the reader of a file, by its extension.

    Raises:
        DataError: the extension is unknown.
    """
    table = table_of(path)
    if table is None:
        raise DataError(
            f"{path}: unknown file type; give {', '.join(TABLES)} (text formats may be compressed)"
        )
    return table(files=SplitFilesConfig(train=str(path)), columns=columns).build()


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        found = _documents(p.relative_to(path) for p in path.rglob("*") if p.is_file())
        known = [path / name for name in found if table_of(path / name) is not None]
        if not known:
            raise DataError(
                f"{path}: no file in this folder ends in {', '.join(TABLES)}"
            )
        return known
    if path.is_file():
        return [path]
    found = [
        Path(match)
        for match in glob.glob(str(path), recursive=True)
        if Path(match).is_file()
    ]
    if not found:
        raise DataError(
            f"{path}: no such file, and nothing matches it; paths are relative to {Path.cwd()}"
        )
    return found


def _documents(names: Iterable[PurePath]) -> list[PurePath]:
    """Select the files in a folder that are neither hidden nor the output of a scoring job, such as this one."""
    names = list(names)
    jobs = {name.parent for name in names if name.name == JOB}
    visible = (
        name
        for name in names
        if not any(part.startswith((".", "_")) for part in name.parts)
    )
    return [name for name in visible if name.parent not in jobs]


def _names(paths: list[str]) -> dict[str, str]:
    """Map paths to file names if these are unique, otherwise to the paths as given."""
    short = {path: path.rpartition("/")[2] for path in paths}
    return (
        short
        if len(set(short.values())) == len(paths)
        else {path: path for path in paths}
    )


def read_rows(file: InputFile, columns: TextColumns) -> Iterator[Document | Rejected]:
    """Yield the rows of a file or source in order. Documents of a source have ids.

    Raises:
        DataError: the file cannot be read.
    """
    if file.source is not None:
        source = file.source
        yield from source.settings.build().read(
            map_processes, Progress(enabled=False), source.longest_document
        )
        return
    for row in _reader(file.local(), columns).read(
        map_processes, Progress(enabled=False), columns.longest_document
    ):
        if isinstance(row, Document) and columns.id is None:
            # The reader's ids contain only the file's name, which may also occur in another folder.
            row = Document(f"{file.name}:{row.doc_id.rsplit(':', 1)[1]}", row.text, ())
        yield row


def read_blocks(
    index: int,
    file: InputFile,
    columns: TextColumns,
    block_rows: int,
    done: frozenset[str] = frozenset(),
) -> Iterator[RawBlock]:
    """Yield the blocks of a file, except finished ones.

    Args:
        index: index of the file in the list.
        file: file to read.
        columns: columns of id and text.
        block_rows: rows per block, including bad ones.
        done: names of finished blocks.

    Raises:
        DataError: the file cannot be read, or changes meanwhile; what has been yielded is from before.
    """
    known = file.known_here()
    rows = read_rows(file, columns)
    parts = iter(lambda: list(islice(rows, block_rows)), [])
    for block, part in enumerate(parts):
        if block_name(index, block) in done:
            continue
        known.check()
        documents = [row for row in part if isinstance(row, Document)]
        yield RawBlock(
            index,
            block,
            tuple(document.doc_id for document in documents),
            tuple(document.text for document in documents),
            tuple(row for row in part if isinstance(row, Rejected)),
        )
    known.check()
    if (
        file.source is not None
        and file.source.settings.build().fingerprint() != file.digest
    ):
        raise file.changed()


def read_inputs(
    inputs: Iterable[str],
    columns: TextColumns,
    trained_on: DocumentColumns | None = None,
    sources: Mapping[str, Source] | None = None,
) -> Iterator[Document | Rejected]:
    """Yield the rows of files and sources; see `input_files` and `with_known_id`.

    Raises:
        DataError: a file cannot be read.
    """
    found = input_files(inputs, sources)
    columns = with_known_id(columns, trained_on, found)
    return chain.from_iterable(read_rows(file, columns) for file in found)


def texts_of(rows: Iterable[Document | Rejected]) -> Iterator[tuple[str, str]]:
    """Return identifier and text of each document.

    Raises:
        DataError: a row is not a document.
    """
    return ((row.doc_id, row.text) for row in sound(rows))


def find_document(rows: Iterable[Document | Rejected], doc_id: str) -> str:
    """Find the text of a document by its id.

    Raises:
        DataError: there is none, or there are several.
    """
    found: list[str] = []
    first_bad: Rejected | None = None
    for row in rows:
        if isinstance(row, Rejected):
            first_bad = first_bad or row
        elif row.doc_id == doc_id:
            found.append(row.text)
    if len(found) == 1:
        return found[0]
    advice = (
        "check --doc-id and --id"
        if first_bad is None
        else f"the first row that is no document is {first_bad.where}: {first_bad.reason}"
    )
    raise DataError(
        f"{len(found) or 'no'} documents are called {doc_id!r} in the files: {advice}"
    )
