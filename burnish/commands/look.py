"""Look: `signals` (and feed them), `patterns`."""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from burnish import answers
from burnish.answers import read
from burnish.commands.show import when
from burnish.commands.verbs import Group, data_option, gateway, json_option, verb
from burnish.failure import GATEWAY_EXITS, NOT_FOUND, USAGE, Failure
from burnish.json_text import NotJson, read_json
from burnish.parameters import FILE_OR_STDIN, KEY, NAME, TEXT, TOUCHPOINT_ID
from burnish.printer import answer, plain, print_fields, print_json, print_table, remark
from libs.files import UnreadableFile, read_bytes, read_stream

if TYPE_CHECKING:
    from burnish.client import Gateway

MAX_PUSH = 1_000
MAX_PUSH_BYTES = 3_000_000
MAX_FILE_BYTES = 200_000_000
STDIN = Path("-")


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    signals = Group("signals", help="List, read and push quality signals.")
    patterns = Group("patterns", help="See what goes wrong again and again.")
    group.add_command(signals)
    group.add_command(patterns)
    _add_signals(signals)
    _add_push(signals)
    _add_patterns(patterns)


def _add_signals(signals: click.Group) -> None:
    @verb(
        signals,
        "list",
        example="burnish signals list --touchpoint support.intent --limit 10\nburnish signals list --rejected --json",
        exits=GATEWAY_EXITS,
    )
    @click.option("--touchpoint", type=TOUCHPOINT_ID, metavar="ID", help="Only of this one.")
    @click.option("--rejected/--accepted", default=None, help="Only those that do not count, or that do.")
    @click.option("--unprocessed", is_flag=True, help="Only those the detector has not looked at.")
    @click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
    @click.option("--cursor", type=NAME, help="The `next` of the page before.")
    @data_option
    @json_option
    def list_(
        touchpoint: str | None,
        rejected: bool | None,
        unprocessed: bool,
        limit: int,
        cursor: str | None,
        data: Path,
        as_json: bool,
    ) -> None:
        """List signals, newest first."""
        with gateway(data) as api:
            asked = {"touchpoint_id": touchpoint, "rejected": rejected, "unprocessed": unprocessed or None}
            page = read(api.get("/signals", **asked, limit=limit, cursor=cursor), answers.SignalPage)
        if as_json:
            print_json(page)
            return
        rows = [
            [one["signal_id"], one["touchpoint_id"], one["signal_type"], one["severity"], one["actor_id"],
             one["rejected"] or ("processed" if one["processed_at"] else "new"), when(one["last_seen"])]
            for one in page["signals"]
        ]  # fmt: skip
        print_table(["signal", "touchpoint", "type", "severity", "actor", "state", "last seen"], rows)
        if page["next"]:
            remark(f"more: --cursor '{page['next']}'")

    @verb(signals, "show", example="burnish signals show 3f0c…", exits=GATEWAY_EXITS)
    @click.argument("signal_id", type=click.UUID)
    @data_option
    @json_option
    def show(signal_id: uuid.UUID, data: Path, as_json: bool) -> None:
        """Show one signal with its payload."""
        with gateway(data) as api:
            found = read(api.get("/signals", signal_id=str(signal_id), limit=1), answers.WholeSignals)["signals"]
        if not found:
            raise Failure(f"there is no signal {signal_id}", code=NOT_FOUND)
        if as_json:
            print_json(found[0])
            return
        print_fields([(name, value) for name, value in found[0].items() if not isinstance(value, dict)])
        print_fields([(f"evidence_ref.{key}", value) for key, value in found[0]["evidence_ref"].items()])
        print_fields([(f"payload.{key}", value) for key, value in found[0]["payload"].items()])


def _add_push(signals: click.Group) -> None:
    @verb(
        signals,
        "push",
        example=(
            "burnish signals push --touchpoint support.intent --text 'where is my refund' "
            "--expected refund_status --got card_charge\nburnish signals push --file signals.jsonl"
        ),
        exits={**GATEWAY_EXITS, 0: "the gateway has stored them durably"},
    )
    @click.option("--file", type=FILE_OR_STDIN, help="JSON lines, one signal each; - for stdin.")
    @click.option("--touchpoint", type=TOUCHPOINT_ID, metavar="ID", help="The touchpoint of the one signal.")
    @click.option("--type", "signal_type", type=NAME, default="flag", show_default=True, help="Its type.")
    @click.option("--workspace", type=click.UUID, help="Its workspace, for a workspace touchpoint.")
    @click.option("--actor", type=NAME, help="Who noticed.  [default: the token's owner]")
    @click.option("--text", type=TEXT, help="The input that the AI feature saw.")
    @click.option("--expected", type=TEXT, help="The output that would have been right.")
    @click.option("--got", type=TEXT, help="The output that came.")
    @click.option("--reason", type=TEXT, help="What the person says about it.")
    @click.option("--key", type=KEY, help="An idempotency key: the same key is one push.  [default: a new one]")
    @data_option
    @json_option
    def push(
        file: Path | None,
        touchpoint: str | None,
        signal_type: str,
        workspace: uuid.UUID | None,
        actor: str | None,
        key: str | None,
        data: Path,
        as_json: bool,
        **payload: str | None,
    ) -> None:
        """Push one signal, or a file of them."""
        if (file is None) == (touchpoint is None):
            raise click.UsageError("give --file, or --touchpoint with what is known of the one signal")
        name = ""
        if file is not None:
            name, signals = _signals_of(file)
        else:
            one = {
                "touchpoint_id": touchpoint,
                "signal_type": signal_type,
                "workspace_id": str(workspace) if workspace else None,
                "actor_id": actor,
                "payload": {name: value for name, value in payload.items() if value is not None},
            }
            signals = [(0, one)]
        pushed = _push_all(data, name, signals, key or uuid.uuid4().hex)
        if as_json:
            print_json({"accepted": len(pushed), "signal_ids": pushed})
        else:
            remark(f"{len(pushed)} signal{'s' * (len(pushed) != 1)} accepted")


Numbered = tuple[int, dict[str, Any]]
"""A signal with the line it stands in."""


def _push_all(data: Path, name: str, signals: list[Numbered], key: str) -> list[str]:
    """Push in batches. A refusal names the line, and how to go on without pushing anything twice."""
    from burnish.client import FieldErrors

    pushed: list[str] = []
    with gateway(data) as api:
        for number, batch in enumerate(_batches(signals)):
            body = {"signals": [signal for _, signal in batch]}
            try:
                accepted = api.post("/signals", body, {"Idempotency-Key": f"{key}-{number}"})
                pushed += read(accepted, answers.Accepted)["signal_ids"]
            except FieldErrors as error:
                place = partial(_place, name, [line for line, _ in batch])
                hint = f"the {len(pushed)} before were accepted; `--key {key}` goes on after them" if pushed else ""
                raise error.at(place, hint) from error
        for note in _uncounted(api, signals):
            remark(f"note: {note}")
    return pushed


def _uncounted(api: Gateway, signals: list[Numbered]) -> list[str]:
    """Which of the accepted signals will be kept without counting, and why; nothing where the token may only push."""
    try:
        registered = [one["touchpoint"] for one in read(api.get("/touchpoints"), answers.Scopes)["touchpoints"]]
    except Failure:
        return []
    scopes = {one["id"]: one["scope"] for one in registered}
    pairs = {(str(signal.get("touchpoint_id")), signal.get("workspace_id") is not None) for _, signal in signals}
    remarks = []
    for touchpoint, with_workspace in sorted(pairs):
        match scopes.get(touchpoint), with_workspace:
            case None, _:
                remarks.append(f"{plain(touchpoint)} is not registered: its signals count once it is")
            case "global", True:
                remarks.append(f"{touchpoint} is global: its signals that name a workspace do not count")
            case "workspace", False:
                remarks.append(f"{touchpoint} is scoped to workspaces: its signals without one do not count")
    return list(dict.fromkeys(remarks))


def _batches(signals: list[Numbered]) -> Iterator[list[Numbered]]:
    """As many at once as the gateway takes: by number, and by bytes."""
    batch: list[Numbered] = []
    size = 0
    for numbered in signals:
        more = len(json.dumps(numbered[1]))
        if batch and (len(batch) == MAX_PUSH or size + more > MAX_PUSH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(numbered)
        size += more
    if batch:
        yield batch


def _place(name: str, lines: list[int], field: str) -> str:
    """`signals[2].payload.text` as file, line and field; as it is where it was typed on the command line."""
    found = re.fullmatch(r"signals\[(\d+)\]\.?(.*)", field)
    if not found:
        return field
    within = found[2] or "the signal"
    return f"{name}, line {lines[int(found[1])]}: {within}" if name else within


def _signals_of(file: Path) -> tuple[str, list[Numbered]]:
    """The file's name and every signal of it. It is read first as a whole: a bad line stops the push before it begins.

    `-` is standard input.
    """
    name = "<stdin>" if file == STDIN else str(file)
    signals: list[Numbered] = []
    for number, line in enumerate(_pushed_bytes(file, name).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            signal = read_json(line)
        except NotJson as error:
            raise Failure(f"{name}, line {number}: {error}", code=USAGE) from error
        if not isinstance(signal, dict):
            raise Failure(f"{name}, line {number}: a signal is an object", code=USAGE)
        signals.append((number, signal))
    if not signals:
        raise Failure(f"{name} has no signals", "one JSON object a line was expected", USAGE)
    return name, signals


def _pushed_bytes(file: Path, name: str) -> bytes:
    try:
        if file == STDIN:
            if sys.stdin is None:
                raise Failure("stdin is closed", "give it a file, or a pipe", USAGE)
            return read_stream(sys.stdin.buffer, name, MAX_FILE_BYTES)
        return read_bytes(file, MAX_FILE_BYTES)
    except UnreadableFile as error:
        hint = "push it in parts" if "bytes" in error.reason else "what comes out of a pipe is read with `--file -`"
        raise Failure(str(error), hint, USAGE) from error


def _add_patterns(patterns: click.Group) -> None:
    @verb(patterns, "list", example="burnish patterns list --touchpoint support.intent", exits=GATEWAY_EXITS)
    @click.option("--touchpoint", type=TOUCHPOINT_ID, metavar="ID", help="Only of this one.")
    @click.option("--all", "include_resolved", is_flag=True, help="Resolved ones, too.")
    @click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
    @data_option
    @json_option
    def list_(touchpoint: str | None, include_resolved: bool, limit: int, data: Path, as_json: bool) -> None:
        """List patterns, the highest score first."""
        path = f"/touchpoints/{touchpoint}/patterns" if touchpoint else "/patterns"
        with gateway(data) as api:
            asked = api.get(path, limit=limit, include_resolved=include_resolved)
            found = read(asked, answers.Patterns)["patterns"]
        if as_json:
            print_json(found)
            return
        rows = [
            [one["pattern_id"], one["touchpoint_id"], one["title"], one["state"], one["evidence_count"],
             one["actors"], one["score"]]
            for one in found
        ]  # fmt: skip
        print_table(["pattern", "touchpoint", "title", "state", "evidence", "actors", "score"], rows)

    @verb(patterns, "show", example="burnish patterns show 8a51…", exits=GATEWAY_EXITS)
    @click.argument("pattern_id", type=click.UUID)
    @data_option
    @json_option
    def show(pattern_id: uuid.UUID, data: Path, as_json: bool) -> None:
        """Show one pattern with its strongest evidence."""
        with gateway(data) as api:
            one = read(api.get(f"/patterns/{pattern_id}"), answers.WholePattern)
        if as_json:
            print_json(one)
            return
        shown = ("pattern_id", "touchpoint_id", "title", "strategy", "state", "expected", "got", "evidence_count")
        counted = ("actors", "human_actors", "machine_cases", "single_actor", "automatic", "score")
        print_fields([(name, one.get(name)) for name in (*shown, *counted)])
        answer()
        rows = [
            [item["signal_type"], item["expected"], item["got"], plain(item["text"])[:80], plain(item["reason"])[:60]]
            for item in one["evidence"]
        ]
        print_table(["type", "expected", "got", "input", "reason"], rows)
