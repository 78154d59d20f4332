"""What a cell says: labels, identifiers and texts are the same, whatever holds them."""

import datetime
import json
import unicodedata
import uuid
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xmtc.data.readers.base import Document, Rejected
from xmtc.data.readers.cells import (
    label_of,
    labels_of,
    mark_of,
    named,
    near_pairs,
    text_of,
    word_of,
)
from xmtc.data.readers.columns import ColumnsConfig

DAY = datetime.date(2020, 1, 2)
NOTHING = [
    None,
    float("nan"),
    "",
    " \t",
    "NaN",
    "nan",
    "<NA>",
    "\\N",
    b"",
    pd.NA,
    pd.NaT,
    np.nan,
    Decimal("NaN"),
    pa.scalar(None),
]
EQUAL: dict[str, list[Any]] = {
    "401": [
        401,
        401.0,
        "401",
        " 401\n",
        b"401",
        np.int16(401),
        np.float32(401),
        Decimal("401.00"),
        pa.scalar(401.0),
    ],
    "401.9": [
        401.9,
        "401.9",
        np.float32(401.9),
        Decimal("401.90"),
        pa.scalar(401.9, pa.float32()),
    ],
    "100000": [100000, 1e5, "100000", "1e+05", " 1e+05"],
    "123400000000000000": ["123400000000000000", "1.234e+17"],
    "1e5": ["1e5"],
    "1E+05": ["1E+05"],
    "True": [True, np.bool_(True), "True", pa.scalar(True)],
    "2020-01-02": [
        DAY,
        datetime.datetime(2020, 1, 2),
        pd.Timestamp(DAY),
        np.datetime64(DAY, "ns"),
        "2020-01-02",
    ],
    "caf\u00e9": [
        "cafe\u0301",
        "caf\u00e9",
        "cafe\u0301".encode(),
        np.str_("caf\u00e9"),
    ],
    "12345678-1234-5678-1234-567812345678": [
        uuid.UUID("12345678123456781234567812345678")
    ],
}


@pytest.mark.parametrize("label", EQUAL)
def test_equal_values_are_equal_labels(label: str) -> None:
    assert [label_of(value) for value in EQUAL[label]] == [label] * len(EQUAL[label])


@pytest.mark.parametrize("value", NOTHING, ids=repr)
def test_nothing_is_nothing_everywhere(value: Any) -> None:
    assert word_of(value) is None
    assert text_of(value) is None
    assert labels_of(value) == ((), 0)
    assert labels_of([value, "x"]) == (("x",), 1)


@pytest.mark.parametrize(
    "value",
    [
        {"a": 2, "b": 3},
        ["x", {"a": 1, "b": 2}],
        [["x", 1]],
        float("inf"),
        b"\xff",
        object(),
        ["x", 1j],
    ],
)
def test_what_is_no_label_is_refused_without_being_shown(value: Any) -> None:
    with pytest.raises(
        ValueError,
        match=r"not a list|which is not a label|not UTF-8|write a list of labels",
    ):
        labels_of(value)


SEQUENCES = [list, tuple, np.array, pd.Series, pa.array, pd.Categorical]


@given(
    st.lists(st.sampled_from([0, 1]), min_size=3),
    st.sampled_from(SEQUENCES),
    st.sampled_from([int, float, bool, str]),
)
def test_vectors_of_zeros_and_ones_are_refused_by_name(
    vector: list[int], hold: Any, kind: type
) -> None:
    if 0 not in vector:
        return
    with pytest.raises(
        ValueError,
        match=rf"vector of {len(vector)} zeros and ones, .*zip\(names, vector\)",
    ):
        labels_of(hold([kind(one) for one in vector]))


def test_lists_of_classes_are_no_vectors() -> None:
    assert labels_of([1, 0])[0] == ("1", "0")
    assert labels_of([1, 1, 1])[0] == ("1",)
    assert labels_of([3, 3, 10])[0] == ("3", "10")
    assert labels_of({"b", "a"})[0] == ("a", "b")
    assert labels_of("a; b;;a", ";") == (("a", "b"), 0)


def test_quotes_around_a_label_keep_the_separators_in_it() -> None:
    assert labels_of('"Trade, foreign", Law,"a ""b"", c"', ",")[0] == (
        "Trade, foreign",
        "Law",
        'a "b", c',
    )
    assert labels_of('"Trade | foreign" | Law', " | ")[0] == ("Trade | foreign", "Law")
    for kept in ('"Heroes"', '"Weird Al" Yankovic', '5" pipe', '"', '"open'):
        assert labels_of(f"Law,{kept}, Sea", ",")[0] == ("Law", kept, "Sea")


LISTS = [
    ["law"],
    ["law", "tax"],
    [],
    ["it's", 'a "b"', "c d"],
    ["naïve", "法律"],
    ["a, b", "c;d"],
    ["x", None],
]


@pytest.mark.parametrize("labels", LISTS, ids=str)
@pytest.mark.parametrize(
    "write",
    [
        json.dumps,
        partial(json.dumps, ensure_ascii=False),
        str,
        lambda one: f" {one}\n",
        lambda one: str((*one,)),
    ],
)
@pytest.mark.parametrize("separator", [None, ","])
def test_the_text_of_a_list_is_the_list(
    labels: list[str], write: Any, separator: str | None
) -> None:
    assert labels_of(write(labels), separator)[0] == labels_of(labels)[0]


@pytest.mark.parametrize(
    "labels",
    [["law", "tax"], ["law" * 9] * 9, [1, 2, 30], [1.0, 2.0], ["article 5", "x 2"]],
)
def test_the_text_that_numpy_writes_for_a_list_is_the_list(labels: list[Any]) -> None:
    assert labels_of(str(np.array(labels))) == labels_of(labels)
    assert labels_of("['law' 'tax']") == (("law", "tax"), 0)
    assert labels_of("['law', nan]") == labels_of("['law', <NA>]") == (("law",), 1)


@pytest.mark.parametrize(
    "labels", [["it's (new)", "tax"], [1, 20], [1.5, 2.0], ["2020-01-02"]]
)
def test_the_text_of_a_list_of_numpy_scalars_is_the_list(labels: list[Any]) -> None:
    assert labels_of(str([*np.array(labels)]), ",") == labels_of(labels)
    assert labels_of(str([*np.array(labels), np.float64("nan")])) == (
        labels_of(labels)[0],
        1,
    )
    with pytest.raises(ValueError, match="vector of 2 zeros and ones"):
        labels_of(str([*np.array([True, False])]))


@pytest.mark.parametrize("kind", [set, frozenset])
def test_the_text_of_a_set_is_the_set(kind: type) -> None:
    for labels in ({"tax (new)", "law"}, {"law"}, {1, 20}, set()):
        assert {*labels_of(str(kind(labels)), ",")[0]} == {*labels_of(kind(labels))[0]}


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("{law,tax}", ("law", "tax")),
        ('{"civil law, old",tax,NULL}', ("civil law, old", "tax")),
        ("{}", ()),
        ("[civil law, tax]", ("civil law", "tax")),
        ("[law]", ("law",)),
        ('c("law", "tax")', ("law", "tax")),
        ("array(['law', 'tax'], dtype=object)", ("law", "tax")),
        ("WrappedArray(civil law, tax)", ("civil law", "tax")),
        (
            "[{'id': 28, 'name': 'law'}, {'id': 2, 'name': 'tax, new'}]",
            ("law", "tax, new"),
        ),
        ("{250.00,401.9}", ("250.00", "401.9")),
        ("[007]", ("007",)),
    ],
)
def test_lists_as_java_databases_and_r_write_them(
    text: str, labels: tuple[str, ...]
) -> None:
    for separator in (None, ","):
        assert labels_of(text, separator)[0] == labels


def test_lists_of_calls_are_refused() -> None:
    with pytest.raises(ValueError, match="not a list of labels in a form that is read"):
        labels_of("[datetime.date(2020, 1, 1)]")


def test_paths_of_a_hierarchy_are_their_names() -> None:
    assert labels_of([["Books", "Law"], ["Books", "Art"]]) == (
        ("Books", "Law", "Art"),
        0,
    )


def test_tags_as_stack_exchange_writes_them_are_a_list() -> None:
    assert labels_of("<c#><.net><entity-framework-6>") == (
        ("c#", ".net", "entity-framework-6"),
        0,
    )
    assert labels_of(" <c#> ") == (("c#",), 0)
    assert labels_of("<http://e/1> <http://e/2>", " ") == (
        ("http://e/1", "http://e/2"),
        0,
    )
    assert labels_of("a <b> c") == (("a <b> c",), 0)


def test_numbers_in_the_text_of_a_list_are_labels() -> None:
    for text in ("[250.0, 401.9]", "{250,401.9}", "[250. 401.9]", '["250", "401.9"]'):
        assert labels_of(text)[0] == ("250", "401.9")


def test_other_texts_in_brackets_are_labels() -> None:
    for text in (
        "[1,1'-biphenyl]-4-ol",
        "[" * 9_000,
        "(a)",
        "(1)",
        "['a']; ['b']",
    ):
        assert labels_of(text) == ((text,), 0)
    with pytest.raises(ValueError, match="vector of 3 zeros and ones"):
        labels_of("[0, 1, 0]")
    for text in ("{'law': 0.5}",):
        with pytest.raises(
            ValueError, match=r"not a list of labels|which is not a label"
        ):
            labels_of(text)


@pytest.mark.parametrize(
    "unseen", ["\u200b", "\ufeff", "\u200f", "\u202b", "\u2069", "\u00ad", "\u00a0"]
)
def test_unseen_marks_around_a_label_are_no_part_of_it(unseen: str) -> None:
    assert label_of(f"{unseen} law{unseen}") == label_of(f"law{unseen}\n") == "law"
    assert label_of(unseen) is None
    assert labels_of([unseen, "law"]) == (("law",), 1)


def test_class_numbers_have_names() -> None:
    names = ["law", "fish", "tax"]
    cells = [
        1,
        1.0,
        np.int64(1),
        -1,
        None,
        float("nan"),
        7,
        "law",
        [0, -1],
        np.array([1, 0]),
    ]
    assert [named(cell, names) for cell in cells] == [
        *["fish"] * 3,
        *[None] * 4,
        "law",
        ["law", None],
        ["fish", "law"],
    ]
    with pytest.raises(ValueError, match="vector of 3 zeros and ones"):
        named([0, 1, 0], names)


@given(st.text(min_size=1))
def test_a_label_has_one_form(text: str) -> None:
    found = label_of(text)
    assert found == label_of(unicodedata.normalize("NFD", text)) or found is None
    assert found is None or label_of(found) == found


def test_near_labels_are_found_both_ways() -> None:
    pairs = near_pairs(
        [
            "Law",
            "law",
            "a b",
            "ab",
            "389",
            "0389",
            "401.9",
            "4019",
            "x.0",
            "7",
            "7.0",
            "38.91",
            "389.1",
        ]
    )
    assert pairs == [
        ("Law", "law"),
        ("a b", "ab"),
        ("389", "0389"),
        ("401.9", "4019"),
        ("7", "7.0"),
    ]
    assert near_pairs(["4019", "V30"], ["401.9", "V30"]) == [("401.9", "4019")]


@pytest.mark.parametrize(
    ("cell", "mark"),
    [
        (1, True),
        ("0", False),
        (True, True),
        ("false", False),
        (" TRUE ", True),
        (0.0, False),
        ("", None),
        (None, None),
    ],
)
def test_a_cell_of_a_column_for_one_label_marks_it(cell, mark):
    assert mark_of(cell) is mark


@pytest.mark.parametrize("cell", ["toxic", 2, -2, 0.5, [1]])
def test_a_cell_that_is_neither_zero_nor_one_is_refused_without_quoting_it(cell):
    with pytest.raises(ValueError, match=r"^is neither 0 nor 1, .*columns of 0 and 1"):
        mark_of(cell)


def test_columns_of_zeros_and_ones_name_the_labels():
    columns = ColumnsConfig(labels=("toxic", " insult "))
    read = columns.document(
        {"text": "a", "toxic": "1", " insult ": "1"}, "row 1", "1", None
    )
    assert isinstance(read, Document)
    assert read.labels == ("toxic", "insult")
    none = columns.document(
        {"text": "a", "toxic": 0, " insult ": None}, "row 2", "2", None
    )
    assert isinstance(none, Document)
    assert (none.labels, none.rejected_labels) == (
        (),
        ("toxic",),
    )  # nobody has judged the other
    bad = columns.document(
        {"text": "a", "toxic": "perhaps", " insult ": 0}, "row 3", "3", None
    )
    assert isinstance(bad, Rejected)
    assert bad.reason.startswith("'toxic' is neither 0 nor 1")
    with pytest.raises(ValueError, match="label_separator: several columns"):
        ColumnsConfig(labels=("a", "b"), label_separator=";")


@pytest.mark.parametrize(
    ("cell", "labels"),
    [
        ("&lt;java&gt;&lt;c#&gt;", ("java", "c#")),
        ('="001"', ("001",)),
        ('{"choices": ["a", "b"]}', ("a", "b")),
        ({"list": [{"element": "a"}, {"element": "b"}]}, ("a", "b")),
        ({"labels": [{"name": "a"}]}, ("a",)),
        ('[{"id": 3, "name": "a"}]', ("a",)),
        ({"sport": 1.0, "art": 0.0, "law": True}, ("sport", "law")),
        ([{"label": "x", "score": 0.7}], ("x",)),
    ],
)
def test_wrappings_are_undone(cell: Any, labels: tuple[str, ...]) -> None:
    assert labels_of(cell)[0] == labels


@pytest.mark.parametrize(
    "cell", [[[0, 5, "PERSON"]], [{"start": 0, "end": 5, "label": "X"}]]
)
def test_places_in_the_text_are_no_labels_of_documents(cell: Any) -> None:
    with pytest.raises(ValueError, match="marks places of the text"):
        labels_of(cell)


def test_paragraphs_are_a_text() -> None:
    assert text_of(["one", "two"]) == "one\ntwo"
