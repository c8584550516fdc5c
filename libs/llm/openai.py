"""Models of OpenAI's Chat Completions API, through its SDK: any endpoint that speaks it will do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx2
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from libs.llm.base import Model
from libs.llm.endpoint import BoundedClient, import_quietly
from libs.llm.prices import Counted, Tokens
from libs.llm.remote import Heard, Place, RemoteModel, Spoken, place
from libs.llm.settings import OPENAI_URL, provider_settings

if TYPE_CHECKING:
    from openai import AsyncOpenAI


def open_openai(name: str) -> Model:
    """The model of this name. Raises `ModelError` naming the setting that is missing or wrong."""
    settings = provider_settings()
    where = place(settings, "openai", OPENAI_URL)
    return RemoteModel(name, where, ChatWire(where, settings.model_max_reply_bytes), settings)


class ChatWire:
    """See `Wire`. The SDK, which takes a second to import, is imported by the first call, beside the event loop."""

    def __init__(self, where: Place, max_bytes: int) -> None:
        self._where = where
        self._max_bytes = max_bytes
        self._client: AsyncOpenAI | None = None
        self._opening = asyncio.Lock()

    async def ask(self, spoken: Spoken) -> httpx2.Response:
        client = await self._opened()
        options: dict[str, Any] = {}
        if spoken.schema is not None:
            form = {"name": "answer", "schema": spoken.schema, "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": form}
        elif spoken.json_only:
            options["response_format"] = {"type": "json_object"}
        if spoken.temperature is not None:
            options["temperature"] = spoken.temperature
        if spoken.effort is not None:
            options["reasoning_effort"] = spoken.effort
        raw = await client.chat.completions.with_raw_response.create(
            model=spoken.name,
            messages=[{"role": "system", "content": spoken.system}, {"role": "user", "content": spoken.input}],
            max_completion_tokens=spoken.max_tokens,
            **options,
        )
        response: httpx2.Response = raw.http_response
        return response

    def heard(self, content: bytes) -> Heard:
        answer = _Answer.model_validate_json(content)
        choice = answer.choices[0]
        ended = choice.finish_reason or ""
        refused = choice.message.refusal is not None or ended == "content_filter"
        return Heard(
            text=choice.message.content or "",
            counted=_counted(answer.usage),
            ended=ended if ended == "content_filter" else "refusal" if refused else ended,
            refused=refused,
            cut_off=ended == "length",
        )

    def failure(self, error: Exception) -> httpx2.Response | Exception | None:
        import openai

        if isinstance(error, openai.APIStatusError):
            return error.response
        if isinstance(error, openai.APIConnectionError):
            return error.__cause__ if isinstance(error.__cause__, Exception) else error
        return error if isinstance(error, openai.OpenAIError) else None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _opened(self) -> AsyncOpenAI:
        async with self._opening:
            if self._client is None:
                await asyncio.to_thread(import_quietly, "openai")
                from openai import AsyncOpenAI

                self._client = AsyncOpenAI(
                    api_key=self._where.key.get_secret_value(),
                    base_url=self._where.base_url,
                    http_client=BoundedClient(self._max_bytes),
                    max_retries=0,
                )
            return self._client


class _Lenient(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Said(_Lenient):
    content: str | None = None
    refusal: str | None = None


class _Choice(_Lenient):
    message: _Said
    finish_reason: str | None = None


class _InputDetails(_Lenient):
    cached_tokens: Tokens | None = None
    cache_write_tokens: Tokens | None = None


class _Usage(_Lenient):
    prompt_tokens: Tokens
    completion_tokens: Tokens
    prompt_tokens_details: _InputDetails | None = None


class _Answer(_Lenient):
    choices: list[_Choice] = Field(min_length=1, max_length=10)
    usage: Any = None


def _counted(usage: Any) -> Counted | None:
    """Cached input is part of `prompt_tokens` here. Parts that are more than the whole are no usage."""
    try:
        used = _Usage.model_validate(usage)
    except ValidationError:
        return None
    details = used.prompt_tokens_details or _InputDetails()
    cached, written = details.cached_tokens or 0, details.cache_write_tokens or 0
    if cached + written > used.prompt_tokens:
        return None
    return Counted(
        input=used.prompt_tokens - cached - written,
        output=used.completion_tokens,
        cached=cached,
        cache_written=written,
    )
