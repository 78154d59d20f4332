"""Settings of the server. Imports nothing large."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from xmtc.config.base import config
from xmtc.config.load import load_overrides
from xmtc.errors import ConfigError
from xmtc.files import read_file, reading
from xmtc.fusion.config import Bar
from xmtc.storage.config import is_loopback

TOKEN_VARIABLE = "XMTC_TOKEN"
Order = Literal["uncertain", "rare", "file"]
_SHORTEST_TOKEN = 16


@config
class Limits:
    """Limits on requests. A request beyond them gets an error, so memory stays bounded."""

    texts: Annotated[int, Field(ge=1)] = 64
    """Maximum number of texts per request."""
    characters: Annotated[int, Field(ge=1)] = 100_000
    """Maximum number of characters per text."""
    body_bytes: Annotated[int, Field(ge=1024)] = 4 << 20
    """Maximum number of bytes of a request's body."""
    requests: Annotated[int, Field(ge=1)] = 256
    """Maximum number of requests that are read or answered at the same time."""
    wait_seconds: Annotated[float, Field(gt=0)] = 30.0
    """Time for the model to answer."""


@config
class Tuning:
    """Settings that `KEY=VALUE` can change."""

    limits: Limits = Limits()
    """Bounds on requests."""
    workers: Annotated[int | None, Field(ge=1)] = None
    """Number of concurrent passes, each with one thread; null: one per core; on a GPU one, or four for a model with
    scorers."""
    shortlist: Annotated[int | None, Field(ge=1)] = None
    """Labels that are scored of a text, found by the model's index; null scores all. Requests with `include` score
    what they include."""
    release: Bar | None = None
    """What must be expected of a text to be released, such as `expected_recall>=0.8`; only the others are queued."""
    user_header: (
        Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$", examples=["X-Forwarded-User"])]
        | None
    ) = None
    """Header in which a proxy names the person, such as `X-Forwarded-User`, for annotations; null: name of the token.
    The proxy must remove what clients send in it."""


@config
class ServeConfig(Tuning):
    """Settings of a server."""

    host: str = "127.0.0.1"
    """Address to listen on; any address except loopback needs a token."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """Port to listen on; 0 chooses a free one."""
    token: str | None = None
    """Token that clients must send as `Authorization: Bearer TOKEN`; or several, each on a line behind a name."""
    annotations: Path | None = None
    """JSON lines file that annotations are appended to; without it, annotations are refused."""
    queue: Path | None = None
    """File with documents to annotate."""
    order: Order = "uncertain"
    """Order in which documents are handed out."""

    def __post_init__(self) -> None:
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host}: other machines can reach this address, so it needs a token: write one of at "
                f"least {_SHORTEST_TOKEN} characters into a file for --token-file, or set {TOKEN_VARIABLE}"
            )


def read_tuning(overrides: Sequence[str]) -> Tuning:
    """Read limits, workers and shortlist from `KEY=VALUE`.

    Raises:
        ConfigError: a key or value is wrong.
    """
    return load_overrides(Tuning, overrides)


def read_token(file: Path | None) -> str | None:
    """Read the token from a file or from the environment; None if there is none.

    Raises:
        ConfigError: the file cannot be read, or the token is short or has spaces or special characters.
    """
    if file is None:
        token, place = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
    else:
        place = f"--token-file {file}"
        with reading(place, ConfigError, "give a text file with the token"):
            token = read_file(file).decode("utf-8-sig").strip()
    if token is None:
        return None
    for one in tokens_of(token):
        if (
            len(one) < _SHORTEST_TOKEN
            or not one.isascii()
            or not one.isprintable()
            or " " in one
        ):
            raise ConfigError(
                f"{place}: the token must have at least {_SHORTEST_TOKEN} visible ASCII characters and no spaces: make "
                "one with `openssl rand -hex 32`"
            )
    return token


def tokens_of(token: str) -> dict[str, str | None]:
    """Split lines of `NAME TOKEN` to names by token; a single token needs no name."""
    lines = [line for line in token.split("\n") if line.strip()]
    pairs = (
        [line.strip().rpartition(" ") for line in lines]
        if len(lines) > 1
        else [("", "", token)]
    )
    return {secret.strip(): name.strip() or None for name, _, secret in pairs}
