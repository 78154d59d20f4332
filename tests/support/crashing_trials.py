"""Trials of a model's files (`xmtc.artefact.trial`) that native code crashes."""

from pathlib import Path

import pytest


def crash_trials(
    monkeypatch: pytest.MonkeyPatch, folder: Path, work: str = "kill -SEGV $$"
) -> None:
    """Let a trial's process do this instead of reading files."""
    script = folder / "crash.sh"
    script.write_text(f"#!/bin/sh\n{work}\n")
    script.chmod(0o700)
    monkeypatch.setattr("xmtc.artefact.trial.sys.executable", str(script))
