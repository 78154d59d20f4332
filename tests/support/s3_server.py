"""A real S3 server (moto's) on loopback that can go away and come back with all it held."""

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import fsspec
import pytest
from moto.server import ThreadedMotoServer

BUCKET = "xmtc-tests"


class S3Server:
    """Its content lives in this process, and so outlives `stop`."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.start()

    def start(self) -> None:
        self._server = ThreadedMotoServer(
            ip_address="127.0.0.1", port=self.port, verbose=False
        )
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def names(uri: str) -> set[str]:
    """Everything below a URI."""
    fs, root = fsspec.core.url_to_fs(uri)
    fs.invalidate_cache()
    return {path.removeprefix(root).lstrip("/") for path in fs.find(root)}


@contextmanager
def s3(home: Path) -> Iterator[S3Server]:
    """A server with an empty bucket, and the client's environment for it, which child processes inherit."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = S3Server()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")  # the patience that is tested is ours
        patch.setenv("NO_PROXY", "127.0.0.1")
        urlopen(
            f"{server.url}/moto-api/reset", data=b""
        )  # what an earlier server of this process held
        fs = fsspec.filesystem("s3", skip_instance_cache=True)
        fs.mkdir(BUCKET)
        try:
            yield server
        finally:
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            server.stop()
