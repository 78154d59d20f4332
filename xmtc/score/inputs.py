"""What is scored: files found, read in blocks of rows that are the same on every run.

A block is the unit of work: read, scored and published as a whole. It is named by its file's place in the sorted list
of files and its own place in the file.
"""

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from xmtc.config.base import config
from xmtc.data.parallel import map_processes
from xmtc.data.progress import Silent
from xmtc.data.readers import CsvConfig, Document, JsonlConfig, ParquetConfig, ReaderConfig, Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.files import SplitFilesConfig, content_hash
from xmtc.errors import DataError

Kind = Literal["jsonl", "csv", "parquet", "source"]
_KINDS: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}
_COMPRESSIONS = (".gz", ".zst", ".bz2")
_READERS = {"jsonl": JsonlConfig, "csv": CsvConfig, "parquet": ParquetConfig}


@config
class TextColumns(ColumnsConfig):
    """Columns of documents whose labels nobody knows yet: `labels` is not looked at."""

    def names(self) -> list[str]:
        """All columns that a source must have."""
        return list(dict.fromkeys(name for name in (self.id, *self.text_columns()) if name is not None))

    def advice(self) -> str:
        """What to do about a column that is not there."""
        return "name others by --text and --id"

    def _labels(self, value: Any) -> tuple[str, ...]:
        del value
        return ()


def text_columns(text: Sequence[str], doc_id: str | None) -> TextColumns:
    """Columns by name; several text columns are joined by line breaks."""
    return TextColumns(id=doc_id, text=tuple(text), labels=text[0])


@dataclass(frozen=True)
class InputFile:
    """A file to score, or the source of a configuration.

    Attributes:
        path: where it is, absolute: workers may run in other folders.
        name: as documents and manifest call it: short, and different from every other file's.
        kind: its reader.
        digest: hash of its content.
        rows: how many rows it has, where that is cheap to know.
        reader: of a source; files are read by their kind.
    """

    path: str
    name: str
    kind: Kind
    digest: str
    rows: int | None
    reader: ReaderConfig | None = None


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


def find_files(inputs: Iterable[str], sources: Mapping[str, ReaderConfig] | None = None) -> list[InputFile]:
    """The files that these paths, globs, folders and `file://` addresses mean, sorted, each once.

    Args:
        inputs: see above.
        sources: readers of configurations, by the configuration's path; they come last.

    Raises:
        DataError: nothing is there, or a file's kind cannot be told from its ending.
    """
    found = [path for given in inputs for path in _expand(given)]
    # A file counts once, however often and under which paths it is given; its first path stays.
    paths = sorted({path.resolve(): path for path in reversed(found)}.values())
    names = _names(paths)
    files = [
        InputFile(str(path.absolute()), names[path], kind_of(path), content_hash([path]), _rows(path)) for path in paths
    ]
    others = (sources or {}).items()
    return files + [InputFile(path, path, "source", reader.fingerprint(), None, reader) for path, reader in others]


def kind_of(path: Path) -> Kind:
    """The reader for a file, by its ending.

    Raises:
        DataError: none of those that are known.
    """
    suffixes = [suffix for suffix in path.suffixes if suffix not in _COMPRESSIONS]
    if not suffixes or suffixes[-1] not in _KINDS:
        raise DataError(f"{path}: unknown kind of file; give {', '.join(_KINDS)} (the text ones also compressed)")
    return _KINDS[suffixes[-1]]


def _expand(given: str) -> list[Path]:
    address = urlsplit(given)
    if address.scheme == "file":
        given = unquote(address.path)
    elif "://" in given:
        raise DataError(f"{given}: {address.scheme}:// is not read directly: mount or copy it, then give the path")
    path = Path(given)
    if path.is_dir():
        found = [p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path))]
        known = [p for p in found if _known(p)]
        if not known:
            raise DataError(f"{given}: no file in this folder ends in {', '.join(_KINDS)}")
        return known
    if path.is_file():
        return [path]
    found = [Path(match) for match in glob.glob(given, recursive=True) if Path(match).is_file()]
    if not found:
        raise DataError(f"{given}: no such file, and nothing matches it; paths are relative to {Path.cwd()}")
    return found


def _hidden(relative: Path) -> bool:
    return any(part.startswith((".", "_")) for part in relative.parts)


def _known(path: Path) -> bool:
    suffixes = [suffix for suffix in path.suffixes if suffix not in _COMPRESSIONS]
    return bool(suffixes) and suffixes[-1] in _KINDS


def _names(paths: list[Path]) -> dict[Path, str]:
    """File names where they tell the files apart, otherwise the paths as given."""
    unique = len({path.name for path in paths}) == len(paths)
    return {path: path.name if unique else path.as_posix() for path in paths}


def _rows(path: Path) -> int | None:
    """Rows of a Parquet file, lines of a plain text file (about its rows), or None."""
    if path.suffix == ".parquet":
        try:
            return pq.ParquetFile(path).metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: cannot be read as Parquet: {error}") from error
    if path.suffix in _COMPRESSIONS:
        return None
    lines, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            lines, last = lines + block.count(b"\n"), block[-1:]
    lines += last != b"\n"  # the last line may have no end
    return lines if kind_of(path) == "jsonl" else max(0, lines - 1)  # a table has a header


def read_rows(file: InputFile, columns: TextColumns) -> Iterator[Document | Rejected]:
    """The rows of a file, or of a source, whose documents bring their ids along, in order.

    Raises:
        DataError: the file cannot be read.
    """
    if file.reader is not None:
        yield from file.reader.read(map_processes, Silent())
        return
    reader = _READERS[file.kind](files=SplitFilesConfig(train=file.path), columns=columns)
    for row in reader.read(map_processes, Silent()):
        if isinstance(row, Document) and columns.id is None:
            # The reader numbers documents by the file's bare name, which another folder may have too.
            row = Document(f"{file.name}:{row.doc_id.rsplit(':', 1)[1]}", row.text, ())
        yield row


def read_blocks(
    index: int, file: InputFile, columns: TextColumns, block_rows: int, done: frozenset[str] = frozenset()
) -> Iterator[RawBlock]:
    """The blocks of a file but those that are done, which are read over.

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
