"""Links and names that lead out of a model folder: what is behind them must get into no copy and no message."""

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from attack_cases.attack import Attack, expect
from bad_input_cases.case import Site, command

SECRET = "-----BEGIN PRIVATE KEY-----"
NAMES = ("README.md", "thresholds.json", "labels.arrow", "config.json", "tokenizer")
LINKS = (
    "to a secret",
    "to the same content",
    "of links",
    "by a folder",
    "named in the checksums",
)
COMMANDS = ("labels rename", "labels remove", "score", "predict")


def link_attacks(site: Site) -> Iterator[Attack]:
    """Every link at every file, for every command that reads a model."""
    for link, name, entry in itertools.product(LINKS, NAMES, COMMANDS):
        yield Attack("links", entry, partial(_attack, site, link, name, entry))


def _attack(site: Site, link: str, name: str, entry: str, folder: Path) -> None:
    model, secret, output = folder / "model", folder / "secret", folder / "out"
    shutil.copytree(site.model, model)
    place = model / name
    if link == "to the same content" or (link == "by a folder" and place.is_dir()):
        place.rename(secret)
    else:
        secret.write_text(SECRET)
    if link == "named in the checksums":
        settings = json.loads((model / "config.json").read_text())
        settings["sha256"][f"../{secret.name}"] = hashlib.sha256(
            SECRET.encode()
        ).hexdigest()
        (model / "config.json").write_text(json.dumps(settings))
    else:
        shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
        through = folder / "through"
        through.symlink_to(secret if link != "by a folder" else folder)
        place.symlink_to(
            secret
            if link.startswith("to")
            else through
            if link == "of links"
            else through / "secret"
        )
    words = {
        "labels rename": ("labels", "rename", model, "law=laws", "-o", output),
        "labels remove": ("labels", "remove", model, "law", "-o", output),
        "score": ("score", model, site.folder / "one.jsonl", "-o", output),
        "predict": ("predict", model, "-t", "lawery"),
    }
    code, said = command(*words[entry])
    expect(code and "Traceback" not in said, f"exit status {code}: {said}")
    copied = (
        [path for path in output.rglob("*") if path.is_file()]
        if output.exists()
        else []
    )
    expect(
        not any(SECRET.encode() in path.read_bytes() for path in copied),
        "the secret was copied",
    )
    expect(
        SECRET not in said and os.path.lexists(secret), "the secret was told or moved"
    )
