"""What each stream is to be, what is there, and what must be done about it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ByteSize

from libs.contracts.topology import Stream
from libs.provisioning.settings import BusSettings

DEDUPLICATION_S = 120.0


@dataclass(frozen=True)
class Found:
    """A stream as the server has it; `held` are the bytes in it."""

    config: Mapping[str, Any]
    held: int

    @property
    def reserved(self) -> int:
        """What the server keeps free for it, over all replicas."""
        return max(0, int(self.config.get("max_bytes", 0))) * int(self.config.get("num_replicas", 1))


@dataclass(frozen=True)
class Step:
    """What is done about one stream; `remark` is what whoever runs it should know."""

    stream: str
    action: Literal["create", "update", "keep"]
    config: Mapping[str, Any]
    found: Found | None = None
    remark: str = ""

    @property
    def reserves(self) -> int:
        """Bytes reserved on top of what is reserved already; negative when room is given back."""
        before = self.found.reserved if self.found else 0
        return int(self.config["max_bytes"]) * int(self.config["num_replicas"]) - before


def plan(streams: Sequence[Stream], settings: BusSettings, there: Mapping[str, Found]) -> list[Step]:
    """One step a stream, those that give room back first."""
    steps = [_step(stream, settings, there.get(stream.name)) for stream in streams]
    return sorted(steps, key=lambda step: step.reserves)


def _step(stream: Stream, settings: BusSettings, found: Found | None) -> Step:
    wanted = stream_config(stream, settings.size_of(stream), settings.bus_replicas)
    if found is None:
        return Step(stream.name, "create", wanted)
    remark, has = "", int(found.config.get("max_bytes", -1))
    if found.held > wanted["max_bytes"] and (has < 0 or has > wanted["max_bytes"]):
        # A smaller limit would drop what is there, heard or not.
        remark = (
            f"{stream.name} holds {human(found.held)}, more than the {human(wanted['max_bytes'])} it is to have: "
            f"it keeps {human(has) if has > 0 else 'no limit'} until less is left; run this again then"
        )
        wanted = {**wanted, "max_bytes": has}
    same = all(found.config.get(key) == value for key, value in wanted.items())
    return Step(stream.name, "keep" if same else "update", {**found.config, **wanted}, found, remark)


def stream_config(stream: Stream, max_bytes: int, replicas: int) -> dict[str, Any]:
    """The configuration as JetStream's API takes it."""
    return {
        "name": stream.name,
        "subjects": list(stream.subjects),
        "retention": "limits",
        "storage": "file",
        "discard": "new" if stream.relied_on else "old",
        "max_age": _ns(stream.max_age_s),
        "max_bytes": max_bytes,
        "max_msgs": -1,
        "max_consumers": -1,
        "duplicate_window": _ns(DEDUPLICATION_S),
        "num_replicas": replicas,
        "allow_atomic": True,
        "allow_direct": True,
    }


def differences(stream: Stream, settings: BusSettings, found: Found) -> list[str]:
    """The settings in which a stream is other than it is to be, e.g. `max_bytes`."""
    step = _step(stream, settings, found)
    return sorted(key for key, value in step.config.items() if found.config.get(key) != value)


def human(size: float) -> str:
    """`256.0MiB`."""
    return ByteSize(int(size)).human_readable()


def _ns(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
