"""An endpoint with OpenAI's interface that ranks labels as a test wants, for one test process."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch

import tiny_runs
from xmtc.run.config import RunConfig

FITTED = "{kind: word_neighbours, neighbours: 1}"
"""The other scorers of the runs here."""
Answer = Callable[[list[str], str], object]
"""What the model says of names and a text: text, or bytes for the whole body, or an HTTP status."""


def named_in_text(names: list[str], text: str) -> str:
    """What a good model says of the documents of `tiny_runs`: the labels whose words are in the text."""
    return json.dumps([at for at, name in enumerate(names, start=1) if f"{name}ery" in text])


class LanguageModel(ThreadingHTTPServer):
    """Attributes:
    answer: what it says.
    asked: bodies of requests.
    headers: those of the last request.
    seconds: how long it thinks.
    """

    daemon_threads = True

    def __init__(self, answer: Answer = named_in_text) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.answer, self.asked, self.seconds, self.headers = answer, [], 0.0, {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Requests(BaseHTTPRequestHandler):
    server: LanguageModel

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.headers = dict(self.headers)
        time.sleep(self.server.seconds)
        question = body["messages"][-1]["content"]
        names = re.findall(r"^\d+\. (.*)$", question.partition("\n\n")[0], re.M)
        text = question.partition("<document>\n")[2].partition("\n</document>")[0]
        said = self.server.answer(names, text)
        self.send_response(said if isinstance(said, int) else 200)
        self.end_headers()
        if not isinstance(said, int):
            content = {"choices": [{"message": {"content": said}}]}
            with suppress(ConnectionError):
                self.wfile.write(said if isinstance(said, bytes) else json.dumps(content).encode())


@contextmanager
def answering(answer: Answer = named_in_text) -> Iterator[LanguageModel]:
    with LanguageModel(answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def loaded(folder: Path, name: str, scorers: str, *overrides: str) -> RunConfig:
    torch.set_num_threads(1)
    config = folder / "tiny.yaml"
    if not config.exists():
        tiny_runs.write_config(folder)
    return tiny_runs.load(
        config, f"name={name}", f"model.scorers=[{scorers}]", "model.head={kind: none}", "plant.parts=[]", *overrides
    )


def with_reranker(model: LanguageModel, **settings: object) -> str:
    return f"{FITTED}, {json.dumps({'kind': 'reranker', 'endpoint': model.url, 'model': 'm', 'best': 6} | settings)}"
