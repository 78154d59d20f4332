"""Try the files that native code reads in another process, so that a stranger's file can end only that one.

FAISS and omikuji read their files themselves, and trust what they read. Before a model from the Hub or from a URI, or a
version that a server is to change to, is loaded in this process, another one loads these files and searches them once.
A folder of this machine is not tried: that would take a quarter of a second each time, in each process that loads it.

    python -m xmtc.artefact.trial MODEL
"""

import subprocess
import sys
from pathlib import Path

from xmtc.errors import CheckpointError

_FIX = "get the model from its source again, or export it again"
_LIMIT_S = 300
_MEMORY = 4
"""The trial may use this many times the size of the files, and `_BASE` bytes."""
_BASE = 8 << 30
_SEARCHED = 10
_INDICES = "*.faiss"
_TREES = "omikuji"
"""Name of a folder."""


def try_native_files(directory: Path) -> None:
    """Load and search the files of a model that native code reads, in a process of its own.

    Raises:
        CheckpointError: the process is lost, refuses a file, or does not end.
    """
    if not _native_files(directory):
        return
    command = [sys.executable, "-m", "xmtc.artefact.trial", str(directory)]
    try:
        trial = subprocess.run(
            command,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(
            f"{directory}: its index or trees are not read within {_LIMIT_S} s; {_FIX}"
        ) from error
    if trial.returncode:
        lines = trial.stderr.strip().splitlines()
        reason = (
            lines[-1][:200]
            if trial.returncode > 0 and lines
            else f"a process ended by signal {-trial.returncode}"
        )
        raise CheckpointError(
            f"{directory}: its index or trees cannot be read ({reason}); {_FIX}"
        )


def _native_files(directory: Path) -> list[Path]:
    return [*directory.rglob(_INDICES), *directory.rglob(_TREES)]


def _search_all(directory: Path) -> None:
    files = _native_files(directory)
    _limit_memory(
        sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    )
    for path in files:
        if path.suffix == ".faiss":
            _search_index(path)
        else:
            _search_trees(path)


def _limit_memory(size: int) -> None:
    import resource

    limit = _BASE + _MEMORY * size
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _search_index(path: Path) -> None:
    import numpy as np

    from xmtc.scorers.vectors import nearest, read_index

    index = read_index(path)
    queries = np.random.default_rng(0).normal(size=(2, index.d)).astype(np.float32)
    nearest(index, queries, _SEARCHED)


def _search_trees(path: Path) -> None:
    import omikuji

    model = omikuji.Model.load(str(path))
    model.predict([(0, 1.0), (1, 0.5)], top_k=_SEARCHED)


if __name__ == "__main__":
    try:
        _search_all(Path(sys.argv[1]))
    except CheckpointError as error:
        sys.exit(str(error))
