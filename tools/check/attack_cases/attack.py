"""One attack at one boundary, and the error that says that it fell."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bad_input_cases.case import command


class FellError(Exception):
    """An attack has done what it should not be able to do."""


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        kind: what is done.
        boundary: where it is done.
        do: does it in an empty folder; raises FellError if it succeeds.
    """

    kind: str
    boundary: str
    do: Callable[[Path], None]


def expect(condition: object, otherwise: str) -> None:
    """Say that the attack fell unless a condition holds."""
    if not condition:
        raise FellError(otherwise)


def run(*words: object, refused: str | None = None) -> None:
    """Run a command, which must succeed, or be refused with these words."""
    code, said = command(*words)
    expect("Traceback" not in said, said)
    if refused is None:
        expect(code == 0, f"exit status {code}: {said}")
    else:
        expect(
            code not in (0, None) and refused in said,
            f"exit status {code}, not refused by {refused!r}: {said}",
        )
