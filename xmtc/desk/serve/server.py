"""Run the application until it is stopped."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from threadpoolctl import threadpool_limits
from uvicorn.protocols.http.h11_impl import H11Protocol

from xmtc.desk.config import ServeConfig
from xmtc.desk.serve.app import make_app
from xmtc.desk.serve.models import Models
from xmtc.distributed.memory import freed_memory_returned
from xmtc.distributed.strategies.settings import Precision
from xmtc.errors import ConfigError
from xmtc.predict.predictor import Model
from xmtc.run.copies import fetch_model
from xmtc.score.shell import use_bfloat16
from xmtc.track.console import print_line

logger = logging.getLogger(__name__)

_HEADER_SECONDS = 10.0
_SEND_SECONDS = 10.0
_GRACE_SECONDS = 20
"""Time for requests in progress at the end; then at most one pass of the model remains."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def read_models(
    model: str | None,
    models: str | None,
    config: ServeConfig,
    *,
    device: str,
    precision: Precision,
) -> Models:
    """Load a model, or the models of a folder.

    Args:
        model: directory, URI, or repository on the Hub.
        models: instead, a folder or URI with versions, see `Models`.
        config: settings of the server.
        device: see `choose_device`.
        precision: see `use_bfloat16`.

    Raises:
        CheckpointError: there is no model, or it is damaged.
        ConfigError: there is no such device or precision.
    """
    read = partial(load, device=device, precision=precision)
    if models is not None:
        return Models(config, models, read)
    folder = fetch_model(str(model))
    return Models.single(read(folder), config, folder)


def load(directory: Path, *, device: str, precision: Precision) -> Model:
    """Load a model, in one thread: OpenMP would keep others, and the threads of a pass would sleep between steps.

    Products of NumPy stay in one thread: passes run beside each other.
    """
    torch.set_num_threads(1)
    threadpool_limits(1, "blas")
    with freed_memory_returned(kept_again=True):
        return Model.from_pretrained(
            directory, device=device, bfloat16=use_bfloat16(precision, device)
        )


def serve(models: Models) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in progress are finished.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    listener = listen(models.config)
    host, port = listener.getsockname()[:2]
    place = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    names = "; ".join(
        f"{one.name}, {len(one.model.labels):,} labels"
        for one in models.services.values()
    )
    print_line(f"{names}: {place}, API at {place}/docs; Ctrl-C stops")
    _Server(models).run(sockets=[listener])
    print_line("stopped")


def settings_of(app: FastAPI) -> uvicorn.Config:
    """Configure uvicorn: no request log, and short timeouts for slow clients."""
    return uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


def listen(config: ServeConfig) -> socket.socket:
    """Open a socket at the address in the settings.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        return socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        where, why = f"--host {config.host} --port {config.port}", error.strerror
        raise ConfigError(
            f"{where}: cannot listen there ({why}); choose a free port of this machine"
        ) from None


class _Server(uvicorn.Server):
    """Exits with code 0 when it is stopped; uvicorn's class would raise the signal again."""

    def __init__(self, models: Models) -> None:
        super().__init__(settings_of(make_app(models)))
        self._models = models

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals end the server; with a folder of models, SIGHUP looks for other versions instead."""
        before = {
            number: signal.signal(number, self.handle_exit) for number in _SIGNALS
        }
        if self._models.place:
            signal.signal(signal.SIGHUP, lambda *_: self._models.look.set())
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class TimedProtocol(H11Protocol):
    """Disconnects clients that do not finish their headers, or read nothing of their response."""

    _too_slow: asyncio.TimerHandle | None = None
    _unsent = 0

    def connection_made(self, transport: Any) -> None:
        """Start the timeouts when a client connects."""
        super().connection_made(transport)
        self._too_slow = self.loop.call_later(_HEADER_SECONDS, self._hang_up)
        self._reads = self.loop.call_later(_SEND_SECONDS, self._expect_reader)

    def data_received(self, data: bytes) -> None:
        """Receive data; the timeout for headers runs until they are complete."""
        super().data_received(data)
        if self._reads_headers():
            self._too_slow = self._too_slow or self.loop.call_later(
                _HEADER_SECONDS, self._hang_up
            )
        elif self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeouts when the client has disconnected."""
        self._reads.cancel()
        if self._too_slow is not None:
            self._too_slow.cancel()
        super().connection_lost(exc)

    def _reads_headers(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_reader(self) -> None:
        """Disconnect a client that has read nothing since the last time; closing would wait for it."""
        before, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if 0 < before <= self._unsent:
            self.transport.abort()
        else:
            self._reads = self.loop.call_later(_SEND_SECONDS, self._expect_reader)

    def _hang_up(self) -> None:
        if self._reads_headers() and not self.transport.is_closing():
            self.transport.close()
