"""How much of a nearly full stream may go: the oldest of what everybody has heard, never more. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FULL = 0.8
EMPTIER = 0.6


def purge_up_to(state: Mapping[str, Any], max_bytes: int, heard: int) -> int | None:
    """The first sequence that stays, for a stream more than 80 % full; None when nothing has to go, or may.

    `heard` is the sequence up to which everybody has heard everything. So much goes that about 60 % stay; messages are
    taken to be of one size, which is right on the whole and made up for at the next look.
    """
    held, first, last = int(state["bytes"]), int(state["first_seq"]), int(state["last_seq"])
    if max_bytes <= 0 or held <= FULL * max_bytes:
        return None
    surplus = (held - EMPTIER * max_bytes) / held
    wanted = first + int(surplus * (last - first + 1))
    stays = min(wanted, heard + 1)
    return stays if stays > first else None
