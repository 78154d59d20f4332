"""Bodies as HTTP clients send them: media types in any case, compressed, or without a type; and HEAD."""

import gzip
import json
import zlib

import pytest
from served import Client, running

import xmtc
from xmtc.desk.config import Limits


def compressed(content: bytes) -> bytes:
    """Compress without the time, by which test processes would name cases differently."""
    return gzip.compress(content, mtime=0)


BODY = json.dumps({"texts": ["Cod and other fish."], "top_k": 2}).encode()
LIMITS = Limits(texts=3, body_bytes=8192)
JSON = "application/json"


@pytest.fixture(scope="module")
def strict(model: xmtc.Model):
    with running(model, limits=LIMITS) as client:
        yield client


def send(client: Client, data: bytes, path: str = "/predict", **headers: str | None):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.session.post(
        f"{client.place}{path}", data=data, headers=names, timeout=30
    )


@pytest.mark.parametrize(
    "kind",
    [JSON, "application/JSON", "Application/Json; charset=utf-8", "application/x+json"],
)
def test_media_types_are_compared_as_http_does(strict: Client, kind: str) -> None:
    assert send(strict, BODY, Content_Type=kind).status_code == 200
    many = b'{"texts": [' + b"1," * 4000
    answer = send(strict, many.ljust(8000, b" "), Content_Type=kind)
    assert answer.status_code in (413, 422)


@pytest.mark.parametrize(
    "kind",
    [
        JSON,
        "application/JSON",
        "text/JSON",
        "application/x+JSON; a=b",
        "TEXT/plain",
        "x",
        None,
    ],
)
def test_the_limit_on_values_holds_whatever_the_header_says(
    model: xmtc.Model, kind: str | None
) -> None:
    with running(model, limits=Limits(texts=1)) as client:
        answer = send(
            client, b'{"texts": [' + b"1," * 500_000 + b"1]}", Content_Type=kind
        )
        assert answer.status_code in (413, 415)
        form = send(
            client, b"a&" * 500_000, Content_Type="Application/X-WWW-Form-Urlencoded"
        )
        assert form.status_code == 413


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", compressed(BODY)),
        ("GZIP", compressed(BODY[:20]) + compressed(BODY[20:])),
        ("x-gzip", compressed(BODY)),
        ("deflate", zlib.compress(BODY)),
        ("deflate", zlib.compress(BODY, wbits=-15)),
        ("identity", BODY),
    ],
)
def test_compressed_bodies_are_read(
    strict: Client, encoding: str, packed: bytes
) -> None:
    answer = send(strict, packed, Content_Type=JSON, Content_Encoding=encoding)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("encoding", "packed", "status", "words"),
    [
        ("gzip", compressed(b" " * 100_000_000), 413, "8,192 bytes"),
        ("deflate", zlib.compress(b" " * 100_000_000)[:8000], 413, "8,192 bytes"),
        ("gzip", compressed(b"") * 400, 400, "100 parts"),
        ("gzip", compressed(BODY)[:-9], 400, "incomplete"),
        ("gzip", BODY, 400, "damaged"),
        ("deflate", BODY, 400, "damaged"),
        ("br", BODY, 415, "Content-Encoding: br"),
        ("gzip, gzip", compressed(compressed(BODY)), 415, "gzip or deflate"),
    ],
)
def test_bombs_and_damage_are_refused(
    strict: Client, encoding: str, packed: bytes, status: int, words: str
) -> None:
    answer = send(strict, packed[:8192], Content_Type=JSON, Content_Encoding=encoding)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["detail"]


def test_a_missing_or_wrong_content_type_is_named(strict: Client) -> None:
    form = "application/x-www-form-urlencoded"
    for kind, path, words in (
        (None, "/predict", "Content-Type is missing"),
        ("text/plain", "/predict", "Content-Type: text/plain"),
        (form, "/predict", "application/json"),
        (JSON, f"/v1/projects/{strict.get('/model').json()['model']}/suggest", form),
    ):
        answer = send(strict, BODY, path, Content_Type=kind)
        assert answer.status_code == 415
        assert words in answer.json()["detail"]


@pytest.mark.parametrize(
    "path",
    [
        "/health",
        "/ready",
        "/",
        "/docs",
        "/assets/page.css",
        "/model",
        "/labels?query=cod",
    ],
)
def test_head_answers_as_get_without_the_body(strict: Client, path: str) -> None:
    head = strict.session.head(strict.place + path, timeout=30)
    assert (head.status_code, head.content) == (200, b"")
    whole = strict.get(path)
    assert head.headers["Content-Type"] == whole.headers["Content-Type"]
    assert head.headers["Content-Length"] == whole.headers["Content-Length"]


def test_head_of_what_only_post_does_is_refused(strict: Client) -> None:
    assert strict.session.head(strict.place + "/predict", timeout=30).status_code == 405
