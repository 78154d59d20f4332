"""Check that the Ray cluster that a run joins answers, or that Ray on this machine has the workers' resources."""

import socket
from collections.abc import Iterator

from xmtc.errors import ConfigError
from xmtc.preflight.finding import Check
from xmtc.run.config import RunConfig

_PATIENCE_S = 5.0
_FOUND_BY_RAY = ("auto", "local")
_OWN = frozenset({"memory", "object_store_memory"})
"""Resources of Ray on one machine, in addition to cores, GPUs and resources whose names contain a colon."""


def check_cluster(config: RunConfig) -> Iterator[Check]:
    """Check the address of the cluster; without a cluster, the custom resources of workers."""
    distributed = config.distributed
    if distributed.max_workers and distributed.address is not None and distributed.address not in _FOUND_BY_RAY:
        yield _answer(distributed.address)
    unknown = [name for name in distributed.resources_per_worker if name not in _OWN and ":" not in name]
    if distributed.starts_ray and unknown:
        fix = "name a cluster that has it in distributed.address, or leave it out of distributed.resources_per_worker"
        yield Check("resources", "missing", f"no {unknown[0]!r}: a Ray on one machine has no such resource", fix)


def _answer(address: str) -> Check:
    try:
        require_answer(address, "distributed.address")
    except ConfigError as error:
        return Check("cluster", "missing", str(error))
    return Check("cluster", "ok", f"{address} answers")


def require_answer(address: str, setting: str) -> None:
    """Try to connect, because Ray itself would try for minutes.

    Args:
        address: `HOST:PORT`, with or without `ray://`.
        setting: name of the setting, for the message.

    Raises:
        ConfigError: nothing listens there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"{setting} {address}: no Ray cluster answers there; give HOST:PORT of its head, or leave it out"
        ) from error
