"""Tables as spreadsheets, databases and scripts write them."""

import csv
import gzip
import html
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from format_cases.made import Case

LABEL_COLUMNS = ("labels", "tags", "topics", "categories", "subjects", "keywords")
SEPARATORS = (
    ";",
    "|",
    "; ",
    " | ",
    ", ",
    ",",
    "#",
    "+",
    "::",
    "~",
    " / ",
    "/",
    "||",
    "\n",
    " ",
    "  ",
)


def _frame(case: Case, cells: list[Any]) -> pd.DataFrame:
    """A table with an identifier and perhaps other columns."""
    columns: dict[str, list[Any]] = {
        "id": [f"doc{number}" for number in range(len(case.documents))]
    }
    if case.draw.random() < 0.4:
        columns["author"] = [
            case.draw.choice(["Ann", "Ben", "Cem"]) for _ in case.documents
        ]
    if case.draw.random() < 0.4:
        columns["date"] = [
            f"2024-0{case.draw.randrange(1, 10)}-1{case.draw.randrange(10)}"
            for _ in case.documents
        ]
    columns[case.draw.choice(["text", "body", "content", "abstract"])] = [
        d.text for d in case.documents
    ]
    columns[case.draw.choice(LABEL_COLUMNS)] = cells
    return pd.DataFrame(columns)


def _joined(case: Case, separator: str) -> list[str]:
    return [separator.join(document.labels) for document in case.documents]


def separators(case: Case, folder: Path) -> Path:
    """Labels joined by whatever somebody liked."""
    usable = [
        separator
        for separator in SEPARATORS
        if not any(separator in label for label in case.pool)
    ]
    _frame(case, _joined(case, case.draw.choice(usable))).to_csv(
        folder / "table.csv", index=False
    )
    return folder / "table.csv"


def excel_first_line(case: Case, folder: Path) -> Path:
    """Excel's hint `sep=;` in front of the header."""
    delimiter = case.draw.choice([";", ",", "\t"])
    text = _frame(case, _joined(case, "|")).to_csv(
        index=False, sep=delimiter, lineterminator="\r\n"
    )
    encoding = case.draw.choice(["utf-8-sig", "utf-8"])
    (folder / "export.csv").write_bytes(f"sep={delimiter}\r\n{text}".encode(encoding))
    return folder / "export.csv"


def excel_codes(case: Case, folder: Path) -> Path:
    """Codes protected from Excel as ="001"."""
    cells = [f'="{document.labels[0]}"' for document in case.documents]
    for document in case.documents:
        case.expected[document.text] = frozenset([document.labels[0]])
    _frame(case, cells).to_csv(folder / "codes.csv", index=False)
    return folder / "codes.csv"


def windows(case: Case, folder: Path) -> Path:
    """Semicolons, and an encoding of Windows."""
    encoding = case.draw.choice(["cp1252", "utf-8-sig", "utf-16"])
    text = _frame(case, _joined(case, "|")).to_csv(
        index=False, sep=";", lineterminator="\r\n"
    )
    (folder / "export.csv").write_bytes(text.encode(encoding))
    return folder / "export.csv"


def texts_with_quotes(case: Case, folder: Path) -> Path:
    """TSV without quoting, whose texts begin with a quote or hold some."""
    lines = ["text\tlabels"]
    expected = {}
    for document in case.documents:
        text = document.text
        if case.draw.random() < 0.5:
            text = f'"{text.split()[0]}" {text}'
        elif case.draw.random() < 0.3:
            text = f'"{text}'
        expected[text] = frozenset(document.labels)
        lines.append(f"{text}\t{'|'.join(document.labels)}")
    case.expected = expected
    (folder / "quotes.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "quotes.tsv"


def spark(case: Case, folder: Path) -> Path:
    """Spark escapes a quote by a backslash."""
    lines = ["id,text,labels"]
    expected = {}
    for number, document in enumerate(case.documents):
        text = (
            f'He said "{document.text}", twice'
            if case.draw.random() < 0.5
            else f"{document.text} So, yes"
        )
        expected[text] = frozenset(document.labels)
        escaped = text.replace('"', '\\"')
        lines.append(f'{number},"{escaped}",{"|".join(document.labels)}')
    case.expected = expected
    (folder / "spark.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "spark.csv"


def line_breaks(case: Case, folder: Path) -> Path:
    """Texts with line breaks and delimiters inside quotes."""
    frame = _frame(case, _joined(case, ";"))
    (name,) = [
        column for column in frame.columns if str(frame[column][0]).startswith("Report")
    ]
    frame[name] = [text.replace(" on ", " on,\n") for text in frame[name]]
    case.expected = {
        text.replace(" on ", " on,\n"): labels for text, labels in case.expected.items()
    }
    frame.to_csv(
        folder / "broken.csv",
        index=False,
        quoting=case.draw.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    )
    return folder / "broken.csv"


def stack_exchange(case: Case, folder: Path) -> Path:
    """Tags as <a><b>, escaped for XML or not."""
    cells = [
        "".join(f"<{label}>" for label in document.labels)
        for document in case.documents
    ]
    if case.draw.random() < 0.6:
        cells = [html.escape(cell) for cell in cells]
    frame = _frame(case, cells)
    frame = frame.rename(columns={frame.columns[-1]: "Tags"})
    frame.to_csv(folder / "posts.csv", index=False)
    return folder / "posts.csv"


def choices_in_cells(case: Case, folder: Path) -> Path:
    """JSON objects in cells of a CSV file."""
    cells = [
        json.dumps({"choices": list(document.labels)}) for document in case.documents
    ]
    _frame(case, cells).to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


def lists_in_cells(case: Case, folder: Path) -> Path:
    """Lists as JSON or as Python prints them."""
    show = case.draw.choice([json.dumps, str])
    _frame(case, [show(list(document.labels)) for document in case.documents]).to_csv(
        folder / "table.csv", index=False
    )
    return folder / "table.csv"


def spark_lists(case: Case, folder: Path) -> Path:
    """Parquet of old Hive and Spark versions: a list is an object with a list of objects."""
    cells = [
        {"list": [{"element": label} for label in document.labels]}
        for document in case.documents
    ]
    texts = [document.text for document in case.documents]
    pq.write_table(pa.table({"text": texts, "labels": cells}), folder / "table.parquet")
    return folder / "table.parquet"


def far_dates(case: Case, folder: Path) -> Path:
    """A date beyond the year 9999 in a column that nobody needs."""
    far = pa.array(
        [10**18 + number for number in range(len(case.documents))], pa.timestamp("us")
    )
    cells = [list(document.labels) for document in case.documents]
    texts = [document.text for document in case.documents]
    pq.write_table(
        pa.table({"valid_until": far, "text": texts, "labels": cells}),
        folder / "table.parquet",
    )
    return folder / "table.parquet"


def indicator_columns(case: Case, folder: Path) -> Path:
    """A column of 0 and 1 for each label, as on Kaggle."""
    frame = pd.DataFrame(
        {
            "id": range(len(case.documents)),
            "comment_text": [d.text for d in case.documents],
        }
    )
    for label in case.pool:
        frame[label] = [int(label in document.labels) for document in case.documents]
    frame.to_csv(folder / "train.csv", index=False)
    return folder / "train.csv"


def numbered_columns(case: Case, folder: Path) -> Path:
    """Columns label1, label2, label3."""
    stem = case.draw.choice(["label", "topic_", "Category "])
    frame = pd.DataFrame({"text": [document.text for document in case.documents]})
    for place in range(3):
        frame[f"{stem}{place + 1}"] = [
            (*d.labels, None, None, None)[place] for d in case.documents
        ]
    frame.to_csv(folder / "table.csv", index=False)
    return folder / "table.csv"


def compressed_lines(case: Case, folder: Path) -> Path:
    """JSON lines, compressed."""
    buffer = io.StringIO()
    for document in case.documents:
        buffer.write(
            json.dumps({"text": document.text, "labels": list(document.labels)}) + "\n"
        )
    content = buffer.getvalue().encode()
    if case.draw.random() < 0.5:
        path = folder / "data.jsonl.gz"
        path.write_bytes(gzip.compress(content))
    else:
        path = folder / "data.jsonl.zst"
        path.write_bytes(zstandard.compress(content))
    return path


def json_array(case: Case, folder: Path) -> Path:
    """A whole JSON array, indented, as many scripts write it."""
    rows = [
        {"text": document.text, "labels": list(document.labels)}
        for document in case.documents
    ]
    content: Any = rows if case.draw.random() < 0.7 else {"data": rows}
    (folder / "data.json").write_text(
        json.dumps(content, indent=case.draw.choice([1, 2, 4])), encoding="utf-8"
    )
    return folder / "data.json"


def paragraphs(case: Case, folder: Path) -> Path:
    """A text as a list of its paragraphs."""
    rows = []
    expected = {}
    for document in case.documents:
        first, _, rest = document.text.partition(" on ")
        rows.append({"paragraphs": [first, rest], "labels": list(document.labels)})
        expected[f"{first}\n{rest}"] = frozenset(document.labels)
    case.expected = expected
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "articles.jsonl").write_text(lines, encoding="utf-8")
    return folder / "articles.jsonl"
