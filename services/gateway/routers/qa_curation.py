"""The Q&A library: pairs are made, changed, decided on and undone."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import Field

from libs.auth.claims import Caller
from libs.contracts.library import Provenance
from libs.contracts.queries.qa_curation import (
    AcceptSuggestion,
    Answer,
    ArchivePair,
    CadenceDays,
    Clearable,
    Confidence,
    CreatePair,
    CuratedPair,
    CuratedPairs,
    DeletePair,
    DismissSuggestion,
    EditPair,
    ExternalAnswer,
    IdToken,
    Label,
    Labels,
    ListReviews,
    ListSuggestions,
    MergePairs,
    NewPair,
    OpenStatus,
    Outcome,
    PairChanges,
    PairDeleted,
    PairRef,
    Part,
    Phrasings,
    PromoteExtraction,
    ProposeEdit,
    PublishPair,
    Resolution,
    RestorePair,
    ReviewPair,
    Reviews,
    ReviewState,
    SplitPair,
    SuggestionDecided,
    SuggestionKind,
    SuggestionReply,
    Suggestions,
    SuggestionState,
    SupersedePair,
    UndoOperation,
    VerifyPair,
    Version,
)
from libs.contracts.queries.qa_ingest import Question
from libs.contracts.text import JsonObject
from libs.contracts.vocabulary import Instant, ShortText
from libs.service_kit.errors import Refused
from services.gateway.api.access import CurrentCaller
from services.gateway.api.asking import GatewayDep, OnceDep
from services.gateway.api.body import JsonRoute, Note, RequestBody
from services.gateway.routers.qa_ingest import libraries

router = APIRouter(route_class=JsonRoute, tags=["library"])


# --- bodies -----------------------------------------------------------------------------------------------------


class AnswerGivenElsewhere(RequestBody):
    """An answer from outside the library, e.g. of a bid, and what it is called there."""

    text: Answer
    reference: ShortText | None = None


class EditBody(RequestBody):
    """What of a pair is set. A field that is `null` is cleared, one that is not there stays as it is."""

    version: Version
    reason: Note = ""
    question: Question | None = None
    answer_standard: Answer | None = None
    answer_advanced: Answer | None = None
    alternate_phrasings: Phrasings | None = None
    id_token: IdToken | None = None
    scope_tags: Labels | None = None
    anti_scope_tags: Labels | None = None
    primary_domain: Label | None = None
    primary_subtopic: Label | None = None
    secondary_domain: Label | None = None
    secondary_subtopic: Label | None = None
    provenance: Provenance | None = None
    confidence: Confidence | None = None
    valid_from: Instant | None = None
    valid_to: Instant | None = None
    sensitive: bool | None = None
    layer: Label | None = None
    next_review_date: date | None = None
    review_cadence_days: CadenceDays | None = None
    metadata: JsonObject | None = None


class CreateBody(RequestBody):
    """A new pair. `workspace_id` may be left out where the token is for one workspace."""

    workspace_id: UUID | None = None
    publication_status: OpenStatus = "draft"
    from_answer: AnswerGivenElsewhere | None = None
    reason: Note = ""
    question: Question
    answer_standard: Answer
    answer_advanced: Answer | None = None
    alternate_phrasings: Phrasings = ()
    id_token: IdToken | None = None
    scope_tags: Labels = ()
    anti_scope_tags: Labels = ()
    primary_domain: Label | None = None
    primary_subtopic: Label | None = None
    secondary_domain: Label | None = None
    secondary_subtopic: Label | None = None
    provenance: Provenance = "EXTRACTED"
    confidence: Confidence = 1.0
    valid_from: Instant | None = None
    valid_to: Instant | None = None
    sensitive: bool = False
    layer: Label | None = None
    next_review_date: date | None = None
    review_cadence_days: CadenceDays | None = None
    metadata: JsonObject = Field(default_factory=dict)


class PromoteBody(RequestBody):
    """How the new pair begins."""

    publication_status: OpenStatus = "draft"
    reason: Note = ""


class VersionBody(RequestBody):
    """The pair as it was read, and why."""

    version: Version
    reason: Note = ""


class PublishBody(VersionBody):
    """Where the pair moves; `draft` takes it back."""

    status: OpenStatus = "published"


class SupersedeBody(VersionBody):
    """The pair that stands in from now on."""

    superseded_by: UUID


class ReviewBody(VersionBody):
    """What came of the review. `reverted` brings earlier words back: those of `to_version`, else the last others."""

    outcome: Outcome
    to_version: Version | None = None


class PartBody(RequestBody):
    """One of the pairs that come of a split; tags that are not given are those of the whole."""

    question: Question
    answer_standard: Answer
    answer_advanced: Answer | None = None
    alternate_phrasings: Phrasings = ()
    scope_tags: Labels | None = None
    anti_scope_tags: Labels | None = None


class SplitBody(VersionBody):
    """What the pair is split into."""

    parts: Annotated[list[PartBody], Field(min_length=2, max_length=20)]


class RefBody(RequestBody):
    """A pair as it was read."""

    id: UUID
    version: Version


class MergeBody(RequestBody):
    """The pair that stays, and those that it takes up."""

    into: RefBody
    absorbed: Annotated[list[RefBody], Field(min_length=1, max_length=50)]
    reason: Note = ""


class UndoBody(RequestBody):
    """Why."""

    reason: Note = ""


class AcceptBody(RequestBody):
    """How a suggestion is resolved, where not as usual; `keep` is the pair that stays, of two."""

    version: Version | None = None
    resolution: Resolution | None = None
    keep: UUID | None = None
    reason: Note = ""


# --- new pairs --------------------------------------------------------------------------------------------------


@router.post("/pairs", status_code=201)
async def create(body: CreateBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep) -> CuratedPair:
    """Make a pair, a draft unless said otherwise. Agents make drafts only."""
    reach = libraries(caller, body.workspace_id)
    if len(reach) != 1:
        raise Refused("which_workspace", "workspace_id: the token is for several; name one", status=422)
    given = body.from_answer
    query = CreatePair(
        **_who(caller, body.workspace_id, body.reason),
        pair=NewPair(**_content(body)),
        publication_status=body.publication_status,
        from_answer=None if given is None else ExternalAnswer(text=given.text, reference=given.reference),
    )
    return await gateway.ask_once(once, query)


@router.post("/extractions/{extraction_id}/promote", status_code=201)
async def promote(
    extraction_id: UUID, body: PromoteBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> CuratedPair:
    """Make a pair of what was found in a document, with everything that was found of it."""
    query = PromoteExtraction(
        **_who(caller, None, body.reason), extraction_id=extraction_id, publication_status=body.publication_status
    )
    return await gateway.ask_once(once, query)


# --- one pair ---------------------------------------------------------------------------------------------------


@router.patch("/pairs/{pair_id}")
async def edit(pair_id: UUID, body: EditBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep) -> CuratedPair:
    """Change a pair. 409 when it has another version by now."""
    changes, clear = _changes(body)
    query = EditPair(**_who(caller, None, body.reason), pair=_ref(pair_id, body.version), changes=changes, clear=clear)
    return await gateway.ask_once(once, query)


@router.post("/pairs/{pair_id}/edits", status_code=201)
async def propose_edit(
    pair_id: UUID, body: EditBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> SuggestionReply:
    """Propose a change of a pair, for a person to accept or dismiss. Agents may."""
    changes, clear = _changes(body)
    query = ProposeEdit(
        **_who(caller, None, body.reason), pair=_ref(pair_id, body.version), changes=changes, clear=clear
    )
    return await gateway.ask_once(once, query)


@router.post("/pairs/{pair_id}/archive")
async def archive(
    pair_id: UUID, body: VersionBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> CuratedPair:
    """Put a pair away: it is found no more, and can be restored."""
    return await gateway.ask_once(
        once, ArchivePair(**_who(caller, None, body.reason), pair=_ref(pair_id, body.version))
    )


@router.post("/pairs/{pair_id}/restore")
async def restore(
    pair_id: UUID, body: VersionBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> CuratedPair:
    """Bring a pair back: one that was archived as a draft, one that was superseded as it was."""
    return await gateway.ask_once(
        once, RestorePair(**_who(caller, None, body.reason), pair=_ref(pair_id, body.version))
    )


@router.post("/pairs/{pair_id}/verify")
async def verify(
    pair_id: UUID, body: VersionBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> CuratedPair:
    """Record that the caller found the answer right."""
    return await gateway.ask_once(once, VerifyPair(**_who(caller, None, body.reason), pair=_ref(pair_id, body.version)))


@router.post("/pairs/{pair_id}/publish")
async def publish(
    pair_id: UUID, body: PublishBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> CuratedPair:
    """Publish a pair, or take it back with `status` draft or in_review."""
    query = PublishPair(**_who(caller, None, body.reason), pair=_ref(pair_id, body.version), status=body.status)
    return await gateway.ask_once(once, query)


@router.post("/pairs/{pair_id}/supersede")
async def supersede(
    pair_id: UUID, body: SupersedeBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> CuratedPair:
    """Let another pair stand in for this one."""
    query = SupersedePair(
        **_who(caller, None, body.reason), pair=_ref(pair_id, body.version), superseded_by=body.superseded_by
    )
    return await gateway.ask_once(once, query)


@router.post("/pairs/{pair_id}/review")
async def review(
    pair_id: UUID, body: ReviewBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> CuratedPair:
    """Record a governance review; after an approval the next one is due when the cadence says."""
    query = ReviewPair(
        **_who(caller, None, body.reason),
        pair=_ref(pair_id, body.version),
        outcome=body.outcome,
        to_version=body.to_version,
    )
    return await gateway.ask_once(once, query)


@router.delete("/pairs/{pair_id}")
async def delete(
    pair_id: UUID,
    version: Annotated[int, Param(ge=1, le=2_147_483_647)],
    caller: CurrentCaller,
    gateway: GatewayDep,
    once: OnceDep,
    reason: Note = "",
) -> PairDeleted:
    """Remove a pair for good, with its history. For admins; archive what may be needed again."""
    return await gateway.ask_once(once, DeletePair(**_who(caller, None, reason), pair=_ref(pair_id, version)))


# --- several pairs ----------------------------------------------------------------------------------------------


@router.post("/pairs/merge")
async def merge(body: MergeBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep) -> CuratedPairs:
    """Let one pair take up others: their phrasings, tags and citations are its own, and it supersedes them."""
    query = MergePairs(
        **_who(caller, None, body.reason),
        into=_ref(body.into.id, body.into.version),
        absorbed=tuple(_ref(each.id, each.version) for each in body.absorbed),
    )
    return await gateway.ask_once(once, query)


@router.post("/pairs/{pair_id}/split")
async def split(
    pair_id: UUID, body: SplitBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> CuratedPairs:
    """Make several pairs of one, which is archived."""
    query = SplitPair(
        **_who(caller, None, body.reason),
        pair=_ref(pair_id, body.version),
        parts=tuple(Part(**part.model_dump()) for part in body.parts),
    )
    return await gateway.ask_once(once, query)


@router.post("/operations/{operation_id}/undo")
async def undo(
    operation_id: UUID, body: UndoBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> CuratedPairs:
    """Bring every pair back to where an operation found it. 409 when one has changed since; the answer names it."""
    return await gateway.ask_once(once, UndoOperation(**_who(caller, None, body.reason), undone_id=operation_id))


# --- what waits for people --------------------------------------------------------------------------------------


@router.get("/reviews")
async def reviews(
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    state: ReviewState = "due",
    within_days: Annotated[int, Param(ge=0, le=1_095)] = 0,
    limit: Annotated[int, Param(ge=1, le=500)] = 50,
) -> Reviews:
    """Pairs whose review is due, the longest due first; with `within_days` also those that will be by then."""
    return await gateway.ask(
        ListReviews(
            workspace_ids=libraries(caller, workspace_id),
            sees_sensitive=_sees_sensitive(caller),
            state=state,
            within_days=within_days,
            limit=limit,
        )
    )


@router.get("/suggestions")
async def suggestions(
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    kind: SuggestionKind | None = None,
    state: SuggestionState = "open",
    pair_id: UUID | None = None,
    limit: Annotated[int, Param(ge=1, le=200)] = 50,
) -> Suggestions:
    """What a person should look at, oldest first: proposed edits, duplicates, drafts and finals, changed sources."""
    return await gateway.ask(
        ListSuggestions(
            workspace_ids=libraries(caller, workspace_id),
            sees_sensitive=_sees_sensitive(caller),
            kind=kind,
            state=state,
            pair_id=pair_id,
            limit=limit,
        )
    )


@router.post("/suggestions/{suggestion_id}/accept")
async def accept(
    suggestion_id: UUID, body: AcceptBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> SuggestionDecided:
    """Do what is suggested: apply the edit, merge the duplicates, let the final supersede the draft."""
    query = AcceptSuggestion(
        **_who(caller, None, body.reason),
        suggestion_id=suggestion_id,
        version=body.version,
        resolution=body.resolution,
        keep=body.keep,
    )
    return await gateway.ask_once(once, query)


@router.post("/suggestions/{suggestion_id}/dismiss")
async def dismiss(
    suggestion_id: UUID, body: UndoBody, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep
) -> SuggestionDecided:
    """Leave everything as it is."""
    return await gateway.ask_once(
        once, DismissSuggestion(**_who(caller, None, body.reason), suggestion_id=suggestion_id)
    )


# --- small things -----------------------------------------------------------------------------------------------


def _who(caller: Caller, workspace_id: UUID | None, reason: str) -> dict[str, Any]:
    """Who asks, and in whose libraries. A token that may only make drafts is an agent's, whatever else it may."""
    return {
        "workspace_ids": libraries(caller, workspace_id),
        "by": caller.subject,
        "by_kind": "machine" if "pairs:draft" in caller.scopes else "human",
        "sees_sensitive": _sees_sensitive(caller),
        "reason": reason,
    }


def _sees_sensitive(caller: Caller) -> bool:
    return "pairs:sensitive" in caller.scopes


def _ref(pair_id: UUID, version: int) -> PairRef:
    return PairRef(id=pair_id, version=version)


def _content(body: RequestBody) -> dict[str, Any]:
    return {name: value for name in PairChanges.model_fields if (value := getattr(body, name)) is not None}


_CLEARED: frozenset[str] = frozenset(Clearable.__args__)  # type: ignore[attr-defined]  # the names of a Literal


def _changes(body: EditBody) -> tuple[PairChanges, tuple[Clearable, ...]]:
    """What is set, and what is cleared: a `null` is said, not left out."""
    said = body.model_fields_set & PairChanges.model_fields.keys()
    cleared = sorted(name for name in said if getattr(body, name) is None)
    for name in cleared:
        if name not in _CLEARED:
            raise Refused(
                "not_clearable", f"{name}: it cannot be null; leave it out to keep it", status=422, field=name
            )
    return PairChanges(**_content(body)), tuple(cleared)  # type: ignore[arg-type]  # looked at above
