"""Publishing to JetStream: atomic batches, and single publishes when a batch is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from uuid import UUID, uuid4

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import Header
from nats.js.client import JetStreamContext

from libs.contracts.topology import stream_of
from libs.service_kit import logging
from libs.service_kit.metrics import PUBLISHED

log = logging.get(__name__)

TIMEOUT_S = 5.0
SINGLES_AT_A_TIME = 64
SENT_AT_A_TIME = 128


@dataclass(frozen=True)
class Outgoing:
    """One message to publish. `msg_id` belongs to its outbox row and stays the same over every retry."""

    msg_id: UUID
    subject: str
    body: bytes


class BatchRefused(Exception):
    """The server did not take the batch; publish its messages one by one."""


class Publisher:
    """Publishes and waits for the PubAck. Deduplication on the server is by `Nats-Msg-Id`."""

    def __init__(self, client: Client, js: JetStreamContext) -> None:
        self._client = client
        self._js = js
        self.refusal = ""  # why the last message that was not acknowledged was not

    async def publish(self, messages: Sequence[Outgoing]) -> set[UUID]:
        """Publish in order, by stream; return the ids of those that were acknowledged."""
        sent: set[UUID] = set()
        for stream, group in groupby(messages, key=lambda message: stream_of(message.subject)):
            part = list(group)
            try:
                await self._publish_batch(stream, part)
                sent.update(message.msg_id for message in part)
            except (BatchRefused, NatsError, TimeoutError) as error:
                if len(part) > 1:
                    log.debug("publish.batch_refused", stream=stream, error=logging.describe(error))
                sent.update(await self._publish_singly(stream, part))
        return sent

    async def _publish_batch(self, stream: str, part: list[Outgoing]) -> None:
        """One JetStream atomic batch (ADR-50): all of it is stored, or none. Raises BatchRefused."""
        if len(part) < 2:
            raise BatchRefused("one message is no batch")
        batch = uuid4().hex
        for position, message in enumerate(part[:-1], start=1):
            headers = _headers(message, batch, position)
            await self._client.publish(message.subject, message.body, headers=headers)
            if position % SENT_AT_A_TIME == 0:
                await asyncio.sleep(0)  # the client sends what there is: the server stores it while we write the rest
        # Every header is stored, delivered and parsed with its message: the stream is named once a batch.
        last = {**_headers(part[-1], batch, len(part)), Header.EXPECTED_STREAM: stream, "Nats-Batch-Commit": "1"}
        answer = await self._client.request(part[-1].subject, part[-1].body, timeout=TIMEOUT_S, headers=last)
        ack = json.loads(answer.data)
        if "error" in ack or ack.get("count") != len(part):
            raise BatchRefused(f"{ack.get('error', {}).get('err_code')}")
        PUBLISHED.labels("batch").inc(len(part))

    async def _publish_singly(self, stream: str, part: list[Outgoing]) -> set[UUID]:
        sent: set[UUID] = set()
        for start in range(0, len(part), SINGLES_AT_A_TIME):
            chunk = part[start : start + SINGLES_AT_A_TIME]
            outcomes = await asyncio.gather(
                *(self._publish_one(stream, message) for message in chunk), return_exceptions=True
            )
            sent.update(m.msg_id for m, outcome in zip(chunk, outcomes, strict=True) if outcome is None)
            failed = [outcome for outcome in outcomes if outcome is not None]
            if failed:
                self.refusal = f"{stream}: {logging.describe(failed[0])}"
                log.warning("publish.failed", stream=stream, count=len(failed), error=logging.describe(failed[0]))
                break
        return sent

    async def _publish_one(self, stream: str, message: Outgoing) -> None:
        await self._js.publish(
            message.subject,
            message.body,
            timeout=TIMEOUT_S,
            stream=stream,
            headers={Header.MSG_ID: str(message.msg_id)},
        )
        PUBLISHED.labels("single").inc()


def _headers(message: Outgoing, batch: str, position: int) -> dict[str, str]:
    return {
        Header.MSG_ID: str(message.msg_id),
        "Nats-Batch-Id": batch,
        "Nats-Batch-Sequence": str(position),
    }
