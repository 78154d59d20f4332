"""The connection to Ray: an existing cluster, or one that is started here and ends with this process."""

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants, services

from xmtc.distributed.config import inside_ray_job
from xmtc.errors import ConfigError
from xmtc.run.config import RunConfig


def join(address: str | None) -> bool:
    """Join the cluster at `address`. Without an address, join the cluster whose job this is, or start Ray here.

    A bare `ray.init()` would attach to any cluster that happens to run on this machine. A Ray that is started here
    listens on loopback.

    Returns:
        Whether this call connected; False if the process was already connected.

    Raises:
        ConfigError: there is no such cluster, or Ray does not start.
    """
    if ray.is_initialized():
        return False
    address = address or ("auto" if inside_ray_job() else "local")
    local = address == "local"
    options: dict[str, Any] = {"include_dashboard": False} if local else {}
    runtime: dict[str, Any] = {
        "worker_process_setup_hook": "xmtc.cluster.connection.settle_ray"
    }
    if local:
        runtime["env_vars"] = _gloo_on_loopback()
    token, known = (
        Path.home() / ".ray" / "auth_token",
        (Path.home() / ".ray" / "auth_token").exists(),
    )
    try:
        with (
            _on_loopback() if local else nullcontext(),
            _own_sessions(),
            _sigterm_kept(),
        ):
            ray.init(
                address=address,
                logging_level=logging.WARNING,
                runtime_env=runtime,
                **options,
            )
    except (
        Exception
    ) as error:  # the library has no error class for a start that takes too long
        if type(error) is not Exception and not isinstance(
            error, OSError | RuntimeError | ValueError
        ):
            raise
        raise ConfigError(
            f"Ray at {address!r} cannot be joined or started: {error}".splitlines()[0]
        ) from error
    if not known and token.exists():
        token.chmod(0o600)  # Ray has just made it readable for everyone
    return True


@contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Handle SIGTERM afterwards as before. Ray would end this process with the signal's number as its exit code."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def _own_sessions() -> Iterator[None]:
    """Start each of Ray's processes in a session of its own, where signals to this one's process group don't reach it.

    `timeout`, a job of a shell and a closed terminal signal the whole group, but workers need Ray until they have
    written a checkpoint. Only on Linux: there the kernel ends Ray's processes when this one dies, and elsewhere a
    process of Ray's does, by its group.
    """
    before = services.ConsolePopen
    if sys.platform == "linux":
        services.ConsolePopen = partial(before, start_new_session=True)
    try:
        yield
    finally:
        services.ConsolePopen = before


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Make a Ray that starts inside the context listen only on loopback.

    Ray's switch for Windows and macOS does this. Ray reads the environment variable on import, and ignores
    `_node_ip_address="127.0.0.1"`.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _gloo_on_loopback() -> dict[str, str]:
    """Return the environment variable that makes workers on one machine exchange gradients over loopback."""
    names = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    return (
        {"GLOO_SOCKET_IFNAME": min(names)}
        if names and "GLOO_SOCKET_IFNAME" not in os.environ
        else {}
    )


def disconnect(config: RunConfig) -> None:
    """Stop the Ray that `join` started for this run; leave an existing cluster running."""
    if not config.distributed.joins_cluster:
        ray.shutdown()


def settle_ray() -> None:
    """Tell every Ray process which cluster it belongs to, and silence messages that do not help users.

    Ray's cleaner asks once a second whether the controller is alive, and removes the run's workers if it isn't. It asks
    the newest Ray on the machine, which may be another run's, unless the environment names one. Without a dashboard
    nobody answers, but such a Ray ends with this process anyway.
    """
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    for module in ("placement_group_cleaner", "controller"):
        logging.getLogger(
            f"ray.train.v2._internal.execution.controller.{module}"
        ).setLevel(logging.ERROR)
