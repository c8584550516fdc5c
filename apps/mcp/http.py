"""The MCP server over streamable HTTP: `/mcp` for callers with a token, health and metrics for whoever runs it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from apps.mcp import app, tokens
from libs.service_kit import logging

log = logging.get(__name__)
PATH = "/mcp"
MAX_BODY_BYTES = 2 * 1024 * 1024
"""Both answers of a pair, each character escaped, and the rest."""
GRACE_S = 5
CHECK_TIMEOUT_S = 3.0


class Guard:
    """Stands before everything but health: a request without a token, or with one that has run out, gets 401."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request pass, or answer 401."""
        if scope["type"] == "http" and scope["path"] == PATH:
            try:
                tokens.of_headers(scope["headers"], time.time())
            except tokens.NoToken as error:
                await _not_allowed(str(error))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def build(url: str, host: str = "127.0.0.1") -> Starlette:
    """The app for a gateway at `url`. Raises ConfigurationError for a URL that is none."""
    gateway = app.client(url)
    server = app.build(gateway, _token_of)
    # Each request by itself: whoever asks is known by the token it brings, and any replica may answer.
    protocol = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_BODY_BYTES,
        host=host,
    )

    @asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        async with gateway, protocol.router.lifespan_context(protocol):
            yield

    health = _Health(gateway.url)
    routes = [
        Route("/health/live", health.live),
        Route("/health/ready", health.ready),
        Route("/metrics", health.metrics),
        *protocol.routes,
    ]
    whole = Starlette(routes=routes, lifespan=living)
    whole.add_middleware(Guard)
    return whole


async def serve(url: str, host: str, listening: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    config = uvicorn.Config(
        build(url, host),
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        limit_concurrency=500,
        timeout_graceful_shutdown=GRACE_S,
    )
    await uvicorn.Server(config).serve(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


class _Health:
    """Alive is: it answers. Ready is: the gateway answers, too."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def live(self, _: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(self, _: Request) -> Response:
        gateway = await self._gateway()
        report = {"service": "mcp", "ready": gateway == "ok", "checks": {"gateway": gateway}}
        return JSONResponse(report, status_code=200 if gateway == "ok" else 503)

    async def metrics(self, _: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    async def _gateway(self) -> str:
        try:
            async with httpx.AsyncClient(timeout=CHECK_TIMEOUT_S) as client:
                answer = await client.get(f"{self._url}/health/live")
        except httpx.HTTPError as error:
            return f"it does not answer ({type(error).__name__})"
        return "ok" if answer.status_code == 200 else f"it answers {answer.status_code}"


def _token_of(context: Any) -> str:
    return tokens.of_headers(context.request.scope["headers"], 0)


def _not_allowed(why: str) -> Response:
    body = {"type": "about:blank", "title": "Not authenticated", "status": 401, "code": "not_authenticated"}
    headers = {"WWW-Authenticate": 'Bearer realm="burnish", error="invalid_token"'}
    return Response(json.dumps({**body, "detail": why}), 401, headers, "application/problem+json")


def run(url: str, host: str, listening: socket.socket) -> None:
    """`serve`, in an event loop of its own."""
    asyncio.run(serve(url, host, listening))
