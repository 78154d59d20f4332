"""The interface of readers, which turn one kind of source into documents with labels. Imports no library."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from xmtc.config.problems import suggestion
from xmtc.data.fields import ONE_FIELD
from xmtc.errors import DataError

if TYPE_CHECKING:
    from xmtc.data.parallel import MapUnordered
    from xmtc.track.progress import Progress

SPLITS = ("train", "dev", "test")
_LONGEST_CELL, _LONGEST_LABEL = 40, 60  # characters
_IDENTIFIER, _MAX_COLUMNS = re.compile(r"^[^\W\d][\w.-]{0,39}$"), 20
_NAME_WORDS, _BEGINS = 4, 3
T = TypeVar("T")

LONGEST_DOCUMENT = 10_000_000
"""Default of `data.longest_document`, in characters."""
MOST_CHARACTERS = 1_000_000_000
"""Its greatest value."""
LENGTH_OPTIONS = (
    "data.longest_document, --longest-document of a command that reads files for a model, or limits.characters of "
    "xmtc serve"
)
"""What allows longer documents."""
_CHARACTERS_OF_JSON = 6
"""Characters by which JSON may write one of a text, as in `\\u00e9`."""
_OTHER_CELLS = 1 << 20
"""Characters that a row may have beside its text, for labels and what else is in it."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its labels.

    Attributes:
        labels: its labels; see `data.without_labels` for documents without any.
        split: `train`, `dev` or `test` if the source says so; None leaves it to `SplitConfig`.
        absent_labels: null, NaN or blank entries among its labels, which are left out.
        rejected_labels: labels that were judged not to fit, if those in neither list were not judged; None if every
            label was judged, as is usual.
        added: whether it was added to the other documents for training: it is never taken for dev or test, and goes
            before a training document of the same text.
    """

    doc_id: str
    text: str
    labels: tuple[str, ...]
    split: str | None = None
    absent_labels: int = 0
    rejected_labels: tuple[str, ...] | None = None
    added: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is not a document.

    Attributes:
        where: file and line or row, so that the user can find it.
        reason: what is wrong and how to fix it; never the document's text.
        unjudged: whether nothing is wrong, but nobody has judged the document, or its labels were refused. It is left
            out whatever `data.on_bad_row` says.
    """

    where: str
    reason: str
    unjudged: bool = False


@dataclass(frozen=True)
class LabelInfo:
    """The names and the hierarchy of a source's labels.

    Attributes:
        names: label -> name for people.
        parents: label -> broader labels; empty if the source has no hierarchy.
        closed: whether a label that is not in `names` makes its row bad.
        alternatives: label -> its other names, in any language.
        translations: language, such as `de` -> label -> its name.
        deprecated: deprecated label -> labels that replace it.
        written: what documents may write instead of a label -> the label.
        notations: label -> its notation, such as the number of a class (SKOS), where it is not the label itself.
        stated: version or date that the source states.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    closed: bool = False
    alternatives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    translations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    deprecated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notations: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    stated: str = ""

    def meant_by(self, spelling: str) -> str:
        """Return the label that a document means; what is neither a label nor written for one is itself."""
        if spelling in self.names:
            return spelling
        return self.written.get(spelling, spelling)

    @property
    def version(self) -> str:
        """What tells versions of the vocabulary apart: the stated one, and a hash; empty if there are no names."""
        rows = (
            (one, self.names[one], self.parents.get(one), self.deprecated.get(one))
            for one in sorted(self.names)
        )
        return (
            " ".join(filter(None, (self.stated, hash_of_labels(rows))))
            if self.names
            else ""
        )


class Reader(Protocol):
    """Reads a source."""

    def fingerprint(self) -> str:
        """Return a hash that changes when the documents may change: of file contents and settings, not of paths.

        Raises:
            DataError: a file is missing or empty.
        """
        ...

    def provides(self) -> frozenset[str]:
        """Return the splits for which the source has documents, as far as known before reading."""
        ...

    def fields(self) -> tuple[str, ...]:
        """Return the names of the fields of documents; with several, each `Document.text` is a `FieldText`."""
        return ONE_FIELD

    def categories(self) -> tuple[str, ...]:
        """Return the names of the categories of documents, whose values each `Document.text` has as a `FieldText`."""
        return ()

    def files(self) -> list[Path]:
        """List the files that are read, whether they are there or not; empty if the source is none.

        Raises:
            DataError: a pattern names no file.
        """
        return []

    def count(self) -> int | None:
        """Count the rows, or estimate them; None if that would take about as long as reading them.

        Raises:
            DataError: a file cannot be read.
        """
        return None

    def read(
        self,
        map_unordered: "MapUnordered",
        progress: "Progress",
        longest: int = LONGEST_DOCUMENT,
    ) -> Iterator[Document | Rejected]:
        """Yield all documents, in an order that is the same on every run.

        Args:
            map_unordered: runs a function on many items in parallel.
            progress: shows how far the reader is.
            longest: most characters of a document, `data.longest_document`. A reader of files refuses rows that are
                much longer before it copies their text; preparation refuses every longer document.

        Raises:
            DataError: a file cannot be read.
        """
        ...

    def label_info(self) -> LabelInfo:
        """Return the names and hierarchy of the labels.

        Raises:
            DataError: the label file cannot be read.
        """
        ...


class ReaderSettings(Protocol):
    """The settings of a source: the `data.source` section of a configuration.

    An installed package adds a kind of source by an entry point of the group `xmtc.readers`. The entry point's name is
    the kind, and its object is the settings class, a `@config` dataclass. Settings that are paths may be URIs: a run
    replaces each string that looks like one with a local copy before it calls `build`.
    """

    @property
    def kind(self) -> str:
        """Name of the kind of source."""
        ...

    def build(self) -> Reader:
        """Build the reader. Import the implementation in this method, so that reading a configuration stays fast."""
        ...


def sound(rows: Iterable[T | Rejected]) -> Iterator[T]:
    """Yield rows of which none may be left out.

    Raises:
        DataError: a row is bad.
    """
    for row in rows:
        if isinstance(row, Rejected):
            raise DataError(f"{row.where}: {row.reason}")
        yield row


def longest_row(longest: int) -> int:
    """Return how many characters a row may have, as the file writes it, for a document of at most `longest`."""
    return _CHARACTERS_OF_JSON * longest + _OTHER_CELLS


def row_too_long(where: str, longest: int) -> Rejected:
    """Refuse a row that is longer than `longest_row`."""
    return Rejected(
        where,
        f"the row has more than {longest_row(longest):,} characters; {_length_advice(longest)}",
    )


def check_length(text: str, longest: int) -> None:
    """Raise ValueError if a document has more than `longest` characters."""
    if len(text) > longest:
        raise ValueError(
            f"the text has {len(text):,} characters; {_length_advice(longest)}"
        )


def _length_advice(longest: int) -> str:
    return (
        f"a document may have {longest:,}: if several were joined, divide them (is a line break or a quote missing?), "
        f"otherwise raise {LENGTH_OPTIONS}"
    )


def check_characters(*texts: str) -> None:
    """Raise ValueError if a text cannot be written as UTF-8: JSON can hold one half of a surrogate pair."""
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            "the id, text or labels hold half of a character, such as \\ud83d of \\ud83d\\ude00"
        ) from None


def quoted_cell(value: Any) -> str:
    """Quote a cell for a message. Hide a long cell, or one with blanks: it may be text in the wrong column."""
    text = str(value)
    shown = len(text) <= _LONGEST_CELL and not any(
        character.isspace() for character in text
    )
    return repr(text) if shown else f"a text of {len(text):,} characters"


def quoted_label(label: str, what: str = "label") -> str:
    """Quote a label, or a cell of several, for a message. Hide a long one: it may be text in the wrong column."""
    return (
        repr(label)
        if len(label) <= _LONGEST_LABEL
        else f"a {what} of {len(label):,} characters"
    )


def hash_of_labels(rows: Iterable[tuple[Any, ...]]) -> str:
    """Hash rows of labels, by which versions of a vocabulary can be told apart."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr(row).encode())
    return f"sha256:{digest.hexdigest()[:12]}"


def shown_column(name: str) -> str:
    """Show a column's name in a message. Hide a long one: it may be text, if a file has no header."""
    if not name:
        return "a column without a name"
    shown = len(name) <= _LONGEST_CELL and len(name.split()) <= _NAME_WORDS
    if shown:
        return name
    begins = " ".join(name.split()[:_BEGINS])
    if len(begins) > _LONGEST_CELL:
        return f"a column with a name of {len(name):,} characters"
    return f"a column whose name begins with {begins!r}"


def no_column(name: str, there: Iterable[object]) -> str:
    """Say that a table lacks a column, and which it has."""
    return (
        f"no column {name!r}; {suggestion(name, map(str, there))}{shown_columns(there)}"
    )


def shown_columns(there: Iterable[object]) -> str:
    """List the columns of a table for a message. Hide them if they may be a first document instead of a header."""
    names = [str(name) for name in there]
    if all(_IDENTIFIER.match(name) for name in names):
        more = (
            f" and {len(names) - _MAX_COLUMNS} more"
            if len(names) > _MAX_COLUMNS
            else ""
        )
        return f"there are: {', '.join(names[:_MAX_COLUMNS])}{more}"
    return f"there are {len(names)}, whose names are not shown: they may be a text (is the first line a header?)"
