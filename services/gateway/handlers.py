"""What the gateway does when it overhears a fact: it gives up what it knew and asks the registry when it is asked."""

from __future__ import annotations

from libs.contracts.envelope import Event
from libs.contracts.events.registry import TouchpointRegisteredV1, VersionActivatedV1, VersionRolledBackV1
from services.gateway.domain import LivePrompts, Target


async def on_touchpoint_registered(event: Event[TouchpointRegisteredV1], prompts: LivePrompts) -> None:
    """Its prompt may lie elsewhere now."""
    prompts.configured(event.data.touchpoint.id)


async def on_version_activated(event: Event[VersionActivatedV1], prompts: LivePrompts) -> None:
    """Another version is live."""
    prompts.changed(Target(event.data.touchpoint_id, event.data.workspace_id), event.data.ledger_seq)


async def on_version_rolled_back(event: Event[VersionRolledBackV1], prompts: LivePrompts) -> None:
    """An earlier version is live again."""
    prompts.changed(Target(event.data.touchpoint_id, event.data.workspace_id), event.data.ledger_seq)
