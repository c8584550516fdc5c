"""What the registry answers: touchpoints, versions, intents, the ledger. What changes a version is a question, too."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, StringConstraints

from libs.contracts.envelope import Frozen
from libs.contracts.prompts import PromptPart
from libs.contracts.queries.base import MAX_REPLY_BYTES, Query, Repeatable, Reply
from libs.contracts.text import STORABLE, storable
from libs.contracts.touchpoints import HeardTouchpoint, RelativePath, Touchpoint
from libs.contracts.versions import LedgerEntry, LedgerHead, LivePrompt
from libs.contracts.vocabulary import (
    Adapter,
    Instant,
    LedgerSeq,
    LongText,
    Name,
    Sha256,
    ShortText,
    TouchpointId,
    VersionRef,
)

Patch = Annotated[str, StringConstraints(max_length=MAX_REPLY_BYTES), STORABLE]
"""A diff of two prompts."""
Told = Annotated[Any, AfterValidator(storable)]
"""A value of a configuration, whatever it is."""

# --- prompts ----------------------------------------------------------------------------------------------


class PromptReply(Reply):
    """The prompt asked for, read when the ledger had `ledger_seq` entries: of two answers the higher is the newer."""

    prompt: LivePrompt
    ledger_seq: int | None = None


class GetPrompt(Query[PromptReply]):
    """The live prompt of a touchpoint, or what was live at a time, or a version by reference; 404 without one."""

    subject: ClassVar[str] = "ask.registry.prompt.get.v1"
    reply: ClassVar[type[Reply]] = PromptReply

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    version_ref: VersionRef | None = None
    at: Instant | None = None


# --- touchpoints ------------------------------------------------------------------------------------------


class TouchpointView(Reply):
    """A registered touchpoint with its whole configuration; `revision` counts its configurations from 1.

    `tier` 1: a change takes effect at once. 2: a person merges it first.
    """

    touchpoint: HeardTouchpoint
    tier: Literal[1, 2]
    revision: int
    registered_by: Name
    registered_at: Instant
    updated_at: Instant


class GetTouchpoint(Query[TouchpointView]):
    """One touchpoint; refused with 404 when it is not registered."""

    subject: ClassVar[str] = "ask.registry.touchpoints.get.v1"
    reply: ClassVar[type[Reply]] = TouchpointView

    touchpoint_id: TouchpointId


class TouchpointPage(Reply):
    """Touchpoints by id, as many as an answer holds; `next` is the `after` of the following page."""

    touchpoints: tuple[TouchpointView, ...]
    next: TouchpointId | None = None


class ListTouchpoints(Query[TouchpointPage]):
    """Every touchpoint after an id."""

    subject: ClassVar[str] = "ask.registry.touchpoints.list.v1"
    reply: ClassVar[type[Reply]] = TouchpointPage

    after: TouchpointId | None = None


class ChangeView(Frozen):
    """One configuration field before and after."""

    field: LongText
    before: Told = None
    after: Told = None


class PlannedView(Frozen):
    """What is, or was, done to one touchpoint; `live` is the version that becomes live by it."""

    touchpoint_id: TouchpointId
    action: Name
    revision: int
    changes: tuple[ChangeView, ...]
    live: VersionRef | None
    content_sha256: Sha256 | None


class Plan(Reply):
    """What an apply does, one entry a touchpoint."""

    touchpoints: tuple[PlannedView, ...]


class PlanTouchpoints(Query[Plan]):
    """What registering these touchpoints would do. Changes nothing; refused with 422 naming every problem."""

    subject: ClassVar[str] = "ask.registry.touchpoints.plan.v1"
    reply: ClassVar[type[Reply]] = Plan

    touchpoints: tuple[Touchpoint, ...] = Field(min_length=1, max_length=500)


class ApplyTouchpoints(Query[Plan], Repeatable):
    """Register all of them or none."""

    subject: ClassVar[str] = "ask.registry.touchpoints.apply.v1"
    reply: ClassVar[type[Reply]] = Plan

    touchpoints: tuple[Touchpoint, ...] = Field(min_length=1, max_length=500)
    by: Name


# --- versions ---------------------------------------------------------------------------------------------


class ActivationView(Frozen):
    """One row of the version registry: live, or live from `activated_at` to `rolled_back_at`."""

    activation_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None
    version_ref: VersionRef
    adapter: Adapter
    content_sha256: Sha256
    proposal_id: UUID | None
    activated_at: Instant
    activated_by: Name
    rolled_back_at: Instant | None
    rolled_back_from: UUID | None
    notes: LongText
    live: bool


class VersionView(Frozen):
    """One recorded text, live or not. Its parts are read with `GET …/versions/{version_ref}`."""

    version_ref: VersionRef
    content_sha256: Sha256
    origin: Name
    proposal_id: UUID | None
    note: LongText
    created_by: Name
    created_at: Instant | None


class Standing(Reply):
    """A touchpoint's revision, and what is live of it in a workspace."""

    revision: int
    live: ActivationView | None


class GetStanding(Query[Standing]):
    """How a touchpoint stands in the registry; of a workspace where it is scoped to workspaces."""

    subject: ClassVar[str] = "ask.registry.touchpoints.standing.v1"
    reply: ClassVar[type[Reply]] = Standing

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None


class VersionList(Reply):
    """`history`: activations, newest first. `versions`: recorded texts, newest first, live or not."""

    history: tuple[ActivationView, ...]
    versions: tuple[VersionView, ...]


class ListVersions(Query[VersionList]):
    """What was live when, and every text that was recorded."""

    subject: ClassVar[str] = "ask.registry.versions.list.v1"
    reply: ClassVar[type[Reply]] = VersionList

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    limit: int = Field(default=50, ge=1, le=500)


class VersionReply(Reply):
    """The version that was recorded."""

    version: VersionView


class RecordVersion(Query[VersionReply], Repeatable):
    """Record a text as a version that can be activated at once; refused with 409 for a prompt in git."""

    subject: ClassVar[str] = "ask.registry.versions.record.v1"
    reply: ClassVar[type[Reply]] = VersionReply

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    parts: tuple[PromptPart, ...] = Field(min_length=1, max_length=100)
    note: ShortText = ""
    by: Name


class ActivationReply(Reply):
    """The version that is live now."""

    activation: ActivationView


class ActivateVersion(Query[ActivationReply], Repeatable):
    """Make a recorded version live, if `expected_live` is live now; None: if nothing is. 409 with what holds."""

    subject: ClassVar[str] = "ask.registry.versions.activate.v1"
    reply: ClassVar[type[Reply]] = ActivationReply

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    version_ref: VersionRef
    expected_live: VersionRef | None = None
    reason: ShortText
    by: Name


class DriftView(Frozen):
    """SHA-256 at activation against now."""

    expected_sha256: Sha256
    found_sha256: Sha256
    drifted: bool
    warning: LongText | None


class RollbackProposalView(Frozen):
    """How a person gets the earlier version back. Nothing in the repository has changed."""

    intent_id: UUID
    touchpoint_id: TouchpointId
    from_version: VersionRef
    to_version: VersionRef
    content_sha256: Sha256
    base_commit: Name
    diff: Patch
    revert_commit: Name
    revert_restores: bool
    files: tuple[RelativePath, ...]
    redeploy_required: bool
    post_apply: tuple[ShortText, ...]
    explanation: LongText
    drift: DriftView
    warnings: tuple[LongText, ...]


class RollbackView(Reply):
    """Tier 1: `activation` is live already. Tier 2: `proposal` is for a person to carry out."""

    tier: Literal[1, 2]
    activation: ActivationView | None = None
    proposal: RollbackProposalView | None = None


class RollBack(Query[RollbackView], Repeatable):
    """Back to an earlier version: at once, or by a proposal that a person carries out; without a name, the previous."""

    subject: ClassVar[str] = "ask.registry.versions.roll_back.v1"
    reply: ClassVar[type[Reply]] = RollbackView

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    to_version: VersionRef | None = None
    reason: ShortText
    by: Name


# --- intents ----------------------------------------------------------------------------------------------


class IntentView(Frozen):
    """A change or rollback that a person merges. `error` says what stands in the way of a failed one."""

    intent_id: UUID
    kind: Literal["activate", "rollback"]
    state: Name
    touchpoint_id: TouchpointId
    workspace_id: UUID | None
    proposal_id: UUID | None
    from_version: VersionRef
    to_version: VersionRef | None
    content_sha256: Sha256
    branch: Name | None
    commit: Name | None
    diff: Patch | None
    error_code: Name | None
    error: LongText | None
    confirmed_by: ShortText | None
    reason: LongText
    created_by: Name
    created_at: Instant | None
    updated_at: Instant | None


class IntentPage(Reply):
    """Intents, newest first, as many as an answer holds; `left` of those asked for did not fit."""

    intents: tuple[IntentView, ...]
    left: int = 0


class ListIntents(Query[IntentPage]):
    """Changes and rollbacks that a person merges, leaving out the newest `skip`."""

    subject: ClassVar[str] = "ask.registry.intents.list.v1"
    reply: ClassVar[type[Reply]] = IntentPage

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    skip: int = Field(default=0, ge=0, le=500)
    limit: int = Field(default=50, ge=1, le=500)


class Confirmed(Reply):
    """The repository was looked at; what is still at work."""

    at_work: int


class ConfirmIntents(Query[Confirmed]):
    """Look at the touchpoint's repository now: what is merged becomes live, what failed is tried again."""

    subject: ClassVar[str] = "ask.registry.intents.confirm.v1"
    reply: ClassVar[type[Reply]] = Confirmed

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None


# --- the ledger -------------------------------------------------------------------------------------------


class LedgerPage(Reply):
    """Entries, newest first; `next` is the `before` of the following page."""

    entries: tuple[LedgerEntry, ...]
    next: int | None


class ListLedger(Query[LedgerPage]):
    """What happened, by whom and why."""

    subject: ClassVar[str] = "ask.registry.ledger.list.v1"
    reply: ClassVar[type[Reply]] = LedgerPage

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = Field(default=None, description="None: no limit by workspace")
    before: LedgerSeq | None = None
    limit: int = Field(default=100, ge=1, le=500)


class VerificationView(Reply):
    """Whether every entry is as it was written, and the tables as the ledger says.

    Of the first thing that is not so: `broken_at` is the entry, `table`, `row` and `columns` where it is. With a
    `next`, what was looked at so far is intact: ask again with it as the `cursor`.
    """

    intact: bool
    entries: int
    head_sha256: Sha256
    broken_at: int | None
    problem: ShortText
    table: ShortText = ""
    row: ShortText = ""
    columns: tuple[Name, ...] = ()
    next: ShortText | None = None


class KeptHead(Frozen):
    """An entry that somebody kept elsewhere, by number and hash."""

    seq: int = Field(ge=0, le=2**63 - 1)
    entry_sha256: Sha256


class VerifyLedger(Query[VerificationView]):
    """Recompute the chain and compare the tables with it, for a few seconds; the answer says where to go on.

    With a `kept` head, the chain has to go through it.
    """

    subject: ClassVar[str] = "ask.registry.ledger.verify.v1"
    reply: ClassVar[type[Reply]] = VerificationView

    cursor: ShortText | None = None
    kept: KeptHead | None = None


class LedgerHeadReply(Reply):
    """Where the ledger ends."""

    head: LedgerHead


class GetLedgerHead(Query[LedgerHeadReply]):
    """Where the ledger ends, signed; refused (409) when its recorded end does not fit its last entry."""

    subject: ClassVar[str] = "ask.registry.ledger.head.v1"
    reply: ClassVar[type[Reply]] = LedgerHeadReply
