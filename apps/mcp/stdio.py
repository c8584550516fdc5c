"""The MCP server over stdin and stdout, for an agent on the same machine that starts it as its child."""

from __future__ import annotations

import asyncio

from mcp.server.stdio import stdio_server

from apps.mcp import app
from apps.mcp.tokens import TokenSource


def run(url: str, token: TokenSource) -> None:
    """Serve one client until it closes stdin. `token` is asked at each call, so that a new one may take its place."""
    asyncio.run(_serve(url, token))


async def _serve(url: str, token: TokenSource) -> None:
    async with app.client(url) as gateway, stdio_server() as (incoming, outgoing):
        server = app.build(gateway, lambda _: token())
        await server.run(incoming, outgoing, server.create_initialization_options())
