"""What a proposal is, who may decide what about it and when, and what it may cost. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID, uuid5

from pydantic import BaseModel, ConfigDict

from libs.contracts.envelope import EVENT_NAMESPACE, MAX_EVENT_BYTES
from libs.contracts.events.ab_runner import AbExecutedV1
from libs.contracts.events.proposal import ProposalApprovedV1
from libs.contracts.patterns import PatternDetail
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.proposals import AbOutcome, Decision, ExpectedImpact, Hunk, ProposalDetail
from libs.contracts.touchpoints import Approvals
from libs.contracts.versions import LivePrompt
from libs.contracts.vocabulary import ProposalState
from services.proposal import hunks as hunk_rules

AUTHOR = "proposal-generator"
NO_TEXT = "0" * 64
"""The hash of a failed proposal for which no prompt could be read."""

UNDECIDED: tuple[ProposalState, ...] = ("generated", "in_review", "revised")
"""States in which people may still decide."""

OPEN: tuple[ProposalState, ...] = (*UNDECIDED, "approved", "activating")
"""States that keep a second proposal for the same pattern away."""

TRANSITIONS: Mapping[ProposalState, frozenset[ProposalState]] = {
    "generated": frozenset({"in_review", "revised", "approved", "rejected", "bad_signals", "stale"}),
    "in_review": frozenset({"revised", "approved", "rejected", "bad_signals", "stale"}),
    "revised": frozenset({"in_review", "revised", "approved", "rejected", "bad_signals", "stale"}),
    "approved": frozenset({"activating", "activated", "rolled_back", "stale"}),
    "activating": frozenset({"activated", "rolled_back", "stale"}),
    "activated": frozenset({"activated", "rolled_back"}),
    # The ledger's word is a fact: what it activates is live, whatever was thought of it here.
    "stale": frozenset({"activated", "rolled_back"}),
    "rolled_back": frozenset({"activated", "rolled_back"}),
    "rejected": frozenset(),
    "bad_signals": frozenset(),
    "failed": frozenset(),
}


def sources_of(state: ProposalState) -> tuple[ProposalState, ...]:
    """The states from which a proposal may come to `state`."""
    return tuple(source for source, targets in TRANSITIONS.items() if state in targets)


# --- a proposal -------------------------------------------------------------------------------------------


class Content(BaseModel):
    """What a proposal says: the text it starts from, its hunks, the text they give, and why."""

    model_config = ConfigDict(frozen=True)

    base_parts: tuple[PromptPart, ...] = ()
    parts: tuple[PromptPart, ...] = ()
    hunks: tuple[Hunk, ...] = ()
    rationale: str = ""
    expected_impact: tuple[ExpectedImpact, ...] = ()
    risks: tuple[str, ...] = ()
    review_guidance: str = ""


EMPTY = Content()


class Recorded(Decision):
    """A decision and the text it was about: what was decided about another text does not count."""

    content_sha256: str


def outcome_of(run: AbExecutedV1) -> AbOutcome:
    """What a run means for its proposal. One that came to no verdict has failed."""
    verdict = run.verdict if run.status == "completed" and run.verdict else "failed"
    return AbOutcome.model_validate({**run.model_dump(), "verdict": verdict})


@dataclass(frozen=True)
class Spend:
    """What the model calls of a proposal used."""

    input_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal = Decimal(0)


@dataclass(frozen=True)
class Proposal:
    """One proposal with all that is known of it. `ab` is the newest run of exactly this text."""

    proposal_id: UUID
    touchpoint_id: str
    workspace_id: UUID | None
    pattern_id: UUID | None
    pattern_title: str
    commission: str
    state: ProposalState
    author: str
    model: str
    base_version_ref: str | None
    base_sha256: str
    content_sha256: str
    content: Content
    evidence_refs: tuple[UUID, ...]
    flags: tuple[str, ...]
    failure: str | None
    created_at: datetime
    ab: AbOutcome | None = None
    decisions: tuple[Recorded, ...] = ()
    spend: Spend = Spend()

    @property
    def approvers(self) -> tuple[str, ...]:
        """Who approved exactly this text, in order."""
        return tuple(one.by for one in self._about_this_text("approved"))

    @property
    def waiver(self) -> str | None:
        """`<name>: <reason>` of the newest waiver for exactly this text."""
        waivers = self._about_this_text("waived")
        return f"{waivers[-1].by}: {waivers[-1].reason}"[:2_000] if waivers else None

    def _about_this_text(self, action: str) -> list[Recorded]:
        return [one for one in self.decisions if one.action == action and one.content_sha256 == self.content_sha256]


def proposal_id(pattern_id: UUID, commission: str, base_sha256: str) -> UUID:
    """The same commission for the same text is the same proposal, however often it is delivered."""
    return uuid5(EVENT_NAMESPACE, f"proposal|{pattern_id}|{commission}|{base_sha256}")


@dataclass(frozen=True)
class Commission:
    """Who or what asked for a proposal: `occurrence <n>` of the pattern, or `request <id>` of a person."""

    pattern: PatternDetail
    key: str
    by: str

    @classmethod
    def of_occurrence(cls, pattern: PatternDetail, occurrence: int) -> Commission:
        """The pattern surfaced and is strong enough."""
        return cls(pattern, f"occurrence {occurrence}", AUTHOR)

    @classmethod
    def of_request(cls, pattern: PatternDetail, request_id: UUID, by: str) -> Commission:
        return cls(pattern, f"request {request_id}", by)


@dataclass(frozen=True)
class Draft:
    """What a writer made of a commission: a change, or the reason why there is none."""

    content: Content = EMPTY
    failure: str | None = None
    model: str = "none"
    evidence_refs: tuple[UUID, ...] = ()


def new_proposal(commission: Commission, live: LivePrompt | None, draft: Draft, at: datetime) -> Proposal:
    """A proposal in its first state: generated, or failed with a reason."""
    base = live.content_sha256 if live else NO_TEXT
    pattern = commission.pattern
    return Proposal(
        proposal_id=proposal_id(pattern.pattern_id, commission.key, base),
        touchpoint_id=pattern.touchpoint_id,
        workspace_id=pattern.workspace_id,
        pattern_id=pattern.pattern_id,
        pattern_title=pattern.title,
        commission=commission.key,
        state="failed" if draft.failure else "generated",
        author=AUTHOR,
        model=draft.model,
        base_version_ref=live.version_ref if live else None,
        base_sha256=base,
        content_sha256=content_sha256(draft.content.parts) if draft.content.parts else base,
        content=draft.content,
        evidence_refs=draft.evidence_refs,
        flags=flags(draft.content.hunks),
        failure=draft.failure,
        created_at=at,
    )


def revised(proposal: Proposal, live: LivePrompt) -> Proposal | None:
    """The proposal on top of the text that is live now; None when its hunks no longer apply there.

    An approved text is never changed under those who approved it.
    """
    if proposal.state not in UNDECIDED:
        return None
    content = proposal.content
    parts = hunk_rules.rebase(content.base_parts, content.hunks, live.parts)
    if parts is None:
        return None
    moved = replace(
        proposal,
        state="revised",
        base_version_ref=live.version_ref,
        base_sha256=live.content_sha256,
        content_sha256=content_sha256(parts),
        content=content.model_copy(update={"base_parts": live.parts, "parts": parts}),
        ab=None,
    )
    return moved if fits_the_bus(moved.content) else None


def detail_of(proposal: Proposal) -> ProposalDetail:
    """The proposal as reviewers read it."""
    content = proposal.content
    return ProposalDetail(
        proposal_id=proposal.proposal_id,
        touchpoint_id=proposal.touchpoint_id,
        workspace_id=proposal.workspace_id,
        pattern_id=proposal.pattern_id,
        pattern_title=proposal.pattern_title,
        state=proposal.state,
        author=proposal.author,
        hunk_count=len(content.hunks),
        base_version_ref=proposal.base_version_ref,
        base_sha256=proposal.base_sha256,
        content_sha256=proposal.content_sha256,
        ab=proposal.ab,
        flags=proposal.flags,
        created_at=proposal.created_at,
        hunks=content.hunks,
        parts=content.parts,
        diff=hunk_rules.unified_diff(content.base_parts, content.parts),
        rationale=content.rationale,
        expected_impact=content.expected_impact,
        risks=content.risks,
        review_guidance=content.review_guidance,
        evidence_refs=proposal.evidence_refs,
        decisions=tuple(Decision.model_validate(one.model_dump()) for one in proposal.decisions),
        failure=proposal.failure,
        model=proposal.model,
        input_tokens=proposal.spend.input_tokens,
        output_tokens=proposal.spend.output_tokens,
        usd=proposal.spend.usd,
    )


def approved_fact(proposal: Proposal) -> ProposalApprovedV1:
    """What is said once the last approver has approved."""
    return ProposalApprovedV1(
        proposal_id=proposal.proposal_id,
        touchpoint_id=proposal.touchpoint_id,
        workspace_id=proposal.workspace_id,
        pattern_id=proposal.pattern_id,
        parts=proposal.content.parts,
        content_sha256=proposal.content_sha256,
        base_version_ref=proposal.base_version_ref,
        base_sha256=proposal.base_sha256,
        ab_run_id=proposal.ab.run_id if proposal.ab and proposal.ab.verdict != "failed" else None,
        approved_by=proposal.approvers,
        waiver=proposal.waiver,
        title=proposal.pattern_title,
        rationale=proposal.content.rationale,
        hunks=proposal.content.hunks,
    )


MOST_CONTENT_BYTES = MAX_EVENT_BYTES - 128 * 1024
"""The approval carries every part and hunk in one event; the rest is room for names, reasons and the envelope."""


def fits_the_bus(content: Content) -> bool:
    """Whether the approval of this content would fit into one event."""
    return content_bytes(content) <= MOST_CONTENT_BYTES


def content_bytes(content: Content) -> int:
    """The size in UTF-8 bytes of what an approval says of the content."""
    return len(content.model_dump_json(exclude={"base_parts"}).encode())


# --- marks ------------------------------------------------------------------------------------------------

_URL = re.compile(
    r"[a-z][a-z0-9+.-]*://|\bwww\.|\b(?:mailto|javascript|data):\S|"
    r"\b[a-z0-9-]+\.(?:com|net|org|io|ai|app|dev|co|info|biz|xyz|ru|cn|top|me|ly)\b|"
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b",
    re.IGNORECASE,
)
_TOOL = re.compile(
    r"\b(?:allowed[_ -]?tools?|tools?|functions?|mcp(?:[_ -]?servers?)?|permissions?)\s*[:=]|"
    r"\b(?:use|call|run|invoke|execute|enable|grant|allow|open|access)\w*\b.{0,40}"
    r"\b(?:tools?|functions?|plugins?|mcp|shell|bash|terminal|command line|browser|web search|internet|code|"
    r"files?|database|credentials?|api)\b",
    re.IGNORECASE,
)
_OVERRIDE = re.compile(
    r"\b(?:ignore|disregard|forget|override|overrule|bypass|skip)\b.{0,60}"
    r"\b(?:previous|prior|above|earlier|preceding|instructions?|prompts?|rules?|guidelines?|everything|all|text)\b|"
    r"\b(?:system|developer)\s+(?:prompt|message|mode|instructions?)\b|"
    r"\b(?:you are now|from now on|pretend (?:to be|you)|jailbreak|new instructions?)\b|"
    r"<\|.*?\|>|\[/?inst\]|</?(?:system|assistant|instructions?|prompt)\b",
    re.IGNORECASE,
)
_MARKS = {"adds_url": _URL, "adds_tool_grant": _TOOL, "adds_override": _OVERRIDE}


def flags(hunks: Iterable[Hunk]) -> tuple[str, ...]:
    """Why a second person must approve: what the added lines bring in. Wide nets: a mark costs one more look."""
    text = " ".join(line.text for hunk in hunks for line in hunk_rules.added(hunk))
    folded = " ".join(unicodedata.normalize("NFKC", text).split())
    return tuple(name for name, pattern in _MARKS.items() if pattern.search(folded))


# --- the gate ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class No:
    """Why not, as a stable word and a sentence that says what would be right."""

    code: str
    detail: str
    status: int = 409


@dataclass(frozen=True)
class Now:
    """What holds at this moment elsewhere: the hash of the live text and of the touchpoint's suite."""

    live_sha256: str
    suite_sha256: str | None


def undecided_or_no(proposal: Proposal) -> No | None:
    """People decide only while a proposal is undecided."""
    if proposal.state in UNDECIDED:
        return None
    return No("state", f"the proposal is {proposal.state}; only {', '.join(UNDECIDED)} can be decided")


def may_approve(proposal: Proposal, by: str, text_sha256: str, approvals: Approvals) -> No | None:
    """Whether this person may approve this text, the evidence aside."""
    if no := undecided_or_no(proposal):
        return no
    if text_sha256 != proposal.content_sha256:
        return No("other_text", f"the proposal's text is {proposal.content_sha256}; read it again, then approve that")
    if approvals.four_eyes and by == proposal.author:
        return No("own_proposal", "the author of a proposal cannot approve it; another person must")
    if by in proposal.approvers:
        return No("already_approved", f"{by} has approved this text already; another person must")
    return None


def gate(proposal: Proposal, now: Now) -> No | None:
    """Whether the evidence suffices: an A/B of exactly this text, against what is live, on the current suite."""
    if proposal.base_sha256 != now.live_sha256:
        return No("base_moved", "another version went live since; read the proposal again")
    ab = proposal.ab if proposal.ab and proposal.ab.b_sha256 == proposal.content_sha256 else None
    if ab is None or ab.verdict == "failed":
        return None if proposal.waiver else _needs_waiver(now, "no A/B run of this text was completed")
    if ab.a_sha256 != proposal.base_sha256:
        return No("ab_outdated", "the A/B run compared with a text that is not live any more; run it again")
    if now.suite_sha256 is not None and ab.suite_sha256 != now.suite_sha256:
        return No("ab_outdated", "the suite changed since the A/B run; run it again")
    if ab.verdict == "worse":
        return No("ab_worse", f"A/B run {ab.run_id} found the text worse; it cannot be approved, nor waived")
    if now.suite_sha256 is None or ab.verdict == "undecided":
        why = "the A/B run was undecided" if now.suite_sha256 else "the touchpoint has no suite any more"
        return None if proposal.waiver else _needs_waiver(now, why)
    return None


def may_waive(proposal: Proposal) -> No | None:
    """A waiver stands in for evidence that is missing or undecided, never for evidence against."""
    if no := undecided_or_no(proposal):
        return no
    if proposal.ab and proposal.ab.a_sha256 == proposal.base_sha256 and proposal.ab.verdict == "worse":
        return No("ab_worse", f"A/B run {proposal.ab.run_id} found the text worse; that cannot be waived")
    return None


def approvals_needed(proposal: Proposal, approvals: Approvals) -> int:
    """One more person than the touchpoint asks for when the text is marked, so at least two."""
    return approvals.required + (1 if proposal.flags else 0)


def _needs_waiver(now: Now, why: str) -> No:
    run = "run an A/B, or waive it with a reason" if now.suite_sha256 else "there is no suite: waive it with a reason"
    return No("needs_waiver", f"{why}: {run}")


# --- spend ------------------------------------------------------------------------------------------------
