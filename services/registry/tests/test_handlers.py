"""Approvals, judgements and questions, with both adapters, on real Postgres and real git."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.pattern_detector import ActivationJudgedV1
from libs.contracts.events.proposal import ProposalApprovedV1
from libs.contracts.events.registry import DriftDetectedV1, RollbackProposedV1, VersionActivatedV1, VersionRolledBackV1
from libs.contracts.queries.registry import GetPrompt
from libs.contracts.touchpoints import Touchpoint
from libs.service_kit.consumers import Consumer
from libs.service_kit.errors import Refused
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.testing import MemoryMessage, event_of, outbox_events
from services.registry import answers, handlers
from services.registry.domain import Target
from services.registry.drift import DriftCheck
from services.registry.store import intents
from services.registry.tests.support import FIRST, SECOND, SKILL, THIRD, Parts, Repository, approved, in_table
from services.registry.verification import verify_ledger

Deliver = Callable[[ProposalApprovedV1], Awaitable[MemoryMessage]]
IN_TABLE = Target("summary")
IN_GIT = Target("support.intent")


@pytest.fixture
def deliver(parts: Parts) -> Deliver:
    """Hands an approval to the registry's consumer, as the bus does."""
    consumer: Consumer[ProposalApprovedV1] = Consumer(
        topology.durable("registry", ProposalApprovedV1),
        handlers.on_proposal_approved,
        db=parts.db,
        redelivery=Redelivery((0.05,)),
        dependencies={"db": parts.db, "ledger": parts.ledger, "pending_merges": parts.pending_merges},
    )

    async def deliver(data: ProposalApprovedV1 | Event[Any]) -> MemoryMessage:
        message = MemoryMessage(data if isinstance(data, Event) else event_of(data))
        await consumer.deliver([message])
        return message

    return deliver


async def the_intent(parts: Parts, intent_id: UUID) -> intents.Intent:
    async with parts.db.connection() as conn:
        found = await intents.get(conn, intent_id)
    assert found is not None
    return found


# --- feed_prompts ----------------------------------------------------------------------------------------


async def test_an_approved_text_is_live_at_once_and_only_once(parts: Parts, deliver: Deliver) -> None:
    await parts.register(in_table())
    approval = approved("summary", await parts.live(IN_TABLE), SECOND, path="prompt", waiver="no suite yet")
    for _ in range(2):
        assert (await deliver(approval)).outcome == "ack"
    live = await parts.live(IN_TABLE)
    assert live.parts[0].text == SECOND
    assert live.content_sha256 == approval.content_sha256
    facts = await outbox_events(parts.db, VersionActivatedV1)
    assert [fact.data.proposal_id for fact in facts] == [None, approval.proposal_id]
    assert await parts.kinds() == ["registered", "waiver", "activated"]


async def test_an_approval_for_an_older_version_leaves_a_line_and_no_activation(parts: Parts, deliver: Deliver) -> None:
    await parts.register(in_table())
    approval = approved("summary", await parts.live(IN_TABLE), THIRD, path="prompt")
    second = await parts.record(IN_TABLE, SECOND)
    await parts.ledger.activate(IN_TABLE, second, expected_live=approval.base_version_ref, by="ada", reason="faster")
    assert (await deliver(approval)).outcome == "ack"
    assert (await parts.live(IN_TABLE)).version_ref == second
    (line,) = await parts.rows("SELECT * FROM ledger_entries WHERE kind = 'intent_closed'")
    assert line["proposal_id"] == approval.proposal_id
    assert "stale" in line["reason"]


async def test_an_approval_for_a_workspace_stays_in_it(parts: Parts, deliver: Deliver) -> None:
    await parts.register(in_table(scope="workspace"))
    one, other = Target("summary", uuid4()), Target("summary", uuid4())
    await parts.live(other)
    approval = approved("summary", await parts.live(one), SECOND, path="prompt", workspace_id=one.workspace_id)
    await deliver(approval)
    assert (await parts.live(one)).parts[0].text == SECOND
    assert (await parts.live(other)).parts[0].text == FIRST


@pytest.mark.parametrize(
    "wrong", [{"content_sha256": "0" * 64}, {"touchpoint_id": "nothing"}], ids=["hash", "touchpoint"]
)
async def test_an_approval_that_can_never_hold_is_a_dead_letter(
    parts: Parts, deliver: Deliver, wrong: dict[str, Any]
) -> None:
    await parts.register(in_table())
    approval = approved("summary", await parts.live(IN_TABLE), SECOND, path="prompt")
    assert (await deliver(approval.model_copy(update=wrong))).outcome == "ack"
    (letter,) = await parts.rows("SELECT error_class FROM dead_letters")
    assert letter["error_class"] == "Poison"
    assert await parts.kinds() == ["registered"]


# --- skill_file ------------------------------------------------------------------------------------------


async def test_an_approved_change_waits_on_a_branch_until_it_is_merged(
    parts: Parts, deliver: Deliver, in_git: Touchpoint, repository: Repository
) -> None:
    await parts.register(in_git)
    first = await parts.live(IN_GIT)
    approval = approved("support.intent", first, SECOND)
    for _ in range(2):
        assert (await deliver(approval)).outcome == "ack"
    intent = await the_intent(parts, approval.proposal_id)
    assert intent.state == "open"
    assert intent.branch == f"burnish/{approval.proposal_id.hex[:12]}"
    assert repository.branches() == [intent.branch, "main"]
    assert f"Burnish-Proposal: {approval.proposal_id}" in repository.git("log", "-1", "--format=%B", intent.branch)
    await parts.pending_merges.check()
    assert (await parts.live(IN_GIT)).version_ref == first.version_ref

    repository.git("merge", "-q", "--no-ff", "-m", "Merge it", intent.branch)
    await parts.pending_merges.check()
    await parts.pending_merges.check()
    live = await parts.live(IN_GIT)
    assert (live.parts[0].text, live.content_sha256) == (SECOND, approval.content_sha256)
    assert (await the_intent(parts, approval.proposal_id)).state == "confirmed"
    assert await parts.kinds() == ["registered", "intent", "confirmed", "activated"]
    (line,) = await parts.rows("SELECT detail FROM ledger_entries WHERE kind = 'activated'")
    assert line["detail"]["confirmed_by"] == f"hash {live.content_sha256} at commit {live.version_ref[4:]}"


async def test_uncommitted_edits_fail_the_intent_until_they_are_gone(
    parts: Parts, deliver: Deliver, in_git: Touchpoint, repository: Repository
) -> None:
    await parts.register(in_git)
    approval = approved("support.intent", await parts.live(IN_GIT), SECOND)
    repository.write(SKILL, THIRD)
    assert (await deliver(approval)).outcome == "ack"
    intent = await the_intent(parts, approval.proposal_id)
    assert (intent.state, intent.error_code) == ("failed", "uncommitted_edits")
    assert SKILL in (intent.error or "")
    assert repository.branches() == ["main"]
    await parts.pending_merges.check()
    assert (await the_intent(parts, approval.proposal_id)).state == "failed"
    repository.write(SKILL, FIRST)
    await parts.pending_merges.check("support.intent", again=True)
    intent = await the_intent(parts, approval.proposal_id)
    assert (intent.state, intent.error) == ("open", None)


async def test_an_intent_left_behind_by_a_crash_is_made_ready_by_the_next_turn(
    parts: Parts, deliver: Deliver, in_git: Touchpoint, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    await parts.register(in_git)
    approval = approved("support.intent", await parts.live(IN_GIT), SECOND)

    async def killed(_: intents.Intent) -> None:
        raise ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(parts.pending_merges, "make_ready", killed)
        assert (await deliver(approval)).outcome != "ack"
    assert (await the_intent(parts, approval.proposal_id)).state == "recorded"
    assert (await deliver(approval)).outcome == "ack"
    assert (await the_intent(parts, approval.proposal_id)).state == "open"
    assert await parts.kinds() == ["registered", "intent"]


async def test_a_change_merged_by_other_means_counts_by_its_hash_and_closes_its_rivals(
    parts: Parts, deliver: Deliver, in_git: Touchpoint, repository: Repository
) -> None:
    await parts.register(in_git)
    first = await parts.live(IN_GIT)
    winner, rival = approved("support.intent", first, SECOND), approved("support.intent", first, THIRD)
    await deliver(winner)
    await deliver(rival)
    commit = repository.commit(SKILL, SECOND, "By hand")
    await parts.pending_merges.check()
    assert (await parts.live(IN_GIT)).version_ref == f"git:{commit}"
    closed = await the_intent(parts, rival.proposal_id)
    assert (closed.state, closed.error_code) == ("closed", "superseded")
    assert (await parts.kinds())[-1] == "intent_closed"


async def test_a_rollback_changes_nothing_until_a_person_has_applied_it(
    parts: Parts, deliver: Deliver, in_git: Touchpoint, repository: Repository
) -> None:
    await parts.register(in_git)
    first = await parts.live(IN_GIT)
    approval = approved("support.intent", first, SECOND)
    await deliver(approval)
    repository.git("merge", "-q", f"burnish/{approval.proposal_id.hex[:12]}")
    await parts.pending_merges.check()
    second = await parts.live(IN_GIT)
    head = repository.git("rev-parse", "HEAD")

    asked = await parts.pending_merges.propose_rollback(IN_GIT, None, by="bob", reason="worse")
    again = await parts.pending_merges.propose_rollback(IN_GIT, None, by="bob", reason="worse")
    assert again.intent_id == asked.intent_id
    assert (asked.from_version, asked.proposal.target_version_ref) == (second.version_ref, first.version_ref)
    assert (asked.proposal.revert_commit, asked.proposal.files) == (head, (SKILL,))
    assert not asked.proposal.drift.drifted
    assert repository.git("rev-parse", "HEAD") == head
    assert (await parts.live(IN_GIT)).version_ref == second.version_ref
    (proposed,) = await outbox_events(parts.db, RollbackProposedV1)
    assert proposed.data.rollback_id == asked.intent_id

    repository.apply(asked.proposal.diff)
    await parts.pending_merges.check()
    assert (await parts.live(IN_GIT)).version_ref == first.version_ref
    (fact,) = await outbox_events(parts.db, VersionRolledBackV1)
    assert (fact.data.from_version, fact.data.to_version) == (second.version_ref, first.version_ref)
    assert fact.data.proposal_id == approval.proposal_id
    assert (await parts.kinds())[-3:] == ["intent", "confirmed", "rolled_back"]
    assert (await verify_ledger(parts.db)).intact


async def test_an_edit_is_undone_by_a_rollback_to_what_is_live_and_warns_of_it(
    parts: Parts, in_git: Touchpoint, repository: Repository
) -> None:
    await parts.register(in_git)
    repository.commit(SKILL, SECOND, "Behind the ledger's back")
    with pytest.raises(Refused, match="first version"):
        await parts.pending_merges.propose_rollback(IN_GIT, None, by="bob", reason="x")
    first = await parts.live(IN_GIT)
    asked = await parts.pending_merges.propose_rollback(IN_GIT, first.version_ref, by="bob", reason="restore")
    assert asked.proposal.drift.drifted
    assert "drifted since activation" in asked.proposal.warnings[0]
    repository.apply(asked.proposal.diff)
    assert await parts.pending_merges.check() == []
    assert (await parts.live(IN_GIT)).activation_id == first.activation_id
    assert (await parts.kinds())[-2:] == ["intent", "confirmed"]


# --- drift, judgements, questions ------------------------------------------------------------------------


async def test_an_edit_behind_the_ledgers_back_is_told_once(
    parts: Parts, in_git: Touchpoint, repository: Repository
) -> None:
    await parts.register(in_git, in_table(), in_table("asleep"))

    async def check() -> int:
        return await DriftCheck(parts.db, parts.ledger, parts.pending_merges, parts.stores).check()

    assert await check() == 0
    repository.commit(SKILL, THIRD)
    assert [await check(), await check()] == [1, 1]
    (fact,) = await outbox_events(parts.db, DriftDetectedV1)
    live = await parts.live(IN_GIT)
    assert (fact.data.activation_id, fact.data.expected_sha256) == (live.activation_id, live.content_sha256)
    repository.git("rm", "-q", SKILL)
    repository.git("commit", "-q", "-m", "Gone")
    assert [await check(), await check()] == [1, 1]
    assert [event.data.found_sha256 is None for event in await outbox_events(parts.db, DriftDetectedV1)] == [
        False,
        True,
    ]
    assert (await parts.kinds()).count("drift") == 2
    assert live.version_ref == (await parts.live(IN_GIT)).version_ref


async def test_a_merge_that_was_not_noticed_yet_is_no_drift(
    parts: Parts, deliver: Deliver, in_git: Touchpoint, repository: Repository
) -> None:
    await parts.register(in_git)
    approval = approved("support.intent", await parts.live(IN_GIT), SECOND)
    await deliver(approval)
    repository.git("merge", "-q", f"burnish/{approval.proposal_id.hex[:12]}")
    assert await DriftCheck(parts.db, parts.ledger, parts.pending_merges, parts.stores).check() == 0
    assert (await parts.live(IN_GIT)).parts[0].text == SECOND


@pytest.mark.parametrize(("verdict", "asked"), [("worse", 1), ("receded", 0)])
async def test_a_worse_verdict_asks_for_a_rollback(parts: Parts, verdict: str, asked: int) -> None:
    await parts.register(in_table())
    first = await parts.live(IN_TABLE)
    second = await parts.record(IN_TABLE, SECOND)
    switched = await parts.ledger.activate(IN_TABLE, second, expected_live=first.version_ref, by="ada", reason="better")
    event = event_of(
        ActivationJudgedV1.model_validate(
            {
                "touchpoint_id": "summary",
                "activation_id": switched.live.id,
                "verdict": verdict,
                "rate_ratio": 1.7,
                "interval": (1.2, 2.4),
            }
        )
    )
    for _ in range(2):
        await handlers.on_activation_judged(event, parts.db)
    proposed = await outbox_events(parts.db, RollbackProposedV1)
    assert [event.data.to_version for event in proposed] == [first.version_ref] * asked
    assert len(await parts.rows("SELECT * FROM judgements")) == 1
    assert (await parts.live(IN_TABLE)).version_ref == second


async def test_the_prompt_asked_for_is_the_live_one_or_the_version_named(parts: Parts) -> None:
    await parts.register(in_table())
    second = await parts.record(IN_TABLE, SECOND)
    live = await answers.answer_prompt(GetPrompt(touchpoint_id="summary"), parts.db, parts.ledger)
    named = await answers.answer_prompt(GetPrompt(touchpoint_id="summary", version_ref=second), parts.db, parts.ledger)
    assert (live.prompt.parts[0].text, named.prompt.parts[0].text) == (FIRST, SECOND)
    for query in (GetPrompt(touchpoint_id="other"), GetPrompt(touchpoint_id="summary", version_ref="git:0")):
        with pytest.raises(Refused) as no:
            await answers.answer_prompt(query, parts.db, parts.ledger)
        assert no.value.status == 404
