"""Code that benchmarks share: memory of this process, measurements in a separate process, and printing of bars."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def memory_bytes(field: str = "VmRSS") -> int:
    """Read this process's memory from /proc by name: VmRSS is the current value, VmHWM the peak."""
    with open("/proc/self/status") as status:
        return next(
            int(line.split()[1]) * 1024 for line in status if line.startswith(field)
        )


def in_own_process(*more: str) -> dict[str, float]:
    """Run this script again with its arguments and `more`, and return its last line.

    OpenMP's threads sleep while they wait for each other. By default they spin, for as long as another process has a
    core: a step of 0.09 CPU seconds then took 0.6 to 3.9.
    """
    command, environment = (
        [sys.executable, *sys.argv, *more],
        os.environ | {"OMP_WAIT_POLICY": "passive"},
    )
    printed = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout
    return json.loads(printed.splitlines()[-1])


def in_ranks(folder: Path, workers: int, *more: str) -> list[dict[str, Any]]:
    """Run this script once for each rank, with a new store in `folder`; print and return their lines on `workers`.

    Exits with 1 if a rank fails.
    """
    (folder / "store").unlink(missing_ok=True)
    command = [
        sys.executable,
        sys.argv[0],
        str(folder),
        *more,
        "--workers",
        str(workers),
        "--rank",
    ]
    started = [
        subprocess.Popen([*command, str(r)], stdout=subprocess.PIPE, text=True)
        for r in range(workers)
    ]
    texts = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        sys.exit(1)
    rows = [
        json.loads(line)
        for text in texts
        for line in text.splitlines()
        if line.startswith('{"workers"')
    ]
    print(*map(json.dumps, rows), sep="\n", flush=True)
    return rows


def held(name: str, bars: Sequence[tuple[str, float, float]]) -> bool:
    """Print each bar, then the benchmark's result. Return whether all bars hold.

    Args:
        name: name of the benchmark.
        bars: name, value, and maximum of each bar.
    """
    for what, value, bar in bars:
        print(
            json.dumps(
                {
                    "name": what,
                    "ratio": round(value, 3),
                    "bar": bar,
                    "holds": value <= bar,
                }
            )
        )
    margin = min(bar / value for _, value, bar in bars)
    print(
        json.dumps(
            {"name": name, "ratio": round(margin, 3), "bar": 1.0, "holds": margin >= 1}
        ),
        flush=True,
    )
    return margin >= 1
