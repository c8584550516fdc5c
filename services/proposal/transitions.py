"""Changes of a proposal's state inside an open transaction, each with its line in the append-only list."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from libs.contracts.versions import LivePrompt
from libs.service_kit import logging
from libs.service_kit.db import Transaction
from services.proposal import domain
from services.proposal.domain import AUTHOR, Proposal
from services.proposal.store import decisions, proposals

log = logging.get(__name__)
Tx = Transaction[Any]


async def realign(tx: Tx, proposal: Proposal, live: LivePrompt) -> None:
    """Bring one open proposal onto the text that is live: rebased where its hunks still apply, else stale.

    Left alone is an approved proposal whose own text is what went live: the ledger's word about it is on its way.
    """
    on_its_way = proposal.state in ("approved", "activating") and live.content_sha256 == proposal.content_sha256
    if proposal.base_sha256 == live.content_sha256 or on_its_way:
        return
    moved = domain.revised(proposal, live)
    if moved is None:
        await proposals.move(tx.conn, proposal.proposal_id, "stale")
        await _note(tx, proposal, "stale", f"{live.version_ref} is live and its hunks do not apply to it")
        return
    await proposals.revise(tx.conn, moved)
    await _note(tx, moved, "revised", f"rebased onto {live.version_ref}; needs a new A/B run and new approvals")


async def realign_all(tx: Tx, touchpoint_id: str, workspace_id: UUID | None, live: LivePrompt) -> None:
    """`realign` every open proposal of the touchpoint."""
    for proposal in await proposals.open_on_other_base(tx.conn, touchpoint_id, workspace_id, live.content_sha256):
        await realign(tx, proposal, live)


async def _note(tx: Tx, proposal: Proposal, action: str, reason: str) -> None:
    await decisions.record(tx.conn, proposal.proposal_id, action, AUTHOR, reason, proposal.content_sha256)
    log.info(f"proposal.{action}", proposal_id=str(proposal.proposal_id), touchpoint=proposal.touchpoint_id)
