"""Which pairs of the library wait to be cases. Pure.

A pair is a case while it is published, not superseded, and its workspace names a touchpoint for its answers. What is
said of it may come doubled and in any order; the newest version counts, and of that what was said last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from libs.contracts.events.qa_ingest import (
    QaPairArchivedV1,
    QaPairPublishedV1,
    QaPairSupersededV1,
    QaPairUnpublishedV1,
)

Said: TypeAlias = QaPairPublishedV1 | QaPairArchivedV1 | QaPairSupersededV1 | QaPairUnpublishedV1


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a pair at a version: whether it waits, and with which words."""

    pair_id: UUID
    workspace_id: UUID
    version: int
    said_at: datetime
    touchpoint_id: str | None = None
    input: str | None = None
    expected: str | None = None

    @property
    def waits(self) -> bool:
        """Whether it is a case of the next suite."""
        return self.touchpoint_id is not None

    def row(self) -> dict[str, Any]:
        """As it is kept."""
        return {**asdict(self), "waits": self.waits}


def standing(said: Said) -> Standing:
    """What a fact says of its pair."""
    if isinstance(said, QaPairPublishedV1):
        words = (said.touchpoint_id, said.question, said.answer) if said.touchpoint_id else (None, None, None)
        return Standing(said.pair_id, said.workspace_id, said.version, said.published_at, *words)
    return Standing(said.pair_id, said.workspace_id, said.version, said.at)


def newest(facts: Iterable[Said]) -> list[Standing]:
    """The newest standing of each pair."""
    found: dict[UUID, Standing] = {}
    for one in map(standing, facts):
        known = found.get(one.pair_id)
        if known is None or (one.version, one.said_at) > (known.version, known.said_at):
            found[one.pair_id] = one
    return list(found.values())
