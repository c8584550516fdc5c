"""Models of Anthropic's Messages API, through its SDK: any endpoint that speaks it will do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from libs.llm.base import Model
from libs.llm.endpoint import BoundedClient, import_quietly
from libs.llm.prices import Counted, Tokens
from libs.llm.remote import Heard, Place, RemoteModel, Spoken, place
from libs.llm.settings import ANTHROPIC_URL, provider_settings

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic


def open_anthropic(name: str) -> Model:
    """The model of this name. Raises `ModelError` naming the setting that is missing or wrong."""
    settings = provider_settings()
    where = place(settings, "anthropic", ANTHROPIC_URL)
    return RemoteModel(name, where, MessagesWire(where, settings.model_max_reply_bytes), settings)


class MessagesWire:
    """See `Wire`. The SDK, which takes a second to import, is imported by the first call, beside the event loop."""

    def __init__(self, where: Place, max_bytes: int) -> None:
        self._where = where
        self._max_bytes = max_bytes
        self._client: AsyncAnthropic | None = None
        self._opening = asyncio.Lock()

    async def ask(self, spoken: Spoken) -> httpx2.Response:
        client = await self._opened()
        output_config: dict[str, Any] = {}
        if spoken.schema is not None:
            output_config["format"] = {"type": "json_schema", "schema": spoken.schema}
        if spoken.effort is not None:
            output_config["effort"] = spoken.effort
        options: dict[str, Any] = {}
        if output_config:
            options["output_config"] = output_config
        if spoken.temperature is not None:
            # The API still takes it for older models; the SDK has forgotten it.
            options["extra_body"] = {"temperature": spoken.temperature}
        raw = await client.messages.with_raw_response.create(
            model=spoken.name,
            system=spoken.system,
            messages=[{"role": "user", "content": spoken.input}],
            max_tokens=spoken.max_tokens,
            **options,
        )
        response: httpx2.Response = raw.http_response
        return response

    def heard(self, content: bytes) -> Heard:
        message = _Message.model_validate_json(content)
        ended = message.stop_reason or ""
        return Heard(
            text="".join(block.text or "" for block in message.content if block.type == "text"),
            counted=_counted(message.usage),
            ended=ended,
            refused=ended == "refusal",
            cut_off=ended in ("max_tokens", "model_context_window_exceeded"),
        )

    def failure(self, error: Exception) -> httpx2.Response | Exception | None:
        import anthropic

        if isinstance(error, anthropic.APIStatusError):
            return error.response
        if isinstance(error, anthropic.APIConnectionError):
            return error.__cause__ if isinstance(error.__cause__, Exception) else error
        return error if isinstance(error, anthropic.AnthropicError) else None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _opened(self) -> AsyncAnthropic:
        async with self._opening:
            if self._client is None:
                await asyncio.to_thread(import_quietly, "anthropic")
                from anthropic import AsyncAnthropic

                self._client = AsyncAnthropic(
                    api_key=self._where.key.get_secret_value(),
                    base_url=self._where.base_url,
                    http_client=BoundedClient(self._max_bytes),
                    max_retries=0,
                    open_telemetry=False,
                )
            return self._client


class _Lenient(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Block(_Lenient):
    type: str
    text: str | None = None


class _Usage(_Lenient):
    input_tokens: Tokens
    output_tokens: Tokens
    cache_read_input_tokens: Tokens | None = None
    cache_creation_input_tokens: Tokens | None = None


class _Message(_Lenient):
    content: list[_Block] = Field(max_length=10_000)
    stop_reason: str | None = None
    usage: Any = None


def _counted(usage: Any) -> Counted | None:
    try:
        used = _Usage.model_validate(usage)
    except ValidationError:
        return None
    return Counted(
        input=used.input_tokens,
        output=used.output_tokens,
        cached=used.cache_read_input_tokens or 0,
        cache_written=used.cache_creation_input_tokens or 0,
    )
