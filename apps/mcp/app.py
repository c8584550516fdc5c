"""Wiring of the MCP server: the tools, behind the protocol's own server of the official SDK."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from burnish_sdk import AsyncClient, BurnishError, ConfigurationError, Options, Retry
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)

from apps.mcp import metrics, refusals, tokens
from apps.mcp.arguments import BadArguments, read
from apps.mcp.results import Result
from apps.mcp.tools import INSTRUCTIONS, TOOLS, Tool
from libs.contracts import printable
from libs.service_kit import logging

log = logging.get(__name__)
PATIENCE = Options(timeout_s=20, connect_timeout_s=3, retry=Retry(attempts=3), user_agent="burnish-mcp")
VERSION = "1"

Context = Any
"""Of a request, as the protocol's server gives it; its type is generic in things that are not used here."""
TokenOf = Callable[[Context], str]
"""Raises ConfigurationError where there is none."""


class Tools:
    """Answers what clients ask: which tools there are, and calls of them."""

    def __init__(self, gateway: AsyncClient, token_of: TokenOf, tools: Sequence[Tool] = TOOLS) -> None:
        self._gateway = gateway
        self._token_of = token_of
        self._tools = {tool.name: tool for tool in tools}

    async def list(self, _: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        """All of them; they are few."""
        return ListToolsResult(tools=[tool.listed() for tool in self._tools.values()])

    async def call(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        """What the tool gives, or why it gives nothing. Raises MCPError for a tool that is not there."""
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no such tool; there are {', '.join(self._tools)}")
        began = time.monotonic()
        outcome, answer = await self._outcome(context, tool, params.arguments or {})
        metrics.CALLS.labels(tool.name, outcome).inc()
        metrics.SECONDS.labels(tool.name).observe(time.monotonic() - began)
        log.info("mcp.tool.called", tool=tool.name, outcome=outcome, seconds=round(time.monotonic() - began, 3))
        return answer

    async def _outcome(self, context: Context, tool: Tool, given: dict[str, Any]) -> tuple[str, CallToolResult]:
        try:
            asked = read(tool.arguments, given)
            token = self._token_of(context)
        except BadArguments as error:
            return "bad_arguments", _failed(str(error))
        except ConfigurationError as error:
            return "refused", _failed(refusals.no_token(error))
        try:
            with tokens.calling_with(token):
                return "answered", _answered(await tool.run(self._gateway, asked))
        except BurnishError as error:
            return "refused", _failed(refusals.told(error))
        except Exception as error:  # whatever it is, its words may hold what nobody should read
            log.error("mcp.tool.failed", tool=tool.name, error=type(error).__name__, place=logging.place(error))
            return "failed", _failed(refusals.FAULT)


def build(gateway: AsyncClient, token_of: TokenOf, tools: Sequence[Tool] = TOOLS) -> Server[Any]:
    """The server of the protocol. `token_of` says whose call a request is."""
    answering = Tools(gateway, token_of, tools)
    return Server(
        "burnish",
        version=VERSION,
        title="Burnish Q&A library",
        instructions=INSTRUCTIONS,
        on_list_tools=answering.list,
        on_call_tool=answering.call,
    )


def client(url: str) -> AsyncClient:
    """The gateway, asked with the token of whoever calls. Raises ConfigurationError."""
    return AsyncClient(url, tokens.current, PATIENCE)


def _answered(result: Result) -> CallToolResult:
    """As data, and as text for clients that read only text: JSON in which nothing steers a terminal or hides."""
    text = printable.in_json(result.model_dump_json())
    return CallToolResult(content=[TextContent(text=text)], structured_content=result.model_dump(mode="json"))


def _failed(why: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=why)], is_error=True)
