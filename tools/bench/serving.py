"""Latency, throughput and memory of `xmtc serve`, next to a plain FastAPI application around the same model.

    python tools/bench/serving.py [--model DIR] [--tokens 128] [--seconds 10] [--rounds 3] [--requests 400]
        [--memory-requests 10000] [--memory-seconds 400]

The plain application is what one writes: `Model.from_pretrained`, a route that is no coroutine, `Model.predict` of the
request's text. Both run as separate processes, with their defaults for threads. One at a time is loaded, and rounds
alternate. A measurement ends after --requests answers or --seconds, whichever comes first. Documents are random
words, --tokens tokens each. Without --model, an untrained MiniLM with label attention (2,000 labels) is built.

One JSON line per measurement; `cpu_ms` is the server's processor time per document, which says more than the clock on a
machine that others use too. The last lines are {"name", "ratio", "bar", "holds"}: documents per second at 32 clients
against the plain application in fp32 (median of rounds, bar 2.5), its median latency of one client over ours (bar
1.67), and resident memory after the last over that after a tenth of the requests (at most 1.05). Exit status 1 where a
bar is not held.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import psutil

from scoring import untrained
from xmtc.score.shell import use_bfloat16

CLIENTS = (1, 8, 32)
BAR, BAR_LATENCY, BAR_MEMORY = 2.5, 1.67, 1.05
LABELS = 2000
PORT = "port "


@dataclass
class Measured:
    """Answers of one measurement."""

    seconds: float
    cpu_seconds: float
    latencies_ms: list[float]

    @property
    def docs_per_s(self) -> float:
        """Documents per second."""
        return len(self.latencies_ms) / self.seconds

    @property
    def figures(self) -> dict[str, float]:
        """What is printed."""
        p50_ms, p99_ms = np.quantile(self.latencies_ms, (0.5, 0.99)).tolist()
        cpu_ms = 1000 * self.cpu_seconds / len(self.latencies_ms)
        found = {
            "docs_per_s": self.docs_per_s,
            "p50_ms": p50_ms,
            "p99_ms": p99_ms,
            "cpu_ms": cpu_ms,
        }
        return {"requests": len(self.latencies_ms)} | {
            name: round(value, 1) for name, value in found.items()
        }


@dataclass
class Server:
    """A server that runs."""

    port: int
    process: psutil.Process

    @property
    def cpu_seconds(self) -> float:
        """Processor time so far."""
        times = self.process.cpu_times()
        return times.user + times.system


def documents(model: Path, tokens: int, count: int) -> list[bytes]:
    """Bodies of requests, each with one document of random words that are one token each."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model / "tokenizer")
    words = sorted(
        word
        for word in tokenizer.get_vocab()
        if word.isascii() and word.isalpha() and len(word) > 2
    )
    drawn = np.random.default_rng(0).choice(words, (count, tokens))
    return [
        json.dumps({"texts": [" ".join(row)], "top_k": 10}).encode() for row in drawn
    ]


def load(
    server: Server, bodies: list[bytes], clients: int, requests: int, seconds: float
) -> Measured:
    """Send requests from several clients, each after its last answer, until there are enough or time is up."""
    latencies_ms: list[float] = []
    sent = iter(range(requests))
    lock = threading.Lock()
    end_s = time.perf_counter() + seconds

    def client() -> None:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=120)
        while time.perf_counter() < end_s:
            with lock:
                number = next(sent, None)
            if number is None:
                break
            began = time.perf_counter()
            body = bodies[number % len(bodies)]
            connection.request(
                "POST", "/predict", body, {"Content-Type": "application/json"}
            )
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            latencies_ms.append(1000 * (time.perf_counter() - began))
        connection.close()

    began, cpu_before = time.perf_counter(), server.cpu_seconds
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Measured(
        time.perf_counter() - began, server.cpu_seconds - cpu_before, latencies_ms
    )


def plain(model: Path, precision: str) -> None:
    """The application that `xmtc serve` is compared with."""
    import socket

    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel

    import xmtc

    class Body(BaseModel):
        texts: list[str]
        top_k: int = 10

    loaded = xmtc.Model.from_pretrained(model, bfloat16=precision == "bf16")
    app = FastAPI()

    @app.post("/predict")
    def predict(body: Body) -> list[list[dict[str, object]]]:
        found = loaded.predict(body.texts, top_k=body.top_k)
        return [
            [{"label": one.label, "score": one.score} for one in best] for best in found
        ]

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"{PORT}{listener.getsockname()[1]}", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, access_log=False, log_config=None)).run(
        sockets=[listener]
    )


@contextmanager
def started(command: list[str], mark: str) -> Iterator[Server]:
    """A server that says its port behind `mark`."""
    with subprocess.Popen(
        [sys.executable, *command], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if mark in line:
                break
        port = int(line.split(mark)[1].split(",")[0])
        reader = threading.Thread(target=process.stderr.read, daemon=True)
        reader.start()
        try:
            yield Server(port, psutil.Process(process.pid))
        finally:
            process.terminate()


@contextmanager
def ours(model: Path, *options: str) -> Iterator[Server]:
    call = [
        "-c",
        "from xmtc.cli import main; main()",
        "serve",
        str(model),
        "--port",
        "0",
        *options,
    ]
    with started(call, "http://127.0.0.1:") as server:
        yield server


def compared(
    arguments: argparse.Namespace, model: Path, precision: str
) -> dict[str, dict[int, list[Measured]]]:
    """Our server and the plain one, the latter also in the precision of ours, at each number of clients."""
    bodies = documents(model, arguments.tokens, 512)
    found: dict[str, dict[int, list[Measured]]] = {}
    with ExitStack() as stack:
        servers = {"xmtc": stack.enter_context(ours(model))}
        for one in dict.fromkeys(("fp32", precision)):
            command = [__file__, "--plain", str(model), "--precision", one]
            servers[f"plain {one}"] = stack.enter_context(started(command, PORT))
        for server in servers.values():
            load(server, bodies, 4, 40, arguments.seconds)
        for number in range(arguments.rounds):
            for clients in CLIENTS:
                for name, server in servers.items():
                    one = load(
                        server, bodies, clients, arguments.requests, arguments.seconds
                    )
                    found.setdefault(name, {}).setdefault(clients, []).append(one)
                    print(
                        json.dumps(
                            {"round": number, "server": name, "clients": clients}
                            | one.figures
                        ),
                        flush=True,
                    )
    return found


def memory(arguments: argparse.Namespace, model: Path) -> float:
    """Resident memory after many requests, over that after a tenth of them."""
    bodies = documents(model, 16, 512)
    step = max(8, arguments.memory_requests // 10)  # one for each client at least
    sizes, sent, end_s = [], 0, time.perf_counter() + arguments.memory_seconds
    with ours(model) as server:
        while not sizes or (
            sent < arguments.memory_requests and time.perf_counter() < end_s
        ):
            sent += len(
                load(
                    server, bodies, 8, step, max(1.0, end_s - time.perf_counter())
                ).latencies_ms
            )
            sizes.append(server.process.memory_info().rss / 2**20)
    print(
        json.dumps(
            {"memory_mib": [round(size, 1) for size in sizes], "requests": sent}
        ),
        flush=True,
    )
    return sizes[-1] / sizes[0]


def ratios(found: dict[str, dict[int, list[Measured]]]) -> dict[int, float]:
    """Documents per second of ours over the plain server's, by number of clients; prints all medians."""
    for clients in CLIENTS:
        medians = {}
        for name, measured in found.items():
            medians[name] = {
                "docs_per_s": round(
                    statistics.median(one.docs_per_s for one in measured[clients]), 1
                ),
                "cpu_ms": round(
                    statistics.median(
                        one.figures["cpu_ms"] for one in measured[clients]
                    ),
                    1,
                ),
            }
        print(json.dumps({"clients": clients, "medians": medians}), flush=True)
    return {
        clients: statistics.median(
            one.docs_per_s / other.docs_per_s
            for one, other in zip(
                found["xmtc"][clients], found["plain fp32"][clients], strict=True
            )
        )
        for clients in CLIENTS
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--memory-requests", type=int, default=10_000)
    parser.add_argument("--memory-seconds", type=float, default=400)
    parser.add_argument("--plain", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--precision", default="fp32", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.plain is not None:
        plain(arguments.plain, arguments.precision)
        return 0
    precision = "bf16" if use_bfloat16("auto", "cpu") else "fp32"
    print(
        json.dumps(
            {"load": os.getloadavg(), "cores": os.cpu_count(), "precision": precision}
        ),
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or untrained(Path(folder) / "model", LABELS)
        found = compared(arguments, model, precision)
        by_clients = ratios(found)
        grown = memory(arguments, model)
    own, plain_server = (
        [one.figures["p50_ms"] for one in found[name][1]]
        for name in ("xmtc", "plain fp32")
    )
    faster = statistics.median(
        slow / fast for slow, fast in zip(plain_server, own, strict=True)
    )
    print(
        json.dumps(
            {
                "ratios": {
                    clients: round(ratio, 2) for clients, ratio in by_clients.items()
                }
            }
        )
    )
    ratio = by_clients[CLIENTS[-1]]
    lines = [
        {
            "name": "serving_throughput",
            "ratio": round(ratio, 2),
            "bar": BAR,
            "holds": ratio >= BAR,
        },
        {
            "name": "serving_latency",
            "ratio": round(faster, 2),
            "bar": BAR_LATENCY,
            "holds": faster >= BAR_LATENCY,
        },
        {
            "name": "serving_memory",
            "ratio": round(grown, 3),
            "bar": BAR_MEMORY,
            "holds": grown <= BAR_MEMORY,
        },
    ]
    for line in lines:
        print(json.dumps(line))
    return 0 if all(line["holds"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
