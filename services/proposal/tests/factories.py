"""A small prompt, its pattern and its neighbours: the services that this one asks, answering on a real bus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import nats
from nats.aio.client import Client

from libs import touchpoints
from libs.contracts.evaluations import Case
from libs.contracts.events.ab_runner import AbExecutedV1
from libs.contracts.events.pattern_detector import PatternDetectedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.patterns import EvidenceItem, PatternDetail, ScoreParts
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.proposals import Hunk
from libs.contracts.queries.ab_runner import CheckLeaks, DevCases, GetDevCases, GetSuiteCoverage, Leaks, SuiteCoverage
from libs.contracts.queries.base import AnyQuery
from libs.contracts.queries.pattern_detector import GetPattern, PatternReply
from libs.contracts.queries.registry import GetPrompt, PromptReply
from libs.contracts.touchpoints import Approvals, Storage, Touchpoint
from libs.contracts.versions import LivePrompt
from libs.llm import Budget, ModelPool, ModelReply, ModelRequest, Usage, open_model
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from libs.service_kit.queries import Answerer, Responder
from libs.service_kit.testing.servers import Servers
from libs.touchpoints import KnownTouchpoint
from services.proposal import domain
from services.proposal.domain import Commission, Content, Draft, Proposal
from services.proposal.store import decisions, proposals

AT = datetime(2026, 11, 1, tzinfo=UTC)
TOUCHPOINT = "support.intent"
PATTERN = UUID("11111111-1111-5111-8111-111111111111")
SUITE = "5" * 64
PATH = "prompts/intent.md"
PROMPT = """\
Choose the label that fits the message best.

## Labels

### card
Anything about a card that no other label fits.

### card_fee
### exchange_rate
How one currency is turned into another.

Examples:
- what is the rate for euros today

### top_up
"""
FEES = (
    "why was I charged for my card",
    "you took a fee from my card",
    "my card has a cost",
    "what is this charge",
)


def parts_of(text: str = PROMPT) -> tuple[PromptPart, ...]:
    return (PromptPart(path=PATH, text=text),)


def live_of(text: str = PROMPT, ref: str = "git:base", workspace_id: UUID | None = None) -> LivePrompt:
    return LivePrompt(
        touchpoint_id=TOUCHPOINT,
        workspace_id=workspace_id,
        activation_id=uuid4(),
        version_ref=ref,
        adapter="skill_file",
        content_sha256=content_sha256(parts_of(text)),
        parts=parts_of(text),
        activated_at=AT,
    )


def touchpoint_of(**changes: Any) -> Touchpoint:
    storage = Storage(adapter="skill_file", repository=".", paths=(PATH,))
    return Touchpoint(**{"id": TOUCHPOINT, "scope": "global", "storage": storage, **changes})


def known_of(**changes: Any) -> KnownTouchpoint:
    return KnownTouchpoint(id=TOUCHPOINT, revision=1, scope="global", **changes)


def registered(revision: int = 1, **changes: Any) -> TouchpointRegisteredV1:
    return TouchpointRegisteredV1(touchpoint=touchpoint_of(**changes), revision=revision, registered_by="admin")


def evidence(*texts: str) -> tuple[EvidenceItem, ...]:
    return tuple(
        EvidenceItem(
            signal_id=UUID(int=number + 1),
            signal_type="flag",
            text=text,
            reason="wrong label",
            expected="card_fee",
            got="card",
            actor_kind="human",
            severity="medium",
            weight=1.0,
            last_seen=AT,
        )
        for number, text in enumerate(texts)
    )


def pattern_of(*texts: str, automatic: bool = True, **changes: Any) -> PatternDetail:
    items = evidence(*(texts or FEES))
    return PatternDetail(
        **{
            "pattern_id": PATTERN,
            "touchpoint_id": TOUCHPOINT,
            "title": "card_fee read as card",
            "strategy": "categorical",
            "state": "new",
            "expected": "card_fee",
            "got": "card",
            "evidence_count": len(items),
            "actors": 3,
            "human_actors": 3,
            "machine_cases": 0,
            "single_actor": False,
            "automatic": automatic,
            "score": 1.0,
            "score_parts": ScoreParts(weight=1, actors=1, recency=1, severity=1),
            "first_seen": AT,
            "last_seen": AT,
            "evidence": items,
            **changes,
        }
    )


def detected(pattern: PatternDetail | None = None, occurrence: int = 1) -> PatternDetectedV1:
    one = pattern or pattern_of()
    return PatternDetectedV1(touchpoint_id=one.touchpoint_id, run_id=uuid4(), occurrence=occurrence, pattern=one)


def hunk_of(before: str, after: str) -> Hunk:
    return Hunk(path=PATH, before=before, after=after, signal_ids=(UUID(int=1),))


HUNK = hunk_of("### card_fee\n", "### card_fee\n\nExamples:\n- why was I charged for my card\n")


def proposal_of(*hunks: Hunk, live: LivePrompt | None = None, pattern_id: UUID = PATTERN) -> Proposal:
    from services.proposal import hunks as rules

    base = live or live_of()
    chosen = hunks or (HUNK,)
    content = Content(
        base_parts=base.parts, parts=rules.apply(base.parts, chosen), hunks=chosen, rationale="It was unclear."
    )
    commission = Commission.of_occurrence(pattern_of(pattern_id=pattern_id), 1)
    draft = Draft(content, model="offline/offline-1", evidence_refs=(UUID(int=1), UUID(int=2)))
    return domain.new_proposal(commission, base, draft, AT)


async def saved(db: Database, proposal: Proposal | None = None, **touchpoint: Any) -> Proposal:
    """A proposal as it stands after it was generated, with its touchpoint registered."""
    one = proposal or proposal_of()
    async with db.transaction() as tx:
        await touchpoints.keep(tx.conn, [registered(**touchpoint)])
        assert await proposals.insert(tx.conn, one)
        await decisions.record(tx.conn, one.proposal_id, "created", one.author, one.commission, one.content_sha256)
    return one


async def now(db: Database, proposal_id: UUID) -> Proposal:
    async with db.connection() as conn:
        found = await proposals.get(conn, proposal_id)
    assert found is not None
    return found


def executed(one: Proposal, verdict: str | None = "better", **changes: Any) -> AbExecutedV1:
    return AbExecutedV1(
        **{
            "run_id": uuid4(),
            "touchpoint_id": one.touchpoint_id,
            "proposal_id": one.proposal_id,
            "status": "completed",
            "a_sha256": one.base_sha256,
            "b_sha256": one.content_sha256,
            "suite_sha256": SUITE,
            "verdict": verdict,
            "gained": 5,
            "lost": 1,
            "n": 60,
            "executed_at": AT,
            **changes,
        }
    )


class Scripted:
    """A model that gives prepared replies, in order, and remembers what it was asked."""

    provider = "scripted"
    name = "scripted-1"

    def __init__(self, *replies: Mapping[str, Any] | str | Exception, usd: str = "0.01") -> None:
        self.replies = list(replies)
        self.requests: list[ModelRequest] = []
        self.usd = Decimal(usd)

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        data = None if isinstance(reply, str) else dict(reply)
        return ModelReply(
            text=reply if isinstance(reply, str) else "",
            data=data,
            usage=Usage(input_tokens=100, output_tokens=20, usd=self.usd),
            model=self.name,
            provider=self.provider,
            latency_ms=1.0,
        )

    def most_usd(self, request: ModelRequest) -> Decimal | None:
        return Decimal("0.25")


def pool_of(budget: Budget, model: Scripted | None = None) -> ModelPool:
    """A pool in which the model answers for everything; without one, those of the providers do."""
    return ModelPool(budget, timeout_s=5.0, opener=open_model if model is None else lambda _provider, _name: model)


def answer_of(*hunks: Hunk, **changes: Any) -> dict[str, Any]:
    return {
        "hunks": [hunk.model_dump(mode="json") for hunk in hunks],
        "rationale": "The prompt does not say what a fee is.",
        **changes,
    }


@dataclass
class Neighbours:
    """What the registry, the A/B runner and the detector know, and what they were asked."""

    live: LivePrompt | None = field(default_factory=live_of)
    suite: str | None = SUITE
    dev: tuple[Case, ...] = ()
    gold: tuple[str, ...] = ()
    patterns: dict[UUID, PatternDetail] = field(default_factory=dict)
    asked: list[AnyQuery] = field(default_factory=list)

    async def prompt(self, query: GetPrompt) -> PromptReply:
        self.asked.append(query)
        if self.live is None:
            raise Refused("not_found", "no live prompt", status=404)
        return PromptReply(prompt=self.live)

    async def dev_cases(self, query: GetDevCases) -> DevCases:
        self.asked.append(query)
        return DevCases(suite_sha256=self.suite, cases=self.dev)

    async def leaks(self, query: CheckLeaks) -> Leaks:
        self.asked.append(query)
        return Leaks(leaked=tuple(any(case in text for case in self.gold) for text in query.texts))

    async def coverage(self, query: GetSuiteCoverage) -> SuiteCoverage:
        return SuiteCoverage(suite_sha256=self.suite)

    async def pattern(self, query: GetPattern) -> PatternReply:
        if query.pattern_id not in self.patterns:
            raise Refused("not_found", "no such pattern", status=404)
        return PatternReply(pattern=self.patterns[query.pattern_id])

    async def listen(self, servers: Servers) -> list[Client]:
        """Answer, each under the account of the service that owns the question."""
        owners: dict[str, dict[type[AnyQuery], Answerer]] = {
            "registry": {GetPrompt: self.prompt},
            "ab_runner": {
                GetDevCases: self.dev_cases,
                CheckLeaks: self.leaks,
                GetSuiteCoverage: self.coverage,
            },
            "pattern_detector": {GetPattern: self.pattern},
        }
        clients = []
        for owner, answers in owners.items():
            client = await connect(servers, owner)
            for query, answer in answers.items():
                await Responder(query.subject, query, answer, {}).start(client)
            await client.flush()
            clients.append(client)
        return clients


async def connect(servers: Servers, service: str) -> Client:
    return await nats.connect(servers.nats_url, user=service, password=servers.nats_password(service))


def approvals(required: int = 1, four_eyes: bool = True) -> Approvals:
    return Approvals(required=required, four_eyes=four_eyes)
