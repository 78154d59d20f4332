"""How an error that a user can mend travels from Ray workers to the user, once and without a traceback.

Ray restarts a group of workers whatever the error was. A bad learning rate does not mend itself by that, so workers
leave such an error with an actor: when all of them have met one they end as if they were done, and when only some
have, the group that Ray starts next ends at once. The process that started them then raises it.
"""

import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

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


class _Board:
    """The actor: errors by rank."""

    def __init__(self) -> None:
        self.errors: dict[int, XmtcError] = {}

    def leave(self, error: XmtcError, rank: int) -> None:
        self.errors[rank] = error

    def ranks(self) -> int:
        return len(self.errors)

    def first(self) -> XmtcError | None:
        return self.errors[min(self.errors)] if self.errors else None


class WorkerErrors:
    """The errors of one attempt at a stage, kept on the node, and as long as the process, that makes this object.

    A connection to Ray is needed. Workers get a copy, which speaks with the same actor.
    """

    def __init__(self) -> None:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._board = ray.remote(_Board).options(num_cpus=0, scheduling_strategy=here).remote()

    def leave(self, error: XmtcError, rank: int, world_size: int) -> bool:
        """Hand in this rank's error, and wait a little for the others'.

        Returns:
            Whether every rank has met one, so that none waits for this one in an exchange.
        """
        ray.get(self._board.leave.remote(error, rank))
        deadline = time.monotonic() + _PATIENCE_S
        while int(ray.get(self._board.ranks.remote())) < world_size:  # pyright: ignore[reportArgumentType]
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def first(self) -> XmtcError | None:
        """The error of the lowest rank that left one.

        Raises:
            RayError: nobody can be asked any more.
        """
        return ray.get(self._board.first.remote())
