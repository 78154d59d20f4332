"""Error responses: problem details (RFC 9457) with place and fix, but never a document's text."""

import errno
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from xmtc.errors import ConfigError, DataError, XmtcError
from xmtc.fusion.config import RULES

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1
_MEDIA_TYPE = "application/problem+json"
_ANNIF = "/v1/"
_MAX_SHOWN = 5
_MESSAGES = {
    "json_invalid": "not valid JSON",
    "extra_forbidden": "there is no such field",
    "string_pattern_mismatch": f"not a rule: give {' or '.join(RULES)}",  # the only pattern of a body
}
_BROKEN = "the server cannot do this now; its log says why"
_TYPES = {"type": "string", "title": "string", "status": "integer", "detail": "string"}
_SCHEMA = {
    "type": "object",
    "properties": {name: {"type": kind} for name, kind in _TYPES.items()},
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    codes: {"description": "Problem", "content": {_MEDIA_TYPE: {"schema": _SCHEMA}}}
    for codes in ("4XX", "5XX")
}
"""Error responses, as OpenAPI describes them."""


class RequestError(HTTPException):
    """Ends a request with this status and message."""


def problem_response(
    status: int, detail: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """Make the response for a problem. If the server is busy, it says when to try again."""
    busy = (
        {"Retry-After": str(RETRY_SECONDS)}
        if status == HTTPStatus.SERVICE_UNAVAILABLE
        else {}
    )
    sendable = detail.encode(
        errors="backslashreplace"
    ).decode()  # it may quote half of a character
    content = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": sendable,
    }
    return JSONResponse(
        content, status, {**busy, **(headers or {})}, media_type=_MEDIA_TYPE
    )


def add_handlers(app: FastAPI) -> None:
    """Convert every error of a request to a problem response."""

    @app.exception_handler(HTTPException)
    async def of_request(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        bad = error.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
        return problem_response(
            _unprocessable(request) if bad else error.status_code,
            error.detail,
            error.headers,
        )

    @app.exception_handler(XmtcError)
    async def of_user(request: Request, error: Exception) -> JSONResponse:
        if isinstance(error, (ConfigError, DataError)):
            return problem_response(_unprocessable(request), str(error))
        logger.error(
            "%s", error
        )  # a client learns neither paths nor what to repair here
        full = isinstance(error.__cause__, OSError) and error.__cause__.errno in (
            errno.ENOSPC,
            errno.EDQUOT,
        )
        status = (
            HTTPStatus.INSUFFICIENT_STORAGE if full else HTTPStatus.SERVICE_UNAVAILABLE
        )
        return problem_response(
            status, "the server cannot save this: its disk is full" if full else _BROKEN
        )

    @app.exception_handler(RequestValidationError)
    async def of_body(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return problem_response(_unprocessable(request), _words(error.errors()))


def _unprocessable(request: Request) -> int:
    """Return the status for a bad request; on Annif's paths, the one that its API specifies."""
    return (
        HTTPStatus.BAD_REQUEST
        if request.url.path.startswith(_ANNIF)
        else HTTPStatus.UNPROCESSABLE_ENTITY
    )


def _words(errors: Sequence[Any]) -> str:
    """Describe the errors and their places. Values are left out, because they may be documents."""
    said = []
    for error in errors[:_MAX_SHOWN]:
        place = ".".join(str(part)[:80] for part in error["loc"][1:]) or "body"
        said.append(f"{place}: {_MESSAGES.get(error['type'], error['msg'])}")
    if len(errors) > _MAX_SHOWN:
        said.append(f"and {len(errors) - _MAX_SHOWN} more")
    return "; ".join(said)
