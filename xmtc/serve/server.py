"""Run the application until it is stopped."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from xmtc.errors import CheckpointError, ConfigError
from xmtc.predict.predictor import Model
from xmtc.score.job import model_digest
from xmtc.score.shell import ComputePrecision, use_bfloat16
from xmtc.serve.app import make_app
from xmtc.serve.config import ServeConfig
from xmtc.track.console import print_line

logger = logging.getLogger(__name__)

_HEADER_SECONDS = 10.0
_SEND_SECONDS = 10.0
_GRACE_SECONDS = 20
"""Time for requests in progress at the end; then at most one pass of the model remains."""
_LOOK_TICKS = 300  # of uvicorn, 0.1 s each
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def load_and_serve(directory: Path, config: ServeConfig, *, device: str, precision: ComputePrecision) -> None:
    """Load a model and serve it; see `serve`.

    Args:
        directory: directory of the model.
        config: settings of the server.
        device: see `choose_device`.
        precision: see `use_bfloat16`.

    Raises:
        CheckpointError: there is no model, or it is damaged.
        ConfigError: there is no such device or precision.
    """
    digest = model_digest(directory)
    model = Model.from_pretrained(directory, device=device, bfloat16=use_bfloat16(precision, device))
    serve(model, config, lambda: _is_replaced(directory, digest), digest)


def _is_replaced(directory: Path, digest: str) -> bool:
    try:
        return model_digest(directory) != digest
    except CheckpointError:
        return True


def serve(
    model: Model, config: ServeConfig, is_replaced: Callable[[], bool] = lambda: False, version: str = ""
) -> None:
    """Serve until SIGTERM or Ctrl-C; requests in progress are finished.

    Args:
        model: loaded model, which is served whatever happens to its folder.
        config: settings of the server.
        is_replaced: whether its folder has another model meanwhile, of which the log then warns.
        version: digest of its files.

    Raises:
        ConfigError: the address cannot be listened on.
        XmtcError: annotations or queue cannot be used.
    """
    app = make_app(model, config, version)
    listener = listen(config)
    host, port = listener.getsockname()[:2]
    place = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    print_line(f"{app.state.service.name}, {len(model.labels):,} labels: {place}, API at {place}/docs; Ctrl-C stops")
    _Server(settings_of(app), is_replaced).run(sockets=[listener])
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
        where = f"--host {config.host} --port {config.port}"
        raise ConfigError(
            f"{where}: cannot listen there ({error.strerror}); choose a free port of this machine"
        ) from None


class _Server(uvicorn.Server):
    """Exits with code 0 when it is stopped; uvicorn's class would raise the signal again."""

    def __init__(self, settings: uvicorn.Config, is_replaced: Callable[[], bool]) -> None:
        super().__init__(settings)
        self._is_replaced: Callable[[], bool] | None = is_replaced

    async def on_tick(self, counter: int) -> bool:
        """Look from time to time whether the model is still the one in its folder."""
        if counter % _LOOK_TICKS == 0 and self._is_replaced is not None and self._is_replaced():
            print_line("warning: the folder has another model now, or none; start the server again to serve that one")
            self._is_replaced = None
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals end the server."""
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
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
            self._too_slow = self._too_slow or self.loop.call_later(_HEADER_SECONDS, self._hang_up)
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
