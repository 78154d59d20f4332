"""What a hostile client may write into any part of a request, and what a version's folder may hold instead of files."""

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from attack_cases.attack import Attack, expect
from attack_cases.served import (
    ANNOTATE,
    BATCH,
    LEARN,
    PREDICT,
    SUGGEST,
    Server,
)
from attack_cases.signatures import sign_model
from bad_input_cases.case import Site

_HOST = b"Host: localhost\r\n"
_JSON = b"Content-Type: application/json\r\n"
_ONE = b'{"texts": ["lawery"]}'
_LENGTH = f"Content-Length: {len(_ONE)}\r\n".encode()
_POST = b"POST /predict HTTP/1.1\r\n" + _HOST + _JSON
_WHOLE = _LENGTH + b"\r\n" + _ONE
_GET = b"GET /model HTTP/1.1\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
_NO_BODY = b"\r\n"
RAW = {
    "the same length twice": _POST + _LENGTH + _WHOLE,
    "length in a list": _POST + b"Content-Length: 21, 21\r\n\r\n" + _ONE,
    "length with a plus": _POST + b"Content-Length: +21\r\n\r\n" + _ONE,
    "hexadecimal length": _POST + b"Content-Length: 0x15\r\n\r\n" + _ONE,
    "length in other digits": _POST + "Content-Length: ２１\r\n\r\n".encode() + _ONE,
    "empty length": _POST + b"Content-Length:\r\n\r\n" + _ONE,
    "chunked twice": _POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "no known coding": _POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked in capitals": _POST + b"Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n",
    "long extension of a chunk": _POST
    + _CHUNKED
    + b"1;"
    + b"x" * 100_000
    + b"\r\n{\r\n0\r\n\r\n",
    "negative chunk": _POST + _CHUNKED + b"-1\r\n{\r\n0\r\n\r\n",
    "many trailers": _POST + _CHUNKED + b"0\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
    "a trailer that is a length": _POST
    + _CHUNKED
    + b"2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n",
    "expects nonsense": _POST + b"Expect: 200-ok\r\n" + _WHOLE,
    "HTTP/1.0 without a host": b"GET /model HTTP/1.0\r\n\r\n",
    "HTTP/0.9": b"GET /model\r\n",
    "HTTP/9.9": b"GET /model HTTP/9.9\r\n" + _HOST + _NO_BODY,
    "header with a zero byte": _GET + _HOST + b"X-A: a\0b\r\n\r\n",
    "header over two lines": _GET + _HOST + b"X-A: a\r\n b\r\n\r\n",
    "header without a name": _GET + _HOST + b": a\r\n\r\n",
    "space before the colon": _GET + b"Host : localhost\r\n\r\n",
    "line feeds alone": _GET.replace(b"\r\n", b"\n") + b"Host: evil.example\n\n",
    "host in bytes of no encoding": _GET + b"Host: \xff\xfe\r\n\r\n",
    "host with a zero byte": _GET + b"Host: localhost\0.evil.example\r\n\r\n",
    "host that is open": _GET + b"Host: [::1\r\n\r\n",
    "host behind a name": _GET + b"Host: localhost@evil.example\r\n\r\n",
    "host in a list": _GET + b"Host: evil.example, localhost\r\n\r\n",
    "host by its ending": _GET + b"Host: localhost.evil.example\r\n\r\n",
    "port that is none": _GET + b"Host: evil.example:localhost\r\n\r\n",
    "websocket": _GET
    + b"Host: evil.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    + b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    "trace": b"TRACE /model HTTP/1.1\r\n" + _HOST + _NO_BODY,
    "method of zero bytes": b"G\0T /model HTTP/1.1\r\n" + _HOST + _NO_BODY,
    "method in small letters": b"get /model HTTP/1.1\r\n" + _HOST + _NO_BODY,
    "unknown method": b"PROPFIND / HTTP/1.1\r\n" + _HOST + _NO_BODY,
    "put": b"PUT /predict HTTP/1.1\r\n" + _HOST + _JSON + _WHOLE,
    "zero byte in the path": b"GET /assets/label.js%00.html HTTP/1.1\r\n"
    + _HOST
    + _NO_BODY,
    "backslashes in the path": b"GET /assets/..%5c..%5cconfig.py HTTP/1.1\r\n"
    + _HOST
    + _NO_BODY,
    "overlong dots in the path": b"GET /assets/%c0%ae%c0%ae/config.py HTTP/1.1\r\n"
    + _HOST
    + _NO_BODY,
    "dots encoded twice": b"GET /assets/%252e%252e/config.py HTTP/1.1\r\n"
    + _HOST
    + _NO_BODY,
    "an absolute asset": b"GET /assets//etc/passwd HTTP/1.1\r\n" + _HOST + _NO_BODY,
    "bytes of no encoding in the path": b"GET /%ff%fe HTTP/1.1\r\n" + _HOST + _NO_BODY,
    "half a character in the path": b"GET /v1/projects/%ed%a0%bd HTTP/1.1\r\n"
    + _HOST
    + _NO_BODY,
    "percent at the end": b"GET /labels?query=% HTTP/1.1\r\n" + _HOST + _NO_BODY,
    "letters in the path": "GET /modèl HTTP/1.1\r\n".encode() + _HOST + _NO_BODY,
    "no length": _POST + b"\r\n" + _ONE,
    "two requests as one": _POST + b"Content-Length: 0\r\n\r\n" + _ONE,
    "two media types": _POST + b"Content-Type: text/plain\r\n" + _WHOLE,
}
"""Requests whose bytes are odd; they are refused, or answered as an ordinary one."""
BODIES = {
    "not a number": '{"texts": ["a"], "top_k": NaN}',
    "infinity": '{"texts": ["a"], "threshold": Infinity}',
    "larger than a float": '{"texts": ["a"], "threshold": 1e999}',
    "negative zero": '{"texts": ["a"], "top_k": -0}',
    "a whole float": '{"texts": ["a"], "top_k": 3.0}',
    "a long number": '{"texts": ["a"], "top_k": 1' + "0" * 5_000 + "}",
    "a number in quotes": '{"texts": ["a"], "top_k": "3"}',
    "true for a number": '{"texts": ["a"], "top_k": true}',
    "a key twice": '{"texts": ["a"], "texts": ["b"]}',
    "a key twice within": '{"texts": [{"text": "a", "text": "b"}]}',
    "a key twice by an escape": '{"texts": ["a"], "te\\u0078ts": ["b"]}',
    "a mark of the byte order": '\ufeff{"texts": ["a"]}',
    "rubbish behind": '{"texts": ["a"]} x',
    "two values": '{"texts": ["a"]}{"texts": ["a"]}',
    "a comment": '{"texts": ["a"] /* x */}',
    "nothing": "null",
    "a string": '"texts"',
    "a list": '["a"]',
    "no texts": '{"texts": []}',
    "a null for a text": '{"texts": [null]}',
    "a list for a text": '{"texts": [["a"]]}',
    "fields of nothing": '{"texts": [{}]}',
    "a field without a name": '{"texts": [{"": "a"}]}',
    "an unknown field": '{"texts": [{"__proto__": "a"}]}',
    "lists in lists": '{"texts": ' + "[" * 400 + "]" * 400 + "}",
    "objects in objects": '{"texts": [' + '{"text": ' * 400 + "1" + "}" * 400 + "]}",
    "a label in another form": '{"texts": ["a"], "include": ["lﾑw"]}',
    "no label": '{"texts": ["a"], "include": [""]}',
    "a branch of nothing": '{"texts": ["a"], "include": ["branch:"]}',
    "a file for labels": '{"texts": ["a"], "include": ["@/etc/passwd"]}',
    "a language as a path": '{"texts": ["a"], "language": "../../etc"}',
    "a rule with a large number": '{"texts": ["a"], "threshold": "top_k=99999999999999999999"}',
    "a rule with no number": '{"texts": ["a"], "threshold": "precision=nan"}',
    "a rule below nothing": '{"texts": ["a"], "threshold": "precision=-1"}',
}
"""JSON that `/predict` must refuse, or answer as it stands."""
_LONG = "x" * 100_000
ELSEWHERE: dict[str, tuple[str, bytes, str]] = {
    "long identifier": (
        BATCH,
        json.dumps({"documents": [{"text": "a", "document_id": _LONG}]}).encode(),
        "",
    ),
    "identifier as a path": (
        BATCH,
        b'{"documents": [{"text": "fishing", "document_id": "../../../etc/passwd"}]}',
        "",
    ),
    "number for an identifier": (
        BATCH,
        b'{"documents": [{"text": "a", "document_id": 1e999}]}',
        "",
    ),
    "no limit": (
        f"{BATCH}?limit=99999999999999999999999",
        b'{"documents": [{"text": "a"}]}',
        "",
    ),
    "no threshold": (f"{BATCH}?threshold=nan", b'{"documents": [{"text": "a"}]}', ""),
    "two limits": (f"{BATCH}?limit=1&limit=x", b'{"documents": [{"text": "a"}]}', ""),
    "metadata of numbers": (
        BATCH,
        b'{"documents": [{"text": "a", "metadata": {"a": 1}}]}',
        "",
    ),
    "annotated path": (
        ANNOTATE,
        b'{"id": "../../x", "text": "a", "labels": ["../../law"]}',
        "",
    ),
    "annotated line": (
        ANNOTATE,
        b'{"id": "a\\n{\\"id\\": 1}", "text": "", "labels": []}',
        "",
    ),
    "annotated infinity": (
        ANNOTATE,
        b'{"text": "a", "labels": [], "review": {"suggested": [], "seconds": Infinity}}',
        "",
    ),
    "learnt nothing": (LEARN, b"[null]", ""),
    "learnt once in a list": (LEARN, b'[[{"text": "a"}]]', ""),
    "skipped path": ("/queue/next?skip=../../x", b"", "application/json"),
    "form of no encoding": (
        SUGGEST,
        b"text=%ff%fe&limit=3",
        "application/x-www-form-urlencoded",
    ),
    "form with zero bytes": (
        SUGGEST,
        b"text=%00&limit=3",
        "application/x-www-form-urlencoded",
    ),
    "form with a charset": (
        SUGGEST,
        b"text=a&limit=x",
        "application/x-www-form-urlencoded; charset=utf-7",
    ),
    "form twice": (
        SUGGEST,
        b"text=a&text=b&limit=-1",
        "application/x-www-form-urlencoded",
    ),
    "form without an end": (
        SUGGEST,
        b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\na',
        "multipart/form-data; boundary=x",
    ),
    "form without a boundary": (SUGGEST, b"--x\r\n\r\n--x--", "multipart/form-data"),
    "form with a long boundary": (
        SUGGEST,
        b"x",
        f"multipart/form-data; boundary={'x' * 9_000}",
    ),
    "form with a file for a text": (
        SUGGEST,
        b'--x\r\nContent-Disposition: form-data; name="text"; filename="../../x"\r\n'
        b"Content-Type: text/plain\r\n\r\nlawery\r\n--x--\r\n",
        "multipart/form-data; boundary=x",
    ),
    "form of very many parts": (
        SUGGEST,
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n' * 3_000
        + b"--x--\r\n",
        "multipart/form-data; boundary=x",
    ),
    "languages without end": (
        "/v1/detect-language",
        json.dumps({"text": "a", "languages": ["en"] * 5_000}).encode(),
        "",
    ),
    "language as a path": (
        "/v1/detect-language",
        b'{"text": "a", "languages": ["../x"]}',
        "",
    ),
}
"""Path, body and media type of what other paths must refuse, or answer as it stands."""
ENCODINGS = (
    "gzip, gzip",
    "br",
    "GZIP",
    "zstd",
    "identity, gzip",
    "x-gzip;q=1",
    "\t",
    "gzip\x0b",
)
QUERIES = (
    "query=%00",
    "query=%ed%a0%bd",
    "limit=99999999999999999999",
    "limit=-1",
    "limit=NaN",
    "limit=1e3",
    "x=1",
)
VERSIONS = (
    "../tiny/good",
    "good/",
    "./good",
    "good\0",
    "",
    ".",
    "..",
    "/etc",
    "GOOD",
    "good\u0301",
    "x" * 5_000,
)

Change = Callable[[Path], None]


def strange_attacks(
    site: Site, open_: Server, switching: Server, versions: Path
) -> Iterator[Attack]:
    """Odd bytes, odd values, and odd folders of versions.

    Args:
        site: what was trained.
        open_: a server without a token.
        switching: one that serves the versions in `versions`.
        versions: folder of the versions of the model `tiny`, of which `good` answers.
    """
    for name, data in RAW.items():
        yield Attack("odd requests", name, partial(_raw, open_, data))
    for name, text in BODIES.items():
        yield Attack(
            "odd values",
            f"{PREDICT}, {name}",
            partial(_odd, open_, PREDICT, text.encode(), {}),
        )
    for name, (path, body, media_type) in ELSEWHERE.items():
        headers = {"Content_Type": media_type} if media_type else {}
        yield Attack(
            "odd values", f"{path}, {name}", partial(_odd, open_, path, body, headers)
        )
    for encoding in ENCODINGS:
        headers = {"Content_Encoding": encoding}
        yield Attack(
            "odd encodings",
            f"{encoding!r}",
            partial(_odd, open_, PREDICT, _ONE, headers),
        )
    for query in QUERIES:
        yield Attack("odd queries", query, partial(_query, open_, query))
    for version in VERSIONS:
        yield Attack(
            "odd names of versions",
            f"{version[:20]!r}",
            partial(_version, switching, version),
        )
    for name, change in _changes().items():
        yield Attack(
            "odd folders of versions",
            name,
            partial(_folder, site, switching, versions, change),
        )


def _raw(server: Server, data: bytes, _folder: Path) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=15) as connection:
        found = b""
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                found += part
        except ConnectionError:
            pass
    status = found.split(b"\r\n")[0].split(b" ")[1:2]
    expect(not status or status[0] < b"500" or status[0] == b"501", f"{found[:200]!r}")
    expect(b"root:" not in found and b"import " not in found, "a file is shown")
    expect(b"evil" not in data or b'"task"' not in found, "a stranger was answered")
    server.check()


def _odd(
    server: Server, path: str, body: bytes, headers: dict[str, str], _folder: Path
) -> None:
    before = server.annotations.read_bytes()
    status, said = server.ask("POST", path, body, **headers)
    expect(status < 500, f"status {status}: {said[:300]}")
    expect("NaN" not in said and "Infinity" not in said, f"no JSON: {said[:200]}")
    expect("root:" not in said, "a file is shown")
    if path in (ANNOTATE, LEARN):
        expect(server.annotations.read_bytes() == before, "it was saved")
    server.check()


def _query(server: Server, query: str, _folder: Path) -> None:
    status, said = server.ask("GET", f"/labels?{query}")
    expect(status < 500, f"status {status}: {said[:300]}")
    server.check()


def _version(server: Server, version: str, _folder: Path) -> None:
    status, said = server.ask("POST", "/models/tiny", {"version": version})
    expect(400 <= status < 500, f"status {status}: {said[:200]}")
    server.check()


def _folder(
    site: Site, server: Server, versions: Path, change: Change, _folder: Path
) -> None:
    """A version with something odd in its folder; then the good one again."""
    place = versions / "odd"
    shutil.copytree(site.model, place)
    try:
        change(place)
        status, said = server.ask("POST", "/models/tiny", {"version": "odd"})
        expect(status in (200, 409), f"status {status}: {said[:300]}")
        if status == 409:
            expect("\n" not in json.loads(said)["detail"], f"several lines: {said}")
            expect(str(versions.parent) not in said, f"tells a path: {said}")
        server.check()
        back = server.ask("POST", "/models/tiny", {"version": "good"})
        expect(back[0] == 200, f"the good version is not taken: {back}")
        server.check()
    finally:
        shutil.rmtree(place)


def _changes() -> dict[str, Change]:
    return {
        "settings of keys twice": partial(
            _rewrite, name="config.json", before="{", after='{"name": "x", "name": "y",'
        ),
        "settings with a mark": partial(
            _rewrite, name="config.json", before="{", after="\ufeff{"
        ),
        "settings of lists in lists": partial(
            _text, name="config.json", text="[" * 100_000
        ),
        "settings of a long number": partial(
            _text, name="config.json", text='{"a": 1' + "0" * 9_000 + "}"
        ),
        "settings in UTF-16": lambda folder: _utf16(folder / "config.json"),
        "settings of infinities": partial(_number, value=float("inf")),
        "settings of no numbers": partial(_number, value=float("nan")),
        "settings of 2**63": partial(_number, value=2**63),
        "checksums of a path": partial(_checksum, name="/etc/passwd"),
        "checksums of nothing": partial(_checksum, name=""),
        "checksums of the folder": partial(_checksum, name="."),
        "checksums around": partial(_checksum, name="tokenizer/../head.safetensors"),
        "checksums with a zero byte": partial(_checksum, name="a\0b"),
        "checksums of half a character": partial(_checksum, name="\ud83d"),
        "checksums of the settings": partial(_checksum, name="config.json"),
        "checksums of very many": _many_checksums,
        "checksums in capitals": partial(_each_checksum, change=str.upper),
        "checksums of a number": partial(_each_checksum, change=len),
        "a pipe for weights": partial(
            _instead, name="head.safetensors", make=os.mkfifo
        ),
        "a pipe for answers": partial(_instead, name="smoke.json", make=os.mkfifo),
        "a device for weights": partial(
            _instead,
            name="head.safetensors",
            make=lambda path: path.symlink_to("/dev/zero"),
        ),
        "a device for settings": partial(
            _instead, name="config.json", make=lambda path: path.symlink_to("/dev/zero")
        ),
        "a folder for labels": partial(_instead, name="labels.arrow", make=os.mkdir),
        "a folder for settings": partial(_instead, name="config.json", make=os.mkdir),
        "a link to itself": partial(
            _instead, name="labels.arrow", make=lambda path: path.symlink_to(path)
        ),
        "a hole of a terabyte": partial(_hole, name="head.safetensors"),
        "a hole of a terabyte for settings": partial(_hole, name="config.json"),
        "a hole of a terabyte for answers": partial(_hole, name="smoke.json"),
        "names that differ by case": lambda folder: shutil.copy(
            folder / "head.safetensors", folder / "Head.safetensors"
        ),
        "answers of very many": partial(
            _text, name="smoke.json", text="[" + "1," * 500_000 + "1]"
        ),
        "answers to very many texts": partial(
            _text,
            name="smoke.json",
            text=json.dumps([{"text": "a " * 50_000, "labels": {}}] * 200),
        ),
        "no permission": lambda folder: (folder / "head.safetensors").chmod(0),
        "a tokenizer that goes back": _slow_tokenizer,
    }


def _text(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    if name != "config.json":
        sign_model(folder)


def _rewrite(folder: Path, name: str, before: str, after: str) -> None:
    path = folder / name
    path.write_text(path.read_text().replace(before, after, 1))


def _utf16(path: Path) -> None:
    path.write_text(path.read_text(), encoding="utf-16")


def _number(folder: Path, value: float) -> None:
    settings = _settings(folder)
    for key, old in settings.items():
        if isinstance(old, int | float) and not isinstance(old, bool):
            settings[key] = value
    (folder / "config.json").write_text(json.dumps(settings))


def _settings(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def _checksum(folder: Path, name: str) -> None:
    settings = _settings(folder)
    settings["sha256"][name] = "0" * 64
    (folder / "config.json").write_text(json.dumps(settings))


def _many_checksums(folder: Path) -> None:
    settings = _settings(folder)
    settings["sha256"] |= {f"{number}": "0" * 64 for number in range(50_000)}
    (folder / "config.json").write_text(json.dumps(settings))


def _each_checksum(folder: Path, change: Callable[[str], Any]) -> None:
    settings = _settings(folder)
    settings["sha256"] = {
        name: change(value) for name, value in settings["sha256"].items()
    }
    (folder / "config.json").write_text(json.dumps(settings))


def _instead(folder: Path, name: str, make: Callable[[Path], object]) -> None:
    (folder / name).unlink(missing_ok=True)
    make(folder / name)


def _hole(folder: Path, name: str) -> None:
    with (folder / name).open("ab") as file:
        file.truncate(1 << 40)


def _slow_tokenizer(folder: Path) -> None:
    """Words are told by an expression that tries exponentially many ways."""
    path = folder / "tokenizer" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(x+x+)+y|(\\w+\\s?)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    path.write_text(json.dumps(content))
    sign_model(folder)
