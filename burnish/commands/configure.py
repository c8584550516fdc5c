"""Configure and feed: `touchpoints`, `scan`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from burnish import answers
from burnish.answers import read
from burnish.commands.measure import cases_of
from burnish.commands.show import short, when
from burnish.commands.verbs import Group, data_option, gateway, json_option, verb
from burnish.failure import FAILED, GATEWAY_EXITS, REFUSED, USAGE, Failure
from burnish.parameters import FILE, NAME, TOUCHPOINT_ID, Seconds
from burnish.printer import plain, print_fields, print_json, print_table, remark

if TYPE_CHECKING:
    from burnish.client import Gateway
    from burnish.touchpoints_file import TouchpointsFile

SCAN_POLL_S = 0.2


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    touchpoints = Group("touchpoints", help="Register AI features, and see what is registered.")
    group.add_command(touchpoints)
    _add_file_verbs(touchpoints)
    _add_looking(touchpoints)
    _add_confirm(touchpoints)
    _add_scan(group)


def _add_file_verbs(touchpoints: click.Group) -> None:
    @verb(
        touchpoints,
        "plan",
        example="burnish touchpoints plan touchpoints.yaml",
        exits={**GATEWAY_EXITS, 0: "done; stdout says what an apply would change"},
    )
    @click.argument("file", type=FILE)
    @data_option
    @json_option
    def plan(file: Path, data: Path, as_json: bool) -> None:
        """Say what `apply` would change, and change nothing."""
        told = _read(file)
        with gateway(data) as api, _placed(told):
            planned = read(api.post("/touchpoints/plan", _body(told)), answers.Plan)["touchpoints"]
        suites = {identity: len(cases_of(path)) for identity, path in told.suites.items()}
        if as_json:
            print_json({"touchpoints": planned, "suites": suites})
            return
        _print_plan(planned)
        for identity, cases in suites.items():
            remark(f"{identity}: a suite of {cases} cases would be imported")

    @verb(
        touchpoints,
        "apply",
        example="burnish touchpoints apply examples/support_desk/touchpoints.yaml",
        exits={**GATEWAY_EXITS, 0: "every touchpoint of the file is registered as it says"},
    )
    @click.argument("file", type=FILE)
    @click.option("--suites/--no-suites", default=True, show_default=True, help="Import the suites that it names, too.")
    @data_option
    @json_option
    def apply(file: Path, suites: bool, data: Path, as_json: bool) -> None:
        """Register the touchpoints of a file, and import their suites; safe to run again.

        All are registered or none. Touchpoints that the file does not name stay as they are.
        """
        told = _read(file)
        cases = {identity: cases_of(path) for identity, path in told.suites.items()} if suites else {}
        with gateway(data) as api:
            with _placed(told):
                applied = read(api.put("/touchpoints", _body(told)), answers.Plan)["touchpoints"]
            imported = [
                read(api.put(f"/touchpoints/{identity}/suite", {"cases": one}), answers.Suite)
                for identity, one in cases.items()
            ]
        if as_json:
            print_json({"touchpoints": applied, "suites": imported})
            return
        _print_plan(applied)
        for one in imported:
            remark(
                f"{one['touchpoint_id']}: suite of {one['dev_cases']} dev and {one['test_cases']} test cases imported"
            )


def _add_looking(touchpoints: click.Group) -> None:
    @verb(touchpoints, "list", example="burnish touchpoints list --json", exits=GATEWAY_EXITS)
    @data_option
    @json_option
    def list_(data: Path, as_json: bool) -> None:
        """List every touchpoint."""
        with gateway(data) as api:
            found = read(api.get("/touchpoints"), answers.Touchpoints)["touchpoints"]
        if as_json:
            print_json(found)
            return
        rows = [
            [one["touchpoint"]["id"], one["touchpoint"]["scope"], one["touchpoint"]["storage"]["adapter"],
             one["revision"], one["registered_by"], when(one["updated_at"])]
            for one in found
        ]  # fmt: skip
        print_table(["touchpoint", "scope", "storage", "revision", "by", "updated"], rows, empty="no touchpoint yet")

    @verb(touchpoints, "show", example="burnish touchpoints show support.intent", exits=GATEWAY_EXITS)
    @click.argument("touchpoint", type=TOUCHPOINT_ID)
    @click.option("--workspace", type=click.UUID, help="The workspace whose live version to show.")
    @data_option
    @json_option
    def show(touchpoint: str, workspace: UUID | None, data: Path, as_json: bool) -> None:
        """Show one touchpoint: configuration, signals, detector, live version."""
        with gateway(data) as api:
            one = read(api.get(f"/touchpoints/{touchpoint}"), answers.Registered)
            status = read(api.get(f"/touchpoints/{touchpoint}/status", workspace_id=workspace), answers.Status)
        if as_json:
            print_json({**one, "status": status})
        else:
            _print_touchpoint(one, status)


def _add_confirm(touchpoints: click.Group) -> None:
    @verb(
        touchpoints,
        "confirm",
        example="burnish touchpoints confirm support.intent",
        exits={**GATEWAY_EXITS, 0: "the repository was looked at", 1: "a change still cannot be committed"},
    )
    @click.argument("touchpoint", type=TOUCHPOINT_ID)
    @data_option
    @json_option
    def confirm(touchpoint: str, data: Path, as_json: bool) -> None:
        """Look at the repository now: what is merged becomes live, what failed is tried again."""
        with gateway(data) as api:
            intents = read(api.post(f"/touchpoints/{touchpoint}/confirm"), answers.Intents)["intents"]
        if as_json:
            print_json(intents)
        else:
            _print_intents(intents)
        if failed := [one for one in intents if one["state"] == "failed"]:
            raise Failure(failed[0]["error"] or "a change cannot be committed", code=FAILED)


def _print_intents(intents: list[answers.Intent]) -> None:
    rows = [
        [one["kind"], one["state"], one["branch"],
         short(one["proposal_id"]), one["reason"], when(one["updated_at"])]
        for one in intents
    ]  # fmt: skip
    print_table(["change", "state", "branch", "proposal", "why", "since"], rows, empty="nothing waits to be merged")


def _add_scan(group: click.Group) -> None:
    @verb(
        group,
        "scan",
        example="burnish scan support.intent --scanner si_flag",
        exits={**GATEWAY_EXITS, 0: "every scanner has run (with --no-wait: is asked to)", 1: "a scanner failed"},
    )
    @click.argument("touchpoint", type=TOUCHPOINT_ID)
    @click.option("--scanner", type=NAME, help="Only this one.  [default: all of the touchpoint's]")
    @click.option("--wait/--no-wait", default=True, show_default=True, help="Wait for the runs and show them.")
    @click.option("--timeout", "timeout_s", type=Seconds(1), default=60.0, show_default=True, help="Seconds.")
    @data_option
    @json_option
    def scan(touchpoint: str, scanner: str | None, wait: bool, timeout_s: float, data: Path, as_json: bool) -> None:
        """Let a touchpoint's scanners look for signals now."""
        with gateway(data) as api:
            before = {run["run_id"] for run in _runs(api, touchpoint)}
            registered = read(api.get(f"/touchpoints/{touchpoint}"), answers.Sources)["touchpoint"]
            known = {source["scanner"] for source in registered["signals"]}
            if not known:
                raise Failure(f"{touchpoint} has no scanners", "name them under `signals:` in its file", REFUSED)
            asked = read(
                api.post(f"/touchpoints/{touchpoint}/scan", {"scanner": scanner} if scanner else None),
                answers.Requested,
            )
            runs = _wait(api, touchpoint, before, {scanner} if scanner else known, timeout_s) if wait else []
        if as_json:
            print_json({**asked, "runs": runs})
        elif not wait:
            remark(f"asked for a scan of {touchpoint}")
        else:
            _print_runs(runs)
        if any(not run["ok"] for run in runs):
            raise Failure("a scanner failed", "the table names the reason", FAILED)


def _wait(
    api: Gateway, touchpoint: str, before: set[str], scanners: set[str], timeout_s: float
) -> list[answers.ScanRun]:
    """The first new run of each scanner."""
    deadline = time.monotonic() + timeout_s
    while True:
        new = [run for run in reversed(_runs(api, touchpoint)) if run["run_id"] not in before]
        first = {run["scanner"]: run for run in reversed(new)}
        if scanners <= first.keys():
            return [first[name] for name in sorted(first)]
        if time.monotonic() > deadline:
            late = ", ".join(sorted(scanners - first.keys()))
            raise Failure(f"no run of {late} within {timeout_s:g} s", "see `burnish doctor`")
        time.sleep(SCAN_POLL_S)


def _runs(api: Gateway, touchpoint: str) -> list[answers.ScanRun]:
    return read(api.get("/scans", touchpoint_id=touchpoint, limit=200), answers.ScanRuns)["runs"]


def _read(file: Path) -> TouchpointsFile:
    from burnish.touchpoints_file import TouchpointsFileError, read_touchpoints

    try:
        return read_touchpoints(file)
    except TouchpointsFileError as error:
        raise Failure(str(error), code=USAGE) from error


@contextmanager
def _placed(file: TouchpointsFile) -> Iterator[None]:
    """What the gateway says of a field becomes what is wrong in a line of the file."""
    from burnish.client import FieldErrors

    try:
        yield
    except FieldErrors as error:
        raise error.at(file.place, "nothing was changed") from error


def _body(file: TouchpointsFile) -> dict[str, Any]:
    return {"touchpoints": [one.model_dump(mode="json", exclude_unset=True) for one in file.touchpoints]}


def _print_plan(planned: list[answers.Planned]) -> None:
    rows = []
    for one in planned:
        changed = ", ".join(change["field"] for change in one["changes"]) if one["action"] != "create" else ""
        rows.append([one["touchpoint_id"], one["action"], one["revision"], changed, one["live"]])
    print_table(["touchpoint", "action", "revision", "changed fields", "becomes live"], rows)


def _print_touchpoint(one: answers.Registered, status: answers.Status) -> None:
    touchpoint, signals, live = one["touchpoint"], status["signals"], status["live"]
    storage = touchpoint["storage"]
    where = " ".join([storage["repository"] or "", *storage["paths"]]).strip()
    print_fields(
        [
            ("touchpoint", touchpoint["id"]),
            ("description", touchpoint["description"] or None),
            ("scope", touchpoint["scope"]),
            ("storage", f"{storage['adapter']} {where}".strip()),
            ("scanners", ", ".join(source["scanner"] for source in touchpoint["signals"]) or "none"),
            ("suite", json.dumps(touchpoint["suite"]) if touchpoint["suite"] else "none"),
            ("revision", f"{one['revision']}, by {one['registered_by']}, {when(one['updated_at'])}"),
            ("signals", f"{signals['stored']} stored, {signals['unprocessed']} new, {signals['rejected']} rejected"),
            ("detector", f"{status['detector']['signals']} signals, {status['detector']['patterns']} patterns"),
            ("live", f"{live['version_ref']} since {when(live['activated_at'])}" if live else "nothing"),
        ]
    )


def _print_runs(runs: list[answers.ScanRun]) -> None:
    rows = [
        [run["scanner"], run["signals_emitted"], "ok" if run["ok"] else plain(run["error"]), short(run["run_id"])]
        for run in runs
    ]
    print_table(["scanner", "signals", "outcome", "run"], rows)
