"""What is well formed by its header or its checksums, and is not what these say."""

import itertools
import json
import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from attack_cases.attack import Attack, expect
from attack_cases.served import (
    ANNOTATE,
    BATCH,
    LEARN,
    PREDICT,
    SHAPES,
    SUGGEST,
    Server,
    send_large,
)
from bad_input_cases.case import Site
from mutations import mutate

MEDIA_TYPES = (
    "application/JSON",
    "Application/Json; charset=utf-8",
    'application/json;charset="utf-8"',
    "application/json ; a=b",
    "\tapplication/json ",
    "application/vnd.api+json",
    "application/LD+JSON",
    "text/json",
    "text/plain",
    "application/octet-stream",
    "application/x-www-form-urlencoded",
    "APPLICATION/X-WWW-FORM-URLENCODED",
    "multipart/form-data; boundary=x",
    "application/json, text/plain",
    "",
)
LARGE = ("integers", "keys", "empty lists", "objects", "labels", "escapes", "deep")
HALF = "\ud83d"
CANDIDATES = 40


def content_attacks(site: Site, server: Server, versions: Path) -> Iterator[Attack]:
    """Every spelling of a media type at every path, halves of characters, and candidate versions.

    Args:
        site: what was trained.
        server: one that serves the versions in `versions`, without a token.
        versions: folder of the versions of the model `tiny`, of which `good` answers.
    """
    paths = (PREDICT, ANNOTATE, LEARN, BATCH)
    for (media_type, path), shape in zip(
        itertools.product(MEDIA_TYPES, paths), itertools.cycle(LARGE), strict=False
    ):
        yield Attack(
            f"media types: {media_type!r}",
            f"{path}, {shape}",
            partial(
                send_large, server, path, SHAPES[shape], {"Content_Type": media_type}
            ),
        )
    for name, (path, body) in _halves().items():
        yield Attack(
            "halves of characters",
            f"{path}, {name}",
            partial(_half, server, path, body),
        )
    for seed in range(CANDIDATES):
        yield Attack(
            "candidate versions",
            f"seed {seed}",
            partial(_candidate, site, server, versions, seed),
        )


def _halves() -> dict[str, tuple[str, Any]]:
    """Bodies with half of a character in every string that they may hold."""
    whole: dict[str, tuple[str, Any]] = {
        "text": (PREDICT, {"texts": [HALF]}),
        "field": (PREDICT, {"texts": [{"text": f"lawery {HALF}"}]}),
        "name of a field": (PREDICT, {"texts": [{f"text{HALF}": "lawery"}]}),
        "key": (PREDICT, {"texts": ["lawery"], HALF: 1}),
        "threshold": (PREDICT, {"texts": ["lawery"], "threshold": HALF}),
        "annotated text": (ANNOTATE, {"text": HALF, "labels": []}),
        "label": (ANNOTATE, {"text": "fishing", "labels": [HALF]}),
        "id": (ANNOTATE, {"id": HALF, "text": "fishing", "labels": []}),
        "learnt text": (LEARN, [{"text": HALF}]),
        "learnt id": (LEARN, [{"text": "fishing", "document_id": HALF}]),
        "subject": (LEARN, [{"text": "fishing", "subjects": [{"uri": HALF}]}]),
        "name of a subject": (
            LEARN,
            [{"text": "fishing", "subjects": [{"uri": "law", "label": HALF}]}],
        ),
        "document": (BATCH, {"documents": [{"text": HALF}]}),
        "document_id": (
            BATCH,
            {"documents": [{"text": "fishing", "document_id": HALF}]},
        ),
        "language": (f"{SUGGEST}?language=%ED%A0%BD", {"text": "fishing"}),
        "version": ("/models/tiny", {"version": HALF}),
    }
    return whole


def _half(server: Server, path: str, body: Any, _folder: Path) -> None:
    before = server.annotations.read_bytes()
    status, said = server.ask("POST", path, body)
    expect(400 <= status < 500, f"status {status}: {said[:200]}")
    expect(server.annotations.read_bytes() == before, "it was saved")
    server.check()


def _candidate(
    site: Site, server: Server, versions: Path, seed: int, _folder: Path
) -> None:
    """A version with one change and the checksum that fits it; then the good one again."""
    name = f"candidate-{seed}"
    place = versions / name
    shutil.copytree(site.model, place)
    changed = mutate(place, random.Random(seed))
    status, said = server.ask("POST", "/models/tiny", {"version": name})
    expect(status in (200, 409), f"{changed}: status {status}: {said[:300]}")
    if status == 409:
        detail = json.loads(said)["detail"]
        expect("\n" not in detail, f"{changed}: several lines: {detail}")
    server.check()
    back = server.ask("POST", "/models/tiny", {"version": "good"})
    expect(back[0] == 200, f"{changed}: the good version is not taken: {back}")
    server.check()
    shutil.rmtree(place)
