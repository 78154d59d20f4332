"""Annotations are training data; documents to annotate come in the promised order."""

import json
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import LABELS, NAMES, TEXTS, running

import xmtc
from xmtc.data.labels import LabelTable
from xmtc.data.readers.base import Document
from xmtc.data.readers.cells import absent
from xmtc.data.readers.columns import ColumnsConfig
from xmtc.data.readers.table_config import TABLES, SplitFilesConfig
from xmtc.desk.annotate.annotations import AnnotatedDocument, Annotations
from xmtc.desk.annotate.worklist import (
    MAX_DOCUMENTS,
    Worklist,
    order_by,
    read_documents,
)
from xmtc.desk.config import Limits, ServeConfig
from xmtc.desk.serve.service import Service
from xmtc.desk.watch.acceptance import read_annotations
from xmtc.errors import DataError, StorageError
from xmtc.predict.predictions import Prediction
from xmtc.track.progress import Progress


def read_as_training_data(path: Path, rejected: str | None = None) -> list[Document]:
    settings = TABLES[".jsonl"](
        files=SplitFilesConfig(train=str(path)),
        columns=ColumnsConfig(id="id", rejected=rejected),
    )
    return list(settings.build().read(map, Progress(enabled=False)))


DOCUMENTS = st.tuples(
    st.none() | st.text("abc", min_size=1),
    st.text(st.characters(codec="utf-8"), min_size=1).filter(
        lambda text: not absent(text)
    ),
    st.lists(st.sampled_from(LABELS), min_size=1, max_size=4),
)


@pytest.mark.parametrize("text", ["NaN", " nan ", "\t", "<NA>"])
def test_what_training_reads_as_none_is_refused(
    model: xmtc.Model, tmp_path: Path, text: str
) -> None:
    annotations = Annotations(tmp_path / "some.jsonl", model.labels)
    for document in ((None, text, LABELS[:1]), (text, "a fish", LABELS[:1])):
        with pytest.raises(DataError, match="training reads the"):
            annotations.save([AnnotatedDocument(*document)])
    assert (
        not (tmp_path / "some.jsonl").exists()
        or not (tmp_path / "some.jsonl").read_text()
    )


def test_a_file_that_an_editor_saved_with_a_mark_of_utf_8_goes_on(
    model: xmtc.Model, tmp_path: Path
) -> None:
    path = tmp_path / "some.jsonl"
    Annotations(path, model.labels).save([AnnotatedDocument("a", "a fish", LABELS[:1])])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    annotations = Annotations(path, model.labels)
    annotations.save([AnnotatedDocument("b", "a ship", LABELS[:1])])
    assert (annotations.ids, len(read_annotations([path]))) == ({"a", "b"}, 2)
    assert [one.doc_id for one in read_as_training_data(path)] == ["a", "b"]


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    documents=st.lists(
        DOCUMENTS, min_size=1, max_size=4, unique_by=lambda one: one[0] or one[1]
    )
)
def test_what_is_saved_is_what_training_reads(
    model: xmtc.Model, tmp_path: Path, documents
) -> None:
    path = tmp_path / "some.jsonl"
    path.unlink(missing_ok=True)
    with Annotations(path, model.labels) as annotations:
        ids = [
            doc_id
            for one in documents
            for doc_id in annotations.save([AnnotatedDocument(*one)])
        ]
    found = read_as_training_data(path)
    expected = [
        Document(doc_id, text, tuple(dict.fromkeys(labels)), "train")
        for doc_id, (_, text, labels) in zip(ids, documents, strict=True)
    ]
    assert found == expected
    with Annotations(path, model.labels) as again:
        assert annotations.ids == again.ids == set(ids)


def test_a_document_of_a_single_label_model_has_one_label(
    model: xmtc.Model, tmp_path: Path
) -> None:
    annotations = Annotations(tmp_path / "some.jsonl", model.labels, one_label=True)
    annotations.save([AnnotatedDocument(None, "x", ["law", "law"])])
    for labels in ([], ["law", "cod"]):
        with pytest.raises(DataError, match="exactly one"):
            annotations.save(
                [
                    AnnotatedDocument(None, "x", ["law"]),
                    AnnotatedDocument(None, "y", labels),
                ]
            )
    assert len(read_as_training_data(annotations.path)) == 1


def test_a_file_without_an_end_goes_on_and_another_file_is_not_appended_to(
    model: xmtc.Model, tmp_path: Path
) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"id": "a", "text": "x", "labels": ["law"]}')  # without an end
    with Annotations(path, model.labels) as annotations:
        annotations.save([AnnotatedDocument("b", "y", ["cod"])])
        path.write_text(
            path.read_text().removesuffix("\n")
        )  # as an editor may, meanwhile
        annotations.save([AnnotatedDocument("c", "z", ["cod"])])
    assert [one.doc_id for one in read_as_training_data(path)] == ["a", "b", "c"]
    for content in (
        '["a"]',
        "{'id': 1",
        '{"id": "a"\n',
        "id,text\n",
        '{"text": "x"}\n',
    ):
        path.write_text(content)
        with pytest.raises(DataError, match="line 1: "):
            Annotations(path, model.labels)
        assert path.read_text() == content
    with pytest.raises(DataError):
        Annotations(tmp_path, model.labels)


@pytest.mark.parametrize(
    "line",
    [b'{"id": "c", "text": "half \xc3', b'{"i', b'{"id": "c"' + bytes(700), bytes(40)],
)
def test_a_line_that_was_cut_off_is_set_aside_with_a_word(
    model: xmtc.Model, tmp_path: Path, line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "some.jsonl"
    with Annotations(path, model.labels) as annotations:
        annotations.save([AnnotatedDocument("a", "a fish", ["cod"])])
    whole = path.read_bytes()
    path.write_bytes(whole + line)
    with pytest.raises(DataError, match="cut off"):
        read_annotations([path])
    with Annotations(path, model.labels) as annotations:
        assert annotations.ids == {"a"}
        assert path.read_bytes() == whole
        annotations.save([AnnotatedDocument("c", "a ship", ["steel"])])
    assert (tmp_path / "some.jsonl.cut").read_bytes() == line + b"\n"
    assert "some.jsonl.cut" in caplog.text
    assert "half" not in caplog.text
    assert len(read_annotations([path])) == 2


def test_a_second_server_is_refused_with_the_first_ones_process_and_host(
    model: xmtc.Model, tmp_path: Path
) -> None:
    path = tmp_path / "some.jsonl"
    with running(model, annotations=path) as client:
        with pytest.raises(
            StorageError,
            match=rf"process {os.getpid()} on {socket.gethostname()} writes",
        ):
            Annotations(path, model.labels)
        assert (
            client.post(
                "/annotations", {"text": TEXTS[0], "labels": ["cod"]}
            ).status_code
            == 200
        )
    with running(model, annotations=path) as client:
        again = client.post("/annotations", {"text": TEXTS[0], "labels": ["law"]})
        assert (again.status_code, "annotated already" in again.text) == (422, True)
        other = client.post("/annotations", {"text": TEXTS[1], "labels": ["cod"]})
        assert other.json()["saved"] == 2


def test_a_link_to_the_file_gives_no_second_writer(tmp_path: Path) -> None:
    table = LabelTable(["fish"], ["fish"], np.ones(1, np.int64))
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.jsonl"
    link.symlink_to(tmp_path / "a.jsonl")
    with (
        Annotations(tmp_path / "a.jsonl", table),
        pytest.raises(StorageError, match=f"process {os.getpid()} on"),
    ):
        Annotations(link, table)


def test_a_failed_write_leaves_the_file_as_it_was(
    model: xmtc.Model, tmp_path: Path, monkeypatch
) -> None:
    annotations = Annotations(tmp_path / "some.jsonl", model.labels)
    annotations.save([AnnotatedDocument("a", "x", ["law"])])
    before = annotations.path.read_bytes()

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        annotations.save([AnnotatedDocument("b", "y", ["law"])])
    assert annotations.path.read_bytes() == before
    assert annotations.ids == {"a"}


def test_over_http(model: xmtc.Model, tmp_path: Path) -> None:
    queue, path = tmp_path / "queue.jsonl", tmp_path / "folder" / "some.jsonl"
    queue.write_text(
        "".join(
            json.dumps({"id": f"q{i}", "text": text}) + "\n"
            for i, text in enumerate(TEXTS)
        )
    )
    with running(model, annotations=path, queue=queue, order="uncertain") as client:
        for body, words in (
            ({"text": "x", "labels": ["lav"]}, "no label 'lav'"),
            ({"text": "", "labels": []}, "text"),
            ({"text": "x"}, "labels"),
            ({"text": "x", "labels": "law"}, "labels"),
            ({"text": "x", "labels": []}, "complete: true if no label fits"),
            (
                {"text": "x", "labels": [], "review": REVIEW, "complete": True},
                "leave complete out",
            ),
        ):
            refused = client.post("/annotations", body)
            assert refused.status_code == 422
            assert words in refused.json()["detail"]
        while client.post("/queue/next").json()["waiting"]:
            pass
    assert path.read_bytes() == b""
    with running(model, annotations=path, queue=queue, order="uncertain") as client:
        while (first := client.post("/queue/next").json())["id"] is None:
            pass
        skipped = client.post("/queue/next", params={"skip": first["id"]}).json()
        assert skipped["left"] == 4
        body = {
            "text": skipped["text"],
            "labels": ["cod", "law", "cod"],
            "id": skipped["id"],
        }
        assert client.post("/annotations", body).json() == {
            "id": skipped["id"],
            "saved": 1,
        }
        assert client.post("/queue/next").json()["left"] == 3
        assert (
            client.post(
                "/annotations", {"text": "none fits", "labels": [], "complete": True}
            ).json()["saved"]
            == 2
        )
    saved = [json.loads(line) for line in path.read_text().splitlines()]
    assert {key: saved[0][key] for key in ("id", "text", "labels")} == {
        "id": skipped["id"],
        "text": skipped["text"],
        "labels": ["cod", "law"],
    }
    assert saved[0]["model"] == {"name": "sea-laws", "version": ""}
    assert saved[0]["by"] is None
    assert abs(datetime.now(UTC) - datetime.fromisoformat(saved[0]["at"])) < timedelta(
        minutes=2
    )
    assert "suggested" not in saved[0]
    assert saved[0]["rejected"] == []  # of other labels nothing was said
    assert (saved[1]["labels"], saved[1]["rejected"]) == ([], None)
    first, second = read_as_training_data(path, rejected="rejected")
    assert (first.rejected_labels, second.rejected_labels) == ((), None)
    with running(model, annotations=path, queue=queue) as client:
        assert (
            client.post("/queue/next").json()["left"] == 3
        )  # what is annotated does not come again


REVIEW = {
    "suggested": [
        {"label": "fish", "score": 0.9, "predicted": True, "words": ["cod"]},
        {"label": "law", "score": 0.6, "predicted": True},
        {"label": "animal", "score": 0.2, "predicted": False},
        {"label": "steel", "score": 0.1, "predicted": False},
    ],
    "rejected": ["steel"],
    "seconds": 4.5,
    "version": "abc",
}
TWO = "anna a-token-of-some-length\nben another-token-of-length\n"


def test_a_record_says_who_made_what_of_which_suggestions(
    model: xmtc.Model, tmp_path: Path
) -> None:
    path, body = (
        tmp_path / "some.jsonl",
        {"id": "a", "text": "x", "labels": ["fish", "cod"], "review": REVIEW},
    )
    with running(model, annotations=path, token=TWO) as client:
        client.session.headers["Authorization"] = "Bearer a-token-of-some-length"
        assert client.post("/annotations", body).json() == {"id": "a", "saved": 1}
        assert (
            client.post("/annotations", body).status_code == 422
        )  # the same person again
        client.session.headers["Authorization"] = "Bearer another-token-of-length"
        assert client.post("/annotations", body).json() == {"id": "a~2", "saved": 2}
        client.session.headers["Authorization"] = "Bearer ben another-token-of-length"
        assert client.post("/annotations", body).status_code == 401
    first, second = [json.loads(line) for line in path.read_text().splitlines()]
    assert (first["by"], second["by"], second["document"]) == ("anna", "ben", "a")
    assert first["model"] == {"name": "sea-laws", "version": "abc"}
    assert first["suggested"][0] == {
        "label": "fish",
        "name": NAMES[2],
        "train_count": 40,
        **REVIEW["suggested"][0],
    }
    assert (first["accepted"], first["rejected"], first["seconds"]) == (
        ["fish"],
        ["steel"],  # of `law`, which was predicted, nothing was said
        4.5,
    )
    assert first["added"] == [{"label": "cod", "name": "Cod", "train_count": 2}]
    assert [one.doc_id for one in read_as_training_data(path)] == ["a", "a~2"]
    with running(model, annotations=path, user_header="X-User") as client:
        for name, status in (("ben", 422), ("anna", 422), ("", 422), ("çem", 200)):
            assert (
                client.post(
                    "/annotations", body, headers={"X-User": name.encode()}
                ).status_code
                == status
            ), name
        assert (
            client.post(
                "/annotations", {**body, "id": "b"}, headers={"X-User": ""}
            ).status_code
            == 200
        )
        assert (
            client.post(
                "/annotations", {**body, "id": "b"}, headers={"X-User": "çem".encode()}
            ).status_code
            == 422
        )
        for wrong, words in (
            (
                {"suggested": [{"label": "lav", "score": 0.5, "predicted": True}]},
                "no label 'lav'",
            ),
            ({"suggested": [{"label": "law", "score": 2, "predicted": True}]}, "score"),
            ({"suggested": [], "rejected": ["lav"]}, "no label 'lav'"),
            ({"suggested": [], "seconds": -1}, "seconds"),
            ({"suggested": []}, "no label is accepted or rejected"),
        ):
            refused = client.post(
                "/annotations", {"text": "x", "labels": [], "review": wrong}
            )
            assert (refused.status_code, words in refused.json()["detail"]) == (
                422,
                True,
            ), refused.json()
    assert [json.loads(line)["by"] for line in path.read_text().splitlines()] == [
        "anna",
        "ben",
        "çem",
        None,
    ]


def test_what_nobody_judged_is_no_rejection_in_training(
    model: xmtc.Model, tmp_path: Path
) -> None:
    path = tmp_path / "some.jsonl"
    with Annotations(path, model.labels) as annotations:
        annotations.save(
            [AnnotatedDocument("a", "x", ["fish"])], review={**REVIEW, "seconds": None}
        )
        annotations.save([AnnotatedDocument("b", "y", [])])
    reviewed, whole = read_as_training_data(path, "rejected")
    assert (reviewed.labels, reviewed.rejected_labels) == (("fish",), ("steel",))
    assert (whole.labels, whole.rejected_labels) == ((), None)


def test_where_a_document_has_one_label_the_chosen_one_rejects_the_others(
    model: xmtc.Model, tmp_path: Path
) -> None:
    with Annotations(
        tmp_path / "some.jsonl", model.labels, one_label=True
    ) as annotations:
        annotations.save(
            [AnnotatedDocument("a", "x", ["fish"])], review={**REVIEW, "rejected": []}
        )
    line = json.loads(annotations.path.read_text())
    assert (line["accepted"], line["rejected"]) == (
        ["fish"],
        ["law", "animal", "steel"],
    )


def test_suggestions_are_labels_however_they_are_written(tmp_path: Path) -> None:
    labels, path = ["caf\u00e9", "law"], tmp_path / "some.jsonl"
    suggested = [
        {"label": label, "score": 0.9, "predicted": False}
        for label in ("cafe\u0301", " law")
    ]
    review = {"suggested": suggested, "rejected": ["law\n"], "seconds": None}
    table = LabelTable(labels, labels, np.ones(2, np.int64))
    Annotations(path, table).save(
        [AnnotatedDocument(None, "a text", ["cafe\u0301"])], review=review
    )
    line = json.loads(path.read_text())
    assert [one["label"] for one in line["suggested"]] == labels
    assert (line["accepted"], line["rejected"], line["added"]) == (
        labels[:1],
        labels[1:],
        [],
    )


def test_documents_that_the_model_cannot_read_are_never_handed_out(
    model: xmtc.Model, tmp_path: Path
) -> None:
    (tmp_path / "queue.jsonl").write_text(
        '{"id": "a", "text": "\\u200b"}\n{"id": "b", "text": "fish"}\n'
    )
    with running(model, queue=tmp_path / "queue.jsonl") as client:
        while (found := client.post("/queue/next").json())["id"] is None:
            pass
        assert found == {"id": "b", "text": "fish", "left": 1, "waiting": 0}


def test_only_documents_held_are_handed_out_and_answers_say_which(
    model: xmtc.Model, tmp_path: Path
) -> None:
    expected = [one.expected.recall for one in model.predict(TEXTS)]
    bar = sorted(expected)[-2]
    queue = tmp_path / "queue.jsonl"
    queue.write_text(
        "".join(
            json.dumps({"id": f"q{i}", "text": text}) + "\n"
            for i, text in enumerate(TEXTS)
        )
    )
    with running(
        model, queue=queue, order="file", release=f"expected_recall>={bar - 1e-5:.6f}"
    ) as client:
        released = [value >= bar for value in expected]
        assert client.post("/predict", {"texts": TEXTS}).json()["release"] == released
        while client.post("/queue/next").json()["waiting"]:
            pass
        assert client.post("/queue/next").json()["left"] == released.count(False)
    with running(model) as client:
        assert client.post("/predict", {"texts": TEXTS}).json()["release"] == []


def found(label: str, score: float, predicted: bool) -> Prediction:
    return Prediction(label, score, label, predicted=predicted)


def test_orders(model: xmtc.Model) -> None:
    certain = [found("animal", 0.99, True), found("cod", 0.01, False)]
    torn = [found("animal", 0.55, True), found("law", 0.45, False)]
    silent = [found("law", 0.1, False), found("cod", 0.05, False)]
    uncertain, rare, file = (
        order_by(order, model.labels) for order in ("uncertain", "rare", "file")
    )
    assert uncertain(torn) == pytest.approx(-0.9)
    assert uncertain(certain) == pytest.approx(-0.02)
    assert [rare(one) for one in (certain, torn, silent)] == [90, 90, 60]
    assert rare([*certain, found("cod", 0.6, True)]) == 2
    assert file(torn) == file(certain)


def test_documents_are_handed_out_once_and_come_back() -> None:
    now = [0.0]
    worklist = Worklist({"a": "A", "b": "B", "c": "C"}, {"c"}, clock=lambda: now[0])
    assert worklist.next() is None
    assert worklist.waiting == 2
    worklist.rank("a", 1.0)
    worklist.rank("b", 0.0)
    assert worklist.next() == ("b", "B")
    assert worklist.next() == ("a", "A")
    assert worklist.next() is None
    now[0] = 601.0
    assert worklist.next() == ("b", "B")
    assert worklist.next(skip="b") == ("a", "A")
    worklist.done("b")
    worklist.done("a")
    assert len(worklist) == 0
    assert worklist.next(skip="a") is None


def test_skipped_documents_come_round_in_turn() -> None:
    worklist = Worklist({"a": "A", "b": "B", "c": "C"}, ())
    for rank, doc_id in enumerate("abc"):
        worklist.rank(doc_id, rank)
    shown, skip = [], None
    for _ in range(7):
        found = worklist.next(skip=skip)
        assert found is not None
        skip = found[0]
        shown.append(skip)
    assert shown == [*"abcabca"]


def test_queues_of_several_kinds(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("text,other\nfish,1\n")
    assert list(read_documents(tmp_path / "q.csv").values()) == ["fish"]
    (tmp_path / "q.jsonl").write_text('{"text": "fish"}\n{"text": "law", "id": 7}\n')
    assert sorted(read_documents(tmp_path / "q.jsonl").values()) == ["fish", "law"]
    for content, words in (
        (
            '{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n',
            "two documents have the id 'a'",
        ),
        ('{"id": "a", "text": "x"}\n{"id": "b"}\n', "q.jsonl:2: no column 'text'"),
        ("", "the file is empty"),
        (
            "".join(f'{{"id": {i}, "text": "x"}}\n' for i in range(MAX_DOCUMENTS + 1)),
            "more than 10,000 documents",
        ),
    ):
        (tmp_path / "q.jsonl").write_text(content)
        with pytest.raises(DataError, match=words):
            read_documents(tmp_path / "q.jsonl")


def test_a_queue_has_no_document_that_nobody_may_send(
    model: xmtc.Model, tmp_path: Path
) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"id": "a", "text": "fish " * 30_000}) + "\n")
    with pytest.raises(
        DataError,
        match=r"--queue .*q\.jsonl:1: .* 150,000 characters.*limits\.characters",
    ):
        Service(model, ServeConfig(queue=path))
    Service(model, ServeConfig(queue=path, limits=Limits(characters=150_000)))


def test_a_queue_may_be_a_folder(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"text": "fish {name}"}}\n')
    assert list(read_documents(tmp_path).values()) == ["fish a", "fish b"]
