"""The shape of `/v2`: failures as `{"error": {"messages": [...]}}`, and bodies that are read after everything else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from libs.auth.claims import Caller
from libs.auth.rights import REFINERS
from libs.service_kit.errors import Refused
from services.gateway.api.access import CurrentCaller
from services.gateway.api.body import parsed
from services.gateway.api.errors import Forbidden, ServiceDown, field_errors

PREFIX = "/v2"
DENIED = "Permission denied"
BodyT = TypeVar("BodyT", bound=BaseModel)


def failure(status: int, messages: Sequence[str], headers: dict[str, str] | None = None, **extra: Any) -> JSONResponse:
    """A failure of `/v2`."""
    return JSONResponse({"error": {"messages": list(messages), **extra}}, status_code=status, headers=headers)


class Failure(Exception):
    """An answer that says no, in this shape."""

    def __init__(self, status: int, *messages: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(messages[0])
        self.status = status
        self.messages = messages
        self.headers = headers


class V2Route(APIRoute):
    """A route whose every failure has the shape of `/v2`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except Failure as error:
                return failure(error.status, error.messages, error.headers)
            except Refused as error:
                messages = error.extra.pop("messages", None)
                told = messages if isinstance(messages, list) else [error.detail]
                return failure(error.status, told, None, code=error.code, **error.extra)
            except RequestValidationError as error:
                return failure(400, _fields(error.errors()))
            except Forbidden:
                return failure(403, [DENIED])
            except ServiceDown as error:
                return failure(503, [f"the service {error.service} does not answer"], {"Retry-After": "2"})

        return handled


async def read_body(request: Request, model: type[BodyT]) -> BodyT:
    """The body, once everything before it holds. Raises Failure 400."""
    try:
        return model.model_validate(parsed(await request.body()))
    except ValidationError as error:
        raise Failure(400, *_fields(error.errors(include_input=False, include_url=False))) from error
    except ValueError as error:
        raise Failure(400, "the body is not JSON") from error


def described(model: type[BaseModel]) -> dict[str, Any]:
    """What `read_body` reads, for the API's document: the framework does not see it."""
    schema = model.model_json_schema()
    named: dict[str, Any] = schema.pop("$defs", {})
    body = {"required": True, "content": {"application/json": {"schema": _inline(schema, named)}}}
    return {"requestBody": body}


def _inline(node: Any, named: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(each, named) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline(named[node["$ref"].rsplit("/", 1)[1]], named)
    return {key: _inline(value, named) for key, value in node.items()}


def retry_after(seconds: float) -> dict[str, str]:
    """The header that says when to come back."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def _fields(errors: Any) -> list[str]:
    return [f"{error['loc']}: {error['message']}" for error in field_errors(errors)][:20] or [
        "the request is not right"
    ]


async def _member(caller: CurrentCaller) -> Caller:
    """Somebody of an organisation who may configure its agents. Raises Failure 403."""
    if not caller.organization:
        raise Failure(403, "The token names no organisation")
    if not REFINERS & set(caller.roles):
        raise Failure(403, DENIED)
    return caller


Member = Annotated[Caller, Depends(_member)]
"""The caller: an owner, supervisor or admin of an organisation."""


def exact(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON as it is: keys in their order, `1.0` as `1.0`."""
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Response(body.encode(), status, headers, media_type="application/json")
