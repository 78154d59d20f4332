"""Annif's own client works unchanged, and answers have the fields of Annif's published description."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import requests
from annif_client import AnnifClient
from served import LABELS, TEXTS, running

import xmtc
from xmtc.artefact.profile import Profile


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("annif") / "learned.jsonl"


@pytest.fixture(scope="module")
def server(model: xmtc.Model, learned: Path):
    with running(model, annotations=learned) as client:
        yield client


@pytest.fixture
def annif(server, monkeypatch) -> AnnifClient:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return AnnifClient(api_base=f"{server.place}/v1/")


def test_projects(annif: AnnifClient) -> None:
    assert set(annif.api_info) == {"title", "version"}
    (project,) = annif.projects
    assert annif.get_project("sea-laws") == project
    assert {"project_id", "name", "language", "backend", "vocab", "is_trained"} <= set(
        project
    )
    assert project["backend"]["backend_id"] == "xmtc"
    assert project["vocab"]["size"] == len(LABELS)
    with pytest.raises(ValueError, match="Project 'other' not found"):
        annif.get_project("other")


def test_suggestions_are_the_models(annif: AnnifClient, model: xmtc.Model) -> None:
    (expected,) = model.predict(TEXTS[:1], top_k=10)
    results = annif.suggest("sea-laws", TEXTS[0])
    assert [one["uri"] for one in results] == [one.label for one in expected]
    assert [one["label"] for one in results] == [one.name for one in expected]
    assert [one["score"] for one in results] == pytest.approx(
        [one.score for one in expected], abs=1e-4
    )
    assert all(set(one) == {"uri", "label", "notation", "score"} for one in results)
    limit = expected[2].score
    assert annif.suggest("sea-laws", TEXTS[0], limit=2) == results[:2]
    assert annif.suggest("sea-laws", TEXTS[0], threshold=limit - 1e-4) == results[:3]
    assert annif.suggest("sea-laws", TEXTS[0], limit=0) == []
    documents = [{"text": text, "document_id": f"d{i}"} for i, text in enumerate(TEXTS)]
    batch = annif.suggest_batch("sea-laws", documents, limit=3)
    assert [one["document_id"] for one in batch] == ["d0", "d1", "d2", "d3"]
    assert [hit["uri"] for hit in batch[0]["results"]] == [
        hit["uri"] for hit in results[:3]
    ]
    assert (
        annif.suggest_batch("sea-laws", [{"text": "steel"}])[0]["document_id"] is None
    )
    unreadable = [{"text": text} for text in ("", TEXTS[0], " \n", "\u200b", "\0")]
    answers = annif.suggest_batch("sea-laws", unreadable, limit=3)
    hits = [[hit["uri"] for hit in one["results"]] for one in answers]
    assert hits == [[], [hit["uri"] for hit in batch[0]["results"]], [], [], []]
    assert annif.suggest("sea-laws", " ") == []


def test_names_are_in_the_language_of_the_reader(
    server, annif: AnnifClient, model: xmtc.Model, monkeypatch
) -> None:
    german = ["Tiere", "Kabeljau", "", "Recht", "Steuerrecht", "Stahl"]
    monkeypatch.setattr(
        model.scorer, "labels", replace(model.labels, translations={"de": german})
    )
    assert annif.projects[0]["vocab"]["languages"] == ["de"]
    place = f"{server.place}/v1/projects/sea-laws"
    one = server.session.post(
        f"{place}/suggest", data={"text": TEXTS[0], "language": "de"}
    )
    names = {found["uri"]: found["label"] for found in one.json()["results"]}
    assert (names["cod"], names["fish"]) == ("Kabeljau", "Fish and other sea animals")
    batch = server.session.post(
        f"{place}/suggest-batch?language=de", json={"documents": [{"text": TEXTS[0]}]}
    )
    assert batch.json()[0]["results"] == one.json()["results"]
    unknown = server.session.post(
        f"{place}/suggest", data={"text": TEXTS[0], "language": "fi"}
    )
    assert (
        unknown.status_code,
        "no label has a name in the language 'fi'" in unknown.text,
    ) == (400, True)


def test_learning_goes_to_the_annotations(
    annif: AnnifClient, server, learned: Path
) -> None:
    documents = [
        {"text": "On taxes.", "subjects": [{"uri": "law/tax", "label": "Tax law"}]},
        {"text": "On nothing.", "subjects": []},
    ]
    assert annif.learn("sea-laws", documents).status_code == 204
    saved = [json.loads(line) for line in learned.read_text().splitlines()]
    assert [(one["text"], one["labels"]) for one in saved] == [
        ("On taxes.", ["law/tax"]),
        ("On nothing.", []),
    ]
    refused = server.post(
        "/v1/projects/sea-laws/learn", [{"text": "x", "subjects": [{"uri": "unknown"}]}]
    )
    assert refused.status_code == 400
    assert "document 0: no label 'unknown'" in refused.json()["detail"]
    repeated = b'[{"text": "x", "subjects": [], "subjects": [{"uri": "cod"}]}]'
    place = f"{server.place}/v1/projects/sea-laws/learn"
    refused = server.session.post(
        place, data=repeated, headers={"Content-Type": "application/json"}, timeout=30
    )
    assert (refused.status_code, "the key 'subjects' occurs twice" in refused.text) == (
        400,
        True,
    )


def test_learning_without_annotations_is_forbidden(client) -> None:
    assert client.post("/v1/projects/sea-laws/learn", []).status_code == 403


@pytest.mark.parametrize(
    ("path", "options", "status"),
    [
        ("suggest", {"data": {}}, 400),
        ("suggest", {"data": {"text": ""}}, 400),
        ("suggest", {"data": {"text": "a", "limit": -1}}, 400),
        ("suggest", {"data": {"text": "a", "threshold": 2}}, 400),
        ("suggest", {"data": {"text": "a" * 100_001}}, 413),
        ("suggest-batch", {"json": {"documents": [{"text": "a"}] * 33}}, 400),
        ("suggest-batch", {"json": {}}, 400),
        ("learn", {"json": {"text": "a"}}, 400),
    ],
)
def test_bad_requests_are_what_annif_says(
    server, path: str, options, status: int
) -> None:
    answer = requests.post(
        f"{server.place}/v1/projects/sea-laws/{path}", timeout=30, **options
    )
    assert answer.status_code == status
    assert set(answer.json()) == {"type", "title", "status", "detail"}
    assert json.loads(answer.text)["status"] == status


def test_notations_of_the_vocabulary_are_returned(
    server, annif: AnnifClient, model: xmtc.Model, monkeypatch
) -> None:
    notations = ["59", "", "59.1", "34", "34.5", "66"]
    monkeypatch.setattr(
        model.scorer, "labels", replace(model.labels, notations=notations)
    )
    results = annif.suggest("sea-laws", TEXTS[0])
    found = {one["uri"]: one["notation"] for one in results}
    assert found == dict(
        zip(LABELS, ["59", "cod", "59.1", "34", "34.5", "66"], strict=True)
    )


def test_the_language_of_a_model_is_that_of_most_of_its_texts(
    annif: AnnifClient, model: xmtc.Model
) -> None:
    assert annif.projects[0]["language"] == "und"
    try:
        for languages, expected in (
            ({"en": 80, "de": 20}, "en"),
            ({"en": 5, "de": 5}, "und"),
            ({"unknown": 9}, "und"),
        ):
            model.profile = Profile(
                np.zeros(3, np.float32), {}, {"languages": languages}
            )
            assert annif.projects[0]["language"] == expected
    finally:
        model.profile = None


def test_languages_are_detected(annif: AnnifClient) -> None:
    text = "Die Fischerei auf Kabeljau wird in diesem Gesetz geregelt und besteuert."
    results = annif.detect_language(text, ["en", "de", "fi"])["results"]
    assert results[0]["language"] == "de"
    assert results[0]["score"] > 0.9
    assert {one["language"] for one in results} == {"en", "de", "fi", None}
    assert sum(one["score"] for one in results) == pytest.approx(1, abs=1e-4)
    with pytest.raises(requests.HTTPError):
        annif.detect_language(text, ["xx"])
