"""The one question that several parts of this service ask."""

from __future__ import annotations

from uuid import UUID

from libs.contracts.queries.registry import GetPrompt
from libs.contracts.versions import LivePrompt
from libs.service_kit.errors import Refused
from libs.service_kit.queries import Asker


async def live_prompt(asker: Asker, touchpoint_id: str, workspace_id: UUID | None) -> LivePrompt | None:
    """The live prompt, or None when the registry says that there is none. Raises Unavailable when it says nothing."""
    try:
        return (await asker.ask(GetPrompt(touchpoint_id=touchpoint_id, workspace_id=workspace_id))).prompt
    except Refused as no:
        if no.status == 404:
            return None
        raise
