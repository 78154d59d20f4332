"""Tables and columns in memory mean the same in training and in prediction, and what is none is refused."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from xmtc.data.fields import categories_of
from xmtc.data.readers.base import LONGEST_DOCUMENT
from xmtc.errors import DataError
from xmtc.own_data import documents_table
from xmtc.predict.arguments import as_text, as_texts


class Series:
    """A column of polars: iterated, its lists are columns, too, and it is neither true nor false."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def to_list(self) -> list[Any]:
        return self._values

    def __iter__(self) -> Iterator[Any]:
        return iter(
            Series(one) if isinstance(one, list) else one for one in self._values
        )

    def __ne__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("the truth value of a Series is ambiguous")


class Frame:
    """A data frame of polars."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns, self.columns = columns, [*columns]

    def __getitem__(self, name: str) -> Series:
        return Series(self._columns[name])


def test_lists_of_polars_are_labels_and_its_frames_are_predicted() -> None:
    frame = Frame(
        text=["a", "b"], labels=[["x", "y"], []], title=["c", None], kind=["k", "l"]
    )
    expected = [["x", "y"], []]
    assert (
        documents_table(frame, None, ["text"], "labels")["labels"].to_pylist()
        == expected
    )
    assert (
        documents_table(["a", "b"], [*frame["labels"]], ["text"], "labels")[
            "labels"
        ].to_pylist()
        == expected
    )
    texts = as_texts(frame, ("title", "text"), ("kind",))
    assert [(text, categories_of(text)) for text in texts] == [
        ("c\na", ("kind=k",)),
        ("b", ("kind=l",)),
    ]


def test_a_query_of_polars_is_no_table_yet() -> None:
    class LazyFrame:
        columns = ("text", "labels")

        def __getitem__(self, name: str) -> None:
            raise TypeError(
                "'LazyFrame' object is not subscriptable (aside from slicing)"
            )

    with pytest.raises(DataError, match=r"LazyFrame: .*collect"):
        documents_table(LazyFrame(), None, ["text"], "labels")


TABLES = [
    {"a": 1, "b": 0},
    pd.DataFrame({"a": [1, 0], "b": [0, 1]}),
    pa.table({"a": [1], "b": [0]}),
]


@pytest.mark.parametrize(
    "wrong",
    [{"b", "a"}, *TABLES, "ab", np.array("ab"), np.array(1)],
    ids=lambda wrong: type(wrong).__name__,
)
def test_what_is_no_column_is_refused(wrong: Any) -> None:
    message = "a {} is not an ordered list of texts or labels"
    kind = type(wrong).__name__
    with pytest.raises(DataError, match="labels: " + message.format(kind)):
        documents_table(["a", "b"], wrong, ["text"], "labels")
    if any(wrong is table for table in TABLES):
        return
    with pytest.raises(DataError, match="texts: " + message.format(kind)):
        documents_table(wrong, ["a", "b"], ["text"], "labels")


@pytest.mark.parametrize("table", TABLES, ids=lambda table: type(table).__name__)
def test_a_table_without_the_text_column_says_which_it_has(table: Any) -> None:
    with pytest.raises(DataError, match="no column 'text'; there are: a, b"):
        documents_table(table, ["a", "b"], ["text"], "labels")


def test_a_document_that_is_too_long_is_refused() -> None:
    half = "x" * (LONGEST_DOCUMENT // 2)
    table = {"title": ["a", half], "text": ["b", half], "labels": ["c", "d"]}
    with pytest.raises(DataError) as refusal:
        documents_table(table, None, ["title", "text"], "labels")
    assert str(refusal.value).startswith(
        "title + text: item 1 the text has 10,000,001 characters; a document may have 10,000,000"
    )
    assert documents_table(table, None, ["text"], "labels").num_rows == 2


def test_tables_that_cannot_be_written_are_refused_in_one_line() -> None:
    for texts, labels in ((["a\ud83d"], ["x"]), (["a"], ["x\ud83d"])):
        with pytest.raises(
            DataError, match=r"(text|labels): item 0 .*half of a character"
        ):
            documents_table(texts, labels, ["text"], "labels")
    twice = pd.DataFrame([["a", "b", "x"]], columns=["text", "text", "labels"])
    with pytest.raises(DataError, match="2 columns are called 'text'"):
        documents_table(twice, None, ["text"], "labels")
    with pytest.raises(DataError, match=r"labels: a csr_.*give a list"):
        documents_table(["a", "b"], sparse.csr_array(np.eye(2)), ["text"], "labels")
    numbered = pd.DataFrame({0: ["a"], 1: ["x"]})
    assert documents_table(numbered, None, ["0"], "1").to_pydict() == {
        "0": ["a"],
        "1": [["x"]],
    }


def test_a_field_without_a_text_is_empty_whatever_says_so() -> None:
    for nothing in (None, float("nan"), pd.NA, "nan", " "):
        assert as_text({"title": nothing, "text": "a"}, ("title", "text")) == "a"


def test_a_column_of_a_dataset_has_the_names_of_its_classes() -> None:
    features = {"label": {"names": ["bad", "good"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    dataset = SimpleNamespace(
        features=SimpleNamespace(arrow_schema=pa.schema([], metadata))
    )

    class Column(list[Any]):
        """A column of `datasets`."""

        source, column_name = dataset, "label"

    assert documents_table(["a", "b", "c"], Column([1, 0, -1]), ["text"], "labels")[
        "labels"
    ].to_pylist() == [
        ["good"],
        ["bad"],
        [],
    ]


def test_a_slice_of_a_dataset_is_a_table() -> None:
    slice_of = {
        "title": ["a", None],
        "text": ["b", "c"],
        "kind": ["k", None],
        "other": [1, 2],
    }
    texts = as_texts(slice_of, ("title", "text"), ("kind",))
    assert [(text, categories_of(text)) for text in texts] == [
        ("a\nb", ("kind=k",)),
        ("c", ()),
    ]
    with pytest.raises(
        DataError,
        match="columns must be of one length; there are 1 in title, 2 in text",
    ):
        as_texts({"title": ["a"], "text": ["b", "c"]}, ("title", "text"))
    with pytest.raises(DataError, match="put it in brackets"):
        as_texts({"title": None, "text": "b"}, ("title", "text"))
