"""The parts of the Hugging Face Hub's HTTP API that pushing and fetching a model need, for one test process."""

import base64
import hashlib
import json
import os
import re
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Hub(ThreadingHTTPServer):
    """Repositories in memory.

    Attributes:
        repositories: name -> file -> content.
        private: names of those made private.
        asked: files that were downloaded.
        status, reason: what every request is answered, where it is not 0.
        killing: a step of a push, and the process that is killed when it asks for it.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.asked: list[str] = []
        self.status, self.reason = 0, ""
        self.killing: tuple[str, int] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def commit(self, repository: str, operations: list[dict[str, Any]]) -> None:
        """Add and delete files; all at once, or none if an operation is wrong."""
        files = dict(self.repositories[repository])
        for operation in operations:
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "deletedFile":
                del files[value["path"]]
        self.repositories[repository] = files

    def commit_of(self, repository: str) -> str:
        return hashlib.sha1(
            repr(sorted(self.repositories[repository].items())).encode()
        ).hexdigest()


class Requests(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def answer(self, status: int, body: bytes = b"{}", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def answer_json(self, content: Any) -> None:
        self.answer(200, json.dumps(content).encode(), Content_Type="application/json")

    def do_GET(self) -> None:
        parts = urlsplit(self.path).path.strip("/").split("/")
        api = parts[0] == "api"
        repository = "/".join(parts[2:4] if api else parts[:2])
        if self.server.status:
            self.answer(self.server.status, X_Error_Message=self.server.reason)
        elif repository not in self.server.repositories:
            self.answer(404, X_Error_Code="RepoNotFound")
        elif api and "tree" in parts:
            files = self.server.repositories[repository].items()
            self.answer_json(
                [
                    {"type": "file", "path": p, "size": len(b), "oid": sha(b)}
                    for p, b in files
                ]
            )
        elif api:
            self.answer_json(
                {
                    "id": repository,
                    "sha": self.server.commit_of(repository),
                    "siblings": [],
                }
            )
        else:
            self.file(repository, parts[3], "/".join(parts[4:]))

    do_HEAD = do_GET

    def file(self, repository: str, revision: str, name: str) -> None:
        commit = self.server.commit_of(repository)
        body = self.server.repositories[repository].get(name)
        if revision not in ("main", commit):
            self.answer(404, X_Error_Code="RevisionNotFound")
        elif body is None:
            self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        else:
            if self.command == "GET":
                self.server.asked.append(name)
            self.answer(200, body, ETag=f'"{sha(body)}"', X_Repo_Commit=commit)

    def do_POST(self) -> None:
        body = self.body()
        if body is None:
            self.close_connection = True
            return
        parts = urlsplit(self.path).path.strip("/").split("/")
        if self.server.killing is not None and self.server.killing[0] in parts:
            os.kill(self.server.killing[1], signal.SIGKILL)
            self.close_connection = True
        elif self.server.status:
            self.answer(self.server.status, X_Error_Message=self.server.reason)
        elif parts[1] == "repos":
            self.create(json.loads(body))
        elif parts[1] == "validate-yaml":
            wrong = re.findall(
                r'^base_model: "?([^"\n]*:[^"\n]*|/[^"\n]*)',
                json.loads(body)["content"],
                re.M,
            )
            errors = [
                {"message": f'"base_model" with value "{name}" is not valid.'}
                for name in wrong
            ]
            self.answer(
                400 if errors else 200,
                json.dumps({"warnings": [], "errors": errors}).encode(),
            )
        elif parts[4] == "preupload":
            files = json.loads(body)["files"]
            self.answer_json(
                {
                    "files": [
                        {
                            "path": f["path"],
                            "uploadMode": "regular",
                            "shouldIgnore": False,
                        }
                        for f in files
                    ]
                }
            )
        else:
            self.commit(
                "/".join(parts[2:4]), [json.loads(line) for line in body.splitlines()]
            )

    def body(self) -> bytes | None:
        """What a client has sent; None if it left before it had sent everything."""
        if "Content-Length" not in self.headers:
            return self.chunks()
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        return body if len(body) == size else None

    def chunks(self) -> bytes | None:
        body = b""
        while line := self.rfile.readline():
            size = int(line, 16)
            body += self.rfile.read(size)
            self.rfile.readline()
            if size == 0:
                return body
        return None

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        if asked["visibility"] == "private" and name not in self.server.repositories:
            self.server.private.add(name)
        self.server.repositories.setdefault(name, {".gitattributes": b"x"})
        self.answer_json({"url": f"{self.server.url}/{name}"})

    def commit(self, repository: str, operations: list[dict[str, Any]]) -> None:
        self.server.commit(repository, operations)
        self.answer_json(
            {"commitUrl": f"{self.server.url}/{repository}/commit/1", "commitOid": "1"}
        )


def sha(body: bytes) -> str:
    return hashlib.sha1(body).hexdigest()
