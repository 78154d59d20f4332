"""Checks before the application: authentication, limits on size and rate; and the headers of every response.

The guard reads a request completely before the application sees it. A slow client therefore occupies no thread and no
place in the queue.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xmtc.serve.config import Limits, is_loopback
from xmtc.serve.metrics import Metrics
from xmtc.serve.refusals import RequestError, problem_response

OPEN_PATHS = ("/", "/docs", "/health", "/ready")
OPEN_PREFIX = "/assets/"
"""Paths that reveal nothing about model or documents. Probes and browsers need no token for them."""
_PROBES = ("/health", "/ready", "/metrics")
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
        self.app, self.limits, self.token, self.metrics = app, limits, token, metrics
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self._active += 1
        started_s, status = time.perf_counter(), int(HTTPStatus.INTERNAL_SERVER_ERROR)
        try:
            status = await self._answer(scope, receive, send)
        finally:
            self._active -= 1
            route = getattr(scope.get("route"), "path", "none")  # a route of the application, never a client's own path
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - started_s)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> int:
        statuses = [0]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses[0] = message["status"]
                headers = MutableHeaders(raw=message["headers"])
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                message["headers"] = headers.raw
            await send(message)

        try:
            self._check(scope)
            body = await self._read(scope, receive)
        except RequestError as refused:
            response = problem_response(refused.status, refused.detail)
            response.headers["Connection"] = "close"  # the rest of the request is not read
            await response(scope, receive, send_with_headers)
            return refused.status
        if body is not None:
            await self.app(scope, _replay(body, receive), send_with_headers)
        return statuses[0]

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self._active > self.limits.requests and scope["path"] not in _PROBES:
            self.metrics.refused.inc()
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{self.limits.requests} requests are already running: try again later"
            )
        if self.token is None:
            _check_host(headers)
        elif scope["path"] not in OPEN_PATHS and not scope["path"].startswith(OPEN_PREFIX):
            scheme, _, given = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not secrets.compare_digest(given.encode(), self.token.encode()):
                raise RequestError(HTTPStatus.UNAUTHORIZED, "send the server's token as `Authorization: Bearer TOKEN`")
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
                        return b"".join(parts)
        except TimeoutError:
            message = f"the body did not arrive within {_READ_SECONDS:g} seconds"
            raise RequestError(HTTPStatus.REQUEST_TIMEOUT, message) from None


def _check_host(headers: Mapping[str, str]) -> None:
    """Refuse requests that a page of another site may have made through the browser."""
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        origin = urlsplit(headers.get("origin", "")).netloc
    except ValueError:
        host, origin = "", ""
    if not is_loopback(host):
        raise RequestError(
            HTTPStatus.MISDIRECTED_REQUEST, "without a token, the server answers only to localhost and 127.0.0.1"
        )
    if "origin" in headers and origin != headers.get("host"):
        raise RequestError(HTTPStatus.FORBIDDEN, "pages of other sites may not use this server")


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the application the body that was read, and then the client's further messages."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
