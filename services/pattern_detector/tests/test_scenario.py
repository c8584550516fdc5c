"""The scenario of the demo: production traffic answered half wrong, flagged by people, with low-confidence items."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalCreatedV1
from libs.contracts.queries.pattern_detector import ListPatterns
from libs.contracts.signals import EvidenceRef
from libs.llm.offline import OfflineModel
from libs.service_kit.db import Database
from services.pattern_detector import answers
from services.pattern_detector.tests import planted
from services.pattern_detector.tests.support import TOUCHPOINT, Bench, created

OpenDatabase = Callable[[str], Awaitable[Database]]
INPUTS, PEOPLE, UNSURE = 2_000, 25, 0.3
REASONS = ("this is about {}", "wrong answer, should be {}", "I was asking about {}", "not what I meant", "wrong topic")

pytestmark = pytest.mark.skipif(
    not (planted.DATA / "banking77").is_dir(), reason="Banking77 is not at BURNISH_SHARED_DATA (../shared/data)"
)


async def traffic(random: Random) -> list[Event[SignalCreatedV1]]:
    """Signals of 2,000 inputs that the offline model answered by the labels' names alone."""
    topics = planted.banking77()
    inputs = random.sample([(text, label) for label, texts in topics.items() for text in texts], INPUTS)
    prompt = "## Labels\n" + "\n".join(f"### {label}\n" for label in sorted(topics))
    replies = await OfflineModel().classify_many(prompt, [text for text, _ in inputs])
    events: list[Event[SignalCreatedV1]] = []
    for n, ((text, label), reply) in enumerate(zip(inputs, replies, strict=True)):
        answer: dict[str, Any] = reply.data or {}
        if answer["label"] != label:
            events.append(_flag(n, text, label, answer["label"], random))
        if answer["confidence"] < UNSURE:
            events.append(_unsure(n, text, answer["label"], answer["confidence"]))
    return events


def _flag(n: int, text: str, expected: str, got: str, random: Random) -> Event[SignalCreatedV1]:
    reason = random.choice(REASONS).format(expected.replace("_", " "))
    payload = {"text": text, "expected": expected, "got": got, "reason": reason}
    return created(f"flag-{n}", payload=payload, actor_id=f"user-{random.randrange(PEOPLE)}")


def _unsure(n: int, text: str, got: str, confidence: float) -> Event[SignalCreatedV1]:
    return created(
        f"unsure-{n}",
        signal_type="low_confidence",
        severity="low",
        payload={"text": text, "expected": None, "got": got, "confidence": confidence},
        evidence_ref=EvidenceRef(source="content_items", id=f"item-{n}"),
        actor_id="scanner:low_confidence",
        actor_kind="machine",
    )


async def test_dozens_of_clear_confusions_and_some_topics_surface(database: OpenDatabase) -> None:
    bench = Bench(await database("pattern_detector"))
    events = await traffic(Random(7))
    assert len(events) > 1_000
    started = time.perf_counter()
    for at in range(0, len(events), 100):
        await bench.hear(*events[at : at + 100])
    heard, started = time.perf_counter() - started, time.perf_counter()
    run = await bench.detector.run(TOUCHPOINT, "arrivals")
    print(f"{len(events)} signals: intake {heard:.2f} s, run {time.perf_counter() - started:.2f} s")  # shown by -s
    assert run is not None
    assert run.processed == len(events)
    patterns = (await answers.answer_list_patterns(ListPatterns(limit=500), bench.db)).patterns
    clear = [p for p in patterns if p.strategy == "categorical" and p.evidence_count >= 5]
    assert len(clear) >= 24
    assert all(p.title == f"{p.expected} answered as {p.got}" for p in clear)
    topics = [p for p in patterns if p.strategy == "text"]
    assert any(p.title.startswith("low confidence: ") for p in topics)
    assert len(topics) < len(patterns) / 2
    assert patterns[0].evidence_count >= 10
