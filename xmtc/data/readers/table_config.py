"""Settings of the sources that have a document in each row of a table, and of files that name labels."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from xmtc.config.base import config
from xmtc.data.readers.base import LabelInfo, ReaderSettings
from xmtc.data.readers.columns import ColumnsConfig, DocumentColumns, Name
from xmtc.data.readers.endings import ending_of

if TYPE_CHECKING:
    from xmtc.data.readers.table import TableFormat
    from xmtc.data.readers.table_reader import TableReader

Paths = str | tuple[str, ...] | None


def _listed(paths: Paths) -> tuple[str, ...]:
    return (paths,) if isinstance(paths, str) else paths or ()


@config
class SplitFilesConfig:
    """Which files hold which split."""

    train: str | tuple[str, ...]
    """File or files with the training documents. Without `dev` or `test`, `data.split` divides these."""
    dev: str | tuple[str, ...] | None = None
    """File or files of the development split, on which models are chosen and thresholds tuned."""
    test: str | tuple[str, ...] | None = None
    """File or files of the test split."""
    added: str | tuple[str, ...] | None = None
    """More files of training documents, such as those of `xmtc serve --annotations`. `data.split` takes none of them
    for dev or test. If a document of `train` has the same text, the added one is taken instead; labels that an
    annotation did not judge stay as `train` has them."""

    def __post_init__(self) -> None:
        twice = set(_listed(self.train)) & set(_listed(self.added))
        if twice:
            raise ValueError(
                f"{min(twice)} is in files.train and in files.added; keep one of them"
            )

    def by_split(self) -> list[tuple[str, Path]]:
        """List (split, file), train first, in the given order, and added files last."""
        paths_by_split: list[tuple[str, Paths]] = [
            ("train", self.train),
            ("dev", self.dev),
            ("test", self.test),
            ("train", self.added),
        ]
        return [
            (split, Path(name))
            for split, paths in paths_by_split
            for name in _listed(paths)
        ]

    def added_files(self) -> frozenset[Path]:
        """Return the files that are added to those of train."""
        return frozenset(map(Path, _listed(self.added)))

    def provides(self) -> frozenset[str]:
        """Return the splits that have files."""
        return frozenset(split for split, _ in self.by_split())


@config
class LabelFileConfig:
    """A table of labels: JSON lines, CSV, TSV or Parquet by its ending; or a SKOS vocabulary (.ttl, .n3, .rdf, .owl,
    .xml, .nt), whose columns are `label` (the concept's IRI), `id` (the last part of it), `notation`, `name`,
    `name_de` …, `alt_names`, `parents`, `parent_ids` and `parent_notations`. Names in columns `alt_names` (a list),
    `name_de` or `name@de` are found in texts, too. `deprecated` and `replaced_by` matter to `xmtc labels diff`.
    """

    path: Name
    """The file."""
    label: Name = "label"
    """Column with the label as documents have it."""
    name: Name | None = "name"
    """Column with the readable name."""
    written: Name | None = None
    """Column with what documents write instead of the label, such as `name_de`, if they give names and the labels shall
    be IRIs. Labels themselves are understood, too; a name of several labels means the first."""
    parents: Name | None = None
    """Column with the list of broader labels of a hierarchy; a string is one label."""
    closed: bool = True
    """A row with a label that is not in this file is a bad row (`data.on_bad_row`). If false, unknown labels
    are accepted."""

    def read(self) -> LabelInfo:
        """Read names and parents.

        Raises:
            DataError: the file cannot be read, or lacks a column.
        """
        from xmtc.data.readers.label_file import read_label_file

        return read_label_file(self)


@config
class TableConfig(ReaderSettings):
    """What the sources share that have a document in each row.

    Attributes:
        named_by_line: whether a line gives the names of columns, which might be a document instead.
    """

    named_by_line: ClassVar[bool] = False
    kind: str
    files: SplitFilesConfig
    """Files by split."""
    columns: ColumnsConfig = ColumnsConfig()
    """Columns of the table, or keys of the objects."""
    labels: LabelFileConfig | None = None
    """File with the labels' names."""

    def __post_init__(self) -> None:
        if self.columns.split is not None and (self.files.dev or self.files.test):
            raise ValueError(
                "columns.split and files.dev/files.test both say what the split is; keep one of them"
            )

    def format(self) -> "TableFormat":
        """Return the format of the files."""
        raise NotImplementedError

    @override
    def build(self) -> "TableReader":
        from xmtc.data.readers.table_reader import TableReader

        return TableReader(self, self.format())


@config
class JsonlConfig(TableConfig):
    """JSON lines, one document on each line; plain, .gz, .zst, .bz2 or .xz."""

    kind: Literal["jsonl"] = "jsonl"
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json")

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.jsonl import JsonLines

        return JsonLines()


@config
class CsvConfig(TableConfig):
    """CSV or TSV files with a header line, one document in each row; plain, .gz, .zst, .bz2 or .xz. Labels are one
    string, so that `columns.label_separator` is usually needed.
    """

    kind: Literal["csv"] = "csv"
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """Separator of the columns; null: of comma, semicolon, tab and bar, the one that fits the first lines of each
    file best. A first line such as `sep=;` of Excel says it, too."""
    quoting: Literal["minimal", "none"] | None = None
    """`minimal`: a cell in double quotes may hold separators and line breaks; `none`: quotes are letters; null: the one
    that fits the first lines best."""
    escape: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """The sign before a quote that is a letter, such as the backslash of Spark; null: the backslash, if the first lines
    fit best so, otherwise none, and a quote is doubled."""
    encoding: Name | None = None
    """Encoding of the text, such as `cp1252` of Windows; null: UTF-8, or UTF-16 if the file begins with its mark."""
    header: Annotated[tuple[Name, ...], Field(min_length=2)] | None = None
    """Names of the columns of files whose first line is a document, such as `[labels, text]`; null: the first line has
    them."""
    endings: ClassVar[tuple[str, ...]] = (".csv", ".tsv")
    named_by_line: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoding is not None and not _is_encoding(self.encoding):
            raise ValueError(
                f"encoding: {self.encoding!r}: no such encoding; name one, such as cp1252 or latin-1"
            )

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.csv_table import CsvTable

        return CsvTable(
            self.delimiter, self.quoting, self.escape, self.encoding, self.header
        )


def _is_encoding(name: str) -> bool:
    try:
        "".encode(name)
    except LookupError:
        return False
    return True


@config
class ParquetConfig(TableConfig):
    """Parquet files, one document in each row."""

    kind: Literal["parquet"] = "parquet"
    endings: ClassVar[tuple[str, ...]] = (".parquet",)

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.arrow_table import ParquetTable

        return ParquetTable()


@config
class ArrowConfig(TableConfig):
    """Arrow files, one document in each row, such as Hugging Face `datasets` writes with `save_to_disk`."""

    kind: Literal["arrow"] = "arrow"
    endings: ClassVar[tuple[str, ...]] = (".arrow", ".feather")

    @override
    def format(self) -> "TableFormat":
        from xmtc.data.readers.arrow_table import ArrowTable

        return ArrowTable()


TableSettings = type[JsonlConfig | CsvConfig | ParquetConfig | ArrowConfig]
TABLES: dict[str, TableSettings] = {
    ending: settings
    for settings in (JsonlConfig, CsvConfig, ParquetConfig, ArrowConfig)
    for ending in settings.endings
}
"""The source that reads a file, by the file's ending."""


def table_of(path: Path) -> TableSettings | None:
    """Return the settings of the source that reads such a file; None for an unknown extension."""
    return TABLES.get(ending_of(path))


def table_columns(source: ReaderSettings) -> ColumnsConfig | None:
    """Return the columns of a source; None if it has no table of documents."""
    return source.columns if isinstance(source, TableConfig) else None


def document_columns(source: ReaderSettings) -> DocumentColumns | None:
    """Return the columns with the documents of a source; None if it has no table of documents."""
    columns = table_columns(source)
    return None if columns is None else columns.of_documents()


def label_source(source: ReaderSettings) -> LabelFileConfig | None:
    """Return the label file of a source, if it has one."""
    return source.labels if isinstance(source, TableConfig) else None


def label_file(source: ReaderSettings) -> LabelFileConfig | None:
    """Return the label file of a source, if it has one, without its folder."""
    labels = label_source(source)
    if labels is None:
        return None
    return replace(labels, path=Path(labels.path).name)


def added_files(source: ReaderSettings) -> list[Path]:
    """List the files that are added to those of train; a source that is told no files has none."""
    return sorted(source.files.added_files()) if isinstance(source, TableConfig) else []


def document_files(source: ReaderSettings) -> list[tuple[str, Path]]:
    """List (split, file) of a source that is told files with a document in each row; others have none."""
    return source.files.by_split() if isinstance(source, TableConfig) else []
