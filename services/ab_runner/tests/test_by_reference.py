"""Runs asked for by reference and hash: the texts come from their owners, over the real bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import nats
import pytest
from nats.aio.client import Client

from libs.contracts.envelope import Event
from libs.contracts.evaluations import VariantRef
from libs.contracts.events.ab_runner import AbExecutedV1, AbRequestedV2
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.proposals import Hunk, ProposalDetail
from libs.contracts.queries.proposal import GetProposal, ProposalReply
from libs.contracts.queries.registry import GetPrompt, PromptReply
from libs.contracts.versions import LivePrompt
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused, Unavailable
from libs.service_kit.queries import Asker, Responder
from libs.service_kit.testing import Installation, event_of, outbox_events
from libs.service_kit.testing.plugin import OpenDatabase
from services.ab_runner import handlers
from services.ab_runner.tests.support import (
    GOOD,
    POOR,
    TOUCHPOINT,
    RuleModel,
    models,
    prepare,
    report,
    variant,
    work_through,
)

VERSION, PROPOSAL = "feed_prompts:1", uuid4()


class Owners:
    """The registry's and the proposal service's answers, in their own accounts."""

    def __init__(self) -> None:
        self.version, self.proposal = POOR, GOOD
        self.touchpoint_id = TOUCHPOINT
        self.workspace_id: UUID | None = None
        self._clients: list[Client] = []

    async def start(self, installation: Installation) -> None:
        """Answer from now on."""
        for service, query, answer in (("registry", GetPrompt, self._prompt), ("proposal", GetProposal, self._found)):
            password = installation.servers.nats_password(service)
            client = await nats.connect(installation.servers.nats_url, user=service, password=password)
            self._clients.append(client)
            await Responder(query.subject, query, answer, {}).start(client)
            await client.flush()

    async def stop(self) -> None:
        """Answer no more."""
        for client in self._clients:
            await client.close()
        self._clients.clear()

    async def _prompt(self, query: GetPrompt) -> PromptReply:
        if query.version_ref != VERSION:
            raise Refused("unknown_version", f"there is no version {query.version_ref}", status=404)
        parts = (PromptPart(path="prompt.md", text=self.version),)
        return PromptReply(
            prompt=LivePrompt(
                touchpoint_id=query.touchpoint_id,
                activation_id=uuid4(),
                version_ref=VERSION,
                adapter="feed_prompts",
                content_sha256=content_sha256(parts),
                parts=parts,
                activated_at=datetime.now(UTC),
            )
        )

    async def _found(self, query: GetProposal) -> ProposalReply:
        parts = (PromptPart(path="prompt.md", text=self.proposal),)
        sha256 = content_sha256(parts)
        detail = ProposalDetail(
            proposal_id=query.proposal_id,
            touchpoint_id=self.touchpoint_id,
            workspace_id=self.workspace_id,
            state="generated",
            author="offline",
            hunk_count=1,
            base_sha256=sha256,
            content_sha256=sha256,
            created_at=datetime.now(UTC),
            hunks=(Hunk(path="prompt.md", before="a", after="b"),),
            parts=parts,
            diff="",
            rationale="",
            model="offline",
        )
        return ProposalReply(proposal=detail)


@pytest.fixture
async def owners(installation: Installation) -> AsyncIterator[Owners]:
    made = Owners()
    await made.start(installation)
    yield made
    await made.stop()


@pytest.fixture
async def asker(installation: Installation) -> AsyncIterator[Asker]:
    password = installation.servers.nats_password("ab_runner")
    client = await nats.connect(installation.servers.nats_url, user="ab_runner", password=password)
    yield Asker(lambda: client)
    await client.close()


@pytest.fixture
async def db(database: OpenDatabase) -> Database:
    opened = await database("ab_runner")
    await prepare(opened)
    return opened


def asked(**fields: Any) -> Event[AbRequestedV2]:
    """The live version against the proposal."""
    references = {
        "variant_a": VariantRef(label="current", content_sha256=variant(POOR).content_sha256, version_ref=VERSION),
        "variant_b": VariantRef(
            label=f"proposal:{PROPOSAL}", content_sha256=variant(GOOD).content_sha256, proposal_id=PROPOSAL
        ),
    }
    return event_of(
        AbRequestedV2(run_id=uuid4(), touchpoint_id=TOUCHPOINT, requested_by="ada", **{**references, **fields})
    )


async def handled(db: Database, asker: Asker, event: Event[AbRequestedV2]) -> Any:
    pool = models(RuleModel())
    await handlers.on_ab_requested_by_reference(event, db, pool, 10, asker)
    await work_through(db, event.data.run_id, pool)
    return await report(db, event.data.run_id)


async def test_a_run_by_reference_is_the_run_of_the_texts(db: Database, asker: Asker, owners: Owners) -> None:
    found = await handled(db, asker, asked())
    assert (found.status, found.verdict, found.proposal_id) == ("completed", "better", PROPOSAL)
    assert (found.a_sha256, found.b_sha256) == (variant(POOR).content_sha256, variant(GOOD).content_sha256)


async def test_a_text_with_another_hash_is_refused(db: Database, asker: Asker, owners: Owners) -> None:
    for side in ("version", "proposal"):
        before = getattr(owners, side)
        setattr(owners, side, "something else\n")
        found = await handled(db, asker, asked())
        setattr(owners, side, before)
        assert found.status == "failed"
        assert "has the hash" in found.error
        assert found.model_calls == 0
    assert len(await outbox_events(db, AbExecutedV1)) == 2


async def test_a_text_that_is_not_there_ends_the_run_with_its_reason(
    db: Database, asker: Asker, owners: Owners
) -> None:
    missing = VariantRef(label="current", content_sha256="0" * 64, version_ref="gone")
    found = await handled(db, asker, asked(variant_a=missing))
    assert (found.status, found.error) == ("failed", "current: there is no version gone")


async def test_another_touchpoints_or_workspaces_proposal_is_refused(
    db: Database, asker: Asker, owners: Owners
) -> None:
    owners.workspace_id = uuid4()
    assert "another touchpoint's or workspace's" in (await handled(db, asker, asked())).error
    owners.workspace_id, owners.touchpoint_id = None, "other"
    assert "another touchpoint's or workspace's" in (await handled(db, asker, asked())).error


async def test_an_owner_that_is_away_is_waited_for(
    db: Database, asker: Asker, owners: Owners, installation: Installation
) -> None:
    event = asked()
    await owners.stop()
    with pytest.raises(Unavailable):
        await handled(db, asker, event)
    await owners.start(installation)
    assert (await handled(db, asker, event)).status == "completed"


def test_a_reference_names_one_place() -> None:
    for places in ({}, {"version_ref": "v", "proposal_id": uuid4()}):
        with pytest.raises(ValueError, match="one of"):
            VariantRef(label="x", content_sha256="0" * 64, **places)
