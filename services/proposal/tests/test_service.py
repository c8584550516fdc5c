"""The real service on real servers: from a pattern on the bus to an approval on the bus, by the offline model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from libs.contracts.envelope import EventData
from libs.contracts.events.proposal import ProposalApprovedV1
from libs.contracts.proposals import ProposalSummary
from libs.contracts.queries.proposal import ApproveProposal, GetProposal, ListProposals
from libs.service_kit.errors import Refused
from libs.service_kit.queries import Asker
from libs.service_kit.service import Service
from libs.service_kit.testing import Installation, event_of
from services.proposal.app import build
from services.proposal.settings import Settings
from services.proposal.tests.factories import (
    FEES,
    TOUCHPOINT,
    Neighbours,
    connect,
    detected,
    executed,
    now,
    registered,
)


@pytest.fixture
async def service(installation: Installation, neighbours: Neighbours) -> AsyncIterator[Service]:
    running = build(Settings(**installation.settings("proposal")))
    await running.start()
    yield running
    await running.close()


async def say(installation: Installation, service: str, fact: EventData) -> None:
    client = await connect(installation.servers, service)
    try:
        js = client.jetstream(prefix="bus")
        await js.publish(fact.type, event_of(fact).encode(), stream="REFINEMENT", timeout=5)
    finally:
        await client.close()


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.02)


async def published(installation: Installation, kind: type[EventData]) -> int:
    admin = await installation.bus_admin()
    try:
        info = await admin.jetstream().stream_info("REFINEMENT", subjects_filter=kind.type)
        return (info.state.subjects or {}).get(kind.type, 0)
    finally:
        await admin.close()


async def test_from_a_pattern_to_an_approval(installation: Installation, service: Service) -> None:
    await say(installation, "registry", registered())
    await say(installation, "pattern_detector", detected())
    client = await connect(installation.servers, "gateway")
    asker = Asker(lambda: client)
    listed: tuple[ProposalSummary, ...] = ()

    async def generated() -> bool:
        nonlocal listed
        listed = (await asker.ask(ListProposals(touchpoint_id=TOUCHPOINT))).proposals
        return bool(listed)

    await until(generated)
    proposal_id = listed[0].proposal_id
    detail = (await asker.ask(GetProposal(proposal_id=proposal_id))).proposal
    assert (detail.state, detail.model) == ("generated", "offline/offline-1")
    assert any(f"+- {text}" in detail.diff for text in FEES)
    approve = ApproveProposal(proposal_id=proposal_id, content_sha256=detail.content_sha256, by="ann", reason="good")
    with pytest.raises(Refused) as no:
        await asker.ask(approve)
    assert (no.value.code, no.value.status) == ("needs_waiver", 409)
    await say(installation, "ab_runner", executed(await now(service.db, proposal_id)))

    async def in_review() -> bool:
        return (await asker.ask(GetProposal(proposal_id=proposal_id))).proposal.state == "in_review"

    await until(in_review)
    assert (await asker.ask(approve)).proposal.state == "approved"

    async def said_so() -> bool:
        return await published(installation, ProposalApprovedV1) == 1

    await until(said_so)
    await client.close()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{service.http_port}") as http:
        ready = await http.get("/health/ready")
        assert ready.status_code == 200, ready.text
        assert "burnish_model_calls_total" in (await http.get("/metrics")).text
