"""Every failure as application/problem+json (RFC 9457), without a word of what was sent."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from libs.service_kit import logging
from libs.service_kit.causes import cause_of
from libs.service_kit.errors import Refused

log = logging.get(__name__)

MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 20
TITLES = {400: "Bad request", 404: "Not found", 405: "Method not allowed", 409: "Conflict", 413: "Too large"}


class ServiceDown(Exception):
    """A service that was needed for the answer is not there."""

    def __init__(self, service: str) -> None:
        super().__init__(service)
        self.service = service


class Forbidden(Exception):
    """The token does not reach as far as the request."""


class FieldError(BaseModel):
    """One field that is not right: where it is and what would be."""

    loc: str
    message: str


class Problem(BaseModel):
    """What went wrong. `code` is a stable word."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    errors: list[FieldError] | None = None


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "content": {MEDIA_TYPE: {}}} for status in (401, 403, 404, 409, 413, 422, 503)
}


def problem(status: int, code: str, detail: str, title: str = "", /, **extra: object) -> JSONResponse:
    """A failure response."""
    told = title or TITLES.get(status, "Refused" if status < 500 else "Failed")
    body = {"type": "about:blank", "title": told, "status": status, "code": code, "detail": detail, **extra}
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "2"}}.get(status)
    return JSONResponse(body, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def not_allowed(status: int) -> JSONResponse:
    """The one answer to every request that is not allowed: it says neither why, nor what is there."""
    return problem(status, "not_allowed", "This needs a token that allows it.", "Not allowed")


def invalid(errors: list[dict[str, str]]) -> JSONResponse:
    """422 with what is wrong, by field; the first twenty."""
    detail = "; ".join(f"{error['loc']}: {error['message']}" for error in errors[:5])
    return problem(422, "invalid", detail, "Invalid", errors=errors[:MOST_ERRORS])


def field_errors(errors: Any, prefix: str = "") -> list[dict[str, str]]:
    """Pydantic's errors as `{loc, message}`: never the value that was sent."""
    return [{"loc": _loc(prefix, error["loc"]), "message": error["msg"]} for error in errors]


def _loc(prefix: str, loc: tuple[int | str, ...]) -> str:
    path = prefix
    for step in loc:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "body"


def install(app: FastAPI) -> None:
    """Answer each kind of failure."""
    app.add_exception_handler(Forbidden, _forbidden)
    app.add_exception_handler(ServiceDown, _service_down)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ValidationError, _unfit)
    app.add_exception_handler(HTTPException, _http)


async def _forbidden(_: Request, __: Exception) -> JSONResponse:
    return not_allowed(403)


async def _service_down(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ServiceDown)
    return problem(503, "unavailable", f"the service {error.service} does not answer", service=error.service)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refused)
    if error.status >= 500:
        # The owner's own log says why.
        log.error("api.failed", error=error.code, at=_route(request), status=error.status)
    extra = {name: value for name, value in error.extra.items() if name not in ("type", "title", "status")}
    return problem(error.status, error.code, error.detail, **extra)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    told = [
        {"loc": _loc("", tuple(each["loc"][1:] if len(each["loc"]) > 1 else each["loc"])), "message": _message(each)}
        for each in error.errors()
    ]
    return invalid(told)


async def _unfit(_: Request, error: Exception) -> JSONResponse:
    """What was sent does not make the question that the owner would be asked."""
    assert isinstance(error, ValidationError)
    return invalid(field_errors(error.errors(include_input=False, include_url=False, include_context=False)))


def _message(error: Any) -> str:
    # The decoder's message about broken JSON tells the place, its context would tell the text.
    return "this is not JSON" if error["type"] == "json_invalid" else str(error["msg"])


async def _http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
    detail = {404: "there is nothing at this address", 405: "this address does not take this method"}
    return problem(error.status_code, code, detail.get(error.status_code, "the request could not be read"))


class Failures:
    """The last resort, by cause. An unforeseen error is told by its class and place: its message may hold what was
    sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what nobody foresaw, unless an answer has begun already."""
        begun = False

        async def noticed(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noticed)
        except Exception as error:
            response = _unforeseen(error)
            if not begun and scope["type"] == "http":
                await response(scope, receive, send)


def _unforeseen(error: Exception) -> JSONResponse:
    cause = cause_of(error)
    told = {"error": type(error).__name__, "at": logging.place(error)}
    if cause == "bug":
        log.error("api.failed", **told)
        return problem(500, "failed", "the request failed for a reason that was logged")
    log.warning("api.unavailable" if cause == "away" else "api.not_storable", **told)
    if cause == "away":
        return problem(503, "unavailable", "what the gateway needs does not answer", service="gateway")
    return problem(422, "not_storable", "the request holds a value that cannot be stored", "Invalid")


def _route(request: Request) -> str:
    route = request.scope.get("route")
    return str(getattr(route, "path", "unrouted"))
