"""Documents of files that are one JSON value: read a piece at a time, and told from lines."""

import gzip
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.json_items import JsonItemsError, JsonText, documents_in
from xmtc.data.readers.jsonl import JsonLines
from xmtc.data.readers.table import Row
from xmtc.errors import DataError

ROWS = [
    {"text": f'text {number} \\ " ] }} é 😀\n', "labels": ["x"], "score": -1.5e3}
    for number in range(50)
]
CONTAINERS: dict[str, Any] = {
    "array": ROWS,
    "list": {"version": 1, "about": {"labels": ["x"]}, "documents": ROWS},
    "by id": {f"d{number}": row for number, row in enumerate(ROWS)},
}


class Slow(io.StringIO):
    """A text of which a few characters are read at once."""

    def read(self, size: int | None = -1, /) -> str:
        return super().read(min(size or 3, 3) if size and size > 0 else 3)


def read(path: Path, columns: ColumnsConfig | None = None) -> list[Any]:
    return [
        row.cells if isinstance(row, Row) else row
        for row in JsonLines().rows(path, columns)
    ]


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("form", CONTAINERS)
def test_documents_are_the_same_however_they_are_held(
    tmp_path: Path, form: str, escaped: bool, indent: int | None
) -> None:
    content = json.dumps(CONTAINERS[form], indent=indent, ensure_ascii=escaped)
    expected = ROWS
    if form == "by id":
        expected = [{"id": f"d{number}", **row} for number, row in enumerate(ROWS)]
    assert list(documents_in(lambda: Slow(content), 1000)) == expected
    for name in ("a.json", "a.json.gz"):
        path = tmp_path / name
        data = content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        assert read(path) == expected
        assert read(path, ColumnsConfig()) == expected
        assert JsonLines().count(path) is None


def test_only_a_piece_of_an_array_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("w") as file:
        file.write("[\n")
        for number in range(20_000):
            row = {"text": f"{number} {'word ' * 200}", "labels": ["x"]}
            file.write(f"{',' if number else ''}{json.dumps(row)}\n")
        file.write("]\n")
    assert path.stat().st_size > 16 << 20
    tracemalloc.start()
    try:
        count = sum(isinstance(row, Row) for row in JsonLines().rows(path, None))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 20_000
    assert most < 4 << 20


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('[{"text": "a"}, {"text": "b"', "after item 1: the file ends before"),
        ('[{"text": "a"}, {"text": "b', "after item 1: the file ends before"),
        ('[{"text": "a"} {"text": "b"}]', "after item 1: malformed JSON: not , or ]"),
        ('[{"text": "a"}, {"text" "b" and more of the file}]', "Expecting ':'"),
        ('[{"text": "a", "text": "b"}]', "the key 'text' occurs twice"),
        ('[{"text": "a"}\n]\n[1]', "something follows the array"),
        ('{\n"text": "a", "labels": ["x"]}', "one JSON object, not a list of docum"),
        ('{"data": [{"text": "a"}', "after item 1: the file ends before its value"),
        ("[\n" + "[" * 100_000, "too many lists in lists|ends before"),
    ],
)
def test_what_is_no_list_of_documents_is_refused(
    tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        read(path)


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("orient", ["columns", "split"])
def test_tables_by_columns_are_refused_with_how_to_write_them(
    tmp_path: Path, orient: str, indent: int | None
) -> None:
    by_column = {
        key: {str(number): row[key] for number, row in enumerate(ROWS)}
        for key in ROWS[0]
    }
    split = {
        "columns": list(ROWS[0]),
        "index": list(range(50)),
        "data": [list(row.values()) for row in ROWS],
    }
    path = tmp_path / "a.json"
    content = by_column if orient == "columns" else split
    path.write_text(json.dumps(content, indent=indent))
    with pytest.raises(DataError, match=r"orient='records', lines=True"):
        read(path)


def test_the_only_line_may_be_a_document(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    document = {"text": "a", "items": [{"price": 1}], "labels": ["x"]}
    path.write_text(json.dumps(document) + "\n")
    assert read(path, ColumnsConfig()) == [document]
    long = {"items": [{"price": 1}], "text": "word " * 20_000}
    path.write_text((json.dumps(long) + "\n") * 2)
    assert read(path) == [long, long]
    path.write_text('{"text": "a"}\n')
    assert read(path) == [{"text": "a"}]


def test_a_value_that_is_too_long_is_refused() -> None:
    content = json.dumps([{"text": "a" * 300_000}])
    with pytest.raises(JsonItemsError, match="more than 1,000 characters"):
        list(JsonText(io.StringIO(content), 1000).items())


def test_an_item_that_is_too_long_is_refused_with_what_allows_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"text": "a"}, {"text": "fish " * 500_000}]))
    rows = JsonLines().rows(path, ColumnsConfig(text="text"), longest=10)
    next(rows)
    with pytest.raises(
        DataError, match=r"after item 1: more than .*or raise data\.longest_document"
    ):
        next(rows)
