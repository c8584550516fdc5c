"""What models behind an HTTP endpoint have in common: price, tries, time, errors. What differs is a `Wire`."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx2
from pydantic import SecretStr, ValidationError
from pydantic_core import from_json

from libs.contracts.text import without_nul
from libs.llm.base import Declined, ModelError, ModelReply, ModelRequest, Usage
from libs.llm.endpoint import MAYBE_MADE, NOT_MADE, Attempt, MaybeBilled, TooLarge, retry_after_s, with_retries, word
from libs.llm.prices import Counted, ModelFacts, published, read_table
from libs.llm.settings import ProviderSettings, api_key
from libs.llm.structured import FORM, data_of, portable

OVERHEAD_TOKENS = 1_024
"""What a provider adds to a request: roles, and the instructions that go with a schema."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A request as the wire needs it. `schema` is what the provider enforces, None where it cannot."""

    name: str
    system: str
    input: str
    schema: dict[str, Any] | None
    json_only: bool
    max_tokens: int
    temperature: float | None
    effort: str | None


@dataclass(frozen=True, slots=True)
class Heard:
    """What came back: the text, and why it ended."""

    text: str
    counted: Counted | None
    ended: str
    refused: bool = False
    cut_off: bool = False


class Wire(Protocol):
    """One provider's SDK and the form of its answers."""

    async def ask(self, spoken: Spoken) -> httpx2.Response:
        """One call, without retries. Raises as the SDK does."""
        ...

    def heard(self, content: bytes) -> Heard:
        """A successful response. Raises `pydantic.ValidationError` when it is not of the API's form."""
        ...

    def failure(self, error: Exception) -> httpx2.Response | Exception | None:
        """The response that the SDK's error holds, or the error below it; None where it is no error of the SDK."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a provider's models are, and how a key is given to it."""

    provider: str
    own_url: str
    base_url: str
    key_variable: str
    url_variable: str
    key: SecretStr

    @property
    def is_own(self) -> bool:
        """Whether it is the provider's own address, for which the published prices hold."""
        return self.base_url == self.own_url


def place(settings: ProviderSettings, provider: str, own_url: str) -> Place:
    """The place of a provider. Raises `ModelError` naming the setting of a key that is missing."""
    variable = f"BURNISH_{provider.upper()}_API_KEY"
    key = api_key(getattr(settings, f"{provider}_api_key"), getattr(settings, f"{provider}_api_key_file"), variable)
    url = getattr(settings, f"{provider}_base_url")
    return Place(provider, own_url, url, variable, f"BURNISH_{provider.upper()}_BASE_URL", key)


class RemoteModel:
    """A `Model` behind an endpoint.

    Its name has the host behind it where that is not the provider's own: answers and prices of one are not those of
    another.
    """

    def __init__(self, name: str, where: Place, wire: Wire, settings: ProviderSettings) -> None:
        self.provider = where.provider
        self.name = name if where.is_own else f"{name}@{urlsplit(where.base_url).netloc}"
        self._asked_name = name
        self._where = where
        self._wire = wire
        self._settings = settings
        self._facts = _facts(self.name, name, where, settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.provider}/{self.name})"

    def most_usd(self, request: ModelRequest) -> Decimal | None:
        """See `Model`. No token is shorter than a byte, so the bytes of a request bound its tokens."""
        if self._facts is None:
            return None
        schema = len(str(request.output_schema)) if request.output_schema else 0
        tokens = len(request.system.encode()) + len(request.input.encode()) + 2 * schema + OVERHEAD_TOKENS
        return self._facts.most_usd(tokens, self._max_tokens(request))

    async def complete(self, request: ModelRequest) -> ModelReply:
        """See `Model`."""
        spoken = self._spoken(request)
        begun = time.monotonic()
        try:
            response = await with_retries(
                lambda: self._try(spoken), self._settings.model_retries, self._settings.model_retry_patience_s
            )
            heard = self._wire.heard(response.content)
        except ValidationError:
            raise self._maybe_billed("its answer is not of the form of its API", request, retryable=False) from None
        except MaybeBilled as error:
            raise self._maybe_billed(error.reason, request, retryable=error.retryable) from None
        usage = self._usage(heard.counted, request)
        if heard.refused:
            raise Declined(f"{self._whole_name} declined to answer ({word(heard.ended)})", usage=usage)
        if heard.cut_off:
            raise ModelError(self._cut_off(spoken), retryable=False, usage=usage)
        return ModelReply(
            text=without_nul(heard.text),
            data=data_of(heard.text, request.output_schema) if request.output_schema is not None else None,
            usage=usage,
            model=self.name,
            provider=self.provider,
            latency_ms=(time.monotonic() - begun) * 1_000,
        )

    async def close(self) -> None:
        """Close the connections to the endpoint."""
        await self._wire.close()

    @property
    def _whole_name(self) -> str:
        return f"{self.provider}/{self.name}"

    # --- what is asked ------------------------------------------------------------------------------------

    def _max_tokens(self, request: ModelRequest) -> int:
        return request.max_output_tokens + (self._facts.thinking_tokens if self._facts else 0)

    def _spoken(self, request: ModelRequest) -> Spoken:
        takes_temperature = self._facts is None or self._facts.sampling
        if request.temperature and not takes_temperature:
            raise ModelError(
                f"{self._whole_name} takes no temperature: leave it out of model.parameters", retryable=False
            )
        schema = None if request.output_schema is None else portable(request.output_schema)
        free_form = request.output_schema is not None and schema is None
        return Spoken(
            name=self._asked_name,
            system=request.system + (_stated(request.output_schema) if free_form else ""),
            input=request.input,
            schema=schema,
            json_only=free_form,
            max_tokens=self._max_tokens(request),
            temperature=request.temperature if takes_temperature else None,
            effort=request.effort,
        )

    # --- what came back -----------------------------------------------------------------------------------

    async def _try(self, spoken: Spoken) -> httpx2.Response:
        """The successful response. Raises `Attempt` or `MaybeBilled`."""
        try:
            response = await self._wire.ask(spoken)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            failure = error if isinstance(error, TooLarge | httpx2.HTTPError) else self._wire.failure(error)
            if failure is None:
                raise
            # Neither the SDK's error nor what lies below it goes on: they hold the request, and with it the key.
            raised = self._refused(failure) if isinstance(failure, httpx2.Response) else self._broken(failure)
        else:
            if response.is_success:
                return response
            raised = self._refused(response)
        raise raised

    def _broken(self, error: Exception) -> ModelError:
        """The connection, or what came over it."""
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout):
            where = f"{self.provider} cannot be reached at {self._where.base_url}"
            return Attempt(where, retryable=True, again=True)
        if isinstance(error, TooLarge):
            most = self._settings.model_max_reply_bytes
            return MaybeBilled(f"its answer is packed, or has more than {most:,} bytes", retryable=False)
        if isinstance(error, httpx2.TimeoutException):
            return MaybeBilled("it did not answer in time", retryable=True)
        if isinstance(error, httpx2.TransportError):
            return MaybeBilled("the connection was lost before its answer was there", retryable=True)
        return MaybeBilled("its answer cannot be read", retryable=False)

    def _refused(self, response: httpx2.Response) -> ModelError:
        """An error's own text is left out: it may quote what was sent."""
        status, code, field = response.status_code, *_code_and_field(response)
        if status in MAYBE_MADE:
            return MaybeBilled(f"it gave up waiting (HTTP {status})", retryable=True)
        if status in NOT_MADE and code not in ("insufficient_quota", "billing_hard_limit_reached"):
            busy = {429: "asks for fewer calls", 529: "is overloaded", 503: "is overloaded"}.get(status, "failed")
            wait = retry_after_s(response.headers)
            after = f", not before {wait:,.2f} s" if wait is not None else ""
            reason = f"{self._whole_name} {busy} (HTTP {status}{after})"
            return Attempt(reason, retryable=True, again=True, retry_after_s=wait)
        said = " ".join(part for part in (f"HTTP {status}", code, field and f"at {field}") if part)
        return Attempt(f"{self._whole_name} {self._what_to_do(status)} ({said})", retryable=status >= 500)

    def _what_to_do(self, status: int) -> str:
        if 300 <= status < 400:
            return f"answers with a redirect, which is not followed: set {self._where.url_variable}"
        match status:
            case 401 | 403:
                return f"does not take the key: look at {self._where.key_variable}"
            case 402 | 429:
                return "has no credit left with this key"
            case 404:
                return "is not known there: look at the model's name"
            case 413:
                return "does not take a request of this size"
        return "did not take the request"

    def _cut_off(self, spoken: Spoken) -> str:
        return (
            f"the answer of {self._whole_name} was cut off at {spoken.max_tokens} output tokens, thinking included: "
            "raise max_output_tokens in model.parameters, or thinking_tokens in the price table"
        )

    # --- what it cost -------------------------------------------------------------------------------------

    def _maybe_billed(self, reason: str, request: ModelRequest, *, retryable: bool) -> ModelError:
        return ModelError(f"{self._whole_name}: {reason}", retryable=retryable, usage=self._most(request))

    def _most(self, request: ModelRequest) -> Usage:
        return Usage(input_tokens=0, output_tokens=0, usd=self.most_usd(request) or Decimal())

    def _usage(self, counted: Counted | None, request: ModelRequest) -> Usage:
        """What the endpoint says that it used; the most that it can be where it says nothing that can be used."""
        if counted is None or self._facts is None:
            return self._most(request)
        usd = self._facts.usd(counted)
        return Usage(input_tokens=counted.whole_input, output_tokens=counted.output, usd=usd)


def _facts(whole_name: str, name: str, where: Place, settings: ProviderSettings) -> ModelFacts | None:
    """A table of one's own, which may name the host, too, goes before ours: that holds at the own address only."""
    if settings.model_prices is not None:
        own = read_table(settings.model_prices)
        if found := own.of(where.provider, whole_name) or own.of(where.provider, name):
            return found
    return published().of(where.provider, name) if where.is_own else None


def _stated(schema: dict[str, Any] | None) -> str:
    return FORM + json.dumps(schema)


def _code_and_field(response: httpx2.Response) -> tuple[str, str]:
    """`error.code` or `error.type`, and `error.param`, of an error body that may be anything."""
    try:
        body = from_json(response.content)
    except ValueError:
        return "", ""
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        return "", ""
    return word(error.get("code")) or word(error.get("type")), word(error.get("param"))
