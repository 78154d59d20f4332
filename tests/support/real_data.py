"""Where the real data sets are, for the tests that want them."""

import os
from pathlib import Path

import pytest


def real_data(name: str) -> Path:
    """The folder of a real data set; skips the test where it is absent."""
    root = Path(
        os.environ.get("XMTC_DATA", Path(__file__).parents[3] / "shared" / "data")
    )
    folder = root / name
    if not folder.is_dir():
        pytest.skip(f"no data set {name!r}: set XMTC_DATA to the folder that holds it")
    return folder
