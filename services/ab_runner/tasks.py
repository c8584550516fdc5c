"""How a prompt and a case become an answer: one request a case, bounded calls, answers kept as they come."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256

from libs.contracts.evaluations import Variant
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.touchpoints import ModelSettings
from libs.llm import Account, CallParameters, ModelPool, ModelReply, ModelRequest, Replies, join_parts

TASK = "classify-1"
"""Part of the key of every stored answer: raise the number when a request is built in another way."""

_LABEL = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}


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


def params_sha256(parameters: CallParameters) -> str:
    """Hex SHA-256 of the parameters of calls and of the way requests are built."""
    return sha256(f"{TASK}|{json.dumps(parameters.model_dump(exclude_none=True), sort_keys=True)}".encode()).hexdigest()


def system_text(variant: Variant) -> str:
    """The prompt as it is sent: its parts in their order."""
    return join_parts(part.text for part in variant.parts)


def prompt_sha256(variant: Variant) -> str:
    """The hash of the text as it is sent, which for a prompt of one part is its content hash."""
    return content_sha256((PromptPart(path="prompt", text=system_text(variant)),))


async def answer(
    pool: ModelPool, settings: ModelSettings, system: str, questions: Sequence[Question], account: Account, keep: Keep
) -> None:
    """Ask every question; `keep` gets answers as they come, so that a crash loses only calls in flight.

    Raises the first ModelError, after the calls in flight have ended and their answers were kept.
    """

    async def kept(replies: Replies) -> None:
        await keep([_answer(questions[number], reply) for number, reply in replies])

    await pool.complete_many(settings, [_request(system, question) for question in questions], account, kept)


def _request(system: str, question: Question) -> ModelRequest:
    return ModelRequest(task="classify", system=system, input=question.text, output_schema=_LABEL)


def _answer(question: Question, reply: ModelReply) -> Answer:
    label = (reply.data or {}).get("label")
    output = label if isinstance(label, str) else None
    return Answer(question.input_sha256, output, reply.usage.usd, reply.latency_ms)
