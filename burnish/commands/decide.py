"""Decide: `proposals`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, get_args
from uuid import UUID

import click

from burnish import answers, printer
from burnish.answers import read
from burnish.commands.show import when
from burnish.commands.verbs import Group, data_option, gateway, json_option, verb
from burnish.failure import FAILED, GATEWAY_EXITS, REFUSED, Failure
from burnish.parameters import SHA256, TEXT, TOUCHPOINT_ID
from burnish.printer import answer, plain, print_diff, print_fields, print_json, print_table, remark
from libs.contracts.vocabulary import ProposalState

if TYPE_CHECKING:
    from burnish.client import Gateway

COMMIT_WAIT_S = 5.0
MERGED = 2
POLL_S = 0.1
PROPOSAL = click.argument("proposal_id", type=click.UUID)
REASON = click.option("--reason", type=TEXT, required=True, help="Why; it is kept with the proposal.")


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    proposals = Group("proposals", help="Read proposed prompt changes and decide on them.")
    group.add_command(proposals)
    _add_looking(proposals)
    _add_create(proposals)
    _add_approve(proposals)
    _add_turning_down(proposals)


def _add_looking(proposals: click.Group) -> None:
    @verb(proposals, "list", example="burnish proposals list --state generated", exits=GATEWAY_EXITS)
    @click.option("--touchpoint", type=TOUCHPOINT_ID, metavar="ID", help="Only of this one.")
    @click.option("--state", type=click.Choice(get_args(ProposalState)), help="Only in this state.")
    @click.option("--pattern", type=click.UUID, help="Only for this pattern.")
    @click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
    @data_option
    @json_option
    def list_(
        touchpoint: str | None, state: str | None, pattern: UUID | None, limit: int, data: Path, as_json: bool
    ) -> None:
        """List proposals, newest first."""
        with gateway(data) as api:
            asked = {"touchpoint_id": touchpoint, "state": state, "pattern_id": str(pattern) if pattern else None}
            found = read(api.get("/proposals", **asked, limit=limit), answers.Proposals)["proposals"]
        if as_json:
            print_json(found)
            return
        rows = [
            [one["proposal_id"], one["touchpoint_id"], one["pattern_title"], one["state"], one["hunk_count"],
             _verdict(one["ab"]), when(one["created_at"])]
            for one in found
        ]  # fmt: skip
        print_table(["proposal", "touchpoint", "pattern", "state", "hunks", "A/B", "made"], rows)

    @verb(proposals, "show", example="burnish proposals show 5b7e…", exits=GATEWAY_EXITS)
    @PROPOSAL
    @data_option
    @json_option
    def show(proposal_id: UUID, data: Path, as_json: bool) -> None:
        """Show one proposal: why, the change, what was measured, what was decided."""
        with gateway(data) as api:
            one = read(api.get(f"/proposals/{proposal_id}"), answers.WholeProposal)
        if as_json:
            print_json(one)
        else:
            _print_proposal(one)


def _add_create(proposals: click.Group) -> None:
    @verb(
        proposals,
        "create",
        example="burnish proposals create 8a51…",
        exits={**GATEWAY_EXITS, 0: "asked; the proposal appears in `burnish proposals list --pattern …`"},
    )
    @click.argument("pattern_id", type=click.UUID)
    @data_option
    @json_option
    def create(pattern_id: UUID, data: Path, as_json: bool) -> None:
        """Ask for a proposal for a pattern."""
        with gateway(data) as api:
            asked = read(api.post("/proposals", {"pattern_id": str(pattern_id)}), answers.Requested)
        if as_json:
            print_json(asked)
        else:
            remark(f"asked; see `burnish proposals list --pattern {pattern_id}`")


def _add_approve(proposals: click.Group) -> None:
    @verb(
        proposals,
        "approve",
        example="burnish proposals approve 5b7e… --reason 'two points better, no label worse'",
        exits={
            **GATEWAY_EXITS,
            0: "approved; the registry activates it, or proposes the commit that a person merges",
            FAILED: "it failed, or is approved and cannot be committed; stderr says why",
            REFUSED: "refused: the gate is not passed, or the text is not the one that was read",
        },
    )
    @PROPOSAL
    @click.option(
        "--sha256", type=SHA256, help="The hash of the text you read.  [default: you are shown the change and asked]"
    )
    @click.option("--reason", type=TEXT, default="", help="Why.")
    @click.option("--yes", is_flag=True, help="Approve what the proposal holds now without being asked.")
    @data_option
    @json_option
    def approve(proposal_id: UUID, sha256: str | None, reason: str, yes: bool, data: Path, as_json: bool) -> None:
        """Approve exactly the text that you have read."""
        with gateway(data) as api:
            if sha256 is None:
                one = read(api.get(f"/proposals/{proposal_id}"), answers.ReadProposal)
                sha256 = one["content_sha256"]
                if not yes:
                    _ask(one)
            decision = {"content_sha256": sha256, "reason": reason}
            done = read(api.post(f"/proposals/{proposal_id}/approve", decision), answers.Approved)
            intent = _committed(api, done)
        _told(done, as_json)
        _say_committed(intent)


def _add_turning_down(proposals: click.Group) -> None:
    @verb(proposals, "reject", example="burnish proposals reject 5b7e… --reason 'too narrow'", exits=GATEWAY_EXITS)
    @PROPOSAL
    @REASON
    @data_option
    @json_option
    def reject(proposal_id: UUID, reason: str, data: Path, as_json: bool) -> None:
        """Turn a proposal down; its evidence stays."""
        with gateway(data) as api:
            decision = {"reason": reason, "bad_signals": False}
            done = read(api.post(f"/proposals/{proposal_id}/reject", decision), answers.Decided)
        _told(done, as_json)

    @verb(
        proposals,
        "bad-signals",
        example="burnish proposals bad-signals 5b7e… --reason 'the flags are of one test account'",
        exits=GATEWAY_EXITS,
    )
    @PROPOSAL
    @REASON
    @data_option
    @json_option
    def bad_signals(proposal_id: UUID, reason: str, data: Path, as_json: bool) -> None:
        """Turn a proposal down because its evidence is bad: it leaves the pool."""
        with gateway(data) as api:
            decision = {"reason": reason, "bad_signals": True}
            done = read(api.post(f"/proposals/{proposal_id}/reject", decision), answers.Decided)
        _told(done, as_json)

    @verb(
        proposals,
        "waive",
        example="burnish proposals waive 5b7e… --reason 'no suite for this yet'",
        exits=GATEWAY_EXITS,
    )
    @PROPOSAL
    @REASON
    @data_option
    @json_option
    def waive(proposal_id: UUID, reason: str, data: Path, as_json: bool) -> None:
        """Let a proposal be approved without a verdict, in your name."""
        with gateway(data) as api:
            done = read(api.post(f"/proposals/{proposal_id}/waive", {"reason": reason}), answers.Decided)
        _told(done, as_json)


def _ask(one: answers.ReadProposal) -> None:
    """Show the change on stderr and ask; without a terminal there is nobody to ask."""
    if not printer.can_ask():
        raise click.UsageError("nobody can be asked here: give --sha256 of the text that was read, or --yes")
    remark(one["diff"])
    remark(f"A/B: {_verdict(one['ab'])}")
    if not printer.confirmed(f"Approve {one['proposal_id']}?"):
        raise Failure("it is not approved: you did not say yes", "nothing was changed")


def _committed(api: Gateway, approved: answers.Approved) -> answers.OwnIntent | None:
    """What became of a change that a person merges: its intent, once it has a commit or cannot. None elsewhere."""
    touchpoint = approved["touchpoint_id"]
    merged = read(api.get(f"/touchpoints/{touchpoint}"), answers.Tiered)["tier"] == MERGED
    deadline = time.monotonic() + COMMIT_WAIT_S
    while merged and time.monotonic() < deadline:
        for intent in read(api.get(f"/touchpoints/{touchpoint}/intents"), answers.OwnIntents)["intents"]:
            if intent["proposal_id"] == approved["proposal_id"] and intent["state"] != "recorded":
                return intent
        time.sleep(POLL_S)
    return None


def _say_committed(intent: answers.OwnIntent | None) -> None:
    if intent is None:
        return
    if intent["state"] == "failed":
        again = f"`burnish touchpoints confirm {intent['touchpoint_id']}` tries again"
        raise Failure(f"it is approved, and not committed: {intent.get('error')}", again, FAILED)
    if (branch := intent.get("branch")) and intent["state"] == "open":
        remark(f"its commit waits on the branch {plain(branch)}; merge it to make it live")


def _told(done: answers.Decided, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        remark(f"{done['proposal_id']} is {done['state']}")


def _verdict(outcome: answers.Outcome | None) -> str:
    if outcome is None:
        return "not run"
    return f"{outcome['verdict']} (+{outcome['gained']} −{outcome['lost']})"


def _print_proposal(one: answers.WholeProposal) -> None:
    print_fields(
        [
            ("proposal", one["proposal_id"]),
            ("touchpoint", one["touchpoint_id"]),
            ("pattern", f"{one['pattern_title']} ({one['pattern_id']})" if one["pattern_id"] else None),
            ("state", one["state"]),
            ("author", one["author"]),
            ("made", when(one["created_at"])),
            ("base", one["base_version_ref"]),
            ("sha256", one["content_sha256"]),
            ("A/B", _verdict(one["ab"])),
            ("failure", one["failure"]),
        ]
    )
    answer(f"\n{one['rationale']}\n")
    print_diff(one["diff"])
    for risk in one["risks"]:
        answer(f"risk: {plain(risk)}")
    for decision in one["decisions"]:
        answer(f"{when(decision['at'])} {decision['action']} by {plain(decision['by'])}: {plain(decision['reason'])}")
