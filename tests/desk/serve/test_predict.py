"""Answers are the model's own, however requests meet in a batch."""

import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served import NAMES, TEXTS, Client, running

import xmtc
from xmtc.artefact.profile import Profile
from xmtc.data.labels import LabelTable
from xmtc.desk.serve import label_search
from xmtc.desk.serve.hierarchy import broader_names
from xmtc.desk.serve.label_search import LabelSearch
from xmtc.predict.statistics import of_tokens, token_bits


def rows(predictions):
    return [
        {
            "label": one.label,
            "name": one.name,
            "score": pytest.approx(one.score, abs=1e-4),
            "predicted": one.predicted,
            "evidence": [
                {
                    "text": word.text,
                    "contribution": pytest.approx(word.contribution, abs=1e-4),
                    "start": word.start,
                    "end": word.end,
                    "field": "",
                    "kind": "word",
                }
                for word in one.evidence
            ],
        }
        for one in predictions
    ]


REQUESTS = [
    {"texts": TEXTS},
    {"texts": TEXTS[:1], "top_k": 2},
    {"texts": TEXTS[1:3], "threshold": "tuned"},
    {"texts": TEXTS[2:], "threshold": 0.5, "top_k": 4},
    {"texts": TEXTS[:2], "evidence": True, "top_k": 3},
    {"texts": TEXTS, "include": ["branch:animal"]},
    {
        "texts": TEXTS[:1],
        "include": ["branch:animal", "law"],
        "exclude": ["cod"],
        "top_k": 2,
    },
    {"texts": TEXTS, "exclude": ["branch:industry"]},
    {"texts": [{"text": text} for text in TEXTS]},
]


@pytest.mark.parametrize("body", REQUESTS, ids=lambda body: ",".join(body))
def test_answers_are_the_models(client: Client, model: xmtc.Model, body) -> None:
    answer = client.post("/predict", body)
    assert answer.status_code == 200
    texts, *options = body.items()
    expected = model.predict(texts[1], **dict(options))
    found = [
        {
            key: None if value is None else round(value, 6)
            for key, value in one.expected._asdict().items()
        }
        for one in expected
    ]
    assert answer.json()["expected"] == [pytest.approx(one, abs=1e-4) for one in found]
    assert answer.json() | {"expected": []} == {
        "model": "sea-laws",
        "version": "",
        "vocabulary": model.labels.version,
        "rule": "micro",
        "predictions": [rows(one) for one in expected],
        "expected": [],
        "release": [],
        "broader": {},
    }


def test_the_place_in_the_hierarchy_is_told(client: Client) -> None:
    answer = client.post(
        "/predict", {"texts": TEXTS[:1], "top_k": 6, "hierarchy": True}
    ).json()
    assert answer["broader"] == {
        "cod": ["Animals", "Fish and other sea animals"],
        "fish": ["Animals"],
        "law/tax": ["Law"],
        "steel": ["industry"],
    }
    (found,) = client.get("/labels", params={"query": "cod"}).json()["labels"]
    assert found["broader"] == answer["broader"]["cod"]


def test_a_hierarchy_with_a_cycle_has_an_end(model: xmtc.Model) -> None:
    table = replace(
        model.labels, parents=[("cod",), ("fish",), ("animal",), (), (), ()]
    )
    assert set(broader_names(table, 0, table.names)) == set(NAMES[:3])
    assert broader_names(replace(table, parents=None), 0, table.names) == []


def test_batches_mix_requests_and_a_bad_one_spoils_only_itself(
    client: Client, model: xmtc.Model
) -> None:
    bodies = [
        *REQUESTS,
        {"texts": ["\u200b"]},
        {"texts": ["a"], "include": ["no such label"]},
    ] * 4
    random.Random(0).shuffle(bodies)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda body: client.post("/predict", body), bodies))
    for body, answer in zip(bodies, answers, strict=True):
        if body in REQUESTS:
            texts, *options = body.items()
            expected = [rows(one) for one in model.predict(texts[1], **dict(options))]
            assert answer.json()["predictions"] == expected
        else:
            assert answer.status_code == 422
            said = answer.json()["detail"]
            assert "text 0 has no tokens" in said or "no label 'no such label'" in said
    sizes = client.get("/metrics").text
    found = re.search(r"xmtc_batch_texts_count ([\d.]+)", sizes)
    assert found
    assert float(found[1]) < len(bodies) + len(REQUESTS), "some requests shared a batch"


def test_what_is_served(client: Client, model: xmtc.Model) -> None:
    about = client.get("/model").json()
    assert about == {
        "model": "sea-laws",
        "version": "",
        "vocabulary": model.labels.version,
        "rule": "micro",
        "task": "multi_label",
        "labels": 6,
        "xmtc": xmtc.__version__,
        "annotations": False,
        "queue": False,
        "evidence": True,
        "fields": ["text"],
        "categories": [],
        "hierarchy": True,
        "category_values": {},
        "languages": [],
    }
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    assert (
        client.post("/annotations", {"text": "a", "labels": ["law"]}).status_code == 403
    )
    assert client.post("/queue/next").status_code == 404
    paths = client.get("/openapi.json").json()["paths"]
    assert {
        "/predict",
        "/labels",
        "/health",
        "/ready",
        "/metrics",
        "/annotations",
        "/v1/projects",
    } <= set(paths)
    for answers in (
        one["responses"] for verbs in paths.values() for one in verbs.values()
    ):
        assert answers.keys() - {"4XX", "5XX"} in ({"200"}, {"204"})
        assert (
            "detail"
            in answers["4XX"]["content"]["application/problem+json"]["schema"][
                "properties"
            ]
        )


def test_metrics_and_errors_hold_no_text(client: Client) -> None:
    client.post("/predict", {"texts": ["a secret diagnosis"]})
    client.get("/secret-path")
    metrics, end = "", time.monotonic() + 20
    while (
        'route="none",status="404"' not in metrics and time.monotonic() < end
    ):  # counted after the answer
        metrics = client.get("/metrics").text
    assert 'route="none",status="404"' in metrics
    assert 'xmtc_requests_total{route="/predict",status="200"}' in metrics
    assert "secret" not in metrics
    refused = client.post("/predict", {"texts": ["a secret diagnosis", 3], "secret": 1})
    assert refused.status_code == 422
    assert "diagnosis" not in refused.text


def test_answers_have_headers_that_keep_a_browser_safe(client: Client) -> None:
    for path in ("/", "/docs", "/model", "/nothing", "/assets/label.js"):
        headers = client.get(path).headers
        assert headers["Content-Security-Policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == (
            "nosniff",
            "no-referrer",
        )


def test_a_language_without_names_is_named(client: Client) -> None:
    body = {"texts": TEXTS[:1], "language": "xx"}
    for answer in (client.post("/predict", body), client.get("/labels?language=xx")):
        assert answer.status_code == 422
        assert "no label has a name in the language 'xx'" in answer.text


def test_labels_are_found_by_parts_of_id_and_name(client: Client) -> None:
    def found(query: str, limit: int = 9) -> list[str]:
        answer = client.get("/labels", params={"query": query, "limit": limit})
        return [one["label"] for one in answer.json()["labels"]]

    assert found("FISH") == ["fish"]
    assert found("animals") == ["animal", "fish"]
    assert found("law") == ["law", "law/tax"]
    assert found("  sea   animals ") == ["fish"]
    assert found("") == ["animal", "law", "fish", "steel", "law/tax", "cod"]
    assert found("", 2) == ["animal", "law"]
    assert found("whale\n") == []
    assert client.get("/labels", params={"limit": 0}).status_code == 422


PARTS = st.text(st.sampled_from("abA é\u00df\t"), max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(PARTS.filter(str.strip), min_size=1, max_size=8, unique=True), PARTS)
def test_the_search_finds_what_a_scan_finds(labels: list[str], query: str) -> None:
    table = LabelTable(
        labels, [label.upper() for label in labels], np.arange(len(labels))
    )
    wanted = " ".join(query.casefold().split())
    lines = [
        [" ".join(part.casefold().split()) for part in (label, label.upper())]
        for label in labels
    ]
    expected = {
        row for row, parts in enumerate(lines) if any(wanted in part for part in parts)
    }
    assert set(LabelSearch(table).find(query, 99)) == (
        expected if wanted else set(range(len(labels)))
    )


def test_an_exact_match_is_found_among_very_many_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(label_search, "_MAX_OCCURRENCES", 3)
    labels = [
        *(f"x a{number}" for number in range(9)),
        *(f"a{number}" for number in range(9)),
        "a",
    ]
    search = LabelSearch(LabelTable(labels, [""] * 19, np.arange(19)[::-1]))
    composed = LabelSearch(LabelTable(["caf\u00e9"], [""], np.ones(1, np.int64)))
    assert composed.find("Cafe\u0301", 5) == composed.find("caf\u00e9", 5) == [0]
    assert search.find("a", 3) == [18, 9, 10]


def test_metrics_measure_texts_and_answers(model: xmtc.Model) -> None:
    bits_V = token_bits(np.arange(len(model.scorer.tokenizer)))
    profile = model.profile = Profile(
        bits_V, {"bits": np.array([10.0, 12.0], np.float32)}, {}
    )
    try:
        with running(model) as client:
            client.post("/predict", {"texts": TEXTS[:2]})
            client.post("/predict", {"texts": TEXTS[2:], "evidence": True})
            client.post(
                "/predict", {"texts": TEXTS, "exclude": ["cod"]}
            )  # says nothing of the model
            lines = dict(
                line.rsplit(" ", 1) for line in client.get("/metrics").text.splitlines()
            )
    finally:
        model.profile = None
    found = of_tokens(profile, model.scorer.tokenise(TEXTS).ids_N)
    assert float(lines["xmtc_text_bits_count"]) == len(TEXTS)
    assert float(lines["xmtc_text_bits_sum"]) == pytest.approx(
        found["bits"].sum(), rel=1e-5
    )
    assert float(lines["xmtc_text_tokens_sum"]) == found["tokens"].sum()
    assert float(lines['xmtc_text_dev{model="sea-laws",statistic="bits"}']) == 11
    expected = sum(one.expected.recall for one in model.predict(TEXTS))
    assert float(lines["xmtc_text_expected_recall_sum"]) == pytest.approx(
        expected, abs=1e-4
    )
    predicted = sum(one.predicted for best in model.predict(TEXTS, 50) for one in best)
    assert (
        sum(
            float(value)
            for name, value in lines.items()
            if name.startswith("xmtc_predicted_total")
        )
        == predicted
    )


def test_documents_may_have_categories(served_folder: Path):
    model = xmtc.Model.from_pretrained(served_folder, device="cpu")
    model.scorer.info = replace(model.info, categories=("kind", "ward"))
    document = {"text": "fish of the sea"}
    given = [
        document,
        document | {"kind": "law", "ward": [3, None, True]},
        document | {"kind": None, "other": 1.5},
    ]
    with running(model) as client:
        assert client.get("/model").json()["categories"] == ["kind", "ward"]
        answers = client.post("/predict", {"texts": given}).json()["predictions"]
        bad = [
            client.post("/predict", {"texts": [one]})
            for one in ({"text": 3}, document | {"kind": [[1]]})
        ]
    model.scorer.info = replace(model.info, categories=())
    plain, joined = model.predict(
        ["fish of the sea", "law\n3\nTrue\nfish of the sea"], top_k=1
    )
    assert [(one[0]["label"], one[0]["score"]) for one in answers] == [
        (one[0].label, pytest.approx(one[0].score, abs=1e-6))
        for one in (plain, joined, plain)
    ]
    assert [one.status_code for one in bad] == [422, 422]
