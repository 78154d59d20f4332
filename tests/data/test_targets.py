"""Labels in memory are read in every form of scikit-learn, and other labels are written in the same form."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from xmtc.data.targets import Targets
from xmtc.errors import DataError

LISTS = [["b", "a"], [], ["b"]]
INDICATOR = np.array([[1, 1], [0, 1], [0, 0]])


@pytest.mark.parametrize(
    "given",
    [
        LISTS,
        [("b", "a"), (), ("b",)],
        [{"b", "a"}, set(), {"b"}],
        pd.Series(LISTS),
        np.array([*LISTS, None], object)[:3],
        pa.chunked_array([LISTS]),
        ["['b', 'a']", "[]", "['b']"],
        [["b ", "a", "b"], None, ["b"]],
    ],
    ids=["lists", "tuples", "sets", "Series", "array", "Arrow", "written", "untidy"],
)
def test_lists_of_labels(given: Any) -> None:
    targets = Targets.of(given)
    assert [set(labels) for labels in targets.lists] == [{"a", "b"}, set(), {"b"}]
    assert list(targets.classes.values()) == ["a", "b"]
    assert (targets.form, targets.task) == ("lists", "multi_label")
    assert targets.given([["a"], ["b", "a"], []]) == [["a"], ["b", "a"], []]


@pytest.mark.parametrize("kind", [np.int64, np.float32, bool])
def test_an_indicator_matrix(kind: type) -> None:
    for given in (
        INDICATOR.astype(kind),
        sparse.csr_matrix(INDICATOR.astype(kind)),
        sparse.coo_array(INDICATOR.astype(kind)),
        pd.DataFrame(INDICATOR.astype(kind), columns=["law", "fish"]),
    ):
        targets = Targets.of(given)
        first, second = targets.classes
        assert targets.lists == [[first, second], [second], []]
        written = targets.given(targets.lists)
        assert sparse.issparse(written) == sparse.issparse(given)
        dense = written.toarray() if sparse.issparse(written) else written
        assert dense.dtype == np.int64
        assert (dense == INDICATOR).all()
        assert len(targets) == 3
    assert list(targets.classes) == ["law", "fish"]
    assert list(Targets.of(INDICATOR).classes.values()) == [0, 1]


@pytest.mark.parametrize(
    ("given", "classes"),
    [
        (["b", "a", "b"], ["a", "b"]),
        (np.array([10, 9, 10]), [9, 10]),
        (pd.Series([2.0, 1.0, 2.0]), [1.0, 2.0]),
        (pd.Series(["b", "a", "b"], dtype="category"), ["a", "b"]),
        ([True, False, True], [False, True]),
    ],
)
def test_one_label_each(given: Any, classes: list[Any]) -> None:
    targets = Targets.of(given)
    assert targets.task == "single_label"
    assert list(targets.classes.values()) == classes
    written = targets.given(targets.lists)
    assert isinstance(written, np.ndarray)
    assert written.tolist() == [classes[1], classes[0], classes[1]]


def test_no_documents() -> None:
    for given in ([], np.zeros((0, 2)), sparse.csr_array((0, 2))):
        assert len(Targets.of(given)) == 0


def test_numbers_among_lists_stay_numbers() -> None:
    targets = Targets.of([[10, 9], [9]])
    assert targets.given([["10"], []]) == [[10], []]
    assert list(targets.classes.values()) == [9, 10]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["a", None, "b"], "item 1 has no label; .*give lists"),
        (np.array([[1, 2], [0, 1]]), "other values than zeros and ones; give 1"),
        (np.array([["a"], ["b"]]), "a table of other values than zeros and ones"),
        (np.zeros((2, 2, 2)), "an array of 3 dimensions"),
        (pd.DataFrame(INDICATOR, columns=["a", " a"]), "' a' names .*rename it"),
        ([[0, 1, 0], [1, 0, 0]], "item 0 is a vector of 3 zeros and ones"),
        ([["a"], [b"\xff"]], "item 1 bytes that are not UTF-8"),
        ("a text", "give a list"),
        ({"a", "b"}, "give a list"),
    ],
)
def test_what_is_no_label_is_refused(given: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        Targets.of(given)
