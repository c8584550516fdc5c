"""Decisions of people: the gate asked now, four eyes, several approvers, waivers, refusals that say what to do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from libs.contracts.events.proposal import ProposalApprovedV1, ProposalRejectedV1
from libs.contracts.proposals import ProposalDetail
from libs.contracts.queries.proposal import (
    ApproveProposal,
    GetProposal,
    ListProposals,
    ProposalReply,
    RejectProposal,
    WaiveProposal,
)
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from libs.service_kit.queries import Asker
from libs.service_kit.testing import event_of, outbox_events
from libs.service_kit.testing.servers import Servers
from services.proposal import answers, handlers
from services.proposal.domain import Proposal
from services.proposal.tests.factories import (
    PROMPT,
    Neighbours,
    approvals,
    connect,
    executed,
    hunk_of,
    live_of,
    now,
    proposal_of,
    saved,
)

MARKED = hunk_of("### top_up\n", "### top_up\nSee https://example.com\n")


async def approve(one: Proposal | ProposalDetail, db: Database, asker: Asker, by: str = "ann") -> ProposalDetail:
    query = ApproveProposal(proposal_id=one.proposal_id, content_sha256=one.content_sha256, by=by, reason="good")
    return (await answers.answer_approve(query, db, asker)).proposal


async def measured(db: Database, verdict: str = "better", one: Proposal | None = None, **touchpoint: Any) -> Proposal:
    made = await saved(db, one, **touchpoint)
    await handlers.on_ab_executed([event_of(executed(made, verdict))], db)
    return await now(db, made.proposal_id)


async def waive(db: Database, one: Proposal, reason: str = "we know") -> None:
    await answers.answer_waive(WaiveProposal(proposal_id=one.proposal_id, by="cleo", reason=reason), db)


async def test_an_approval_says_everything_the_registry_needs(db: Database, asker: Asker) -> None:
    one = await measured(db)
    detail = await approve(one, db, asker)
    assert detail.state == "approved"
    (fact,) = await outbox_events(db, ProposalApprovedV1)
    assert fact.data.parts == one.content.parts
    assert (fact.data.content_sha256, fact.data.base_sha256) == (one.content_sha256, one.base_sha256)
    assert (fact.data.base_version_ref, fact.data.approved_by) == ("git:base", ("ann",))
    assert one.ab is not None
    assert (fact.data.ab_run_id, fact.data.waiver, fact.data.hunks) == (one.ab.run_id, None, one.content.hunks)
    with pytest.raises(Refused, match="the proposal is approved"):
        await approve(one, db, asker, by="bob")
    assert len(await outbox_events(db, ProposalApprovedV1)) == 1


@pytest.mark.parametrize(
    ("verdict", "code"), [(None, "needs_waiver"), ("undecided", "needs_waiver"), ("worse", "ab_worse")]
)
async def test_the_gate_refuses(db: Database, asker: Asker, verdict: str | None, code: str) -> None:
    one = await measured(db, verdict) if verdict else await saved(db)
    with pytest.raises(Refused) as no:
        await approve(one, db, asker)
    assert (no.value.code, no.value.status) == (code, 409)
    if code == "ab_worse":
        with pytest.raises(Refused, match="cannot be waived"):
            await waive(db, one)
    else:
        await waive(db, one)
        await approve(one, db, asker)
        assert (await outbox_events(db, ProposalApprovedV1))[0].data.waiver == "cleo: we know"


async def test_the_suite_is_asked_now(db: Database, asker: Asker, neighbours: Neighbours) -> None:
    one = await measured(db)
    neighbours.suite = "6" * 64
    with pytest.raises(Refused, match="suite changed") as no:
        await approve(one, db, asker)
    assert no.value.code == "ab_outdated"
    neighbours.suite = None
    with pytest.raises(Refused, match="there is no suite: waive it"):
        await approve(one, db, asker)


async def test_the_live_text_is_asked_now_and_followed(db: Database, asker: Asker, neighbours: Neighbours) -> None:
    one = await measured(db)
    neighbours.live = live_of(PROMPT.replace("Choose", "Pick"), "git:newer")
    with pytest.raises(Refused) as no:
        await approve(one, db, asker)
    assert no.value.code == "base_moved"
    moved = await now(db, one.proposal_id)
    assert (moved.state, moved.base_version_ref, moved.ab) == ("revised", "git:newer", None)
    with pytest.raises(Refused) as no:
        await approve(one, db, asker)
    assert no.value.code == "other_text"
    with pytest.raises(Refused) as no:
        await approve(moved, db, asker)
    assert no.value.code == "needs_waiver"


async def test_a_waiver_and_an_approval_end_with_their_text(db: Database, asker: Asker, neighbours: Neighbours) -> None:
    one = await saved(db, approvals=approvals(2))
    await waive(db, one)
    await approve(one, db, asker)
    neighbours.live = live_of(PROMPT.replace("Choose", "Pick"), "git:newer")
    with pytest.raises(Refused, match="another version went live"):
        await approve(one, db, asker, by="bob")
    moved = await now(db, one.proposal_id)
    assert (moved.waiver, moved.approvers) == (None, ())


async def test_no_live_prompt_and_no_answer_fail_closed(
    db: Database, asker: Asker, neighbours: Neighbours, servers: Servers
) -> None:
    one = await measured(db)
    neighbours.live = None
    with pytest.raises(Refused, match="no live prompt"):
        await approve(one, db, asker)
    client = await connect(servers, "normaliser")  # an account that may ask nobody
    with pytest.raises(Refused) as no:
        await approve(one, db, Asker(lambda: client))
    assert (no.value.code, no.value.status) == ("unavailable", 503)
    await client.close()


async def test_several_approvers(db: Database, asker: Asker) -> None:
    one = await measured(db, approvals=approvals(2))
    waiting = await approve(one, db, asker)
    assert waiting.state == "in_review"
    assert [(decision.action, decision.by) for decision in waiting.decisions][-1] == ("approved", "ann")
    assert await outbox_events(db, ProposalApprovedV1) == []
    with pytest.raises(Refused, match="ann has approved this text already"):
        await approve(one, db, asker)
    assert (await approve(one, db, asker, by="bob")).state == "approved"
    assert (await outbox_events(db, ProposalApprovedV1))[0].data.approved_by == ("ann", "bob")


async def test_a_mark_needs_a_second_person(db: Database, asker: Asker) -> None:
    one = await measured(db, one=proposal_of(MARKED))
    assert one.flags == ("adds_url",)
    assert (await approve(one, db, asker)).state == "in_review"
    assert (await approve(one, db, asker, by="bob")).state == "approved"


async def test_the_author_of_a_manual_proposal_does_not_approve_it(db: Database, asker: Asker) -> None:
    one = await measured(db, one=replace(proposal_of(), author="ann"))
    with pytest.raises(Refused, match="another person must"):
        await approve(one, db, asker)
    assert (await approve(one, db, asker, by="bob")).state == "approved"


async def test_two_approvals_at_once_do_not_double(db: Database, asker: Asker) -> None:
    one = await measured(db, approvals=approvals(2))
    people = ["ann", "ann", "bob", "bob", "cleo", "dan"]
    outcomes = await asyncio.gather(*(approve(one, db, asker, by) for by in people), return_exceptions=True)
    assert sum(not isinstance(outcome, Refused) for outcome in outcomes) == 2
    assert all(isinstance(outcome, ProposalDetail | Refused) for outcome in outcomes)
    (fact,) = await outbox_events(db, ProposalApprovedV1)
    assert len(set(fact.data.approved_by)) == 2


@pytest.mark.parametrize("bad_signals", [False, True])
async def test_rejecting(db: Database, asker: Asker, bad_signals: bool) -> None:
    one = await measured(db)
    query = RejectProposal(proposal_id=one.proposal_id, by="ann", reason="no", bad_signals=bad_signals)
    detail = (await answers.answer_reject(query, db)).proposal
    assert detail.state == ("bad_signals" if bad_signals else "rejected")
    (fact,) = await outbox_events(db, ProposalRejectedV1)
    assert fact.data.signal_ids == ((UUID(int=1), UUID(int=2)) if bad_signals else ())
    for again in (answers.answer_reject(query, db), approve(one, db, asker), waive(db, one)):
        with pytest.raises(Refused, match="can be decided"):
            await again


async def test_a_reason_is_a_reason(db: Database) -> None:
    one = await saved(db)
    with pytest.raises(Refused, match="blank"):
        await waive(db, one, "  ")
    with pytest.raises(Refused, match="blank"):
        await answers.answer_reject(RejectProposal(proposal_id=one.proposal_id, by="ann", reason="\n"), db)


async def test_reading(db: Database, asker: Asker) -> None:
    one = await saved(db)
    detail: ProposalReply = await answers.answer_get(GetProposal(proposal_id=one.proposal_id), db)
    assert "+- why was I charged for my card" in detail.proposal.diff
    assert detail.proposal.parts == one.content.parts
    (summary,) = (await answers.answer_list(ListProposals(), db)).proposals
    assert summary.proposal_id == one.proposal_id
    for no_such in (
        answers.answer_get(GetProposal(proposal_id=uuid4()), db),
        answers.answer_approve(ApproveProposal(proposal_id=uuid4(), content_sha256="x", by="ann"), db, asker),
    ):
        with pytest.raises(Refused, match="there is no proposal"):
            await no_such


async def test_a_decision_asked_again_under_its_id_takes_effect_once(db: Database, asker: Asker) -> None:
    one = await measured(db)
    query = ApproveProposal(
        proposal_id=one.proposal_id, content_sha256=one.content_sha256, by="ann", reason="good", request_id=uuid4()
    )
    replies = await asyncio.gather(*(answers.answer_approve(query, db, asker) for _ in range(3)))
    assert len({reply.model_dump_json() for reply in replies}) == 1
    assert len(await outbox_events(db, ProposalApprovedV1)) == 1
    assert [each.action for each in replies[0].proposal.decisions].count("approved") == 1
    with pytest.raises(Refused) as no:
        await answers.answer_approve(query.model_copy(update={"reason": "other"}), db, asker)
    assert (no.value.status, no.value.code) == (422, "idempotency_key_reused")
    with pytest.raises(Refused) as no:
        await answers.answer_approve(query.model_copy(update={"request_id": None}), db, asker)
    assert no.value.status == 409


async def test_a_rejection_asked_again_under_its_id_takes_effect_once(db: Database) -> None:
    one = await measured(db)
    query = RejectProposal(proposal_id=one.proposal_id, by="ann", reason="no", request_id=uuid4())
    first, again = [await answers.answer_reject(query, db) for _ in range(2)]
    assert first == again
    assert len(await outbox_events(db, ProposalRejectedV1)) == 1
