"""Operate: `dlq`, `token`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

import click

from burnish import answers, printer
from burnish.answers import read
from burnish.commands.show import when
from burnish.commands.verbs import Group, data_option, gateway, json_option, verb
from burnish.failure import EXITS, FAILED, GATEWAY_EXITS, NOT_FOUND, Failure
from burnish.parameters import NAME, Seconds
from burnish.printer import print_fields, print_json, print_table, remark
from libs.auth.rights import ROLES, SCOPES

if TYPE_CHECKING:
    from burnish.client import Gateway

TOKEN_ROLES = (*ROLES, "service")
MOST_LETTERS = 1_000


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    dlq = Group("dlq", help="See messages that could not be handled, and replay them.")
    group.add_command(dlq)
    _add_dlq(dlq)
    _add_replay(dlq)
    _add_token(group)


def _add_dlq(dlq: click.Group) -> None:
    @verb(
        dlq,
        "list",
        example="burnish dlq list --json",
        exits={**GATEWAY_EXITS, 0: "these are all", FAILED: "it failed, or a service did not answer and is missing"},
    )
    @click.option("--all", "include_replayed", is_flag=True, help="Those that were replayed, too.")
    @click.option("--limit", type=click.IntRange(1, MOST_LETTERS), default=50, show_default=True)
    @data_option
    @json_option
    def list_(include_replayed: bool, limit: int, data: Path, as_json: bool) -> None:
        """List dead letters of every service, newest first."""
        with gateway(data) as api:
            found = read(api.get("/dead-letters", include_replayed=include_replayed, limit=limit), answers.DeadLetters)
        if as_json:
            print_json(found)
            _require_all(found)
            return
        rows = [
            [one["dead_letter_id"], one["service"], one["subject"], one["error"], one["deliveries"],
             when(one["failed_at"]), when(one["replayed_at"])]
            for one in found["dead_letters"]
        ]  # fmt: skip
        headings = ["dead letter", "service", "subject", "error", "deliveries", "failed", "replayed"]
        print_table(headings, rows, empty="no dead letters")
        _require_all(found)

    @verb(dlq, "show", example="burnish dlq show 0c1d…", exits=GATEWAY_EXITS)
    @click.argument("dead_letter_id", type=click.UUID)
    @data_option
    @json_option
    def show(dead_letter_id: UUID, data: Path, as_json: bool) -> None:
        """Show one dead letter: where it failed, why, how often it was tried. Its body stays with its service."""
        with gateway(data) as api:
            one = _letter(api, dead_letter_id)
        if as_json:
            print_json(one)
        else:
            print_fields(list(one.items()))


def _add_replay(dlq: click.Group) -> None:
    @verb(
        dlq,
        "replay",
        example="burnish dlq replay 0c1d…\nburnish dlq replay --all",
        exits={**GATEWAY_EXITS, 0: "handled now", 1: "one failed again; it stays"},
    )
    @click.argument("dead_letter_id", type=click.UUID, required=False)
    @click.option("--all", "every", is_flag=True, help="All that were not replayed, the oldest first.")
    @data_option
    @json_option
    def replay(dead_letter_id: UUID | None, every: bool, data: Path, as_json: bool) -> None:
        """Hand a dead letter to its consumer again; the inbox keeps its effect single."""
        if (dead_letter_id is None) != every:
            raise click.UsageError("give a dead letter, or --all")
        waiting: answers.DeadLetters | None = None
        with gateway(data) as api:
            if every:
                waiting = read(api.get("/dead-letters", limit=MOST_LETTERS), answers.DeadLetters)
                letters = waiting["dead_letters"][::-1]
            else:
                assert dead_letter_id is not None
                letters = [_letter(api, dead_letter_id)]
            outcomes = [_replayed(api, letter) for letter in letters]
        if as_json:
            print_json(outcomes)
        for one in outcomes:
            remark(f"{one['dead_letter_id']}: {one['outcome']} {one['detail']}".rstrip())
        if not outcomes:
            remark("no dead letters")
        if waiting is not None:
            _require_all(waiting)
        if any(one["outcome"] != "handled" for one in outcomes):
            raise Failure("not every dead letter could be handled", "`burnish dlq list` names the reasons", FAILED)


def _replayed(api: Gateway, letter: answers.DeadLetter) -> dict[str, Any]:
    service, identity = quote(letter["service"], safe=""), quote(letter["dead_letter_id"], safe="")
    answer = read(api.post(f"/dead-letters/{service}/{identity}/replay"), answers.Replayed)
    return {"dead_letter_id": letter["dead_letter_id"], "service": letter["service"], **answer}


def _letter(api: Gateway, dead_letter_id: UUID) -> answers.DeadLetter:
    found = read(api.get("/dead-letters", include_replayed=True, limit=MOST_LETTERS), answers.DeadLetters)
    for letter in found["dead_letters"]:
        if letter["dead_letter_id"] == str(dead_letter_id):
            return letter
    _require_all(found)
    raise Failure(f"there is no dead letter {dead_letter_id}", code=NOT_FOUND)


def _require_all(found: answers.DeadLetters) -> None:
    """What a silent service keeps is not known: an answer without it is not the whole."""
    if silent := ", ".join(found["unavailable"]):
        raise Failure(f"{silent} did not answer: its dead letters are not listed", "see `burnish doctor`", FAILED)


def _add_token(group: click.Group) -> None:
    @verb(
        group,
        "token",
        example=(
            'curl -H "Authorization: Bearer $(burnish token)" http://127.0.0.1:8320/api/refinement/touchpoints\n'
            "burnish token --subject shop --role service --scope signals:write --hours 720"
        ),
        exits=EXITS,
    )
    @click.option("--role", type=click.Choice(TOKEN_ROLES), help="[default: admin; with --scope: service]")
    @click.option(
        "--subject", type=NAME, default="admin", show_default=True, help="Who it is for; the ledger names them."
    )
    @click.option(
        "--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="What a role that is no admin may do."
    )
    @click.option("--workspace", "workspaces", multiple=True, type=click.UUID, help="Only these.  [default: all]")
    @click.option("--hours", type=Seconds(0, 87_600, min_open=True), default=24.0, show_default=True)
    @data_option
    @json_option
    def token(
        role: str | None,
        subject: str,
        scopes: tuple[str, ...],
        workspaces: tuple[UUID, ...],
        hours: float,
        data: Path,
        as_json: bool,
    ) -> None:
        """Print a token for the gateway, signed with the key in the data folder."""
        from burnish.installation import Installation

        if scopes and role == "admin":
            raise click.UsageError("an admin may do everything: leave --scope out, or give another --role")
        role = role or ("service" if scopes else "admin")
        if not (data / "signing_key.json").exists():
            raise Failure(f"{data} has no signing key", "it is made by `burnish up`; name the folder with --data")
        made = Installation(data).token(
            role, subject, scopes=scopes, workspaces=workspaces or "*", lifetime_s=hours * 3600
        )
        if as_json:
            print_json({"token": made, "role": role, "subject": subject, "scopes": scopes, "hours": hours})
        else:
            printer.exact(f"{made}\n")
