"""`manifest.json` of a corpus: what is in it, from what it was made, and whether it is whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from xmtc.errors import DataError
from xmtc.files import file_sha256, holding, parse_json, reading, write_json

FORMAT = 8
"""Version of the corpus directory."""
NAME = "manifest.json"
_KIND = "xmtc corpus"


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """A file of the corpus, `path` relative to its directory."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ShardInfo:
    """One Arrow file of a split."""

    file: FileInfo
    rows: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class SplitInfo:
    """The shards of a split in order, and their totals."""

    rows: int
    tokens: int
    shards: list[ShardInfo]


@dataclass(frozen=True, kw_only=True)
class TokenizerIdentity:
    """Which tokenizer made the token ids.

    Attributes:
        name: as configured.
        sha256: SHA-256 of the tokenizer's definition: two tokenizers with equal hashes give equal ids.
        vocab_size: token ids are below this.
    """

    name: str
    sha256: str
    vocab_size: int


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What became of the source's rows.

    Attributes:
        read: rows read.
        rejected: bad rows left out (`on_bad_row: skip`).
        unjudged: documents left out because nobody has judged them, or because their labels were refused.
        duplicates: dev and test documents whose text is a training text; left out unless `duplicates: keep`.
        over_limit: documents that `limit` left out.
        truncated: documents longer than `max_length` tokens.
        without_labels: documents that have no label, in the source or after rare ones are dropped; kept as negatives,
            or left out (`data.without_labels`, single-label tasks).
        dropped_labels: labels with fewer training documents than `min_label_documents`.
        unused_labels: labels of the label file that no document of the corpus has; they are not in the label table.
        absent_labels: null, NaN or blank entries among the labels of documents; they are left out.
        repeated_ids: documents whose doc_id an earlier document of the same split has; predictions tell them apart by
            their order alone.
        added: documents of added files, all of which are for training.
        replaced: training documents that were left out because an added document has the same text.
    """

    read: int = 0
    rejected: int = 0
    unjudged: int = 0
    duplicates: int = 0
    over_limit: int = 0
    truncated: int = 0
    without_labels: int = 0
    dropped_labels: int = 0
    unused_labels: int = 0
    absent_labels: int = 0
    repeated_ids: int = 0
    added: int = 0
    replaced: int = 0


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest of a corpus directory (docs/reference/files.md)."""

    kind: str = _KIND
    format: int = FORMAT
    fingerprint: str
    task: str
    max_length: int
    tokenizer: TokenizerIdentity
    labels: FileInfo
    words: list[FileInfo]
    splits: dict[str, SplitInfo]
    counts: Counts
    vocabulary: str = ""
    """Version of the label file; empty if the source has none."""
    languages: dict[str, int] = field(default_factory=dict)
    """Number of texts in each language, in a sample of the training documents."""
    dev_languages: dict[str, int] = field(default_factory=dict)
    """The same of dev."""

    def save(self, directory: Path) -> None:
        """Write `manifest.json` into `directory`."""
        write_json(directory / NAME, asdict(self), indent=1)

    @staticmethod
    def load(directory: Path) -> "Manifest":
        """Read `manifest.json` of a corpus directory.

        Raises:
            DataError: there is none, it is damaged, or of another format.
        """
        path = directory / NAME
        if not path.is_file():
            raise DataError(
                f"{directory}: no corpus here (no {NAME}); start where the run did, or use 'xmtc prepare'"
            )
        with reading(path):
            return Manifest.parse(path.read_bytes(), str(path))

    @staticmethod
    def parse(text: bytes, place: str) -> "Manifest":
        """Parse the content of a `manifest.json`.

        Raises:
            DataError: it is damaged, or of another format; names `place`.
        """
        with reading(
            place, fix="delete its folder and prepare the corpus again", what="damaged"
        ):
            content = parse_json(text)
            if not isinstance(content, dict) or content.get("kind") != _KIND:
                raise DataError(
                    f"{place}: not the manifest of an xmtc corpus; choose another data.corpus"
                )
            its_format = content.get("format")
            if its_format != FORMAT:
                raise DataError(
                    f"{place}: corpus format {its_format}, this xmtc reads {FORMAT}; delete its folder and prepare the "
                    "corpus again"
                )
            return TypeAdapter(Manifest).validate_python(content)

    def files(self) -> list[FileInfo]:
        """List every file whose hash is known: labels, vocabulary and shards."""
        files = [self.labels, *self.words]
        for split in self.splits.values():
            files += [shard.file for shard in split.shards]
        return files


def file_info(path: Path, root: Path) -> FileInfo:
    """Measure size and hash of a file of the corpus at `root`."""
    return FileInfo(
        path=path.relative_to(root).as_posix(),
        bytes=path.stat().st_size,
        sha256=file_sha256(path),
    )


@contextmanager
def in_use(directory: Path, fingerprint: str) -> Iterator[None]:
    """Keep a corpus from being replaced, as far as this file system's locks reach.

    Raises:
        DataError: it has been replaced already, or is being replaced.
    """
    with holding(directory / NAME) as is_free:
        if not is_free or Manifest.load(directory).fingerprint != fingerprint:
            raise DataError(
                f"{directory}: another command is making this corpus again from other data or settings; let each run "
                "have its own data.corpus"
            )
        yield


@contextmanager
def replaceable(directory: Path) -> Iterator[None]:
    """Make sure that nobody uses the corpus in a directory, if there is one, until it has been replaced.

    Raises:
        DataError: a run uses it.
    """
    if not (directory / NAME).is_file():
        yield
        return
    with holding(directory / NAME, alone=True) as is_free:
        if not is_free:
            raise DataError(
                f"{directory}: a run is using this corpus, and these data or settings make another one; wait for the "
                "run, or set another data.corpus"
            )
        yield
