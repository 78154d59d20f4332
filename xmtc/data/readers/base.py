"""What a reader is: it turns one kind of source into documents with labels. Nothing here imports more than Python."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from xmtc.data.parallel import MapUnordered
    from xmtc.data.progress import Progress

SPLITS = ("train", "dev", "test")
_LONGEST_SHOWN = 100  # characters: longer than labels and identifiers are, shorter than documents


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its labels.

    Attributes:
        labels: none where no label fits; `data.without_labels` says what becomes of such a document.
        split: `train`, `dev` or `test` where the source says so; None leaves it to `SplitConfig`.
    """

    doc_id: str
    text: str
    labels: tuple[str, ...]
    split: str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is not a document.

    Attributes:
        where: file and line or row, so that the user can find it.
        reason: what is wrong and how to fix it; never the document's text.
    """

    where: str
    reason: str


@dataclass(frozen=True)
class LabelInfo:
    """What a source says about its labels, apart from which document has them.

    Attributes:
        names: label -> name for people.
        parents: label -> broader labels; empty where the source has no hierarchy.
        closed: True where a label that is not in `names` makes its row bad.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    closed: bool = False


class Reader(Protocol):
    """Reads a source."""

    def fingerprint(self) -> str:
        """Changes when the documents may change: it covers file contents and settings, not where the files are.

        Raises:
            DataError: a file is missing or empty.
        """
        ...

    def provides(self) -> frozenset[str]:
        """Splits for which the source has documents of its own, as far as is known before it is read."""
        ...

    def read(self, map_unordered: "MapUnordered", progress: "Progress") -> Iterator[Document | Rejected]:
        """All documents, in an order that is the same on every run.

        Args:
            map_unordered: runs a function on many items in parallel.
            progress: shows how far the reader is.

        Raises:
            DataError: a file cannot be read.
        """
        ...

    def label_info(self) -> LabelInfo:
        """Names and hierarchy of the labels.

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
        """The reader. Imports of its implementation belong into this method: reading a configuration stays fast."""
        ...


def check_characters(*texts: str) -> None:
    """Raises ValueError if a text cannot be written as UTF-8: JSON can name one half of a surrogate pair."""
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise ValueError("the id, text or labels hold half of a character, such as \\ud83d of \\ud83d\\ude00") from None


def quoted_cell(value: Any) -> str:
    """A cell for a message; a long one is not shown, because it may be a document's text in the wrong column."""
    text = str(value)
    return repr(text) if len(text) <= _LONGEST_SHOWN else f"a text of {len(text):,} characters"
