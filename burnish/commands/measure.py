"""Measure: `suites`, `ab`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from burnish.commands.show import print_fields, print_json, print_table, short, when
from burnish.commands.verbs import Group, data_option, gateway, json_option, remark, touchpoint_id, verb
from burnish.failure import GATEWAY_EXITS, NOT_FOUND, USAGE, Failure

if TYPE_CHECKING:
    from burnish.client import Gateway

POLL_S = 0.3
FINISHED = ("completed", "failed")


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    suites = Group("suites", help="Import and list gold standards.")
    group.add_command(suites)
    _add_suites(suites)
    _add_ab(group)


def _add_suites(suites: click.Group) -> None:
    @verb(
        suites,
        "import",
        example="burnish suites import support.intent examples/support_desk/data/gold.jsonl",
        exits={**GATEWAY_EXITS, 0: "these cases are the touchpoint's suite"},
    )
    @click.argument("touchpoint", type=touchpoint_id)
    @click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
    @data_option
    @json_option
    def import_(touchpoint: str, file: Path, data: Path, as_json: bool) -> None:
        """Make the cases of a .jsonl or .csv file the suite of a touchpoint.

        A case has `input` (or `text`) and `expected` (or `category`); `case_id`, `split` (dev or test) and `cluster`
        may be given. The same content again changes nothing.
        """
        cases = cases_of(file)
        with gateway(data) as api:
            suite = api.put(f"/touchpoints/{touchpoint}/suite", {"cases": cases})
        if as_json:
            print_json(suite)
        else:
            _print_suites([suite])

    @verb(suites, "list", example="burnish suites list", exits=GATEWAY_EXITS)
    @click.option("--touchpoint", type=touchpoint_id, metavar="ID", help="Only of this one.")
    @data_option
    @json_option
    def list_(touchpoint: str | None, data: Path, as_json: bool) -> None:
        """List the current suites, with the smallest difference each can detect."""
        with gateway(data) as api:
            found = api.get("/suites", touchpoint_id=touchpoint)["suites"]
        if as_json:
            print_json(found)
        else:
            _print_suites(found)


def cases_of(file: Path) -> list[dict[str, Any]]:
    """The cases of a suite's file, as the gateway takes them."""
    from burnish.suite_file import SuiteFileError, read_suite

    try:
        return [case.model_dump(mode="json", exclude_none=True) for case in read_suite(file)]
    except SuiteFileError as error:
        raise Failure(str(error), code=USAGE) from error


def _add_ab(group: click.Group) -> None:
    @verb(
        group,
        "ab",
        example="burnish ab 5b7e…\nburnish ab 5b7e… --no-wait --json\nburnish ab --run 77c0…",
        exits={**GATEWAY_EXITS, 0: "the run is complete, whatever its verdict", 1: "the run failed, or did not end"},
    )
    @click.argument("proposal_id", type=click.UUID, required=False)
    @click.option("--run", "run_id", type=click.UUID, help="Show a run that was asked for before.")
    @click.option("--wait/--no-wait", default=True, show_default=True, help="Wait for the verdict.")
    @click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=600.0, show_default=True, help="Seconds.")
    @data_option
    @json_option
    def ab(
        proposal_id: UUID | None, run_id: UUID | None, wait: bool, timeout_s: float, data: Path, as_json: bool
    ) -> None:
        """Measure a proposal against the live prompt, over the same cases of the suite."""
        if (proposal_id is None) == (run_id is None):
            raise click.UsageError("give a proposal to measure, or --run with the id of a run")
        with gateway(data) as api:
            if run_id is not None:
                api.get(f"/ab/{run_id}")  # a run that nobody asked for would be waited for in vain
            else:
                run_id = api.post(f"/proposals/{proposal_id}/ab")["run_id"]
            report = _finished(api, str(run_id), timeout_s) if wait else {"run_id": str(run_id)}
        if as_json:
            print_json(report)
        elif wait:
            _print_report(report)
        else:
            remark(f"asked; see `burnish ab --run {run_id}`")
        if report.get("status") == "failed":
            raise Failure("the run failed", str(report["error"] or report["reason"]))


def _finished(api: Gateway, run_id: str, timeout_s: float) -> dict[str, Any]:
    """The report once the run has ended; its progress on a terminal meanwhile."""
    from rich.console import Console
    from rich.progress import Progress

    deadline = time.monotonic() + timeout_s
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("cases", total=None)
        while time.monotonic() < deadline:
            report = _report(api, run_id)
            if report is not None:
                bar.update(task, total=report["cases_total"] or None, completed=report["cases_done"])
                if report["status"] in FINISHED:
                    return report
            time.sleep(POLL_S)
    raise Failure(f"the run {run_id} has not ended within {timeout_s:g} s", f"see `burnish ab --run {run_id}`")


def _report(api: Gateway, run_id: str) -> dict[str, Any] | None:
    """None while the runner has not heard of it."""
    try:
        report: dict[str, Any] = api.get(f"/ab/{run_id}")
    except Failure as error:
        if error.exit_code == NOT_FOUND:
            return None
        raise
    return report


def _print_report(report: dict[str, Any]) -> None:
    gained, lost = len(report["flips"]["gained"]), len(report["flips"]["lost"])
    print_fields(
        [
            ("run", report["run_id"]),
            ("touchpoint", report["touchpoint_id"]),
            ("A", f"{report['label_a']} ({short(report['a_sha256'])})"),
            ("B", f"{report['label_b']} ({short(report['b_sha256'])})"),
            ("cases", f"{report['n']} of the {report['split']} split"),
            ("flips", f"{gained} gained, {lost} lost"),
            ("verdict", f"{report['verdict']}: {report['reason']}" if report["verdict"] else report["status"]),
            ("finished", when(report["finished_at"])),
        ]
    )
    rows = [
        [one["name"] + (" *" if one["is_primary"] else ""), one["a"], one["b"], f"{one['delta']:+.4f}",
         f"{one['ci95'][0]:+.4f} … {one['ci95'][1]:+.4f}", one["effect_size"], one["method"]]
        for one in report["metrics"]
    ]  # fmt: skip
    if rows:
        click.echo()
        print_table(["metric", "A", "B", "difference", "95 % interval", "effect", "method"], rows)


def _print_suites(suites: list[dict[str, Any]]) -> None:
    rows = [
        [one["touchpoint_id"], one["dev_cases"], one["test_cases"], one["labels"], one["smallest_detectable_effect"],
         short(one["suite_sha256"]), when(one["imported_at"])]
        for one in suites
    ]  # fmt: skip
    print_table(
        ["touchpoint", "dev cases", "test cases", "labels", "smallest difference", "sha256", "imported"],
        rows,
        empty="no suite yet",
    )
