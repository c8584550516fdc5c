"""Questions that need an answer now: core NATS request/reply, never stored, with typed replies."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from pydantic import AwareDatetime, Field

from libs.contracts.envelope import Frozen
from libs.contracts.evaluations import AbReport, Case, SuiteSummary
from libs.contracts.patterns import PatternDetail, PatternSummary
from libs.contracts.proposals import ProposalDetail, ProposalSummary
from libs.contracts.signals import EvidenceRef
from libs.contracts.versions import LivePrompt
from libs.contracts.vocabulary import (
    LongText,
    Name,
    ProposalState,
    Severity,
    ShortText,
    SignalType,
    Split,
    TouchpointId,
    VersionRef,
)


class Reply(Frozen):
    """What a query is answered with."""


ReplyT = TypeVar("ReplyT", bound=Reply)


class AnyQuery(Frozen):
    """One question. `subject` is `ask.<service>.<thing>.<verb>.v<major>`; `reply` is the model of the answer."""

    subject: ClassVar[str]
    reply: ClassVar[type[Reply]]


class Query(AnyQuery, Generic[ReplyT]):
    """A question that is answered with a `ReplyT`."""


# --- registry ---------------------------------------------------------------------------------------------


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


# --- scanner ----------------------------------------------------------------------------------------------


class EvidenceStates(Reply):
    """One state a reference, in the order asked: resolved, unresolvable, or unknown (source did not answer)."""

    states: tuple[str, ...]


class ResolveEvidence(Query[EvidenceStates]):
    """Does the evidence still exist where it was found? Pushed evidence resolves to itself."""

    subject: ClassVar[str] = "ask.scanner.evidence.resolve.v1"
    reply: ClassVar[type[Reply]] = EvidenceStates

    touchpoint_id: TouchpointId
    refs: tuple[EvidenceRef, ...] = Field(max_length=1_000)


class ScanRun(Frozen):
    """One run of one scanner."""

    run_id: UUID
    touchpoint_id: TouchpointId
    scanner: Name
    started_at: AwareDatetime
    duration_ms: float
    signals_emitted: int
    ok: bool
    error: ShortText | None = None


class ScanRuns(Reply):
    """Scanner runs, newest first."""

    runs: tuple[ScanRun, ...]


class ListScanRuns(Query[ScanRuns]):
    """The newest runs, of one touchpoint or of all."""

    subject: ClassVar[str] = "ask.scanner.runs.list.v1"
    reply: ClassVar[type[Reply]] = ScanRuns

    touchpoint_id: TouchpointId | None = None
    limit: int = Field(default=50, ge=1, le=500)


# --- normaliser -------------------------------------------------------------------------------------------


class StoredSignal(Frozen):
    """A signal as the normaliser keeps it."""

    signal_id: UUID
    touchpoint_id: ShortText
    workspace_id: UUID | None = None
    signal_type: SignalType | None = None
    severity: Severity | None = None
    evidence_ref: dict[str, Any]
    payload: dict[str, Any]
    actor_id: Name
    actor_kind: Name
    version_ref: VersionRef | None = None
    source_key: ShortText
    first_seen: AwareDatetime
    last_seen: AwareDatetime
    created_at: AwareDatetime
    processed_at: AwareDatetime | None = None
    rejected: Name | None = None
    reject_detail: ShortText | None = None


class SignalPage(Reply):
    """Signals, newest first; `next` is the cursor of the following page."""

    signals: tuple[StoredSignal, ...]
    next: Name | None = None


class ListSignals(Query[SignalPage]):
    """Signals by touchpoint and state."""

    subject: ClassVar[str] = "ask.normaliser.signals.list.v1"
    reply: ClassVar[type[Reply]] = SignalPage

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = Field(default=None, description="None: no limit by workspace")
    rejected: bool | None = None
    unprocessed: bool | None = None
    signal_id: UUID | None = None
    limit: int = Field(default=50, ge=1, le=500)
    cursor: Name | None = None


class TouchpointCounts(Frozen):
    """How many signals one touchpoint has, by state."""

    touchpoint_id: ShortText
    stored: int
    unprocessed: int
    rejected: int
    observed: int = Field(default=0, description="observations that took effect; the same signal may be seen again")


class SignalCounts(Reply):
    """Counts by touchpoint."""

    counts: tuple[TouchpointCounts, ...]


class CountSignals(Query[SignalCounts]):
    """How many signals there are."""

    subject: ClassVar[str] = "ask.normaliser.signals.count.v1"
    reply: ClassVar[type[Reply]] = SignalCounts

    touchpoint_id: TouchpointId | None = None


# --- pattern_detector -------------------------------------------------------------------------------------


class Patterns(Reply):
    """Patterns, highest score first."""

    patterns: tuple[PatternSummary, ...]


class ListPatterns(Query[Patterns]):
    """The top patterns of a touchpoint, or of all touchpoints since a time."""

    subject: ClassVar[str] = "ask.pattern_detector.patterns.list.v1"
    reply: ClassVar[type[Reply]] = Patterns

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = None
    since: datetime | None = None
    include_resolved: bool = False
    limit: int = Field(default=20, ge=1, le=500)


class PatternReply(Reply):
    """One pattern with its evidence."""

    pattern: PatternDetail


class GetPattern(Query[PatternReply]):
    """One pattern by id; refused with 404 when there is none."""

    subject: ClassVar[str] = "ask.pattern_detector.patterns.get.v1"
    reply: ClassVar[type[Reply]] = PatternReply

    pattern_id: UUID


class DetectorStatus(Reply):
    """How far the detector is: the signals in its projection, and its newest run."""

    signals: int
    unprocessed: int
    patterns: int
    heard: int = Field(default=0, description="`signal.created` events that took effect")
    last_run_id: UUID | None = None
    last_run_at: AwareDatetime | None = None
    last_request_id: UUID | None = None


class GetDetectorStatus(Query[DetectorStatus]):
    """The detector's view of one touchpoint, or of all."""

    subject: ClassVar[str] = "ask.pattern_detector.status.get.v1"
    reply: ClassVar[type[Reply]] = DetectorStatus

    touchpoint_id: TouchpointId | None = None


# --- proposal ---------------------------------------------------------------------------------------------


class Proposals(Reply):
    """Proposals, newest first."""

    proposals: tuple[ProposalSummary, ...]


class ListProposals(Query[Proposals]):
    """Proposals by touchpoint, state and pattern."""

    subject: ClassVar[str] = "ask.proposal.proposals.list.v1"
    reply: ClassVar[type[Reply]] = Proposals

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = None
    state: ProposalState | None = None
    pattern_id: UUID | None = None
    limit: int = Field(default=50, ge=1, le=500)


class ProposalReply(Reply):
    """One proposal, whole."""

    proposal: ProposalDetail


class GetProposal(Query[ProposalReply]):
    """One proposal by id; refused with 404 when there is none."""

    subject: ClassVar[str] = "ask.proposal.proposals.get.v1"
    reply: ClassVar[type[Reply]] = ProposalReply

    proposal_id: UUID


class ApproveProposal(Query[ProposalReply]):
    """Approve exactly the text with this hash. Refused (409) when the gate is not passed; the answer says why."""

    subject: ClassVar[str] = "ask.proposal.proposals.approve.v1"
    reply: ClassVar[type[Reply]] = ProposalReply

    proposal_id: UUID
    content_sha256: Name
    by: Name
    reason: ShortText = ""


class WaiveProposal(Query[ProposalReply]):
    """Waive an undecided verdict or a missing suite, by a named person with a reason."""

    subject: ClassVar[str] = "ask.proposal.proposals.waive.v1"
    reply: ClassVar[type[Reply]] = ProposalReply

    proposal_id: UUID
    by: Name
    reason: ShortText = Field(min_length=1)


class RejectProposal(Query[ProposalReply]):
    """Turn a proposal down; with `bad_signals`, its evidence leaves the pool."""

    subject: ClassVar[str] = "ask.proposal.proposals.reject.v1"
    reply: ClassVar[type[Reply]] = ProposalReply

    proposal_id: UUID
    by: Name
    reason: ShortText = Field(min_length=1)
    bad_signals: bool = False


# --- ab_runner --------------------------------------------------------------------------------------------


class SuiteReply(Reply):
    """One suite as it is listed."""

    suite: SuiteSummary


class ImportSuite(Query[SuiteReply]):
    """Make these cases the touchpoint's suite; the same content again changes nothing."""

    subject: ClassVar[str] = "ask.ab_runner.suites.import.v1"
    reply: ClassVar[type[Reply]] = SuiteReply

    touchpoint_id: TouchpointId
    cases: tuple[Case, ...] = Field(min_length=1, max_length=20_000)
    by: Name


class Suites(Reply):
    """Every touchpoint's current suite."""

    suites: tuple[SuiteSummary, ...]


class ListSuites(Query[Suites]):
    """The current suites."""

    subject: ClassVar[str] = "ask.ab_runner.suites.list.v1"
    reply: ClassVar[type[Reply]] = Suites

    touchpoint_id: TouchpointId | None = None


class DevCases(Reply):
    """Cases of the dev split only."""

    suite_sha256: Name | None = None
    cases: tuple[Case, ...] = ()


class GetDevCases(Query[DevCases]):
    """The dev split, for the writer of proposals. There is no query for the test split."""

    subject: ClassVar[str] = "ask.ab_runner.suites.dev_cases.v1"
    reply: ClassVar[type[Reply]] = DevCases

    touchpoint_id: TouchpointId
    limit: int = Field(default=2_000, ge=1, le=5_000)


class Leaks(Reply):
    """For each text asked about: does it hold a case of the test split?"""

    leaked: tuple[bool, ...]


class CheckLeaks(Query[Leaks]):
    """Ask whether texts contain gold cases, without ever seeing the gold."""

    subject: ClassVar[str] = "ask.ab_runner.suites.check_leaks.v1"
    reply: ClassVar[type[Reply]] = Leaks

    touchpoint_id: TouchpointId
    texts: tuple[LongText, ...] = Field(max_length=500)


class AbReports(Reply):
    """Runs, newest first."""

    runs: tuple[AbReport, ...]


class ListRuns(Query[AbReports]):
    """Runs by touchpoint and proposal, without the ids of their flips and without figures by label."""

    subject: ClassVar[str] = "ask.ab_runner.runs.list.v1"
    reply: ClassVar[type[Reply]] = AbReports

    touchpoint_id: TouchpointId | None = None
    workspace_ids: tuple[UUID, ...] | None = None
    proposal_id: UUID | None = None
    limit: int = Field(default=50, ge=1, le=500)


class AbReportReply(Reply):
    """One run."""

    run: AbReport


class GetRun(Query[AbReportReply]):
    """One run by id; refused with 404 when there is none."""

    subject: ClassVar[str] = "ask.ab_runner.runs.get.v1"
    reply: ClassVar[type[Reply]] = AbReportReply

    run_id: UUID


class SuiteCoverage(Reply):
    """The hash of the touchpoint's current suite, which an approval must match."""

    suite_sha256: Name | None
    split: Split = "test"
    n: int = 0


class GetSuiteCoverage(Query[SuiteCoverage]):
    """Which suite holds now."""

    subject: ClassVar[str] = "ask.ab_runner.suites.coverage.v1"
    reply: ClassVar[type[Reply]] = SuiteCoverage

    touchpoint_id: TouchpointId


# --- every service: its dead letters ----------------------------------------------------------------------


class DeadLetter(Frozen):
    """A message that could not be handled, and why. Its body stays with the service."""

    dead_letter_id: UUID
    service: Name
    consumer: Name
    subject: Name
    event_id: UUID | None = None
    error: ShortText
    error_class: Name
    deliveries: int
    failed_at: AwareDatetime
    replayed_at: AwareDatetime | None = None
    replay_count: int = 0
    bytes: int


class DeadLetters(Reply):
    """Dead letters, newest first."""

    dead_letters: tuple[DeadLetter, ...]


class ListDeadLetters(Query[DeadLetters]):
    """A service's dead letters. Asked as `ask.<service>.dead_letters.list.v1`."""

    reply: ClassVar[type[Reply]] = DeadLetters

    include_replayed: bool = False
    limit: int = Field(default=100, ge=1, le=1_000)


class Replayed(Reply):
    """What a replay came to."""

    outcome: Name
    detail: ShortText = ""


class ReplayDeadLetter(Query[Replayed]):
    """Hand a dead letter to its consumer again. Asked as `ask.<service>.dead_letters.replay.v1`."""

    reply: ClassVar[type[Reply]] = Replayed

    dead_letter_id: UUID
