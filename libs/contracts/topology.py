"""The one table of the bus: streams, durables, who says and who hears what, who asks whom.

Server configuration (accounts with their exports and imports), streams and durable consumers are all generated
from here (`libs.service_kit.nats_config`, `libs.service_kit.topology`); nothing else declares anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from libs.contracts import evaluations as ev
from libs.contracts import patterns as pa
from libs.contracts import proposals as pr
from libs.contracts import queries as q
from libs.contracts import signals as si
from libs.contracts import touchpoints as tp
from libs.contracts import versions as ve
from libs.contracts.envelope import EventData

DAY_S = 86_400


@dataclass(frozen=True)
class Stream:
    """A JetStream stream. Limits retention everywhere: an acknowledged event stays readable until `max_age_s`."""

    name: str
    subjects: tuple[str, ...]
    max_age_s: int
    max_bytes: int


@dataclass(frozen=True)
class Durable:
    """A durable pull consumer of one service for one event type.

    `ack_wait_s` seconds without an ack or a heartbeat bring the message back. `max_deliver` is a backstop far
    above the kit's own count of tries: before it is reached the kit has written a dead letter.
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
    """One row of the architecture's table of services."""

    name: str
    says: tuple[type[EventData], ...] = ()
    hears: tuple[Durable, ...] = ()
    answers: tuple[type[q.AnyQuery], ...] = ()
    asks: tuple[type[q.AnyQuery], ...] = ()
    manages_dead_letters: bool = field(default=False)


STREAMS: tuple[Stream, ...] = (
    Stream("REFINEMENT", ("refinement.>",), 30 * DAY_S, 8 * 1024**3),
    Stream("QA", ("qa.>",), 30 * DAY_S, 4 * 1024**3),
    Stream("WORK", ("work.>",), 7 * DAY_S, 2 * 1024**3),
    Stream("DLQ", ("dlq.>",), 90 * DAY_S, 2 * 1024**3),
    Stream(
        "ADVISORIES",
        (
            "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",
            "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>",
        ),
        30 * DAY_S,
        256 * 1024**2,
    ),
)


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
    return _hears(service, tp.TouchpointRegisteredV1, batch=50)


SERVICES: tuple[ServiceEntry, ...] = (
    ServiceEntry(
        "scanner",
        says=(si.SignalObservedV1, si.ScannerRunV1),
        hears=(
            *_registered("scanner"),
            *_hears("scanner", si.ScanRequestedV1),
            *_hears("scanner", ev.EvalRegressedV1, batch=20),
        ),
        answers=(q.ResolveEvidence, q.ListScanRuns),
    ),
    ServiceEntry(
        "normaliser",
        says=(si.SignalCreatedV1, si.SignalRejectedV1),
        hears=(
            *_registered("normaliser"),
            *_hears("normaliser", si.SignalObservedV1, batch=100, max_ack_pending=2_000),
            *_hears("normaliser", si.SignalProcessedV1, batch=10),
        ),
        answers=(q.ListSignals, q.CountSignals),
    ),
    ServiceEntry(
        "pattern_detector",
        says=(
            si.SignalProcessedV1,
            si.SignalRejectedV1,
            pa.PatternDetectedV1,
            pa.PatternChangedV1,
            pa.ActivationJudgedV1,
        ),
        hears=(
            *_registered("pattern_detector"),
            *_hears("pattern_detector", si.SignalCreatedV1, batch=100, max_ack_pending=2_000),
            *_hears("pattern_detector", pa.DetectRequestedV1, ack_wait_s=60.0),
            *_hears(
                "pattern_detector",
                pr.ProposalRejectedV1,
                ve.VersionActivatedV1,
                ve.VersionRolledBackV1,
                ve.ExposureRecordedV1,
                batch=20,
            ),
        ),
        answers=(q.ListPatterns, q.GetPattern, q.GetDetectorStatus),
        asks=(q.ResolveEvidence,),
    ),
    ServiceEntry(
        "proposal",
        says=(pr.ProposalGeneratedV1, pr.ProposalApprovedV1, pr.ProposalRejectedV1, pr.ProposalFailedV1),
        hears=(
            *_registered("proposal"),
            *_hears("proposal", pa.PatternDetectedV1, pr.ProposalRequestedV1, workers=2, ack_wait_s=60.0),
            *_hears("proposal", ev.AbExecutedV1, ve.VersionActivatedV1, ve.VersionRolledBackV1, batch=20),
        ),
        answers=(q.ListProposals, q.GetProposal, q.ApproveProposal, q.WaiveProposal, q.RejectProposal),
        asks=(q.GetPrompt, q.GetPattern, q.GetDevCases, q.CheckLeaks, q.GetSuiteCoverage),
    ),
    ServiceEntry(
        "ab_runner",
        says=(
            ev.AbExecutedV1,
            ev.EvalRegressedV1,
            ev.BaselinePromotedV1,
            ev.ShardRequestedV1,
        ),
        hears=(
            *_registered("ab_runner"),
            *_hears("ab_runner", ev.AbRequestedV1, ev.EvalRequestedV1),
            *_hears("ab_runner", ev.ShardRequestedV1, workers=4, ack_wait_s=60.0),
            *_hears("ab_runner", ve.VersionActivatedV1, ve.VersionRolledBackV1, batch=20),
        ),
        answers=(
            q.ImportSuite,
            q.ListSuites,
            q.GetDevCases,
            q.CheckLeaks,
            q.GetSuiteCoverage,
            q.ListRuns,
            q.GetRun,
        ),
        asks=(q.GetPrompt,),
    ),
    ServiceEntry(
        "registry",
        says=(
            tp.TouchpointRegisteredV1,
            ve.VersionActivatedV1,
            ve.VersionRolledBackV1,
            ve.RollbackProposedV1,
            ve.DriftDetectedV1,
            ve.ExposureRecordedV1,
            si.SignalObservedV1,
            si.ScanRequestedV1,
            pa.DetectRequestedV1,
            pr.ProposalRequestedV1,
            ev.AbRequestedV1,
            ev.EvalRequestedV1,
        ),
        hears=_hears("registry", pr.ProposalApprovedV1, pa.ActivationJudgedV1),
        answers=(q.GetPrompt,),
        asks=(
            q.ListScanRuns,
            q.ListSignals,
            q.CountSignals,
            q.ListPatterns,
            q.GetPattern,
            q.GetDetectorStatus,
            q.ListProposals,
            q.GetProposal,
            q.ApproveProposal,
            q.WaiveProposal,
            q.RejectProposal,
            q.ImportSuite,
            q.ListSuites,
            q.ListRuns,
            q.GetRun,
        ),
        manages_dead_letters=True,
    ),
    ServiceEntry("qa_ingest", says=(si.SignalObservedV1,), hears=_registered("qa_ingest")),
)

EVENTS: tuple[type[EventData], ...] = tuple(
    sorted({event for service in SERVICES for event in service.says}, key=lambda event: event.type)
)


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
