"""What the registry answers."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from libs.contracts.queries.base import Query, Reply
from libs.contracts.versions import LivePrompt
from libs.contracts.vocabulary import (
    TouchpointId,
    VersionRef,
)


class PromptReply(Reply):
    """The prompt asked for."""

    prompt: LivePrompt


class GetPrompt(Query[PromptReply]):
    """The live prompt of a touchpoint, or one of its versions by reference; refused with 404 without one."""

    subject: ClassVar[str] = "ask.registry.prompt.get.v1"
    reply: ClassVar[type[Reply]] = PromptReply

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    version_ref: VersionRef | None = None
