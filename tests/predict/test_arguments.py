"""The front door for texts: every ordered collection of strings is read alike, and all else is refused in words."""

import math
from collections import OrderedDict, deque

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmtc.data.readers.base import LONGEST_DOCUMENT
from xmtc.errors import ConfigError, DataError
from xmtc.predict.arguments import as_count, as_labels, as_text, as_texts, as_threshold

CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "deque": deque,
    "iterator": iter,
    "generator": lambda texts: (text for text in texts),
    "keys": lambda texts: (
        [*dict.fromkeys(texts)] if len(set(texts)) == len(texts) else texts
    ),
    "Series": lambda texts: pd.Series(
        texts, dtype=object, index=range(7, 7 + len(texts))
    ),
    "string Series": lambda texts: pd.Series(texts, dtype="string"),
    "Index": lambda texts: pd.Index(texts, dtype=object),
    "object array": lambda texts: np.array(texts, dtype=object),
    "Arrow": lambda texts: pa.array(texts, pa.string()),
    "chunked Arrow": lambda texts: pa.chunked_array(
        [texts[:1], texts[1:]], pa.large_string()
    ),
    "dictionary Arrow": lambda texts: pa.array(texts, pa.string()).dictionary_encode(),
}
valid_texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=5)


@given(valid_texts, st.sampled_from(sorted(CONTAINERS)))
def test_every_ordered_collection_reads_alike(texts, kind):
    assert as_texts(CONTAINERS[kind](texts)) == texts
    assert as_labels(CONTAINERS[kind](texts)) == texts


def test_a_numpy_array_of_strings_reads_as_a_list():
    assert as_texts(np.array(["a", "bcd"])) == ["a", "bcd"]


no_string = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.binary(),
    st.lists(st.text()),
    st.just(math.nan),
)


@given(
    valid_texts,
    no_string,
    st.sampled_from(["list", "tuple", "generator", "object array"]),
)
def test_an_item_that_is_no_string_is_named_by_its_place(texts, wrong, kind):
    items = [*texts, wrong]
    container = CONTAINERS[kind](items)
    if kind == "object array":
        container = np.empty(len(items), object)
        container[:] = items
    with pytest.raises(DataError, match=rf"^text {len(texts)} "):
        as_texts(container)


SECRET = "Mrs Smith"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (SECRET, "brackets"),
        (SECRET.encode(), "bytes is not an ordered list"),
        (bytearray(b"x"), "text 0 is of type int"),
        ({"text": SECRET}, "brackets"),
        (OrderedDict(text=SECRET), "brackets"),
        (pd.DataFrame({"name": [SECRET]}), "no column 'text'"),
        (pa.table({"name": [SECRET]}), "no column 'text'"),
        (pa.record_batch({"name": [SECRET]}), "no column 'text'"),
        ([{"text": 3}], "text of text 0 is of type int"),
        ({SECRET}, "not an ordered list"),
        (frozenset([SECRET]), "not an ordered list"),
        (np.array([[SECRET]]), "2 dimensions"),
        (np.array(SECRET), "0 dimensions"),
        (pd.Series([SECRET, None]), "text 1 is of type"),
        (pa.array([SECRET, None]), "text 1 is of type NoneType"),
        ([SECRET, [SECRET]], "text 1 is of type list"),
        ([SECRET, b"x"], "decode it"),
        ([SECRET + "\ud83d"], "text 0 holds half of a character"),
        (None, "NoneType is not an ordered list"),
        (7, "int is not an ordered list"),
        (open, "not an ordered list"),
    ],
)
def test_anything_else_is_refused_without_its_text(wrong, words):
    with pytest.raises(DataError, match=words) as refusal:
        as_texts(wrong)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("wrong", [None, 3, b"text", ["text"], "\ud83d", math.nan])
def test_one_text_is_a_string(wrong):
    with pytest.raises(DataError, match="the text "):
        as_text(wrong)


def test_one_label_may_stand_alone():
    assert as_labels("law") == ["law"]
    assert (
        as_labels({"law", "fish"})
        == as_labels(frozenset(["fish", "law"]))
        == ["fish", "law"]
    )
    with pytest.raises(DataError, match="label 1 is of type int"):
        as_labels(["law", 3])


@given(st.one_of(no_string, st.text(), st.floats(), st.integers()))
def test_limits_are_in_range_or_refused(value):
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and value >= 1:
        assert as_count(value, "top_k") == value
    else:
        with pytest.raises(ConfigError, match=r"^top_k="):
            as_count(value, "top_k")
    if value in ("tuned", None):
        assert as_threshold(value) == (value or 0.0)
    elif (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= 1
    ):
        assert as_threshold(value) == value
    else:
        with pytest.raises(ConfigError, match=r"^threshold="):
            as_threshold(value)
    assert as_count(np.int64(3), "top_k") == 3
    assert as_threshold(np.float32(0.5)) == 0.5


def test_a_rule_ends_where_its_text_ends():
    assert as_threshold("precision=0.9") == "precision=0.9"
    with pytest.raises(ConfigError, match="threshold="):
        as_threshold("micro\n")


def test_a_text_that_no_document_is_as_long_as_is_refused():
    long = "a" * (LONGEST_DOCUMENT + 1)
    with pytest.raises(
        DataError,
        match=r"text 1 has 10,000,001 characters, more than 10,000,000: divide it, or raise",
    ):
        as_texts(["short", long])
    assert as_texts([long], longest=len(long)) == [long]
    assert as_texts([long[:-1]]) == [long[:-1]]
