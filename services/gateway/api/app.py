"""The HTTP API, put together from its routers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline

from services.gateway.api import errors, v2
from services.gateway.api.access import DOCS_FILES, Guard
from services.gateway.api.asking import Gateway
from services.gateway.api.body import BodyLimit
from services.gateway.routers import (
    ab_runner,
    agents,
    dead_letters,
    live,
    normaliser,
    pattern_detector,
    proposal,
    qa_curation,
    qa_forms,
    qa_ingest,
    registry,
    scanner,
    spending,
)

PREFIX = "/api/refinement"
LIBRARY_PREFIX = "/api/qa"
ABOUT = """The refinement loop over HTTP: push signals, read patterns, measure and decide on proposals, see or change
which version of a prompt is live.

Every request carries `Authorization: Bearer <JWT>` of an admin, except `POST /signals` (scope `signals:write`),
`GET …/live` (scope `prompts:read`), and the library (`/api/qa`), where editors do all but delete. Every failure is
`application/problem+json` with a stable `code`; a 409 tells the state that holds now, a 422 names each field."""
ROUTERS = (
    live,
    normaliser,
    registry,
    scanner,
    pattern_detector,
    proposal,
    ab_runner,
    spending,
    dead_letters,
)  # the first is found first


def build_api(gateway: Gateway) -> FastAPI:
    """The app. Every request passes the guard before it is routed, so a new endpoint is admin-only by itself."""
    # The docs page with its own scripts: a self-hosted gateway sends nobody's browser to a CDN.
    app = FastAPIOffline(
        redoc_url=None,
        static_url=DOCS_FILES,
        title="Burnish",
        version="1",
        description=ABOUT,
        redirect_slashes=False,
    )
    app.state.gateway = gateway
    api = APIRouter(prefix=PREFIX, responses=errors.DOCUMENTED)
    for module in ROUTERS:
        api.include_router(module.router)
    app.include_router(api)
    app.include_router(agents.router, prefix=v2.PREFIX)
    for library in (qa_curation, qa_ingest, qa_forms):
        app.include_router(library.router, prefix=LIBRARY_PREFIX, responses=errors.DOCUMENTED)
    errors.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(Guard, verifier=gateway.verifier)
    app.add_middleware(errors.Failures)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        document.setdefault("components", {})["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
        }
        document["security"] = [{"bearer": []}]
        app.openapi_schema = document
    return app.openapi_schema
