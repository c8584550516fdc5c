"""Creates and updates streams and durables as the contracts' table says. The only code that does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import nats
from nats.aio.client import Client
from nats.js.errors import APIError

from libs.contracts.topology import SERVICES, STREAMS, Durable, ServiceEntry, Stream
from libs.provisioning.nats_config import ADMIN_USER

API_TIMEOUT_S = 10.0
STREAM_NAME_IN_USE = 10058
MAX_PULL_EXPIRES_S = 25.0  # below the response threshold of the accounts
DEDUPLICATION_S = 120.0


async def upsert(
    url: str,
    password: str,
    *,
    streams: Sequence[Stream] = STREAMS,
    services: Sequence[ServiceEntry] = SERVICES,
    replicas: int = 1,
    on_progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Bring the server to the table's state as `bus_admin`. Safe to run again; never deletes anything."""
    client = await nats.connect(url, user=ADMIN_USER, password=password, connect_timeout=5)
    try:
        for stream in streams:
            await _upsert_stream(client, stream, replicas)
            on_progress(f"stream {stream.name}")
        for entry in services:
            for durable in entry.hears:
                await _upsert_durable(client, durable)
            on_progress(f"durables of {entry.name}")
    finally:
        await client.close()


async def _upsert_stream(client: Client, stream: Stream, replicas: int) -> None:
    config = _stream_config(stream, replicas)
    try:
        await _request(client, f"STREAM.CREATE.{stream.name}", config)
    except APIError as error:
        if error.err_code != STREAM_NAME_IN_USE:
            raise
        await _request(client, f"STREAM.UPDATE.{stream.name}", config)


async def _upsert_durable(client: Client, durable: Durable) -> None:
    body = {"stream_name": durable.stream, "config": _consumer_config(durable)}
    await _request(client, f"CONSUMER.CREATE.{durable.stream}.{durable.name}.{durable.event.type}", body)


async def _request(client: Client, api: str, body: dict[str, Any]) -> None:
    """One JetStream API call. nats-py's own models do not know `allow_atomic` and `max_expires`."""
    answer = await client.request(f"$JS.API.{api}", json.dumps(body).encode(), timeout=API_TIMEOUT_S)
    document = json.loads(answer.data)
    if "error" in document:
        raise APIError.from_error(document["error"])


def _stream_config(stream: Stream, replicas: int) -> dict[str, Any]:
    return {
        "name": stream.name,
        "subjects": list(stream.subjects),
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_age": _ns(stream.max_age_s),
        "max_bytes": stream.max_bytes,
        "max_msgs": -1,
        "max_consumers": -1,
        "duplicate_window": _ns(DEDUPLICATION_S),
        "num_replicas": replicas,
        "allow_atomic": True,
        "allow_direct": True,
    }


def _consumer_config(durable: Durable) -> dict[str, Any]:
    return {
        "durable_name": durable.name,
        "name": durable.name,
        "filter_subject": durable.event.type,
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "replay_policy": "instant",
        "ack_wait": _ns(durable.ack_wait_s),
        "max_deliver": durable.max_deliver,
        "max_ack_pending": durable.max_ack_pending,
        "max_expires": _ns(MAX_PULL_EXPIRES_S),
    }


def _ns(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
