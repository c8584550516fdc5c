"""The doctor's look at the bus: streams, their room, durables, messages that were given up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nats.js.errors import APIError

from burnish.finding import Finding
from burnish.installation import Installation
from libs.contracts.topology import ADVISORIES, SERVICES, STREAMS, Durable
from libs.provisioning.bus_admin import BusAdmin, bus_admin
from libs.provisioning.errors import ProvisioningError
from libs.provisioning.keeper import write_errors
from libs.provisioning.nats_config import ADMIN_USER
from libs.provisioning.settings import BusSettings
from libs.provisioning.streams import Found, differences, human, plan
from libs.provisioning.topology import KEEPER, durable_config, look

NEARLY_FULL = 0.9


async def examine_bus(installation: Installation) -> list[Finding]:
    """Every check of the bus. Changes nothing."""
    try:
        async with bus_admin(installation.nats_url, installation.nats_password(ADMIN_USER)) as admin:
            return await _looked_at(admin)
    except ProvisioningError as error:
        return [Finding("nats", "fail", error.message, error.hint)]


async def _looked_at(admin: BusAdmin) -> list[Finding]:
    settings = BusSettings.from_environment()
    there = await look(admin)
    durables = {durable: await _consumer(admin, durable.stream, durable.name) for durable in _durables()}
    keeper = await _consumer(admin, ADVISORIES, KEEPER)
    return [
        Finding("nats", "ok", "it answers"),
        _topology(there, durables, keeper, settings),
        *_room(there, settings),
        await _writing(admin),
        _stranded(keeper),
    ]


def _durables() -> list[Durable]:
    return [durable for entry in SERVICES for durable in entry.hears]


async def _consumer(admin: BusAdmin, stream: str, name: str) -> Mapping[str, Any] | None:
    try:
        info: Mapping[str, Any] = await admin.ask(f"CONSUMER.INFO.{stream}.{name}")
    except APIError:
        return None
    return info


def _topology(
    there: Mapping[str, Found],
    durables: Mapping[Durable, Mapping[str, Any] | None],
    keeper: Mapping[str, Any] | None,
    settings: BusSettings,
) -> Finding:
    wrong = [told for stream in STREAMS if (told := _wrong_stream(stream.name, there, settings))]
    wrong += [told for durable, info in durables.items() if (told := _wrong_durable(durable, info))]
    if keeper is None:
        wrong.append(f"there is no durable {KEEPER}")
    if wrong:
        return Finding("topology", "fail", "; ".join(wrong[:5]), "run `burnish topology`")
    waiting = sum(info["num_pending"] for info in durables.values() if info)
    told = f"{len(there)} streams and {len(durables)} durables are as the table says; {waiting} messages wait"
    return Finding("topology", "ok", told)


def _wrong_stream(name: str, there: Mapping[str, Found], settings: BusSettings) -> str:
    if name not in there:
        return f"there is no stream {name}"
    stream = next(stream for stream in STREAMS if stream.name == name)
    other = differences(stream, settings, there[name])
    return f"the stream {name} has another {', '.join(other)}" if other else ""


def _wrong_durable(durable: Durable, info: Mapping[str, Any] | None) -> str:
    if info is None:
        return f"there is no durable {durable.name}"
    wanted = durable_config(durable)
    keys = ("filter_subject", "ack_wait", "max_deliver", "max_ack_pending")
    other = [key for key in keys if info["config"].get(key) != wanted[key]]
    return f"the durable {durable.name} has another {', '.join(other)}" if other else ""


def _room(there: Mapping[str, Found], settings: BusSettings) -> list[Finding]:
    """How full the streams are, and those that are larger than they are to be since their content does not fit."""
    if not there:
        return []
    reserved = sum(found.reserved for found in there.values())
    told = f"{human(reserved)} reserved: " + ", ".join(
        f"{name} holds {human(found.held)} of {human(found.config['max_bytes'])}" for name, found in there.items()
    )
    full = [
        stream.name for stream in STREAMS if stream.relied_on and (found := there.get(stream.name)) and _full(found)
    ]
    if full:
        todo = "somebody does not hear what is there: see burnish_consumer_lag, or give it more with BURNISH_BUS_STORE"
        return [Finding("streams", "warn", f"{', '.join(full)} nearly full; {told}", todo)]
    kept = [step.remark for step in plan(STREAMS, settings, there) if step.remark]
    if kept:
        return [
            Finding("streams", "warn", f"{'; '.join(kept)}", "set BURNISH_BUS_STREAMS to the size it needs, or wait")
        ]
    return [Finding("streams", "ok", told)]


def _full(found: Found) -> bool:
    limit = int(found.config["max_bytes"])
    return 0 < limit * NEARLY_FULL < found.held


async def _writing(admin: BusAdmin) -> Finding:
    errors = await write_errors(admin)
    if not errors:
        return Finding("bus disk", "ok", "every stream takes facts")
    told = "; ".join(f"{name} takes nothing: {why}" for name, why in errors.items())
    todo = "free some space on the disk of NATS, then start NATS again; `burnish up` does that by itself"
    return Finding("bus disk", "fail", told, todo)


def _stranded(keeper: Mapping[str, Any] | None) -> Finding:
    waiting = int(keeper["num_pending"]) + int(keeper["num_ack_pending"]) if keeper else 0
    if waiting == 0:
        return Finding("given up", "ok", "no message was given up without being with the dead letters")
    todo = "`burnish up` and `burnish topology --keep` copy them; it takes their service to be there"
    return Finding("given up", "warn", f"{waiting} messages were given up and are not with the dead letters yet", todo)
