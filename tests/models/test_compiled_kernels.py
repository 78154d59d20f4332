"""The Triton kernels compile for GPUs that are not here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip(
    "triton", reason="Triton is not installed; see docs/explanation/kernels.md"
)

ROOT = Path(__file__).parents[2]


def test_the_narrowest_card_holds_the_widest_heads() -> None:
    tool = [
        sys.executable,
        "tools/check/compiled_kernels.py",
        "--cards",
        "86",
        "--widths",
        "128",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        tool, cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 6
    assert all(
        one["holds"] and one["spilled_bytes"] <= 64 and 0 < one["registers"] <= 255
        for one in lines
    )
    assert all(0 < one["shared_bytes"] <= 99 << 10 for one in lines)
