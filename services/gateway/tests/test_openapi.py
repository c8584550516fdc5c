"""The OpenAPI document, without a server: it is made of the routers alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from services.gateway.api.app import build_api


def test_every_router_is_there_once() -> None:
    api = build_api(cast(Any, SimpleNamespace(verifier=None)))
    operations = [one["operationId"] for path in api.openapi()["paths"].values() for one in path.values()]
    assert len(operations) == len(set(operations)) > 60
