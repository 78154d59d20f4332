"""Processor time of /predict with what watches a model, over that without, in one process.

    python tools/bench/watching.py [--model DIR] [--tokens 128] [--rounds 200] [--requests 16] [--clients 1 16]

Watching is all that came with versions: the choice of a version and its name in body and headers, what to expect of a
document, release, and the statistics of texts in /metrics. Without it, the same model and batcher answer by a route
that does none of this. A round sends the same requests to both applications, without sockets, in random order; so many
clients ask at the same time. The ratio is of the whole process's time on processors, which other programs hardly
change: the median of the rounds, with the 95 % interval of its order statistics. Documents are random words, --tokens
tokens each. Without --model, an untrained MiniLM with label attention (2,000 labels) is built.

One JSON line per number of clients: {"name", "clients", "ratio", "ci95", "ms", "bar", "holds"}; `ms` is the median
without. It holds if the interval ends below the bar. Exit status 1 where it does not.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from fastapi import FastAPI
from pydantic import BaseModel
from scipy.stats import binom

from scoring import untrained
from serving import LABELS, documents
from xmtc.desk.config import ServeConfig
from xmtc.desk.serve.app import make_app
from xmtc.desk.serve.batcher import PredictOptions
from xmtc.desk.serve.bodies import PredictBody, PredictedLabel
from xmtc.desk.serve.guard import Guard
from xmtc.desk.serve.metrics import Metrics
from xmtc.desk.serve.models import Models
from xmtc.desk.serve.refusals import add_handlers
from xmtc.desk.serve.server import load
from xmtc.fusion.decision import EXPECTED, Decision

BAR = 1.03


class Answer(BaseModel):
    """An answer without what watching adds."""

    predictions: list[list[PredictedLabel]]


def unwatched(models: Models) -> FastAPI:
    """Make an application that only predicts."""
    app, service = FastAPI(docs_url=None, redoc_url=None), models.first
    app.add_middleware(
        Guard, limits=models.config.limits, token=None, metrics=service.metrics
    )
    add_handlers(app)

    @app.post("/predict")
    async def predict(body: PredictBody) -> Answer:
        top_k = body.top_k or service.model.default_top_k
        include = None if body.include is None else tuple(body.include)
        options = PredictOptions(
            top_k, body.threshold, body.evidence, include, tuple(body.exclude)
        )
        found = await service.predict(service.model.texts(body.texts), options)
        return Answer.model_validate(
            {"predictions": service.model.translated(found, body.language)}
        )

    return app


async def ask(app: FastAPI, body: bytes) -> None:
    """Send a request as a server does, and expect an answer."""
    waiting, status = [{"type": "http.request", "body": body, "more_body": False}], []

    async def receive() -> dict[str, Any]:
        return waiting.pop() if waiting else await asyncio.Future()

    async def send(message: Any) -> None:
        status.append(message.get("status"))

    headers = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "query_string": b"",
    }
    scope |= {
        "path": "/predict",
        "raw_path": b"/predict",
        "root_path": "",
        "headers": headers,
    }
    await app(scope, receive, send)
    assert status[0] == 200, status


async def seconds(app: FastAPI, bodies: list[bytes], clients: int) -> float:
    """Processor time of all requests, of which each client sends some."""
    left = iter(bodies)

    async def client() -> None:
        for body in left:
            await ask(app, body)

    began = time.process_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.process_time() - began


def without() -> ExitStack:
    """Leave out the statistics of texts, and what is expected of them."""
    stack = ExitStack()
    nothing = np.zeros(len(EXPECTED))
    stack.enter_context(mock.patch.object(Metrics, "measure"))
    stack.enter_context(mock.patch.object(Decision, "expected", return_value=nothing))
    return stack


async def measured(
    models: Models, arguments: argparse.Namespace, bodies: list[bytes]
) -> list[dict[str, Any]]:
    """Measure rounds for each number of clients."""
    watched, bare, rng, lines = (
        make_app(models),
        unwatched(models),
        np.random.default_rng(0),
        [],
    )
    async with watched.router.lifespan_context(watched):
        for clients in arguments.clients:
            pairs = []
            for number in range(arguments.rounds + 1):
                some = [
                    bodies[at]
                    for at in rng.integers(len(bodies), size=arguments.requests)
                ]
                pair = {}
                for watching in rng.permutation([True, False]).tolist():
                    with ExitStack() if watching else without():
                        pair[watching] = await seconds(
                            watched if watching else bare, some, clients
                        )
                if number:  # the first warms up
                    pairs.append((pair[True], pair[False]))
            lines.append(line(np.array(pairs), clients, arguments.requests))
            print(json.dumps(lines[-1]), flush=True)
    return lines


def line(pairs_R2: np.ndarray, clients: int, requests: int) -> dict[str, Any]:
    """Summarise rounds."""
    ratios_R = np.sort(pairs_R2[:, 0] / pairs_R2[:, 1])
    first = int(binom.ppf(0.025, len(ratios_R), 0.5))
    low, high = (
        ratios_R[max(first - 1, 0)],
        ratios_R[min(len(ratios_R) - first, len(ratios_R) - 1)],
    )
    found = {
        "name": "watching",
        "clients": clients,
        "ratio": round(float(np.median(ratios_R)), 4),
    }
    found |= {"ci95": [round(float(low), 4), round(float(high), 4)]}
    found |= {"ms": round(1000 * float(np.median(pairs_R2[:, 1])) / requests, 2)}
    return found | {"bar": BAR, "holds": bool(high < BAR)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = arguments.model or untrained(Path(folder) / "model", LABELS)
        model = load(place, device="cpu", precision="auto")
        models = Models.single(model, ServeConfig(release="expected_f1>=0.5"), place)
        lines = asyncio.run(
            measured(models, arguments, documents(place, arguments.tokens, 512))
        )
    return 0 if all(one["holds"] for one in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
