"""What a model is to the rest of the system: one request, one reply, honest errors."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from libs.contracts.text import STORABLE, JsonObject

Task = Literal["classify", "propose", "refine", "extract"]


class ModelRequest(BaseModel):
    """One question to a model.

    `system` is the prompt (trusted text of the touchpoint), `input` is data and never an instruction.
    With `output_schema` (a JSON Schema) the reply's `data` follows it, or is None where what the model wrote does not.
    `task` tells a provider that works by rule what is asked; a provider with a real language model may ignore it.
    `effort` is how much a model that thinks should.
    """

    model_config = ConfigDict(frozen=True)

    task: Task
    system: str
    input: str
    output_schema: dict[str, Any] | None = None
    max_output_tokens: int = Field(default=1024, gt=0)
    temperature: float = Field(default=0.0, ge=0.0)
    effort: str | None = None


class Usage(BaseModel):
    """What a call used, in tokens, and what it cost, in USD."""

    model_config = ConfigDict(frozen=True)

    input_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    usd: Decimal = Field(ge=0)


NOTHING_USED = Usage(input_tokens=0, output_tokens=0, usd=Decimal(0))


class ModelReply(BaseModel):
    """One answer: the text as the model wrote it and, where it is structured, the same as `data`."""

    model_config = ConfigDict(frozen=True)

    text: Annotated[str, STORABLE]
    data: JsonObject | None
    usage: Usage
    model: str
    provider: str
    latency_ms: float = Field(ge=0)


class Model(Protocol):
    """A model of one provider. `provider` and `name` together say what answered, e.g. in a result cache."""

    @property
    def provider(self) -> str:
        """The provider's key in configuration, e.g. `offline`."""
        ...

    @property
    def name(self) -> str:
        """The model's name with its version; a changed name means that answers may differ."""
        ...

    def most_usd(self, request: ModelRequest) -> Decimal | None:
        """What this call can cost at most; 0 where calls are free. None where no price is known: it is not made.

        The budget counts it until the price of the call is known. It is worked out without I/O.
        """
        ...

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The answer to one request. Raises `ModelError`; `PromptError` when the prompt is at fault."""
        ...


@runtime_checkable
class ManyAtOnce(Protocol):
    """A model that classifies a batch in one go, such as the offline one."""

    async def classify_many(self, system: str, inputs: Sequence[str]) -> list[ModelReply]:
        """What `complete` replies to each input, in order."""
        ...


@runtime_checkable
class Closing(Protocol):
    """A model with connections to close."""

    async def close(self) -> None: ...


class ModelError(Exception):
    """A call failed. `reason` names what was wrong and never quotes the text that was sent; `retryable` tells
    whether the same request may succeed later, `usage` what was billed all the same, as for a refusal."""

    def __init__(self, reason: str, *, retryable: bool, usage: Usage = NOTHING_USED) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable
        self.usage = usage


class UnknownPrice(ModelError):
    """A call that no budget can hold, since nobody knows what it costs."""

    def __init__(self, provider: str, name: str) -> None:
        super().__init__(
            f"no price is known for {provider}/{name}, so that no budget holds it: add the model to a price table "
            "and set BURNISH_MODEL_PRICES to its file",
            retryable=False,
        )


class Declined(ModelError):
    """The model would not answer. It may have been billed all the same."""

    def __init__(self, reason: str, *, usage: Usage = NOTHING_USED) -> None:
        super().__init__(reason, retryable=False, usage=usage)


class PromptError(ModelError):
    """The prompt cannot be used as it is; `line` (from 1) is where, when it can be told. Never retryable."""

    def __init__(self, reason: str, *, line: int | None = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}", retryable=False)
        self.line = line
