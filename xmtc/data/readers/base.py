"""What a reader is: it turns one kind of source into documents with labels."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from xmtc.data.parallel import MapUnordered
from xmtc.data.progress import Progress

SPLITS = ("train", "dev", "test")
_LONGEST_SHOWN = 100  # characters: longer than labels and identifiers are, shorter than documents


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its labels.

    Attributes:
        split: `train`, `dev` or `test` where the source says so; None: the split is up to `SplitConfig`.
    """

    doc_id: str
    text: str
    labels: tuple[str, ...]
    split: str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is not a document.

    Attributes:
        where: file and line or row, for the user to find it.
        reason: what is wrong and how to mend it; never the document's text.
    """

    where: str
    reason: str


@dataclass(frozen=True)
class LabelInfo:
    """What a source says about its labels besides which document has them.

    Attributes:
        names: label -> name for people.
        parents: label -> broader labels; empty where the source has no hierarchy.
        closed: True where a label that is not in `names` makes its row bad.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    closed: bool = False


def check_characters(*texts: str) -> None:
    """Raises ValueError where a text cannot be written down: JSON can name one half of a pair of surrogates."""
    try:
        for text in texts:
            text.encode()
    except UnicodeEncodeError:
        raise ValueError("the id, text or labels hold half of a character, such as \\ud83d of \\ud83d\\ude00") from None


def shown(value: Any) -> str:
    """A cell for a message; a long one is not shown, because it may be a document's text in the wrong column."""
    text = str(value)
    return repr(text) if len(text) <= _LONGEST_SHOWN else f"a text of {len(text):,} characters"


class Reader(Protocol):
    """The configuration of a source, which also reads it."""

    kind: str

    def fingerprint(self) -> str:
        """Changes when what `read` yields may change: content of the files and settings, not where they lie.

        Raises:
            DataError: a file is missing or empty.
        """
        ...

    def provides(self) -> frozenset[str]:
        """Splits for which the source has documents of its own, as far as is known before it is read."""
        ...

    def read(self, map_unordered: MapUnordered, progress: Progress) -> Iterator[Document | Rejected]:
        """All documents, in an order that is the same on every run.

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
