"""A model of documents with two fields and a category goes through every path of the server."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import LABELS, TEXTS, Client, running

import xmtc
from xmtc.data.fields import FieldText, categories_of
from xmtc.data.readers.columns import ColumnsConfig, DocumentColumns
from xmtc.data.readers.table_config import TABLES, SplitFilesConfig
from xmtc.desk.annotate.annotations import Annotations
from xmtc.desk.annotate.worklist import read_documents
from xmtc.errors import ConfigError
from xmtc.predict.arguments import as_text
from xmtc.track.progress import Progress

TITLED = {"title": "On cod", "body": TEXTS[0], "type": ["Directive", "Notice"]}
COLUMNS = DocumentColumns(id="nr", text=("head", "body"), categories=("type",))
PARTS = st.text("a é\n", max_size=5).map(lambda part: part.rstrip("\n"))


@pytest.fixture
def fielded(model: xmtc.Model, monkeypatch: pytest.MonkeyPatch) -> xmtc.Model:
    info = replace(
        model.info, fields=("title", "body"), categories=("type",), columns=COLUMNS
    )
    monkeypatch.setattr(model.scorer, "info", info)
    return model


def read_back(path: Path) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Text, categories and labels of the annotations, as a source with training's columns reads them."""
    columns = ColumnsConfig(id="id", text=COLUMNS.text, categories=COLUMNS.categories)
    rows = list(
        TABLES[".jsonl"](files=SplitFilesConfig(train=str(path)), columns=columns)
        .build()
        .read(map, Progress(enabled=False))
    )
    return [(row.text, categories_of(row.text), row.labels) for row in rows]


@given(
    st.tuples(PARTS, PARTS, PARTS),
    st.lists(st.sampled_from("x=y"), max_size=2, unique=True),
)
def test_cells_are_the_document(parts: tuple[str, ...], values: list[str]) -> None:
    columns = DocumentColumns(text=("a", "b", "c"), categories=("k", "l"))
    text = as_text(
        dict(zip("abc", parts, strict=True)) | {"k": values},
        tuple("abc"),
        categories=("k", "l"),
    )
    assert isinstance(text, FieldText)
    again = as_text(columns.cells(text), tuple("abc"), categories=("k", "l"))
    assert isinstance(again, FieldText)
    assert (again, again.ends, again.categories) == (text, text.ends, text.categories)


def test_annotations_are_training_data_with_fields(
    fielded: xmtc.Model, tmp_path: Path
) -> None:
    path = tmp_path / "some.jsonl"
    with running(fielded, annotations=path) as client:
        for text in (TITLED, "steel"):
            assert (
                client.post(
                    "/annotations", {"text": text, "labels": ["cod"]}
                ).status_code
                == 200
            )
        refused = client.post("/annotations", {"text": {"body": "x"}, "labels": []})
        assert (
            refused.status_code,
            "has no field 'title'" in refused.json()["detail"],
        ) == (422, True)
        learned = [
            {
                "text": "sea",
                "metadata": {"title": "On", "type": "Notice"},
                "subjects": [{"uri": "law"}],
            }
        ]
        assert client.post("/v1/projects/sea-laws/learn", learned).status_code == 204
    assert read_back(path) == [
        (f"On cod\n{TEXTS[0]}", ("type=Directive", "type=Notice"), ("cod",)),
        ("steel", (), ("cod",)),
        ("On\nsea", ("type=Notice",), ("law",)),
    ]
    assert "text" not in json.loads(path.read_text().splitlines()[0])


def test_a_column_that_annotations_use_themselves_is_refused(
    model: xmtc.Model, tmp_path: Path
) -> None:
    columns = DocumentColumns(text=("text",), categories=("model",))
    with pytest.raises(ConfigError, match="'model' is a key of annotations"):
        Annotations(tmp_path / "some.jsonl", model.labels, columns=columns)


def test_annif_gives_fields_as_metadata(
    fielded: xmtc.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    tokenise = fielded.scorer.tokenise
    monkeypatch.setattr(
        fielded.scorer, "tokenise", lambda texts: asked.extend(texts) or tokenise(texts)
    )
    one = {
        "text": TEXTS[0],
        "metadata": {"title": "On cod", "type": "Directive", "author": "x"},
    }
    with running(fielded) as client:
        asked.clear()
        answer = client.post(
            "/v1/projects/sea-laws/suggest-batch",
            {"documents": [one, {"text": "steel"}]},
        )
        plain = client.post("/v1/projects/sea-laws/suggest", data={"text": "steel"})
        form = {"text": TEXTS[0]} | {
            f"metadata_{name}": value for name, value in one["metadata"].items()
        }
        alone = client.post("/v1/projects/sea-laws/suggest", data=form)
    assert [
        (text, getattr(text, "ends", ()), categories_of(text)) for text in asked
    ] == [
        (f"On cod\n{TEXTS[0]}", (7, 7 + len(TEXTS[0])), ("type=Directive",)),
        *[("steel", (0, 5), ())] * 2,
        (f"On cod\n{TEXTS[0]}", (7, 7 + len(TEXTS[0])), ("type=Directive",)),
    ]
    assert alone.json() == {"results": answer.json()[0]["results"]}
    (expected,) = fielded.predict([TITLED | {"type": "Directive"}], top_k=10)
    assert [found["uri"] for found in answer.json()[0]["results"]] == [
        found.label for found in expected
    ]
    uris = [
        [found["uri"] for found in results]
        for results in (answer.json()[1]["results"], plain.json()["results"])
    ]
    assert uris[0] == uris[1]


def next_document(client: Client) -> dict:
    while (found := client.post("/queue/next").json())["waiting"]:
        pass
    return found if found["id"] is not None else client.post("/queue/next").json()


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_a_queue_hands_out_fields_for_predict_and_annotations(
    fielded: xmtc.Model, tmp_path: Path, kind: str
) -> None:
    queue, path = tmp_path / f"queue.{kind}", tmp_path / "some.jsonl"
    row = {"id": "q", "head": TITLED["title"], "body": TITLED["body"]}
    if kind == "csv":
        pd.DataFrame([row | {"type": str(TITLED["type"])}]).to_csv(queue, index=False)
    elif kind == "parquet":
        pd.DataFrame([row | {"type": TITLED["type"]}]).to_parquet(queue)
    else:
        queue.write_text(json.dumps(row | {"type": TITLED["type"]}) + "\n")
    with running(fielded, annotations=path, queue=queue) as client:
        found = next_document(client)
        assert (found["id"], found["text"]) == ("q", TITLED)
        assert client.post("/predict", {"texts": [found["text"]]}).status_code == 200
        client.post(
            "/annotations",
            {
                "id": "q",
                "text": found["text"],
                "labels": [],
                "complete": True,
            },
        )
        assert client.post("/queue/next").json()["left"] == 0
    assert read_back(path) == [
        (f"On cod\n{TEXTS[0]}", ("type=Directive", "type=Notice"), ())
    ]


def test_a_queue_may_lack_categories_or_have_only_texts(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("head,body\nA,fish\n,steel\n")
    assert list(read_documents(tmp_path / "q.csv", COLUMNS).values()) == [
        "A\nfish",
        "steel",
    ]
    (tmp_path / "q.csv").write_text("text,type\nfish,Notice\n")
    (text,) = read_documents(tmp_path / "q.csv", COLUMNS).values()
    assert (text, categories_of(text)) == ("fish", ("type=Notice",))


def test_documents_of_a_queue_have_the_ids_of_training(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("nr,head,body\n7,A,fish\n")
    assert list(read_documents(tmp_path / "q.csv", COLUMNS)) == ["7"]
    (tmp_path / "q.csv").write_text("nr,id,text\n7,8,fish\n")
    assert list(read_documents(tmp_path / "q.csv", COLUMNS)) == ["7"]
    assert list(read_documents(tmp_path / "q.csv", DocumentColumns())) == ["8"]


def test_labels_are_found_by_names_in_other_languages(
    model: xmtc.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    german = ["Tiere", "Kabeljau", "", "Recht", "Steuerrecht", "Stahl"]
    monkeypatch.setattr(
        model.scorer, "labels", replace(model.labels, translations={"de": german})
    )
    with running(model) as client:
        assert client.get("/model").json()["languages"] == ["de"]
        found = client.get(
            "/labels", params={"query": "kabel", "language": "de"}
        ).json()["labels"]
        assert [(one["label"], one["name"]) for one in found] == [("cod", "Kabeljau")]
        assert len(client.get("/labels").json()["labels"]) == len(LABELS)
