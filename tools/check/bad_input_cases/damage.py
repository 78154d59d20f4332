"""What can be wrong with a file, whatever it holds."""

import os
from collections.abc import Callable
from pathlib import Path

DEEP = b"[" * 20_000


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _as_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    if content:  # an empty file has nothing to flip
        content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "halved": lambda path: path.write_bytes(
        path.read_bytes()[: path.stat().st_size // 2]
    ),
    "flipped": _flipped,
    "zeros": lambda path: path.write_bytes(bytes(512)),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe\xfa" * 40),
    "deep lists": lambda path: path.write_bytes(DEEP),
    "null": lambda path: path.write_bytes(b"null"),
    "a list": lambda path: path.write_bytes(b"[1, 2]"),
    "another object": lambda path: path.write_bytes(b'{"a": {"b": [1]}}'),
    "many digits": lambda path: path.write_bytes(b'{"format": ' + b"9" * 5000 + b"}"),
    "a folder": _as_folder,
    "a pipe": _as_pipe,
    "a loop of links": _as_loop,
}
