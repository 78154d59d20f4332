"""Words of texts in every script: nothing is lost, equal texts are equal, and spans give back the text."""

import random
import re
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import RidgeClassifier

from readers import SCRIPTS
from xmtc.data.analyzer import word_spans, words_of
from xmtc.data.config import WordsConfig
from xmtc.data.words import choose_words, document_frequencies, term_spans

LETTERS = sorted({letter for words in SCRIPTS.values() for letter in words} | set("aZ9_ -.½²ﬁ\u200d\u00adİß々ーｶﾞ฿"))
TEXTS = st.one_of(st.text(st.sampled_from(LETTERS)), st.text(), st.sampled_from(list(SCRIPTS.values())))


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
        assert word in "".join(words_of(text[start:end])) or word in words_of(text[start:end])
    assert all(first[1] <= second[1] for first, second in pairwise(spans))


def _is_letter(letter: str) -> bool:
    """Whether something of it is a letter or digit; a lone mark of halfwidth kana, for example, is none."""
    return any(unicodedata.category(part)[0] in "LN" for part in unicodedata.normalize("NFKC", letter))


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
        ("שָׁלוֹם قَانُون", ["שָׁלוֹם", "قَانُون"]),
        ("می\u200cخواهم Ge\u00adsetz", ["میخواهم", "gesetz"]),
        ("👩‍🔬 ❤️ [?]", []),
    ],
)
def test_words_of_scripts(text: str, words: list[str]) -> None:
    assert words_of(text) == [unicodedata.normalize("NFKC", word) for word in words]


def test_terms_of_several_words_have_spans() -> None:
    assert list(term_spans("日本語", 2)) == [("日本", 0, 2), ("本語", 1, 3), ("日本 本語", 0, 3)]


ALPHABETS = {
    "Chinese": "法律经济图书馆医生学校河流山水火车电脑",
    "Hindi": "कखगघचछजझटठडढतथदधनपफबभमयरलव",
    "Thai": "กขคงจชซดตถทนบปผพมยรลวสหอ",
}


@pytest.mark.parametrize("language", ALPHABETS)
def test_without_spaces_as_much_is_learnt_as_with(language: str) -> None:
    """Four topics with six words each, among words of no topic; Hindi keeps its spaces, which it always has."""
    draw = random.Random(7)
    word = lambda: "".join(draw.choices(ALPHABETS[language], k=draw.randint(2, 3)))  # noqa: E731
    topics, common = [[word() for _ in range(6)] for _ in range(4)], [word() for _ in range(40)]
    labels = [row % 4 for row in range(400)]
    documents = [draw.sample(topics[label], 2) + draw.sample(common, 8) for label in labels]
    for words in documents:
        draw.shuffle(words)

    def hits(separator: str) -> float:
        texts = [separator.join(words) for words in documents]
        vocabulary = choose_words(document_frequencies(texts[:300]), 300, WordsConfig())
        rows = vocabulary.words(texts).together()
        model = RidgeClassifier().fit(rows[:300], labels[:300])
        return float(np.mean(model.predict(rows[300:]) == labels[300:]))

    spaced = hits(" ")
    assert spaced > 0.9
    assert hits("" if language != "Hindi" else " ") >= 0.95 * spaced
