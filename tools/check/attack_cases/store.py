"""One store of annotations: second writers, locks that others left, and ends that a dying machine left."""

import itertools
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from attack_cases.attack import Attack, expect
from attack_cases.served import ANNOTATE, Server
from bad_input_cases.case import Site, command
from xmtc.artefact.contract import LABELS
from xmtc.data.labels import LabelTable
from xmtc.desk.annotate.annotations import AnnotatedDocument, Annotations
from xmtc.errors import StorageError
from xmtc.files import lock_of

_FORK = get_context("fork")
_SUGGESTED = [{"label": "law", "name": "law", "score": 0.5, "predicted": True}]
_KNOWN = {"text": "fishing", "labels": ["law"], "by": None, "suggested": _SUGGESTED}
_LINE = json.dumps({"id": "b", **_KNOWN})
_WHOLE = json.dumps({"id": "a", **_KNOWN})
ENDS = {
    "half a line": _LINE[:20],
    "one letter": _LINE[:1],
    "a whole line": _LINE,
    "no bracket": _LINE[:-1],
    "half a character": _LINE[:22] + "\udcc3",
    "zeros": "\0" * 500,
    "a line and zeros": _LINE[:30] + "\0" * 500,
    "a carriage return": _LINE + "\r",
}
"""What stands behind the last end of a line."""
LEFT: dict[str, Callable[[Path], object]] = {
    "of another host": lambda path: path.write_text("process 1 on another-machine\n"),
    "of a process that is gone": lambda path: path.write_text(
        f"process 4194303 on {socket.gethostname()}\n"
    ),
    "empty": lambda path: path.write_text(""),
    "of very many bytes": lambda path: path.write_text("x" * 10_000_000),
    "of no text": lambda path: path.write_bytes(b"\xff\xfe\0" * 99),
}
"""Files of locks that nobody holds: the next writer takes them."""
OTHERS: dict[str, Callable[[Path], object]] = {
    "a folder": os.mkdir,
    "a pipe": os.mkfifo,
    "a link to nothing": lambda path: path.symlink_to(path.parent / "none" / "none"),
    "a link to a device": lambda path: path.symlink_to("/dev/full"),
}
"""What may stand where the lock belongs: refused, or taken, and never waited for."""
READERS = ("report", "export", "import")


def store_attacks(site: Site, server: Server) -> Iterator[Attack]:
    """Every end, every lock, and every second writer.

    Args:
        site: what was trained.
        server: one that keeps annotations.
    """
    for name, end in ENDS.items():
        yield Attack("torn lines", name, partial(_torn, site, end))
    for (name, end), reader in itertools.product(ENDS.items(), READERS[:2]):
        yield Attack(
            "torn lines",
            f"annotations {reader}, {name}",
            partial(_torn_and_read, end, reader),
        )
    for name, leave in LEFT.items():
        yield Attack("locks that were left", name, partial(_left, site, leave))
    for name, make in OTHERS.items():
        yield Attack("locks that are none", name, partial(_other, site, make))
    for number in (signal.SIGKILL, signal.SIGTERM):
        yield Attack(
            "locks of a dead process",
            signal.Signals(number).name,
            partial(_dead, site, number),
        )
    yield Attack("second writers", "serve beside serve", partial(_second, site, server))
    yield Attack(
        "second writers",
        "through a link",
        partial(_second, site, server, through="a link"),
    )
    yield Attack(
        "second writers",
        "through a folder",
        partial(_second, site, server, through="a folder"),
    )
    yield Attack("second writers", "eight at once", partial(_eight, site))


def _opened(site: Site, path: Path) -> Annotations:
    return Annotations(path, LabelTable.load(site.model / LABELS))


def _save(site: Site, path: Path, doc_id: str) -> None:
    with _opened(site, path) as annotations:
        annotations.save([AnnotatedDocument(doc_id, "fishing", ["law"])])


def _ids(path: Path) -> list[str]:
    return [
        json.loads(line)["id"] for line in path.read_text().splitlines() if line.strip()
    ]


def _torn(site: Site, end: str, folder: Path) -> None:
    """The next writer keeps every whole line, and sets what is cut off aside."""
    path = folder / "more.jsonl"
    path.write_bytes(f"{_WHOLE}\n{end}".encode(errors="surrogateescape"))
    _save(site, path, "c")
    kept = ["a", "b"] if end.strip() == _LINE else ["a"]
    expect(_ids(path) == [*kept, "c"], f"holds {_ids(path)}")
    aside = folder / "more.jsonl.cut"
    expect(
        aside.exists() == (len(kept) == 1),
        "what is cut off is lost, or set aside without need",
    )


def _torn_and_read(end: str, reader: str, folder: Path) -> None:
    """A reader tells a cut line, and changes nothing."""
    path = folder / "more.jsonl"
    path.write_bytes(f"{_WHOLE}\n{end}".encode(errors="surrogateescape"))
    before = path.read_bytes()
    more = (
        ("-o", folder / "out.json", "--format", "argilla") if reader == "export" else ()
    )
    code, said = command("annotations", reader, path, *more)
    expect("Traceback" not in said, said)
    expect((code == 0) == (end.strip() == _LINE), f"exit status {code}: {said}")
    expect(path.read_bytes() == before, "it was changed")


def _left(site: Site, leave: Callable[[Path], object], folder: Path) -> None:
    path = folder / "more.jsonl"
    leave(lock_of(path))
    _save(site, path, "a")
    _save(site, path, "b")
    expect(_ids(path) == ["a", "b"], f"holds {_ids(path)}")


def _other(site: Site, make: Callable[[Path], object], folder: Path) -> None:
    path = folder / "more.jsonl"
    make(lock_of(path))
    try:
        _save(site, path, "a")
    except StorageError as error:
        expect("\n" not in str(error), f"several lines: {error}")


def _hold(site: Site, path: Path, ready: Path) -> None:
    annotations = _opened(site, path)
    annotations.save([AnnotatedDocument("a", "fishing", ["law"])])
    ready.touch()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pause()


def _dead(site: Site, number: int, folder: Path) -> None:
    """Who dies with the right to write leaves it to others."""
    path, ready = folder / "more.jsonl", folder / "ready"
    holder = _FORK.Process(target=_hold, args=(site, path, ready))
    holder.start()
    while not ready.exists():
        expect(holder.is_alive(), "the first writer ends")
    try:
        _save(site, path, "b")
    except StorageError as error:
        expect(
            f"process {holder.pid} on {socket.gethostname()}" in str(error),
            f"does not name it: {error}",
        )
    else:
        expect(False, "two write at the same time")
    os.kill(holder.pid or 0, number)
    holder.join()
    _save(site, path, "b")
    expect(_ids(path) == ["a", "b"], f"holds {_ids(path)}")


def _second(site: Site, server: Server, folder: Path, through: str = "") -> None:
    path = server.annotations
    if through == "a link":
        path = folder / "link.jsonl"
        path.symlink_to(server.annotations)
    elif through == "a folder":
        (folder / "there").symlink_to(server.annotations.parent)
        path = folder / "there" / server.annotations.name
    before = server.annotations.read_bytes()
    code, said = command("serve", site.model, "--port", 0, "--annotations", path)
    expect(code and "Traceback" not in said, f"exit status {code}: {said}")
    expect(
        f"process {server.process.pid} on {socket.gethostname()}" in said,
        f"does not name the first: {said}",
    )
    expect(server.annotations.read_bytes() == before, "it was changed")
    text = f"fishing beside {path}"  # a text is annotated once
    status, answer = server.ask("POST", ANNOTATE, {"text": text, "labels": ["law"]})
    expect(status == 200, f"the first one answers {status}: {answer}")


def _try(site: Site, path: Path, number: int) -> None:
    try:
        _save(site, path, f"d{number}")
    except StorageError:
        raise SystemExit(3) from None


def _eight(site: Site, folder: Path) -> None:
    path = folder / "more.jsonl"
    writers = [
        _FORK.Process(target=_try, args=(site, path, number)) for number in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    saved = [
        f"d{number}" for number, writer in enumerate(writers) if writer.exitcode == 0
    ]
    refused = [writer for writer in writers if writer.exitcode == 3]
    expect(
        len(saved) + len(refused) == 8,
        f"exit status {[writer.exitcode for writer in writers]}",
    )
    expect(saved and sorted(_ids(path)) == saved, f"saved {saved}, holds {_ids(path)}")
