"""What a client can do to a server and its other clients; tools/check/attacks.py tries more of each kind."""

import errno
import json
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from served import LABELS, TEXTS, Client, running

import xmtc
from xmtc.desk.config import Limits

TOKEN = "a-token-of-some-length"
ANNIF = "/v1/projects/sea-laws"
MANY = [1] * 500_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict", {"texts": MANY}),
        ("/predict", {f"key {n}": 0 for n in range(100_000)}),
        ("/predict", {"texts": [{f"field {n}": None for n in range(1000)}] * 60}),
        ("/predict", {"texts": ['"\\'], "include": [["\\"]] * 300_000}),
        ("/annotations", {"text": "a", "labels": ["law"] * 100_000}),
        (f"{ANNIF}/learn", [{"text": "a", "subjects": [{"uri": "law"}] * 100_000}]),
        (
            f"{ANNIF}/suggest-batch",
            {
                "documents": [
                    {"text": "a", "metadata": {f"{n}": "" for n in range(90_000)}}
                ]
            },
        ),
        ("/nothing", MANY),
    ],
)
def test_a_body_of_very_many_values_is_refused_before_it_is_checked(
    model: xmtc.Model, tmp_path: Path, path: str, body: object
) -> None:
    with running(model, annotations=tmp_path / "some.jsonl") as client:
        refused = client.post(path, body)
        assert refused.status_code == 413
        assert refused.elapsed.total_seconds() < 2
        assert "values" in refused.json()["detail"]
    assert (tmp_path / "some.jsonl").read_bytes() == b""


def test_what_needs_no_token_takes_no_place_and_must_be_read(
    model: xmtc.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xmtc.desk.serve.server._SEND_SECONDS", 0.3)
    asset = b"GET /assets/label.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500
    with running(model, token=TOKEN, limits=Limits(requests=2)) as client:
        strangers = [
            socket.create_connection(("127.0.0.1", client.port), timeout=20)
            for _ in range(8)
        ]
        for stranger in strangers:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stranger.sendall(asset)
        assert client.post("/predict", {"texts": TEXTS}).status_code == 200
        end = time.monotonic() + 60
        while any(_is_open(stranger) for stranger in strangers):
            assert time.monotonic() < end, (
                "a client that reads nothing is never disconnected"
            )
            time.sleep(0.1)
        for stranger in strangers:
            stranger.close()


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.send(b"\r\n") > 0
    except OSError:
        return False


class Slow:
    """A model that takes its time with every text, and counts them."""

    def __init__(self, model: xmtc.Model, seconds: float) -> None:
        self.score, self.seconds, self.texts = model.scorer.score, seconds, 0
        self.begun = threading.Event()

    def __call__(self, documents, *arguments, **options):
        self.begun.set()
        self.texts += len(documents)
        time.sleep(self.seconds * len(documents))
        return self.score(documents, *arguments, **options)


def test_a_long_request_lets_others_through_and_ends_when_nobody_waits(
    model: xmtc.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(model, 0.2)
    with (
        running(model, workers=1, limits=Limits(wait_seconds=3.0)) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        monkeypatch.setattr(model.scorer, "score", slow)
        long = pool.submit(
            client.post, "/predict", {"texts": ["fish"] * 64, "evidence": True}
        )
        assert slow.begun.wait(20)
        short = Client(client.port).post("/predict", {"texts": TEXTS})
        assert short.status_code == 200
        assert short.elapsed.total_seconds() < 2
        assert long.result().status_code == 503
        assert slow.texts < 64
        before = slow.texts
        with pytest.raises(requests.Timeout):  # this client leaves
            requests.post(
                f"{client.place}/predict",
                json={"texts": ["fish"] * 64, "evidence": True},
                timeout=0.5,
            )
        time.sleep(0.5)
        after = slow.texts
        time.sleep(0.5)
        assert before < slow.texts == after < before + 10
        assert "xmtc_queue_texts 0.0" in client.get("/metrics").text


def test_the_end_waits_for_one_piece_at_most(
    model: xmtc.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xmtc.desk.serve.server._GRACE_SECONDS", 1)
    slow = Slow(model, 0.2)
    with ThreadPoolExecutor(1) as pool:
        with running(model, workers=1) as client:
            monkeypatch.setattr(model.scorer, "score", slow)
            gone = pool.submit(
                client.post, "/predict", {"texts": ["fish"] * 64, "evidence": True}
            )
            assert slow.begun.wait(20)
            started_s = time.monotonic()
        assert time.monotonic() - started_s < 5
        assert gone.result().status_code == 503


@pytest.mark.parametrize("token", [None, TOKEN])
def test_pages_of_other_sites_cannot_change_or_read_anything(
    model: xmtc.Model, tmp_path: Path, token
) -> None:
    (tmp_path / "queue.jsonl").write_text('{"id": "a", "text": "fish"}\n')
    with running(model, token=token, queue=tmp_path / "queue.jsonl") as client:
        for site in ("cross-site", "same-site"):
            for method, path in (
                ("GET", "/model"),
                ("GET", "/queue/next"),
                ("POST", "/queue/next"),
            ):
                answer = client.session.request(
                    method,
                    client.place + path,
                    headers={"Sec-Fetch-Site": site},
                    timeout=30,
                )
                assert answer.status_code == 403
            assert (
                client.get("/", headers={"Sec-Fetch-Site": site}).status_code == 200
            )  # a link to the page
        assert client.get("/queue/next").status_code == 405
        for site in ("same-origin", "none"):
            assert (
                client.get("/model", headers={"Sec-Fetch-Site": site}).status_code
                == 200
            )
        while (found := client.post("/queue/next").json())["id"] is None:
            pass
        assert found["id"] == "a"


@pytest.mark.parametrize(
    ("number", "status"),
    [(errno.ENOSPC, 507), (errno.EDQUOT, 507), (errno.EACCES, 503)],
)
@pytest.mark.parametrize("path", ["/annotations", f"{ANNIF}/learn"])
def test_a_fault_of_the_server_is_not_told_as_the_clients(
    model: xmtc.Model,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    status: int,
    path: str,
) -> None:
    body = (
        {"text": "fish", "labels": [], "complete": True}
        if path == "/annotations"
        else [{"text": "fish"}]
    )
    with running(model, annotations=tmp_path / "some.jsonl") as client:

        def refuse(_descriptor: int) -> None:
            raise OSError(number, os.strerror(number), str(tmp_path))

        monkeypatch.setattr("os.fsync", refuse)
        failed = client.post(path, body)
        assert failed.status_code == status
        assert str(tmp_path) not in failed.text
        monkeypatch.undo()
        assert client.post(path, body).ok
    assert len((tmp_path / "some.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("text", ["\0", "\u200b", " \u2028", "\ufeff\u200b"])
def test_annotations_that_training_refuses_are_refused(
    model: xmtc.Model, tmp_path: Path, text: str
) -> None:
    with running(model, annotations=tmp_path / "some.jsonl") as client:
        assert (
            client.post("/annotations", {"text": text, "labels": ["law"]}).status_code
            == 422
        )
        documents = [{"text": "fish"}, {"text": text}]
        refused = client.post(f"{ANNIF}/learn", documents)
        assert refused.status_code == 400
        assert "text 1" in refused.json()["detail"]
    assert (tmp_path / "some.jsonl").read_bytes() == b""


def test_a_document_is_annotated_once(model: xmtc.Model, tmp_path: Path) -> None:
    body = {"text": "fish", "labels": LABELS[:1], "id": "a"}
    with (
        running(model, annotations=tmp_path / "some.jsonl") as client,
        ThreadPoolExecutor(8) as pool,
    ):
        answers = list(
            pool.map(lambda _: client.post("/annotations", body).status_code, range(16))
        )
    assert sorted(answers) == [200, *[422] * 15]
    assert [
        json.loads(line)["id"]
        for line in (tmp_path / "some.jsonl").read_text().splitlines()
    ] == ["a"]


def test_annotations_replaced_by_a_pipe_are_refused_and_do_not_hang(
    model: xmtc.Model, tmp_path: Path
) -> None:
    path = tmp_path / "some.jsonl"
    with running(model, annotations=path) as client:
        path.unlink()
        os.mkfifo(path)
        assert (
            client.post(
                "/annotations", {"text": "fish", "labels": [], "complete": True}
            ).status_code
            == 503
        )
        path.unlink()
        assert (
            client.post(
                "/annotations", {"text": "fish", "labels": [], "complete": True}
            ).status_code
            == 200
        )
