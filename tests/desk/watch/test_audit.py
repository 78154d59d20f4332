"""Audit samples: drawn by strata, and their estimates cover the truth as often as they say."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from score_jobs import score, write_rows
from trial_model import TEXTS, export
from xmtc.data.labels import LabelTable
from xmtc.desk.watch.acceptance import Annotation
from xmtc.desk.watch.audit import audit, draw, read_scores, write_sample
from xmtc.errors import DataError, StorageError
from xmtc.fusion.decision import EXPECTED

LABELS = LabelTable(
    ["a", "b", "c"], ["A", "B", "C"], np.array([100, 30, 2]), [(), (), ()]
)


def scored(documents: int) -> tuple[pa.Table, dict[str, set[str]]]:
    """Documents of very different quality, and their right labels."""
    rng, rows, gold = np.random.default_rng(0), [], {}
    for number in range(documents):
        quality = rng.random()
        labels = [label for label in "abc" if rng.random() < 0.6]
        gold[f"d{number}"] = {label for label in labels if rng.random() < quality} | (
            {"b"} - set(labels)
        )
        expected = dict.fromkeys(
            ("expected_precision", "expected_recall", "expected_f1"),
            quality if labels else 0.0,
        )
        expected["expected_labels"] = quality * len(labels) + 0.5
        rows.append(
            {"doc_id": f"d{number}", "labels": labels, "scores": [0.5] * len(labels)}
            | expected
        )
    return pa.Table.from_pylist(rows), gold


def annotated(gold: dict[str, set[str]]) -> list[Annotation]:
    return [
        Annotation(document=doc_id, labels=sorted(labels))
        for doc_id, labels in gold.items()
    ]


def test_intervals_cover_the_truth(tmp_path: Path) -> None:
    table, gold = scored(2000)
    made = {row["doc_id"]: set(row["labels"]) for row in table.to_pylist()}
    right = sum(len(made[one] & gold[one]) for one in made)
    truth = (right / sum(map(len, made.values())), right / sum(map(len, gold.values())))
    inside, widths, annotations = np.zeros(2), [], annotated(gold)
    for seed in range(100):
        path = tmp_path / f"{seed}.jsonl"
        write_sample(path, draw(table, 150, seed, LABELS), None)
        (everything, *quarters) = audit(path, annotations).rows
        assert len(quarters) == 4
        for place, value in enumerate(truth):
            low, high = (
                float(end) / 100
                for end in everything[4 + 2 * place]
                .split("[")[1]
                .rstrip("]")
                .split(", ")
            )
            inside[place] += low <= value <= high
            widths.append(high - low)
    assert (inside >= 88).all(), inside
    assert np.mean(widths) < 0.16


def test_a_sample_has_every_stratum_and_one_of_all_is_exact(tmp_path: Path) -> None:
    table, gold = scored(300)
    sample = draw(table, 60, 1, LABELS)
    assert len({row["id"] for row in sample}) == len(sample)
    assert all(len(draw(table, size, 1, LABELS)) == size for size in range(60, 301, 16))
    assert sum({row["stratum"]: row["documents"] for row in sample}.values()) == 300
    assert {row["stratum"].split()[-1] for row in sample} == {
        "none",
        "1-5",
        "11-50",
        ">50",
    }
    assert sample == draw(table, 60, 1, LABELS) != draw(table, 60, 2, LABELS)
    write_sample(tmp_path / "all.jsonl", draw(table, 300, 1, LABELS), None)
    made = {row["doc_id"]: set(row["labels"]) for row in table.to_pylist()}
    precision = (
        100
        * sum(len(made[one] & gold[one]) for one in made)
        / sum(map(len, made.values()))
    )
    assert (
        audit(tmp_path / "all.jsonl", annotated(gold)).rows[0][4]
        == f"{precision:.1f} [{precision:.1f}, {precision:.1f}]"
    )


def test_who_left_predicted_labels_unjudged_does_not_count(tmp_path: Path) -> None:
    table, gold = scored(300)
    path = tmp_path / "all.jsonl"
    write_sample(path, draw(table, 300, 1, LABELS), None)
    unfinished = [
        Annotation(document=row["doc_id"], labels=[], rejected=[])
        for row in table.to_pylist()
        if row["labels"]
    ]
    found = audit(path, [*annotated(gold), *unfinished])
    assert found.rows == audit(path, annotated(gold)).rows
    assert found.caption.endswith(
        f"{len(unfinished)} annotations do not count, because they leave predicted labels unjudged"
    )


def test_labels_expected_of_documents_that_get_none_count_in_recall(
    tmp_path: Path,
) -> None:
    expected = {f"expected_{name}": 0.0 for name in EXPECTED}
    rows = [
        {
            "doc_id": f"none{i}",
            "labels": [],
            "scores": [],
            **expected,
            "expected_labels": 1.0,
        }
        for i in range(10)
    ]
    expected = dict.fromkeys(expected, 0.8)
    rows += [
        {
            "doc_id": f"d{i}",
            "labels": ["a"],
            "scores": [0.8],
            **expected,
            "expected_labels": 1.0,
        }
        for i in range(10)
    ]
    write_sample(
        tmp_path / "s.jsonl", draw(pa.Table.from_pylist(rows), 20, 0, LABELS), None
    )
    (tmp_path / "s.jsonl").write_bytes(
        b"\xef\xbb\xbf" + (tmp_path / "s.jsonl").read_bytes()
    )  # as editors save it
    table = audit(
        tmp_path / "s.jsonl", annotated({row["doc_id"]: {"a"} for row in rows})
    )
    found = dict(zip(table.columns, table.rows[0], strict=True))
    assert found["recall expected, %"] == "40.0"
    assert found["recall, %"].startswith("50.0 ")


def test_what_cannot_be_drawn_or_estimated_is_named(tmp_path: Path) -> None:
    table, gold = scored(300)
    for size in (3, 301):
        with pytest.raises(DataError, match=f"--size {size}: 300 documents, "):
            draw(table, size, 0, LABELS)
    with pytest.raises(
        DataError,
        match="several documents have the identifier 'd0': score with an --id",
    ):
        draw(pa.concat_tables([table, table.slice(0, 1)]), 60, 0, LABELS)
    path, sample = tmp_path / "s.jsonl", draw(table, 60, 1, LABELS)
    with pytest.raises(DataError, match="no document"):
        write_sample(path, sample, {})
    with pytest.raises(DataError, match="'documents' is a key of samples: rename"):
        write_sample(
            path, sample, {one: {"title": "text", "documents": "text"} for one in gold}
        )
    write_sample(path, sample, {one: {"text": "text"} for one in gold})
    assert json.loads(path.read_text().splitlines()[0])["text"] == "text"
    with pytest.raises(StorageError, match="drawn once"):
        write_sample(path, sample, None)
    with pytest.raises(DataError, match="annotated documents: annotate more"):
        audit(path, annotated(dict(list(gold.items())[:30])))
    path.write_text('{"id": "a"}\n')
    with pytest.raises(DataError, match="not a sample"):
        audit(path, annotated(gold))
    path.write_text("")
    with pytest.raises(DataError, match="no documents in it"):
        audit(path, annotated(gold))


def test_only_predicted_labels_are_audited(tmp_path: Path, xmtc) -> None:
    model = export(tmp_path / "model")
    source = write_rows(tmp_path / "a.jsonl", 20)
    source.write_text(
        source.read_text() + json.dumps({"id": "empty", "text": ""}) + "\n"
    )  # scoring leaves it out
    score(model, source, tmp_path / "best")
    with pytest.raises(DataError, match="--threshold tuned"):
        read_scores(tmp_path / "best")
    with pytest.raises(DataError, match="not the output"):
        read_scores(tmp_path)
    done = xmtc(
        "score",
        model,
        source,
        "-o",
        tmp_path / "scored",
        "--threshold",
        "tuned",
        "--text-column",
        "text",
        "--id",
        "id",
    )
    assert done.code == 0
    command = (
        "annotations",
        "sample",
        tmp_path / "scored",
        "--model",
        model,
        "--size",
        "20",
        "--input",
        source,
    )
    done = xmtc(
        *command, "-o", tmp_path / "sample.jsonl", "--text-column", "text", "--id", "id"
    )
    assert done.code == 0, done
    rows = [
        json.loads(line)
        for line in (tmp_path / "sample.jsonl").read_text().splitlines()
    ]
    assert {(row["id"], row["text"]) for row in rows} == {
        (f"d{i}", TEXTS[i % 4]) for i in range(20)
    }
    source.write_text(
        source.read_text() + json.dumps({"id": "new", "text": "fish"}) + "\n"
    )
    assert "a.jsonl: not what " in xmtc(*command, "-o", tmp_path / "other.jsonl").err
    people = [
        json.dumps({"id": row["id"], "text": "", "labels": row["labels"]}) + "\n"
        for row in rows
    ]
    (tmp_path / "people.jsonl").write_text("".join(people))
    done = xmtc(
        "annotations", "audit", tmp_path / "sample.jsonl", tmp_path / "people.jsonl"
    )
    assert done.code == 0
    assert "Estimates for all documents" in done.out
