"""Signals in the middle of every command that writes: no texts stay, and the same command then succeeds."""

import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest.mock import patch

from attack_cases.attack import Attack, expect, run
from bad_input_cases import refused_writes
from bad_input_cases.case import Site, command
from bad_input_cases.directories import results_of

NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL)
PLACES = (("open", 0), ("open", 4), ("fsync", 1), ("replace", 1))
_ENTRIES = (
    "prepare",
    "train",
    "labels merge",
    "report",
    "explain",
    "score",
    "evaluate",
)


def signal_attacks(site: Site) -> Iterator[Attack]:
    """Every signal at every place of every command."""
    words = refused_writes.writers(site)
    for entry, number, (call, turn) in itertools.product(_ENTRIES, NUMBERS, PLACES):
        yield Attack(
            f"signals: {signal.Signals(number).name}",
            entry,
            partial(_attack, words[entry], number, call, turn),
        )


def _attack(
    words: refused_writes.Words, number: int, call: str, turn: int, folder: Path
) -> None:
    bad, good = folder / "bad", folder / "good"
    for one in (bad, good):
        one.mkdir()
    child = multiprocessing.get_context("fork").Process(
        target=_command, args=(words(bad), number, call, turn, bad)
    )
    child.start()
    child.join(120)
    expect(
        child.exitcode in (0, 128 + number, -signal.SIGKILL),
        f"exit status {child.exitcode}",
    )
    if number != signal.SIGKILL:
        left = [
            path
            for path in bad.rglob("*")
            if path.name.endswith((".tmp", ".unfinished")) or path.name == "spool"
        ]
        expect(not left, f"left behind: {left}")
    run(*words(bad))
    expect(not [*bad.rglob("spool"), *bad.rglob("*.unfinished")], "texts stay behind")
    run(*words(good))
    differing = [
        name
        for name, content in results_of(good).items()
        if results_of(bad).get(name) != content
    ]
    expect(not differing, f"other results afterwards: {differing}")


def _command(
    words: tuple[object, ...], number: int, call: str, turn: int, folder: Path
) -> None:
    """Run a command that gets a signal at a call; a second one follows at once."""

    def twice(*_: object) -> OSError:
        for _turn in range(2):
            os.kill(os.getpid(), number)
        return OSError("no signal arrived")

    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # this tool may run under `nohup`, or behind a shell's &
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    refusal = refused_writes.refused_call(call, turn, 5, folder)
    with patch.object(refused_writes, "OSError", twice, create=True), refusal:
        status, _ = command(*words)
    os._exit(status)
