"""Fetches the texts of variants from those who keep them."""

from __future__ import annotations

from libs.contracts.evaluations import Variant, VariantRef
from libs.contracts.events.ab_runner import AbRequestedV2
from libs.contracts.prompts import PromptPart
from libs.contracts.queries.proposal import GetProposal
from libs.contracts.queries.registry import GetPrompt
from libs.service_kit.errors import Refused
from libs.service_kit.queries import Asker
from services.ab_runner.domain import CannotRun


async def fetched(asker: Asker, asked: AbRequestedV2, wanted: VariantRef) -> Variant:
    """The variant with its text, whose hash is still to be checked.

    Raises CannotRun when the owner has no such text, Unavailable when the owner does not answer.
    """
    try:
        parts = await _parts(asker, asked, wanted)
    except Refused as no:
        if no.status >= 500:
            raise
        raise CannotRun(f"{wanted.label}: {no.detail}") from no
    return Variant(**wanted.model_dump(), parts=parts)


def unread(wanted: VariantRef) -> Variant:
    """A variant of a run that cannot be carried out for want of its text."""
    return Variant(**wanted.model_dump(), parts=(PromptPart(path="unread", text=""),))


async def _parts(asker: Asker, asked: AbRequestedV2, wanted: VariantRef) -> tuple[PromptPart, ...]:
    if wanted.proposal_id is not None:
        proposal = (await asker.ask(GetProposal(proposal_id=wanted.proposal_id))).proposal
        if (proposal.touchpoint_id, proposal.workspace_id) != (asked.touchpoint_id, asked.workspace_id):
            raise CannotRun(f"{wanted.label}: proposal {wanted.proposal_id} is another touchpoint's or workspace's")
        return proposal.parts
    query = GetPrompt(
        touchpoint_id=asked.touchpoint_id, workspace_id=asked.workspace_id, version_ref=wanted.version_ref
    )
    return (await asker.ask(query)).prompt.parts
