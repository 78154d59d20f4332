"""What annotation tools export, after their public descriptions."""

import csv
import json
from pathlib import Path
from typing import Any

from format_cases.made import Case, Document


def _dump(path: Path, rows: list[Any], case: Case) -> Path:
    """Write a JSON array, indented or not."""
    path.write_text(
        json.dumps(
            rows,
            indent=case.draw.choice([None, 2, 4]),
            ensure_ascii=case.draw.random() < 0.5,
        )
    )
    return path


def _lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
        encoding="utf-8",
    )
    return path


def _choices(labels: tuple[str, ...], control: str) -> dict[str, Any]:
    return {
        "id": "q1w2e3",
        "type": "choices",
        "value": {"choices": list(labels)},
        "from_name": control,
        "to_name": "text",
        "origin": "manual",
    }


def label_studio(case: Case, folder: Path) -> Path:
    """Tasks with annotations; skipped tasks and tasks that nobody has seen are no documents."""
    control = case.draw.choice(["topics", "choice", "sentiment"])
    key = case.draw.choice(["text", "body", "content"])
    tasks = []
    for number, document in enumerate(case.documents):
        annotation = {
            "id": 1000 + number,
            "completed_by": case.draw.choice([1, 2]),
            "result": [_choices(document.labels, control)],
            "was_cancelled": False,
            "ground_truth": False,
            "created_at": "2024-05-01T10:00:00.000000Z",
            "lead_time": case.draw.random() * 60,
        }
        annotations = [annotation]
        state = case.draw.random()
        if state < 0.1:
            annotation["was_cancelled"] = True
            annotation["result"] = []
            case.leave_out(document)
        elif state < 0.2:
            annotations = []
            case.leave_out(document)
        tasks.append(
            {
                "id": number + 1,
                "annotations": annotations,
                "predictions": [],
                "data": {key: document.text, "ref": f"r{number}"},
                "meta": {},
                "created_at": "2024-05-01T09:00:00.000000Z",
                "project": 7,
            }
        )
    return _dump(folder / "project-7-at-2024-05-02.json", tasks, case)


def label_studio_min(case: Case, folder: Path) -> Path:
    """The export JSON-MIN: one flat object for each annotation, a choice alone as text and several as an object."""
    rows = []
    for number, document in enumerate(case.documents):
        several = {"choices": list(document.labels)}
        rows.append(
            {
                "text": document.text,
                "id": number + 1,
                "topics": document.labels[0] if len(document.labels) == 1 else several,
                "annotator": 1,
                "annotation_id": 500 + number,
                "created_at": "2024-05-01T10:00:00.000000Z",
                "updated_at": "2024-05-01T10:00:00.000000Z",
                "lead_time": 12.5,
            }
        )
    return _dump(folder / "project-7-min.json", rows, case)


def label_studio_csv(case: Case, folder: Path) -> Path:
    """The export CSV: several choices as JSON in the cell."""
    path = folder / "project-7.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            [
                "annotation_id",
                "annotator",
                "created_at",
                "id",
                "lead_time",
                "text",
                "topics",
                "updated_at",
            ]
        )
        for number, document in enumerate(case.documents):
            cell = document.labels[0]
            if len(document.labels) > 1:
                cell = json.dumps({"choices": list(document.labels)})
            day = "2024-05-01T10:00:00.000000Z"
            writer.writerow(
                [500 + number, 1, day, number + 1, 12.5, document.text, cell, day]
            )
    return path


def doccano(case: Case, folder: Path) -> Path:
    """JSON lines of document classification."""
    key = case.draw.choice(["label", "labels"])
    rows = [
        {
            "id": number,
            "text": document.text,
            key: list(document.labels),
            "Comments": [],
        }
        for number, document in enumerate(case.documents)
    ]
    return _lines(folder / "all.jsonl", rows)


def doccano_csv(case: Case, folder: Path) -> Path:
    """CSV of document classification: labels joined by #."""
    path = folder / "all.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", case.draw.choice(["text", "data"]), "label"])
        for number, document in enumerate(case.documents):
            writer.writerow([number, document.text, "#".join(document.labels)])
    return path


def prodigy_choices(case: Case, folder: Path) -> Path:
    """Multiple choice: what was accepted, with an answer to the whole task."""
    rows = []
    for document in case.documents:
        answer = case.draw.choices(["accept", "reject", "ignore"], [8, 1, 1])[0]
        if answer != "accept":
            case.leave_out(document)
        rows.append(
            {
                "text": document.text,
                "_input_hash": case.draw.randrange(10**9),
                "_task_hash": case.draw.randrange(10**9),
                "options": [{"id": label, "text": label} for label in case.pool],
                "_view_id": "choice",
                "config": {"choice_style": "multiple"},
                "accept": list(document.labels),
                "answer": answer,
                "_timestamp": 1714550000 + len(rows),
            }
        )
    return _lines(folder / "topics.jsonl", rows)


def argilla(case: Case, folder: Path) -> Path:
    """Records with responses of one user; only submitted responses count."""
    rows = []
    for number, document in enumerate(case.documents):
        status = case.draw.choices(["submitted", "draft", "discarded"], [8, 1, 1])[0]
        if status != "submitted":
            case.leave_out(document)
        response = {"value": list(document.labels), "user_id": "9f2c", "status": status}
        rows.append(
            {
                "id": f"rec-{number}",
                "status": "completed" if status == "submitted" else "pending",
                "fields": {"text": document.text},
                "metadata": {},
                "suggestions": {},
                "responses": {"topics": [response]},
                "vectors": {},
            }
        )
    return _dump(folder / "records.json", rows, case)


def spacy_cats(case: Case, folder: Path) -> Path:
    """Objects whose `cats` give 1 or 0 for every category."""
    one, zero = case.draw.choice([(1.0, 0.0), (1, 0), (True, False)])
    rows = []
    for document in case.documents:
        cats = {label: one if label in document.labels else zero for label in case.pool}
        rows.append({"text": document.text, "cats": cats})
    if case.draw.random() < 0.5:
        return _lines(folder / "train.jsonl", rows)
    return _dump(folder / "train.json", rows, case)


def spacy_pairs(case: Case, folder: Path) -> Path:
    """Training data of version 2: pairs of a text and its annotations."""
    rows = []
    for document in case.documents:
        cats = {label: 1.0 if label in document.labels else 0.0 for label in case.pool}
        rows.append([document.text, {"cats": cats}])
    return _dump(folder / "train.json", rows, case)


def fasttext(case: Case, folder: Path) -> Path:
    """A line for each text, with labels in front."""
    prefix = "__label__"
    lines = []
    for document in case.documents:
        marks = " ".join(prefix + label for label in document.labels)
        lines.append(f"{marks} {document.text}\n")
    path = folder / case.draw.choice(["train.txt", "cooking.train", "data.ft.txt"])
    path.write_text("".join(lines), encoding="utf-8")
    return path


def judged_empty_and_unjudged(case: Case, folder: Path) -> Path:
    """`null` where nobody has judged, and an empty list where no label fits."""
    rows: list[dict[str, Any]] = []
    for document in case.documents:
        labels: list[str] | None = list(document.labels)
        state = case.draw.random()
        if state < 0.1:
            labels = None
            case.leave_out(document)
        elif state < 0.2:
            labels = []
            case.expected[document.text] = frozenset()
        rows.append({"text": document.text, "labels": labels})
    return _lines(folder / "annotated.jsonl", rows)


def _objects(document: Document, case: Case) -> list[dict[str, Any]]:
    return [{"id": case.pool.index(label), "name": label} for label in document.labels]


def objects_with_names(case: Case, folder: Path) -> Path:
    """Labels as objects with a number and a name, as APIs of shops and libraries return them."""
    rows = [
        {"id": n, "text": d.text, "tags": _objects(d, case)}
        for n, d in enumerate(case.documents)
    ]
    return _lines(folder / "items.jsonl", rows)


def wrapped_objects(case: Case, folder: Path) -> Path:
    """The same one level deeper."""
    rows = [
        {"text": document.text, "meta": {"labels": _objects(document, case)}}
        for document in case.documents
    ]
    return _lines(folder / "items.jsonl", rows)
