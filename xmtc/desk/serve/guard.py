"""Checks before the application: authentication, limits on size and rate; and the headers of every response.

The guard reads a request completely before the application sees it. A slow client therefore occupies no thread and no
place in the queue.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xmtc.desk.config import Limits, tokens_of
from xmtc.desk.serve.metrics import Metrics
from xmtc.desk.serve.refusals import RequestError, problem_response
from xmtc.storage.config import is_loopback

OPEN_PATHS = ("/", "/docs", "/health", "/ready")
OPEN_PREFIX = "/assets/"
"""Paths that reveal nothing about model or documents. Probes and browsers need no token for them, and they take none of
the places that `limits.requests` bounds."""
_METRICS = "/metrics"
_VALUES_PER_TEXT, _VALUES = 100, 20_000
"""Together the values that a body may have: each costs time and memory when it is checked, however small it is."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SAME_SITE = ("same-origin", "none")
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_READ_SECONDS = 10.0
_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Guard:
    """An ASGI application around another.

    Args:
        app: the application to guard.
        limits: limits on requests.
        token: token that clients must send. None: requests must address this machine by a loopback name, so pages of
            other sites cannot reach the server through the user's browser.
        metrics: metrics of responses.
    """

    def __init__(self, app: ASGIApp, limits: Limits, token: str | None, metrics: Metrics) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.tokens = {} if token is None else tokens_of(token)
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started_s, status = time.perf_counter(), int(HTTPStatus.INTERNAL_SERVER_ERROR)
        try:
            status = await self._answer(scope, receive, send)
        finally:
            route = getattr(scope.get("route"), "path", "none")  # a route of the application, never a client's own path
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - started_s)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> int:
        statuses = [0]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses[0] = message["status"]
                headers = MutableHeaders(raw=message["headers"])
                for name, value in (_HEADERS | scope.get("xmtc", {})).items():
                    headers.setdefault(name, value)
                message["headers"] = headers.raw
            await send(message)

        is_open = scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_PREFIX)
        try:
            self._check(scope, is_open=is_open)
            with self._place(needed=not is_open and scope["path"] != _METRICS):
                body = await self._read(scope, receive)
                if body is not None:
                    await _run_until_gone(self.app, scope, body, receive, send_with_headers)
        except RequestError as refused:
            response = problem_response(refused.status_code, refused.detail, refused.headers)
            response.headers["Connection"] = "close"  # the rest of the request is not read
            await response(scope, receive, send_with_headers)
            return refused.status_code
        return statuses[0]

    @contextmanager
    def _place(self, *, needed: bool) -> Iterator[None]:
        """Occupy one of the places for requests."""
        if needed and self._active >= self.limits.requests:
            self.metrics.refused.inc()
            message = f"{self.limits.requests} requests are already running: try again later"
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, message)
        self._active += needed
        try:
            yield
        finally:
            self._active -= needed

    def _check(self, scope: Scope, *, is_open: bool) -> None:
        headers = Headers(scope=scope)
        if not self.tokens:
            _check_host(headers)
        if not is_open and headers.get("sec-fetch-site", "none") not in _SAME_SITE:
            raise _other_site()
        if self.tokens and not is_open:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            fits = [one for one in self.tokens if secrets.compare_digest(given.encode(), one.encode())]
            if scheme.lower() != "bearer" or not fits:
                message = "send the server's token as `Authorization: Bearer TOKEN`"
                raise RequestError(HTTPStatus.UNAUTHORIZED, message, {"WWW-Authenticate": "Bearer"})
            scope.setdefault("state", {})["by"] = self.tokens[fits[0]]
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.limits.body_bytes:
            raise self._too_large()

    def _too_large(self) -> RequestError:
        message = f"the body has more than {self.limits.body_bytes:,} bytes: send fewer or shorter texts at once"
        return RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Read the body; None if the client disconnected."""
        if scope["method"] in ("GET", "HEAD"):
            return b""
        parts, size = [], 0
        try:
            async with asyncio.timeout(_READ_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self.limits.body_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return self._checked(b"".join(parts), Headers(scope=scope).get("content-type", ""))
        except TimeoutError:
            message = f"the body did not arrive within {_READ_SECONDS:g} seconds"
            raise RequestError(HTTPStatus.REQUEST_TIMEOUT, message) from None

    def _checked(self, body: bytes, kind: str) -> bytes:
        """Refuse JSON with too many values before it is parsed and checked, whichever path it is for."""
        if "json" not in kind:
            return body
        if b"\0" in body:
            raise RequestError(HTTPStatus.BAD_REQUEST, "the body is not JSON in UTF-8")
        between, most = _STRING.sub(b"", body), _VALUES + _VALUES_PER_TEXT * self.limits.texts
        if between.count(b",") + between.count(b"[") + between.count(b"{") > most:
            message = f"the body has more than {most:,} values: send fewer texts or labels at once"
            raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        return body


async def _run_until_gone(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Run the application with the body that was read; cancel it if the client disconnects, as nobody waits for it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def told() -> Message:
        return messages.pop() if messages else await gone

    gone = asyncio.ensure_future(_gone(receive))
    running = asyncio.ensure_future(app(scope, told, send))
    try:
        await asyncio.wait((running, gone), return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the server is stopping") from None
    finally:
        gone.cancel()
        running.cancel()  # has no effect if it has ended
        await asyncio.wait((running, gone))
    if not running.cancelled():
        running.result()


async def _gone(receive: Receive) -> Message:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return message


def _check_host(headers: Mapping[str, str]) -> None:
    """Refuse requests that a page of another site may have made through the browser."""
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        origin = urlsplit(headers.get("origin", "")).netloc
    except ValueError:
        host, origin = "", ""
    if not is_loopback(host):
        message = "without a token, the server answers only to localhost and 127.0.0.1"
        raise RequestError(HTTPStatus.MISDIRECTED_REQUEST, message)
    if "origin" in headers and origin != headers.get("host"):
        raise _other_site()


def _other_site() -> RequestError:
    return RequestError(HTTPStatus.FORBIDDEN, "pages of other sites may not use this server")
