"""What is sent to a gateway and what comes back. A test compares these with the gateway's OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

SignalType = Literal["flag", "eval_regression", "governance_finding", "low_confidence", "human_edit"]
Severity = Literal["critical", "high", "medium", "low"]
ActorKind = Literal["human", "machine"]

TouchpointId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,119}$")]
Provenance = Literal["EXTRACTED", "INFERRED", "AMBIGUOUS"]
PublicationStatus = Literal["draft", "in_review", "published", "archived"]
PairKind = Literal["curated", "extracted"]
MatchStrength = Literal["exact", "strong", "fair", "weak"]

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
ShortText = Annotated[str, StringConstraints(max_length=2_000)]
Answer = Annotated[str, StringConstraints(min_length=1, max_length=50_000)]
LongText = Annotated[str, StringConstraints(max_length=20_000)]


class _Sent(BaseModel):
    """A part of a request: a field that does not exist is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class _Received(BaseModel):
    """A part of an answer: a newer gateway may say more."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class EvidenceRef(_Sent):
    """Where the evidence stands: a row of a source, or a case of a suite with the metric that moved."""

    source: Name
    id: Name | None = None
    suite: Name | None = None
    case_id: Name | None = None
    metric: Name | None = None
    delta: float | None = None


class SignalPayload(BaseModel):
    """What was seen. Known keys are typed; others are kept as they are, up to 64 KiB in all."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, hide_input_in_errors=True)

    text: LongText | None = None
    reason: ShortText | None = None
    category: Name | None = None
    expected: ShortText | None = None
    got: ShortText | None = None
    confidence: float | None = Field(default=None, ge=0.0, le=1.0)
    case_id: Name | None = None


class Signal(_Sent):
    """One piece of quality evidence about one touchpoint.

    `source_key` names the evidence in the application: the same key is the same signal, however often it is pushed.
    Without one it is made from the caller and the push. Without `actor_id` the caller is the actor.
    """

    touchpoint_id: TouchpointId
    signal_type: SignalType
    payload: SignalPayload = SignalPayload()
    source_key: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None
    workspace_id: UUID | None = None
    severity: Severity | None = None
    actor_id: Name | None = None
    actor_kind: ActorKind | None = None
    version_ref: Name | None = None
    evidence_ref: EvidenceRef | None = None
    observed_at: AwareDatetime | None = None


class Accepted(_Received):
    """The signals are stored durably; each will be normalised once."""

    accepted: int
    signal_ids: list[UUID]


class StoredSignal(_Received):
    """A signal as Burnish keeps it."""

    signal_id: UUID
    touchpoint_id: str
    workspace_id: UUID | None = None
    signal_type: str | None = None
    severity: str | None = None
    evidence_ref: dict[str, Any]
    payload: dict[str, Any]
    actor_id: str
    actor_kind: str
    version_ref: str | None = None
    source_key: str
    first_seen: AwareDatetime
    last_seen: AwareDatetime
    created_at: AwareDatetime
    processed_at: AwareDatetime | None = None
    rejected: str | None = None
    reject_detail: str | None = None


class SignalPage(_Received):
    """Signals, newest first; `next` is the cursor of the following page."""

    signals: tuple[StoredSignal, ...]
    next: str | None = None


class TouchpointCounts(_Received):
    """How many signals of a touchpoint there are."""

    touchpoint_id: str
    stored: int
    unprocessed: int
    rejected: int
    observed: int = 0


class SignalCounts(_Received):
    """Counts by touchpoint."""

    counts: tuple[TouchpointCounts, ...]


class PromptPart(_Received):
    """One part of a prompt: where it lives within the touchpoint's storage, and its text."""

    path: str
    text: str


class LivePrompt(_Received):
    """The prompt that is live for a touchpoint (in a workspace), with its text and hash."""

    touchpoint_id: str
    workspace_id: UUID | None = None
    activation_id: UUID
    version_ref: str
    adapter: str
    content_sha256: str
    parts: tuple[PromptPart, ...]
    activated_at: AwareDatetime

    @property
    def text(self) -> str:
        """The parts as the one text that a model is sent, in order, each starting on a new line."""
        joined = ""
        for part in self.parts:
            joined += part.text if not joined or joined.endswith("\n") else f"\n{part.text}"
        return joined


# --- the library ------------------------------------------------------------------------------------------


class SearchHit(_Received):
    """One row of a search of the library: enough to choose by. `similarity` is None where it has no vector."""

    kind: PairKind
    id: UUID
    question: str
    answer_preview: str
    scope_tags: tuple[str, ...] = ()
    anti_scope_tags: tuple[str, ...] = ()
    primary_domain: str | None = None
    primary_subtopic: str | None = None
    similarity: float | None = None
    rank_method: str
    match_strength: MatchStrength
    provenance: Provenance
    confidence: float
    valid_from: AwareDatetime | None = None
    valid_to: AwareDatetime | None = None
    current: bool
    publication_status: PublicationStatus
    review_status: str | None = None
    source_document_id: UUID | None = None


class SearchResults(_Received):
    """Hits, best first; `total` counts what all ways of searching found."""

    results: tuple[SearchHit, ...]
    total: int
    limit: int
    offset: int
    query: str


class Citation(_Received):
    """Where a pair is cited, or what it is made of (`citation_kind` is then `source`)."""

    id: UUID
    citing_entity: str
    citing_id: str
    citation_kind: str
    confidence: float
    created_at: AwareDatetime
    invalidated_at: AwareDatetime | None = None


class PairVersion(_Received):
    """One line of a pair's history."""

    version: int
    change_type: str
    change_reason: str = ""
    changed_by: str
    changed_at: AwareDatetime
    operation_id: UUID


class Pair(_Received):
    """A pair or an extraction, verbatim."""

    kind: PairKind
    id: UUID
    workspace_id: UUID
    version: int = 1
    question: str
    alternate_phrasings: tuple[str, ...] = ()
    answer_standard: str
    answer_advanced: str | None = None
    id_token: str | None = None
    scope_tags: tuple[str, ...] = ()
    anti_scope_tags: tuple[str, ...] = ()
    primary_domain: str | None = None
    primary_subtopic: str | None = None
    secondary_domain: str | None = None
    secondary_subtopic: str | None = None
    provenance: Provenance
    confidence: float
    valid_from: AwareDatetime | None = None
    valid_to: AwareDatetime | None = None
    publication_status: PublicationStatus
    sensitive: bool = False
    verified_at: AwareDatetime | None = None
    verified_by: str | None = None
    review_status: str | None = None
    origin_kind: str | None = None
    extractor: str | None = None
    source_document_id: UUID | None = None
    source_file: str | None = None
    superseded_by: UUID | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    citations: tuple[Citation, ...] = ()
    history: tuple[PairVersion, ...] = ()


class PairChanges(_Sent):
    """What of a pair is set. What is not named stays as it is; in a proposed edit, None clears."""

    question: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] | None = None
    answer_standard: Answer | None = None
    answer_advanced: Answer | None = None
    alternate_phrasings: tuple[str, ...] | None = None
    id_token: str | None = None
    scope_tags: tuple[str, ...] | None = None
    anti_scope_tags: tuple[str, ...] | None = None
    primary_domain: str | None = None
    primary_subtopic: str | None = None
    secondary_domain: str | None = None
    secondary_subtopic: str | None = None
    provenance: Provenance | None = None
    confidence: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    valid_from: AwareDatetime | None = None
    valid_to: AwareDatetime | None = None
    sensitive: bool | None = None
    layer: str | None = None
    review_cadence_days: Annotated[int, Field(ge=1, le=1_095)] | None = None
    metadata: dict[str, Any] | None = None


class NewPair(PairChanges):
    """A pair to be made."""

    question: Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
    answer_standard: Answer


class CuratedPair(_Received):
    """The pair as it is now."""

    operation_id: UUID
    pair: Pair


class Suggestion(_Received):
    """What a person should look at, such as a proposed edit, and what became of it."""

    suggestion_id: UUID
    workspace_id: UUID
    kind: str
    state: str
    pair_id: UUID | None = None
    other_pair_id: UUID | None = None
    extraction_id: UUID | None = None
    question: str | None = None
    other_question: str | None = None
    version: int | None = None
    detail: dict[str, Any] = Field(default_factory=dict)
    created_at: AwareDatetime
    created_by: str
    decided_at: AwareDatetime | None = None
    decided_by: str | None = None


class SuggestionReply(_Received):
    """One suggestion."""

    suggestion: Suggestion
