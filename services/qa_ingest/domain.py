"""Rules of the Q&A library. Pure: no I/O, no clock, no bus."""

from __future__ import annotations

from collections.abc import Iterable

from libs.contracts.events.registry import TouchpointRegisteredV1


def newest(registered: Iterable[TouchpointRegisteredV1]) -> list[TouchpointRegisteredV1]:
    """The highest revision of each touchpoint, by touchpoint id; events of a batch may come in any order."""
    kept: dict[str, TouchpointRegisteredV1] = {}
    for one in registered:
        known = kept.get(one.touchpoint.id)
        if known is None or one.revision > known.revision:
            kept[one.touchpoint.id] = one
    return [kept[identity] for identity in sorted(kept)]
