"""Where pretrained weights are that tools/fetch wrote, for the tests that want them."""

import os
from pathlib import Path

import pytest


def real_weights(name: str) -> Path:
    """A folder of pretrained weights below XMTC_WEIGHTS; skips the test where it is absent."""
    folder = Path(os.environ.get("XMTC_WEIGHTS", "")) / name
    if "XMTC_WEIGHTS" not in os.environ or not folder.exists():
        pytest.skip(
            f"set XMTC_WEIGHTS to a folder with {name}, which tools/fetch/{name}.py writes"
        )
    return folder
