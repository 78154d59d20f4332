"""A full queue, slow and half-closed clients, tokens, and an end in the middle of a request."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from served import LABELS, TEXTS, Client, running

import xmtc
from xmtc.cli import main
from xmtc.desk import config
from xmtc.desk.config import Limits, ServeConfig, read_token, tokens_of
from xmtc.desk.serve import server
from xmtc.desk.serve.batcher import Batcher
from xmtc.errors import ConfigError

TOKEN = "a-token-of-some-length"
BODY = json.dumps({"texts": ["fish"]}).encode()
LENGTH = f"Content-Length: {len(BODY)}"
HEAD = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{LENGTH}\r\n\r\n"


class Gate:
    """The model begins, and answers when the gate is open."""

    def __init__(self) -> None:
        self.begun, self.open = threading.Event(), threading.Event()
        self.threads: list[int] = []  # of each pass


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate, score = Gate(), Batcher._score

    def slow(*arguments):
        gate.threads.append(torch.get_num_threads())
        gate.begun.set()
        assert gate.open.wait(30)
        return score(*arguments)

    monkeypatch.setattr(Batcher, "_score", slow)
    return gate


def until(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_full_queue_refuses_and_then_recovers(
    model: xmtc.Model, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xmtc.desk.serve.batcher._QUEUE_TEXTS", 3)
    with running(model, workers=1) as client, ThreadPoolExecutor(8) as pool:

        def waiting(texts: int) -> bool:
            return f"xmtc_queue_texts {texts}.0" in client.get("/metrics").text

        first = pool.submit(
            client.post, "/predict", {"texts": TEXTS}
        )  # more than the queue takes, but it is empty
        assert gate.begun.wait(20)
        others = [
            pool.submit(client.post, "/predict", {"texts": TEXTS[:1]}) for _ in range(3)
        ]
        until(lambda: waiting(3))
        refused = client.post("/predict", {"texts": TEXTS[:1]})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "3 texts are waiting" in refused.json()["detail"]
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200
        gate.open.set()
        assert [one.result().status_code for one in (first, *others)] == [200] * 4
        assert client.get("/ready").status_code == 200
        assert "xmtc_refused_total 1.0" in client.get("/metrics").text


def test_an_answer_that_takes_too_long_is_given_up(
    model: xmtc.Model, gate: Gate
) -> None:
    with (
        running(model, limits=Limits(wait_seconds=0.2), workers=1) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        first = pool.submit(client.post, "/predict", {"texts": TEXTS})
        assert first.result().status_code == 503
        assert "no answer within 0.2 seconds" in first.result().json()["detail"]
        gate.open.set()
        until(lambda: client.post("/predict", {"texts": TEXTS}).ok)


def test_too_many_requests_at_once(model: xmtc.Model, gate: Gate) -> None:
    with (
        running(model, limits=Limits(requests=2)) as client,
        ThreadPoolExecutor(2) as pool,
    ):

        def accepted() -> int:
            """Ask again while the request below is the one too many."""
            while (
                status := client.post("/predict", {"texts": TEXTS}).status_code
            ) == 503:
                time.sleep(0.01)
            return status

        held = [pool.submit(accepted) for _ in range(2)]
        until(lambda: client.get("/model").status_code == 503)
        assert client.get("/health").status_code == 200
        gate.open.set()
        assert [one.result() for one in held] == [200, 200]


def test_a_pass_that_fails_is_a_500_and_the_next_one_works(
    model: xmtc.Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def out_of_memory(*arguments):
        raise RuntimeError("not enough memory")

    (tmp_path / "queue.jsonl").write_text('{"id": "a", "text": "fish"}\n')
    monkeypatch.setattr(Batcher, "_score", out_of_memory)
    with running(model, queue=tmp_path / "queue.jsonl") as client:
        assert client.post("/predict", {"texts": TEXTS}).status_code == 500
        until(
            lambda: client.post("/queue/next").json()["waiting"] == 0
        )  # a failure is not tried again
        monkeypatch.undo()
        assert client.post("/predict", {"texts": TEXTS}).status_code == 200
        assert 'route="/predict",status="500"' in client.get("/metrics").text


def raw(client: Client, *parts: bytes, close: bool = False) -> bytes:
    """Sends parts, and closes its half of the connection if asked; everything that comes back."""
    with socket.create_connection(("127.0.0.1", client.port), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.05)
        if close:
            connection.shutdown(socket.SHUT_WR)
        received = b""
        while data := connection.recv(65536):
            received += data
        return received


def test_slow_and_half_closed_clients(
    model: xmtc.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_HEADER_SECONDS", 0.3)
    monkeypatch.setattr("xmtc.desk.serve.guard._READ_SECONDS", 0.3)
    with running(model, limits=Limits(body_bytes=2048)) as client:
        assert raw(client) == b""  # says nothing: hung up
        assert raw(client, b"POST /predict HTTP/1.1\r\n", b"Host: localhost\r\n") == b""
        assert b" 408 " in raw(client, HEAD.encode(), BODY[:5]).split(b"\r\n")[0]
        assert raw(client, HEAD.encode(), BODY[:5], close=True) == b""
        assert raw(client, HEAD.encode()[:30], close=True) == b""
        chunked = HEAD.replace(LENGTH, "Transfer-Encoding: chunked").encode()
        assert (
            b" 413 "
            in raw(client, chunked, b"801\r\n" + b" " * 2049 + b"\r\n800\r\n").split(
                b"\r\n"
            )[0]
        )
        assert b" 400 " in raw(client, b"nonsense\r\n\r\n").split(b"\r\n")[0]
        assert client.get("/ready").status_code == 200


def test_a_token_is_asked_for_everything_but_the_empty_page(model: xmtc.Model) -> None:
    with running(model, token=TOKEN) as client:
        stranger = Client(client.port)
        for path in (
            "/model",
            "/labels",
            "/metrics",
            "/openapi.json",
            "/queue/next",
            "/v1/projects",
        ):
            refused = stranger.get(path)
            assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (
                401,
                "Bearer",
            )
            assert TOKEN not in refused.text
        assert stranger.post("/predict", {"texts": TEXTS}).status_code == 401
        for path in ("/", "/docs", "/assets/label.js", "/health", "/ready"):
            assert stranger.get(path).status_code == 200
        for wrong in (TOKEN[:-1], TOKEN + "x", "", "é"):
            headers = {"Authorization": f"Bearer {wrong}".encode()}
            assert stranger.get("/model", headers=headers).status_code == 401
        assert client.post("/predict", {"texts": TEXTS}).status_code == 200


def test_other_sites_cannot_use_it_through_the_browser(client: Client) -> None:
    assert client.get("/model", headers={"Host": "evil.example"}).status_code == 421
    assert (
        client.get("/model", headers={"Origin": "http://evil.example"}).status_code
        == 403
    )
    assert client.get("/model", headers={"Origin": "null"}).status_code == 403
    assert (
        client.get(
            "/model", headers={"Origin": f"http://127.0.0.1:{client.port}"}
        ).status_code
        == 200
    )
    assert (
        client.get("/model", headers={"Host": f"localhost:{client.port}"}).status_code
        == 200
    )


def test_addresses_and_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(ConfigError, match="needs a token"):
            ServeConfig(host=host)
        assert ServeConfig(host=host, token=TOKEN).token == TOKEN
    for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"):
        ServeConfig(host=host)
    monkeypatch.delenv(config.TOKEN_VARIABLE, raising=False)
    assert read_token(None) is None
    monkeypatch.setenv(config.TOKEN_VARIABLE, TOKEN)
    assert read_token(None) == TOKEN
    (tmp_path / "token").write_text(f" {TOKEN}2\n")
    assert read_token(tmp_path / "token") == f"{TOKEN}2"
    (tmp_path / "token").write_text(
        f"Eva {TOKEN}\r\nJo {TOKEN}2\r\n", encoding="utf-8-sig", newline=""
    )
    assert tokens_of(read_token(tmp_path / "token") or "") == {
        TOKEN: "Eva",
        f"{TOKEN}2": "Jo",
    }
    for content in ("short", "with a space in it, which no header takes", "ü" * 20):
        (tmp_path / "token").write_text(content)
        with pytest.raises(
            ConfigError, match="at least 16 visible ASCII characters"
        ) as error:
            read_token(tmp_path / "token")
        assert content not in str(error.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(tmp_path / "none")
    taken = server.listen(ServeConfig(port=0))
    with taken, pytest.raises(ConfigError, match="cannot listen there"):
        server.listen(ServeConfig(port=taken.getsockname()[1]))


STARTED = """
import sys, threading, time
from xmtc.desk.serve.batcher import Batcher
score = Batcher._score
def slow(*arguments):
    print("busy", file=sys.stderr, flush=True)
    time.sleep(1)
    return score(*arguments)
Batcher._score = slow
from xmtc.cli import main
main()
"""


def test_a_model_that_is_replaced_while_it_serves_is_noticed(
    served_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = shutil.copytree(served_folder, tmp_path / "model")
    monkeypatch.setattr("xmtc.desk.serve.models.LOOK_SECONDS", 0.02)

    async def on_tick(self: server._Server, counter: int) -> bool:
        if counter == 1:
            (folder / "thresholds.json").write_text(
                (folder / "thresholds.json").read_text() + "\n"
            )
        if counter == 4:
            signal.raise_signal(signal.SIGTERM)
        return self.should_exit

    monkeypatch.setattr(server._Server, "on_tick", on_tick)
    server.serve(
        server.read_models(
            str(folder), None, ServeConfig(port=0), device="cpu", precision="auto"
        )
    )
    assert capsys.readouterr().err.count("the folder has another model now") == 1


def test_told_to_stop_in_the_middle_of_a_request_it_finishes_and_ends_with_0(
    served_folder: Path,
) -> None:
    command = [
        sys.executable,
        "-c",
        STARTED,
        "serve",
        str(served_folder),
        "--port",
        "0",
    ]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
        ThreadPoolExecutor(1) as pool,
    ):
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "6 labels: http://127.0.0.1:" in said
        client = Client(int(said.split("http://127.0.0.1:")[1].split(",")[0]))
        answer = pool.submit(client.post, "/predict", {"texts": ["a secret diagnosis"]})
        assert process.stderr.readline() == "busy\n"
        os.kill(process.pid, signal.SIGTERM)
        assert answer.result().status_code == 200
        rest = process.stderr.read()
        assert process.wait(20) == 0
        client.session.close()
    assert "stopped" in rest
    assert "secret" not in said + rest


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "config.json: missing"),
        (
            ["--host", "0.0.0.0"],
            "--host 0.0.0.0: other machines can reach this address, so it needs a token",
        ),
    ],
)
def test_mistakes_are_reported_in_one_line(
    tmp_path: Path, monkeypatch, capsys, options: list[str], words: str
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["xmtc", "serve", str(tmp_path), "--port", "0", *options]
    )
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_patience_puts_requests_together(
    model: xmtc.Model, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xmtc.desk.serve.batcher._PATIENCE_S", 0.4)
    with running(model, workers=1) as client, ThreadPoolExecutor(4) as pool:

        def ask(texts: list[str]) -> list[Future[Any]]:
            return [
                pool.submit(client.post, "/predict", {"texts": [text]})
                for text in texts
            ]

        answers = ask(TEXTS[:1])
        assert gate.begun.wait(20)
        answers += ask(TEXTS[:2])
        until(lambda: "xmtc_queue_texts 2.0" in client.get("/metrics").text)
        gate.open.set()
        assert [one.result().status_code for one in answers] == [200] * 3
        assert [one.result().status_code for one in ask(TEXTS)] == [200] * 4
        found = client.get("/metrics").text
    assert "xmtc_batch_texts_count 3.0" in found, (
        "after a pass that several requests shared, the next waits for others"
    )
    assert "xmtc_batch_texts_sum 7.0" in found


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_asks_alone_does_not_wait(
    model: xmtc.Model, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr("xmtc.desk.serve.batcher._PATIENCE_S", 30.0)
    with running(model, workers=workers, limits=Limits(wait_seconds=10.0)) as client:
        for _ in range(2):
            assert client.post("/predict", {"texts": TEXTS[:1]}).status_code == 200


def test_only_a_pass_that_begins_alone_has_all_threads(
    model: xmtc.Model, gate: Gate
) -> None:
    with running(model, workers=2) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.post, "/predict", {"texts": TEXTS[:1]})
        assert gate.begun.wait(20)
        second = pool.submit(client.post, "/predict", {"texts": TEXTS[:1]})
        until(lambda: len(gate.threads) == 2)
        gate.open.set()
        assert [one.result().status_code for one in (first, second)] == [200, 200]
        assert client.post("/predict", {"texts": TEXTS[:1]}).status_code == 200
    assert gate.threads == [2, 1, 2]


def test_a_server_can_score_shortlists(model: xmtc.Model) -> None:
    with running(model, shortlist=2) as client:
        found = client.post("/predict", {"texts": TEXTS, "top_k": 6}).json()[
            "predictions"
        ]
        included = client.post(
            "/predict", {"texts": TEXTS, "top_k": 6, "include": LABELS[:4]}
        ).json()["predictions"]
    assert [len(one) for one in found] == [2] * len(TEXTS)
    assert [len(one) for one in included] == [4] * len(TEXTS)
    with (
        pytest.raises(ConfigError, match="a shortlist of 99 of"),
        running(model, shortlist=99),
    ):
        pass


def test_limits_are_set_like_any_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*overrides: str) -> ServeConfig:
        return config.ServeConfig(**vars(config.read_tuning(overrides)))

    found = read("limits.texts=7", "workers=2", "shortlist=500")
    assert (found.limits, found.workers, found.shortlist) == (Limits(texts=7), 2, 500)
    with pytest.raises(ConfigError, match=r"limits\.text"):
        read("limits.text=7")
    with pytest.raises(ConfigError, match="workers"):
        read("workers=0")
