from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from libs.contracts import topology
from libs.contracts.events.ab_runner import EvalRegressedV1
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.scanner import ScannerRunV1, ScanRequestedV1
from libs.contracts.queries.scanner import ListScanRuns, ResolveEvidence
from libs.contracts.signals import EvidenceRef
from libs.service_kit.consumers import Consumer
from libs.service_kit.db import Database
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.testing import MemoryMessage, event_of, outbox_events
from services.scanner import answers, handlers
from services.scanner.platform import Platform
from services.scanner.tests.support import PlatformTables, Scanning, registered, source


def asked(**changes: object) -> ScanRequestedV1:
    fields = {"request_id": uuid4(), "touchpoint_id": "support.intent", "requested_by": "admin"}
    return ScanRequestedV1.model_validate({**fields, **changes})


def regressed() -> EvalRegressedV1:
    return EvalRegressedV1(
        run_id=uuid4(),
        touchpoint_id="support.intent",
        metric="accuracy",
        baseline=0.9,
        value=0.8,
        delta=-0.1,
        severity="critical",
    )


async def due(db: Database) -> set[str]:
    async with db.connection() as conn:
        rows = await conn.fetch("SELECT name FROM sources WHERE next_run_at <= now() AND enabled")
    return {row["name"] for row in rows}


async def rested(scanning: Scanning) -> None:
    await scanning.register(registered(source("si_flag"), source("low_confidence")))
    async with scanning.db.connection() as conn:
        await conn.execute("UPDATE sources SET next_run_at = now() + interval '1 h', failures = 7")


async def test_a_request_makes_the_sources_asked_for_due(scanning: Scanning) -> None:
    await rested(scanning)
    await handlers.on_scan_requested(event_of(asked(scanner="si_flag")), scanning.db)
    assert await due(scanning.db) == {"si_flag"}
    await handlers.on_scan_requested(event_of(asked(touchpoint_id=None)), scanning.db)
    assert await due(scanning.db) == {"si_flag", "low_confidence"}


async def test_a_request_for_a_touchpoint_without_that_source_does_nothing(scanning: Scanning) -> None:
    await rested(scanning)
    await handlers.on_scan_requested(event_of(asked(scanner="nonesuch")), scanning.db)
    assert await due(scanning.db) == set()


async def test_a_request_that_overtakes_its_registration_is_tried_again(scanning: Scanning) -> None:
    durable = topology.durable("scanner", ScanRequestedV1)
    consumer = Consumer[ScanRequestedV1](
        durable,
        handlers.on_scan_requested,
        db=scanning.db,
        redelivery=Redelivery((0.1,)),
        dependencies={"db": scanning.db},
    )
    event = event_of(asked())
    early, later = MemoryMessage(event), MemoryMessage(event, deliveries=2)
    await consumer.deliver([early])
    await rested(scanning)
    await consumer.deliver([later])
    assert (early.outcome, later.outcome) == (("nak", 0.1), "ack")
    assert await due(scanning.db) == {"si_flag", "low_confidence"}


async def test_a_regression_is_one_signal_and_one_run_however_often_it_is_delivered(db: Database) -> None:
    event = event_of(regressed())
    await handlers.on_evals_regressed([event], db)
    await handlers.on_evals_regressed([event, event_of(regressed())], db)
    signals, runs = await outbox_events(db, SignalObservedV1), await outbox_events(db, ScannerRunV1)
    assert len({one.data.signal_id for one in signals}) == len(signals) == len(runs) == 2
    assert signals[0].causationid == event.id
    assert {run.data.scanner for run in runs} == {"eval_regression"}
    assert len((await answers.answer_runs(ListScanRuns(touchpoint_id="support.intent"), db)).runs) == 2
    assert (await answers.answer_runs(ListScanRuns(touchpoint_id="no.such"), db)).runs == ()


def ref(source: str, identity: object) -> EvidenceRef:
    return EvidenceRef(source=source, id=str(identity))


async def states(scanning: Scanning, *refs: EvidenceRef) -> list[str]:
    query = ResolveEvidence(touchpoint_id="support.intent", refs=refs)
    return list((await answers.answer_resolve(query, scanning.db, scanning.platform, 2.0)).states)


async def test_evidence_resolves_where_it_was_found(scanning: Scanning, tables: PlatformTables) -> None:
    await scanning.register(registered(source("si_flag"), source("low_confidence")))
    flag, [item] = await tables.flag(), await tables.items(0.9)
    assert await states(
        scanning,
        ref("feed_flags", flag),
        ref("feed_flags", uuid4()),
        ref("content_items", item),
        ref("feed_flags", "no uuid"),
        ref("push:helpdesk", 17),
        EvidenceRef(source="eval", metric="accuracy"),
    ) == ["resolved", "unresolvable", "resolved", "unresolvable", "resolved", "resolved"]


async def test_a_source_that_does_not_answer_makes_nothing_unresolvable(
    scanning: Scanning, tables: PlatformTables
) -> None:
    flag = await tables.flag()
    await scanning.register(registered(source("si_flag", dsn_env="BURNISH_PLATFORM_DOWN"), source("si_flag")))
    assert await states(scanning, ref("feed_flags", flag), ref("feed_flags", uuid4())) == ["resolved", "unknown"]
    await scanning.register(registered(source("si_flag", dsn_env="BURNISH_PLATFORM_DOWN"), revision=2))
    assert await states(scanning, ref("feed_flags", flag)) == ["unknown"]


async def test_a_scanner_that_the_touchpoint_no_longer_has_makes_nothing_unresolvable(
    scanning: Scanning, platform: Platform
) -> None:
    await scanning.register(registered(source("low_confidence")))
    assert await states(scanning, ref("feed_flags", uuid4())) == ["unknown"]


@pytest.mark.parametrize("options", [{"treshold": 1}, {"schema": "elsewhere"}])
async def test_a_source_that_is_set_up_wrongly_makes_nothing_unresolvable(
    scanning: Scanning, tables: PlatformTables, options: dict[str, Any]
) -> None:
    await scanning.register(registered(source("si_flag", **options)))
    assert await states(scanning, ref("feed_flags", uuid4())) == ["unknown"]
