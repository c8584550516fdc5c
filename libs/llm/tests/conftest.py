"""A model behind a real server of either wire format, at known prices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path

import pytest

from libs.llm import open_model
from libs.llm.remote import RemoteModel
from libs.llm.testing import Chat, Messages, ModelServer, Wire

PRICES = """
[{provider}.small]
input = 1.00
cached_input = 0.10
cache_write = 1.25
output = 5.00
as_of = 2026-11-01
source = "https://prices.example"

[{provider}.thinker]
input = 1.00
output = 5.00
sampling = false
thinking_tokens = 500
as_of = 2026-11-01
source = "https://prices.example"
"""


@pytest.fixture(params=[Messages(), Chat()], ids=["anthropic", "openai"])
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@pytest.fixture
async def server(wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelServer]:
    import_module(wire.provider)  # takes seconds, which are no part of what is timed
    table = tmp_path / "prices.toml"
    table.write_text(PRICES.format(provider=wire.provider))
    async with ModelServer(wire) as running:
        for name, value in running.environment(str(table)).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("BURNISH_MODEL_RETRY_PATIENCE_S", "5")
        yield running


class Opened:
    """Opens models and closes them when the test ends."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._stack = AsyncExitStack()

    def __call__(self, name: str = "small") -> RemoteModel:
        model = open_model(self._provider, name)
        assert isinstance(model, RemoteModel)
        self._stack.push_async_callback(model.close)
        return model

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def opened(server: ModelServer) -> AsyncIterator[Opened]:
    models = Opened(server.wire.provider)
    yield models
    await models.close()


@pytest.fixture
def no_settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for provider in ("ANTHROPIC", "OPENAI"):
        for setting in ("API_KEY", "API_KEY_FILE", "BASE_URL"):
            monkeypatch.delenv(f"BURNISH_{provider}_{setting}", raising=False)
    for setting in ("MODEL_PRICES", "MODEL_TIERS"):
        monkeypatch.delenv(f"BURNISH_{setting}", raising=False)
    return monkeypatch
