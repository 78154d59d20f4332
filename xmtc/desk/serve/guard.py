"""Checks before the application: authentication, limits on size and rate; and the headers of every response.

The guard reads a request completely before the application sees it. A slow client therefore occupies no thread and no
place in the queue. A request by HEAD is answered as the same request by GET, without the body.
"""

import asyncio
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from xmtc.desk.config import Limits, tokens_of
from xmtc.desk.serve.content import check_values, media_type, too_large, unpacked
from xmtc.desk.serve.metrics import Metrics
from xmtc.desk.serve.refusals import RequestError, problem_response
from xmtc.storage.config import is_loopback

OPEN_PATHS = ("/", "/docs", "/health", "/ready")
OPEN_PREFIX = "/assets/"
"""Paths that reveal nothing about model or documents. Probes and browsers need no token for them, and they take none of
the places that `limits.requests` bounds."""
_METRICS = "/metrics"
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

    def __init__(
        self, app: ASGIApp, limits: Limits, token: str | None, metrics: Metrics
    ) -> None:
        self.app = app
        self.limits = limits
        self.metrics = metrics
        self.tokens = {} if token is None else tokens_of(token)
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
            send = _without_body(send)
        started_s = time.perf_counter()
        status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        try:
            status = await self._answer(scope, receive, send)
        finally:
            route = getattr(
                scope.get("route"), "path", "none"
            )  # a route of the application, never a client's own path
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - started_s)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Check, read and answer a request, and return the status of the response; 0 if the client has left."""
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
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
                    await _run_until_gone(
                        self.app, scope, body, receive, send_with_headers
                    )
        except RequestError as refusal:
            response = problem_response(
                refusal.status_code, refusal.detail, refusal.headers
            )
            response.headers["Connection"] = (
                "close"  # the rest of the request is not read
            )
            await response(scope, receive, send_with_headers)
        return status

    @contextmanager
    def _place(self, *, needed: bool) -> Iterator[None]:
        """Occupy one of the places for requests."""
        if not needed:
            yield
            return
        if self._active >= self.limits.requests:
            self.metrics.refused.inc()
            message = (
                f"{self.limits.requests} requests are already running: try again later"
            )
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, message)
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1

    def _check(self, scope: Scope, *, is_open: bool) -> None:
        """Check where a request comes from, who sends it, and the size that it announces."""
        headers = Headers(scope=scope)
        if not self.tokens:
            _check_host(headers)
        if not is_open and headers.get("sec-fetch-site", "none") not in _SAME_SITE:
            raise _other_site()
        if self.tokens and not is_open:
            scope.setdefault("state", {})["by"] = self._name_of_sender(headers)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.limits.body_bytes:
            raise too_large(self.limits)

    def _name_of_sender(self, headers: Headers) -> str | None:
        """Return the name of the token that a client sends, if the token has one.

        Raises:
            RequestError: the client sends no token of this server.
        """
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        # All tokens are compared, in constant time, so that the time says nothing about them.
        matching_tokens = [
            token
            for token in self.tokens
            if secrets.compare_digest(secret.encode(), token.encode())
        ]
        if scheme.lower() != "bearer" or not matching_tokens:
            message = "send the server's token as `Authorization: Bearer TOKEN`"
            raise RequestError(
                HTTPStatus.UNAUTHORIZED, message, {"WWW-Authenticate": "Bearer"}
            )
        return self.tokens[matching_tokens[0]]

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """Read, unpack and check the body; None if the client disconnected."""
        if scope["method"] == "GET":
            return b""
        try:
            async with asyncio.timeout(_READ_SECONDS):
                packed = await self._receive(receive)
        except TimeoutError:
            message = f"the body did not arrive within {_READ_SECONDS:g} seconds"
            raise RequestError(HTTPStatus.REQUEST_TIMEOUT, message) from None
        if packed is None:
            return None
        headers = Headers(scope=scope)
        body = unpacked(packed, headers.get("content-encoding"), self.limits)
        check_values(body, media_type(headers.get("content-type")), self.limits)
        return body

    async def _receive(self, receive: Receive) -> bytes | None:
        """Receive the body as it is sent; None if the client disconnected."""
        parts = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > self.limits.body_bytes:
                raise too_large(self.limits)
            if not message.get("more_body", False):
                return b"".join(parts)


def _without_body(send: Send) -> Send:
    """Send the headers of a response and nothing of its body."""

    async def send_headers(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_headers


async def _run_until_gone(
    app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send
) -> None:
    """Run the application with the body that was read; cancel it if the client disconnects, as nobody waits for it."""
    messages: list[Message] = [
        {"type": "http.request", "body": body, "more_body": False}
    ]

    async def receive_read_body() -> Message:
        return messages.pop() if messages else await client_leaves

    client_leaves = asyncio.ensure_future(_disconnection(receive))
    running = asyncio.ensure_future(app(scope, receive_read_body, send))
    try:
        await asyncio.wait(
            (running, client_leaves), return_when=asyncio.FIRST_COMPLETED
        )
    except asyncio.CancelledError:
        raise RequestError(
            HTTPStatus.SERVICE_UNAVAILABLE, "the server is stopping"
        ) from None
    finally:
        client_leaves.cancel()
        running.cancel()  # has no effect if it has ended
        await asyncio.wait((running, client_leaves))
    if not running.cancelled():
        running.result()


async def _disconnection(receive: Receive) -> Message:
    """Wait until the client disconnects."""
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
        host = ""
        origin = ""
    if not is_loopback(host):
        message = "without a token, the server answers only to localhost and 127.0.0.1"
        raise RequestError(HTTPStatus.MISDIRECTED_REQUEST, message)
    if "origin" in headers and origin != headers.get("host"):
        raise _other_site()


def _other_site() -> RequestError:
    return RequestError(
        HTTPStatus.FORBIDDEN, "pages of other sites may not use this server"
    )
