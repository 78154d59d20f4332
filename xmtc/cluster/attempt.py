"""What the workers of one attempt at a stage tell the process that drives the run, and what it tells them."""

import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from xmtc.errors import Interrupted, XmtcError

_TIMEOUT_S = 10.0  # of waiting until every worker has reported its error
_POLL_S = 0.1
_ANSWER_S = 2.0


class Board:
    """The actor: errors by rank, whether the workers shall stop, and what they said when they did."""

    def __init__(self) -> None:
        self.errors: dict[int, XmtcError] = {}
        self.stop_number: int | None = None
        self.nodes: set[str] = set()
        self.interruption: Interrupted | None = None

    def report(self, error: XmtcError, rank: int) -> int:
        """Take the error of a rank. Return how many ranks have reported one."""
        self.errors[rank] = error
        return len(self.errors)

    def first_error(self) -> XmtcError | None:
        """Return the error of the lowest rank that has one."""
        return self.errors[min(self.errors)] if self.errors else None

    def request_stop(self, number: int) -> None:
        """Ask the workers to stop because of a signal; the first signal counts."""
        if self.stop_number is None:
            self.stop_number = number

    def requested_stop(self) -> int | None:
        """Return the signal because of which the workers shall stop."""
        return self.stop_number

    def join(self, node: str) -> None:
        """Note a node that has workers."""
        self.nodes.add(node)

    def state(self) -> tuple[int | None, set[str]]:
        """Return the signal because of which the workers shall stop, and the nodes."""
        return self.stop_number, self.nodes

    def report_stopped(self, interruption: Interrupted) -> None:
        """Take what the workers said when they stopped."""
        self.interruption = interruption

    def stopped(self) -> Interrupted | None:
        """Return what the workers said when they stopped, with the signal that was sent."""
        if self.interruption is None or self.stop_number is None:
            return self.interruption
        # Rank 0 says where they stopped, but may not know yet because of which signal.
        return Interrupted(str(self.interruption), self.stop_number)


class Attempt:
    """One attempt at a stage: an actor on the node and for the lifetime of the creating process.

    Needs a connection to Ray. Workers get a copy that uses the same actor.
    """

    def __init__(self) -> None:
        here = NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._board = (
            ray.remote(Board).options(num_cpus=0, scheduling_strategy=here).remote()
        )

    def report(self, error: XmtcError, rank: int, world_size: int) -> bool:
        """Report this rank's error, and wait briefly for errors of the others.

        Returns:
            Whether every rank has reported one. If so, no rank waits for this one in a collective.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while int(ray.get(self._board.report.remote(error, rank))) < world_size:  # pyright: ignore[reportArgumentType]
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def first_error(self) -> XmtcError | None:
        """Return the error of the lowest rank that reported one.

        Raises:
            RayError: the actor can no longer be reached; so do all methods.
        """
        return ray.get(self._board.first_error.remote())

    def request_stop(self, number: int) -> None:
        """Ask all workers to stop after their step, because of this signal. The first signal counts. Does not wait."""
        self._board.request_stop.remote(number)

    def requested_stop(self) -> int | None:
        """Return the signal because of which workers shall stop, if there was one."""
        return ray.get(self._board.requested_stop.remote())

    def join(self, node: str) -> None:
        """Say that a worker is on this node."""
        self._board.join.remote(node)

    def state(self) -> tuple[int | None, set[str]]:
        """Return the signal because of which workers shall stop, if there was one, and the nodes that they are on.

        Raises:
            GetTimeoutError: the actor has not answered in time, as on a busy machine.
        """
        return ray.get(self._board.state.remote(), timeout=_ANSWER_S)

    def report_stopped(self, interruption: Interrupted) -> None:
        """Say that the workers have stopped, and where."""
        ray.get(self._board.report_stopped.remote(interruption))

    def stopped(self) -> Interrupted | None:
        """Return what the workers said when they stopped; None if they did not."""
        return ray.get(self._board.stopped.remote())
