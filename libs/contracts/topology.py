"""The one table of the bus: streams, durables, who says and who hears what, who asks whom.

Server configuration (accounts with their exports and imports), streams and durable consumers are all generated
from here (`libs.provisioning.nats_config`, `libs.provisioning.topology`); nothing else declares anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from libs.contracts.envelope import EventData
from libs.contracts.events.ab_runner import (
    AbExecutedV1,
    AbRequestedV1,
    AbRequestedV2,
    BaselinePromotedV1,
    EvalRegressedV1,
    EvalRequestedV1,
    ShardRequestedV1,
)
from libs.contracts.events.agents import AgentSavedV1
from libs.contracts.events.bucket_store import ObjectNotifiedV1
from libs.contracts.events.gateway import ExposureRecordedV1
from libs.contracts.events.normaliser import SignalCreatedV1, SignalObservedV1, SignalRejectedV1
from libs.contracts.events.pattern_detector import (
    ActivationJudgedV1,
    DetectRequestedV1,
    PatternChangedV1,
    PatternDetectedV1,
    SignalProcessedV1,
)
from libs.contracts.events.proposal import (
    ProposalApprovedV1,
    ProposalFailedV1,
    ProposalGeneratedV1,
    ProposalRejectedV1,
    ProposalRequestedV1,
)
from libs.contracts.events.qa_ingest import (
    QaDocumentDeletedV1,
    QaDocumentIngestedV1,
    QaDocumentRejectedV1,
    QaExtractionCreatedV1,
    QaExtractionInvalidatedV1,
    QaPairArchivedV1,
    QaPairCreatedV1,
    QaPairPublishedV1,
    QaPairSupersededV1,
    QaPairUnpublishedV1,
    QaPairUpdatedV1,
)
from libs.contracts.events.registry import (
    DriftDetectedV1,
    RollbackProposedV1,
    TouchpointRegisteredV1,
    VersionActivatedV1,
    VersionRolledBackV1,
)
from libs.contracts.events.scanner import ScannerRunV1, ScanRequestedV1
from libs.contracts.queries.ab_runner import (
    CheckLeaks,
    GetDevCases,
    GetRun,
    GetRunSpending,
    GetSuiteCoverage,
    ImportSuite,
    ListRuns,
    ListSuites,
    ListWaitingCases,
)
from libs.contracts.queries.agents import (
    ApplyAgentCatalog,
    CreateAgent,
    GetAgent,
    GetAgentCatalog,
    GetAgentVersion,
    GetFlag,
    GetRefineSpending,
    ListAgents,
    ListAgentVersions,
    PreviewAgent,
    RefineAgent,
    RevertAgent,
    SetFlag,
    UpdateAgent,
)
from libs.contracts.queries.base import AnyQuery
from libs.contracts.queries.normaliser import CountSignals, ListSignals
from libs.contracts.queries.pattern_detector import GetDetectorStatus, GetPattern, ListPatterns
from libs.contracts.queries.proposal import (
    ApproveProposal,
    GetProposal,
    GetProposalSpending,
    ListProposals,
    RejectProposal,
    WaiveProposal,
)
from libs.contracts.queries.qa_curation import COMMANDS as CURATION
from libs.contracts.queries.qa_forms import GetFormPart, MatchForm, MatchQuestions, PutFormPart
from libs.contracts.queries.qa_ingest import (
    EstimateExtraction,
    ExportPairs,
    FollowObject,
    GetIngestReport,
    GetPair,
    GiveFeedback,
    ImportLegacyPairs,
    ListDocuments,
    ListObjects,
    SearchChunks,
    SearchPairs,
    UploadDocument,
)
from libs.contracts.queries.registry import (
    ActivateVersion,
    ApplyTouchpoints,
    ConfirmIntents,
    GetLedgerHead,
    GetPrompt,
    GetStanding,
    GetTouchpoint,
    ListIntents,
    ListLedger,
    ListTouchpoints,
    ListVersions,
    PlanTouchpoints,
    RecordVersion,
    RollBack,
    VerifyLedger,
)
from libs.contracts.queries.scanner import ListScanRuns, ResolveEvidence

DAY_S = 86_400


@dataclass(frozen=True)
class Stream:
    """A JetStream stream. Limits retention everywhere: an acknowledged event stays readable until `max_age_s`.

    `percent` is its part of the room that the bus has. One whose facts are `relied_on` takes no more when it is full,
    so that they wait in their senders' outboxes; another drops its oldest.
    """

    name: str
    subjects: tuple[str, ...]
    max_age_s: int
    percent: int
    relied_on: bool = True


@dataclass(frozen=True)
class Durable:
    """A durable pull consumer of one service for one event type.

    `ack_wait_s` seconds without an ack or a heartbeat bring the message back. `max_deliver` is a backstop far
    above the kit's own count of tries: before it is reached the kit has written a dead letter. With `workers`
    above 1 so many messages, or batches, are handled at a time, and their order is not kept.
    """

    service: str
    event: type[EventData]
    batch: int = 1
    workers: int = 1
    ack_wait_s: float = 30.0
    max_deliver: int = 1_000
    max_ack_pending: int = 1_000

    @property
    def name(self) -> str:
        """`<service>-<event type with underscores>`, e.g. `normaliser-refinement_signal_observed_v1`."""
        return f"{self.service}-{self.event.type.replace('.', '_')}"

    @property
    def stream(self) -> str:
        """The stream that holds this event type."""
        return stream_of(self.event.type)


@dataclass(frozen=True)
class ServiceEntry:
    """One row of the architecture's table of services.

    `hears` is by a durable that the replicas share. `overhears` is without one: each replica hears every fact as it
    goes by, and none that was said while it was away.
    """

    name: str
    says: tuple[type[EventData], ...] = ()
    hears: tuple[Durable, ...] = ()
    overhears: tuple[type[EventData], ...] = ()
    answers: tuple[type[AnyQuery], ...] = ()
    asks: tuple[type[AnyQuery], ...] = ()
    manages_dead_letters: bool = field(default=False)


@dataclass(frozen=True)
class Outsider:
    """Somebody with an account on the bus who is no service of ours: may say these facts, and nothing else.

    With `own_streams` its account has streams of its own, apart from ours: nothing leads from there to here.
    """

    name: str
    says: tuple[type[EventData], ...] = ()
    own_streams: bool = False


STREAMS: tuple[Stream, ...] = (
    Stream("REFINEMENT", ("refinement.>",), 30 * DAY_S, 50),
    Stream("QA", ("qa.>",), 30 * DAY_S, 20),
    Stream("WORK", ("work.>",), 7 * DAY_S, 10),
    Stream("BUCKET", ("bucket.>",), 7 * DAY_S, 2, relied_on=False),  # hints: a listing catches what is lost
    Stream("DLQ", ("dlq.>",), 90 * DAY_S, 14, relied_on=False),  # the record is the table of each service
    Stream(
        "ADVISORIES",
        (
            "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",
            "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>",
        ),
        30 * DAY_S,
        4,
        relied_on=False,
    ),
)
ADVISORIES = "ADVISORIES"


def stream_of(subject: str) -> str:
    """The stream whose subjects take `subject` in. Raises KeyError for a subject outside the table."""
    head = subject.split(".", 1)[0]
    for stream in STREAMS:
        if f"{head}.>" in stream.subjects:
            return stream.name
    raise KeyError(f"no stream takes the subject {subject!r}")


def dead_letter_subject(service: str) -> str:
    """Where a service puts what it could not handle."""
    return f"dlq.{service}.dead_lettered.v1"


def _hears(service: str, *events: type[EventData], **options: float) -> tuple[Durable, ...]:
    return tuple(Durable(service, event, **options) for event in events)  # type: ignore[arg-type]


def _registered(service: str) -> tuple[Durable, ...]:
    return _hears(service, TouchpointRegisteredV1, batch=50)


SERVICES: tuple[ServiceEntry, ...] = (
    ServiceEntry(
        "scanner",
        says=(SignalObservedV1, ScannerRunV1),
        hears=(
            *_registered("scanner"),
            *_hears("scanner", ScanRequestedV1),
            *_hears("scanner", EvalRegressedV1, batch=20),
        ),
        answers=(ResolveEvidence, ListScanRuns),
    ),
    ServiceEntry(
        "normaliser",
        says=(SignalCreatedV1, SignalRejectedV1),
        hears=(
            *_registered("normaliser"),
            *_hears("normaliser", SignalObservedV1, batch=50, workers=2, max_ack_pending=2_000),
            *_hears("normaliser", SignalProcessedV1, batch=10),
        ),
        answers=(ListSignals, CountSignals),
    ),
    ServiceEntry(
        "pattern_detector",
        says=(
            SignalProcessedV1,
            SignalRejectedV1,
            PatternDetectedV1,
            PatternChangedV1,
            ActivationJudgedV1,
        ),
        hears=(
            *_registered("pattern_detector"),
            *_hears("pattern_detector", SignalCreatedV1, batch=100, max_ack_pending=2_000),
            *_hears("pattern_detector", DetectRequestedV1, ack_wait_s=60.0),
            *_hears(
                "pattern_detector",
                ProposalRejectedV1,
                VersionActivatedV1,
                VersionRolledBackV1,
                ExposureRecordedV1,
                batch=20,
            ),
        ),
        answers=(ListPatterns, GetPattern, GetDetectorStatus),
        asks=(ResolveEvidence,),
    ),
    ServiceEntry(
        "proposal",
        says=(ProposalGeneratedV1, ProposalApprovedV1, ProposalRejectedV1, ProposalFailedV1),
        hears=(
            *_registered("proposal"),
            *_hears("proposal", PatternDetectedV1, ProposalRequestedV1, workers=2, ack_wait_s=60.0),
            *_hears("proposal", AbExecutedV1, VersionActivatedV1, VersionRolledBackV1, batch=20),
        ),
        answers=(ListProposals, GetProposal, ApproveProposal, WaiveProposal, RejectProposal, GetProposalSpending),
        asks=(GetPrompt, GetPattern, GetDevCases, CheckLeaks, GetSuiteCoverage),
    ),
    ServiceEntry(
        "ab_runner",
        says=(
            AbExecutedV1,
            EvalRegressedV1,
            BaselinePromotedV1,
            ShardRequestedV1,
        ),
        hears=(
            *_registered("ab_runner"),
            *_hears("ab_runner", AbRequestedV1, AbRequestedV2, EvalRequestedV1),
            *_hears("ab_runner", ShardRequestedV1, workers=4, ack_wait_s=60.0),
            *_hears("ab_runner", VersionActivatedV1, VersionRolledBackV1, batch=20),
            *_hears(
                "ab_runner", QaPairPublishedV1, QaPairArchivedV1, QaPairSupersededV1, QaPairUnpublishedV1, batch=50
            ),
        ),
        answers=(
            ImportSuite,
            ListSuites,
            GetDevCases,
            CheckLeaks,
            GetSuiteCoverage,
            ListRuns,
            GetRun,
            ListWaitingCases,
            GetRunSpending,
        ),
        asks=(GetPrompt, GetProposal),
    ),
    ServiceEntry(
        "registry",
        says=(
            TouchpointRegisteredV1,
            VersionActivatedV1,
            VersionRolledBackV1,
            RollbackProposedV1,
            DriftDetectedV1,
        ),
        hears=_hears("registry", ProposalApprovedV1, ActivationJudgedV1),
        answers=(
            GetPrompt,
            GetTouchpoint,
            ListTouchpoints,
            PlanTouchpoints,
            ApplyTouchpoints,
            GetStanding,
            ListVersions,
            RecordVersion,
            ActivateVersion,
            RollBack,
            ListIntents,
            ConfirmIntents,
            ListLedger,
            GetLedgerHead,
            VerifyLedger,
        ),
    ),
    ServiceEntry(
        "gateway",
        says=(
            SignalObservedV1,
            ExposureRecordedV1,
            ScanRequestedV1,
            DetectRequestedV1,
            ProposalRequestedV1,
            AbRequestedV1,  # said by an earlier gateway; heard as long as the stream may hold one
            AbRequestedV2,
            EvalRequestedV1,
        ),
        overhears=(TouchpointRegisteredV1, VersionActivatedV1, VersionRolledBackV1),
        asks=(
            SearchPairs,
            MatchQuestions,
            PutFormPart,
            MatchForm,
            GetFormPart,
            SearchChunks,
            GiveFeedback,
            GetPair,
            ListDocuments,
            GetIngestReport,
            ExportPairs,
            UploadDocument,
            EstimateExtraction,
            ListObjects,
            FollowObject,
            GetProposalSpending,
            GetRunSpending,
            *CURATION,
            ImportLegacyPairs,
            ListScanRuns,
            ListSignals,
            CountSignals,
            ListPatterns,
            GetPattern,
            GetDetectorStatus,
            ListProposals,
            GetProposal,
            ApproveProposal,
            WaiveProposal,
            RejectProposal,
            ImportSuite,
            ListSuites,
            ListWaitingCases,
            ListRuns,
            GetRun,
            GetPrompt,
            GetTouchpoint,
            ListTouchpoints,
            PlanTouchpoints,
            ApplyTouchpoints,
            GetStanding,
            ListVersions,
            RecordVersion,
            ActivateVersion,
            RollBack,
            ListIntents,
            ConfirmIntents,
            ListLedger,
            GetLedgerHead,
            VerifyLedger,
            ListAgents,
            GetAgent,
            CreateAgent,
            UpdateAgent,
            RevertAgent,
            ListAgentVersions,
            GetAgentVersion,
            GetAgentCatalog,
            ApplyAgentCatalog,
            GetFlag,
            SetFlag,
            RefineAgent,
            PreviewAgent,
            GetRefineSpending,
        ),
        manages_dead_letters=True,
    ),
    ServiceEntry(
        "agents",
        says=(AgentSavedV1,),
        hears=_registered("agents"),
        answers=(
            ListAgents,
            GetAgent,
            CreateAgent,
            UpdateAgent,
            RevertAgent,
            ListAgentVersions,
            GetAgentVersion,
            GetAgentCatalog,
            ApplyAgentCatalog,
            GetFlag,
            SetFlag,
            RefineAgent,
            PreviewAgent,
            GetRefineSpending,
        ),
    ),
    ServiceEntry(
        "qa_ingest",
        says=(
            SignalObservedV1,
            QaDocumentIngestedV1,
            QaDocumentRejectedV1,
            QaDocumentDeletedV1,
            QaExtractionCreatedV1,
            QaExtractionInvalidatedV1,
            QaPairCreatedV1,
            QaPairUpdatedV1,
            QaPairPublishedV1,
            QaPairArchivedV1,
            QaPairSupersededV1,
            QaPairUnpublishedV1,
        ),
        hears=(
            *_registered("qa_ingest"),
            *_hears("qa_ingest", ObjectNotifiedV1, batch=20, ack_wait_s=60.0),
        ),
        answers=(
            SearchPairs,
            SearchChunks,
            GiveFeedback,
            GetPair,
            ListDocuments,
            GetIngestReport,
            ExportPairs,
            ImportLegacyPairs,
            UploadDocument,
            EstimateExtraction,
            ListObjects,
            FollowObject,
            MatchQuestions,
            PutFormPart,
            MatchForm,
            GetFormPart,
            *CURATION,
        ),
    ),
)

OUTSIDERS: tuple[Outsider, ...] = (
    Outsider("bucket_store", says=(ObjectNotifiedV1,)),
    Outsider("qa_buckets", own_streams=True),
)
"""A store that tells what was put into it, and whoever reads and fills the NATS object stores that feed the library."""

SPEAKERS: tuple[ServiceEntry | Outsider, ...] = (*SERVICES, *OUTSIDERS)

EVENTS: tuple[type[EventData], ...] = tuple(
    sorted({event for each in SPEAKERS for event in each.says}, key=lambda event: event.type)
)


def bus_users() -> tuple[str, ...]:
    """Everybody who has a user on the bus, beside who keeps it; each is alone in an account."""
    return tuple(each.name for each in SPEAKERS)


def service(name: str) -> ServiceEntry:
    """The row of one service. Raises KeyError naming those that exist."""
    for entry in SERVICES:
        if entry.name == name:
            return entry
    raise KeyError(f"no service {name!r}; there are {', '.join(entry.name for entry in SERVICES)}")


def durable(service_name: str, event: type[EventData]) -> Durable:
    """The durable with which a service hears an event. Raises KeyError when the table has none."""
    for entry in service(service_name).hears:
        if entry.event is event:
            return entry
    raise KeyError(f"the topology does not let {service_name!r} hear {event.type!r}: add it to SERVICES")


def dead_letter_list_subject(service_name: str) -> str:
    """Where `ListDeadLetters` is asked of a service."""
    return f"ask.{service_name}.dead_letters.list.v1"


def dead_letter_replay_subject(service_name: str) -> str:
    """Where `ReplayDeadLetter` is asked of a service."""
    return f"ask.{service_name}.dead_letters.replay.v1"


def dead_letter_bury_subject(service_name: str) -> str:
    """Where `BuryStranded` is asked of a service, by the bus's own account alone."""
    return f"ask.{service_name}.dead_letters.bury.v1"
