"""What the proposal service does with each event: a function each, of the event and its dependencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from libs import touchpoints
from libs.contracts.envelope import Event
from libs.contracts.events.ab_runner import AbExecutedV1
from libs.contracts.events.pattern_detector import PatternDetectedV1
from libs.contracts.events.proposal import ProposalFailedV1, ProposalGeneratedV1, ProposalRequestedV1
from libs.contracts.events.registry import VersionActivatedV1, VersionRolledBackV1
from libs.contracts.queries.pattern_detector import GetPattern
from libs.contracts.versions import LivePrompt
from libs.llm import Budget
from libs.llm.budget import left
from libs.llm.metrics import BUDGET_LEFT
from libs.service_kit import logging
from libs.service_kit.db import Database
from libs.service_kit.errors import Poison, Refused
from libs.service_kit.queries import Asker
from libs.touchpoints import KnownTouchpoint
from services.proposal import domain, transitions
from services.proposal.asking import live_prompt
from services.proposal.domain import Commission, Draft, Proposal
from services.proposal.generation import Generator
from services.proposal.metrics import PROPOSALS
from services.proposal.store import calls, decisions, outcomes, patterns, proposals

log = logging.get(__name__)
Place = tuple[str, UUID | None]


class NotRegistered(LookupError):
    """The touchpoint is not known here (yet). Tried again with delays, then dead-lettered and can be replayed."""


# --- writing proposals ------------------------------------------------------------------------------------


async def on_pattern_detected(
    event: Event[PatternDetectedV1], db: Database, asker: Asker, generator: Generator
) -> None:
    """Remember the pattern; write a proposal when it is strong enough for one that nobody asked for."""
    heard = event.data
    async with db.transaction() as tx:
        await patterns.remember(tx.conn, heard)  # an upsert: said twice, it is remembered once
        touchpoint = await touchpoints.get(tx.conn, heard.touchpoint_id)
    if not heard.pattern.automatic or (touchpoint is not None and not touchpoint.active):
        await _nothing_to_do(event, db)
        return
    commission = Commission.of_occurrence(heard.pattern, heard.occurrence)
    await _fulfil(event, commission, _known(touchpoint, heard.touchpoint_id), db, asker, generator)


async def on_proposal_requested(
    event: Event[ProposalRequestedV1], db: Database, asker: Asker, generator: Generator
) -> None:
    """Write the proposal that a person asks for, from the pattern as the detector sees it now."""
    asked = event.data
    try:
        pattern = (await asker.ask(GetPattern(pattern_id=asked.pattern_id))).pattern
    except Refused as no:
        raise Poison(f"pattern {asked.pattern_id}: {no.code}") from no
    if pattern.touchpoint_id != asked.touchpoint_id:
        raise Poison(f"pattern {asked.pattern_id} is of the touchpoint {pattern.touchpoint_id!r}")
    async with db.connection() as conn:
        touchpoint = await touchpoints.get(conn, asked.touchpoint_id)
    commission = Commission.of_request(pattern, asked.request_id, asked.requested_by)
    await _fulfil(event, commission, _known(touchpoint, asked.touchpoint_id), db, asker, generator)


async def _fulfil(
    event: Event[Any],
    commission: Commission,
    touchpoint: KnownTouchpoint,
    db: Database,
    asker: Asker,
    generator: Generator,
) -> None:
    pattern = commission.pattern
    live = await live_prompt(asker, pattern.touchpoint_id, pattern.workspace_id)
    if live is not None and await _is_open(db, pattern.pattern_id, live):
        await _nothing_to_do(event, db)
        return
    draft = Draft(failure="the touchpoint has no live prompt")
    if live is not None:
        draft = await generator.write(commission, touchpoint, live)
    proposal = domain.new_proposal(commission, live, draft, datetime.now(UTC))
    async with db.transaction(inbox=event) as tx:
        if not tx.fresh or not await proposals.insert(tx.conn, proposal):
            return
        await decisions.record(
            tx.conn, proposal.proposal_id, "created", commission.by, commission.key, proposal.content_sha256
        )
        saved = await proposals.get(tx.conn, proposal.proposal_id)
        assert saved is not None
        tx.emit(_fact(saved))
    _log_generated(saved)


async def _nothing_to_do(event: Event[Any], db: Database) -> None:
    """Record the event all the same: delivered again after things have changed, it still does nothing."""
    async with db.transaction(inbox=event):
        pass


async def _is_open(db: Database, pattern_id: UUID, live: LivePrompt) -> bool:
    """Whether the pattern has an open proposal already, once that one stands on the live text."""
    async with db.transaction() as tx:
        if (found := await proposals.open_of_pattern(tx.conn, pattern_id)) is not None:
            await transitions.realign(tx, found, live)
        return await proposals.open_of_pattern(tx.conn, pattern_id) is not None


def _fact(one: Proposal) -> ProposalGeneratedV1 | ProposalFailedV1:
    if one.failure is not None:
        return ProposalFailedV1(
            proposal_id=one.proposal_id,
            touchpoint_id=one.touchpoint_id,
            workspace_id=one.workspace_id,
            pattern_id=one.pattern_id,
            reason=one.failure,
        )
    return ProposalGeneratedV1(
        proposal_id=one.proposal_id,
        touchpoint_id=one.touchpoint_id,
        workspace_id=one.workspace_id,
        pattern_id=one.pattern_id,
        hunk_count=len(one.content.hunks),
        base_sha256=one.base_sha256,
        content_sha256=one.content_sha256,
        model=one.model,
        model_tokens=one.spend.input_tokens + one.spend.output_tokens,
    )


def _log_generated(one: Proposal) -> None:
    """The seed's event: counts, never text."""
    log.info(
        "refinement.proposal.failed" if one.failure is not None else "refinement.proposal.generated",
        touchpoint=one.touchpoint_id,
        pattern_id=str(one.pattern_id),
        model_tokens=one.spend.input_tokens + one.spend.output_tokens,
    )


def _known(touchpoint: KnownTouchpoint | None, touchpoint_id: str) -> KnownTouchpoint:
    if touchpoint is None:
        raise NotRegistered(f"touchpoint {touchpoint_id!r} is not registered here")
    return touchpoint


# --- what others say of a proposal ------------------------------------------------------------------------


async def on_ab_executed(events: list[Event[AbExecutedV1]], db: Database) -> None:
    """Keep the outcome with the proposal that was measured; runs of other texts are not for this service."""
    async with db.transaction(inbox=events) as tx:
        for event in tx.fresh:
            if event.data.proposal_id is not None:
                await outcomes.save(tx.conn, event.data.proposal_id, domain.outcome_of(event.data))


async def on_versions_activated(events: list[Event[VersionActivatedV1]], db: Database, asker: Asker) -> None:
    """The proposal behind a version is activated; the others of its touchpoint follow the new text."""
    lives = await _lives(asker, [(event.data.touchpoint_id, event.data.workspace_id) for event in events])
    async with db.transaction(inbox=events) as tx:
        for event in tx.fresh:
            said = event.data
            if said.proposal_id is not None:
                text = await proposals.ledger_says(tx.conn, said.proposal_id, "activated", said.activated_at)
                if text is not None:
                    reason = f"{said.version_ref} is live"
                    await decisions.record(tx.conn, said.proposal_id, "activated", said.activated_by, reason, text)
        for (touchpoint_id, workspace_id), live in _of(tx.fresh, lives).items():
            await transitions.realign_all(tx, touchpoint_id, workspace_id, live)


async def on_versions_rolled_back(events: list[Event[VersionRolledBackV1]], db: Database, asker: Asker) -> None:
    """The proposal behind a version is rolled back; the others of its touchpoint follow the restored text."""
    lives = await _lives(asker, [(event.data.touchpoint_id, event.data.workspace_id) for event in events])
    async with db.transaction(inbox=events) as tx:
        for event in tx.fresh:
            said = event.data
            if said.proposal_id is not None:
                text = await proposals.ledger_says(tx.conn, said.proposal_id, "rolled_back", said.rolled_back_at)
                if text is not None:
                    by, reason = said.rolled_back_by, said.reason
                    await decisions.record(tx.conn, said.proposal_id, "rolled_back", by, reason, text)
        for (touchpoint_id, workspace_id), live in _of(tx.fresh, lives).items():
            await transitions.realign_all(tx, touchpoint_id, workspace_id, live)


async def _lives(asker: Asker, places: Sequence[Place]) -> dict[Place, LivePrompt]:
    """The text that is live now in each place: it may be newer than the event, never older."""
    found = {place: await live_prompt(asker, *place) for place in dict.fromkeys(places)}
    return {place: live for place, live in found.items() if live is not None}


def _of(
    events: Sequence[Event[VersionActivatedV1]] | Sequence[Event[VersionRolledBackV1]],
    lives: Mapping[Place, LivePrompt],
) -> dict[Place, LivePrompt]:
    places = dict.fromkeys((event.data.touchpoint_id, event.data.workspace_id) for event in events)
    return {place: lives[place] for place in places if place in lives}


# --- gauges -----------------------------------------------------------------------------------------------


async def gauges(db: Database, budget: Budget) -> None:
    """Proposals by state, and what is left of today's budget."""
    async with db.connection() as conn:
        counts = await proposals.count_by_state(conn)
        spent = await calls.spent(conn, "", budget.in_flight_s)
    for state in domain.TRANSITIONS:
        PROPOSALS.labels(state).set(counts.get(state, 0))
    BUDGET_LEFT.set(float(left(budget, spent)))
