"""Words of whole texts: counting by shard, vocabulary, TF-IDF rows."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from xmtc.data.analyzer import words_of
from xmtc.data.config import WordsConfig
from xmtc.data.words import (
    TermRules,
    Vocabulary,
    choose_words,
    count_words,
    document_frequencies,
)
from xmtc.errors import CheckpointError

TEXTS = [
    "The cat sat on the mat",
    "the dog sat",
    "A cat, a DOG: a cat!",
    "nothing here",
]


def vocabulary_of(texts: list[str], **settings: float) -> Vocabulary:
    config = WordsConfig(**{"min_documents": 1, "most_documents": 1.0} | settings)
    return choose_words(
        document_frequencies(texts, TermRules.by(config)), len(texts), config
    )


@pytest.mark.parametrize("ngrams", [1, 2])
def test_rows_are_those_of_scikit_learn(ngrams: int) -> None:
    vocabulary = vocabulary_of(TEXTS, ngrams=ngrams)
    peer = TfidfVectorizer(
        sublinear_tf=True,
        token_pattern=r"\w+",
        ngram_range=(1, ngrams),
        vocabulary=vocabulary.terms,
    )
    expected = peer.fit_transform(TEXTS).toarray()
    np.testing.assert_allclose(
        vocabulary.words(TEXTS).together().toarray(), expected, atol=1e-6
    )


def test_shards_add_up_to_the_whole() -> None:
    first, second = count_words(TEXTS[:2]), count_words(TEXTS[2:])
    frequencies = sum(
        (document_frequencies(part) for part in (TEXTS[:2], TEXTS[2:])), Counter[str]()
    )
    vocabulary = choose_words(frequencies, len(TEXTS), WordsConfig(min_documents=1))
    assert vocabulary.terms == vocabulary_of(TEXTS, most_documents=0.9).terms
    joined = np.concatenate(
        [part.over(vocabulary).toarray() for part in (first, second)]
    )
    np.testing.assert_array_equal(joined, vocabulary.words(TEXTS).counts_NC.toarray())


def test_limits_and_order_of_the_vocabulary() -> None:
    assert vocabulary_of(TEXTS, min_documents=2).terms == ["cat", "dog", "sat", "the"]
    assert vocabulary_of(TEXTS, most_terms=2).terms == ["cat", "dog"]
    assert len(vocabulary_of(TEXTS, min_documents=3)) == len(vocabulary_of(TEXTS)), (
        "lowered to 1"
    )


def test_a_text_without_known_words_has_an_empty_row() -> None:
    vocabulary = vocabulary_of(TEXTS)
    rows = vocabulary.words(["unknown words", ""]).together()
    assert rows.shape == (2, len(vocabulary))
    assert rows.nnz == 0


def test_spans_point_at_the_terms() -> None:
    text = "Ein İgel, ein Haus"
    spans = list(TermRules(2).spans(text))
    assert [(term, text[start:end]) for term, start, end in spans][:2] == [
        ("ein", "Ein"),
        ("i̇gel", "İgel"),
    ]
    assert ("ein haus", "ein Haus") in [
        (term, text[start:end]) for term, start, end in spans
    ]


def test_a_stem_is_a_term_of_each_longer_word_without_digits() -> None:
    text = "Diabética, diabético; asma R2009123 tercero_b Straßenbau"
    rules = TermRules(stems=6)
    assert rules.of(words_of(text))[6:] == ["diabét*", "diabét*", "strass*"]
    stems = [
        (term, text[start:end]) for term, start, end in rules.spans(text) if "*" in term
    ]
    assert stems == [
        ("diabét*", "Diabética"),
        ("diabét*", "diabético"),
        ("strass*", "Straßenbau"),
    ]
    vocabulary = vocabulary_of(["diabética", "diabético"], stems=6)
    assert vocabulary.terms == ["diabét*", "diabética", "diabético"]
    assert vocabulary.words(
        ["un diabético, dos diabéticos"]
    ).counts_NC.toarray().tolist() == [[2, 0, 1]]


def test_saved_and_loaded(tmp_path: Path) -> None:
    vocabulary = vocabulary_of(TEXTS, ngrams=2, stems=3)
    vocabulary.save(tmp_path)
    loaded = Vocabulary.load(tmp_path)
    assert (loaded.terms, loaded.rules) == (vocabulary.terms, vocabulary.rules)
    np.testing.assert_array_equal(loaded.idf, vocabulary.idf)
    path = tmp_path / "words.json"
    path.write_text(path.read_text().replace("unicode", "another"))
    with pytest.raises(CheckpointError, match=r"analyzer 'another' is unknown"):
        Vocabulary.load(tmp_path)
    path.write_text("{}")
    with pytest.raises(CheckpointError, match="lacks analyzer, terms"):
        Vocabulary.load(tmp_path)
