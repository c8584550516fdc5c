"""The ledger: `live`, `history`, `rollback`, `ledger`."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click

from burnish import answers, printer
from burnish.answers import read
from burnish.commands.show import short, when
from burnish.commands.verbs import Group, data_option, gateway, json_option, verb
from burnish.failure import FAILED, GATEWAY_EXITS, REFUSED, Failure
from burnish.parameters import INTEGER, MOMENT, NAME, TEXT, TOUCHPOINT_ID
from burnish.printer import plain, print_json, print_table, remark

WORKSPACE = click.option("--workspace", type=click.UUID, help="The workspace, for a workspace touchpoint.")


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    _add_live(group)
    _add_history(group)
    _add_rollback(group)
    ledger = Group("ledger", help="Read and verify the version ledger.")
    group.add_command(ledger)
    _add_ledger(ledger)


def _add_live(group: click.Group) -> None:
    @verb(
        group,
        "live",
        example="burnish live support.intent > prompt.md\nburnish live support.intent --at 2025-06-01T12:00:00+00:00",
        exits=GATEWAY_EXITS,
    )
    @click.argument("touchpoint", type=TOUCHPOINT_ID)
    @click.option("--at", type=MOMENT, help="What was live then (ISO 8601 with an offset) instead of now.")
    @WORKSPACE
    @data_option
    @json_option
    def live(touchpoint: str, at: str | None, workspace: UUID | None, data: Path, as_json: bool) -> None:
        """Print the prompt that is live; which version it is goes to stderr."""
        with gateway(data) as api:
            one = read(api.get(f"/touchpoints/{touchpoint}/live", at=at, workspace_id=workspace), answers.Live)
        if as_json:
            print_json(one)
            return
        remark(f"{one['version_ref']} of {one['touchpoint_id']}, sha256 {short(one['content_sha256'])}, since "
            f"{when(one['activated_at'])}")  # fmt: skip
        for part in one["parts"]:
            if len(one["parts"]) > 1:
                remark(f"--- {plain(part['path'])}")
            printer.exact(part["text"])


def _add_history(group: click.Group) -> None:
    @verb(group, "history", example="burnish history support.intent", exits=GATEWAY_EXITS)
    @click.argument("touchpoint", type=TOUCHPOINT_ID)
    @WORKSPACE
    @click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
    @data_option
    @json_option
    def history(touchpoint: str, workspace: UUID | None, limit: int, data: Path, as_json: bool) -> None:
        """List what was live when, by whom and for which proposal."""
        with gateway(data) as api:
            found = read(
                api.get(f"/touchpoints/{touchpoint}/versions", workspace_id=workspace, limit=limit), answers.History
            )
        if as_json:
            print_json(found)
            return
        rows = [
            [one["version_ref"], "live" if one["live"] else f"until {when(one['rolled_back_at'])}",
             when(one["activated_at"]), one["activated_by"], short(one["proposal_id"]), one["notes"]]
            for one in found["history"]
        ]  # fmt: skip
        print_table(["version", "state", "activated", "by", "proposal", "note"], rows)


def _add_rollback(group: click.Group) -> None:
    @verb(
        group,
        "rollback",
        example="burnish rollback si.relevance-scorer --reason 'scores dropped' --workspace 6b8e…",
        exits={
            **GATEWAY_EXITS,
            0: "rolled back; for a prompt in git: the change that a person merges is on stdout",
            REFUSED: "refused: there is nothing to go back to, or something else became live meanwhile",
        },
    )
    @click.argument("touchpoint", type=TOUCHPOINT_ID)
    @click.option("--reason", type=TEXT, required=True, help="Why; it is kept in the ledger.")
    @click.option("--to", "to_version", type=NAME, help="A version of `burnish history`.  [default: the one before]")
    @WORKSPACE
    @data_option
    @json_option
    def rollback(
        touchpoint: str, reason: str, to_version: str | None, workspace: UUID | None, data: Path, as_json: bool
    ) -> None:
        """Put an earlier version back.

        A prompt in the registry's own table is back when this returns. For a prompt in git you get the change to
        merge; once it is merged, the registry sees it and records the rollback.
        """
        body = {"reason": reason, "to_version": to_version, "workspace_id": str(workspace) if workspace else None}
        with gateway(data) as api:
            done = read(api.post(f"/touchpoints/{touchpoint}/rollback", body), answers.Rollback)
        if as_json:
            print_json(done)
        elif activated := done.get("activation"):
            remark(f"{activated['version_ref']} is live again")
        elif proposal := done.get("proposal"):
            _print_rollback(proposal)


def _print_rollback(proposal: answers.RollbackProposal) -> None:
    remark(plain(proposal["explanation"]))
    for warning in proposal["warnings"]:
        remark(f"note: {plain(warning)}")
    if proposal["revert_restores"]:
        remark(f"  git revert {proposal['revert_commit']}")
    printer.exact(proposal["diff"])  # a patch that git applies: not one byte may be another


def _add_ledger(ledger: click.Group) -> None:
    @verb(ledger, "list", example="burnish ledger list --touchpoint support.intent", exits=GATEWAY_EXITS)
    @click.option("--touchpoint", type=TOUCHPOINT_ID, metavar="ID", help="Only of this one.")
    @click.option("--before", type=INTEGER, help="Entries before this number.")
    @click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
    @data_option
    @json_option
    def list_(touchpoint: str | None, before: int | None, limit: int, data: Path, as_json: bool) -> None:
        """List the ledger's entries, newest first."""
        with gateway(data) as api:
            page = read(api.get("/ledger", touchpoint_id=touchpoint, before=before, limit=limit), answers.LedgerPage)
        if as_json:
            print_json(page)
            return
        rows = [
            [one["seq"], when(one["at"]), one["kind"], one["touchpoint_id"], one["version_ref"], one["by"],
             one["reason"], short(one["entry_sha256"])]
            for one in page["entries"]
        ]  # fmt: skip
        print_table(["no.", "at", "what", "touchpoint", "version", "by", "reason", "sha256"], rows)
        if page["next"]:
            remark(f"more: --before {page['next']}")

    @verb(
        ledger,
        "verify",
        example="burnish ledger verify",
        exits={**GATEWAY_EXITS, 0: "every entry is as it was written", 1: "the chain is broken"},
    )
    @data_option
    @json_option
    def verify(data: Path, as_json: bool) -> None:
        """Recompute the hash chain over every entry."""
        with gateway(data) as api:
            outcome = read(api.get("/ledger/verify"), answers.Verification)
        if as_json:
            print_json(outcome)
        if not outcome["intact"]:
            raise Failure(f"the ledger is broken at entry {outcome['broken_at']}: {outcome['problem']}", code=FAILED)
        if not as_json:
            remark(f"{outcome['entries']} entries, intact; the head is {outcome['head_sha256']}")
