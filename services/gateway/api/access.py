"""Who may do what. Everything is for admins, except the few lines of `RULES` and what editors do in the library.

Nothing is open but `OPEN`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from libs.auth import rights
from libs.auth.claims import Caller
from libs.auth.errors import NotAuthenticated
from libs.auth.tokens import Verifier
from libs.service_kit import logging
from services.gateway.api.errors import Forbidden, not_allowed

log = logging.get(__name__)

ADMIN = "admin"
LIBRARY = "/api/qa/"
"""Editors read and write here, and delete nothing."""
DOCS_FILES = "/docs-files"
_DOCS = {"/openapi.json", "/docs", *(f"{DOCS_FILES}/swagger-ui{name}" for name in ("-bundle.js", ".css"))}
OPEN = frozenset({"/health/live", "/health/ready", "/metrics", *_DOCS, f"{DOCS_FILES}/favicon.png"})


@dataclass(frozen=True)
class Rule:
    """A scope that allows one method on one kind of path to callers who are not admins."""

    method: str
    path: re.Pattern[str]
    scope: str


RULES = (
    Rule("POST", re.compile(r"/api/refinement/signals"), "signals:write"),
    Rule("GET", re.compile(r"/api/refinement/touchpoints/[^/]+/live"), "prompts:read"),
)


class Guard:
    """Stands before the router: a request without a token that allows it is neither routed nor read."""

    def __init__(self, app: ASGIApp, verifier: Verifier) -> None:
        self._app = app
        self._verifier = verifier

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass with its caller, or answer 401 or 403."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        try:
            caller = await self._verifier.caller(_authorization(scope))
        except NotAuthenticated as error:
            log.info("api.not_authenticated", reason=str(error))
            await _not_authenticated(scope["path"])(scope, receive, send)
            return
        if not may(caller, scope["method"], scope["path"]):
            await not_allowed(403)(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)


def may(caller: Caller, method: str, path: str) -> bool:
    """Whether the caller may ask this at all."""
    if ADMIN in caller.roles or path.startswith("/v2/"):  # whose routes look at roles and organisations themselves
        return True
    if caller.has_role(rights.EDITORS) and method != "DELETE" and path.startswith(LIBRARY):
        return True
    return any(rule.method == method and rule.path.fullmatch(path) and rule.scope in caller.scopes for rule in RULES)


def _not_authenticated(path: str) -> Response:
    if path.startswith("/v2/"):
        told = {"error": {"messages": ["This needs a token that allows it."]}}
        return JSONResponse(told, status_code=401, headers={"WWW-Authenticate": "Bearer"})
    return not_allowed(401)


def _authorization(scope: Scope) -> str | None:
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    return values[0].decode("latin-1") if len(values) == 1 else None


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


CurrentCaller = Annotated[Caller, Depends(_caller)]
"""The caller of the request in hand."""


def require_workspace(caller: Caller, workspace_id: UUID | None) -> None:
    """Data of a workspace needs the workspace in the token. Raises Forbidden."""
    if workspace_id is not None and not caller.has_workspace(workspace_id):
        raise Forbidden


def require_all_workspaces(caller: Caller) -> None:
    """What changes something that workspaces share needs a token for all of them. Raises Forbidden."""
    if caller.workspaces is not None:
        raise Forbidden


def require_change(caller: Caller, workspace_id: UUID | None) -> None:
    """A change of a workspace needs that workspace, a change of what is shared all of them. Raises Forbidden."""
    if workspace_id is None:
        require_all_workspaces(caller)
    require_workspace(caller, workspace_id)


def require_scope(caller: Caller, scope: rights.Scope) -> None:
    """What not even every admin may see needs a scope of the token. Raises Forbidden."""
    if scope not in caller.scopes:
        raise Forbidden


def workspaces_of(caller: Caller) -> tuple[UUID, ...] | None:
    """The workspaces a list may show; None for all."""
    return None if caller.workspaces is None else tuple(sorted(caller.workspaces))
