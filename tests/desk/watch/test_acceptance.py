"""The report on annotations finds what simulated people did."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from xmtc.desk.watch.acceptance import (
    Annotation,
    acceptance_parts,
    agreement_table,
    read_annotations,
)
from xmtc.errors import DataError
from xmtc.report.section import Table

ACCEPT, REFUSE_ALWAYS, MISSING = 0.8, "refused", "missing"


def shown(label, predicted, words=()):
    counts = {"common": 100, "rare": 3, REFUSE_ALWAYS: 8, MISSING: 0}
    return {
        "label": label,
        "name": label.upper(),
        "train_count": counts[label],
        "score": 0.5,
        "predicted": predicted,
    } | {"words": list(words)}


def write(
    path: Path, documents: int, seed: int, by: str | None = "anna", error: float = 0.0
) -> Path:
    """A person accepts a predicted label with probability `ACCEPT`, the same for all, and then errs."""
    truth, person = np.random.default_rng(0), np.random.default_rng(seed)
    lines = []
    for number in range(documents):
        suggested = [
            shown("common", True),
            shown("rare", True),
            shown(REFUSE_ALWAYS, True, ["bank"]),
        ]
        labels = [
            label
            for label in ("common", "rare")
            if (truth.random() < ACCEPT) != (person.random() < error)
        ]
        added = [shown(MISSING, False)] if number % 4 == 0 else []
        line = {
            "id": f"d{number}",
            "text": "x",
            "labels": labels + [one["label"] for one in added],
            "by": by,
        }
        line |= {
            "at": f"2026-{1 + number % 5:02}-01T00:00:00+00:00",
            "model": {"name": "m", "version": "v1"},
        }
        lines.append(line | {"suggested": suggested, "added": added, "seconds": 5.0})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def tables(*paths: Path) -> dict[str, Table]:
    return {
        part.name: part
        for part in acceptance_parts(read_annotations(paths))
        if isinstance(part, Table)
    }


def interval(cell: str) -> list[float]:
    return [float(value) / 100 for value in cell.split("[")[1].rstrip("]").split(", ")]


def test_acceptance_by_bin_label_and_time(tmp_path: Path) -> None:
    found = tables(write(tmp_path / "a.jsonl", 400, 1))
    rows = {row[0]: row for row in found["acceptance"].rows}
    assert rows["all"][1] == "1,200"
    assert rows["0"][1:4] == ["0", "0", "100"]  # the added label
    low, high = interval(rows["1-5"][4])
    assert low < ACCEPT < high < low + 0.12
    low, high = interval(rows["all"][4])
    assert low < 2 * ACCEPT / 3 < high
    labels = {row[0]: row for row in found["labels"].rows}
    assert labels["refused (REFUSED)"][1:4] == ["8", "400", "0"]
    assert interval(labels["refused (REFUSED)"][4])[1] < 0.02
    assert [row[:2] for row in found["time"].rows] == [
        [f"2026-0{month}", "v1"] for month in range(1, 6)
    ]
    assert found["refused"].rows == [["refused (REFUSED)", "bank", "8", "400"]]
    assert found["added"].rows == [["missing (MISSING)", "0", "100"]]


def test_what_nobody_judged_counts_neither_as_accepted_nor_as_refused() -> None:
    suggested = [shown("common", True), shown("rare", True), shown("refused", True)]
    rows = [
        {"document": f"d{number}", "labels": ["common"], "suggested": suggested}
        for number in range(3)
    ]
    judged = {"rejected": ["rare"]}
    lines = [Annotation.model_validate(row | judged) for row in rows]
    found = {
        part.name: part.rows
        for part in acceptance_parts(lines)
        if isinstance(part, Table)
    }
    assert found["acceptance"][0][1:4] == ["6", "3", "3"]
    assert [row[0] for row in found["refused"]] == ["rare (RARE)"]
    one = Annotation.model_validate({**rows[0], "rejected": ["rare"], "by": "u"})
    other = Annotation.model_validate(
        {**rows[0], "labels": ["common", "rare"], "rejected": [], "by": "v"}
    )
    cells = agreement_table([one, other]).rows[0]
    assert cells[4].split()[0] == "50.0"  # `refused` was judged by neither


def test_a_second_person_of_the_same_mind_narrows_no_interval(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{name}.jsonl", 100, 1, name) for name in ("anna", "ben")
    ]
    alone, both = (tables(*some) for some in (paths[:1], paths))
    assert alone["acceptance"].rows[0][4:] == both["acceptance"].rows[0][4:]
    assert len(alone["labels"].rows) == 3  # one of them always refused
    assert [[row[0], row[4]] for row in alone["labels"].rows] == [
        [row[0], row[4]] for row in both["labels"].rows
    ]
    assert [row[2] for row in both["time"].rows] == ["20"] * 5


def test_a_file_and_its_copy_count_once(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", 20, 1)
    copy = Path(shutil.copy(path, tmp_path / "copy.jsonl"))
    assert read_annotations([path, path, copy]) == read_annotations([path])


def test_agreement_shows_the_rate_of_errors(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / f"{name}.jsonl", 400, seed, name, 0.1)
        for seed, name in enumerate(("ben", "anna"))
    ]
    rows = tables(*paths)["agreement"].rows
    assert [row[:3] for row in rows] == [["all", "", "400"], ["anna", "ben", "400"]]
    low, high = interval(rows[0][4])
    decisions = (
        2 * (1 - 2 * 0.1 * 0.9) + 1 + 0.25
    ) / 3.25  # of two labels, the one that nobody accepts, the added one
    assert low < decisions < high < low + 0.05


def test_documents_of_three_people_and_without_labels_agree() -> None:
    shown = {"suggested": [{"label": "x"}, {"label": "y"}]}
    rows = [
        {"document": "a", "labels": labels, "by": by}
        for by, labels in (("u", ["x"]), ("v", ["x"]), ("w", []))
    ]
    lines = [Annotation.model_validate(row | shown) for row in rows]
    found = {tuple(row[:2]): row[2:] for row in agreement_table(lines).rows}
    assert found["all", ""][0] == found["u", "v"][0] == "1"
    assert [cell.split()[0] for cell in found["all", ""][1:]] == ["33.3", "66.7"]
    bare = [Annotation(document="a", labels=[], by=by) for by in "uv"]
    assert [row[2:] for row in agreement_table(bare).rows] == [["1", "–", "–"]] * 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "no annotations in it"),
        (
            '{"id": "a", "labels": ["x"]}\n',
            "no annotation says what the model suggested",
        ),
        ('{"id": "a", "labels": "x"}\n', "annotation 1: not valid: labels: "),
        (
            '{"id": "a", "labels": []}\n{"id": "b", "labels": [], "suggested": [{}]}\n',
            r"annotation 2: not valid: suggested\.0\.label",
        ),
        (
            '{"id": "a", "labels": ["x"], "stratum": "quarter 1", "expected": {}}\n',
            "a sample, with labels of the model",
        ),
        (
            "id,labels\n",
            "line 1: not an annotation: malformed JSON: Expecting value at column 1; ",
        ),
        (
            '\n{"id": "a", "id": "b", "labels": []}\n',
            "line 2: not an annotation: the key 'id' occurs twice",
        ),
        (
            '{"id": "a", "labels": ["\\ud800"]}\n',
            "line 1: not an annotation: the JSON holds half of a character",
        ),
        ("[1]\n", "line 1: not an annotation; "),
        (
            '{"id": "a", "labels": [], "at": "2026-11-26T13:00:00"}\n',
            "annotation 1: not valid: at: Input",
        ),
        (
            '{"id": "a", "labels": [], "added": [{"label": "x", "train_count": -1}]}\n',
            r"annotation 1: not valid: added\.0\.train_count: ",
        ),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(DataError, match=words):
        tables(tmp_path / "a.jsonl")
    with pytest.raises(DataError, match="no such file"):
        tables(tmp_path / "b.jsonl")


def test_the_command_prints_and_writes_a_page(tmp_path: Path, xmtc) -> None:
    done = xmtc(
        "annotations",
        "report",
        write(tmp_path / "a.jsonl", 30, 1),
        "-o",
        tmp_path / "page.html",
    )
    assert done.code == 0
    assert "30 annotations of 30 documents by 1 person." in done.out
    assert "Acceptance by bin" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "page_tables/refused.parquet").exists()
    assert xmtc("annotations", "report", tmp_path / "none.jsonl").code == 1
    refused = xmtc(
        "annotations", "report", tmp_path / "none.jsonl", "-o", "."
    )  # before any work
    assert "the output is an HTML page" in refused.err
