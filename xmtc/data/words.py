"""Words of whole texts: counts in each field, a vocabulary by document frequency, and TF-IDF rows of unit length.

A backbone reads the first `max_length` tokens of a document; words are counted over all of it. Texts are counted shard
by shard, each with different words (`count_words`); document frequencies add up to a vocabulary (`choose_words`), over
which the shards are then written (`WordCounts.over`). Each step is a plain function of picklable values, so that shards
can be counted in parallel. No text is kept, but a vocabulary holds words, names among them, that several documents use.

The values of categories are terms too, each as a whole, and a category is a field after those of the text.

Suffixes: N documents, V terms of the vocabulary, W terms of one shard, F fields, C = F · V columns, field by field.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter
from scipy import sparse
from typing_extensions import TypedDict

from xmtc.data.analyzer import ANALYZER, word_spans, words_of
from xmtc.data.array_contract import FIX, Array, Arrays
from xmtc.data.arrays import Floats, Matrix
from xmtc.data.config import WordsConfig
from xmtc.data.fields import ONE_FIELD, categories_of, field_parts
from xmtc.data.tensor_files import read_object, read_tensors, write_tensors
from xmtc.errors import CheckpointError, DataError
from xmtc.files import reading, write_json

logger = logging.getLogger(__name__)
_CODE_CHARACTER = re.compile(r"[\d_]")
"""Occurs in identifiers, which are not inflected."""
_AHEAD = 1_000
"""Characters in which a run of words ends."""
_TINY = np.finfo(np.float32).tiny
"""Stands for a length of 0 where something is divided by it."""

_TERMS_FILE = "words.json"
_COUNTS_FILE = "words.safetensors"
WORDS_FILES = (_TERMS_FILE, _COUNTS_FILE)
"""Files of a vocabulary: terms, and in how many documents each occurs."""


class TermRules(NamedTuple):
    """What is a term.

    Attributes:
        ngrams: runs of 1 to this many words, joined by spaces.
        stems: the first letters of a word that has more than this many letters and no digit, as `diabet*`; 0: none.
    """

    ngrams: int = 1
    stems: int = 0

    @classmethod
    def by(cls, config: WordsConfig) -> Self:
        """Return the rules of a configuration."""
        return cls(config.ngrams, config.stems)

    def of(self, words: Sequence[str]) -> list[str]:
        """List all terms of a text, from its words; single words first."""
        terms = list(words)
        for length in range(2, self.ngrams + 1):
            starts = range(len(words) - length + 1)
            terms += [" ".join(words[start : start + length]) for start in starts]
        stems = [self._stem(word) for word in words]
        return terms + [stem for stem in stems if stem]

    def spans(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Yield each occurrence of a term: the term and its first and last-plus-one character in `text`."""
        words = list(word_spans(text))
        for length in range(1, self.ngrams + 1):
            for first in range(len(words) - length + 1):
                run = words[first : first + length]
                term = " ".join(word for word, _, _ in run)
                _, start, _ = run[0]
                _, _, end = run[-1]
                yield term, start, end
        for word, start, end in words:
            stem = self._stem(word)
            if stem:
                yield stem, start, end

    def _stem(self, word: str) -> str:
        """Return the stem of a word as a term; empty if it has none."""
        has_stem = 0 < self.stems < len(word) and not _CODE_CHARACTER.search(word)
        return f"{word[: self.stems]}*" if has_stem else ""


WORDS_ALONE = TermRules()


@dataclass(frozen=True)
class WordCounts:
    """How often each term occurs in each document of one shard.

    Attributes:
        terms: the W terms of the shard.
        counts_NW: int32 (N, W).
    """

    terms: list[str]
    counts_NW: Matrix

    def over(self, vocabulary: "Vocabulary") -> Matrix:
        """Map the counts to a common vocabulary, float32 (N, V); other terms are dropped."""
        term_ids = (vocabulary.ids.get(term, -1) for term in self.terms)
        column_W = np.fromiter(term_ids, np.int64, len(self.terms))
        coordinates = self.counts_NW.tocoo()
        columns = column_W[coordinates.col]
        in_vocabulary = columns >= 0
        rows = coordinates.row[in_vocabulary]
        values = coordinates.data[in_vocabulary].astype(np.float32)
        documents = len(self.counts_NW.indptr) - 1
        return sparse.csr_array(
            (values, (rows, columns[in_vocabulary])), shape=(documents, len(vocabulary))
        )


def count_words(
    texts: Iterable[str | list[str]], rules: TermRules = WORDS_ALONE
) -> WordCounts:
    """Count the terms of some texts.

    Args:
        texts: N whole documents, which are not kept; or terms.
        rules: what is a term.
    """
    ids: dict[str, int] = {}
    columns = [np.empty(0, np.int32)]
    counts = [np.empty(0, np.int32)]
    ends = [0]
    for text in texts:
        terms = rules.of(words_of(text)) if isinstance(text, str) else text
        frequencies = Counter(terms)
        term_ids = (ids.setdefault(term, len(ids)) for term in frequencies)
        columns.append(np.fromiter(term_ids, np.int32, len(frequencies)))
        counts.append(np.fromiter(frequencies.values(), np.int32, len(frequencies)))
        ends.append(ends[-1] + len(frequencies))
    parts = (np.concatenate(counts), np.concatenate(columns), np.array(ends, np.int64))
    return WordCounts(
        list(ids), sparse.csr_array(parts, shape=(len(ends) - 1, len(ids)))
    )


class _StoredVocabulary(TypedDict):
    """The content of `words.json`."""

    analyzer: str
    terms: list[str]
    documents: Annotated[int, Field(ge=0)]
    rules: tuple[
        Annotated[int, Field(ge=1, le=10)], Annotated[int, Field(ge=0, le=100)]
    ]
    fields: Annotated[tuple[str, ...], Field(min_length=1)]
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Vocabulary:
    """Terms and what they weigh.

    Attributes:
        terms: V terms, the most frequent first; equally frequent ones in alphabetical order.
        documents_V: int64, training documents with the term.
        documents: training documents.
        rules: what is a term.
        fields: names of the fields whose words are counted.
        categories: names of the categories.
    """

    ARRAYS: ClassVar[Arrays] = {"documents_V": Array("I64", "V", least=0)}
    terms: list[str]
    documents_V: NDArray[np.int64]
    documents: int
    rules: TermRules = WORDS_ALONE
    fields: tuple[str, ...] = ONE_FIELD
    categories: tuple[str, ...] = ()
    ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "ids", {term: number for number, term in enumerate(self.terms)}
        )

    def __len__(self) -> int:
        return len(self.terms)

    @property
    def idf(self) -> NDArray[np.float32]:
        """ln((1 + N) / (1 + N_v)) + 1, as scikit-learn has it."""
        return (np.log((1 + self.documents) / (1 + self.documents_V)) + 1).astype(
            np.float32
        )

    def words(self, texts: Sequence[str]) -> "Words":
        """Count each term of the vocabulary in each field of each text."""

        def parts() -> Iterator[str | list[str]]:
            for text in texts:
                yield from field_parts(text, len(self.fields))
                yield from self._category_terms(text)

        counts_PV = count_words(parts(), self.rules).over(self)
        return Words(
            sparse.csr_array(counts_PV.reshape((len(texts), self.columns))), self
        )

    def _category_terms(self, text: str) -> list[list[str]]:
        """List the terms of each category."""
        terms = categories_of(text)
        return [
            [term for term in terms if term.startswith(f"{name}=")]
            for name in self.categories
        ]

    def known_values(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield column and term of each value of a category that the vocabulary has."""
        for place, terms in enumerate(
            self._category_terms(text), start=len(self.fields)
        ):
            for term in terms:
                if term in self.ids:
                    yield place * len(self) + self.ids[term], term

    def places(self, text: str, end: int) -> Iterator[tuple[int, int]]:
        """Yield each occurrence of a term of the vocabulary up to `end`: its column and first character in `text`."""
        part_start = 0
        for place, part in enumerate(field_parts(text, len(self.fields))):
            read_until = max(end + _AHEAD - part_start, 0)
            for term, term_start, _ in self.rules.spans(part[:read_until]):
                if term in self.ids:
                    yield place * len(self) + self.ids[term], part_start + term_start
            part_start += len(part)

    @property
    def columns(self) -> int:
        """C: term v of field f has the column f · V + v."""
        return (len(self.fields) + len(self.categories)) * len(self)

    def save(self, folder: Path) -> None:
        """Write `words.json` and `words.safetensors`."""
        plain = {
            "analyzer": ANALYZER,
            "terms": self.terms,
            "documents": self.documents,
            "rules": self.rules,
            "fields": self.fields,
            "categories": self.categories,
        }
        write_json(folder / _TERMS_FILE, plain)
        write_tensors(folder / _COUNTS_FILE, {"documents_V": self.documents_V})

    @classmethod
    def load(cls, folder: Path) -> "Vocabulary":
        """Read what `save` wrote.

        Raises:
            CheckpointError: a file is missing or damaged, or its words were found in a way that is unknown here.
        """
        path = folder / _TERMS_FILE
        plain = read_object(
            path, ("analyzer", "terms", "documents", "rules", "fields", "categories")
        )
        if plain["analyzer"] != ANALYZER:
            analyzer = str(plain["analyzer"])[:40]
            raise CheckpointError(
                f"{path}: the analyzer {analyzer!r} is unknown; this version of xmtc has {ANALYZER!r}: use the "
                "version that wrote the file"
            )
        with reading(path, CheckpointError, FIX):
            stored = TypeAdapter(_StoredVocabulary).validate_python(plain)
        if len(set(stored["terms"])) != len(stored["terms"]):
            raise CheckpointError(f"{path}: a term occurs twice; {FIX}")
        tensors = read_tensors(folder / _COUNTS_FILE, ("documents_V",))
        return cls(
            terms=stored["terms"],
            documents_V=tensors["documents_V"],
            documents=stored["documents"],
            rules=TermRules(*stored["rules"]),
            fields=stored["fields"],
            categories=stored["categories"],
        )


@dataclass(frozen=True)
class Words:
    """The words of N documents.

    Attributes:
        counts_NC: float32, how often each term occurs in each field.
        vocabulary: the terms and fields.
    """

    counts_NC: Matrix
    vocabulary: Vocabulary

    def __len__(self) -> int:
        return int(self.counts_NC.indptr.size - 1)

    def take(self, rows: NDArray[np.integer] | slice) -> "Words":
        """Select some of the documents."""
        return Words(self.counts_NC[rows], self.vocabulary)

    def together(self, weights_F: Floats | None = None) -> Matrix:
        """Compute TF-IDF rows of all fields as one text, (N, V), of unit length; without a term, a row is zero.

        A term weighs (1 + ln count) · idf. Its count is the weighted sum over fields, as in BM25F (Robertson, Zaragoza
        & Taylor 2004).

        Args:
            weights_F: weights of the fields; 1 by default.
        """
        terms = len(self.vocabulary)
        counts_NC = self.counts_NC
        values = counts_NC.data
        if weights_F is not None:
            fields = counts_NC.indices // terms
            values = values * weights_F[fields]
        parts = (values, counts_NC.indices % terms, counts_NC.indptr)
        counts_NV = sparse.csr_array(parts, shape=(len(self), terms), copy=True)
        counts_NV.sum_duplicates()
        counts_NV.eliminate_zeros()
        dampened = _dampened(np.asarray(counts_NV.data, np.float32))
        counts_NV.data = dampened * self.vocabulary.idf[counts_NV.indices]
        return _unit_rows(counts_NV)

    def apart(self, weights_F: Floats) -> Matrix:
        """Compute TF-IDF rows in which a term has a column for each field, (N, C), of unit length.

        Args:
            weights_F: the lengths of the fields' parts of a row, before the whole row gets unit length.
        """
        terms = len(self.vocabulary)
        fields = len(weights_F)
        rows_NC = sparse.csr_array(self.counts_NC, copy=True)
        rows_NC.sort_indices()
        dampened = _dampened(np.asarray(rows_NC.data, np.float32))
        rows_NC.data = dampened * self.vocabulary.idf[rows_NC.indices % terms]
        # A part is one field of one document: each is scaled to the length that its field shall have.
        document_of_value = np.repeat(np.arange(len(self)), np.diff(rows_NC.indptr))
        part_of_value = document_of_value * fields + rows_NC.indices // terms
        squared_lengths = np.bincount(
            part_of_value, np.square(rows_NC.data), len(self) * fields
        )
        lengths = np.sqrt(np.maximum(squared_lengths, _TINY))
        scales = np.tile(weights_F, len(self)) / lengths
        rows_NC.data = (rows_NC.data * scales[part_of_value]).astype(np.float32)
        rows_NC.eliminate_zeros()
        return _unit_rows(rows_NC)


def _dampened(counts: Floats) -> Floats:
    """Compute 1 + ln count; below 1, the count itself, which meets it there with the same slope."""
    return np.where(counts < 1, counts, 1 + np.log(np.maximum(counts, 1)))


def _unit_rows(rows: Matrix) -> Matrix:
    """Scale rows to unit length, in place; a row without values stays zero."""
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)))
    rows.data /= np.repeat(np.maximum(norms, _TINY), np.diff(rows.indptr))
    return rows


def document_frequencies(
    texts: Iterable[str], rules: TermRules = WORDS_ALONE
) -> Counter[str]:
    """Count the texts that contain each term. Counts of shards add up.

    Args:
        texts: whole documents; they are not kept.
        rules: what is a term.
    """
    frequencies: Counter[str] = Counter()
    for text in texts:
        terms = rules.of(words_of(text))
        frequencies.update({*terms, *categories_of(text)})
    return frequencies


def choose_words(
    frequencies: Counter[str],
    documents: int,
    config: WordsConfig,
    fields: tuple[str, ...] = ONE_FIELD,
    categories: tuple[str, ...] = (),
) -> Vocabulary:
    """Choose the vocabulary of a corpus: its most frequent terms, without those in too few or too many documents.

    Where no term would be left, terms in a single document are taken too. Where none is left then, as with texts of
    punctuation alone, the vocabulary is empty. The log says so.

    Args:
        frequencies: training documents with each term.
        documents: training documents.
        config: limits.
        fields: names of the fields.
        categories: names of the categories.

    Raises:
        DataError: no two documents share a value of a category.
    """
    _check_categories(frequencies, categories)
    most = config.most_documents * documents
    chosen = _between(frequencies, config.min_documents, most)
    if not chosen and config.min_documents > 1:
        logger.warning(
            "data.words.min_documents lowered from %d to 1: no word occurs in so many and in at most %.0f %% of the %d "
            "training documents",
            config.min_documents,
            100 * config.most_documents,
            documents,
        )
        chosen = _between(frequencies, 1, most)
    if not chosen:
        logger.warning(
            "the vocabulary is empty: no word occurs in few enough training documents to tell them apart"
        )
    chosen.sort(key=lambda item: (-item[1], item[0]))
    chosen = chosen[: config.most_terms]
    return Vocabulary(
        terms=[term for term, _ in chosen],
        documents_V=np.array([number for _, number in chosen], np.int64),
        documents=documents,
        rules=TermRules.by(config),
        fields=fields,
        categories=categories,
    )


def _check_categories(frequencies: Counter[str], categories: tuple[str, ...]) -> None:
    """Refuse a category whose every value is that of a single document."""
    for name in categories:
        counts = [
            number
            for term, number in frequencies.items()
            if term.startswith(f"{name}=")
        ]
        if max(counts, default=0) < 2:
            raise DataError(
                f"data.source.columns.categories: no two training documents have the same value of {name!r}: it is an "
                "identifier, a text or empty; leave it out"
            )


def _between(
    frequencies: Counter[str], least: int, most: float
) -> list[tuple[str, int]]:
    """List the terms that occur in so many documents, with their numbers."""
    return [
        (term, number)
        for term, number in frequencies.items()
        if least <= number <= most
    ]
