"""Folders of several files, and what libraries and search engines keep."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from format_cases.made import Case


def annif_tsv(case: Case, folder: Path) -> Path:
    """A line for each document: the text, a tab, and the URIs of its subjects in angle brackets."""
    uris = {
        label: f"http://example.org/subject/{number}"
        for number, label in enumerate(case.pool)
    }
    lines = [
        f"{d.text}\t{' '.join(f'<{uris[label]}>' for label in d.labels)}\n"
        for d in case.documents
    ]
    case.expected = {
        d.text: frozenset(uris[label] for label in d.labels) for d in case.documents
    }
    if case.draw.random() < 0.5:
        path = folder / "corpus.tsv.gz"
        path.write_bytes(gzip.compress("".join(lines).encode()))
    else:
        path = folder / "corpus.tsv"
        path.write_text("".join(lines), encoding="utf-8")
    return path


def annif_folder(case: Case, folder: Path) -> Path:
    """A file for each text, and beside it a file of its subjects: names (.key) or URIs with names (.tsv)."""
    with_uris = case.draw.random() < 0.5
    for number, document in enumerate(case.documents):
        (folder / f"doc{number:03d}.txt").write_text(document.text, encoding="utf-8")
        if with_uris:
            rows = [
                f"<http://example.org/{case.pool.index(label)}>\t{label}\n"
                for label in document.labels
            ]
            (folder / f"doc{number:03d}.tsv").write_text(
                "".join(rows), encoding="utf-8"
            )
            uris = [
                f"http://example.org/{case.pool.index(label)}"
                for label in document.labels
            ]
            case.expected[document.text] = frozenset(uris)
        else:
            (folder / f"doc{number:03d}.key").write_text(
                "\n".join(document.labels) + "\n", encoding="utf-8"
            )
    return folder


def spark_parts(case: Case, folder: Path) -> Path:
    """A folder that Spark wrote: part files and an empty _SUCCESS."""
    kind = case.draw.choice(["json", "parquet", "csv"])
    third = len(case.documents) // 3 + 1
    for part in range(3):
        own = case.documents[third * part : third * (part + 1)]
        name = (
            folder
            / f"part-0000{part}-0d5f-c000.{'snappy.' if kind == 'parquet' else ''}{kind}"
        )
        if kind == "json":
            rows = [json.dumps({"text": d.text, "labels": list(d.labels)}) for d in own]
            name.write_text("\n".join(rows) + "\n", encoding="utf-8")
        elif kind == "parquet":
            table = pa.table(
                {"text": [d.text for d in own], "labels": [list(d.labels) for d in own]}
            )
            pq.write_table(table, name)
        else:
            frame = pd.DataFrame(
                {
                    "text": [d.text for d in own],
                    "labels": ["|".join(d.labels) for d in own],
                }
            )
            frame.to_csv(name, index=False)
    (folder / "_SUCCESS").touch()
    return folder


def kaggle(case: Case, folder: Path) -> Path:
    """A competition's folder: train.csv with indicator columns, test.csv without, and a sample of a submission."""
    frame = pd.DataFrame({"id": [f"{n:016x}" for n in range(len(case.documents))]})
    frame["comment_text"] = [document.text for document in case.documents]
    for label in case.pool:
        frame[label] = [int(label in document.labels) for document in case.documents]
    frame.to_csv(folder / "train.csv", index=False)
    hidden = pd.DataFrame(
        {
            "id": ["a1", "a2", "a3"],
            "comment_text": ["One more.", "Two more.", "Three more."],
        }
    )
    hidden.to_csv(folder / "test.csv", index=False)
    sample = pd.DataFrame(
        {"id": ["a1", "a2", "a3"]} | {label: [0.5] * 3 for label in case.pool}
    )
    sample.to_csv(folder / "sample_submission.csv", index=False)
    case.optional |= {"One more.", "Two more.", "Three more."}
    return folder


def xc_folder(case: Case, folder: Path) -> Path:
    """The Extreme Classification Repository's raw text: products by number, labels in a file of their own."""
    third = len(case.documents) * 3 // 4
    for name, own in (("trn", case.documents[:third]), ("tst", case.documents[third:])):
        lines = []
        for number, document in enumerate(own):
            title, _, content = document.text.partition(" on ")
            targets = [case.pool.index(label) for label in document.labels]
            row = {
                "uid": f"{name}{number}",
                "title": title,
                "content": content,
                "target_ind": targets,
                "target_rel": [1.0] * len(targets),
            }
            lines.append(json.dumps(row) + "\n")
        (folder / f"{name}.json.gz").write_bytes(gzip.compress("".join(lines).encode()))
    names = [
        json.dumps({"uid": f"L{number}", "title": label}) + "\n"
        for number, label in enumerate(case.pool)
    ]
    (folder / "lbl.json.gz").write_bytes(gzip.compress("".join(names).encode()))
    case.expected = {}
    for document in case.documents:
        title, _, content = document.text.partition(" on ")
        case.expected[f"{title}\n{content}"] = frozenset(
            f"L{case.pool.index(label)}" for label in document.labels
        )
    return folder


def saved_dataset(case: Case, folder: Path) -> Path:
    """What `datasets` writes with `save_to_disk`: Arrow streams, state.json and dataset_info.json."""
    table = pa.table(
        {
            "text": [d.text for d in case.documents],
            "labels": [list(d.labels) for d in case.documents],
        }
    )
    path = folder / "data-00000-of-00001.arrow"
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    state = {
        "_data_files": [{"filename": "data-00000-of-00001.arrow"}],
        "_fingerprint": "f00",
        "_split": "train",
    }
    (folder / "state.json").write_text(json.dumps(state))
    feature = {"text": {"dtype": "string", "_type": "Value"}}
    feature["labels"] = {
        "feature": {"dtype": "string", "_type": "Value"},
        "_type": "Sequence",
    }
    (folder / "dataset_info.json").write_text(json.dumps({"features": feature}))
    return folder


def sparse_features(case: Case, folder: Path) -> Path:
    """svmlight: numbers of features instead of texts, read as the words f1, f2, …"""
    lines = []
    case.expected = {}
    for document in case.documents:
        numbers = [str(case.pool.index(label)) for label in document.labels]
        features = sorted(case.draw.sample(range(500), 9))
        pairs = " ".join(
            f"{index}:{case.draw.uniform(0.1, 1):.3f}" for index in features
        )
        lines.append(f"{','.join(numbers)} {pairs}\n")
        text = " ".join(f"f{index}" for index in features)
        case.expected[text] = frozenset(numbers)
    if case.draw.random() < 0.5:
        lines.insert(0, f"{len(case.documents)} 500 {len(case.pool)}\n")
    path = folder / case.draw.choice(["train.txt", "train.svm", "data.libsvm"])
    path.write_text("".join(lines))
    return path
