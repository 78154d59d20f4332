"""What is scored: files found, read in blocks of rows that are the same on every run.

A block is the unit of work: read, scored and published as a whole. It is named by its file's place in the sorted list
of files and its own place in the file.
"""

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from xmtc.config.base import config
from xmtc.data.parallel import map_processes
from xmtc.data.progress import Silent
from xmtc.data.readers import Document, ReaderSettings, Rejected
from xmtc.data.readers.columns import ColumnsConfig, DocumentColumns
from xmtc.data.readers.files import content_hash
from xmtc.data.readers.table import RowCount, TableReader
from xmtc.data.readers.table_config import TABLES, SplitFilesConfig, table_of
from xmtc.errors import DataError
from xmtc.files import real


@config
class TextColumns(ColumnsConfig):
    """Columns of documents whose labels nobody knows yet: `labels` is not looked at."""

    def names(self) -> list[str]:
        """All columns that a source must have."""
        return list(dict.fromkeys(name for name in (self.id, *self.text_columns()) if name is not None))

    def advice(self) -> str:
        """What to do about a missing column."""
        return "name others by --text-column and --id"

    def _labels(self, value: Any) -> tuple[str, ...]:
        del value
        return ()


def text_columns(
    text: Sequence[str] | None, doc_id: str | None, trained_on: DocumentColumns | None = None
) -> TextColumns:
    """Columns by name, joined as in training.

    Args:
        text: columns to join; None: those that the model was trained on.
        doc_id: column with identifiers, or None.
        trained_on: of the model; None: `text`, and line breaks between several.
    """
    trained_on = trained_on or DocumentColumns()
    names = tuple(text or trained_on.text)
    return TextColumns(id=doc_id, text=names, text_joiner=trained_on.text_joiner, labels=names[0])


def with_known_id(
    columns: TextColumns, trained_on: DocumentColumns | None, files: Iterable["InputFile"]
) -> TextColumns:
    """The columns, with the identifiers of training where nothing else was named and every file has them.

    Raises:
        DataError: a file cannot be read.
    """
    if columns.id is not None or trained_on is None or trained_on.id is None:
        return columns
    tables = [Path(file.path) for file in files if file.source is None]
    there = all(trained_on.id in _reader(path, columns).first_columns() for path in tables)
    return replace(columns, id=trained_on.id) if tables and there else columns


@dataclass(frozen=True)
class InputFile:
    """A file to score, or the source of a configuration.

    Attributes:
        path: where it is, absolute: workers may run in other folders.
        name: as documents and manifest call it: short, and different from every other file's.
        digest: hash of its content.
        rows: how many rows it has, where that is cheap to know.
        source: settings of its reader where a configuration names the source; None of a file, whose ending says how
            it is read.
    """

    path: str
    name: str
    digest: str
    rows: RowCount
    source: ReaderSettings | None = None


@dataclass(frozen=True)
class RawBlock:
    """Rows of one file, as read.

    Attributes:
        file: index of the file in the list.
        block: index of the block in the file.
        doc_ids, texts: the documents.
        rejected: the rows that are none.
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
    """`00000-00000`, which sorts as the documents do."""
    return f"{file:05d}-{block:05d}"


def find_files(inputs: Iterable[str], sources: Mapping[str, ReaderSettings] | None = None) -> list[InputFile]:
    """The files that these paths, globs, folders and `file://` addresses mean, sorted, each once.

    Args:
        inputs: see above.
        sources: readers of configurations, by the configuration's path; they come last.

    Raises:
        DataError: nothing is there, or a file's kind cannot be told from its ending.
    """
    found = [path for given in inputs for path in _expand(given)]
    # A file counts once, however often and under which paths it is given; its first path stays.
    paths = sorted({real(path): path for path in reversed(found)}.values())
    names = _names(paths)
    counts = {path: _rows(path) for path in paths}  # first: refuses unknown endings before anything is hashed
    files = [InputFile(str(path.absolute()), names[path], content_hash([path]), counts[path]) for path in paths]
    unknown = RowCount(None, exact=False)
    others = (sources or {}).items()
    return files + [InputFile(path, path, source.build().fingerprint(), unknown, source) for path, source in others]


def _reader(path: Path, columns: TextColumns) -> TableReader:
    """The reader of a file, by its ending.

    Raises:
        DataError: the ending is unknown.
    """
    table = table_of(path)
    if table is None:
        raise DataError(f"{path}: unknown kind of file; give {', '.join(TABLES)} (the text ones also compressed)")
    return table(files=SplitFilesConfig(train=str(path)), columns=columns).build()


def _expand(given: str) -> list[Path]:
    address = urlsplit(given)
    if address.scheme == "file":
        given = unquote(address.path)
    elif "://" in given:
        raise DataError(f"{given}: {address.scheme}:// is not read directly: mount or copy it, then give the path")
    path = Path(given)
    if path.is_dir():
        found = [p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path))]
        known = [p for p in found if table_of(p) is not None]
        if not known:
            raise DataError(f"{given}: no file in this folder ends in {', '.join(TABLES)}")
        return known
    if path.is_file():
        return [path]
    found = [Path(match) for match in glob.glob(given, recursive=True) if Path(match).is_file()]
    if not found:
        raise DataError(f"{given}: no such file, and nothing matches it; paths are relative to {Path.cwd()}")
    return found


def _hidden(relative: Path) -> bool:
    return any(part.startswith((".", "_")) for part in relative.parts)


def _names(paths: list[Path]) -> dict[Path, str]:
    """File names where they tell the files apart, otherwise the paths as given."""
    unique = len({path.name for path in paths}) == len(paths)
    return {path: path.name if unique else path.as_posix() for path in paths}


def _rows(path: Path) -> RowCount:
    return _reader(path, TextColumns()).count()


def read_rows(file: InputFile, columns: TextColumns) -> Iterator[Document | Rejected]:
    """The rows of a file, or of a source, whose documents bring their ids along, in order.

    Raises:
        DataError: the file cannot be read.
    """
    if file.source is not None:
        yield from file.source.build().read(map_processes, Silent())
        return
    for row in _reader(Path(file.path), columns).read(map_processes, Silent()):
        if isinstance(row, Document) and columns.id is None:
            # The reader numbers documents by the file's bare name, which another folder may have too.
            row = Document(f"{file.name}:{row.doc_id.rsplit(':', 1)[1]}", row.text, ())
        yield row


def read_blocks(
    index: int, file: InputFile, columns: TextColumns, block_rows: int, done: frozenset[str] = frozenset()
) -> Iterator[RawBlock]:
    """The blocks of a file, without those that are done, which are skipped.

    Args:
        index: of the file in the list.
        file: to read.
        columns: where id and text are.
        block_rows: rows of a block, bad ones included.
        done: names of finished blocks.

    Raises:
        DataError: the file cannot be read.
    """
    rows = read_rows(file, columns)
    parts = iter(lambda: list(islice(rows, block_rows)), [])
    for block, part in enumerate(parts):
        if block_name(index, block) in done:
            continue
        documents = [row for row in part if isinstance(row, Document)]
        yield RawBlock(
            index,
            block,
            tuple(document.doc_id for document in documents),
            tuple(document.text for document in documents),
            tuple(row for row in part if isinstance(row, Rejected)),
        )
