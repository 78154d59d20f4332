"""Routes that refuse what would be lost in silence."""

import json
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from typing_extensions import override

from xmtc.desk.serve.guard import OPEN_PATHS
from xmtc.desk.serve.refusals import RequestError
from xmtc.files import RepeatedKeyError, without_repeated_keys

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _StrictRequest(Request):
    @override
    async def json(self) -> Any:
        try:
            return json.loads(await self.body(), object_pairs_hook=without_repeated_keys)
        except RepeatedKeyError as error:
            raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from None


class StrictRoute(APIRoute):
    """A route that refuses JSON with a key twice, of which a value would be lost."""

    @override
    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


class KnownQueryRoute(StrictRoute):
    """A strict route that also refuses query parameters which it does not know."""

    @override
    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        known = {field.alias for part in (self.dependant, *self.dependant.dependencies) for field in part.query_params}

        async def checked(request: Request) -> Response:
            unknown = sorted(set(request.query_params) - known)
            if unknown and self.path not in OPEN_PATHS:  # probes and browsers may add some
                message = f"{unknown[0][:80]}: no query parameter here; known: {', '.join(sorted(known)) or 'none'}"
                raise RequestError(HTTPStatus.UNPROCESSABLE_ENTITY, message)
            return await handle(request)

        return checked
