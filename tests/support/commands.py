"""Commands as a shell would run them, in the process of the test."""

import sys

import pytest

from xmtc.cli import main


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def xmtc(monkeypatch, capsys):
    """Run a command in this process, as the shell would."""
    monkeypatch.setenv("COLUMNS", "400")

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["xmtc", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Outcome(code, captured.out, captured.err)

    return call
