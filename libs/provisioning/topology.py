"""Creates and updates streams and durables as the contracts' table says. The only code that does.

It looks first: at the streams that are there, at what they hold, and at what the account may have. What cannot be
done is said before anything is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nats.js.errors import APIError

from libs.contracts.topology import ADVISORIES, SERVICES, STREAMS, Durable, ServiceEntry, Stream
from libs.provisioning.bus_admin import BusAdmin, bus_admin
from libs.provisioning.errors import TopologyError
from libs.provisioning.settings import BusSettings
from libs.provisioning.streams import Found, Step, human, plan

KEEPER = "bus_keeper"
"""The durable with which whoever keeps the bus hears that a message was given up."""

MAX_PULL_EXPIRES_S = 25.0  # below the response threshold of the accounts
NO_SUCH_STREAM = 10059
NO_STORAGE, NO_MEMORY, NO_PEERS, NOT_CLUSTERED = 10047, 10028, 10005, 10074
NO_LIMIT = -1


async def upsert(
    url: str,
    password: str,
    *,
    streams: Sequence[Stream] = STREAMS,
    services: Sequence[ServiceEntry] = SERVICES,
    settings: BusSettings | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Bring the server to the table's state as `bus_admin`. Safe to run again; never deletes anything.

    Raises `TopologyError` when the server has no room for the streams or does not answer.
    """
    async with bus_admin(url, password) as admin:
        there = await look(admin, streams)
        steps = plan(streams, settings or BusSettings.from_environment(), there)
        await _require_room(admin, steps)
        for step in steps:
            await _apply(admin, step)
            on_progress(f"stream {step.stream}")
            if step.remark:
                on_progress(step.remark)
        for entry in services:
            for durable in entry.hears:
                await _upsert_durable(admin, durable.stream, durable_config(durable))
            on_progress(f"durables of {entry.name}")
        if any(stream.name == ADVISORIES for stream in streams):
            await _upsert_durable(admin, ADVISORIES, keeper_config())


async def look(admin: BusAdmin, streams: Sequence[Stream] = STREAMS) -> dict[str, Found]:
    """Those of the streams that are there."""
    found = {}
    for stream in streams:
        try:
            info = await admin.ask(f"STREAM.INFO.{stream.name}")
        except APIError as error:
            if error.err_code != NO_SUCH_STREAM:
                raise _explained(f"the stream {stream.name} cannot be looked at", error) from error
            continue
        found[stream.name] = Found(info["config"], int(info["state"]["bytes"]))
    return found


async def _require_room(admin: BusAdmin, steps: Sequence[Step]) -> None:
    """The account's own limits, where it has some. What the whole server allows only it knows: see `_apply`."""
    account = await admin.ask("INFO")
    limit = int(account["limits"].get("max_storage", NO_LIMIT))
    after = int(account["reserved_storage"]) + sum(step.reserves for step in steps)
    if NO_LIMIT < limit < after and any(step.reserves > 0 for step in steps):
        raise TopologyError(
            f"the streams need {human(after)} of storage, and the account may have {human(limit)}",
            "allow the account BUS more (max_file), or set BURNISH_BUS_STORE lower",
        )


async def _apply(admin: BusAdmin, step: Step) -> None:
    if step.action == "keep":
        return
    try:
        await admin.ask(f"STREAM.{step.action.upper()}.{step.stream}", step.config)
    except APIError as error:
        raise await _refused(admin, step, error) from error


async def _refused(admin: BusAdmin, step: Step, error: APIError) -> TopologyError:
    replicas, size = step.config["num_replicas"], human(step.config["max_bytes"])
    if error.err_code in (NO_STORAGE, NO_MEMORY):
        reserved = human((await admin.ask("INFO"))["reserved_storage"])
        return TopologyError(
            f"the NATS server has no room for the stream {step.stream}: it is to have {size}, "
            f"and {reserved} are reserved already",
            "raise max_file_store in the server's jetstream block (without one it is three quarters of what was free "
            "at its start), or set BURNISH_BUS_STORE lower; a stream with a larger limit of before is made smaller "
            "only when max_file_store is at least what is reserved",
        )
    if error.err_code in (NOT_CLUSTERED, NO_PEERS):
        return TopologyError(
            f"the stream {step.stream} cannot have {replicas} replicas of {size}: {error.description}",
            "that takes as many servers in one cluster, each with that much room; see BURNISH_BUS_REPLICAS",
        )
    return _explained(f"the stream {step.stream} cannot be made as the table says", error)


def _explained(what: str, error: APIError) -> TopologyError:
    return TopologyError(f"{what}: {error.description} ({error.err_code})", "see the log of the NATS server")


async def _upsert_durable(admin: BusAdmin, stream: str, config: Mapping[str, Any]) -> None:
    where = f"{stream}.{config['durable_name']}"
    api = f"CONSUMER.CREATE.{where}" + (f".{config['filter_subject']}" if "filter_subject" in config else "")
    try:
        await admin.ask(api, {"stream_name": stream, "config": config})
    except APIError as error:
        raise _explained(f"the durable {config['durable_name']} cannot be made as the table says", error) from error


def durable_config(durable: Durable) -> dict[str, Any]:
    """The configuration of a service's durable as JetStream's API takes it."""
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


def keeper_config() -> dict[str, Any]:
    """The keeper's own durable: it never gives up."""
    return {
        "durable_name": KEEPER,
        "name": KEEPER,
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "replay_policy": "instant",
        "ack_wait": _ns(60),
        "max_deliver": -1,
        "max_ack_pending": 1_000,
    }


def _ns(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
