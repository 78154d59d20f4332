"""The `data` section of a configuration. Importing it imports no library that reads, tokenises or trains."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field

from xmtc.config.base import config
from xmtc.data.readers.base import LONGEST_DOCUMENT, MOST_CHARACTERS
from xmtc.data.readers.config import ReaderConfig, SplitConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from transformers import PreTrainedTokenizerFast

CacheDtype = Literal["bfloat16", "float32"]
"""Types in which hidden states are kept on disk."""
Duplicates = Literal["drop", "keep"]
OnBadRow = Literal["error", "skip"]
WithoutLabels = Literal["keep", "drop", "error"]
Task = Literal["multi_label", "single_label"]
_Limit = Annotated[int, Field(ge=1)] | None


@config
class PretrainedTokenizerConfig:
    """A tokenizer that comes with a pretrained model."""

    kind: Literal["pretrained"] = "pretrained"
    name: Annotated[str, Field(min_length=1)]
    """Hub id, `owner/name@revision`, folder, `.gguf` file, or `packaged:<model>`."""

    @property
    def pretrained(self) -> str | None:
        """The model whose tokenizer this is."""
        return self.name

    def describe(self) -> str:
        """Describe the tokenizer in a message."""
        return self.name

    def load(
        self, texts: "Callable[[], Iterator[str]]", total: int
    ) -> "PreTrainedTokenizerFast":
        """Load the tokenizer; the texts are not looked at.

        Raises:
            ConfigError: it cannot be loaded.
        """
        from xmtc.data.tokenizer import load_pretrained

        del texts, total
        return load_pretrained(self.name)

    def identity(self) -> object:
        """Return the tokenizer's definition, for the corpus's fingerprint."""
        from xmtc.data.tokenizer import definition, load_pretrained

        return definition(load_pretrained(self.name))


@config
class TrainedTokenizerConfig:
    """A tokenizer trained on the training split, for encoders that start from scratch; without case and accents."""

    kind: Literal["trained"] = "trained"
    model: Literal["wordpiece", "word"] = "wordpiece"
    """`wordpiece` cuts rare words into pieces; `word` maps them to the unknown token."""
    vocab_size: Annotated[int, Field(ge=100)] = 30_000
    """Maximum number of tokens; `wordpiece` may have a few more."""

    @property
    def pretrained(self) -> str | None:
        """None: no model has this tokenizer yet."""
        return None

    def describe(self) -> str:
        """Describe the tokenizer in a message."""
        return f"trained {self.model}"

    def load(
        self, texts: "Callable[[], Iterator[str]]", total: int
    ) -> "PreTrainedTokenizerFast":
        """Train the tokenizer on the training texts, whose number is `total`."""
        from xmtc.data.tokenizer import train_tokenizer

        return train_tokenizer(self.model, self.vocab_size, texts(), total)

    def identity(self) -> object:
        """Return the settings; the rest follows from the source, which has a fingerprint."""
        return asdict(self)


TokenizerConfig = Annotated[
    PretrainedTokenizerConfig | TrainedTokenizerConfig, Discriminator("kind")
]


@config
class LimitConfig:
    """Take at most so many documents, chosen by a hash of their text: every run takes the same ones."""

    train: _Limit = None
    """Training documents; null: all."""
    dev: _Limit = None
    """Development documents; null: all."""
    test: _Limit = None
    """Test documents; null: all."""


@config
class WordsConfig:
    """The words of whole texts, for scorers that count them: they are not cut to `max_length`.

    Words are runs of letters, digits, underscores and combining marks after NFKC and case folding; overlapping pairs of
    characters in scripts without spaces, such as Chinese, Japanese and Thai.
    """

    ngrams: Annotated[int, Field(ge=1, le=5)] = 1
    """Terms are runs of 1 to this many words."""
    stems: Annotated[int, Field(ge=0, le=32)] = 0
    """The first letters of a longer word are a term as well, so that inflected forms share one; 0: they are not."""
    min_documents: Annotated[int, Field(ge=1)] = 2
    """Terms in fewer training documents are dropped. If no term remains, xmtc lowers this to 1."""
    most_documents: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Terms in more than this share of the training documents are dropped, because they do not distinguish labels."""
    most_terms: Annotated[int, Field(ge=1)] = 100_000
    """Only this many terms are kept, the most frequent ones."""


@config
class DataConfig:
    """Where documents come from and how they become a corpus."""

    source: ReaderConfig
    """What to read. Its paths may be URIs: files are copied to `storage.cache` first."""
    corpus: Annotated[str, Field(min_length=1)]
    """Directory of the prepared corpus, or a URI such as `s3://bucket/corpora/laws`. It is reused while source,
    tokenizer and settings stay the same."""
    tokenizer: TokenizerConfig | None = None
    """How text becomes tokens; null: the tokenizer of the backbone."""
    max_length: Annotated[int, Field(ge=1, le=1_000_000)] = 512
    """Maximum number of tokens of a document; the rest is cut. It can exceed the backbone's window."""
    longest_document: Annotated[int, Field(ge=1, le=MOST_CHARACTERS)] = LONGEST_DOCUMENT
    """Maximum number of characters of a document; a longer one is a bad row, because it is probably several documents
    without borders, and would take more memory than a machine has."""
    words: WordsConfig = WordsConfig()
    """The vocabulary whose terms are counted in whole texts. The corpus keeps terms and counts, not texts."""
    limit: LimitConfig = LimitConfig()
    """Maximum number of documents of each split."""
    split: SplitConfig = SplitConfig()
    """How to divide a source that has no dev or test split, by a hash of each text."""
    min_label_documents: Annotated[int, Field(ge=1)] = 1
    """Labels with fewer training documents are dropped."""
    fold_label_case: bool = False
    """Whether labels that differ only in case are one, spelled as in the label file or as it first occurs."""
    on_bad_row: OnBadRow = "error"
    """`error` stops at the first row that is not a document; `skip` leaves such rows out and counts them."""
    without_labels: WithoutLabels = "keep"
    """What happens to a document without labels: `keep` it as a negative, `drop` it, or treat it as a bad row
    (`error`). Single-label tasks never keep it."""
    duplicates: Duplicates = "drop"
    """`drop` or `keep` dev and test documents whose text is also a training text (of test: or in a dev taken from
    train). Both are counted."""
    task: Task = "multi_label"
    """`multi_label`: any number of labels per document; `single_label`: exactly one."""

    @property
    def one_label(self) -> bool:
        """Whether each document must have exactly one label."""
        return self.task == "single_label"
