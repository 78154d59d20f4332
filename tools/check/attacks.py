"""Attack a server, commands at work, and the folders that they read; count what held and what fell.

    python tools/check/attacks.py [--only KIND] [--every N] [--seconds S]

A tiny model is trained first. Attacks are generated: every kind at every boundary. Each runs in a fork of this process;
servers listen on the loopback address alone. An attack holds if it is refused as promised, or changes nothing, in
bounded time. It falls if it succeeds, or has no end within four minutes. The exit status is 1 if one fell.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from attack_cases.adapters import adapter_attacks
from attack_cases.attack import Attack, FellError
from attack_cases.content import content_attacks
from attack_cases.corpora import corpus_attacks
from attack_cases.links import link_attacks
from attack_cases.long_documents import long_document_attacks
from attack_cases.meanwhile import meanwhile_attacks
from attack_cases.runs import run_attacks
from attack_cases.served import TOKEN, Server, server_attacks
from attack_cases.signals import signal_attacks
from attack_cases.store import store_attacks
from attack_cases.strange import strange_attacks
from bad_input_cases.case import Site, in_child
from bad_inputs import prepared
from mutations import keep_tables, save_backbone, train_model

LIMIT_S = 240


def all_attacks(
    site: Site,
    adapted: Site,
    servers: tuple[Server, Server],
    switching: Server,
    versions: Path,
) -> Iterator[Attack]:
    """Every kind at every boundary."""
    yield from server_attacks(site, *servers)
    yield from content_attacks(site, switching, versions)
    yield from strange_attacks(site, servers[0], switching, versions)
    yield from long_document_attacks(site)
    yield from store_attacks(site, servers[0])
    yield from corpus_attacks(site, adapted)
    yield from run_attacks(site, adapted)
    yield from adapter_attacks(adapted)
    yield from meanwhile_attacks(site)
    yield from link_attacks(site)
    yield from signal_attacks(site)


def with_adapter(folder: Path, tokenizer: Path) -> Site:
    """Train a small Transformer with an adapter, whose corpus keeps the states of the frozen encoder."""
    folder.mkdir()
    save_backbone(folder, tokenizer)
    run = train_model(folder, "adapter")
    return Site(run, folder / "adapter.yaml", folder / "corpus-adapter", folder)


def fallen(attack: Attack, folder: Path) -> str:
    """Why an attack fell; empty if it held."""
    folder.mkdir(parents=True)
    try:
        attack.do(folder)
    except FellError as fell:
        return str(fell)
    except BaseException:
        return traceback.format_exc()
    return ""


def main() -> None:
    """Run the attacks and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        default="",
        help="run the kinds whose names begin so; several are separated by commas",
    )
    parser.add_argument("--every", type=int, default=1, help="run each Nth attack")
    parser.add_argument(
        "--seconds", type=float, default=3600, help="begin no attack after this time"
    )
    given = parser.parse_args()
    os.environ["LOKY_MAX_CPU_COUNT"] = (
        "1"  # no pool of processes for a handful of documents
    )
    tried, fell, end_s = (
        Counter[str](),
        Counter[str](),
        time.monotonic() + given.seconds,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        site = prepared(folder)
        tokenizer = site.corpus / "tokenizer"
        adapted, status = in_child(
            with_adapter, folder / "adapted", tokenizer, limit_s=LIMIT_S
        )
        if adapted is None:
            sys.exit(f"training with an adapter failed: exit status {status}")
        keep_tables(adapted.model)
        servers = (
            Server(site, folder / "open", None),
            Server(site, folder / "closed", TOKEN),
        )
        versions = folder / "models" / "tiny"
        shutil.copytree(site.model, versions / "good")
        switching = Server(site, folder / "switching", None, folder / "models")
        chosen = [
            attack
            for attack in all_attacks(site, adapted, servers, switching, versions)
            if attack.kind.startswith(tuple(given.only.split(",")))
        ][:: given.every]
        for number, attack in enumerate(chosen):
            if time.monotonic() > end_s:
                break
            found, _ = in_child(
                fallen, attack, folder / "attacks" / str(number), limit_s=LIMIT_S
            )
            shutil.rmtree(folder / "attacks", ignore_errors=True)
            tried[attack.kind] += 1
            if found != "":
                fell[attack.kind] += 1
                print(
                    f"fell: {attack.kind}, {attack.boundary}\n    {(found or 'no end')[-900:]}",
                    file=sys.stderr,
                    flush=True,
                )
        for server in (*servers, switching):
            server.end()
    print(
        f"{tried.total()} of {len(chosen)} attacks\n\n| kind | tried | held | fell |\n|---|---|---|---|"
    )
    for kind in [*tried, "all"]:
        count, lost = (
            (tried[kind], fell[kind])
            if kind != "all"
            else (tried.total(), fell.total())
        )
        print(f"| {kind} | {count} | {count - lost} | {lost} |")
    sys.exit(bool(fell))


if __name__ == "__main__":
    main()
