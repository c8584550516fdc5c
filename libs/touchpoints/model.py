"""A touchpoint as the services know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg

from libs.contracts.touchpoints import (
    Approvals,
    ModelSettings,
    SignalSource,
    Strict,
    SuiteSettings,
    Thresholds,
    known_keys,
)
from libs.contracts.vocabulary import Name, Scope, ShortText, TouchpointId


class KnownTouchpoint(Strict):
    """The configuration of a touchpoint without its storage, which is the registry's alone.

    What a row carried over from an earlier table does not tell has its default, and `scope` is None.
    """

    id: TouchpointId
    revision: int
    scope: Scope | None = None
    description: ShortText = ""
    suite: SuiteSettings | None = None
    signals: tuple[SignalSource, ...] = ()
    thresholds: Thresholds = Thresholds()
    model: ModelSettings = ModelSettings()
    approvals: Approvals = Approvals()
    owners: tuple[Name, ...] = ()
    active: bool = True

    @classmethod
    def of_row(cls, row: asyncpg.Record | Mapping[str, Any]) -> KnownTouchpoint:
        """Read a row of the table. A key that only newer code knows is left out."""
        kept = {**row["config"], "id": row["touchpoint_id"], "revision": row["revision"], "scope": row["scope"]}
        return cls.model_validate(known_keys(kept, cls))
