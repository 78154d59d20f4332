"""Routes that refuse what would be lost in silence."""

import json
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response, params
from fastapi.routing import APIRoute
from typing_extensions import override

from xmtc.desk.serve.content import FORMS, is_json, media_type
from xmtc.desk.serve.guard import OPEN_PATHS
from xmtc.desk.serve.refusals import RequestError
from xmtc.files import RepeatedKeyError, without_repeated_keys

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _StrictRequest(Request):
    @override
    async def json(self) -> Any:
        body = await self.body()
        try:
            content = json.loads(body, object_pairs_hook=without_repeated_keys)
        except RepeatedKeyError as error:
            raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from None
        if b"\\u" in body:
            check_characters("the body", json.dumps(content, ensure_ascii=False))
        return content


def check_characters(what: str, text: str) -> None:
    """Refuse text with half of a character, which no answer and no file could repeat.

    Raises:
        RequestError: the text holds one.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        message = f"{what} holds half of a character, such as \\ud83d of \\ud83d\\ude00: correct it"
        raise RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, message) from None


class StrictRoute(APIRoute):
    """A route that refuses a form where it reads JSON, and JSON where it reads a form.

    It also refuses JSON with a key twice, or with half of a character.
    """

    @override
    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        reads_form = self.body_field is not None and isinstance(
            self.body_field.field_info, params.Form
        )
        reads_json = self.body_field is not None and not reads_form

        async def strict(request: Request) -> Response:
            kind = media_type(request.headers.get("content-type"))
            if reads_json and kind in FORMS:
                raise _wrong_type(
                    kind, "JSON, with the header `Content-Type: application/json`"
                )
            if reads_form and is_json(kind):
                raise _wrong_type(
                    kind, f"a form, with the header `Content-Type: {FORMS[0]}`"
                )
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def _wrong_type(kind: str, expected: str) -> RequestError:
    return RequestError(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Type: {kind}: send {expected}"
    )


class KnownQueryRoute(StrictRoute):
    """A strict route that also refuses query parameters which it does not know."""

    @override
    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        parts = (self.dependant, *self.dependant.dependencies)
        parameters = {field.alias for part in parts for field in part.query_params}

        async def checked(request: Request) -> Response:
            unknown = sorted(set(request.query_params) - parameters)
            if (
                unknown and self.path not in OPEN_PATHS
            ):  # probes and browsers may add some
                names = ", ".join(sorted(parameters)) or "none"
                message = f"{unknown[0][:80]}: no query parameter here; known: {names}"
                raise RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, message)
            return await handle(request)

        return checked
