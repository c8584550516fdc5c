"""The ledger: `live`, `history`, `rollback`, `ledger`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click

from burnish import answers, printer
from burnish.answers import read
from burnish.commands.show import short, when
from burnish.commands.verbs import Group, data_option, gateway, json_option, verb
from burnish.failure import FAILED, GATEWAY_EXITS, REFUSED, Failure
from burnish.ledger_head import read_head, require_signature, trusted_key
from burnish.parameters import FILE, INTEGER, MOMENT, NAME, TEXT, TOUCHPOINT_ID
from burnish.printer import plain, print_fields, print_json, print_table, remark

if TYPE_CHECKING:
    from burnish.client import Gateway
    from libs.contracts.versions import LedgerHead

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
        "head",
        example="burnish ledger head --json > head.json",
        exits={**GATEWAY_EXITS, REFUSED: "refused: the recorded end does not fit the last entry"},
    )
    @data_option
    @json_option
    def head(data: Path, as_json: bool) -> None:
        """Print where the ledger ends, signed, to be kept elsewhere.

        Whoever may write every table can write the ledger anew. A head that is kept where they cannot write shows it:
        `burnish ledger verify --head FILE`.
        """
        with gateway(data) as api:
            found = read(api.get("/ledger/head"), answers.LedgerHead)
        if found["signature"] is None:
            remark("it is not signed: the registry has no key (BURNISH_LEDGER_KEY)")
        if as_json:
            print_json(found)
            return
        print_fields([(name.replace("_", " "), value) for name, value in found.items()])

    @verb(
        ledger,
        "verify",
        example="burnish ledger verify\nburnish ledger verify --head head.json --public-key ledger_key.pub",
        exits={
            **GATEWAY_EXITS,
            0: "the ledger is as it was written, and the tables are as it says",
            1: "something is not; the first line or row is named",
        },
    )
    @click.option(
        "--head",
        "kept",
        type=FILE,
        help="A head that was kept: today's ledger has to go through it.",
    )
    @click.option("--public-key", type=TEXT, metavar="KEY", help="Who signed it: the key, or a file with it.")
    @click.option("--unsigned", is_flag=True, help="Take a head without a signature.")
    @data_option
    @json_option
    def verify(kept: Path | None, public_key: str | None, unsigned: bool, data: Path, as_json: bool) -> None:
        """Recompute the ledger, and compare every row that it implies with it."""
        if kept is None and (public_key is not None or unsigned):
            raise click.UsageError("--public-key and --unsigned are about a head: name its file with --head")
        known = None if kept is None else read_head(kept)
        with gateway(data) as api:
            if known is not None:
                require_signature(known, trusted_key(public_key, data, partial(_its_key, api)), unsigned)
            outcome = _verified(api, known)
        if as_json:
            print_json(outcome)
        if not outcome["intact"]:
            where = "" if outcome["broken_at"] is None else f" at entry {outcome['broken_at']}"
            raise Failure(f"the ledger is broken{where}: {outcome['problem']}", code=FAILED)
        if not as_json:
            through = f", and goes through the head at entry {known.seq}" if known else ""
            remark(f"{outcome['entries']} entries, intact{through}; the head is {outcome['head_sha256']}")


def _verified(api: Gateway, known: LedgerHead | None) -> answers.Verification:
    """Ask until all of it was looked at, or something is wrong."""
    through = {} if known is None else {"head_seq": known.seq, "head_sha256": known.entry_sha256}
    outcome = read(api.get("/ledger/verify", **through), answers.Verification)
    while outcome["intact"] and outcome["next"] is not None:
        remark(f"{outcome['entries']} entries so far")
        outcome = read(api.get("/ledger/verify", cursor=outcome["next"], **through), answers.Verification)
    return outcome


def _its_key(api: Gateway) -> str | None:
    return read(api.get("/ledger/head"), answers.LedgerHead)["public_key"]
