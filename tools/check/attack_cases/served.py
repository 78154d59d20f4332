"""A real server, and what clients, pages of other sites and the disk can do to it."""

import contextlib
import gzip
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from attack_cases.attack import Attack, expect
from bad_input_cases.case import Site, command

TOKEN = "a-token-of-some-length"
PREDICT, ANNOTATE = "/predict", "/annotations"
LEARN, BATCH, SUGGEST = (
    f"/v1/projects/tiny/{name}" for name in ("learn", "suggest-batch", "suggest")
)
MIB = 1 << 20


class Server:
    """`xmtc serve` in a fork, with annotations and a queue.

    Args:
        site: what was trained.
        folder: for its files.
        token: that clients must send; None: none.
        models: folder of models with their versions, which it serves instead of the trained one.
    """

    def __init__(
        self, site: Site, folder: Path, token: str | None, models: Path | None = None
    ) -> None:
        self.folder, self.token, self.log = folder, token, folder / "log"
        folder.mkdir(parents=True)
        self.annotations = folder / "more.jsonl"
        (folder / "queue.jsonl").write_text(
            "".join(json.dumps({"text": f"lawery {i}"}) + "\n" for i in range(500))
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        words: list[object] = [
            "serve",
            *((site.model,) if models is None else ("--models", models)),
            "--port",
            self.port,
            "--annotations",
            self.annotations,
        ]
        words += ["--queue", folder / "queue.jsonl", "limits.requests=16", "workers=1"]
        if token is not None:
            (folder / "token").write_text(token)
            words += ["--token-file", folder / "token"]
        self.process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(self.log, words)
        )
        self.process.start()
        end = time.monotonic() + 120
        while not self._answers("/ready"):
            expect(
                time.monotonic() < end and self.process.is_alive(),
                "the server does not start",
            )
            time.sleep(0.2)

    def _answers(self, path: str) -> bool:
        try:
            return self.ask("GET", path)[0] == 200
        except OSError:
            return False

    def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, str]:
        """Send a request with the token; status and body of the response."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def memory(self) -> int:
        """Bytes of memory that it holds."""
        return (
            int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            * resource.getpagesize()
        )

    def check(self) -> None:
        """Everybody else is still served, soon."""
        started_s = time.monotonic()
        expect(self.ask("GET", "/health")[0] == 200, "not healthy")
        expect(
            time.monotonic() - started_s < 3,
            f"/health took {time.monotonic() - started_s:.1f} s",
        )
        found = self.ask("POST", PREDICT, {"texts": ["lawery"]})
        expect(found[0] == 200, f"a small request gets {found}")
        expect(
            time.monotonic() - started_s < 12,
            f"a small request took {time.monotonic() - started_s:.1f} s",
        )

    def end(self, number: int = signal.SIGTERM, limit_s: float = 40) -> None:
        """Stop it; this must take less than the limit, and nothing may be in its log that clients sent."""
        os.kill(self.process.pid or 0, number)
        self.process.join(limit_s)
        alive = self.process.is_alive()
        self.process.kill()
        expect(not alive, f"it did not stop within {limit_s} s")
        expect("lawery" not in self.log.read_text(), "a text is in the log")


def _serve(log: Path, words: list[object]) -> None:
    sys.stdout = sys.stderr = log.open("w", buffering=1)
    os.dup2(sys.stderr.fileno(), 2)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(9))
    signal.alarm(1500)
    code, said = command(*words)
    print(code, said)


def server_attacks(site: Site, open_: Server, closed: Server) -> Iterator[Attack]:
    """Every kind of request at every path, of both servers."""
    for (shape, path), server in zip(
        itertools.product(SHAPES, (PREDICT, ANNOTATE, LEARN, BATCH)),
        itertools.cycle((open_, closed)),
        strict=False,
    ):
        headers = {"Content_Encoding": "gzip"} if shape == "gzip" else {}
        yield Attack(
            f"bodies: {shape}",
            path,
            partial(send_large, server, path, SHAPES[shape], headers),
        )
    for name in RAW:
        yield Attack(f"bytes: {name}", "connection", partial(_raw, open_, RAW[name]))
    for name in (
        "slow headers",
        "slow body",
        "never reads",
        "leaves in mid-batch",
        "leaves in mid-body",
        "idle connections",
    ):
        for server, what in ((open_, "without a token"), (closed, "with a token")):
            yield Attack(f"clients: {name}", what, partial(_clients, server, name))
    for (method, path, body), (name, headers) in itertools.product(
        _ROUTES, SITES.items()
    ):
        yield Attack(
            f"sites: {name}", path, partial(_site, open_, method, path, body, headers)
        )
    for method, path, body in _ROUTES:
        for wrong in (
            "",
            "Bearer",
            f"Bearer {TOKEN[:-1]}",
            f"Basic {TOKEN}",
            f"Bearer {TOKEN} ",
        ):
            yield Attack(
                f"tokens: {wrong!r}",
                path,
                partial(_token, closed, method, path, body, wrong),
            )
    for name, path in itertools.product(
        ("pipe", "folder", "dangling link", "device", "full disk", "removed"),
        (ANNOTATE, LEARN),
    ):
        yield Attack(
            f"annotations: {name}", path, partial(_annotations, open_, name, path)
        )
    for text, path in itertools.product(
        ("\0", "\u200b", " \u2028\t", "\ufeff"), (ANNOTATE, LEARN)
    ):
        yield Attack(f"texts: {text!a}", path, partial(_text, open_, text, path))
    yield Attack("long request", PREDICT, partial(_long, open_))
    yield Attack("3,000 requests", PREDICT, partial(_many, open_))
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        yield Attack(
            f"signals: {signal.Signals(number).name}",
            "serve",
            partial(_end, site, number),
        )


def shapes() -> dict[str, Any]:
    """Bodies that are small to send and large to check."""
    return {
        "integers": b'{"texts": [' + b"1," * 1_500_000 + b"1]}",
        "keys": json.dumps({f"k{i}": 0 for i in range(200_000)}).encode(),
        "empty lists": b"[" + b"[]," * 900_000 + b"[]]",
        "objects": b'[{"text": "a", "subjects": ['
        + b'{"uri": "law"},' * 200_000
        + b'{"uri": "law"}]}]',
        "fields": json.dumps(
            {"texts": [{f"f{i}": "x" for i in range(4000)}] * 40}
        ).encode(),
        "labels": b'{"text": "a", "labels": [' + b'"law",' * 500_000 + b'"law"]}',
        "escapes": b'{"texts": ["'
        + b'\\"' * 1_900_000
        + b'", "a"], "x": ['
        + b"1," * 50_000
        + b"1]}",
        "deep": b"[" * 1_000_000,
        "a number": b'{"texts": ["a"], "top_k": ' + b"9" * 1_000_000 + b"}",
        "UTF-16": json.dumps({"texts": ["a\\"] + [1] * 100_000}).encode("utf-16"),
        "4 MB": b'{"texts": ["' + b"x" * (4 * MIB) + b'"]}',
        "gzip": gzip.compress(b'{"texts": ["' + b"x" * (64 * MIB) + b'"]}'),
    }


SHAPES = shapes()
_HOST = b"Host: localhost\r\n"
_POST = b"POST /predict HTTP/1.1\r\nContent-Type: application/json\r\n" + _HOST
RAW = {
    "nonsense": b"nonsense\r\n\r\n",
    "binary": bytes(range(256)) * 40,
    "two lengths": _POST + b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
    "length and chunks": _POST
    + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /model HTTP/1.1\r\n",
    "negative length": _POST + b"Content-Length: -1\r\n\r\n",
    "huge length": _POST + b"Content-Length: 99999999999999999999\r\n\r\n",
    "bad chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "huge chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\nx",
    "tiny chunks": _POST
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + b"1\r\n \r\n" * 60_000
    + b"0\r\n\r\n",
    "long path": b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\n" + _HOST + b"\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + _HOST + b"X: y\r\n" * 9_000 + b"\r\n",
    "long header": b"GET / HTTP/1.1\r\n"
    + _HOST
    + b"X: "
    + b"y" * 200_000
    + b"\r\n\r\n",
    "no host": b"GET /model HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /model HTTP/1.1\r\nHost: evil.example\r\n" + _HOST + b"\r\n",
    "absolute path": b"GET http://evil.example/model HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "upgrade": b"GET /model HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "traversal": b"GET /assets/..%2f..%2fconfig.py HTTP/1.1\r\n" + _HOST + b"\r\n",
    "connect": b"CONNECT localhost:22 HTTP/1.1\r\n" + _HOST + b"\r\n",
}
_ONE = {"texts": ["lawery"]}
_ROUTES = (
    ("GET", "/model", None),
    ("GET", "/labels", None),
    ("POST", PREDICT, _ONE),
    ("POST", "/queue/next", {}),
    ("POST", ANNOTATE, {"text": "lawery", "labels": ["law"]}),
    ("POST", LEARN, [{"text": "lawery"}]),
)
SITES = {
    "cross-site": {"Sec_Fetch_Site": "cross-site"},
    "same-site": {"Sec_Fetch_Site": "same-site"},
    "origin": {"Origin": "http://evil.example"},
    "null origin": {"Origin": "null"},
    "host": {"Host": "evil.example"},
}


def send_large(
    server: Server, path: str, body: bytes, headers: dict[str, str], _folder: Path
) -> None:
    """A body that is small to send and large to check is refused soon, in little memory."""
    before, started_s = server.memory(), time.monotonic()
    try:
        status, said = server.ask("POST", path, body, **headers)
        expect(400 <= status < 500, f"status {status}: {said[:200]}")
    except (BrokenPipeError, ConnectionResetError):  # refused before it was read
        server.check()
    expect(
        time.monotonic() - started_s < 5, f"took {time.monotonic() - started_s:.1f} s"
    )
    expect(
        server.memory() - before < 400 * MIB,
        f"took {(server.memory() - before) // MIB} MiB",
    )
    server.check()


def _received(connection: socket.socket, limit_s: float) -> bytes:
    connection.settimeout(limit_s)
    found = b""
    try:
        while data := connection.recv(65536):
            found += data
    except ConnectionError:
        pass
    except TimeoutError:
        expect(found, "neither answered nor disconnected")
    return found


def _raw(server: Server, data: bytes, _folder: Path) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(data)
        found = _received(connection, 15)
    status = found.split(b"\r\n")[0].split(b" ")[1:2]
    expect(
        not status
        or status[0][:1] == b"4"
        or (status[0] == b"200" and b"evil" not in data),
        f"{found[:200]!r}",
    )
    expect(b'"task"' not in found, "a stranger was answered")
    server.check()


def _clients(server: Server, name: str, _folder: Path) -> None:
    token = (
        f"Authorization: Bearer {server.token}\r\n".encode() if server.token else b""
    )
    texts = json.dumps(
        {"texts": ["lawery fishing " * 6000] * 40, "evidence": False}
    ).encode()
    head = _POST + token + f"Content-Length: {len(texts)}\r\n\r\n".encode()
    asset = b"GET /assets/label.js HTTP/1.1\r\n" + _HOST + b"\r\n"
    number, data = {
        "slow headers": (40, b"POST /predict HTTP/1.1\r\nHost: "),
        "slow body": (10, head + texts[:99]),
        "never reads": (24, asset * 3000),
        "leaves in mid-batch": (10, head + texts),
        "leaves in mid-body": (40, head + texts[:9999]),
        "idle connections": (300, b""),
    }[name]
    connections = [
        socket.create_connection(("127.0.0.1", server.port), timeout=5)
        for _ in range(number)
    ]
    for connection in connections:
        connection.settimeout(0.5)
        with contextlib.suppress(TimeoutError, ConnectionError):
            connection.sendall(data)
        if name.startswith("leaves"):
            connection.close()
    server.check()
    if name in ("slow headers", "never reads"):
        end = time.monotonic() + 45
        while any(_is_open(one) for one in connections):
            expect(time.monotonic() < end, "it is never disconnected")
            time.sleep(0.5)
    for connection in connections:
        connection.close()


def _is_open(connection: socket.socket) -> bool:
    try:
        connection.setblocking(False)
        return connection.send(b" ") > 0
    except BlockingIOError:
        return True
    except OSError:
        return False


def _site(
    server: Server,
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str],
    _folder: Path,
) -> None:
    status, said = server.ask(method, path, body, **headers)
    expect(status in (403, 421), f"status {status}: {said[:200]}")
    expect(
        "lawery" not in server.annotations.read_text(),
        "a page of another site has written",
    )


def _token(
    server: Server, method: str, path: str, body: Any, wrong: str, _folder: Path
) -> None:
    status, said = server.ask(method, path, body, Authorization=wrong)
    if wrong.strip() != f"Bearer {TOKEN}":
        expect(status == 401 and TOKEN not in said, f"status {status}: {said[:200]}")


def _annotations(server: Server, name: str, path: str, folder: Path) -> None:

    def body(when: str) -> Any:
        text = f"fishing {when} {name} at {path}"  # a text is annotated once
        given = {"text": text, "labels": ["fish"]}
        return given if path == ANNOTATE else [{"text": text}]

    place, aside = server.annotations, folder / "aside"
    place.rename(aside)
    pid = server.process.pid or 0
    match name:
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "dangling link":
            place.symlink_to(folder / "none" / "none")
        case "device":
            place.symlink_to("/dev/full")
        case "full disk":
            shutil.copy(aside, place)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (place.stat().st_size, -1))
    try:
        status, said = server.ask("POST", path, body("with"))
        expect(
            status in ((200, 204) if name == "removed" else (503, 507)),
            f"status {status}: {said[:200]}",
        )
        expect(str(server.folder) not in said, f"tells a path: {said}")
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (-1, -1))
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        aside.rename(place)
    status, said = server.ask("POST", path, body("after"))
    expect(status in (200, 204), f"afterwards: status {status}: {said[:200]}")


def _text(server: Server, text: str, path: str, _folder: Path) -> None:
    before = server.annotations.read_bytes()
    body: Any = (
        {"text": text, "labels": []}
        if path == ANNOTATE
        else [{"text": "fishing"}, {"text": text}]
    )
    status, said = server.ask("POST", path, body)
    expect(status in (400, 422), f"status {status}: {said[:200]}")
    expect(server.annotations.read_bytes() == before, "it was saved")


def _long(server: Server, _folder: Path) -> None:
    connections = []
    for _ in range(4):
        body = json.dumps(
            {"texts": ["lawery fishing " * 6600] * 40, "top_k": 24}
        ).encode()
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
        connection.sendall(
            _POST + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
        )
        connections.append(connection)
    server.check()
    for connection in connections:
        connection.close()


def _many(server: Server, _folder: Path) -> None:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
    sizes, body = [], json.dumps({"texts": ["lawery", "fishing"], "top_k": 3}).encode()
    for number in range(3000):
        connection.request("POST", PREDICT, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        expect(answer.status == 200, f"status {answer.status} of request {number}")
        if number % 1000 == 999:
            sizes.append(server.memory())
    expect(
        sizes[-1] - sizes[0] < 30 * MIB,
        f"memory grows: {[size // MIB for size in sizes]} MiB",
    )


def _end(site: Site, number: int, folder: Path) -> None:
    server = Server(site, folder / "server", None)
    try:
        body = json.dumps({"texts": ["lawery fishing " * 6600] * 40}).encode()
        with socket.create_connection(
            ("127.0.0.1", server.port), timeout=5
        ) as connection:
            connection.sendall(
                _POST + f"Content-Length: {len(body)}\r\n\r\n".encode() + body
            )
            time.sleep(0.5)
            server.end(number)
    finally:
        server.process.kill()
