"""Every refusal of `xmtc init` says what to do; whoever does it goes on."""

import csv
import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_options import (
    MADE,
    TOPICS,
    write_csv,
    write_jsonl,
    write_products,
    write_sparse,
)

from formats import advice, run_xmtc

Arguments = Sequence[object]


@dataclass(frozen=True)
class Refusal:
    """A refusal and its advice.

    Attributes:
        write: writes files into an empty folder, and returns the arguments of `xmtc init`.
        words: what the message says.
        follow: does what the message says, and returns the arguments to try then, each in turn; None: the message
            names options.
    """

    write: Callable[[Path], Arguments]
    words: str
    follow: Callable[[Path, str], list[Arguments]] | None = None


def table(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def joined(labels: Sequence[str]) -> str:
    return "|".join(labels)


# What is refused


def archive(folder: Path) -> Arguments:
    path = write_csv(folder / "train.csv", MADE, ("text", "topics"))
    with zipfile.ZipFile(folder / "data.zip", "w") as file:
        file.write(path, "train.csv")
    path.unlink()
    return [folder / "data.zip"]


def misnamed(folder: Path) -> Arguments:
    rows = [{"text": t, "labels": ls} for t, ls in MADE]
    return [lines(folder / "a.csv", rows)]


def compressed(folder: Path) -> Arguments:
    path = write_csv(folder / "a.csv", MADE, ("text", "topics"))
    path.write_bytes(gzip.compress(path.read_bytes()))
    return [path]


def windows(folder: Path) -> Arguments:
    path = table(
        folder / "a.csv", ["text", "topics"], [[f"é {t}", joined(ls)] for t, ls in MADE]
    )
    path.write_bytes(path.read_text(encoding="utf-8").encode("cp1252"))
    return [path]


def windows_lines(folder: Path) -> Arguments:
    rows = [
        json.dumps({"text": f"é {t}", "labels": ls}, ensure_ascii=False)
        for t, ls in MADE
    ]
    path = folder / "a.jsonl"
    path.write_bytes("\n".join(rows).encode("cp1252"))
    return [path]


def open_quote(folder: Path) -> Arguments:
    rows = [f"{t} {'filler ' * 120},{joined(ls)}\n" for t, ls in MADE]
    path = folder / "a.csv"
    path.write_text(
        "".join(["text,topics\n", *rows, '"a quote that nobody closes,art\n'])
    )
    return [path]


def two_layouts(folder: Path) -> Arguments:
    write_sparse(folder, MADE)
    write_products(folder, MADE)
    return [folder]


def fixed_columns(folder: Path) -> Arguments:
    write_products(folder, MADE)
    return [folder, "--text", "title"]


def status(folder: Path) -> Arguments:
    rows = [[t, joined(ls), ["done", "open"][i % 2]] for i, (t, ls) in enumerate(MADE)]
    return [table(folder / "a.csv", ["text", "topics", "status"], rows)]


def two_columns_of_labels(folder: Path) -> Arguments:
    rows = [[t, ls[0], ls[-1]] for t, ls in MADE]
    return [table(folder / "a.csv", ["text", "field", "area"], rows)]


def short_texts(folder: Path) -> Arguments:
    rows = [[f"w{i}", joined(ls)] for i, (_, ls) in enumerate(MADE)]
    return [table(folder / "a.csv", ["word", "topics"], rows)]


def labels_of_one_word_each(folder: Path) -> Arguments:
    rows = [
        [t, f"{ls[0]} {i // 2} and the names of ten other things here"]
        for i, (t, ls) in enumerate(MADE)
    ]
    return [table(folder / "a.csv", ["text", "subject matter"], rows)]


def no_such_column(folder: Path) -> Arguments:
    return [write_csv(folder / "a.csv", MADE, ("text", "topics")), "--labels", "topic"]


def column_twice(folder: Path) -> Arguments:
    path = write_csv(folder / "a.csv", MADE, ("text", "topics"))
    return [path, "--text", "text", "--labels", "text"]


def repeated_header(folder: Path) -> Arguments:
    rows = [[t, joined(ls), "x", "y"] for t, ls in MADE]
    return [table(folder / "a.csv", ["text", "topics", "note", "note"], rows)]


def no_header(folder: Path) -> Arguments:
    (first, labels), *rest = [(t, joined(ls)) for t, ls in MADE]
    return [table(folder / "a.csv", [first, labels], [[t, ls] for t, ls in rest])]


def lists_within(folder: Path) -> Arguments:
    found = [{"_source": {"body": t, "tags": ls}, "_score": 1} for t, ls in MADE]
    path = folder / "a.json"
    path.write_text(json.dumps({"took": 3, "hits": {"total": 9, "hits": found}}))
    return [path]


def texts_in_first_rows(folder: Path) -> Arguments:
    rows = [
        [t if place == 0 else "", label]
        for t, ls in MADE
        for place, label in enumerate(ls)
    ]
    return [table(folder / "a.csv", ["text", "topics"], rows)]


def table_by_columns(folder: Path) -> Arguments:
    frame = pd.DataFrame(
        {"text": [t for t, _ in MADE], "labels": [ls for _, ls in MADE]}
    )
    frame.to_json(folder / "a.json")
    return [folder / "a.json"]


def vectors(folder: Path) -> Arguments:
    rows = [
        {"text": t, "labels": [int(name in ls) for name in TOPICS]} for t, ls in MADE
    ]
    return [lines(folder / "a.jsonl", rows)]


def other_files(folder: Path) -> Arguments:
    write_csv(folder / "north.csv", MADE[:50], ("text", "topics"))
    write_jsonl(folder / "south.jsonl", MADE[50:])
    return [folder]


def text_files(folder: Path) -> Arguments:
    (folder / "notes").write_text("x")
    write_csv(folder / "records", MADE, ("text", "topics"))
    return [folder]


def dev_of_other_columns(folder: Path) -> Arguments:
    write_csv(folder / "train.csv", MADE[:80], ("text", "topics"))
    write_csv(folder / "dev.csv", MADE[80:], ("body", "topics"))
    return [folder]


def few(folder: Path) -> Arguments:
    write_csv(folder / "more.csv", MADE[10:], ("text", "topics"))
    return [write_csv(folder / "a.csv", MADE[:10], ("text", "topics"))]


def same_labels(folder: Path) -> Arguments:
    rows = [[t, joined(ls), "tag"] for t, ls in MADE]
    return [table(folder / "a.csv", ["text", "topics", "labels"], rows)]


def file_of_other_labels(folder: Path) -> Arguments:
    write_csv(folder / "train.csv", MADE, ("text", "topics"))
    table(folder / "labels.csv", ["label", "name"], [["L1", "law"], ["L2", "fishing"]])
    return [folder]


def existing(folder: Path) -> Arguments:
    (folder.parent / "work/a.yaml").write_text("name: mine\n")
    return [write_csv(folder / "a.csv", MADE, ("text", "topics"))]


def wrong_name(folder: Path) -> Arguments:
    return [write_csv(folder / "a.csv", MADE, ("text", "topics")), "--name", "../x"]


def wrong_budget(folder: Path) -> Arguments:
    return [write_csv(folder / "a.csv", MADE, ("text", "topics")), "--budget", "10"]


def places_in_the_text(folder: Path) -> Arguments:
    rows = [{"text": t, "label": [[0, 4, "PER"]], "topics": ls} for t, ls in MADE]
    return [lines(folder / "a.jsonl", rows), "--labels", "label"]


def unreadable_text(folder: Path) -> Arguments:
    letters = pa.array([f"é {t}".encode("latin-1") for t, _ in MADE], pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(MADE), letters.buffers())
    columns = {
        "body": text,
        "title": [t for t, _ in MADE],
        "labels": [ls for _, ls in MADE],
    }
    pq.write_table(pa.table(columns), folder / "a.parquet")
    return [folder / "a.parquet", "--text", "body"]


def repeated_labels(folder: Path) -> Arguments:
    rows = [[text, *labels, "", ""][:3] for text, labels in MADE]
    return [table(folder / "a.csv", ["text", "Labels", "Labels"], rows)]


def title_above(folder: Path) -> Arguments:
    path = write_csv(folder / "a.csv", MADE, ("text", "topics"))
    path.write_text("# exported on Monday\n\n" + path.read_text())
    return [path]


def several_questions(folder: Path) -> Arguments:
    def result(question: str, labels: Sequence[str]) -> Any:
        return {"from_name": question, "value": {"choices": list(labels)}}

    tasks = [
        {
            "data": {"text": text},
            "annotations": [
                {"result": [result("mood", ["good"]), result("topic", ls)]}
            ],
        }
        for text, ls in MADE
    ]
    path = folder / "a.json"
    path.write_text(json.dumps(tasks))
    return [path]


def two_tables(folder: Path) -> Arguments:
    texts = [[str(number), text] for number, (text, _) in enumerate(MADE)]
    codes = [
        [str(number), label] for number, (_, ls) in enumerate(MADE) for label in ls
    ]
    table(folder / "notes.csv", ["hadm_id", "text"], texts)
    table(folder / "codes.csv", ["hadm_id", "code"], codes)
    return [folder]


def pythons_writing(folder: Path) -> Arguments:
    path = folder / "a.json"
    rows = [{"text": text, "labels": labels} for text, labels in MADE]
    path.write_text("".join(f"{row}\n" for row in rows))
    return [path]


def archives(folder: Path) -> Arguments:
    archive(folder)
    (folder / "data.zip").rename(folder / "train.csv.zip")
    return [folder]


def objects_in_files(folder: Path) -> Arguments:
    for number, (text, labels) in enumerate(MADE):
        (folder / f"{number}.json").write_text(
            json.dumps({"text": text, "labels": labels}, indent=1)
        )
    return [folder]


# What its advice leads to


def columns_named(folder: Path, said: str) -> list[Arguments]:
    """Name each column of the message with the option of the message."""
    (path,) = folder.iterdir()
    option = re.search(r"name it with (--\w+)", said)
    listed = re.search(r"They are: ([^.]+)\.|rows: (.+)", said)
    assert option is not None
    assert listed is not None
    names = re.findall(
        r"(?:^|, )'?([a-z][a-z ]*?)'? ?(?:\(|,|$)", listed[1] or listed[2]
    )
    return [[path, option[1], name] for name in names]


def as_they_are_called(folder: Path, said: str) -> list[Arguments]:
    (path,) = folder.iterdir()
    return [
        [path, "--labels", name]
        for name in re.findall(r"\w+", said.split("there are:")[1])
    ]


def first_named(folder: Path, said: str) -> list[Arguments]:
    (path,) = folder.iterdir()
    return [[path, "--text", "text"]]


def without_options(folder: Path, said: str) -> list[Arguments]:
    return [[folder]]


def with_header(folder: Path, said: str) -> list[Arguments]:
    (path,) = folder.iterdir()
    header = re.search(r"such as (\S+)$", said.strip())
    assert header is not None
    path.write_text(f"{header[1]}\n{path.read_text()}")
    return [[path]]


def named_columns(folder: Path, said: str) -> list[Arguments]:
    (path,) = folder.iterdir()
    header = re.search(r"(data\.source\.header=)'([^']+)'", said)
    assert header is not None
    return [[path, header[1] + header[2]]]


def numbered(folder: Path, said: str) -> list[Arguments]:
    (path,) = folder.iterdir()
    names = re.search(r"such as ([^:]+):", said)
    assert names is not None
    first, others = path.read_text().split("\n", 1)
    header = ["text", *names[1].split(", ")]
    assert len(header) == len(first.split(","))
    path.write_text(f"{','.join(header)}\n{others}")
    return [[path]]


def without_title(folder: Path, said: str) -> list[Arguments]:
    (path,) = folder.iterdir()
    line = re.search(r"tail -n \+(\d+)", said)
    assert line is not None
    path.write_text("\n".join(path.read_text().splitlines()[int(line[1]) - 1 :]))
    return [[path]]


def merged(folder: Path, said: str) -> list[Arguments]:
    both = pd.read_csv(folder / "notes.csv").merge(pd.read_csv(folder / "codes.csv"))
    both.to_csv(folder / "merged.csv", index=False)
    return [[folder / "merged.csv"]]


def by_python(folder: Path, said: str) -> list[Arguments]:
    program = re.search(r"python -c '([^']+)'", said)
    assert program is not None
    (path,) = folder.iterdir()
    new = folder / "new.jsonl"
    with path.open() as file, new.open("w") as output:
        subprocess.run(
            [sys.executable, "-c", program[1]], stdin=file, stdout=output, check=True
        )
    return [[new]]


def all_unpacked(folder: Path, said: str) -> list[Arguments]:
    for command in re.findall(r"python -m (zipfile -e \S+ \S+)", said):
        subprocess.run([sys.executable, "-m", *shlex.split(command)], check=True)
    return [[folder]]


def joined_files(folder: Path, said: str) -> list[Arguments]:
    assert "-exec jq -c . {} +" in said
    objects = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    new = folder / "documents.jsonl"
    new.write_text("".join(json.dumps(item) + "\n" for item in objects))
    return [[new]]


def renamed(folder: Path, said: str) -> list[Arguments]:
    (path,) = folder.iterdir()
    path.write_text(path.read_text().replace("note,note", "note,other", 1))
    return [[path]]


def by_jq(folder: Path, said: str) -> list[Arguments]:
    (path,) = folder.iterdir()
    program = re.search(r"jq -c '([^']+)'", said)
    assert program is not None
    new = folder / "documents.jsonl"
    if shutil.which("jq") is None:  # the same by hand
        items = json.loads(path.read_text())
        for key in program[1].removesuffix("[]").strip(".").split("."):
            items = items[key]
        new.write_text("".join(json.dumps(item) + "\n" for item in items))
    else:
        done = subprocess.run(
            ["jq", "-c", program[1], path], check=True, capture_output=True, text=True
        )
        new.write_text(done.stdout)
    return [[new]]


def filled_down(folder: Path, said: str) -> list[Arguments]:
    (path,) = folder.iterdir()
    pd.read_csv(path).ffill().to_csv(path, index=False)
    return [[path]]


def unpacked(folder: Path, said: str) -> list[Arguments]:
    command = re.search(r"python -m (zipfile -e \S+ (\S+)),", said)
    assert command is not None
    subprocess.run([sys.executable, "-m", *shlex.split(command[1])], check=True)
    return [[Path(command[2])]]


def called_rightly(folder: Path, said: str) -> list[Arguments]:
    (path,) = folder.iterdir()
    name = re.search(r"rename it to (\S+)", said)
    assert name is not None
    return [[path.rename(folder / name[1])]]


def by_rows(folder: Path, said: str) -> list[Arguments]:
    call = re.search(r"df\.(to_json\(path, .*?\))", said)
    assert call is not None
    path = folder / "a.json"
    frame = pd.read_json(path)
    eval(f"frame.{call[1]}", {"frame": frame, "path": path})
    return [[path]]


def with_names(folder: Path, said: str) -> list[Arguments]:
    code = re.search(r"(\[\[name for .*\])", said)
    assert code is not None
    path = folder / "a.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    names = {"vectors": [row["labels"] for row in rows], "names": TOPICS}
    labels = eval(code[1], names)
    return [
        [
            lines(
                path,
                [{**row, "labels": own} for row, own in zip(rows, labels, strict=True)],
            )
        ]
    ]


def by_iconv(folder: Path, said: str) -> list[Arguments]:
    command = re.search(r"(iconv -f \S+ -t \S+)", said)
    assert command is not None
    (path,) = folder.iterdir()
    done = subprocess.run([*command[1].split(), path], capture_output=True, check=True)
    path.write_bytes(done.stdout)
    return [[path]]


def the_command(folder: Path, said: str) -> list[Arguments]:
    return [shlex.split(said.split("xmtc init ")[1].strip())]


def the_file(folder: Path, said: str) -> list[Arguments]:
    (folder / "records").rename(folder / "records.csv")
    return [[folder / "records.csv"]]


def called_alike(folder: Path, said: str) -> list[Arguments]:
    path = folder / "dev.csv"
    path.write_text(path.read_text().replace("body", "text", 1))
    return [[folder]]


def more_data(folder: Path, said: str) -> list[Arguments]:
    return [[folder / "a.csv", "--add", folder / "more.csv"]]


def other_labels(folder: Path, said: str) -> list[Arguments]:
    return [[folder / "a.csv", "--labels", "topics"]]


def moved_away(folder: Path, said: str) -> list[Arguments]:
    (folder / "labels.csv").rename(folder.parent / "labels.csv")
    return [[folder]]


def other_output(folder: Path, said: str) -> list[Arguments]:
    return [[folder / "a.csv", "-o", "b.yaml"]]


def other_name(folder: Path, said: str) -> list[Arguments]:
    return [[folder / "a.csv", "--name", "x"]]


def budget(folder: Path, said: str) -> list[Arguments]:
    example = re.search(r"such as (\w+)", said)
    assert example is not None
    return [[folder / "a.csv", "--budget", example[1]]]


def other_text(folder: Path, said: str) -> list[Arguments]:
    return [[folder / "a.parquet", "--text", "title"]]


def other_column(folder: Path, said: str) -> list[Arguments]:
    return [[folder / "a.jsonl", "--labels", "topics"]]


REFUSALS = {
    "archive": Refusal(archive, "unpack it", unpacked),
    "misnamed": Refusal(misnamed, "rename it", called_rightly),
    "compressed": Refusal(compressed, "rename it", called_rightly),
    "windows": Refusal(windows, "data.source.encoding=cp1252"),
    "windows, lines": Refusal(windows_lines, "iconv", by_iconv),
    "open quote": Refusal(open_quote, "data.source.quoting=none"),
    "two layouts": Refusal(two_layouts, "data.source.form=json"),
    "fixed columns": Refusal(fixed_columns, "leave out", without_options),
    "status": Refusal(status, "--accept 'status=done'"),
    "two columns of labels": Refusal(two_columns_of_labels, "--labels", columns_named),
    "short texts": Refusal(short_texts, "name it with --text", columns_named),
    "unusual labels": Refusal(labels_of_one_word_each, "--labels", columns_named),
    "no such column": Refusal(no_such_column, "there are:", as_they_are_called),
    "column twice": Refusal(column_twice, "named twice", first_named),
    "repeated header": Refusal(repeated_header, "rename them", renamed),
    "repeated labels": Refusal(repeated_labels, "rename them", numbered),
    "no header": Refusal(no_header, "add a line", named_columns),
    "title above": Refusal(title_above, "take out the lines", without_title),
    "several questions": Refusal(several_questions, "--labels labels.topic"),
    "two tables": Refusal(two_tables, "join them to one table", merged),
    "Python's writing": Refusal(pythons_writing, "python -c", by_python),
    "archives": Refusal(archives, "unpack them", all_unpacked),
    "objects in files": Refusal(objects_in_files, "join them", joined_files),
    "lists within": Refusal(lists_within, "jq", by_jq),
    "texts in first rows": Refusal(texts_in_first_rows, "Fill down", filled_down),
    "table by columns": Refusal(table_by_columns, "orient='records'", by_rows),
    "vectors": Refusal(vectors, "write labels instead", with_names),
    "other files": Refusal(other_files, "named train", the_command),
    "files without ending": Refusal(text_files, "give the file itself", the_file),
    "dev of other columns": Refusal(dev_of_other_columns, "call it so", called_alike),
    "few": Refusal(few, "give more data", more_data),
    "same labels": Refusal(same_labels, "name another column of labels", other_labels),
    "other label file": Refusal(file_of_other_labels, "move the file away", moved_away),
    "existing": Refusal(existing, "give another name with -o", other_output),
    "wrong name": Refusal(wrong_name, "letters, digits", other_name),
    "wrong budget": Refusal(wrong_budget, "such as 10m", budget),
    "places": Refusal(places_in_the_text, "name another column", other_column),
    "unreadable text": Refusal(unreadable_text, "column", other_text),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_whoever_follows_the_advice_goes_on(tmp_path: Path, name: str) -> None:
    refusal = REFUSALS[name]
    folder, work = tmp_path / "files", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    arguments = [str(argument) for argument in refusal.write(folder)]
    before = set(work.iterdir())
    said = run_xmtc(work, ["init", *arguments])
    assert (said.status, said.fault) == (1, None), said.output
    assert refusal.words in said.output
    assert len(said.output.strip().splitlines()[-1]) < 1_500
    assert set(work.iterdir()) == before
    if refusal.follow is None:
        trials: list[Arguments] = [
            [*arguments, *options] for options in advice(said.output)
        ]
    else:
        trials = refusal.follow(folder, said.output)
    outputs = []
    for trial in trials:
        again = run_xmtc(work, ["init", *map(str, trial)])
        outputs.append(again.output)
        assert again.fault is None, again.fault
        if again.status == 0:
            break
    else:
        pytest.fail(f"none of {trials} goes on after: {said.output}\n{outputs}")
