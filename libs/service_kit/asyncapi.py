"""What a service says, hears and answers, as it is wired: `/asyncapi` to look at, `/asyncapi.json` to work with.

The page is ours: FastStream's takes its scripts and icons from other people's servers. The document of the whole bus,
which also knows who hears what, is generated from the topology (docs/asyncapi.json).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from faststream.nats import NatsBroker
from faststream.specification import AsyncAPI

PAGE = Path(__file__).parent / "asyncapi_page"
ONLY_OURS = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:"


def document(service: str, broker: NatsBroker) -> dict[str, Any]:
    """The AsyncAPI document that FastStream makes of the broker's subscribers and publishers."""
    made = AsyncAPI(title=f"burnish {service}", version="1")
    made.add_broker(broker)
    told: dict[str, Any] = json.loads(made.to_specification().to_json())
    del told["servers"]  # addresses, and what stands in them, are not for everyone who may see the health page
    for channel in told["channels"].values():
        channel.pop("servers", None)
    for schema in told.get("components", {}).get("schemas", {}).values():
        _of_one_event(schema)
    return told


def router(service: str, broker: NatsBroker) -> APIRouter:
    """The endpoints. The document is made at the first request."""
    made = cache(lambda: json.dumps(document(service, broker)))
    routes = APIRouter(include_in_schema=False)

    @routes.get("/asyncapi.json")
    async def as_json() -> Response:
        return Response(made(), media_type="application/json")

    @routes.get("/asyncapi")
    async def page() -> HTMLResponse:
        return HTMLResponse(_file("page.html"), headers={"Content-Security-Policy": ONLY_OURS})

    @routes.get("/asyncapi/page.js")
    async def script() -> Response:
        return Response(_file("page.js"), media_type="text/javascript")

    @routes.get("/asyncapi/page.css")
    async def style() -> Response:
        return Response(_file("page.css"), media_type="text/css")

    return routes


@cache
def _file(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _of_one_event(schema: dict[str, Any]) -> None:
    """A handler of batches takes a list, but a message on the bus is one event."""
    if schema.get("type") == "array" and "items" in schema:
        items = schema.pop("items")
        del schema["type"]
        schema.update(items)
