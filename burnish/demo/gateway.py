"""The gateway over HTTP, for the demo's many small questions at once."""

from __future__ import annotations

from typing import Any

import httpx


class GatewayError(Exception):
    """The gateway said no; the text is the problem's own."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status


class HttpGateway:
    """Answers as JSON; anything but success is raised as GatewayError."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, **params: Any) -> Any:
        """GET."""
        return _read(await self._client.get(path, params=params))

    async def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """POST."""
        return _read(await self._client.post(path, json=body))

    async def put(self, path: str, body: dict[str, Any]) -> Any:
        """PUT."""
        return _read(await self._client.put(path, json=body))


def connect(url: str, token: str) -> httpx.AsyncClient:
    """A client with the token, for `async with`."""
    return httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False)


def _read(answer: httpx.Response) -> Any:
    if answer.is_success:
        return answer.json()
    try:
        problem = answer.json()
        told = problem.get("detail") or problem.get("title")
    except ValueError:
        told = answer.reason_phrase
    raise GatewayError(answer.status_code, f"{answer.request.method} {answer.request.url.path}: {told}")
