"""What is said of agents."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from libs.contracts.agents import LockVersion, SaveAction
from libs.contracts.envelope import EventData
from libs.contracts.vocabulary import Instant, Name, Sha256


class AgentSavedV1(EventData):
    """A pack was saved: it is what the engine executes. Who saved it is its approver."""

    type: ClassVar[str] = "refinement.agent.saved.v1"

    agent_id: UUID
    organization_id: Name
    workspace_id: UUID
    version: LockVersion
    action: SaveAction
    pack_sha256: Sha256
    saved_by: Name
    saved_at: Instant

    def natural_key(self) -> str:
        """The agent and its version."""
        return f"{self.agent_id}|{self.version}"

    def about(self) -> str:
        """The agent."""
        return f"agent:{self.agent_id}"
