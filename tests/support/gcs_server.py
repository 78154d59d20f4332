"""A Google Cloud Storage emulator on loopback that can go away and come back with all it held."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import HTTPServer

import fsspec
import pytest

BUCKET = "xmtc-tests"


class _Quiet(HTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """The client hangs up in the middle when it only wants to know whether a file is there."""


class GcsServer:
    """Its content lives in this process, and so outlives `stop`."""

    def __init__(self) -> None:
        from gcp_storage_emulator.handlers import buckets
        from gcp_storage_emulator.storage import Storage

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._storage = Storage(use_memory_fs=True)
        buckets.create_bucket(BUCKET, self._storage)
        self.start()

    def start(self) -> None:
        from gcp_storage_emulator.server import RequestHandler

        self._server = _Quiet(
            ("127.0.0.1", self.port), partial(RequestHandler, self._storage)
        )
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def gcs() -> Iterator[GcsServer]:
    """A server with an empty bucket, and the client's environment for it, which child processes inherit."""
    logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    server = GcsServer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", server.url)
        patch.setenv("NO_PROXY", "127.0.0.1")
        try:
            yield server
        finally:
            fsspec.get_filesystem_class("gs").clear_instance_cache()
            server.stop()
