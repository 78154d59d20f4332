"""What a body is: its media type, its bytes without compression, and how many values it has.

Media types and encodings are compared as HTTP does (RFC 9110, 8.3 and 8.4): without regard to case, parameters apart.
Every limit holds whatever the headers say.
"""

import re
import zlib
from http import HTTPStatus

from xmtc.desk.config import Limits
from xmtc.desk.serve.refusals import RequestError

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
_VALUES_PER_TEXT = 100
_VALUES = 20_000
"""Together the values that a body may have: each costs time and memory when it is checked, however small it is."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SEND_JSON = "send JSON, with the header `Content-Type: application/json`"
_GZIP = 16 + zlib.MAX_WBITS
_ZLIB = zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS
"""Formats of compressed data, as zlib numbers them."""
_MOST_PARTS = 100
"""Compressed parts of a body: each part costs a copy of the rest, so many empty ones would take long."""


def media_type(header: str | None) -> str:
    """Return the media type in lower case, without parameters; empty without the header."""
    return (header or "").partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    """Whether a media type is that of JSON, such as `application/json` or `application/problem+json`."""
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def too_large(limits: Limits) -> RequestError:
    """Make the refusal of a body with too many bytes."""
    message = f"the body has more than {limits.body_bytes:,} bytes: send fewer or shorter texts at once"
    return RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)


def unpacked(body: bytes, encoding: str | None, limits: Limits) -> bytes:
    """Return a body without its compression, of which no more is unpacked than a body may have.

    Args:
        body: the body as it was sent.
        encoding: header `Content-Encoding`.
        limits: limits on requests.

    Raises:
        RequestError: the encoding is neither gzip nor deflate, the data are damaged, or the body is too large.
    """
    name = (encoding or "identity").strip().lower()
    if name == "identity":
        return body
    if name in ("gzip", "x-gzip"):
        formats = (_GZIP,)
    elif name == "deflate":
        formats = (
            _ZLIB,
            _RAW,
        )  # some clients leave out the header that the standard asks for
    else:
        message = f"Content-Encoding: {name[:80]}: send the body as it is, or with gzip or deflate"
        raise RequestError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            message,
            {"Accept-Encoding": "gzip, deflate"},
        )
    for number in formats:
        try:
            return _inflated(body, number, limits)
        except zlib.error:
            continue
    raise _damaged(f"Content-Encoding: {name}: the body")


def _inflated(packed: bytes, number: int, limits: Limits) -> bytes:
    """Unpack data, which may have several parts behind each other, as gzip allows.

    Raises:
        RequestError: the data are more than a body may have, or end too early.
        zlib.error: the data are of another format, or damaged.
    """
    parts = []
    size = 0
    for _ in range(_MOST_PARTS):
        if not packed:
            return b"".join(parts)
        unpacker = zlib.decompressobj(number)
        part = unpacker.decompress(packed, limits.body_bytes - size + 1)
        size += len(part)
        if size > limits.body_bytes:
            raise too_large(limits)
        if not unpacker.eof:
            raise _damaged("the compressed body")
        parts.append(part)
        packed = unpacker.unused_data
    raise _damaged(f"the compressed body has more than {_MOST_PARTS} parts")


def _damaged(what: str) -> RequestError:
    return RequestError(
        HTTPStatus.BAD_REQUEST, f"{what}: damaged or incomplete; send it again"
    )


def check_values(body: bytes, kind: str, limits: Limits) -> None:
    """Refuse a body of an unknown type, or with too many values, before it is parsed, whichever path it is for.

    Args:
        body: the body, unpacked.
        kind: its media type.
        limits: limits on requests.

    Raises:
        RequestError: the type is missing or neither JSON nor a form, the body is not UTF-8, or it has too many values.
    """
    most = _VALUES + _VALUES_PER_TEXT * limits.texts
    if kind in FORMS:
        values = body.count(b"&") if kind == FORMS[0] else body.count(b"\n")
        if values > most:
            raise _too_many(most)
        return
    if not body:
        return
    if not kind:
        message = f"the header Content-Type is missing: {_SEND_JSON}"
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
    if not is_json(kind):
        raise RequestError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type: {kind[:80]}: {_SEND_JSON}",
        )
    if b"\0" in body:
        raise RequestError(HTTPStatus.BAD_REQUEST, "the body is not JSON in UTF-8")
    between = _STRING.sub(b"", body)
    if between.count(b",") + between.count(b"[") + between.count(b"{") > most:
        raise _too_many(most)


def _too_many(most: int) -> RequestError:
    message = (
        f"the body has more than {most:,} values: send fewer texts or labels at once"
    )
    return RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
