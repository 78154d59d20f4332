"""Every bad body gets a 4xx that says what is wrong, never a 5xx, and never its own text back."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import Client, running

import xmtc
from xmtc.desk.config import Limits

SECRET = "whatthepatientsaid"
LIMITS = Limits(texts=3, characters=200, body_bytes=8192)
LONG = SECRET * 20


@pytest.fixture(scope="module")
def strict(model: xmtc.Model):
    with (
        pytest.MonkeyPatch.context() as patched,
        running(model, limits=LIMITS) as client,
    ):
        patched.setattr("xmtc.desk.serve.app.MAX_TOP_K", 50)
        patched.setattr("xmtc.desk.serve.app._FILTER_ENTRIES", 4)
        yield client


def send(client: Client, data: bytes, kind: str = "application/json"):
    return client.session.post(
        f"{client.place}/predict", data=data, headers={"Content-Type": kind}, timeout=30
    )


BAD = {
    "nothing": (b"", 422, "Field required"),
    "no JSON": (SECRET.encode(), 422, "not valid JSON"),
    "half of it": (b'{"texts": ["', 422, "not valid JSON"),
    "trailing": (b'{"texts": ["a"]} x', 422, "not valid JSON"),
    "single quotes": (b"{'texts': ['a']}", 422, "not valid JSON"),
    "a list": (b'["a"]', 422, "valid dictionary"),
    "a string": (b'"a"', 422, "valid dictionary"),
    "a number": (b"1", 422, "valid dictionary"),
    "null": (b"null", 422, "valid dictionary"),
    "empty object": (b"{}", 422, "texts: Field required"),
    "no texts": (b'{"texts": []}', 422, "texts: List should have at least 1 item"),
    "one text": (b'{"texts": "a"}', 422, "texts: Input should be a valid list"),
    "texts null": (b'{"texts": null}', 422, "texts"),
    "an object": (b'{"texts": {"0": "a"}}', 422, "texts"),
    "a number among texts": (
        b'{"texts": ["a", 3]}',
        422,
        "texts.1.text: Input should be a valid string",
    ),
    "null among texts": (b'{"texts": [null]}', 422, "texts.0"),
    "a list among texts": (b'{"texts": [["a"]]}', 422, "texts.0"),
    "an empty text": (b'{"texts": [""]}', 422, "text 0 is empty: leave it out"),
    "blanks": (b'{"texts": [" \\n\\t"]}', 422, "text 0 is empty"),
    "no token": ('{"texts": ["a", "\u200b"]}'.encode(), 422, "text 1 has no tokens"),
    "half a character": (b'{"texts": ["\\ud83d"]}', 422, "half of a character"),
    "not UTF-8": (b'{"texts": ["\xff\xfe"]}', 400, "error parsing the body"),
    "UTF-16": (
        '{"texts": ["a"], "top_k": 0}'.encode("utf-16"),
        400,
        "not JSON in UTF-8",
    ),
    "too many": (
        json.dumps({"texts": ["a"] * 4}).encode(),
        413,
        "4 texts, more than 3",
    ),
    "too long": (
        json.dumps({"texts": ["a", LONG]}).encode(),
        413,
        "text 1 has 360 characters, more than 200",
    ),
    "too large": (
        json.dumps({"texts": [LONG * 30]}).encode(),
        413,
        "more than 8,192 bytes",
    ),
    "a spelling": (b'{"texts": ["a"], "topk": 3}', 422, "topk: there is no such field"),
    "a key twice": (
        b'{"texts": ["a"], "top_k": 1, "top_k": 5}',
        400,
        "the key 'top_k' occurs twice",
    ),
    "a field twice": (
        b'{"texts": [{"text": "a", "text": "b"}]}',
        400,
        "the key 'text' occurs twice",
    ),
    "top_k 0": (
        b'{"texts": ["a"], "top_k": 0}',
        422,
        "top_k: Input should be greater than or equal to 1",
    ),
    "top_k negative": (b'{"texts": ["a"], "top_k": -1}', 422, "top_k"),
    "top_k half": (b'{"texts": ["a"], "top_k": 1.5}', 422, "top_k"),
    "top_k text": (
        b'{"texts": ["a"], "top_k": "3"}',
        422,
        "top_k: Input should be a valid integer",
    ),
    "top_k true": (b'{"texts": ["a"], "top_k": true}', 422, "top_k"),
    "top_k huge": (b'{"texts": ["a"], "top_k": 51}', 413, "ask for at most 50"),
    "top_k beyond": (
        b'{"texts": ["a"], "top_k": ' + b"9" * 400 + b"}",
        413,
        "ask for at most 50",
    ),
    "top_k endless": (
        b'{"texts": ["a"], "top_k": ' + b"9" * 5000 + b"}",
        400,
        "error parsing the body",
    ),
    "threshold 2": (b'{"texts": ["a"], "threshold": 2}', 422, "threshold"),
    "threshold NaN": (b'{"texts": ["a"], "threshold": NaN}', 422, "threshold"),
    "threshold word": (
        b'{"texts": ["a"], "threshold": "high"}',
        422,
        "not a rule: give micro",
    ),
    "evidence 1": (
        b'{"texts": ["a"], "evidence": 1}',
        422,
        "evidence: Input should be a valid boolean",
    ),
    "evidence yes": (b'{"texts": ["a"], "evidence": "yes"}', 422, "evidence"),
    "include a string": (
        b'{"texts": ["a"], "include": "law"}',
        422,
        "include: Input should be a valid list",
    ),
    "include nothing": (b'{"texts": ["a"], "include": []}', 422, "leave no label"),
    "include unknown": (
        b'{"texts": ["a"], "include": ["lav"]}',
        422,
        "include: no label 'lav' among the model's 6",
    ),
    "branch unknown": (
        b'{"texts": ["a"], "exclude": ["branch:x"]}',
        422,
        "exclude: branch:x: neither",
    ),
    "include numbers": (b'{"texts": ["a"], "include": [1]}', 422, "include.0"),
    "exclude null": (b'{"texts": ["a"], "exclude": null}', 422, "exclude"),
    "exclude all": (
        b'{"texts": ["a"], "include": ["law"], "exclude": ["law"]}',
        422,
        "leave no label",
    ),
    "too many filters": (
        json.dumps({"texts": ["a"], "include": ["law"] * 5}).encode(),
        413,
        "more than 4 entries",
    ),
    "deep": (b"[" * 8000, 400, "error parsing the body"),
    "deep inside": (b'{"texts": ' + b'{"a":' * 1500 + b"1" + b"}" * 1500 + b"}", 4, ""),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_bodies(strict: Client, name: str) -> None:
    data, status, words = BAD[name]
    answer = send(strict, data)
    assert answer.status_code == status or answer.status_code // 100 == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert words in answer.json()["detail"]
    assert SECRET not in answer.text
    assert len(answer.content) < 2000


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ],
)
def test_other_kinds_of_bodies(strict: Client, kind: str) -> None:
    assert send(strict, b'{"texts": ["a"]}', kind).status_code == 415


def test_methods_and_paths(strict: Client) -> None:
    refused = strict.get("/predict")
    assert refused.status_code == 405
    assert refused.headers["Allow"] == "POST"
    assert strict.post("/labels").status_code == 405
    assert strict.post("/nothing", {}).status_code == 404
    assert strict.get("/assets/../config.py").status_code == 404
    assert strict.get("/assets/%2e%2e%2fconfig.py").status_code == 404


def test_unknown_query_parameters(strict: Client) -> None:
    answer = strict.get("/labels?limits=3")
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(
        "limits: no query parameter here; known: language, limit, "
    )
    answer = strict.post("/predict?top_k=3", {"texts": ["fish"]})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("top_k: no query parameter here")
    for path in ("/ready?probe=1", "/labels?limit=3&query=law"):
        assert strict.get(path).status_code == 200


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.just(SECRET),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "texts": st.lists(st.text(max_size=8) | st.just("fish"), max_size=4) | JSON,
        "top_k": st.integers(-2, 60) | JSON,
        "threshold": st.floats() | st.just("tuned") | JSON,
        "evidence": st.booleans() | JSON,
        "include": st.none()
        | st.lists(st.sampled_from(["law", "branch:animal", "x"]), max_size=5)
        | JSON,
        "exclude": st.lists(st.sampled_from(["law", "branch:animal", "x"]), max_size=5)
        | JSON,
        "other": JSON,
    },
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(body=FIELDS | JSON)
def test_every_request_is_answered_or_refused(strict: Client, body) -> None:
    answer = send(strict, json.dumps(body).encode())
    assert answer.status_code in (200, 400, 413, 422)
    if answer.status_code == 200:
        assert len(answer.json()["predictions"]) == len(body["texts"])
    else:
        assert answer.json()["detail"]


@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    data=st.binary(max_size=60),
    kind=st.sampled_from(["application/json", "text/plain", "x", ""]),
)
def test_any_bytes(strict: Client, data: bytes, kind: str) -> None:
    assert send(strict, data, kind).status_code in (400, 415, 422)


HALF = "\\ud83d"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict", f'{{"texts": ["a"], "include": ["{HALF}"]}}'),
        ("/predict", f'{{"texts": ["a"], "language": "{HALF}"}}'),
        ("/predict", f'{{"texts": [{{"{HALF}": "a"}}]}}'),
        ("/predict", f'{{"texts": ["a"], "{HALF}": 1}}'),
        ("/annotations", f'{{"text": "a", "labels": ["{HALF}"]}}'),
        ("/annotations", f'{{"text": "a", "labels": ["cod"], "id": "{HALF}"}}'),
        ("/models/sea-laws", f'{{"version": "{HALF}"}}'),
        (
            "/v1/projects/sea-laws/suggest-batch",
            f'{{"documents": [{{"text": "a", "document_id": "{HALF}"}}]}}',
        ),
        (
            "/v1/projects/sea-laws/learn",
            f'[{{"text": "a", "subjects": [{{"uri": "cod", "label": "{HALF}"}}]}}]',
        ),
    ],
)
def test_half_characters_are_refused_wherever_they_stand(
    strict: Client, path: str, body: str
) -> None:
    answer = strict.session.post(
        strict.place + path,
        data=body.encode(),
        headers={"Content-Type": "application/json"},
        timeout=30,
    )
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["detail"]


@pytest.mark.parametrize("name", ["text", "language", "metadata_x", "metadata_{}"])
def test_half_characters_in_forms_are_refused(strict: Client, name: str) -> None:
    value = b"\\ud83d"
    part = f'--x\r\nContent-Disposition: form-data; name="{name.format(HALF)}"\r\n\r\n'.encode()
    body = (
        b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\na\r\n'
        + part
        + value
        + b"\r\n--x--\r\n"
    )
    kind = "multipart/form-data; boundary=x; charset=unicode_escape"
    answer = strict.session.post(
        f"{strict.place}/v1/projects/sea-laws/suggest",
        data=body,
        headers={"Content-Type": kind},
        timeout=30,
    )
    assert 400 <= answer.status_code < 500, answer.text
