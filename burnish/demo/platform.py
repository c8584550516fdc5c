"""The platform whose AI feature is refined: its tables, the model's answers in production, and what users say."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from burnish.demo.dataset import EXAMPLE, Labelled
from libs.contracts.touchpoints import ModelSettings
from libs.llm import FreeModelsOnly, ModelPool, ModelRequest, Replies

TABLES = (EXAMPLE / "platform.sql").read_text()
USERS = 25
LOW_CONFIDENCE = 0.5
DAYS = 14
REASONS = (
    "wrong",
    "Not right.",
    "Misrouted.",
    "Wrong team.",
    "should be {expected}",
    "{expected}, not {got}",
    "no",
)


@dataclass(frozen=True)
class Answer:
    """What the model answered to one production input."""

    row: Labelled
    label: str
    confidence: float

    @property
    def wrong(self) -> bool:
        """Whether a user would object."""
        return self.label != self.row.label


@dataclass(frozen=True)
class Production:
    """What happened on the platform."""

    answers: int
    wrong: int
    flags: int
    low_confidence: int

    @property
    def signals(self) -> int:
        """How many signals the scanners will find."""
        return self.flags + self.low_confidence


async def answer_traffic(pool: ModelPool, touchpoint_id: str, prompt: str, traffic: Sequence[Labelled]) -> list[Answer]:
    """Let the offline model answer every production input with the live prompt."""
    requests = [ModelRequest(task="classify", system=prompt, input=row.text) for row in traffic]
    answers: dict[int, Answer] = {}

    async def keep(replies: Replies) -> None:
        for number, reply in replies:
            assert reply.data is not None
            answers[number] = Answer(traffic[number], str(reply.data["label"]), float(reply.data["confidence"]))

    await pool.complete_many(ModelSettings(), requests, FreeModelsOnly(touchpoint_id), keep)
    return [answers[number] for number in range(len(traffic))]


async def record(platform_dsn: str, answers: Sequence[Answer], version_ref: str, *, seed: int = 11) -> Production:
    """Write the answers into the platform's tables: wrong ones are flagged, uncertain ones stand as they are."""
    rng = random.Random(seed)
    now = datetime.now(UTC)
    articles, flags, items = [], [], []
    for answer in answers:
        identity = UUID(int=rng.getrandbits(128), version=4)
        at = now - timedelta(seconds=rng.uniform(60, DAYS * 86_400))
        if answer.wrong:
            articles.append((identity, answer.row.text, answer.label, answer.confidence, version_ref, at))
            flags.append(_flag(rng, identity, answer, at))
        elif answer.confidence < LOW_CONFIDENCE:
            items.append((identity, answer.row.text, answer.label, answer.confidence, version_ref, at))
    conn = await asyncpg.connect(platform_dsn)
    try:
        async with conn.transaction():
            await conn.execute(TABLES)
            await conn.executemany(_ARTICLE, articles)
            await conn.executemany(_FLAG, flags)
            await conn.executemany(_ITEM, items)
    finally:
        await conn.close()
    return Production(len(answers), len(flags), len(flags), len(items))


def _flag(rng: random.Random, article: UUID, answer: Answer, at: datetime) -> tuple[object, ...]:
    user = f"agent-{rng.randrange(USERS) + 1:02d}"
    reason = rng.choice(REASONS).format(expected=answer.row.label, got=answer.label)
    flagged = at + timedelta(seconds=rng.uniform(1, 50))
    return (UUID(int=rng.getrandbits(128), version=4), article, user, reason, answer.row.label, flagged)


_ARTICLE = """
INSERT INTO platform.feed_articles (id, body, label, label_confidence, version_ref, created_at)
VALUES ($1, $2, $3, $4, $5, $6)
"""
_FLAG = """
INSERT INTO platform.feed_flags (id, article_id, flagged_by, category, reason, expected, created_at, updated_at)
VALUES ($1, $2, $3, 'wrong_label', $4, $5, $6, $6)
"""
_ITEM = """
INSERT INTO platform.content_items
    (id, content_type, body, classification, classification_confidence, version_ref, created_by, created_at, updated_at)
VALUES ($1, 'message', $2, $3, $4, $5, 'classifier', $6, $6)
"""
