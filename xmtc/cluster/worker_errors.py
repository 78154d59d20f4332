"""Pass an error that users can fix from Ray workers to the user, once and without a traceback.

Ray restarts a group of workers after any error, but restarting does not fix a bad learning rate. Workers therefore
report such an error to an actor. If all workers have reported one, they end as if they had finished. If only some have,
the group that Ray starts next ends immediately. The process that started the workers then raises the error.
"""

import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from xmtc.errors import XmtcError

_TIMEOUT_S, _POLL_S = 10.0, 0.1


def explain_failed_collective(error: RuntimeError, timeout_s: float) -> str | None:
    """Explain a failed collective operation of the ranks; None for any other error.

    Only the text identifies it: gloo raises a plain RuntimeError.
    """
    message = str(error).lower()
    if "timed out" in message:
        return (
            f"an exchange between workers took more than distributed.timeout_s={timeout_s:g}: a worker hangs, or the "
            "network is down. The workers restart from the newest checkpoint"
        )
    if "connection closed by peer" in message or "connection reset by peer" in message:
        return "the connection to another worker is lost. The workers restart from the newest checkpoint"
    return None


class _ErrorStore:
    """The actor: errors by rank."""

    def __init__(self) -> None:
        self.errors: dict[int, XmtcError] = {}

    def report(self, error: XmtcError, rank: int) -> None:
        self.errors[rank] = error

    def ranks(self) -> int:
        return len(self.errors)

    def first(self) -> XmtcError | None:
        return self.errors[min(self.errors)] if self.errors else None


class WorkerErrors:
    """The errors of one attempt at a stage, kept in an actor on the node and for the lifetime of the creating process.

    Needs a connection to Ray. Workers get a copy that uses the same actor.
    """

    def __init__(self) -> None:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._store = ray.remote(_ErrorStore).options(num_cpus=0, scheduling_strategy=here).remote()

    def report(self, error: XmtcError, rank: int, world_size: int) -> bool:
        """Report this rank's error, and wait briefly for errors of the others.

        Returns:
            Whether every rank has reported one. If so, no rank waits for this one in a collective.
        """
        ray.get(self._store.report.remote(error, rank))
        deadline = time.monotonic() + _TIMEOUT_S
        while int(ray.get(self._store.ranks.remote())) < world_size:  # pyright: ignore[reportArgumentType]
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def first(self) -> XmtcError | None:
        """Return the error of the lowest rank that reported one.

        Raises:
            RayError: the actor can no longer be reached.
        """
        return ray.get(self._store.first.remote())
