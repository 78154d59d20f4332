"""Words of whole texts in a corpus: counted in shards and processes, over one vocabulary, without the texts."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpora import (
    data_config,
    documents,
    jsonl_source,
    serial,
    small_corpus,
    write_jsonl,
)
from xmtc.data.corpus import Corpus
from xmtc.data.list_column import ListColumn
from xmtc.data.prepare import prepare
from xmtc.data.words import (
    TermRules,
    choose_words,
    count_words,
    document_frequencies,
    words_of,
)
from xmtc.errors import DataError

ODD = [
    "İstanbul İçin istanbul",
    "ΑΣ'Β ΟΔΟΣ οδος",
    "Straße STRASSE ﬁn \u0301a\u200d👩\u200d🚀 हिन्दी",
    "naïve na\u0131ve NAÏVE 数据 数据库 ١٢ _x_",
]


def corpus_of(tmp_path: Path, texts: list[str], **settings: Any) -> Corpus:
    rows = [
        {"id": f"d{i}", "text": text, "labels": [f"l{i % 3}"]}
        for i, text in enumerate(texts)
    ]
    config = data_config(tmp_path / "corpus", jsonl_source(tmp_path, rows), **settings)
    return prepare(config, None, map_unordered=serial)


@pytest.mark.parametrize("ngrams", [1, 2])
def test_rows_are_those_of_the_whole_texts(tmp_path: Path, ngrams: int) -> None:
    texts = [row["text"] for row in documents(700)] + ODD * 2
    corpus = corpus_of(
        tmp_path,
        texts,
        max_length=4,
        words={"ngrams": ngrams},
        split={"test": 0},
        duplicates="keep",
    )
    vocabulary = corpus.vocabulary()
    train = [texts[int(doc_id[1:])] for doc_id in corpus.split("train").doc_ids()]
    expected = choose_words(
        document_frequencies(train, TermRules(ngrams)),
        len(train),
        data_config_words(ngrams),
    )
    assert vocabulary.terms == expected.terms
    np.testing.assert_array_equal(vocabulary.documents_V, expected.documents_V)
    for name in corpus.splits:
        split = corpus.split(name)
        own = [texts[int(doc_id[1:])] for doc_id in split.doc_ids()]
        rows_NV = vocabulary.words(own).together()
        found_NV = split.words().together()
        assert found_NV.dtype == np.float32
        np.testing.assert_array_equal(found_NV.toarray(), rows_NV.toarray())
        some = np.array([len(split) - 1, 0, 3, 0])
        np.testing.assert_array_equal(
            split.words(some).together().toarray(), rows_NV.toarray()[some]
        )
    assert corpus.split("train").words(np.empty(0, np.int64)).together().shape == (
        0,
        len(vocabulary),
    )
    with pytest.raises(IndexError, match="documents 0 to 10000 of"):
        corpus.split("train").words(np.array([0, 10_000]))


def data_config_words(ngrams: int) -> Any:
    return data_config(
        Path("corpus"),
        {"kind": "jsonl", "files": {"train": "x"}},
        words={"ngrams": ngrams},
    ).words


def test_shards_hold_counts_in_ascending_order_and_no_text(tmp_path: Path) -> None:
    corpus = small_corpus(tmp_path, 600)
    texts = {row["id"]: row["text"] for row in documents(600)}
    vocabulary = corpus.vocabulary()
    shards = [shard.file.path for shard in corpus.manifest.splits["train"].shards]
    assert len(shards) > 1
    for path in shards:
        with pa.ipc.open_file(str(corpus.path / path)) as file:
            table = file.read_all()
        assert "text" not in table.column_names
        for row in table.to_pylist():
            ids, counts = row["word_ids"], row["word_counts"]
            assert ids == sorted(set(ids))
            words = words_of(texts[row["doc_id"]])
            assert {
                vocabulary.terms[i]: n for i, n in zip(ids, counts, strict=True)
            } == {word: words.count(word) for word in words if word in vocabulary.ids}


def test_equal_texts_have_equal_hashes_across_splits(tmp_path: Path) -> None:
    rows = documents(40)
    source = jsonl_source(tmp_path, [*rows, rows[7] | {"id": "again"}])
    source["files"]["dev"] = str(
        write_jsonl(
            tmp_path / "dev.jsonl", [rows[3] | {"id": "same"}, documents(50)[45]]
        )
    )
    settings = {"duplicates": "keep", "split": {"test": 0}}
    corpus = prepare(
        data_config(tmp_path / "corpus", source, **settings), None, map_unordered=serial
    )
    train, dev = corpus.split("train"), corpus.split("dev")
    hashes = dict(zip(train.doc_ids(), train.text_hashes(), strict=True))
    assert train.text_hashes().dtype == np.uint64
    assert hashes["again"] == hashes["d7"]
    assert len(set(hashes.values())) == 40
    assert dev.text_hashes()[0] == hashes["d3"]
    assert dev.text_hashes()[1] not in hashes.values()


def test_settings_of_words_make_another_corpus(tmp_path: Path) -> None:
    first = small_corpus(tmp_path)
    terms = len(first.vocabulary())
    shorter = small_corpus(tmp_path, words={"most_terms": 3})
    assert shorter.fingerprint != first.fingerprint
    assert len(shorter.vocabulary()) == 3 < terms
    assert shorter.split("train").words().together().shape == (
        len(shorter.split("train")),
        3,
    )


def test_small_corpora_have_a_vocabulary_and_texts_without_words_an_empty_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    settings = {"split": {"dev": 0, "test": 0}}
    corpus = corpus_of(tmp_path, [f"only{i}" for i in range(4)], **settings)
    assert len(corpus.vocabulary()) == 4
    assert "data.words.min_documents lowered from 2 to 1" in caplog.text
    bare = corpus_of(tmp_path, ["!", "?!", ". , ;"], **settings)
    assert bare.vocabulary().terms == []
    assert bare.split("train").words().together().shape == (3, 0)
    assert "the vocabulary is empty" in caplog.text
    bare.verify()


def test_a_damaged_vocabulary_says_so(tmp_path: Path) -> None:
    path = small_corpus(tmp_path).path
    words = path / "words.json"
    whole = words.read_bytes()
    words.write_bytes(b"[" + whole[1:])
    with pytest.raises(DataError, match=r"the vocabulary is damaged; delete"):
        Corpus.open(path).vocabulary()
    with pytest.raises(DataError, match=r"words\.json: changed"):
        Corpus.open(path).verify()
    words.unlink()
    with pytest.raises(DataError, match=r"words\.json: missing"):
        Corpus.open(path).vocabulary()


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(["İ", "Σ", "ß", "'", " ", "a", "ǅ", "\u0307"])).map(
        "".join
    )
)
@settings(max_examples=200, deadline=None)
def test_odd_letters_count_as_they_are_found(text: str) -> None:
    spans = list(TermRules(2).spans(text))
    assert sorted(term for term, _, _ in spans) == sorted(
        TermRules(2).of(words_of(text))
    )
    assert all(0 <= start < end <= len(text) for _, start, end in spans)
    assert sorted(count_words([text], TermRules(2)).terms) == sorted(
        {term for term, _, _ in spans}
    )


@given(
    st.lists(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=4), max_size=4),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_lists_of_shards_are_gathered_in_any_order(
    shards: list[list[list[int]]], data: st.DataObject
) -> None:
    batches = [
        pa.record_batch([pa.array(rows, pa.list_(pa.int32()))], names=["x"])
        for rows in shards
    ]
    column = ListColumn(batches, "x")
    every = [one for rows in shards for one in rows]
    assert column.values().tolist() == [value for one in every for value in one]
    assert [column.row(i).tolist() for i in range(len(column))] == every
    wanted = data.draw(
        st.lists(st.integers(0, len(every) - 1)) if every else st.just([])
    )
    assert column.values(np.array(wanted, np.int64)).tolist() == [
        value for i in wanted for value in every[i]
    ]
