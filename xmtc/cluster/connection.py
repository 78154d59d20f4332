"""The connection to Ray: a cluster that is there, or one that ends with this process."""

import logging
from pathlib import Path
from typing import Any

import ray

from xmtc.distributed.config import inside_ray_job
from xmtc.errors import ConfigError
from xmtc.run.config import RunConfig


def connect(config: RunConfig) -> None:
    """Join the cluster that the configuration names, or as `join` does."""
    join(config.distributed.address)


def join(address: str | None) -> bool:
    """Join the cluster at `address`, or else the one whose job this is; otherwise start one here.

    A bare `ray.init()` would attach to any cluster that happens to run on this machine.

    Returns:
        Whether that was necessary.

    Raises:
        ConfigError: there is no such cluster, or Ray does not start.
    """
    if ray.is_initialized():
        return False
    address = address or ("auto" if inside_ray_job() else "local")
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    runtime = {"worker_process_setup_hook": "xmtc.cluster.connection.quiet_ray"}
    token, known = Path.home() / ".ray" / "auth_token", (Path.home() / ".ray" / "auth_token").exists()
    try:
        ray.init(address=address, logging_level=logging.WARNING, runtime_env=runtime, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"Ray at {address!r} cannot be joined or started: {error}".splitlines()[0]) from error
    if not known and token.exists():
        token.chmod(0o600)  # Ray has just made it, for all to read
    return True


def disconnect(config: RunConfig) -> None:
    """End the Ray that `connect` started; leave a cluster that was there before alone."""
    if not config.distributed.joins_cluster:
        ray.shutdown()


def quiet_ray() -> None:
    """In every Ray process: silence what tells a user nothing.

    The cleaner asks the dashboard once a second whether the controller lives, which a Ray without one cannot answer;
    such a Ray ends with this process, and everything in it.
    """
    for module in ("placement_group_cleaner", "controller"):
        logging.getLogger(f"ray.train.v2._internal.execution.controller.{module}").setLevel(logging.ERROR)
