"""Label tables: what is written is read back, without a Python object per label."""

import numpy as np
import pyarrow as pa
import pytest

from xmtc.data.labels import LabelTable, Strings
from xmtc.errors import DataError

COUNT = 70_000  # more than one block
LABELS = [f"label {i}" for i in range(COUNT)]


def saved(path, names=LABELS, parents=None) -> LabelTable:
    LabelTable(LABELS, names, np.arange(COUNT), parents).save(path)
    return LabelTable.load(path)


def test_a_table_of_several_blocks_comes_back(tmp_path):
    parents = [("top",) if i % 2 else () for i in range(COUNT)]
    table = saved(
        tmp_path / "labels.arrow", [f"name {i}" for i in range(COUNT)], parents
    )
    assert table.labels == LABELS
    assert (table.names[-1], table.names[np.int64(3)]) == ("name 69999", "name 3")
    assert table.labels[65_535:65_537] == ["label 65535", "label 65536"]
    assert (table.index("label 69999"), table.parents) == (69_999, parents)
    assert np.array_equal(table.train_counts, np.arange(COUNT))
    again = LabelTable(table.labels, table.names, table.train_counts, table.parents)
    again.save(tmp_path / "again.arrow")
    assert (tmp_path / "again.arrow").read_bytes() == (
        tmp_path / "labels.arrow"
    ).read_bytes()


def test_names_that_are_the_labels_are_kept_once(tmp_path):
    table = saved(tmp_path / "labels.arrow")
    assert table.names is table.labels


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("journal", "among the model's 3 labels; it is the name of 'gnd:1'$"),
        ("Cod", "; 2 labels have this name, such as 'gnd:2' and 'gnd:3'$"),
        ("GND:3", "; did you mean 'gnd:3'\\?$"),
    ],
)
def test_a_name_in_the_place_of_a_label_is_told_whose_it_is(wanted, words):
    table = LabelTable(
        ["gnd:1", "gnd:2", "gnd:3"], ["Journal", "Cod", "Cod"], np.arange(3)
    )
    with pytest.raises(DataError, match=words):
        table.index(wanted)
    plain = LabelTable(["law"], ["law"], np.arange(1))
    with pytest.raises(DataError, match="; did you mean 'law'"):
        plain.index("LAW")


def test_strings_outlive_their_file_and_become_arrow_arrays(tmp_path):
    table = saved(tmp_path / "labels.arrow")
    (tmp_path / "labels.arrow").unlink()
    assert list(table.labels) == LABELS
    assert pa.array(table.labels, pa.string()).take(
        pa.array([COUNT - 1])
    ).to_pylist() == ["label 69999"]
    with pytest.raises(IndexError):
        table.labels[COUNT]


def test_an_empty_table_comes_back(tmp_path):
    LabelTable([], [], np.empty(0, np.int64)).save(tmp_path / "labels.arrow")
    table = LabelTable.load(tmp_path / "labels.arrow")
    assert (len(table), list(table.labels)) == (0, [])
    assert isinstance(table.labels, Strings)


def test_other_names_and_languages_stay_with_their_labels(tmp_path):
    counts, parents, others = np.arange(3), [("p",), (), ()], [("x",), (), ("y", "z")]
    table = LabelTable(
        ["a", "b", "c"],
        ["A", "B", "C"],
        counts,
        parents,
        others,
        {"de": ["Ä", "", "Z"]},
    )
    table.save(tmp_path / "labels.arrow")
    loaded = LabelTable.load(tmp_path / "labels.arrow")
    assert (loaded.alternatives, loaded.names_in("de"), loaded.names_in(None)) == (
        others,
        ["Ä", "", "Z"],
        table.names,
    )
    for wrong in ("fr", 3, ["de"]):  # Python callers may give anything
        with pytest.raises(
            DataError, match=r"no label has a name in the language .*; there are: de"
        ):
            loaded.names_in(wrong)
    some = loaded.take([0, 2], counts[[0, 2]])
    assert (some.labels, some.parents, some.alternatives) == (
        ["a", "c"],
        [("p",), ()],
        [("x",), ("y", "z")],
    )
    assert some.names_in("de") == ["Ä", "Z"]
    with pytest.raises(DataError, match=r"'fr'.*there are: de"):
        loaded.names_in("fr")
