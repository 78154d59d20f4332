"""Estimates of these tests use the shipped figures, whatever this machine has learnt."""

from pathlib import Path

import pytest

from xmtc.estimate import seconds


@pytest.fixture(autouse=True)
def nothing_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seconds, "LEARNED", tmp_path / "stage_seconds.json")
