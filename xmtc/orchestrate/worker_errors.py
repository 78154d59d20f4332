"""How an error that a user can mend travels from Ray workers to the user, once and without a traceback.

Ray restarts a group of workers whatever the error was. A bad learning rate does not mend itself by that, so workers
leave such an error in a file: when all of them have met one they end as if they were done, and when only some have,
the group that Ray starts next ends at once. The process that started them then raises what the file says.
"""

import json
import time
from pathlib import Path

from xmtc import errors
from xmtc.config.snapshot import write_atomically
from xmtc.errors import XmtcError

_PATIENCE_S, _POLL_S = 10.0, 0.1


def explain_lost_exchange(error: RuntimeError, timeout_s: float) -> str | None:
    """What a rank says whose exchange with the others failed; None for any other error.

    PyTorch tells it by words alone: gloo raises a plain RuntimeError.
    """
    words = str(error).lower()
    if "timed out" in words:
        return (
            f"an exchange between workers took more than distributed.timeout_s={timeout_s:g}: a worker hangs, or the "
            "network is cut. The workers start again from the newest checkpoint"
        )
    if "connection closed by peer" in words or "connection reset by peer" in words:
        return "the connection to another worker is lost. The workers start again from the newest checkpoint"
    return None


class WorkerErrors:
    """The errors of one attempt at a stage.

    Args:
        directory: on storage that workers and the process that started them share; made with the first error.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def leave(self, error: XmtcError, rank: int, world_size: int) -> bool:
        """Write down this rank's error, and wait a little for the others'.

        Returns:
            Whether every rank has met one, so that none waits for this one in an exchange.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        content = {"type": type(error).__name__, "message": str(error)}
        write_atomically(self.directory / f"rank{rank:05}.json", json.dumps(content))
        deadline = time.monotonic() + _PATIENCE_S
        while len(self._files()) < world_size:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def first(self) -> XmtcError | None:
        """The error of the lowest rank that left one."""
        for path in self._files():
            content = json.loads(path.read_text(encoding="utf-8"))
            kind = getattr(errors, content["type"], XmtcError)
            return kind(content["message"])
        return None

    def _files(self) -> list[Path]:
        return sorted(self.directory.glob("rank*.json"))
