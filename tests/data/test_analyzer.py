"""Words of texts in every script: nothing is lost, equal texts are equal, and spans give back the text."""

import random
import re
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from readers import SCRIPTS
from xmtc.data.analyzer import word_spans, words_of
from xmtc.data.config import WordsConfig
from xmtc.data.words import TermRules, choose_words, document_frequencies
from xmtc.scorers.base import Features, Training
from xmtc.scorers.config import LinearConfig, ScorerSettings, WordNeighboursConfig

LETTERS = sorted(
    {letter for words in SCRIPTS.values() for letter in words}
    | set("aZ9_ -.½²ﬁ\u200d\u00adİß々ーｶﾞ฿")
)
TEXTS = st.one_of(
    st.text(st.sampled_from(LETTERS)),
    st.text(),
    st.sampled_from(list(SCRIPTS.values())),
)


@given(TEXTS)
def test_equal_texts_have_equal_words(text: str) -> None:
    words = words_of(text)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert words_of(unicodedata.normalize(form, text)) == words


@given(TEXTS)
def test_words_cover_every_letter_and_spans_give_back_the_text(text: str) -> None:
    spans = list(word_spans(text))
    assert [word for word, _, _ in spans] == words_of(text)
    covered = {place for _, start, end in spans for place in range(start, end)}
    assert {place for place, letter in enumerate(text) if _is_letter(letter)} <= covered
    for word, start, end in spans:
        assert word in "".join(words_of(text[start:end])) or word in words_of(
            text[start:end]
        )
    assert all(first[1] <= second[1] for first, second in pairwise(spans))


def _is_letter(letter: str) -> bool:
    """Whether something of it is a letter or digit; a lone mark of halfwidth kana, for example, is none."""
    return any(
        unicodedata.category(part)[0] in "LN"
        for part in unicodedata.normalize("NFKC", letter)
    )


@given(st.text(st.sampled_from(" abcXYZ019_-.,;'")))
def test_plain_english_is_split_as_before(text: str) -> None:
    assert words_of(text) == re.findall(r"\w+", text.lower())
    assert words_of(f"{text} é") == [*re.findall(r"\w+", text.lower()), "é"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("आधुनिक हिन्दी", ["आधुनिक", "हिन्दी"]),
        ("cafe\u0301 Straße ﬁne", ["café", "strasse", "fine"]),
        ("AI法律 covid-19疫情", ["ai", "法律", "covid", "19", "疫情"]),
        ("カメラ", ["カメ", "メラ"]),
        ("水", ["水"]),
        ("กฎหมาย2020", ["กฎ", "ฎห", "หม", "มา", "าย", "2020"]),
        ("한국어 법률", ["한국어", "법률"]),
        ("आधुनिक" * 6, [*["आधु", "धुनि", "निक", "कआ"] * 5, "आधु", "धुनि", "निक"]),
        ("हिन्दी" * 5, ["हिन्दी" * 5]),
        ("שָׁלוֹם قَانُون", ["שָׁלוֹם", "قَانُون"]),
        ("می\u200cخواهم Ge\u00adsetz", ["میخواهم", "gesetz"]),
        ("👩‍🔬 ❤️ [?]", []),
    ],
)
def test_words_of_scripts(text: str, words: list[str]) -> None:
    assert words_of(text) == [unicodedata.normalize("NFKC", word) for word in words]


def test_terms_of_several_words_have_spans() -> None:
    assert list(TermRules(2).spans("日本語")) == [
        ("日本", 0, 2),
        ("本語", 1, 3),
        ("日本 本語", 0, 3),
    ]


ALPHABETS = {
    "Chinese": "法律经济图书馆医生学校河流山水火车电脑",
    "Hindi": [
        a + b
        for a in "कखगघचजटडतदनपबमयरलवशसह"
        for b in ("", "ा", "ि", "ी", "ु", "े", "ो", "ं")
    ],
    "Thai": "กขคงจชซดตถทนบปผพมยรลวสหอ",
    "Korean": "가나다라마바사아자차카타파하고노도로모보소오조",
}


@pytest.mark.parametrize("language", ALPHABETS)
@pytest.mark.parametrize(
    "scorer",
    [LinearConfig(), WordNeighboursConfig(neighbours=10)],
    ids=lambda one: one.kind,
)
def test_without_spaces_as_much_is_learnt_as_with(
    language: str, scorer: ScorerSettings
) -> None:
    """Ten topics with six words each, among words of no topic."""
    draw = random.Random(7)
    word = lambda: "".join(draw.choices(ALPHABETS[language], k=draw.randint(2, 3)))  # noqa: E731
    topics, common = (
        [[word() for _ in range(6)] for _ in range(10)],
        [word() for _ in range(40)],
    )
    labels = np.arange(500) % 10
    documents = [
        draw.sample(topics[label], 3) + draw.sample(common, 12) for label in labels
    ]
    for words in documents:
        draw.shuffle(words)

    def hits(separator: str) -> float:
        texts = [separator.join(words) for words in documents]
        vocabulary = choose_words(document_frequencies(texts[:400]), 400, WordsConfig())
        learnt = sparse.csr_array(np.eye(10, dtype=bool)[labels[:400]])
        training = Training(Features(vocabulary.words(texts[:400])), learnt)
        best = (
            scorer.fit(training).score(Features(vocabulary.words(texts[400:]))).top(1)
        )
        return float(np.mean(best.label_ids_NK[:, 0] == labels[400:]))

    spaced = hits(" ")
    assert spaced > 0.9
    assert hits("") >= 0.95 * spaced
