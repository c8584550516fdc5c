"""Liveness, readiness and metrics over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from libs.service_kit.logging import describe
from libs.service_kit.metrics import READY

Check = Callable[[], Awaitable[Any]]
CHECK_TIMEOUT_S = 6.0


class Readiness:
    """Named checks. Ready is: every one of them passes now, each with a real round trip."""

    def __init__(self, service: str, checks: Mapping[str, Check]) -> None:
        self._service = service
        self._checks = checks

    async def report(self) -> dict[str, Any]:
        """`{"service", "ready", "checks": {name: "ok" or what is wrong}}`."""
        outcomes = await asyncio.gather(*(self._try(check) for check in self._checks.values()))
        checks = dict(zip(self._checks, outcomes, strict=True))
        ready = all(outcome == "ok" for outcome in outcomes)
        READY.set(1 if ready else 0)
        return {"service": self._service, "ready": ready, "checks": checks}

    @staticmethod
    async def _try(check: Check) -> str:
        try:
            await asyncio.wait_for(check(), CHECK_TIMEOUT_S)
        except Exception as error:
            return describe(error)
        return "ok"


def health_app(service: str, readiness: Readiness) -> FastAPI:
    """An app with `/health/live`, `/health/ready` and `/metrics`, to which a service may add its API."""
    app = FastAPI(title=f"burnish {service}", docs_url=None, redoc_url=None, openapi_url=None)
    app.include_router(health_router(readiness))
    return app


def health_router(readiness: Readiness) -> APIRouter:
    """The three endpoints, for a service that has an app of its own."""
    router = APIRouter(include_in_schema=False)

    @router.get("/health/live")
    async def live() -> dict[str, str]:
        return {"status": "alive"}

    @router.get("/health/ready")
    async def ready() -> JSONResponse:
        report = await readiness.report()
        return JSONResponse(report, status_code=200 if report["ready"] else 503)

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    return router
