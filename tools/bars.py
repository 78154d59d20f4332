"""What benchmarks share: memory of this process, a measurement in a process of its own, and how bars are printed."""

import json
import subprocess
import sys
from collections.abc import Sequence


def memory_bytes(field: str = "VmRSS") -> int:
    """Memory of this process, by its name in /proc: VmRSS now, VmHWM the peak."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def in_own_process(*more: str) -> dict[str, float]:
    """What this script prints as its last line when it is run again, with its arguments and `more`."""
    command = [sys.executable, *sys.argv, *more]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])


def held(name: str, bars: Sequence[tuple[str, float, float]]) -> bool:
    """Print each bar, and the benchmark's line last; whether all hold.

    Args:
        name: of the benchmark.
        bars: name, value, and the most that it may be.
    """
    for what, value, bar in bars:
        print(json.dumps({"name": what, "ratio": round(value, 3), "bar": bar, "holds": value <= bar}))
    margin = min(bar / value for _, value, bar in bars)
    print(json.dumps({"name": name, "ratio": round(margin, 3), "bar": 1.0, "holds": margin >= 1}), flush=True)
    return margin >= 1
