"""Clients of a server that ask all the time, and what they got; see a_year.py."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

import numpy as np
import psutil
import requests

CLIENTS = 32
NAMED = ("model", "version", "vocabulary", "rule")
PAUSE_S = 4.0
"""Time that a client waits after an answer, unless the server is to have full load."""
AFTER_S = 1.0
"""Time after a switch in which its answers arrive."""


@dataclass(frozen=True)
class Answer:
    """What a client got: when it asked, when it had the answer, HTTP status (0 for none), and what the answer names."""

    sent_s: float
    received_s: float
    status: int
    about: dict[str, str]


@dataclass(frozen=True)
class Window:
    """A time of full load."""

    version: str
    p99_ms: float
    cpu_ms: float
    memory_mib: float


class Clients:
    """Ask for the labels of one text after the other, each client by itself.

    Attributes:
        documents: what they ask about.
        answers: of all clients.
        labels: predicted labels by version.
        windows: times of full load.
        switching_ms: how long the slowest answer took, of each switch.

    Args:
        place: address of the server.
        token: of the clients.
        documents: what they ask about, by field.
        process: the server.
    """

    def __init__(
        self,
        place: str,
        token: str,
        documents: Sequence[Mapping[str, str]],
        process: psutil.Process,
    ) -> None:
        self.place, self.documents, self._process = place, documents, process
        self._headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
        }
        self.answers: list[Answer] = []
        self.labels: dict[str, set[str]] = defaultdict(set)
        self.windows: list[Window] = []
        self.switching_ms: list[float] = []
        self._asked_s, self._had_s, self._versions = [0.0], [0.0], ["first"]
        self._hurry, self._over = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(number,))
            for number in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all clients."""
        self._over.set()
        self._hurry.set()
        for thread in self._threads:
            thread.join()

    def window(self, version: str, seconds: float) -> None:
        """Give the server full load for some time."""
        began, cpu_s = time.perf_counter(), self._cpu_s()
        self._hurry.set()
        time.sleep(seconds)
        self._hurry.clear()
        some = self._since(began)
        cpu_ms = 1000 * (self._cpu_s() - cpu_s) / len(some)
        p99_ms = float(
            np.quantile([1000 * (one.received_s - one.sent_s) for one in some], 0.99)
        )
        self.windows.append(
            Window(version, p99_ms, cpu_ms, self._process.memory_info().rss / 2**20)
        )

    def switch(self, version: str) -> None:
        """Let another version answer, under full load."""
        self._hurry.set()
        began = time.perf_counter()
        self._asked_s.append(began)
        self._versions.append(version)
        self.ask_for(version).raise_for_status()
        self._had_s.append(time.perf_counter())
        time.sleep(AFTER_S)
        self._hurry.clear()
        slowest_s = max(
            (one.received_s - one.sent_s for one in self._since(began)), default=0.0
        )
        self.switching_ms.append(1000 * slowest_s)

    def ask_for(self, version: str) -> requests.Response:
        """Ask for a version."""
        return requests.post(
            f"{self.place}/models/gnd",
            json={"version": version},
            headers=self._headers,
            timeout=300,
        )

    def wrong(self) -> int:
        """Count the answers by a version that was not to answer between question and answer."""
        ends = [*self._had_s[1:], float("inf")]
        spans = list(zip(self._asked_s, ends, self._versions, strict=True))
        return sum(
            one.about["version"]
            not in {
                version
                for start, end, version in spans
                if start <= one.received_s and one.sent_s <= end
            }
            for one in self.answers
            if one.status == 200
        )

    def _since(self, began: float) -> list[Answer]:
        return [one for one in self.answers if one.received_s >= began]

    def _cpu_s(self) -> float:
        times = self._process.cpu_times()
        return times.user + times.system

    def _ask(self, number: int) -> None:
        connection, at = (
            HTTPConnection(self.place.removeprefix("http://"), timeout=120),
            number,
        )
        while not self._over.is_set():
            self.answers.append(
                self._answer(connection, self.documents[at % len(self.documents)])
            )
            at += CLIENTS
            self._hurry.wait(PAUSE_S)
        connection.close()

    def _answer(
        self, connection: HTTPConnection, document: Mapping[str, str]
    ) -> Answer:
        sent_s = time.perf_counter()
        try:
            connection.request(
                "POST", "/predict", json.dumps({"texts": [document]}), self._headers
            )
            response = connection.getresponse()
            content = json.loads(response.read())
        except (OSError, HTTPException, ValueError):
            connection.close()
            return Answer(sent_s, time.perf_counter(), 0, {})
        about = {name: content.get(name, "") for name in NAMED}
        given = {
            one["label"]
            for one in content.get("predictions", [[]])[0]
            if one["predicted"]
        }
        self.labels[about["version"]] |= given
        return Answer(sent_s, time.perf_counter(), response.status, about)
