"""Keeps the bus while it runs: makes room in full streams, and sees that no message is given up in silence.

It is the one part that works as `bus_admin` for longer than a moment. `burnish up` runs it beside the services;
elsewhere `burnish topology --keep` does. Several may run: they share one durable, and the rest is harmless twice.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from nats.js.errors import APIError, NotFoundError
from pydantic import ValidationError

from libs.contracts.queries.dead_letters import Buried, BuryStranded
from libs.contracts.topology import ADVISORIES, SERVICES, STREAMS, Durable, ServiceEntry, dead_letter_bury_subject
from libs.provisioning.bus_admin import BusAdmin, connect
from libs.provisioning.errors import NoJetStream
from libs.provisioning.topology import KEEPER
from libs.provisioning.trimming import purge_up_to

EVERY_S = 2.0
FETCHED = 20
FETCH_S = 0.5
ASK_S = 10.0
AGAIN_S = 15.0
AWAY = "the bus cannot be looked after now"
MOST_TOLD = 1_000
NO_MESSAGE = 10037
NO_SUCH_SEQUENCE = (1 << 63) - 1


@dataclass(frozen=True)
class Advisory:
    """The server's word that it will not deliver a message to a durable again."""

    stream: str
    consumer: str
    stream_seq: int
    deliveries: int
    reason: str

    @classmethod
    def of(cls, body: bytes) -> Advisory:
        """Read one. Raises ValueError, KeyError, TypeError or RecursionError for what is none."""
        told: Any = json.loads(body)
        if not isinstance(told, dict):
            raise ValueError("an advisory is a JSON object")
        deliveries = int(told.get("deliveries", 0))
        if str(told["type"]).endswith("terminated"):
            said = f": {told['reason']}" if told.get("reason") else ""
            reason = f"its consumer ended it after {deliveries} deliveries{said}"
        else:
            reason = f"the server gave it up after {deliveries} deliveries without an answer"
        return cls(str(told["stream"]), str(told["consumer"]), int(told["stream_seq"]), deliveries, reason[:1_000])


@dataclass
class Kept:
    """What a keeper has done and found since it started."""

    copied: int = 0
    trimmed: int = 0
    trouble: dict[str, str] = field(default_factory=dict)  # stream -> why it takes nothing


class Keeper:
    """Looks at the bus every few seconds until it is cancelled. An outage of the bus is waited out."""

    def __init__(
        self,
        url: str,
        password: str,
        *,
        on_progress: Callable[[str], None] = lambda _: None,
        services: Sequence[ServiceEntry] = SERVICES,
        every_s: float = EVERY_S,
        again_s: float = AGAIN_S,
    ) -> None:
        self._url, self._password = url, password
        self._tell = on_progress
        self._owners: Mapping[str, Durable] = {one.name: one for entry in services for one in entry.hears}
        self._every_s, self._again_s = every_s, again_s
        self._told: set[str] = set()
        self.kept = Kept()

    async def run(self) -> None:
        """Look after the bus, for ever."""
        client: Client | None = None
        try:
            while True:
                try:
                    client = client or await connect(self._url, self._password, patient=True)
                    await self.turn(client)
                    self._told.discard(AWAY)
                except NoJetStream as error:
                    self.kept.trouble = {ADVISORIES: error.message}
                    self._once(AWAY, error.message)
                except Exception as error:  # whatever it is, the bus is looked after on
                    self._once(AWAY, getattr(error, "message", "") or type(error).__name__)
                await asyncio.sleep(self._every_s)
        finally:
            if client is not None:
                await client.close()

    async def turn(self, client: Client) -> None:
        """Look once: at streams that take nothing, at messages that were given up, at streams that are nearly full."""
        admin = BusAdmin(client)
        await self._look_for_trouble(admin)
        waiting = await self._copy_stranded(client)
        if not waiting:  # what was given up and not copied yet may be anywhere in its stream
            await self._make_room(admin)

    # --- streams that take nothing ------------------------------------------------------------------------

    async def _look_for_trouble(self, admin: BusAdmin) -> None:
        trouble = await write_errors(admin)
        if trouble != self.kept.trouble:
            for name, why in trouble.items():
                self._tell(f"the stream {name} takes nothing: {why}; facts wait in the outboxes")
            for name in self.kept.trouble.keys() - trouble.keys():
                self._tell(f"the stream {name} takes facts again")
        self.kept.trouble = trouble

    # --- messages that were given up ----------------------------------------------------------------------

    async def _copy_stranded(self, client: Client) -> int:
        """Copy what can be copied now; how many advisories wait still."""
        js = client.jetstream(timeout=5)
        subscription = await js.pull_subscribe_bind(KEEPER, stream=ADVISORIES)
        try:
            while True:
                try:
                    messages = await subscription.fetch(FETCHED, timeout=FETCH_S)
                except TimeoutError:
                    break
                for message in messages:
                    await self._settle(client, message)
        finally:
            await subscription.unsubscribe()
        info = await js.consumer_info(ADVISORIES, KEEPER)
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def _settle(self, client: Client, message: Msg) -> None:
        try:
            advisory = Advisory.of(message.data)
        except (ValueError, KeyError, TypeError, RecursionError):
            self._once("an advisory cannot be read; it is left aside")
            await message.ack()
            return
        if await self._copied(client, advisory):
            await message.ack()
        else:
            await message.nak(delay=self._again_s)

    async def _copied(self, client: Client, advisory: Advisory) -> bool:
        """Whether nothing is left to be done about it."""
        where = f"message {advisory.stream_seq} of {advisory.stream}"
        durable = self._owners.get(advisory.consumer)
        if durable is None or durable.stream != advisory.stream:
            self._once(f"{where} was given up for {advisory.consumer}, a durable that is not in the table")
            return True
        try:
            found = await client.jetstream(timeout=5).get_msg(advisory.stream, advisory.stream_seq, direct=True)
        except NotFoundError:
            self._tell(f"{where} was given up for {advisory.consumer}, and is no longer there to be copied")
            return True
        query = BuryStranded(
            consumer=advisory.consumer,
            said_on=found.subject or "",
            stream_seq=advisory.stream_seq,
            deliveries=advisory.deliveries,
            reason=advisory.reason,
            headers={_plain(name)[:200]: _plain(value)[:20_000] for name, value in (found.headers or {}).items()},
            body=b64encode(found.data or b""),
        )
        try:
            new = await _ask(client, dead_letter_bury_subject(durable.service), query)
        except (NatsError, TimeoutError, OSError, ValidationError, ValueError) as error:
            why = "it is too large for the bus" if isinstance(error, MaxPayloadError) else type(error).__name__
            self._once(f"{where} was given up and is not with the dead letters of {durable.service} yet", why)
            return False
        self.kept.copied += new
        self._tell(f"{where} was given up: it is with the dead letters of {durable.service}")
        return True

    # --- room ---------------------------------------------------------------------------------------------

    async def _make_room(self, admin: BusAdmin) -> None:
        """Drop the oldest of what everybody has heard, where a stream is nearly full."""
        for name in [stream.name for stream in STREAMS if stream.relied_on]:
            info = await admin.ask(f"STREAM.INFO.{name}")
            state, room = info["state"], int(info["config"]["max_bytes"])
            last = int(state["last_seq"])
            if purge_up_to(state, room, last) is None:
                continue
            stays = purge_up_to(state, room, await self._heard_by_all(admin, name, last))
            if stays is not None:
                purged = await admin.ask(f"STREAM.PURGE.{name}", {"seq": stays})
                self.kept.trimmed += int(purged["purged"])

    async def _heard_by_all(self, admin: BusAdmin, stream: str, last: int) -> int:
        """The sequence up to which every durable of the table has acknowledged what it hears."""
        heard = last
        for durable in [one for one in self._owners.values() if one.stream == stream]:
            info = await admin.ask(f"CONSUMER.INFO.{stream}.{durable.name}")
            if info["num_pending"] or info["num_ack_pending"]:
                heard = min(heard, await self._first_unheard(admin, durable, info) - 1)
        return heard

    async def _first_unheard(self, admin: BusAdmin, durable: Durable, info: Mapping[str, Any]) -> int:
        """The sequence of the first message of its kind beyond the floor, which may lie far behind, or be zero."""
        beyond = int(info["ack_floor"]["stream_seq"]) + 1
        query = {"seq": beyond, "next_by_subj": durable.event.type}
        try:
            found = await admin.ask(f"STREAM.MSG.GET.{durable.stream}", query)
        except APIError as error:
            if error.err_code != NO_MESSAGE:
                raise
            return beyond
        return int(found["message"]["seq"])

    def _once(self, remark: str, why: str = "") -> None:
        """Say it, and not again at every look."""
        if len(self._told) >= MOST_TOLD:
            self._told.clear()
        if remark not in self._told:
            self._told.add(remark)
            self._tell(f"{remark}: {why}" if why else remark)


async def write_errors(admin: BusAdmin) -> dict[str, str]:
    """The streams that take nothing since a write failed, and why. Changes nothing.

    Such a stream does not say so in its info, but when it is asked to change something: no stream ever has the
    sequence that is to be deleted here.
    """
    found = {}
    for stream in STREAMS:
        try:
            await admin.ask(f"STREAM.MSG.DELETE.{stream.name}", {"seq": NO_SUCH_SEQUENCE, "no_erase": True})
        except APIError as error:
            description = error.description or ""
            if "no space left" in description or "write" in description.split():
                found[stream.name] = description.rpartition(": ")[2] or description
    return found


def _plain(text: str) -> str:
    """Without the lone surrogates that bytes outside UTF-8 become."""
    return text.encode("utf-8", "replace").decode()


async def _ask(client: Client, subject: str, query: BuryStranded) -> bool:
    answer = await client.request(subject, query.model_dump_json().encode(), timeout=ASK_S)
    document = json.loads(answer.data)
    if "refused" in document:
        raise ValueError(f"refused: {document['refused'].get('detail')}")
    return Buried.model_validate(document["reply"]).new
