"""The `storage` section: local copies of what is at a URI."""

import hashlib
import ipaddress
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote

from pydantic import Field

from xmtc.config.base import config
from xmtc.errors import StorageError

if TYPE_CHECKING:
    from xmtc.storage.mirror import Mirror
    from xmtc.storage.remote import Remote

_LONGEST_NAME = 60


def is_remote(path: str) -> bool:
    """Whether a path of the configuration is a URI, such as `s3://bucket/corpora/laws` or `file:///mnt/laws`."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def on_this_machine(path: str) -> Path | None:
    """Return the local path that a path or `file://` URI names, whose `#` and `?` are letters; None for other URIs."""
    if path.startswith("file://"):
        return Path(unquote(path.removeprefix("file://").removeprefix("localhost")))
    return None if is_remote(path) else Path(path)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


@config
class StorageConfig:
    """Local copies of what is at a URI, and how long to retry. Credentials come from the client's own settings."""

    cache: Annotated[str, Field(min_length=1)] = "~/.cache/xmtc"
    """Folder for the local copies, separate on every node. Local paths in the configuration are used directly."""
    retry_minutes: Annotated[float, Field(ge=0)] = 5.0
    """How long xmtc retries an operation on a URI, with growing pauses, before the run ends."""

    def path(self, kind: str, uri: str) -> Path:
        """Return the path of a URI's local copy: `<cache>/<kind>/<readable parent>-<hash>/<name>`.

        Raises:
            StorageError: the URI names no file or folder.
        """
        parent, _, name = uri.rstrip("/").rpartition("/")
        if not parent:
            raise StorageError(f"{uri!r} names no file or folder; give its address")
        readable = re.sub(r"[^A-Za-z0-9._]+", "-", parent)[-_LONGEST_NAME:].strip("-.")
        folder = f"{readable}-{hashlib.sha256(parent.encode()).hexdigest()[:8]}"
        return Path(self.cache).expanduser().absolute() / kind / folder / name

    def remote(self, uri: str) -> "Remote":
        """Open the directory or file at a URI."""
        from xmtc.storage.remote import Remote

        return Remote(uri, retry_s=60 * self.retry_minutes)

    def mirror(self, uri: str) -> "Mirror":
        """Open the local copy, of kind `fetched`, of the directory at a URI; nothing is copied yet."""
        from xmtc.storage.mirror import Mirror

        return Mirror(self.path("fetched", uri), self.remote(uri))
