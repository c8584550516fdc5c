"""The parts of the gateway's answers that the verbs rely on. What else an answer has is kept for `--json`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from burnish.failure import Failure

Document = dict[str, Any]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
ShapeT = TypeVar("ShapeT")


def read(answer: Any, shape: type[ShapeT]) -> ShapeT:
    """The answer as it came, if it has what `shape` says. Raises `Failure` with what is missing or of another kind."""
    try:
        _adapter(shape).validate_python(answer, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the answer"
        raise Failure(
            f"the gateway's answer cannot be used: {place}: {first['msg']}",
            "check BURNISH_URL, and that the gateway and this command line are of one version",
        ) from error
    return answer  # type: ignore[no-any-return]


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


class Storage(TypedDict):
    """Where a prompt is."""

    adapter: str


class TouchpointName(TypedDict):
    """What every answer with a touchpoint has."""

    id: str


class Change(TypedDict):
    """One field of a plan."""

    field: str


class Planned(TypedDict):
    """What is, or was, done to one touchpoint."""

    touchpoint_id: str
    action: str
    revision: int
    changes: list[Change]
    live: str | None


class Plan(TypedDict):
    """A plan, or what was applied."""

    touchpoints: list[Planned]


class Source(TypedDict):
    """One scanner of a touchpoint."""

    scanner: str


class WithSignals(TypedDict):
    """A touchpoint's scanners."""

    signals: list[Source]


class Sources(TypedDict):
    """A touchpoint, as far as its scanners go."""

    touchpoint: WithSignals


class Tiered(TypedDict):
    """A touchpoint, as far as it matters how a change takes effect: 1 at once, 2 when a person merges it."""

    tier: int


class WithScope(TypedDict):
    """A touchpoint's id and scope."""

    id: str
    scope: str


class Scoped(TypedDict):
    """A touchpoint, as far as its scope goes."""

    touchpoint: WithScope


class Scopes(TypedDict):
    """Every touchpoint's scope."""

    touchpoints: list[Scoped]


class ListedTouchpoint(TypedDict):
    """A touchpoint in a list."""

    id: str
    scope: str
    storage: Storage


class Listed(TypedDict):
    """One line of the list."""

    touchpoint: ListedTouchpoint
    revision: int
    registered_by: str
    updated_at: str


class Touchpoints(TypedDict):
    """Every touchpoint."""

    touchpoints: list[Listed]


class WholeStorage(Storage):
    """Where a prompt is, to the file."""

    repository: str | None
    paths: list[str]


class WholeTouchpoint(TypedDict):
    """A touchpoint's configuration."""

    id: str
    description: str
    scope: str
    storage: WholeStorage
    signals: list[Source]
    suite: Document | None


class Registered(TypedDict):
    """A registered touchpoint."""

    touchpoint: WholeTouchpoint
    revision: int
    registered_by: str
    updated_at: str


class ExaminedTouchpoint(TypedDict):
    """What the doctor looks at."""

    id: str
    active: bool
    suite: Document | None


class Examined(TypedDict):
    """One touchpoint for the doctor, whole."""

    touchpoint: ExaminedTouchpoint


class ExaminedTouchpoints(TypedDict):
    """Every touchpoint for the doctor."""

    touchpoints: list[Examined]


class Counts(TypedDict):
    """Signals by state."""

    stored: int
    unprocessed: int
    rejected: int


class Detector(TypedDict):
    """The detector's view."""

    signals: int
    patterns: int


class LiveVersion(TypedDict):
    """Which version is live."""

    version_ref: str
    activated_at: str


class Status(TypedDict):
    """How a touchpoint stands."""

    signals: Counts
    detector: Detector
    live: LiveVersion | None


class Intent(TypedDict):
    """A change that a person merges, as `touchpoints confirm` lists it."""

    kind: str
    state: str
    branch: str | None
    proposal_id: str | None
    reason: str
    updated_at: str | None
    error: str | None


class Intents(TypedDict):
    """Changes that wait."""

    intents: list[Intent]


class OwnIntent(TypedDict):
    """What became of an approved change."""

    proposal_id: str | None
    touchpoint_id: str
    state: str
    branch: NotRequired[str | None]
    error: NotRequired[str | None]


class OwnIntents(TypedDict):
    """Changes of one touchpoint."""

    intents: list[OwnIntent]


class ScanRun(TypedDict):
    """One run of a scanner."""

    run_id: str
    scanner: str
    signals_emitted: int
    ok: bool
    error: str | None


class ScanRuns(TypedDict):
    """Runs, newest first."""

    runs: list[ScanRun]


class Signal(TypedDict):
    """One signal of a list."""

    signal_id: str
    touchpoint_id: str
    signal_type: str | None
    severity: str | None
    actor_id: str
    rejected: str | None
    processed_at: str | None
    last_seen: str


class SignalPage(TypedDict):
    """One page of signals."""

    signals: list[Signal]
    next: str | None


class WholeSignal(TypedDict):
    """A signal with what it holds."""

    signal_id: str
    evidence_ref: Document
    payload: Document


class WholeSignals(TypedDict):
    """Those that were asked for by id."""

    signals: list[WholeSignal]


class Accepted(TypedDict):
    """What the gateway has stored."""

    signal_ids: list[str]


class Pattern(TypedDict):
    """One pattern of a list."""

    pattern_id: str
    touchpoint_id: str
    title: str
    state: str
    evidence_count: int
    actors: int
    score: float


class Patterns(TypedDict):
    """Patterns, the highest score first."""

    patterns: list[Pattern]


class Evidence(TypedDict):
    """One signal of a pattern."""

    signal_type: str
    text: str
    reason: str
    expected: str | None
    got: str | None


class WholePattern(Pattern):
    """A pattern with its strongest evidence."""

    strategy: str
    expected: str | None
    got: str | None
    human_actors: int
    machine_cases: int
    single_actor: bool
    automatic: bool
    evidence: list[Evidence]


class Outcome(TypedDict):
    """What an A/B run said."""

    verdict: str
    gained: int
    lost: int


class Proposal(TypedDict):
    """One proposal of a list."""

    proposal_id: str
    touchpoint_id: str
    pattern_title: str
    state: str
    hunk_count: int
    ab: Outcome | None
    created_at: str


class Proposals(TypedDict):
    """Proposals, newest first."""

    proposals: list[Proposal]


class Decision(TypedDict):
    """What somebody decided."""

    action: str
    by: str
    reason: str
    at: str


class WholeProposal(TypedDict):
    """A proposal as it is read."""

    proposal_id: str
    touchpoint_id: str
    pattern_id: str | None
    pattern_title: str
    state: str
    author: str
    created_at: str
    base_version_ref: str | None
    content_sha256: str
    ab: Outcome | None
    failure: str | None
    rationale: str
    diff: str
    risks: list[str]
    decisions: list[Decision]


class ReadProposal(TypedDict):
    """What is shown before an approval."""

    proposal_id: str
    content_sha256: str
    diff: str
    ab: Outcome | None


class Decided(TypedDict):
    """A proposal after a decision."""

    proposal_id: str
    state: str


class Approved(Decided):
    """A proposal after its approval."""

    touchpoint_id: str


class Suite(TypedDict):
    """One suite."""

    touchpoint_id: str
    suite_sha256: str
    dev_cases: int
    test_cases: int
    labels: int
    imported_at: str
    smallest_detectable_effect: float | None


class Suites(TypedDict):
    """Every suite."""

    suites: list[Suite]


class WaitingCase(TypedDict):
    """A published pair that waits to be a case."""

    pair_id: str
    touchpoint_id: str
    version: int
    input: str
    answer_preview: str
    published_at: str


class WaitingCases(TypedDict):
    """Those that wait."""

    cases: list[WaitingCase]
    counts: dict[str, int]


class LibraryHit(TypedDict):
    """A row of a search in the library."""

    kind: str
    id: str
    question: str
    answer_preview: str
    similarity: float | None
    match_strength: str
    rank_method: str
    publication_status: str


class LibraryHits(TypedDict):
    """What a search found."""

    results: list[LibraryHit]
    total: int


class LibraryChunk(TypedDict):
    """A passage of a document, or with `--pairs` a pair, which has a question and the beginning of its answer."""

    kind: str
    id: str
    similarity: float | None
    match_strength: str
    text: NotRequired[str]
    section_path: NotRequired[list[str]]
    object_key: NotRequired[str]
    question: NotRequired[str]
    answer_preview: NotRequired[str]


class LibraryChunks(TypedDict):
    """What a search among passages found."""

    results: list[LibraryChunk]
    total: int


class FeedbackKept(TypedDict):
    """The verdict that is kept."""

    feedback_id: str
    changed: bool


class MatchedQuestion(TypedDict):
    """A question of a list or a form, with the best pair there is."""

    question: str
    match: LibraryHit | None
    place: str | None
    outcome: str | None
    why: str


class FilledForm(TypedDict):
    """A filled form that can be fetched."""

    form_id: Annotated[str, Field(pattern=r"^[0-9a-f-]{36}$")]
    bytes: int
    sha256: str


class MatchResults(TypedDict):
    """What was found for each question."""

    format: str
    questions: list[MatchedQuestion]
    filled: int
    form: FilledForm | None
    notices: list[str]


class PairVersion(TypedDict):
    """A line of a pair's history."""

    version: int
    change_type: str
    changed_by: str
    changed_at: str
    change_reason: str
    operation_id: str


class Pair(TypedDict):
    """A pair of the library, verbatim."""

    id: str
    kind: str
    version: int
    question: str
    alternate_phrasings: list[str]
    answer_standard: str
    answer_advanced: str | None
    publication_status: str
    superseded_by: str | None
    history: list[PairVersion]


class CuratedPair(TypedDict):
    """A pair that was changed, and by which operation."""

    operation_id: str
    pair: Pair


class CuratedPairs(TypedDict):
    """Several pairs that one operation changed."""

    operation_id: str
    pairs: list[Pair]


class PairDeleted(TypedDict):
    """A pair that is gone."""

    operation_id: str
    pair_id: str


class Suggestion(TypedDict):
    """What somebody should decide."""

    suggestion_id: str
    kind: str
    state: str
    question: str | None
    other_question: str | None
    created_by: str
    created_at: str


class SuggestionReply(TypedDict):
    """One suggestion."""

    suggestion: Suggestion


class SuggestionDecided(TypedDict):
    """A suggestion that was decided on, and what was changed."""

    suggestion: Suggestion
    operation_id: str | None
    pairs: list[Pair]


class Suggestions(TypedDict):
    """What waits for a decision."""

    suggestions: list[Suggestion]


class DueReview(TypedDict):
    """A pair whose review is due."""

    pair_id: str
    version: int
    question: str
    review_status: str | None
    due_at: str
    overdue: bool


class Reviews(TypedDict):
    """Which reviews are due."""

    reviews: list[DueReview]


class LibraryDocument(TypedDict):
    """A version of a file that came into the library."""

    document_id: str
    bucket: str
    object_key: str
    state: str
    extractor: str | None
    code: str | None
    pairs: int
    rejects: int
    received_at: str


class LibraryDocuments(TypedDict):
    """Everything that came in."""

    documents: list[LibraryDocument]


class ExtractionEstimate(TypedDict):
    """What reading a file with a model would take, at most."""

    model: str
    characters: int
    calls: int
    answered_before: int
    most_usd: str


class FollowedObject(TypedDict):
    """An object that was looked at, and what came of it."""

    workspace_id: str
    bucket: str
    object_key: str
    outcome: str
    document_id: str | None


class FollowedAnswer(TypedDict):
    """What came of a file; None while pieces are missing."""

    followed: FollowedObject | None


class BucketObject(TypedDict):
    """An object of a bucket."""

    workspace_id: str
    bucket: str
    object_key: str


class BucketObjects(TypedDict):
    """What is in a bucket."""

    objects: list[BucketObject]
    more: bool


class IngestReport(TypedDict):
    """What became of every passage of a document."""

    document: LibraryDocument
    outcome: str
    problems: list[Document]
    notices: list[Document]
    rejects: list[Document]
    losses: Document | None


class Requested(TypedDict):
    """What was asked for, and will be done."""

    request_id: str


class RunRequested(TypedDict):
    """An A/B run that was asked for."""

    run_id: str


class Metric(TypedDict):
    """One metric of both variants."""

    name: str
    a: float
    b: float
    delta: float
    ci95: Interval
    effect_size: float | None
    method: str
    is_primary: bool


class Flips(TypedDict):
    """Cases that went one way or the other."""

    gained: list[str]
    lost: list[str]


class AbRun(TypedDict):
    """An A/B run and its report."""

    run_id: str
    touchpoint_id: str
    status: Literal["queued", "running", "completed", "failed"]
    label_a: str
    label_b: str
    a_sha256: str
    b_sha256: str
    split: str
    n: int
    cases_done: int
    cases_total: int
    verdict: str | None
    reason: str
    error: str | None
    metrics: list[Metric]
    flips: Flips
    finished_at: str | None


class Part(TypedDict):
    """One text of a prompt."""

    path: str
    text: str


class Live(TypedDict):
    """The live prompt."""

    touchpoint_id: str
    version_ref: str
    content_sha256: str
    activated_at: str
    parts: list[Part]


class Activation(TypedDict):
    """One line of a history."""

    version_ref: str
    live: bool
    activated_at: str
    activated_by: str
    rolled_back_at: str | None
    proposal_id: str | None
    notes: str


class History(TypedDict):
    """What was live when."""

    history: list[Activation]


class ActivatedNow(TypedDict):
    """What is live after a rollback."""

    version_ref: str


class RollbackProposal(TypedDict):
    """How a person gets an earlier version back."""

    explanation: str
    warnings: list[str]
    revert_restores: bool
    revert_commit: str
    diff: str


class ExportedPairs(TypedDict):
    """A page of the library's pairs, with the keys of a bundle."""

    pairs: list[dict[str, Any]]
    next: str | None
    superseded: int
    sensitive: int


class LegacyImported(TypedDict):
    """What became of an older platform's rows."""

    imported: int
    there_already: int
    operation_id: str


class Rollback(TypedDict):
    """Done at once, or for a person to do."""

    tier: Literal[1, 2]
    activation: NotRequired[ActivatedNow | None]
    proposal: NotRequired[RollbackProposal | None]


class LedgerEntry(TypedDict):
    """One line of the ledger."""

    seq: int
    at: str
    kind: str
    touchpoint_id: str
    version_ref: str | None
    by: str
    reason: str
    entry_sha256: str


class LedgerPage(TypedDict):
    """One page of the ledger."""

    entries: list[LedgerEntry]
    next: int | None


class Verification(TypedDict):
    """What a verification found."""

    intact: bool
    entries: int
    head_sha256: str
    broken_at: int | None
    problem: str
    table: str
    row: str
    columns: list[str]
    next: str | None


class LedgerHead(TypedDict):
    """Where the ledger ends, signed."""

    format: str
    seq: int
    entries: int
    entry_sha256: str
    at: str
    signed_at: str
    public_key: str | None
    signature: str | None


class DeadLetter(TypedDict):
    """One message that could not be handled."""

    dead_letter_id: str
    service: str
    subject: str
    error: str
    deliveries: int
    failed_at: str
    replayed_at: str | None


class DeadLetters(TypedDict):
    """Dead letters, and the services that did not answer."""

    dead_letters: list[DeadLetter]
    unavailable: list[str]


class Replayed(TypedDict):
    """What became of a replay."""

    outcome: str
    detail: str


class Standing(TypedDict):
    """One caller's budget of today."""

    caller: str
    used: str
    left: str
    per_day: str
    per_touchpoint_day: str


class SpentDay(TypedDict):
    """What a caller's calls of a model for a touchpoint cost in a day."""

    day: str
    caller: str
    touchpoint_id: str
    provider: str
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    usd: str
    open_calls: int
    open_usd: str


class SpentCall(TypedDict):
    """One call of a model."""

    call_id: str
    caller: str
    touchpoint_id: str
    provider: str
    model: str
    started_at: str
    finished_at: str | None
    input_tokens: int | None
    output_tokens: int | None
    usd: str | None
    error: str | None


class AllSpending(TypedDict):
    """What was spent on models."""

    budgets: list[Standing]
    days: list[SpentDay]
    calls: list[SpentCall]
