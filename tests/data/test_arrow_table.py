"""Arrow files as Hugging Face `datasets` saves them: streams, files, names of classes, and folders in `init`."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xmtc.data.fields import categories_of
from xmtc.data.readers.arrow_table import ArrowTable, ParquetTable
from xmtc.data.readers.base import Rejected
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.formats import FORMATS
from xmtc.data.readers.table import Row
from xmtc.data.readers.table_config import ArrowConfig
from xmtc.errors import DataError
from xmtc.init.data_files import find_files
from xmtc.own_data import documents_table
from xmtc.predict.arguments import as_texts

NAMES = {"_type": "ClassLabel", "names": ["law", "fish"]}
FEATURES = {
    "text": {"_type": "Value"},
    "one": NAMES,
    "many": {"_type": "List", "feature": NAMES},
}
TABLE = pa.table(
    {"text": ["a", "b", "c"], "one": [1, 0, -1], "many": [[0, 1], [], None]}
)
READ = [
    {"text": "a", "one": "fish", "many": ["law", "fish"]},
    {"text": "b", "one": "law", "many": []},
    {"text": "c", "one": None, "many": None},
]


def _save(path: Path, *, stream: bool = True) -> Path:
    """As `datasets` 5 writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = TABLE.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    )
    writer = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, writer(sink, table.schema) as out:
        out.write_table(table, max_chunksize=2)
    return path


def _rows(path: Path) -> list[Any]:
    return [row.cells for row in _sound(ArrowTable().rows(path, None))]


@pytest.mark.parametrize("stream", [True, False])
def test_numbers_of_classes_are_read_as_their_names(
    tmp_path: Path, stream: bool
) -> None:
    path = _save(tmp_path / "data.arrow", stream=stream)
    assert _rows(path) == READ
    assert ArrowTable().count(path) == 3


def test_what_is_no_arrow_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.arrow"
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(DataError, match="cannot be read as Arrow"):
        _rows(path)


def test_init_finds_the_splits_of_a_saved_data_set(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    for split in ("train", "validation", "test"):
        _save(saved / split / "data-00000-of-00001.arrow")
    (saved / "dataset_dict.json").write_text(
        '{"splits": ["train", "validation", "test"]}'
    )
    found = find_files(str(saved))
    assert found.settings is ArrowConfig
    assert found.by_split["dev"] == (f"{saved}/validation/data-00000-of-00001.arrow",)
    one = tmp_path / "one"
    _save(one / "data-00000-of-00001.arrow")
    (one / "state.json").write_text("{}")
    assert list(find_files(str(one)).by_split) == ["train"]
    (saved / "train").rename(saved / "all")
    with pytest.raises(DataError, match=r"train; .*all, test, validation"):
        find_files(str(saved))


def test_init_reads_what_a_saved_data_set_lists_and_all_parts_of_a_split(
    tmp_path: Path,
) -> None:
    saved = tmp_path / "saved"
    names = ["train", "train_extra", "validation_matched", "validation_mismatched"]
    for split in (*names, "test"):  # the last is of an earlier save
        for number in (1, 2):
            _save(saved / split / f"data-00000-of-0000{number}.arrow")
        listed = [{"filename": "data-00000-of-00001.arrow"}]
        (saved / split / "state.json").write_text(json.dumps({"_data_files": listed}))
    (saved / "dataset_dict.json").write_text(
        json.dumps({"splits": [*names, "unsupervised"]})
    )
    assert find_files(str(saved)).left_out == ["unsupervised"]
    parts = [f"{saved}/{split}/data-00000-of-00001.arrow" for split in names]
    assert find_files(str(saved)).by_split == {
        "train": (*parts[:2],),
        "dev": (*parts[2:],),
    }
    (saved / "train" / "state.json").write_text("[")
    with pytest.raises(DataError, match=r"train.state\.json"):
        find_files(str(saved))


class Dataset(SimpleNamespace):
    """Columns, names of columns and features, as a `datasets.Dataset` has them."""

    def __getitem__(self, name: str) -> list[Any]:
        return TABLE[name].to_pylist()


def test_class_labels_of_a_dataset_in_memory_are_named() -> None:
    table = TABLE.replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    )
    data = Dataset(
        column_names=TABLE.column_names,
        features=SimpleNamespace(arrow_schema=table.schema),
    )
    assert documents_table(data, None, ["text"], "one")["one"].to_pylist() == [
        ["fish"],
        ["law"],
        [],
    ]
    assert documents_table(data, None, ["text"], "many")["many"].to_pylist() == [
        ["law", "fish"],
        [],
        [],
    ]
    for given in (data, table):
        texts = as_texts(given, ("text",), ("one", "many"))
        assert [categories_of(text) for text in texts] == [
            ("one=fish", "many=law", "many=fish"),
            ("one=law",),
            (),
        ]


_FAR = {
    "seconds": pa.array([253402300800, None], pa.timestamp("s")),
    "microseconds": pa.array([10**18, None], pa.timestamp("us")),
    "days": pa.array([2932897, None], pa.int32()).view(pa.date32()),
    "before Christ": pa.array([-(10**12), None], pa.timestamp("s", tz="UTC")),
    "durations": pa.array([2**62, None], pa.duration("s")),
}


@pytest.mark.parametrize("name", _FAR)
def test_dates_that_python_lacks_are_read_as_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"until": _FAR[name], "text": ["a", "b"]}), path)
    first, second = ParquetTable().rows(path, None)
    assert isinstance(first, Row)
    assert isinstance(second, Row)
    assert isinstance(first.cells["until"], str)
    assert (first.cells["text"], second.cells["until"]) == ("a", None)


def _nested_dates() -> pa.Array:
    return pa.StructArray.from_arrays([_FAR["days"]], ["until"])


def _no_text() -> pa.Array:
    letters = pa.array([b"caf\xe9", b"tea"], pa.binary())
    return pa.Array.from_buffers(pa.string(), 2, letters.buffers())


@pytest.mark.parametrize("column", [_nested_dates, _no_text])
@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_a_column_that_cannot_be_read_is_left_out_unless_it_is_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, column: Any, ending: str
) -> None:
    path = tmp_path / f"a{ending}"
    labels = [["law"], ["fish"]]
    table = pa.table({"text": ["a", "b"], "labels": labels, "about": column()})
    if ending == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as out:
            out.write_table(table)
    format = FORMATS[ending]()
    expected = [{"text": "a", "labels": ["law"]}, {"text": "b", "labels": ["fish"]}]
    assert [row.cells for row in _sound(format.rows(path, None))] == expected
    assert re.search(r"rows 1 to 2: column 'about' .*; it is left out", caplog.text)
    rows = format.rows(path, ColumnsConfig())
    assert [row.cells["text"] for row in _sound(rows)] == ["a", "b"]
    with pytest.raises(DataError, match=r"rows 1 to 2: column 'about' .* with text"):
        list(format.rows(path, ColumnsConfig(text="about")))


def _sound(rows: Iterable[Row | Rejected]) -> list[Row]:
    return [row for row in rows if isinstance(row, Row)]
