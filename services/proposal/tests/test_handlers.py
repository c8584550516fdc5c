"""Handlers with neighbours on a real bus: once however often, one open proposal, following the live text."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr

from libs import touchpoints
from libs.contracts.envelope import Event
from libs.contracts.events.proposal import ProposalFailedV1, ProposalGeneratedV1, ProposalRequestedV1
from libs.contracts.events.registry import VersionActivatedV1, VersionRolledBackV1
from libs.contracts.queries.proposal import ListProposals
from libs.contracts.versions import LivePrompt
from libs.llm.metrics import BUDGET_LEFT
from libs.service_kit.db import Database
from libs.service_kit.errors import Poison
from libs.service_kit.queries import Asker
from libs.service_kit.testing import event_of, outbox_events
from services.proposal import handlers, metrics
from services.proposal.generation import Generator
from services.proposal.settings import Settings
from services.proposal.store import proposals
from services.proposal.tests.factories import (
    AT,
    HUNK,
    PATTERN,
    PROMPT,
    TOUCHPOINT,
    Neighbours,
    Scripted,
    answer_of,
    detected,
    executed,
    live_of,
    now,
    pattern_of,
    pool_of,
    proposal_of,
    registered,
    saved,
)

SETTINGS = Settings(database_url=SecretStr("postgresql://unused"))


class Desk:
    """The service's handlers with a scripted model."""

    def __init__(self, db: Database, asker: Asker, model: Scripted) -> None:
        self.db, self.asker, self.model = db, asker, model
        self.generator = Generator(db, asker, pool_of(SETTINGS.budget, model))

    async def register(self, **config: Any) -> None:
        await touchpoints.on_registered([event_of(registered(**config))], self.db)

    async def detect(self, event: Event[Any]) -> None:
        await handlers.on_pattern_detected(event, self.db, self.asker, self.generator)

    async def request(self, event: Event[Any]) -> None:
        await handlers.on_proposal_requested(event, self.db, self.asker, self.generator)

    async def states(self) -> list[str]:
        async with self.db.transaction() as tx:
            return [one.state for one in reversed(await proposals.listed(tx.conn, ListProposals()))]


@pytest.fixture
async def desk(db: Database, asker: Asker) -> Desk:
    made = Desk(db, asker, Scripted(*[answer_of(HUNK)] * 5))
    await made.register()
    return made


def requested(**changes: Any) -> Event[ProposalRequestedV1]:
    fields = {"request_id": uuid4(), "touchpoint_id": TOUCHPOINT, "pattern_id": PATTERN, "requested_by": "ann"}
    return event_of(ProposalRequestedV1(**{**fields, **changes}))


# --- writing ----------------------------------------------------------------------------------------------


async def test_a_strong_pattern_becomes_a_proposal_once(desk: Desk) -> None:
    event = event_of(detected())
    for _ in range(3):
        await desk.detect(event)
    (fact,) = await outbox_events(desk.db)
    assert isinstance(fact.data, ProposalGeneratedV1)
    assert (fact.data.hunk_count, fact.data.model_tokens, fact.data.pattern_id) == (1, 120, PATTERN)
    assert len(desk.model.requests) == 1
    one = await now(desk.db, fact.data.proposal_id)
    assert (one.state, one.content_sha256, one.base_version_ref) == ("generated", fact.data.content_sha256, "git:base")


async def test_delivered_twice_at_once_it_is_one_proposal(desk: Desk) -> None:
    event, other = event_of(detected()), event_of(detected(occurrence=2))
    outcomes = await asyncio.gather(*(desk.detect(one) for one in (event, event, other)), return_exceptions=True)
    for outcome, one in zip(outcomes, (event, event, other), strict=True):
        if outcome is not None:  # another paid call was in flight: the kit delivers it again
            await desk.detect(one)
    assert await desk.states() == ["generated"]
    assert len(await outbox_events(desk.db)) == 1


async def test_a_weak_pattern_is_only_remembered(desk: Desk) -> None:
    await desk.detect(event_of(detected(pattern_of(automatic=False))))
    assert await outbox_events(desk.db) == []
    async with desk.db.connection() as conn:
        assert await conn.fetchval("SELECT title FROM patterns WHERE pattern_id = $1", PATTERN) is not None


async def test_an_inactive_touchpoint_gets_none_unasked(desk: Desk, neighbours: Neighbours) -> None:
    await desk.register(revision=2, active=False)
    await desk.detect(event_of(detected()))
    assert await desk.states() == []
    neighbours.patterns[PATTERN] = pattern_of()
    await desk.request(requested())
    assert await desk.states() == ["generated"]


async def test_an_unknown_touchpoint_is_tried_again(db: Database, asker: Asker) -> None:
    with pytest.raises(handlers.NotRegistered):
        await Desk(db, asker, Scripted()).detect(event_of(detected()))


async def test_an_open_proposal_is_the_answer_to_every_request(desk: Desk, neighbours: Neighbours) -> None:
    neighbours.patterns[PATTERN] = pattern_of(automatic=False)
    await desk.request(requested())
    await desk.request(requested(requested_by="bob"))
    await desk.detect(event_of(detected(occurrence=2)))
    assert await desk.states() == ["generated"]
    async with desk.db.transaction() as tx:
        (one,) = await proposals.listed(tx.conn, ListProposals())
        await proposals.move(tx.conn, one.proposal_id, "rejected")
    assert (await now(desk.db, one.proposal_id)).decisions[0].by == "ann"
    await desk.request(requested())
    assert sorted(await desk.states()) == ["generated", "rejected"]


async def test_a_request_for_what_is_not_there_is_poison(desk: Desk, neighbours: Neighbours) -> None:
    with pytest.raises(Poison, match="not_found"):
        await desk.request(requested())
    neighbours.patterns[PATTERN] = pattern_of(touchpoint_id="another")
    with pytest.raises(Poison, match="of the touchpoint 'another'"):
        await desk.request(requested())


async def test_a_failure_is_stored_and_said(desk: Desk, neighbours: Neighbours) -> None:
    desk.model.replies = [answer_of()]
    await desk.detect(event_of(detected()))
    neighbours.live = None
    await desk.detect(event_of(detected(pattern_of(pattern_id=UUID(int=5)))))
    reasons = [fact.data.reason for fact in await outbox_events(desk.db, ProposalFailedV1)]
    assert reasons == [
        "no change is proposed: The prompt does not say what a fee is.",
        "the touchpoint has no live prompt",
    ]
    assert await desk.states() == ["failed", "failed"]


async def test_a_stale_one_makes_room_for_a_new_one(desk: Desk, neighbours: Neighbours) -> None:
    await desk.detect(event_of(detected()))
    newer = PROMPT.replace("### card_fee\n", "### card_fee\nA cost.\n")
    neighbours.live = live_of(newer, "git:newer")  # version.activated is still on its way
    await desk.detect(event_of(detected(occurrence=2)))
    assert await desk.states() == ["stale", "generated"]


async def test_the_log_holds_counts_and_no_text(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    await desk.detect(event_of(detected()))
    told = "".join(capsys.readouterr())
    assert "refinement.proposal.generated" in told
    assert "model_tokens" in told
    assert "charged" not in told


# --- what others say --------------------------------------------------------------------------------------


def activated(live: LivePrompt, proposal_id: UUID | None = None, minutes: int = 0) -> Event[VersionActivatedV1]:
    return event_of(
        VersionActivatedV1(
            activation_id=uuid4(),
            touchpoint_id=TOUCHPOINT,
            version_ref=live.version_ref,
            adapter="skill_file",
            content_sha256=live.content_sha256,
            proposal_id=proposal_id,
            activated_by="registry",
            activated_at=AT + timedelta(minutes=minutes),
        )
    )


def rolled_back(live: LivePrompt, proposal_id: UUID, minutes: int = 1) -> Event[VersionRolledBackV1]:
    return event_of(
        VersionRolledBackV1(
            activation_id=uuid4(),
            touchpoint_id=TOUCHPOINT,
            from_version="git:newer",
            to_version=live.version_ref,
            adapter="skill_file",
            content_sha256=live.content_sha256,
            proposal_id=proposal_id,
            reason="it got worse",
            rolled_back_by="ann",
            rolled_back_at=AT + timedelta(minutes=minutes),
        )
    )


async def test_a_run_puts_the_proposal_in_review(db: Database) -> None:
    one = await saved(db)
    event = event_of(executed(one))
    for _ in range(2):
        await handlers.on_ab_executed([event, event_of(executed(one, proposal_id=None))], db)
    back = await now(db, one.proposal_id)
    assert back.state == "in_review"
    assert back.ab is not None
    assert (back.ab.verdict, back.ab.gained, back.ab.lost) == ("better", 5, 1)


async def test_activated_and_rolled_back(db: Database, asker: Asker, neighbours: Neighbours) -> None:
    one = await saved(db)
    async with db.transaction() as tx:
        await proposals.move(tx.conn, one.proposal_id, "approved")
    base, newer = live_of(), live_of(one.content.parts[0].text, "git:newer")
    neighbours.live = newer
    await handlers.on_versions_activated([activated(newer, one.proposal_id)], db, asker)
    assert (await now(db, one.proposal_id)).state == "activated"
    neighbours.live = base
    await handlers.on_versions_rolled_back([rolled_back(base, one.proposal_id)], db, asker)
    back = await now(db, one.proposal_id)
    assert back.state == "rolled_back"
    assert [(decision.action, decision.by) for decision in back.decisions[1:]] == [
        ("activated", "registry"),
        ("rolled_back", "ann"),
    ]


async def test_others_follow_the_new_text_or_become_stale(db: Database, asker: Asker, neighbours: Neighbours) -> None:
    far = HUNK.model_copy(update={"before": "### top_up\n", "after": "### top_up\nAdding money.\n"})
    movable, conflicts = proposal_of(far, pattern_id=UUID(int=50)), proposal_of(pattern_id=UUID(int=51))
    for one in (movable, conflicts):
        await saved(db, one)
    await handlers.on_ab_executed([event_of(executed(movable))], db)
    neighbours.live = live_of(PROMPT.replace("### card_fee\n", "### card_fee\nA cost.\n"), "git:newer")
    event = activated(neighbours.live)
    for _ in range(2):
        await handlers.on_versions_activated([event], db, asker)
    moved, stale = await now(db, movable.proposal_id), await now(db, conflicts.proposal_id)
    assert (moved.state, moved.base_sha256, moved.ab) == ("revised", neighbours.live.content_sha256, None)
    assert "A cost." in moved.content.parts[0].text
    assert "Adding money." in moved.content.parts[0].text
    assert [decision.action for decision in moved.decisions] == ["created", "revised"]
    assert stale.state == "stale"
    await handlers.on_ab_executed([event_of(executed(moved))], db)
    assert (await now(db, movable.proposal_id)).state == "in_review"


async def test_an_approved_one_waits_for_the_ledger_unless_its_base_is_gone(
    db: Database, asker: Asker, neighbours: Neighbours
) -> None:
    one = await saved(db)
    async with db.transaction() as tx:
        await proposals.move(tx.conn, one.proposal_id, "approved")
    neighbours.live = live_of(one.content.parts[0].text, "git:newer")
    await handlers.on_versions_activated([activated(live_of())], db, asker)  # an older event, the text is live already
    assert (await now(db, one.proposal_id)).state == "approved"
    neighbours.live = live_of(PROMPT + "\nMore.\n", "git:other")
    await handlers.on_versions_activated([activated(neighbours.live)], db, asker)
    assert (await now(db, one.proposal_id)).state == "stale"
    neighbours.live = live_of(one.content.parts[0].text, "git:newer")
    await handlers.on_versions_activated([activated(neighbours.live, one.proposal_id, minutes=5)], db, asker)
    assert (await now(db, one.proposal_id)).state == "activated"


async def test_gauges(db: Database) -> None:
    await saved(db)
    await handlers.gauges(db, SETTINGS.budget)
    assert metrics.PROPOSALS.labels("generated")._value.get() == 1
    assert BUDGET_LEFT._value.get() == float(SETTINGS.budget.per_day)
