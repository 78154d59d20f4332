"""PyTorch's flight recorder: the last exchanges between ranks, as each rank saw them, for when one does not end.

NCCL's watchdog writes the record of a rank itself when an exchange takes too long, and then ends the process. gloo only
raises, so `write` does it there, as JSON: `torchfrtrace`, which compares the records of NCCL, reads none of gloo.
"""

import os
import shlex
from pathlib import Path

from torch._C import _distributed_c10d

_PREFIX = "rank_"
_EXCHANGES = 2000


def switch_on(folder: Path) -> None:
    """Record the exchanges of this process from now on. What the environment says already stays.

    Args:
        folder: where a record is written if an exchange fails; made by then at the latest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in {
        "TORCH_FR_BUFFER_SIZE": str(_EXCHANGES),
        "TORCH_FR_DUMP_TEMP_FILE": str(folder / _PREFIX),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    }.items():
        os.environ.setdefault(name, value)


def write(folder: Path, rank: int) -> Path:
    """Write what this rank has recorded. Return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{_PREFIX}{rank}.json"
    path.write_bytes(_distributed_c10d._dump_fr_trace_json())  # pyright: ignore  # PyTorch's only way to it from Python
    return path


def since(folder: Path, time_s: float) -> list[Path]:
    """List the records that NCCL wrote after a point of time, in seconds since the epoch."""
    return [
        path
        for path in sorted(folder.glob(f"{_PREFIX}*"))
        if not path.suffix and path.stat().st_mtime > time_s
    ]


def how_to_read(folder: Path) -> str:
    """Return the command that compares the records that NCCL wrote for all ranks."""
    return shlex.join(
        ["torchfrtrace", "--prefix", _PREFIX, "--allow-incomplete-ranks", str(folder)]
    )
