"""What a handler must look like, and what FastStream is and is not asked to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import httpx
import pytest
from faststream import Context, Depends
from faststream.nats import NatsBroker
from pydantic import SecretStr

from libs.contracts import topology
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.pattern_detector import SignalProcessedV1
from libs.contracts.events.proposal import ProposalApprovedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.queries.normaliser import CountSignals, SignalCounts
from libs.service_kit import asyncapi
from libs.service_kit.consumers import Consumer
from libs.service_kit.db import Database
from libs.service_kit.redelivery import Redelivery
from libs.service_kit.service import Service
from libs.service_kit.settings import KitSettings
from libs.service_kit.testing import Installation, MemoryMessage
from libs.service_kit.testing.plugin import OpenDatabase
from libs.service_kit.tests.support import observed
from libs.service_kit.wiring import WiringError

DURABLE = topology.durable("normaliser", SignalObservedV1)
ONE_BY_ONE = replace(DURABLE, batch=1)
ROOT = Path(__file__).resolve().parents[3]


def wire(handler: Any, *, durable: Any = DURABLE, **dependencies: Any) -> Consumer[SignalObservedV1]:
    db = Database("normaliser", "")
    return Consumer(durable, handler, db=db, redelivery=Redelivery(), dependencies=dependencies)


def unstarted() -> Service:
    return Service("normaliser", KitSettings(database_url=SecretStr("")))


async def processed(events: list[Event[SignalProcessedV1]]) -> None: ...
async def registered(events: list[Event[TouchpointRegisteredV1]]) -> None: ...
async def count(query: CountSignals) -> SignalCounts:
    return SignalCounts(counts=())


def whole(installation: Installation) -> Service:
    service = Service("normaliser", KitSettings(**installation.settings("normaliser")))
    service.consume_batch(SignalObservedV1, batch, db=service.db)
    service.consume_batch(SignalProcessedV1, processed)
    service.consume_batch(TouchpointRegisteredV1, registered)
    service.answer(CountSignals, count)
    return service


async def batch(events: list[Event[SignalObservedV1]], db: Database) -> None: ...


async def sequence(events: Sequence[Event[SignalObservedV1]], *, db: Database) -> None: ...


async def single(event: Event[SignalObservedV1], db: Database) -> None: ...


async def anything(event: Event[Any], **rest: Any) -> None: ...


class Detector:
    async def on_event(self, event: Event[SignalObservedV1], db: Database) -> None: ...


@pytest.mark.parametrize("handler", [batch, sequence])
def test_a_handler_of_a_batch_takes_a_list(handler: Any) -> None:
    wire(handler, db=object())


@pytest.mark.parametrize("handler", [single, anything, Detector().on_event])
def test_a_handler_of_each_takes_an_event(handler: Any) -> None:
    wire(handler, durable=ONE_BY_ONE, db=object())


async def bare(events, db: Database) -> None: ...  # type: ignore[no-untyped-def]
async def other(events: list[Event[SignalProcessedV1]], db: Database) -> None: ...
async def payload(event: SignalObservedV1, db: Database) -> None: ...
async def nothing() -> None: ...
def blocking(events: list[Event[SignalObservedV1]], db: Database) -> None: ...
async def spread(*events: Event[SignalObservedV1]) -> None: ...
async def two(events: list[Event[SignalObservedV1]], db: Database, rest) -> None: ...  # type: ignore[no-untyped-def]
async def loose(events: list[Event[SignalObservedV1]], db) -> None: ...  # type: ignore[no-untyped-def]
async def more(events: list[Event[SignalObservedV1]], *others: Any) -> None: ...


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (bare, "'events' is not annotated"),
        (other, "SignalProcessedV1.*gives it list.*SignalObservedV1"),
        (payload, "SignalObservedV1; consume_batch"),
        (single, "gives it list"),
        (nothing, "takes no message"),
        (blocking, "needs an async function"),
        (spread, "'events'"),
        (two, "needs 'rest'"),
        (more, r"\*others.*given by name"),
    ],
)
def test_a_handler_of_another_shape_is_refused_when_it_is_wired(handler: Any, says: str) -> None:
    with pytest.raises(WiringError, match=says):
        wire(handler, db=object())


@pytest.mark.parametrize("handler", [batch, loose])
def test_a_forgotten_dependency_is_refused_when_it_is_wired(handler: Any) -> None:
    """FastStream would look for it in the message, find every message bad, and unpack the batch into it."""
    with pytest.raises(WiringError, match="needs 'db'"):
        wire(handler)


def test_a_dependency_nobody_takes_is_refused() -> None:
    with pytest.raises(WiringError, match="takes no 'clock'"):
        wire(batch, db=object(), clock=object())


def test_each_on_a_durable_of_batches_is_refused_and_the_other_way_round() -> None:
    service = unstarted()
    with pytest.raises(WiringError, match=rf"SignalObservedV1 with consume_each.*{DURABLE.name}.*batch=50"):
        service.consume_each(SignalObservedV1, single, db=service.db)

    async def approved(events: list[Event[ProposalApprovedV1]]) -> None: ...

    registry = Service("registry", KitSettings(database_url=SecretStr("")))
    with pytest.raises(WiringError, match=r"ProposalApprovedV1 with consume_batch.*batch=1 "):
        registry.consume_batch(ProposalApprovedV1, approved)


def test_a_dependency_without_a_name_is_refused() -> None:
    service = unstarted()
    with pytest.raises(WiringError, match="by name"):
        service.consume_batch(SignalObservedV1, batch, service.db)


async def injected(events: list[Event[SignalObservedV1]], db: Annotated[Database, Context()]) -> None:
    assert db is not None


def from_context(db: Database = cast(Database, Context())) -> Database:
    return db


def from_message(field: str) -> str:
    return field


async def through(events: list[Event[SignalObservedV1]], got: Any = Depends(from_context)) -> None: ...
async def astray(events: list[Event[SignalObservedV1]], got: Any = Depends(from_message)) -> None: ...


@pytest.mark.parametrize(("handler", "says"), [(injected, "'db'"), (through, "'db'"), (astray, "'field'")])
async def test_what_faststream_cannot_inject_is_a_failure_at_start(handler: Any, says: str) -> None:
    service = unstarted()
    service.consume_batch(SignalObservedV1, handler)
    service.consume_batch(SignalProcessedV1, processed)
    service.consume_batch(TouchpointRegisteredV1, registered)
    with pytest.raises(WiringError, match=rf"{handler.__name__} needs.*{says}"):
        await service.start()
    service.provide(db=service.db)
    if handler is not astray:
        service._check_wiring()


@pytest.mark.parametrize("handler", [injected, through])
async def test_faststream_injects_what_a_service_provides(database: OpenDatabase, handler: Any) -> None:
    consumer = wire(handler)
    consumer._broker.context.set_global("db", await database("normaliser"))
    message = MemoryMessage(observed())
    await consumer.deliver([message])
    assert message.outcome == "ack"


async def test_a_value_that_is_gone_is_no_fault_of_the_message(database: OpenDatabase) -> None:
    """The control of the two above: past the check at the start it is tried again, not buried."""
    db = await database("normaliser")
    consumer = Consumer[SignalObservedV1](DURABLE, injected, db=db, redelivery=Redelivery(), dependencies={})
    message = MemoryMessage(observed())
    await consumer.deliver([message])
    assert isinstance(message.outcome, tuple)


# --- what FastStream is not asked to do -------------------------------------------------------------------


async def test_the_broker_is_connected_and_never_started(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any, **__: Any) -> None:
        raise AssertionError("broker.start() would pull, subscribe and declare by itself")

    monkeypatch.setattr(NatsBroker, "start", never)
    service = whole(installation)
    await service.start()
    try:
        assert not any(subscriber.running for subscriber in service.broker.subscribers)
    finally:
        await service.close()


def test_nobody_starts_a_broker() -> None:
    sources = [path for part in ("libs", "services", "burnish") for path in (ROOT / part).rglob("*.py")]
    starts = re.compile(r"await \S*broker\.start\(")
    found = [path.name for path in sources if "tests" not in path.parts and starts.search(path.read_text("utf-8"))]
    assert found == [], "connect() only: see docs/adr"


def test_streams_and_durables_are_declared_by_the_topology_alone() -> None:
    service = unstarted()
    service.consume_batch(SignalObservedV1, batch, db=service.db)
    for subscriber in service.broker.subscribers:
        stream = getattr(subscriber, "stream", None)
        assert stream is None or not stream.declare


# --- the document -----------------------------------------------------------------------------------------


async def test_the_page_asks_nobody_else(installation: Installation) -> None:
    service = whole(installation)
    await service.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{service.http_port}") as http:
            page = await http.get("/asyncapi")
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "http" not in policy
            texts = [page.text]
            for name in re.findall(r'(?:src|href)="([^"]+)"', page.text):
                if not name.startswith("data:"):
                    found = await http.get(f"/{name}")
                    assert found.status_code == 200, name
                    texts.append(found.text if not name.endswith(".json") else "")
            assert not any(re.search(r"https?:|//[a-z]|innerHTML|@import", text) for text in map(_code, texts))
            told = (await http.get("/asyncapi.json")).json()
    finally:
        await service.close()
    assert installation.servers.nats_url not in str(told)
    addresses = {channel["address"] for channel in told["channels"].values()}
    entry = topology.service("normaliser")
    assert addresses >= {each.event.type for each in entry.hears} | {each.type for each in entry.says}
    assert CountSignals.subject in addresses


def _code(text: str) -> str:
    return re.sub(r"^\s*//.*$", "", text, flags=re.M)


def test_a_message_in_the_document_is_one_event_even_where_a_handler_takes_a_list() -> None:
    service = unstarted()
    service.consume_batch(SignalObservedV1, batch, db=service.db)
    service.answer(CountSignals, count)
    schemas = asyncapi.document("normaliser", service.broker)["components"]["schemas"]
    assert not [name for name, schema in schemas.items() if schema.get("type") == "array"]
    assert any("SignalObservedV1" in str(schema.get("$ref")) for schema in schemas.values())
