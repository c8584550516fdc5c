"""How a prompt and a case become an answer: one request a case, bounded calls, answers kept as they come."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from libs.contracts.evaluations import Variant
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.touchpoints import ModelSettings
from libs.llm import Model, ModelError, ModelReply, ModelRequest, join_parts, model_from

TASK = "classify-1"
"""Part of the key of every stored answer: raise the number when a request is built in another way."""

_LABEL = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}


class CallParameters(BaseModel):
    """What a touchpoint may set of its model's calls (`model.parameters`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    max_output_tokens: int = Field(default=64, gt=0, le=100_000)

    @property
    def sha256(self) -> str:
        """Hex SHA-256 of the parameters and of the way requests are built."""
        return sha256(f"{TASK}|{json.dumps(self.model_dump(), sort_keys=True)}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is given of a case."""

    input_sha256: str
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model made of it. `output` is None where the reply had no label: a wrong answer, not a failure."""

    input_sha256: str
    output: str | None
    usd: Decimal
    latency_ms: float


Keep = Callable[[list[Answer]], Awaitable[None]]


@runtime_checkable
class ManyAtOnce(Protocol):
    """A model that classifies a batch in one go, such as the offline one."""

    async def classify_many(self, system: str, inputs: Sequence[str]) -> list[ModelReply]:
        """What `complete` replies to each input, in order."""
        ...


def open_model(settings: ModelSettings) -> Model:
    """The model of a touchpoint. Raises ModelError naming what is unknown."""
    options = {} if settings.provider == "offline" else {"name": settings.name}
    return model_from(settings.provider, **options)


def parameters(settings: ModelSettings) -> CallParameters:
    """The parameters of a touchpoint's calls. Raises ModelError naming the field."""
    try:
        return CallParameters.model_validate(settings.parameters)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ModelError(f"model parameter {field!r}: {first['msg']}", retryable=False) from None


def system_text(variant: Variant) -> str:
    """The prompt as it is sent: its parts in their order."""
    return join_parts(part.text for part in variant.parts)


def prompt_sha256(variant: Variant) -> str:
    """The hash of the text as it is sent, which for a prompt of one part is its content hash."""
    return content_sha256((PromptPart(path="prompt", text=system_text(variant)),))


class Models:
    """The models of this process, each opened once; all their calls together are bounded."""

    def __init__(self, concurrency: int = 16, make: Callable[[ModelSettings], Model] = open_model) -> None:
        self._concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._make = make
        self._open: dict[tuple[str, str], Model] = {}

    def of(self, settings: ModelSettings) -> Model:
        """The model of these settings. Raises ModelError when there is none."""
        key = settings.provider, settings.name
        if key not in self._open:
            self._open[key] = self._make(settings)
        return self._open[key]

    def key(self, settings: ModelSettings) -> str:
        """What answers are stored under: provider and the name with its version."""
        model = self.of(settings)
        return f"{model.provider}/{model.name}"

    async def answer(self, settings: ModelSettings, system: str, questions: Sequence[Question], keep: Keep) -> None:
        """Ask every question; `keep` gets answers as they come, so that a crash loses only calls in flight.

        Raises the first ModelError, after the calls in flight have ended and their answers were kept.
        """
        model = self.of(settings)
        if isinstance(model, ManyAtOnce):
            async with self._slots:
                replies = await model.classify_many(system, [question.text for question in questions])
            await keep([_answer(q, reply) for q, reply in zip(questions, replies, strict=True)])
            return
        await self._one_by_one(model, parameters(settings), system, questions, keep)

    async def _one_by_one(
        self, model: Model, how: CallParameters, system: str, questions: Sequence[Question], keep: Keep
    ) -> None:
        waiting, running = deque(questions), set[asyncio.Task[Answer]]()
        failure: ModelError | None = None
        try:
            while running or (waiting and failure is None):
                # Twice the slots are begun: while answers are being kept, the next calls are already waiting.
                while waiting and failure is None and len(running) < 2 * self._concurrency:
                    running.add(asyncio.create_task(self._ask(model, how, system, waiting.popleft())))
                finished, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                errors = [error for task in finished if (error := task.exception()) is not None]
                if answers := [task.result() for task in finished if task.exception() is None]:
                    await keep(answers)
                failure = failure or _model_error(errors)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        if failure is not None:
            raise failure

    async def _ask(self, model: Model, how: CallParameters, system: str, question: Question) -> Answer:
        request = ModelRequest(
            task="classify", system=system, input=question.text, output_schema=_LABEL, **how.model_dump()
        )
        async with self._slots:
            return _answer(question, await model.complete(request))


def _model_error(errors: Sequence[BaseException]) -> ModelError | None:
    """The first of the errors. One that is no ModelError is a defect, raised as it is."""
    for error in errors:
        if not isinstance(error, ModelError):
            raise error
    return next((error for error in errors if isinstance(error, ModelError)), None)


def _answer(question: Question, reply: ModelReply) -> Answer:
    label = (reply.data or {}).get("label")
    output = label.replace("\0", "") if isinstance(label, str) else None
    return Answer(question.input_sha256, output, reply.usage.usd, reply.latency_ms)
